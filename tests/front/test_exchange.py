"""What is told of a request at its end, and what is kept of it meanwhile."""

import pytest

from llamasup.core.routes import Hold, Serve
from llamasup.front.exchange import Outcome
from llamasup.front.limits import Limits
from tests.front.conftest import World, eventually
from tests.front.test_relay import OK, SEEN_OK, post


async def test_the_log_of_a_held_request(world: World):
    world.publish(Hold("loading"))
    client = await world.client(post(b"x"))
    await eventually(lambda: world.gate.held("chat") == 1)
    child = await world.child(3)
    world.publish(Serve(3))
    (await child.accept()).send(OK)
    await client.exactly(len(SEEN_OK))

    (log,) = world.logs

    assert (log.name, log.gen, log.method, log.target) == (
        "chat",
        3,
        "POST",
        "/v1/chat/completions",
    )
    assert (log.status, log.outcome, log.is_replayed) == (200, Outcome.DONE, False)
    assert log.admitted_at is not None
    assert log.first_byte_at is not None
    assert log.arrived_at <= log.admitted_at <= log.first_byte_at <= log.ended_at


async def test_nothing_is_kept_once_the_answer_has_begun(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(post(b"x" * 1000))
    peer = await child.accept()
    await peer.head()
    assert world.front._relay.kept == 1000

    peer.send(OK[:-1])
    await client.until(b"\r\n\r\no")

    assert world.front._relay.kept == 0


class TestCrowd:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(keep_total=1000, sweep_period=0.02)

    async def test_what_all_requests_keep_is_bounded(self, world: World):
        """One more than the total is passed on all the same, but cannot be sent again."""
        child = await world.child()
        world.publish(Serve(1))
        await world.client(post(b"x" * 900))
        await child.accept()
        client = await world.client(post(b"y" * 900, b"Connection: close"))
        peer = await child.accept()
        await peer.exactly(900)
        assert world.front._relay.kept == 900

        peer.reset()

        assert b" 502 " in await client.rest()

    async def test_a_held_request_waits_with_its_body_unread(self, world: World):
        world.publish(Hold("loading"))
        await world.client(post(b"x" * 900))
        await eventually(lambda: world.gate.held("chat") == 1)
        client = await world.client(post(b"y" * 5_000_000))
        await eventually(lambda: world.gate.held("chat") == 2)
        child = await world.child()

        world.publish(Serve(1))

        await child.accept()
        peer = await child.accept()
        await peer.head()
        assert await peer.exactly(5_000_000) == b"y" * 5_000_000
        peer.send(OK)
        assert await client.exactly(len(SEEN_OK)) == SEEN_OK

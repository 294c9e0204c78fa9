"""The relay as a client and a child see it, over real sockets, in one process."""

import json
import random

import pytest

from llamasup.core.routes import Hold, Refuse, Serve
from llamasup.front.exchange import Outcome
from llamasup.front.limits import MIB, Limits
from tests.front.conftest import World, eventually

GET = b"GET /health HTTP/1.1\r\nHost: box\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SEEN_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Llamasup-Instance: chat\r\n\r\nok"
SEEN_OK_CLOSE = SEEN_OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def post(body: bytes, *lines: bytes) -> bytes:
    head = [b"POST /v1/chat/completions HTTP/1.1", b"Host: box", *lines]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", body])


def error_of(raw: bytes) -> tuple[int, str]:
    head, _, body = raw.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert head.startswith(b"HTTP/1.1 %d " % error["code"])
    return error["code"], error["message"]


async def test_a_connection_serves_one_request_after_another(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client()

    for _ in range(3):
        client.send(post(b"hello"))
        peer = await child.accept()
        head = await peer.head()
        assert head.endswith(b"X-Forwarded-For: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert await peer.exactly(5) == b"hello"
        peer.send(OK)
        assert await client.exactly(len(SEEN_OK)) == SEEN_OK
        assert await peer.rest() == b""

    assert world.idle == [("chat", 1)] * 3
    assert [log.outcome for log in world.logs] == [Outcome.DONE] * 3
    assert world.logs[0].status == 200


async def test_pipelined_requests_are_answered_strictly_in_turn(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(post(b"one") + post(b"two") + GET)

    for body in (b"one", b"two", b""):
        peer = await child.accept()
        await peer.head()
        assert await peer.exactly(len(body)) == body
        assert len(child.peers) == world.gate.counters("chat").admitted
        peer.send(OK)
        assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def test_a_chunked_request_is_passed_on_in_pieces(world: World):
    child = await world.child()
    world.publish(Serve(1))
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    client = await world.client(head + b"3;ext=1\r\nabc\r")
    peer = await child.accept()

    assert b"\r\nTransfer-Encoding: chunked\r\n" in await peer.head()
    assert await peer.exactly(8) == b"3\r\nabc\r\n"
    client.send(b"\n2\r\nde\r\n0\r\nA: b\r\n\r\n" + GET)
    assert await peer.exactly(12) == b"2\r\nde\r\n0\r\n\r\n"
    peer.send(OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK
    assert (await (await child.accept()).head()).startswith(b"GET /health ")


async def test_a_bad_chunk_ends_the_connection(world: World):
    child = await world.child()
    world.publish(Serve(1))
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    client = await world.client(head)
    peer = await child.accept()
    await peer.head()

    client.send(b"0x3\r\nabc\r\n0\r\n\r\n" + GET)

    assert error_of(await client.rest())[0] == 400
    assert await peer.rest() == b""
    assert len(child.peers) == 1


async def test_a_stream_is_passed_on_as_it_comes(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(post(b"{}"))
    peer = await child.accept()
    await peer.head()

    peer.send(SSE)
    head = await client.head()
    assert head == SSE[:-2] + b"X-Llamasup-Instance: chat\r\n\r\n"
    for n in range(20):
        event = b"data: %d\n\n" % n
        chunk = b"%x\r\n%b\r\n" % (len(event), event)
        peer.send(chunk)
        assert await client.exactly(len(chunk)) == chunk
    peer.send(b"0\r\n\r\n")
    assert await client.exactly(5) == b"0\r\n\r\n"
    client.send(GET)
    await child.accept()


async def test_held_requests_go_through_when_the_child_is_ready(world: World):
    world.publish(Hold("loading"))
    clients = [await world.client(post(b"%d" % n)) for n in range(3)]
    await eventually(lambda: world.gate.held("chat") == 3)
    child = await world.child(gen=2)

    world.publish(Serve(2))

    for _ in clients:
        peer = await child.accept()
        await peer.head()
        body = await peer.exactly(1)
        peer.send(OK.replace(b"ok", b"n" + body))
    for n, client in enumerate(clients):
        assert (await client.exactly(len(SEEN_OK))).endswith(b"n%d" % n)


async def test_refusals_have_a_reason(world: World):
    world.publish(Refuse("the model file is broken", retry_after=30))
    client = await world.client(GET + GET)

    for _ in range(2):
        head = await client.head()
        assert b"\r\nRetry-After: 30\r\n" in head
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        assert b"the model file is broken" in await client.exactly(length)


async def test_a_full_queue_refuses(world: World):
    world.publish(Hold("loading"), max_held=1)
    await world.client(GET)
    await eventually(lambda: world.gate.held("chat") == 1)

    client = await world.client(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    status, message = error_of(await client.rest())
    assert status == 503
    assert "1 requests are waiting" in message


async def test_a_hold_ends_with_503(world: World):
    world.publish(Hold("loading"), hold_timeout=0.05)
    client = await world.client(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    assert error_of(await client.rest())[0] == 503


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("stage", ["held", "body", "waiting", "answering"])
async def test_a_client_that_leaves_ends_its_upstream_connection(
    world: World, stage: str, half: bool
):
    child = await world.child()
    world.publish(Hold("loading") if stage == "held" else Serve(1))
    whole = post(b"hello")
    client = await world.client(whole[:-2] if stage == "body" else whole)
    peer = None
    if stage == "held":
        await eventually(lambda: world.gate.held("chat") == 1)
    else:
        peer = await child.accept()
        await peer.head()
        if stage == "answering":
            peer.send(SSE + b"5\r\ndata:\r\n")
            await client.until(b"data:\r\n")

    if half:
        client.writer.write_eof()
    else:
        client.reset()

    if peer is not None:
        await peer.rest()
    await eventually(lambda: world.front.connections == 0)
    world.assert_nothing_is_left()
    expected = "waiting" if stage == "body" else stage
    assert world.gate.counters("chat").cancelled == {expected: 1}
    assert [log.outcome for log in world.logs] == [Outcome.CANCELLED]


class TestHeldBodies:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(hold=64 * 1024, keep=MIB, sweep_period=0.02)

    async def test_a_big_body_is_read_when_its_turn_comes(self, world: World):
        world.publish(Hold("loading"))
        body = random.Random(1).randbytes(20 * MIB)
        client = await world.client(post(body))
        await eventually(lambda: world.gate.held("chat") == 1)
        await eventually(lambda: world.front._relay.kept > 64 * 1024)
        assert world.front._relay.kept < 2 * MIB
        child = await world.child()

        world.publish(Serve(1))

        peer = await child.accept()
        await peer.head()
        assert await peer.exactly(len(body)) == body
        peer.send(OK)
        assert await client.exactly(len(SEEN_OK)) == SEEN_OK

    async def test_a_client_that_leaves_while_nothing_is_read_is_noticed(self, world: World):
        world.publish(Hold("loading"))
        client = await world.client(post(b"x" * 20 * MIB))
        await eventually(lambda: world.front._relay.kept > 64 * 1024)

        client.reset()

        await eventually(lambda: world.front.connections == 0)
        world.assert_nothing_is_left()

    async def test_what_is_too_large_to_keep_cannot_be_sent_again(self, world: World):
        child = await world.child()
        world.publish(Serve(1))
        client = await world.client(post(b"x" * 2 * MIB, b"Connection: close"))
        peer = await child.accept()
        await peer.exactly(2 * MIB)

        peer.reset()

        status, message = error_of(await client.rest())
        assert status == 502
        assert "too large" in message


async def test_a_request_whose_child_dies_unanswered_is_sent_again_once(world: World):
    first, second = await world.child(1), await world.child(2)
    world.publish(Serve(1))
    client = await world.client(post(b"hello", b"Connection: close"))
    peer = await first.accept()
    await peer.exactly(20)
    other = await world.client()

    peer.reset()
    await eventually(lambda: world.gate.held("chat") == 1)
    assert world.gate.in_flight("chat", 1) == 0
    world.publish(Hold("restarting"))
    other.send(post(b"later"))
    await eventually(lambda: world.gate.held("chat") == 2)
    world.publish(Serve(2))

    again = await second.accept()
    await again.head()
    assert await again.exactly(5) == b"hello"
    again.send(OK)
    assert await client.rest() == SEEN_OK_CLOSE
    assert world.logs[0].is_replayed
    assert world.gate.counters("chat").replays == 1


async def test_a_second_death_is_told(world: World):
    first, second = await world.child(1), await world.child(2)
    world.publish(Serve(1))
    client = await world.client(post(b"hello", b"Connection: close"))
    (await first.accept()).reset()
    await eventually(lambda: world.gate.held("chat") == 1)
    world.publish(Serve(2))

    peer = await second.accept()
    await peer.head()
    peer.close()

    status, message = error_of(await client.rest())
    assert status == 502
    assert "twice" in message


async def test_a_child_that_cannot_be_reached_is_waited_for(world: World):
    world.publish(Serve(1))
    client = await world.client(GET)
    await eventually(lambda: world.gate.held("chat") == 1)
    child = await world.child(2)

    world.publish(Serve(2))

    (await child.accept()).send(OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def test_a_stream_whose_child_dies_ends_with_an_error_event(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(post(b"{}"))
    peer = await child.accept()
    await peer.head()
    peer.send(SSE + b"9\r\ndata: 1\n\n\r\n3\r\n:\n\n\r\n")

    peer.close()

    raw = await client.until(b"\r\n0\r\n\r\n")
    event = raw.split(b"data: ")[-1].split(b"\n")[0]
    assert json.loads(event)["error"]["type"] == "server_error"
    assert world.logs[0].outcome is Outcome.CUT
    # Nothing said that the connection would end, so a client may have begun to use it again.
    client.send(post(b"{}"))
    peer = await child.accept()
    await peer.head()
    peer.send(OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK


@pytest.mark.parametrize(
    "begun",
    [
        SSE + b"9\r\ndata",
        OK[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    ],
)
async def test_other_answers_that_are_cut_show_it(world: World, begun: bytes):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(post(b"{}"))
    peer = await child.accept()
    await peer.head()
    peer.send(begun)

    peer.close()

    raw = await client.rest()
    assert raw.endswith(begun.partition(b"\r\n\r\n")[2])


async def test_an_answer_that_comes_before_the_body_ends_the_connection(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(post(b"x" * 100_000)[:-10])
    peer = await child.accept()
    await peer.head()

    peer.send(OK.replace(b"200 OK", b"413 Payload Too Large"))
    peer.close()

    raw = await client.rest()
    assert raw.startswith(b"HTTP/1.1 413 Payload Too Large\r\n")
    assert b"\r\nConnection: close\r\n" in raw
    assert raw.endswith(b"ok")


async def test_100_continue_is_said_by_the_front(world: World):
    child = await world.child()
    world.publish(Serve(1))
    whole = post(b"hello", b"Expect: 100-continue")
    client = await world.client(whole[:-5])

    assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"hello")
    peer = await child.accept()
    assert b"Expect" not in await peer.head()
    assert await peer.exactly(5) == b"hello"
    peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def test_head_has_no_body(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + GET)

    (await child.accept()).send(OK[:-2])
    assert await client.exactly(len(SEEN_OK) - 2) == SEEN_OK[:-2]
    (await child.accept()).send(OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def test_an_old_client_gets_bare_content_and_the_end(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(b"GET / HTTP/1.0\r\n\r\n")
    peer = await child.accept()
    assert b"\r\nHost: localhost\r\n" in await peer.head()

    peer.send(SSE + b"5\r\nhello\r\n0\r\n\r\n")

    head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"hello"

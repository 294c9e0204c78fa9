"""Bad, slow and restless clients, over real sockets."""

import asyncio
import random

import pytest

from llamasup.core.routes import Serve
from llamasup.front.limits import MIB, Limits
from tests.front.conftest import World, eventually
from tests.front.test_relay import GET, OK, SEEN_OK, error_of, post


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /" + b"a" * 10_000, 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 6000 + b"\r\n", 431),
    ],
)
async def test_a_bad_request_is_told_and_its_connection_ends(world: World, raw: bytes, status: int):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(raw + GET)

    assert error_of(await client.rest())[0] == status
    assert child.peers == []


class TestSlowClients:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(
            head_timeout=0.1,
            idle_timeout=0.1,
            body_timeout=0.1,
            write_timeout=0.1,
            linger_timeout=0.1,
            sweep_period=0.02,
        )

    async def test_a_trickling_head(self, world: World):
        client = await world.client(b"GET / HTTP/1.1\r\n")

        assert error_of(await client.rest())[0] == 408

    async def test_an_idle_connection(self, world: World):
        client = await world.client()

        assert await client.rest() == b""

    async def test_a_body_that_stops(self, world: World):
        child = await world.child()
        world.publish(Serve(1))
        client = await world.client(post(b"hello")[:-1])
        peer = await child.accept()

        assert error_of(await client.rest())[0] == 408
        await peer.rest()

    async def test_an_answer_that_takes_its_time_is_waited_for(self, world: World):
        child = await world.child()
        world.publish(Serve(1))
        client = await world.client(GET)
        peer = await child.accept()
        await asyncio.sleep(0.3)

        peer.send(OK)

        assert await client.exactly(len(SEEN_OK)) == SEEN_OK

    async def test_a_client_that_never_reads(self, world: World):
        child = await world.child()
        world.publish(Serve(1))
        await world.client(GET, limit=2048)
        peer = await child.accept()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 20 * MIB)

        await eventually(lambda: world.front.connections == 0)
        assert world.gate.counters("chat").cancelled == {"answering": 1}


async def test_a_slow_reader_holds_its_child_back(world: World):
    """100 MB go through with little of it in memory at any time."""
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(GET, limit=4096)
    peer = await child.accept()
    size = 100 * MIB
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    piece = b"x" * MIB
    most = 0

    async def produce() -> None:
        for _ in range(100):
            peer.send(piece)
            await peer.writer.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        await client.head()
        got = 0
        async with asyncio.timeout(60):
            while got < size:
                data = await client.reader.read(MIB)
                assert data
                got += len(data)
                (connection,) = world.front._relay.connections
                most = max(most, connection._link.unsent)

    assert got == size
    assert 0 < most < 512 * 1024


async def test_random_bytes_do_not_break_the_listener(world: World):
    child = await world.child()
    world.publish(Serve(1))
    rng = random.Random(7)
    words = [
        GET,
        post(b"x"),
        b"\r\n",
        b"\x00",
        b"HTTP/1.1",
        b"Content-Length: 9",
        b"0\r\n\r\n",
        b" ",
        b"\n",
    ]

    for _ in range(150):
        junk = b"".join(
            rng.choice(words) if rng.random() < 0.7 else rng.randbytes(5)
            for _ in range(rng.randrange(12))
        )
        client = await world.client(junk)
        if rng.random() < 0.5:
            client.writer.write_eof()
        await asyncio.sleep(0)
        client.reset()
    await eventually(lambda: world.front.connections == 0)

    client = await world.client(GET)
    peer = await child.accept()
    while b"/health" not in await peer.head() or peer.reader.at_eof():
        peer = await child.accept()
    for one in child.peers:
        if not one.writer.is_closing():
            one.send(OK)
    assert await client.exactly(len(SEEN_OK)) == SEEN_OK


async def test_a_client_that_is_still_sending_gets_its_refusal(world: World):
    """Closing on bytes unread would reset the connection, and the answer might be lost."""
    client = await world.client(b"POST / HTTP/1.1\r\n\r\n")
    assert (await client.until(b"}}")).startswith(b"HTTP/1.1 400 ")

    for _ in range(30):
        client.send(b"x" * 100_000)
        await client.writer.drain()
    client.writer.write_eof()

    assert await client.rest() == b""
    await eventually(lambda: world.front.connections == 0)

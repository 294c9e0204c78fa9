"""The listeners of the front."""

import asyncio
import os
import socket

import pytest

from llamasup.config.spec import Address
from llamasup.core.routes import Hold, Refuse, Serve
from llamasup.errors import ListenError
from llamasup.front.app import Front
from llamasup.front.gate import Gate
from llamasup.front.limits import Limits
from tests.front.conftest import World, eventually, free_port
from tests.front.test_relay import GET, OK, SEEN_OK_CLOSE


def address(port: int) -> Address:
    return Address("127.0.0.1", port)


def is_open(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


async def test_only_what_changes_is_touched(world: World):
    world.publish(Hold("loading"))
    await world.client(GET)
    await eventually(lambda: world.gate.held("chat") == 1)
    second = free_port()

    await world.front.configure({"chat": address(world.port), "other": address(second)})
    assert is_open(second)
    await world.front.configure({"chat": address(world.port)})

    assert not is_open(second)
    assert world.gate.held("chat") == 1


async def test_two_instances_swap_their_ports(world: World):
    second = free_port()
    await world.front.configure({"a": address(world.port), "chat": address(second)})
    world.publish(Refuse("busy"))

    client = await world.client(GET)
    assert b"instance 'a'" in await client.until(b"}}")
    await world.front.configure({"a": address(second), "chat": address(world.port)})
    client = await world.client(GET)
    assert b"instance 'chat'" in await client.until(b"}}")


async def test_the_same_port_on_another_address(world: World):
    await world.front.configure({"chat": Address("0.0.0.0", world.port)})

    assert is_open(world.port)


async def test_a_taken_port_is_told_with_its_holder(world: World):
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            await world.front.configure({"chat": address(port), "other": address(free)})

    text = f"cannot listen on 127.0.0.1:{port} for instance 'chat': Address already in use by "
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith(f"(pid {os.getpid()})")
    assert is_open(world.port)
    assert not is_open(free)


async def test_close_gives_answers_their_time(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(GET)
    idle = await world.client()
    peer = await child.accept()
    await peer.head()

    async with asyncio.TaskGroup() as group:
        group.create_task(world.front.close(grace=20.0))
        assert await idle.rest() == b""
        assert not is_open(world.port)
        peer.send(OK)
        assert await client.rest() == SEEN_OK_CLOSE


async def test_close_cuts_what_takes_too_long(world: World):
    child = await world.child()
    world.publish(Serve(1))
    client = await world.client(GET)
    peer = await child.accept()

    await world.front.close(grace=0.01)

    assert await client.rest() == b""
    await peer.rest()
    assert world.front.connections == 0


async def test_those_who_wait_are_told_at_the_end(world: World):
    world.publish(Hold("loading"))
    client = await world.client(GET)
    await eventually(lambda: world.gate.held("chat") == 1)

    await world.front.close(grace=20.0)

    assert b"shutting down" in await client.rest()


class TestManyConnections:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(connections=2, sweep_period=0.02)

    async def test_there_is_a_bound(self, world: World):
        clients = [await world.client() for _ in range(2)]
        await eventually(lambda: world.front.connections == 2)

        third = await world.client()

        assert b" 503 " in await third.rest()
        clients[0].close()
        await eventually(lambda: world.front.connections == 1)


async def test_no_file_descriptors_left_is_waited_out(
    world: World, caplog: pytest.LogCaptureFixture
):
    """The client is kept in the backlog, the loop is not kept busy, and then it is served."""
    (listener,) = world.front._listeners.values()
    accepts = 0

    class Starved:
        def __init__(self, sock: socket.socket) -> None:
            self.fileno = sock.fileno
            self.close = sock.close

        def accept(self) -> object:
            nonlocal accepts
            accepts += 1
            raise OSError(24, "Too many open files")

    real = listener._sock
    listener._sock = Starved(real)  # type: ignore[assignment]
    client = await world.client(GET)
    await eventually(lambda: accepts == 1)
    for _ in range(200):
        await asyncio.sleep(0)
    assert accepts == 1
    listener._sock = real
    world.publish(Refuse("busy"))

    assert b"busy" in await client.until(b"}}")
    assert "Too many open files" in caplog.text


async def test_the_open_file_limit_bounds_the_connections(runtime_dir: str):
    front = Front(runtime_dir, Gate(asyncio.get_running_loop()), Limits(connections=10**9))

    assert front._relay.limits.connections < 10**9
    await front.close()

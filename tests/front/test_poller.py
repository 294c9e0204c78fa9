"""The poller: descriptors young and old."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from llamasup.front.poller import DEPARTED, READABLE, WRITABLE, Poller
from tests.front.conftest import eventually


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
async def poller() -> Poller:
    return Poller(asyncio.get_running_loop())


async def test_bytes_are_told_before_and_after_promotion(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
):
    ours, theirs = pair
    got: list[bytes] = []
    poller.watch(ours.fileno(), READABLE, lambda _events: got.append(ours.recv(100)))

    for n in range(30):
        theirs.send(b"%d" % n)
        await eventually(lambda n=n: len(got) == n + 1)

    assert got == [b"%d" % n for n in range(30)]
    assert poller._promoted == {ours.fileno()}
    poller.forget(ours.fileno())
    theirs.send(b"x")
    await asyncio.sleep(0.01)
    assert len(got) == 30
    poller.close()


@pytest.mark.parametrize("age", [0, 20])
async def test_what_is_waited_for_can_change(
    poller: Poller, pair: tuple[socket.socket, socket.socket], age: int
):
    ours, theirs = pair
    fd = ours.fileno()
    got: list[int] = []

    def ready(events: int) -> None:
        got.append(events)
        if events == READABLE:
            ours.recv(100)

    poller.watch(fd, READABLE, ready)
    for n in range(age):
        theirs.send(b"x")
        await eventually(lambda n=n: len(got) == n + 1)
    got.clear()

    poller.change(fd, WRITABLE)
    theirs.send(b"x")
    await eventually(lambda: WRITABLE in got)
    poller.change(fd, READABLE)
    await eventually(lambda: READABLE in got)
    poller.change(fd, DEPARTED)
    theirs.close()
    await eventually(lambda: got[-1] & DEPARTED)
    poller.forget_closed(fd)
    poller.close()


async def test_forgetting_twice_or_after_close_is_harmless(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
):
    ours, _ = pair
    fd = ours.fileno()
    poller.watch(fd, READABLE, lambda _events: None)

    ours.close()
    poller.forget(fd)
    poller.forget(fd)

    poller.close()
    poller.close()

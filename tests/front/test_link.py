"""A link: what is sent at once, later, and how it ends."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from llamasup.front.link import Link
from llamasup.front.poller import Poller
from tests.front.conftest import eventually


class Notes:
    def __init__(self) -> None:
        self.got = b""
        self.ends: list[str] = []
        self.congestion: list[bool] = []
        self.link: Link | None = None

    def received(self, data: bytes) -> None:
        self.got += data
        if data == b"crash":
            raise RuntimeError("a mistake")

    def ended(self, reason: str) -> None:
        self.ends.append(reason)

    def congestion_changed(self) -> None:
        assert self.link is not None
        self.congestion.append(self.link.is_congested)


@pytest.fixture
async def ends() -> Iterator[tuple[Notes, Link, socket.socket]]:
    loop = asyncio.get_running_loop()
    poller = Poller(loop)
    notes = Notes()
    link = notes.link = Link(loop, poller, notes, high_water=200_000)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    link.attach(ours, watches_departure=True)
    yield notes, link, theirs
    link.close()
    theirs.close()
    poller.close()


async def take(sock: socket.socket) -> int:
    n = 0
    while data := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
        n += len(data)
    return n


Ends = tuple[Notes, Link, socket.socket]


async def test_what_does_not_fit_is_sent_later_and_then_the_end(ends: Ends):
    notes, link, theirs = ends

    link.send(b"x" * 1_000_000)
    assert link.is_congested
    link.close_when_sent()
    assert not link.is_closed

    assert await take(theirs) == 1_000_000
    assert notes.ends == ["closed"]
    assert notes.congestion == [True]


async def test_congestion_ends_when_the_other_side_has_taken(ends: Ends):
    notes, link, theirs = ends
    link.send(b"x" * 1_000_000)
    link.shut()

    assert await take(theirs) == 1_000_000

    assert notes.congestion == [True, False]
    assert not link.is_closed


async def test_a_departure_is_noticed_while_paused(ends: Ends):
    notes, link, theirs = ends
    link.pause()
    theirs.send(b"unread")

    theirs.close()

    await eventually(lambda: notes.ends)
    assert notes.got == b""


async def test_reading_goes_on_after_a_pause(ends: Ends):
    notes, link, theirs = ends
    link.pause()
    theirs.send(b"hello")
    await asyncio.sleep(0.01)
    assert notes.got == b""

    link.resume()

    await eventually(lambda: notes.got == b"hello")


async def test_a_mistake_ends_only_its_own_link(ends: Ends, caplog: pytest.LogCaptureFixture):
    notes, link, theirs = ends

    theirs.send(b"crash")

    await eventually(lambda: link.is_closed)
    assert notes.ends == ["internal error"]
    assert "a mistake" in caplog.text


async def test_sending_to_one_who_has_gone_ends_the_link(ends: Ends):
    notes, link, theirs = ends
    link.pause()
    theirs.close()

    link.send(b"x")
    link.send(b"x")

    await eventually(lambda: notes.ends)
    assert len(notes.ends) == 1

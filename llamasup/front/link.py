"""A connected socket on the poller: sends what it can at once and the rest later, reads when told.

Raw sockets instead of the event loop's transports, because that was measured: a transport costs a
turn of the loop to be made, a task to be connected, and another turn for each write.
"""

import asyncio
import logging
import socket
from typing import Protocol

from llamasup.front.poller import DEPARTED, READABLE, WRITABLE, Poller

_LOG = logging.getLogger(__name__)

READ_SIZE = 64 * 1024
_SMALL_READ = 4 * 1024  # enough for a token; a large buffer for a few bytes costs microseconds
LOW_WATER = 64 * 1024
"""Bytes unsent below which a congested link is so no more."""


class Owner(Protocol):
    """Whose link it is. No call comes after ``Link.close``."""

    def received(self, data: bytes) -> None: ...
    def ended(self, reason: str) -> None:
        """Take note that the other side closed or is gone; called once, the link is closed."""

    def congestion_changed(self) -> None:
        """Look at ``Link.is_congested`` again."""


class Link:
    """A stream socket; *high_water* is how many bytes may lie unsent before it is congested."""

    __slots__ = ("_events", "_fd", "_is_paused", "_is_shut", "_loop", "_owner", "_poller",
                 "_read_size", "_sock", "_unsent", "_watches_departure", "high_water", "is_closed",
                 "is_closing", "is_congested", "on_data")  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, poller: Poller, owner: Owner, high_water: int
    ) -> None:
        self._loop = loop
        self._poller = poller
        self._owner = owner
        self._sock: socket.SocketType | None = None  # None: not connected (yet, or any more)
        self._fd = -1
        self._events = 0  # what the poller waits for
        self._unsent = bytearray()
        self._is_paused = False
        self._is_shut = False  # an end of ours is due, or was sent
        self._watches_departure = False
        self._read_size = _SMALL_READ
        self.on_data = owner.received  # may be replaced by a shorter way
        self.high_water = high_water
        self.is_closed = False
        self.is_closing = False  # close as soon as all is sent
        self.is_congested = False

    @property
    def unsent(self) -> int:
        """How many bytes the other side has not taken."""
        return len(self._unsent)

    def attach(self, sock: socket.SocketType, *, watches_departure: bool) -> None:
        """Work on the connected, non-blocking *sock*.

        *watches_departure*: the other side's end counts even while paused and before what it sent
        is read.
        """
        self._sock = sock
        self._fd = sock.fileno()
        self._watches_departure = watches_departure
        self._wait()

    def send(self, data: bytes | bytearray) -> None:
        """Send *data* now, or as soon as the other side takes it; see ``is_congested``."""
        if self._unsent or self._sock is None:
            self._unsent += data
        else:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as exc:
                self._cannot_send(exc)
                return
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._wait()
        if not self.is_congested and len(self._unsent) > self.high_water:
            self._set_congested(True)

    def pause(self) -> None:
        """Read no more for now."""
        self._is_paused = True
        self._wait()

    def resume(self) -> None:
        """Read on."""
        self._is_paused = False
        self._wait()

    def shut(self) -> None:
        """Tell the other side, once all is sent, that no more comes; its own end is awaited."""
        self._is_shut = True
        if not self._unsent:
            self._say_end()

    def close_when_sent(self) -> None:
        """Close, once all is sent."""
        self.is_closing = True
        if not self._unsent:
            self._end("closed")

    def close(self) -> None:
        """Drop the connection at once. May come twice."""
        self.is_closed = True
        sock, self._sock = self._sock, None
        if sock is not None:
            self._poller.forget_closed(self._fd)
            sock.close()

    def _wait(self) -> None:
        """Let the poller wait for what this link waits for."""
        if self._sock is None:
            return
        when_paused = DEPARTED if self._watches_departure else 0
        events = when_paused if self._is_paused else READABLE
        if self._unsent:
            events |= WRITABLE
        if events == self._events:
            return
        # A descriptor that waits for nothing is not left there: a hang-up would be told for ever.
        if not events:
            self._poller.forget(self._fd)
        elif self._events:
            self._poller.change(self._fd, events)
        else:
            self._poller.watch(self._fd, events, self._ready)
        self._events = events

    def _ready(self, events: int) -> None:
        try:
            if events == READABLE and not self._is_paused:  # the way that must be short
                if self._sock is not None:
                    self._read(self._sock)
                return
            if events & WRITABLE and self._unsent:
                self._write()
            if events & ~WRITABLE and self._sock is not None:
                if not self._is_paused:
                    self._read(self._sock)
                elif self._watches_departure:
                    self._end("it closed the connection")
        except Exception:  # noqa: BLE001
            # The boundary of a request: no other may suffer from a mistake in this one.
            _LOG.exception("a request failed")
            self._end("internal error")

    def _read(self, sock: socket.SocketType) -> None:
        try:
            data = sock.recv(self._read_size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._end(f"the connection broke: {exc.strerror}")
            return
        if data:
            size = len(data)
            if size == self._read_size:
                self._read_size = READ_SIZE
            elif size < _SMALL_READ:
                self._read_size = _SMALL_READ
            self.on_data(data)
        else:
            self._end("it closed the connection")

    def _write(self) -> None:
        if self._sock is None:
            return
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            sent = len(self._unsent)
            self._cannot_send(exc)
        del self._unsent[:sent]
        if not self._unsent:
            self._wait()
            if self.is_closing:
                self._end("closed")
                return
            if self._is_shut:
                self._say_end()
        self._relieve()

    def _cannot_send(self, exc: OSError) -> None:
        """The other side takes nothing any more."""
        self._loop.call_soon(self._end, f"the connection broke: {exc.strerror}")

    def _say_end(self) -> None:
        if self._sock is not None:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError as exc:
                self._cannot_send(exc)

    def _relieve(self) -> None:
        if self.is_congested and len(self._unsent) < LOW_WATER:
            self._set_congested(False)

    def _set_congested(self, value: bool) -> None:
        self.is_congested = value
        self._owner.congestion_changed()

    def _end(self, reason: str) -> None:
        if not self.is_closed:
            self.close()
            self._owner.ended(reason)

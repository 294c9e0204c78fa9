"""The connection to a child: one unix socket for one request, on the event loop's readers.

A fresh connection for each request, because llama-server closes after every stream whatever it
announces, and because a failed connect then means that nothing was processed. Raw sockets, because
connecting to a unix socket needs no waiting: request and connection go out in one step.
"""

import asyncio
import socket
from collections import deque
from typing import Protocol

READ_SIZE = 64 * 1024
HIGH_WATER = 256 * 1024
"""Bytes unsent from which on the client is asked to pause."""

LOW_WATER = 64 * 1024

_REDIAL_DELAY = 0.002  # seconds


class Owner(Protocol):
    """Whose connection it is. No call comes after ``Upstream.close``."""

    def received(self, data: bytes) -> None: ...
    def ended(self, reason: str) -> None:
        """Take note that the child closed, died, or cannot be reached; called once."""

    def congestion_changed(self) -> None:
        """Look at ``Upstream.is_congested`` again."""


class Upstream:
    """A connection to the socket *path*."""

    __slots__ = ("_dialer", "_fd", "_is_paused", "_is_reading", "_is_writing", "_loop", "_owner",
                 "_sock", "_unsent", "dial_until", "is_closed", "is_congested", "path")  # fmt: skip

    def __init__(self, dialer: "Dialer", path: str, owner: Owner) -> None:
        self._loop = dialer.loop
        self._dialer = dialer
        self._owner = owner
        self._sock: socket.socket | None = None  # None: not connected (yet)
        self._fd = -1
        self._unsent = bytearray()
        self._is_reading = False
        self._is_writing = False
        self._is_paused = False
        self.path = path
        self.dial_until = 0.0
        self.is_closed = False
        self.is_congested = False

    def open(self, first: bytes) -> None:
        """Connect and send *first*. A failure is told to the owner later, never from in here."""
        self._unsent += first
        self._dialer.dial(self)

    def try_connect(self) -> bool:
        """Connect at once; return False if the child's backlog is full and it must be tried again."""
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as exc:
            self.fail(f"cannot open a socket: {exc.strerror}")
            return True
        try:
            sock.connect(self.path)
        except BlockingIOError:
            sock.close()
            return False
        except OSError as exc:
            sock.close()
            self.fail(f"cannot connect: {exc.strerror or exc}")
            return True
        self._sock = sock
        self._fd = sock.fileno()
        if not self._is_paused:
            self._read()
        first, self._unsent = self._unsent, bytearray()
        self.send(first)
        self._relieve()
        return True

    def fail(self, reason: str) -> None:
        """End without having been connected."""
        self._loop.call_soon(self._end, reason)

    def send(self, data: bytes | bytearray) -> None:
        """Send *data* now, or as soon as the child takes it; see ``is_congested``."""
        if self._unsent or self._sock is None:
            self._unsent += data
        else:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                return  # the child reads no more; what it answered may still be read
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._is_writing = True
            self._loop.add_writer(self._fd, self._writable)
        if not self.is_congested and len(self._unsent) > HIGH_WATER:
            self._set_congested(True)

    def pause(self) -> None:
        """Read no more: the client is slower than the child."""
        self._is_paused = True
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read on."""
        self._is_paused = False
        if self._sock is not None and not self._is_reading:
            self._read()

    def close(self) -> None:
        """Drop the connection at once; the child notices and frees its slot. May be called twice."""
        self.is_closed = True
        sock, self._sock = self._sock, None
        if sock is None:
            return
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        sock.close()

    def _read(self) -> None:
        self._is_reading = True
        self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        if self._sock is None:
            return  # closed by an earlier callback of the same turn of the loop
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._end(f"the connection broke: {exc.strerror}")
            return
        if data:
            self._owner.received(data)
        else:
            self._end("it closed the connection")

    def _writable(self) -> None:
        if self._sock is None:
            return
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            sent = len(self._unsent)  # see send
        del self._unsent[:sent]
        if not self._unsent:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        self._relieve()

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


class Dialer:
    """Connects upstreams; those that find a full backlog try again, first come first served.

    llama-server listens with a backlog of five, and a unix socket with a full one refuses at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self.loop = loop
        self._timeout = timeout
        self._waiting: dict[str, deque[Upstream]] = {}

    def dial(self, upstream: Upstream) -> None:
        """Connect *upstream*, now or when its turn comes."""
        waiting = self._waiting.get(upstream.path)
        if waiting is None:
            if upstream.try_connect():
                return
            waiting = self._waiting[upstream.path] = deque()
            self.loop.call_later(_REDIAL_DELAY, self._redial, upstream.path)
        upstream.dial_until = self.loop.time() + self._timeout
        waiting.append(upstream)

    def _redial(self, path: str) -> None:
        waiting = self._waiting[path]
        while waiting:
            upstream = waiting[0]
            if not upstream.is_closed and not upstream.try_connect():
                if self.loop.time() < upstream.dial_until:
                    self.loop.call_later(_REDIAL_DELAY, self._redial, path)
                    return
                upstream.fail("it accepts no connections")
            waiting.popleft()
        del self._waiting[path]

"""The connection to a child: one unix socket for one request.

A connection of its own for each request, because llama-server closes after every stream whatever
it announces, and because a failed connect then means that nothing was processed. Connecting to a
unix socket needs no waiting, so request and connection go out in one step.

While requests follow each other closely, the next connection is made ahead, after the first bytes
of the answer before: it costs the same, but nobody waits for it.
"""

import asyncio
import contextlib
import socket
from collections import deque

from llamasup.front.link import Link, Owner
from llamasup.front.poller import Poller

HIGH_WATER = 256 * 1024
"""Bytes of a request unsent from which on the client is read no further."""

SPARE_AGE = 2.0
"""Seconds that a connection made ahead is kept; llama-server closes an idle one after five."""

_BRISK = 0.5  # seconds between two requests below which a third is expected
_REDIAL_DELAY = 0.002  # seconds
# Plain numbers and the plain socket type: the usual ones cost more than the connection.
_UNIX = int(socket.AF_UNIX)
_NON_BLOCKING_STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK


class Upstream(Link):
    """A link to the child behind the socket *path*."""

    __slots__ = ("_dialer", "dial_until", "path")

    def __init__(self, dialer: "Dialer", path: str, owner: Owner) -> None:
        super().__init__(dialer.loop, dialer.poller, owner, HIGH_WATER)
        self._dialer = dialer
        self.path = path
        self.dial_until = 0.0

    def open(self, first: bytes) -> None:
        """Connect and send *first*. A failure is told to the owner later, never from in here."""
        self._dialer.dial(self, first)

    def try_connect(self, first: bytes | bytearray) -> bool:
        """Connect and send *first*; return False if the child's backlog is full."""
        try:
            sock = _connected(self.path)
        except BlockingIOError:
            return False
        except OSError as exc:
            self.fail(f"cannot connect: {exc.strerror or exc}")
            return True
        self.use(sock, first)
        return True

    def use(self, sock: socket.SocketType, first: bytes | bytearray) -> None:
        """Send *first* on the connected *sock*."""
        self._unsent = bytearray()
        self._sock = sock
        self.send(first)  # before all else: the child works on it meanwhile
        self.attach(sock, watches_departure=False)
        self._relieve()

    def retry_connect(self) -> bool:
        """Connect and send what has gathered since ``open``; as ``try_connect``."""
        return self.try_connect(self._unsent)

    def fail(self, reason: str) -> None:
        """End without having been connected."""
        self._loop.call_soon(self._end, reason)

    def _cannot_send(self, exc: OSError) -> None:
        """The child reads no more; what it answered may still be read, and its end after that."""


def _connected(path: str) -> socket.SocketType:
    """Return a connection to *path*; raises BlockingIOError if the child's backlog is full."""
    sock = socket.SocketType(_UNIX, _NON_BLOCKING_STREAM)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


class _Spare:
    """The connection made ahead for a path, if there is one, and when the path was last dialled."""

    __slots__ = ("dialled_at", "made_at", "sock")

    def __init__(self, dialled_at: float) -> None:
        self.dialled_at = dialled_at
        self.made_at = 0.0
        self.sock: socket.SocketType | None = None


class Dialer:
    """Connects upstreams; those that find a full backlog try again, first come first served.

    llama-server listens with a backlog of five, and a unix socket with a full one refuses at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, poller: Poller, timeout: float) -> None:
        self.loop = loop
        self.poller = poller
        self._timeout = timeout
        self._waiting: dict[str, deque[Upstream]] = {}
        self._spares: dict[str, _Spare] = {}  # by path; those long unused are swept out

    def dial(self, upstream: Upstream, first: bytes) -> None:
        """Connect *upstream* and send *first*, now or when its turn comes."""
        spare = self._spares.get(upstream.path)
        if spare is not None and (sock := spare.sock) is not None:
            spare.sock = None
            upstream.use(sock, first)
            return
        waiting = self._waiting.get(upstream.path)
        if waiting is None:
            if upstream.try_connect(first):
                return
            waiting = self._waiting[upstream.path] = deque()
            self.loop.call_later(_REDIAL_DELAY, self._redial, upstream.path)
        upstream.dial_until = self.loop.time() + self._timeout
        upstream.send(first)  # not connected: it is put by
        waiting.append(upstream)

    def prepare(self, path: str) -> None:
        """Connect ahead for the next request to *path*, if one is to be expected soon."""
        now = self.loop.time()
        spare = self._spares.get(path)
        if spare is None:
            if not self._spares:
                self.loop.call_later(SPARE_AGE / 2, self._sweep)
            self._spares[path] = _Spare(now)
            return
        is_brisk = now - spare.dialled_at < _BRISK
        spare.dialled_at = now
        if is_brisk and spare.sock is None and path not in self._waiting:
            spare.made_at = now
            with contextlib.suppress(OSError):  # the next request will see for itself
                spare.sock = _connected(path)

    def close(self) -> None:
        """Drop what was connected ahead."""
        for spare in self._spares.values():
            if spare.sock is not None:
                spare.sock.close()
        self._spares.clear()

    def _sweep(self) -> None:
        """Drop what was not used in time; no connection ahead outlives its use by much."""
        now = self.loop.time()
        for path, spare in list(self._spares.items()):
            if spare.sock is not None and now - spare.made_at > SPARE_AGE / 2:
                spare.sock.close()
                spare.sock = None
            if now - spare.dialled_at > SPARE_AGE:
                del self._spares[path]
        if self._spares:
            self.loop.call_later(SPARE_AGE / 2, self._sweep)

    def _redial(self, path: str) -> None:
        waiting = self._waiting[path]
        while waiting:
            upstream = waiting[0]
            if not upstream.is_closed and not upstream.retry_connect():
                if self.loop.time() < upstream.dial_until:
                    self.loop.call_later(_REDIAL_DELAY, self._redial, path)
                    return
                upstream.fail("it accepts no connections")
            waiting.popleft()
        del self._waiting[path]

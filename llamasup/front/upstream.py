"""The connection to a child: one unix socket for one request.

A fresh connection for each request, because llama-server closes after every stream whatever it
announces, and because a failed connect then means that nothing was processed. Connecting to a unix
socket needs no waiting, so request and connection go out in one step.
"""

import asyncio
import socket
from collections import deque

from llamasup.front.link import Link, Owner
from llamasup.front.poller import Poller

HIGH_WATER = 256 * 1024
"""Bytes of a request unsent from which on the client is read no further."""

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
            sock = socket.SocketType(_UNIX, _NON_BLOCKING_STREAM)
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
        self._unsent = bytearray()
        self.attach(sock, watches_departure=False)
        self.send(first)
        self._relieve()
        return True

    def retry_connect(self) -> bool:
        """Connect and send what has gathered since ``open``; as ``try_connect``."""
        return self.try_connect(self._unsent)

    def fail(self, reason: str) -> None:
        """End without having been connected."""
        self._loop.call_soon(self._end, reason)

    def _cannot_send(self, exc: OSError) -> None:
        """The child reads no more; what it answered may still be read, and its end after that."""


class Dialer:
    """Connects upstreams; those that find a full backlog try again, first come first served.

    llama-server listens with a backlog of five, and a unix socket with a full one refuses at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, poller: Poller, timeout: float) -> None:
        self.loop = loop
        self.poller = poller
        self._timeout = timeout
        self._waiting: dict[str, deque[Upstream]] = {}

    def dial(self, upstream: Upstream, first: bytes) -> None:
        """Connect *upstream* and send *first*, now or when its turn comes."""
        waiting = self._waiting.get(upstream.path)
        if waiting is None:
            if upstream.try_connect(first):
                return
            waiting = self._waiting[upstream.path] = deque()
            self.loop.call_later(_REDIAL_DELAY, self._redial, upstream.path)
        upstream.dial_until = self.loop.time() + self._timeout
        upstream.send(first)  # not connected: it is put by
        waiting.append(upstream)

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

"""The front door of the daemon: one public listener per instance."""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace

from llamasup.config.spec import Address
from llamasup.errors import ListenError
from llamasup.front.exchange import RequestLog
from llamasup.front.gate import Gate
from llamasup.front.holder import holder_of
from llamasup.front.limits import Limits
from llamasup.front.poller import READABLE
from llamasup.front.relay import Door, Relay

_LOG = logging.getLogger(__name__)

BACKLOG = 4096
_ACCEPTS_PER_TURN = 64
_ACCEPT_PAUSE = 0.5  # seconds without accepting after it failed
_SPARE_FILES = 256
"""File descriptors that are left to the rest of the daemon."""


class Front:
    """Listens for all instances. *on_done* is called with the log of each request at its end."""

    def __init__(
        self,
        runtime_dir: str,
        gate: Gate,
        limits: Limits | None = None,
        on_done: Callable[[RequestLog], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._gate = gate
        self._relay = Relay(loop, runtime_dir, gate, _within_files(limits or Limits()), on_done)
        self._doors: dict[Address, Door] = {}
        self._listeners: dict[Address, Listener] = {}

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._relay.connections)

    async def configure(self, listeners: Mapping[str, Address]) -> None:
        """Listen on *listeners* (by instance) from now on; what does not change is not touched.

        Raises ListenError, and then listens on what it did before; only an address that was given
        up for another one with the same port may be lost. Connections that are there stay.
        """
        wanted = {address: name for name, address in listeners.items()}
        ports = {address.port for address in wanted.keys() - self._listeners.keys()}
        for address in self._listeners.keys() - wanted.keys():
            if address.port in ports:  # 0.0.0.0:1 and 127.0.0.1:1 cannot both be bound
                self._stop(address)
        opened = self._bind({a: n for a, n in wanted.items() if a not in self._listeners})
        for address, sock in opened.items():
            self._doors[address] = Door(wanted[address])
            self._listeners[address] = Listener(self._relay, sock, self._doors[address])
        for address in self._listeners.keys() - wanted.keys():
            self._stop(address)
        for address, name in wanted.items():
            self._doors[address].name = name

    async def close(self, grace: float = 0.0) -> None:
        """Stop listening, refuse those who wait, give requests under way *grace* seconds to end."""
        for address in list(self._listeners):
            self._stop(address)
        self._relay.close()
        self._gate.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._relay.emptied.wait()
        self._relay.abort()

    def _stop(self, address: Address) -> None:
        self._listeners.pop(address).close()
        del self._doors[address]

    def _bind(self, wanted: Mapping[Address, str]) -> dict[Address, socket.socket]:
        """Bind all of *wanted* or nothing."""
        opened: dict[Address, socket.socket] = {}
        problems = []
        for address, name in wanted.items():
            try:
                opened[address] = _listening_socket(address)
            except OSError as exc:
                problems.append(_problem(address, name, exc))
        if problems:
            for sock in opened.values():
                sock.close()
            raise ListenError("\n".join(problems))
        return opened


class Listener:
    """Accepts connections on the listening socket *sock*, for *door*."""

    def __init__(self, relay: Relay, sock: socket.socket, door: Door) -> None:
        self._relay = relay
        self._sock = sock
        self._door = door
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept no more."""
        if self._pause is not None:
            self._pause.cancel()
        self._relay.poller.forget(self._sock.fileno())
        self._sock.close()

    def _resume(self) -> None:
        self._pause = None
        self._relay.poller.watch(self._sock.fileno(), READABLE, self._accept)

    def _accept(self, _events: int) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                # No file descriptor or no memory: the client stays in the backlog meanwhile.
                _LOG.error("%s: cannot accept a connection: %s", self._door.name, exc.strerror)
                self._relay.poller.forget(self._sock.fileno())
                self._pause = self._relay.loop.call_later(_ACCEPT_PAUSE, self._resume)
                return
            sock.setblocking(False)
            self._relay.accept(sock, peer[0], self._door)


def _listening_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a held client may lose power
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        sock.bind((address.host, address.port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _problem(address: Address, name: str, exc: OSError) -> str:
    text = f"cannot listen on {address} for instance '{name}': {exc.strerror}"
    if exc.errno == errno.EADDRINUSE and (holder := holder_of(address.port)):
        text += f" by {holder}"
    return text


def _within_files(limits: Limits) -> Limits:
    """Lower the number of connections to what the open file limit allows: two files for each."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    enough = max(16, (soft - _SPARE_FILES) // 2)
    return replace(limits, connections=min(limits.connections, enough))

"""A front on a free port of loopback, and a child that does what the test says."""

import asyncio
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from llamasup.config.spec import Address
from llamasup.core.routes import Admission, Route
from llamasup.front.app import Front
from llamasup.front.exchange import RequestLog
from llamasup.front.gate import Gate
from llamasup.front.limits import Limits
from llamasup.paths import socket_path

DEADLINE = 20.0
"""Seconds after which a test is taken for hung."""


class Child:
    """Listens on the socket of generation *gen*; hands each connection to the test."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._server: asyncio.Server | None = None
        self._accepted: asyncio.Queue[Peer] = asyncio.Queue()
        self.peers: list[Peer] = []

    async def start(self) -> "Child":
        self._server = await asyncio.start_unix_server(self._take, self._path)
        return self

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        self._accepted.put_nowait(peer)

    async def accept(self) -> "Peer":
        async with asyncio.timeout(DEADLINE):
            return await self._accepted.get()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for peer in self.peers:
            peer.writer.close()


@dataclass
class Peer:
    """One end of a connection, with deadlines."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def exactly(self, n: int) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.readexactly(n)

    async def until(self, what: bytes) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.readuntil(what)

    async def rest(self) -> bytes:
        """Return all up to the end; a reset counts as one."""
        out = b""
        async with asyncio.timeout(DEADLINE):
            try:
                while data := await self.reader.read(65536):
                    out += data
            except ConnectionError:
                pass
        return out

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with a reset: an end that overtakes the bytes before it."""
        sock = self.writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class World:
    """A front for the instance "chat"."""

    runtime_dir: str
    gate: Gate
    front: Front
    port: int
    logs: list[RequestLog] = field(default_factory=list)
    idle: list[tuple[str, int]] = field(default_factory=list)
    closing: list[Child | Peer] = field(default_factory=list)

    def publish(self, route: Route, max_held: int = 8, hold_timeout: float = DEADLINE) -> None:
        self.gate.publish({"chat": Admission(route, max_held, hold_timeout)})

    async def child(self, gen: int = 1) -> Child:
        child = await Child(socket_path(self.runtime_dir, "chat", gen)).start()
        self.closing.append(child)
        return child

    async def client(self, data: bytes = b"", limit: int = 65536) -> Peer:
        sock = socket.socket()
        if limit < 65536:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limit)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        peer = Peer(*await asyncio.open_connection(sock=sock, limit=limit))
        self.closing.append(peer)
        if data:
            peer.send(data)
        return peer

    def assert_nothing_is_left(self) -> None:
        """No lease, no place in the queue, no kept bytes."""
        assert self.gate.in_flight_total("chat") == 0
        assert self.gate.held("chat") == 0
        assert self.front._relay.kept == 0


async def eventually(claim: object) -> None:
    """Let the loop turn until *claim* () holds."""
    assert callable(claim)
    async with asyncio.timeout(DEADLINE):
        while not claim():
            await asyncio.sleep(0.001)


@pytest.fixture
def limits() -> Limits:
    return Limits(sweep_period=0.02)


@pytest.fixture
def runtime_dir() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="front") as folder:
        yield folder


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture
async def world(runtime_dir: str, limits: Limits) -> AsyncIterator[World]:
    logs: list[RequestLog] = []
    idle: list[tuple[str, int]] = []
    gate = Gate(asyncio.get_running_loop(), lambda name, gen: idle.append((name, gen)))
    front = Front(runtime_dir, gate, limits, logs.append)
    port = free_port()
    await front.configure({"chat": Address("127.0.0.1", port)})
    world = World(runtime_dir, gate, front, port, logs, idle)
    yield world
    for one in world.closing:
        one.close()
    await front.close()
    world.assert_nothing_is_left()
    await asyncio.sleep(0)

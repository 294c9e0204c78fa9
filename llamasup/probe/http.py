"""One small HTTP request to a child's private socket, on a connection of its own.

Whatever the child does (garbage, a flood, silence, a reset) comes out as ``ProbeError`` in bounded
time and memory. Keeps no connection and follows no redirect.
"""

import asyncio
import json
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

import httptools

from llamasup.errors import LlamasupError

MAX_ANSWER = (
    1 << 20
)  # bytes; the largest honest answer (/props with a long chat template) is 100 kB
_PIECE = 1 << 16
_UCRED = struct.Struct("3i")  # pid, uid, gid of struct ucred


class ProbeError(LlamasupError):
    """The child did not answer, or not in HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. *peer* is the pid that made the socket listen, as the kernel tells it."""

    status: int
    body: bytes
    peer: int

    def json(self) -> object:
        """Return the body as JSON, None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def message(self) -> str:
        """Return the server's own words of an error answer, shortened."""
        error = field(self.json(), "error")
        text = field(error, "message") or self.body.decode(errors="replace")
        return str(text).strip()[:300]


def field(value: object, key: str) -> object:
    """Return ``value[key]`` of what may or may not be a JSON object with that key."""
    return value.get(key) if isinstance(value, dict) else None


class _Response:
    """Collects what httptools finds; the method names are httptools' own."""

    def __init__(self) -> None:
        self.complete = False
        self.body = bytearray()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def ask(
    path: str, target: str, *, body: object = None, key: str | None = None, timeout: float | None
) -> Answer:
    """Send GET *target*, or POST with *body* as JSON, to the unix socket *path*.

    *timeout* in seconds covers everything from the connect to the last byte; None = no limit.
    Raises ``ProbeError``.
    """
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                peer = _peer(writer.get_extra_info("socket"))
                writer.write(_request(target, body, key))
                return await _read(reader, peer)
            finally:
                # At once and without a wait: closing must not be able to hang either.
                writer.transport.abort()
                with suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        raise ProbeError(f"no answer to {target} in time ({timeout} s)") from None
    except OSError as exc:
        raise ProbeError(f"cannot ask {target}: {exc.strerror or exc}") from exc
    except httptools.HttpParserError as exc:
        raise ProbeError(f"the answer to {target} is not HTTP: {exc}") from exc


def _peer(sock: socket.socket) -> int:
    """Return the pid that listens at the other end, taken by the kernel when it began to."""
    pid, _uid, _gid = _UCRED.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    )
    return int(pid)


def _request(target: str, body: object, key: str | None) -> bytes:
    """Return the bytes of a request that asks for the connection to be closed."""
    payload = b"" if body is None else json.dumps(body).encode()
    head = [f"{'GET' if body is None else 'POST'} {target} HTTP/1.1", "Host: localhost"]
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    if key is not None:
        head.append(f"Authorization: Bearer {key}")
    head += ["Connection: close", "", ""]
    return "\r\n".join(head).encode() + payload


async def _read(reader: asyncio.StreamReader, peer: int) -> Answer:
    """Read one answer, of at most `MAX_ANSWER` bytes with its head."""
    response = _Response()
    parser = httptools.HttpResponseParser(response)
    size = 0
    while not response.complete:
        data = await reader.read(_PIECE)
        if not data:
            raise ProbeError("the connection was closed before the end of the answer")
        size += len(data)
        if size > MAX_ANSWER:
            raise ProbeError(f"the answer is longer than {MAX_ANSWER} bytes")
        parser.feed_data(data)
    return Answer(parser.get_status_code(), bytes(response.body), peer)

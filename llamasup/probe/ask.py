"""One HTTP request to a child over its unix socket, on a connection of its own."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

import httptools

LARGEST_ANSWER = 4 * 1024 * 1024
"""Bytes; /props holds a chat template and stays far below."""

_UCRED = struct.Struct("3i")


class NoAnswerError(Exception):
    """The child gave no usable answer: refused, hung up, too large, or not HTTP."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and the pid of the process that listens on the socket."""

    status: int
    body: bytes
    peer_pid: int

    def json(self) -> Any:
        """Return the body as JSON, None if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class _Collector:
    """Takes what httptools finds."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.is_complete = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = True


async def ask(
    path: str, target: str, *, body: object = None, key: str | None = None, timeout: float
) -> Reply:
    """GET *target*, or POST *body* as JSON. *timeout* in seconds. Raises `NoAnswerError`."""
    try:
        async with asyncio.timeout(timeout):
            return await _ask(path, _request(target, body, key))
    except TimeoutError:
        raise NoAnswerError(f"no answer to {target} within {timeout:g}s") from None
    except (OSError, httptools.HttpParserError) as exc:
        raise NoAnswerError(f"no answer to {target}: {exc}") from exc


def _request(target: str, body: object, key: str | None) -> bytes:
    head = [f"{'GET' if body is None else 'POST'} {target} HTTP/1.1", "Host: localhost"]
    payload = b""
    if body is not None:
        payload = json.dumps(body).encode()
        head += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    if key is not None:
        head.append(f"Authorization: Bearer {key}")
    head.append("Connection: close")
    return "\r\n".join([*head, "", ""]).encode() + payload


async def _ask(path: str, request: bytes) -> Reply:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(request)
        return await _read(reader, _peer_pid(writer))
    finally:
        writer.transport.abort()  # nothing more is expected, and nobody waits for a close


def _peer_pid(writer: asyncio.StreamWriter) -> int:
    sock = writer.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[0])


async def _read(reader: asyncio.StreamReader, peer_pid: int) -> Reply:
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    size = 0
    while not collector.is_complete:
        data = await reader.read(65536)
        size += len(data)
        if size > LARGEST_ANSWER:
            raise NoAnswerError(f"an answer larger than {LARGEST_ANSWER} bytes")
        if not data:
            raise NoAnswerError("the connection was closed in the middle of an answer")
        parser.feed_data(data)
    return Reply(parser.get_status_code(), bytes(collector.body), peer_pid)

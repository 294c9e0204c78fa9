"""The HTTP side of the fake: one protocol object for each connection, one request at a time.

Closes where the real one does: after every stream, every error, 5 s of idling, and 100 requests.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httptools

_IDLE = 5.0  # seconds
_REQUESTS = 100  # of one connection
_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    413: "Payload Too Large", 429: "Too Many Requests", 500: "Internal Server Error",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip
_CORS = "Server: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


class HttpError(Exception):
    """An answer in the error shape."""

    def __init__(self, status: int, message: str, kind: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {
                "code": status,
                "message": message,
                "type": kind or _TYPES.get(status, "server_error"),
            }
        }


@dataclass(slots=True)
class Request:
    """One request, whole. *gone* is set once nobody waits for the answer any more."""

    method: str = ""
    target: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def json(self) -> dict[str, object]:
        """Return the body as a JSON object. Raises ``HttpError`` as the real one words it."""
        try:
            value = json.loads(bytes(self.body))
        except ValueError as exc:
            column = getattr(exc, "pos", 0) + 1
            raise HttpError(
                400,
                f"[json.exception.parse_error.101] parse error at line 1, column {column}: "
                "syntax error while parsing value",
            ) from exc
        if not isinstance(value, dict):
            raise HttpError(400, "the request must be a JSON object")
        return value


class Connection(asyncio.Protocol):
    """Parses requests and writes answers; *handle* is called for each request in a task."""

    def __init__(
        self,
        handle: Callable[[Request, "Connection"], Awaitable[None]],
        everybody: "set[Connection]",
    ) -> None:
        self._handle = handle
        self._everybody = everybody
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._waiting: list[Request] = []
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._served = 0
        self._left = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.transport: asyncio.Transport | None = None
        self.current: Request | None = None  # being answered
        self.streaming = False

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._everybody.add(self)
        self._rest()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            self.close()

    def eof_received(self) -> bool:
        # The real one takes a half-closed connection for a client that has left.
        self._leave()
        return self.current is not None

    def connection_lost(self, _exc: Exception | None) -> None:
        self._everybody.discard(self)
        self._writable.set()
        self._leave()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- httptools' side ---

    def on_message_begin(self) -> None:
        self._request = Request()

    def on_url(self, url: bytes) -> None:
        self._request.target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._request.method = self._parser.get_method().decode()
        if self._request.headers.get("expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._request.body += data

    def on_message_complete(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._waiting.append(self._request)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve())

    # --- answers ---

    @property
    def is_forsaken(self) -> bool:
        """Return whether a request is worked on that nobody waits for."""
        return self.current is not None and self.current.gone.is_set()

    def answer(self, status: int, body: object, kind: str = "application/json; charset=utf-8",
               extra: str = "") -> None:  # fmt: skip
        """Write a whole answer."""
        payload = body if isinstance(body, bytes) else _compact(body)
        closing = status >= 400 or self._served >= _REQUESTS
        after = "Connection: close" if closing else "Keep-Alive: timeout=5, max=100"
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\n{_CORS}{extra}"
            f"Content-Type: {kind}\r\nContent-Length: {len(payload)}\r\n{after}\r\n\r\n"
        )
        silent = self.current is not None and self.current.method == "HEAD"
        self._write(head.encode() + (b"" if silent else payload))
        if closing:
            self.close()

    def begin_stream(self) -> None:
        """Write the head of a stream of server-sent events."""
        self.streaming = True
        self._write(
            f"HTTP/1.1 200 OK\r\n{_CORS}X-Accel-Buffering: no\r\n"
            "Content-Type: text/event-stream\r\n"
            "Transfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n".encode()
        )

    async def send(self, text: str) -> None:
        """Write *text* as one chunk, once the client has taken what was before it."""
        data = text.encode()
        self._write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writable.wait()

    def end_stream(self) -> None:
        """Write the last chunk; the real one closes after a stream whatever it announced."""
        self._write(b"0\r\n\r\n")
        self.close()

    def write_raw(self, data: bytes) -> None:
        """Write bytes that need not be HTTP."""
        self._write(data)

    def close(self) -> None:
        """Close after what is written."""
        if self.transport is not None:
            self.transport.close()

    # --- inside ---

    def _write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _leave(self) -> None:
        self._left = True
        for request in [self._request, *self._waiting]:
            request.gone.set()
        if self.current is not None:
            self.current.gone.set()
        if self._idle is not None:
            self._idle.cancel()

    def _rest(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(_IDLE, self.close)

    async def _serve(self) -> None:
        while self._waiting and not self._left:
            self.current = self._waiting.pop(0)
            self._served += 1
            try:
                await self._handle(self.current, self)
            except HttpError as exc:
                self.answer(exc.status, exc.body)
            finally:
                self.current = None
        self._task = None
        if self._left:
            self.close()
        else:
            self._rest()


def _compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

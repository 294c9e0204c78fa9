"""The admin server: the table of endpoints and the doors that lead to it. Decides nothing."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from llamasup import __version__
from llamasup.admin.answers import LARGEST_BODY, Refusal, answer, check_query, error_answer
from llamasup.admin.control import Control
from llamasup.admin.doors import Door, SocketDoor, TcpDoor, is_loopback
from llamasup.admin.handlers import Handlers
from llamasup.admin.listen import UnixListener, bind_unix
from llamasup.admin.openapi import EVENT_STREAM, HTML, JSON, JSON_LINES, TEXT, Doc, document
from llamasup.admin.streams import Streams
from llamasup.config.spec import Address, AdminConf
from llamasup.errors import ListenError

Answering: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

MOST_CONNECTIONS = 256  # at each door
_SHUTDOWN_TIMEOUT = 0.3  # seconds; aiohttp waits it twice for a handler that is still at work
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the table."""

    method: str
    path: str
    handler: Callable[[Handlers, web.Request], Awaitable[web.StreamResponse]]
    doc: Doc


async def describe(_handlers: Handlers, _request: web.Request) -> web.StreamResponse:
    """Return this table as OpenAPI."""
    return answer(document(((one.method, one.path, one.doc) for one in ENDPOINTS), __version__))


def _command(verb: str) -> Doc:
    summary = f"{verb} the instance; answers at once with the operation, which goes on by itself"
    return Doc(summary, "Operation", success=202, failures=(400, 404, 409), changes=True)


ENDPOINTS = (
    Endpoint("GET", "/", Handlers.page, Doc("a status page for people", "Text", media=(HTML,))),
    Endpoint("GET", "/v1/status", Handlers.status, Doc("the daemon and its instances", "Status")),
    Endpoint("GET", "/v1/instances", Handlers.instances, Doc("all instances", "Instances")),
    Endpoint(
        "GET",
        "/v1/instances/{name}",
        Handlers.instance,
        Doc("one instance", "Instance", failures=(404,)),
    ),
    Endpoint("POST", "/v1/instances/{name}/start", Handlers.start, _command("start")),
    Endpoint("POST", "/v1/instances/{name}/stop", Handlers.stop, _command("stop")),
    Endpoint("POST", "/v1/instances/{name}/restart", Handlers.restart, _command("restart")),
    Endpoint(
        "GET",
        "/v1/instances/{name}/logs",
        Handlers.logs,
        Doc(
            "the last lines of its output; JSON lines if the caller accepts application/x-ndjson",
            "Text",
            query=("lines", "follow"),
            media=(TEXT, JSON_LINES),
            failures=(400, 404),
        ),
    ),
    Endpoint(
        "GET",
        "/v1/operations/{id}",
        Handlers.operation,
        Doc("how far an operation is", "Operation", query=("wait",), failures=(400, 404)),
    ),
    Endpoint(
        "GET",
        "/v1/events",
        Handlers.events,
        Doc(
            "what happened; followed as server-sent events if the caller accepts text/event-stream",
            "Events",
            query=("after", "limit"),
            media=(JSON, EVENT_STREAM),
            failures=(400,),
        ),
    ),
    Endpoint(
        "GET",
        "/healthz",
        Handlers.healthz,
        Doc("does the control loop answer?", "Health", failures=(503,)),
    ),
    Endpoint(
        "GET",
        "/readyz",
        Handlers.readyz,
        Doc("is every instance ready that should be?", "Readiness", failures=(503,)),
    ),
    Endpoint("GET", "/openapi.json", describe, Doc("this description", "Description")),
)


class AdminServer:
    """Serves *control* at the doors of *conf*, from `start` to `close`.

    *beat*, *send_timeout* and *pause* in seconds: see `Streams`.
    """

    def __init__(
        self,
        control: Control,
        conf: AdminConf,
        *,
        beat: float = 10.0,
        send_timeout: float = 30.0,
        pause: float = 0.2,
    ) -> None:
        self._conf = conf
        self._streams = Streams(beat=beat, send_timeout=send_timeout, pause=pause)
        self._control = control
        self._runners: list[web.AppRunner] = []
        self._servers: list[asyncio.Server] = []
        self._listener: UnixListener | None = None
        self._tcp: Address | None = None

    @property
    def tcp_address(self) -> Address | None:
        """The TCP address that is really listened on (port 0 in the configuration means any)."""
        return self._tcp

    @property
    def open_streams(self) -> int:
        """How many answers last at this moment: streams, followed logs, long polls."""
        return self._streams.count

    async def start(self) -> None:
        """Listen. Raises `ListenError` or `AlreadyRunningError`; nothing is left open then."""
        try:
            await self._open_socket()
            if self._conf.listen is not None:
                await self._open_tcp(self._conf.listen)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop listening, end the streams and close every connection, within a second."""
        for server in self._servers:
            server.close()
        self._streams.close()
        async with asyncio.TaskGroup() as group:
            for runner in self._runners:
                group.create_task(runner.cleanup(), name="admin cleanup")
        if self._listener is not None:
            self._listener.remove()
        self._servers, self._runners, self._listener = [], [], None

    async def _open_socket(self) -> None:
        self._listener = bind_unix(self._conf.socket)
        server = await self._serve(SocketDoor())
        loop = asyncio.get_running_loop()
        self._servers.append(
            await loop.create_unix_server(_bounded(server), sock=self._listener.sock)
        )

    async def _open_tcp(self, address: Address) -> None:
        server = await self._serve(TcpDoor(is_loopback(address.host), self._conf.token))
        loop = asyncio.get_running_loop()
        try:
            listening = await loop.create_server(
                _bounded(server), address.host, address.port, reuse_address=True
            )
        except OSError as exc:
            raise ListenError(f"cannot listen on {address}: {exc.strerror}") from exc
        self._servers.append(listening)
        self._tcp = Address(address.host, listening.sockets[0].getsockname()[1])

    async def _serve(self, door: Door) -> web.Server:
        runner = web.AppRunner(
            _application(Handlers(self._control, self._streams, door), door),
            access_log=None,
            logger=_http_logger(),
            shutdown_timeout=_SHUTDOWN_TIMEOUT,
            keepalive_timeout=75.0,
            lingering_time=1.0,
            auto_decompress=False,
        )
        self._runners.append(runner)
        await runner.setup()
        server = runner.server
        assert server is not None  # set up just now
        return server


class _Refusal(asyncio.Protocol):
    """Ends a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _bounded(server: web.Server) -> Callable[[], asyncio.Protocol]:
    """Return a factory that refuses connections above `MOST_CONNECTIONS`.

    Each takes a file descriptor, and those are needed to watch and start children.
    """

    def connect() -> asyncio.Protocol:
        return server() if len(server.connections) < MOST_CONNECTIONS else _Refusal()

    return connect


def _http_logger() -> logging.Logger:
    """Return the logger of aiohttp's side; what is wrong with a request is told its caller only."""
    logger = logging.getLogger("llamasup.admin.http")
    logger.addFilter(_is_ours)
    return logger


def _is_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _application(handlers: Handlers, door: Door) -> web.Application:
    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[_errors, _guard(door)])
    for one in ENDPOINTS:
        handler = _endpoint(one, handlers)
        if one.method == "GET":
            app.router.add_get(one.path, handler)  # HEAD too
        else:
            app.router.add_route(one.method, one.path, handler)
    app.on_response_prepare.append(_add_headers)
    return app


def _endpoint(one: Endpoint, handlers: Handlers) -> Answering:
    @functools.wraps(one.handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        check_query(request, one.doc.query)
        return await one.handler(handlers, request)

    return handle


def _guard(door: Door) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Answering) -> web.StreamResponse:
        door.refuse(request)
        return await handler(request)

    return guard


@web.middleware
async def _errors(request: web.Request, handler: Answering) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return error_answer(refusal)
    except web.HTTPException as exc:
        # What aiohttp finds wrong itself: no such path (404), method (405), too large a body (413).
        code = (exc.reason or "refused").lower().replace(" ", "_")
        headers = {"Allow": exc.headers["Allow"]} if "Allow" in exc.headers else {}
        message = f"{exc.reason}; see /openapi.json for what there is"
        return error_answer(Refusal(exc.status, code, message, headers))


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)

"""The endpoints: each reads the request, asks or tells the supervisor, and renders the answer."""

import json
import logging

from aiohttp import web

from llamasup.admin.answers import (
    Refusal,
    answer,
    body_object,
    flag,
    identifier,
    number,
)
from llamasup.admin.control import Control, LogBook, LogLine
from llamasup.admin.doors import Door
from llamasup.admin.page import status_page
from llamasup.admin.streams import Streams
from llamasup.admin.views import (
    Json,
    event_view,
    instance_view,
    line_view,
    operation_view,
    readiness_view,
    status_view,
)
from llamasup.core.model import Verb
from llamasup.core.status import InstanceStatus
from llamasup.errors import LlamasupError, UnknownInstanceError
from llamasup.events import ELSEWHERE, Gap, Record

LONGEST_WAIT = 600.0
"""Seconds that one long poll may last."""

MOST_EVENTS = 2000
MOST_LINES = 10_000

JSON_LINES = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"

_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Refresh": "5",
}
_LIVE_HEADERS = {"X-Accel-Buffering": "no"}

logger = logging.getLogger(__name__)


class Handlers:
    """The endpoints over one *control*, for those who come in by *door*."""

    def __init__(self, control: Control, streams: Streams, door: Door) -> None:
        self._control = control
        self._streams = streams
        self._door = door

    # --- status -----------------------------------------------------------------------------------

    async def status(self, _request: web.Request) -> web.StreamResponse:
        return answer(status_view(self._control.status()))

    async def instances(self, _request: web.Request) -> web.StreamResponse:
        return answer({"instances": status_view(self._control.status())["instances"]})

    async def instance(self, request: web.Request) -> web.StreamResponse:
        return answer(instance_view(self._row(request)))

    async def page(self, _request: web.Request) -> web.StreamResponse:
        text = status_page(self._control.status())
        return web.Response(text=text, content_type="text/html", headers=_PAGE_HEADERS)

    async def healthz(self, _request: web.Request) -> web.StreamResponse:
        is_healthy = self._control.healthy()
        return answer({"healthy": is_healthy}, 200 if is_healthy else 503)

    async def readyz(self, _request: web.Request) -> web.StreamResponse:
        view = readiness_view(self._control.status())
        return answer(view, 200 if view["ready"] else 503)

    # --- operations -------------------------------------------------------------------------------

    async def start(self, request: web.Request) -> web.StreamResponse:
        return await self._command(request, Verb.START)

    async def stop(self, request: web.Request) -> web.StreamResponse:
        return await self._command(request, Verb.STOP)

    async def restart(self, request: web.Request) -> web.StreamResponse:
        return await self._command(request, Verb.RESTART)

    async def _command(self, request: web.Request, verb: Verb) -> web.StreamResponse:
        name = self._row(request).name
        body = await body_object(request, frozenset({"now"}))
        now = body.get("now", False)
        if not isinstance(now, bool):
            raise Refusal(400, "bad_body", '"now" must be true or false')
        try:
            operation = self._control.command(name, verb, now=now)
        except UnknownInstanceError as exc:
            raise _no_such_instance() from exc
        except LlamasupError as exc:
            raise Refusal(409, "refused", str(exc)) from exc
        logger.info("%s: %s asked for by %s", name, verb.value, self._door.caller(request))
        return answer(
            operation_view(operation), 202, {"Location": f"/v1/operations/{operation.id}"}
        )

    async def operation(self, request: web.Request) -> web.StreamResponse:
        """Return the operation, after it ended or ``?wait=`` seconds, whichever comes first."""
        wait = number(request, "wait", 0.0, LONGEST_WAIT)
        wanted = identifier(request, "id")
        operation = self._control.operation(wanted) if wanted else None
        if operation is None:
            raise Refusal(404, "no_such_operation", "no operation with this id is remembered")
        if wait > 0 and operation.ended is None:
            async with self._streams.scope(wait):
                await self._control.operation_ended(operation.id)
            operation = self._control.operation(operation.id) or operation
        return answer(operation_view(operation))

    # --- events and logs --------------------------------------------------------------------------

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Return a list, or follow as server-sent events if the caller accepts those."""
        log = self._control.events
        if request.method == "GET" and EVENT_STREAM in request.headers.get("Accept", ""):
            after = self._position(request, default=log.last)
            response = web.StreamResponse(headers=_LIVE_HEADERS)
            response.content_type = EVENT_STREAM
            await self._streams.send(
                request, response, log, after, self._server_sent, beat=b": alive\n\n"
            )
            return response
        limit = int(number(request, "limit", 200, MOST_EVENTS))
        found = log.after(self._position(request, default=max(0, log.last - limit)))[:limit]
        last = found[-1].seq if found else log.last
        return answer(
            {"events": [event_view(event, log) for event in found], "last": log.cursor(last)}
        )

    def _position(self, request: web.Request, default: int) -> int:
        """Return where to go on: a reconnecting reader's header is newer than its query."""
        header = request.headers.get("Last-Event-ID")
        if header is not None:
            position = self._control.events.position(header)
            return ELSEWHERE if position is None else position
        query = request.query.get("after")
        if query is None:
            return default
        position = self._control.events.position(query)
        if position is None:
            raise Refusal(400, "bad_query", "after must be an event's id or a number")
        return position

    def _server_sent(self, event: Record | Gap) -> bytes:
        view = event_view(event, self._control.events)
        name = "event: gap\n" if isinstance(event, Gap) else ""
        return f"id: {view['id']}\n{name}data: {json.dumps(view)}\n\n".encode()

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """Return the last lines, and with ``?follow=1`` all that come, as text or JSON lines."""
        count = int(number(request, "lines", 100, MOST_LINES))
        follow = flag(request, "follow")
        book = self._book(self._row(request).name)
        as_json = JSON_LINES in request.headers.get("Accept", "")
        encode = _json_line if as_json else _plain_line
        lines = book.tail(max(count, 1))
        shown = b"".join(map(encode, lines)) if count else b""
        media = JSON_LINES if as_json else "text/plain"
        if request.method != "GET" or not follow:
            return web.Response(body=shown, content_type=media, charset="utf-8")
        response = web.StreamResponse(headers=_LIVE_HEADERS)
        response.content_type = media
        response.charset = "utf-8"
        last = lines[-1].seq if lines else 0
        beat = b"\n" if as_json else b""
        await self._streams.send(request, response, book, last, encode, beat, first=shown)
        return response

    # --- helpers ----------------------------------------------------------------------------------

    def _row(self, request: web.Request) -> InstanceStatus:
        name = identifier(request, "name")
        for row in self._control.status().instances:
            if row.name == name:
                return row
        raise _no_such_instance()

    def _book(self, name: str) -> LogBook:
        try:
            return self._control.log_book(name)
        except UnknownInstanceError as exc:
            raise _no_such_instance() from exc


def _no_such_instance() -> Refusal:
    return Refusal(404, "no_such_instance", "no instance has this name; see /v1/instances")


def _json_line(line: LogLine) -> bytes:
    view: Json = line_view(line)
    return json.dumps(view).encode() + b"\n"


def _plain_line(line: LogLine) -> bytes:
    return line.text.encode("utf-8", "replace") + b"\n"

"""How answers look (JSON, one shape for all errors) and how what callers send is read."""

import asyncio
import json
import re

from aiohttp import web

from llamasup.admin.views import Json, error_view

LARGEST_BODY = 64 * 1024
"""Bytes of a request body that are read at most."""

BODY_TIMEOUT = 10.0
"""Seconds that a caller has to send its body."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


class Refusal(Exception):
    """Ends a request with *status* and an error body; *headers* are added to the answer."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}


def answer(view: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return *view* as JSON."""
    return web.json_response(view, status=status, headers=headers)


def error_answer(refusal: Refusal) -> web.Response:
    """Return the answer for *refusal*."""
    return answer(error_view(refusal.code, refusal.message), refusal.status, refusal.headers)


def identifier(request: web.Request, key: str) -> str | None:
    """Return the part *key* of the path, or None if nothing of ours can be called so."""
    text = request.match_info[key]
    return text if _NAME.fullmatch(text) else None


def number(request: web.Request, key: str, default: float, largest: float) -> float:
    """Return the query value *key*; more than *largest* counts as *largest*."""
    text = request.query.get(key)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        raise Refusal(400, "bad_query", f"{key} must be a number")
    return min(float(text), largest)


def flag(request: web.Request, key: str) -> bool:
    """Return the query value *key*, absent meaning no."""
    match request.query.get(key, "0"):
        case "1" | "true" | "":
            return True
        case "0" | "false":
            return False
        case _:
            raise Refusal(400, "bad_query", f"{key} must be 1 or 0")


def check_query(request: web.Request, known: tuple[str, ...]) -> None:
    """Refuse query keys that mean nothing, or that come twice: a typing error must not pass."""
    for key in request.query:
        if key not in known:
            may = ", ".join(known) or "none"
            raise Refusal(400, "bad_query", f"unknown query parameter; known here: {may}")
        if len(request.query.getall(key)) > 1:
            raise Refusal(400, "bad_query", f"{key} is given twice")


async def body_object(request: web.Request, known: frozenset[str]) -> Json:
    """Return the JSON object of the body, {} for none; only *known* keys are accepted."""
    if "Content-Encoding" in request.headers:
        raise Refusal(415, "bad_body", "compressed bodies are not accepted")
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            raw = await request.read()
    except TimeoutError as exc:
        raise Refusal(408, "bad_body", "the body did not arrive in time") from exc
    except web.RequestPayloadError as exc:
        raise Refusal(400, "bad_body", "the body is not framed correctly") from exc
    try:
        body = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError) as exc:
        raise Refusal(400, "bad_body", "the body is not JSON") from exc
    if not isinstance(body, dict):
        raise Refusal(400, "bad_body", "the body must be a JSON object")
    if unknown := body.keys() - known:
        keys = ", ".join(json.dumps(key[:40]) for key in sorted(unknown)[:5])
        raise Refusal(400, "bad_body", f"unknown keys: {keys}; known: {', '.join(sorted(known))}")
    return body

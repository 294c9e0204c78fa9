"""Answers of our own, in the error shape of the OpenAI API that llama-server uses too. Pure."""

import json

_PHRASES = {
    400: "Bad Request",
    405: "Method Not Allowed",
    408: "Request Timeout",
    414: "URI Too Long",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
}

_TYPES = {
    405: "not_supported_error",
    501: "not_supported_error",
    502: "server_error",
    503: "unavailable_error",
}


def error_body(status: int, message: str) -> bytes:
    """Return ``{"error": {"code", "message", "type"}}`` as JSON."""
    kind = _TYPES.get(status, "invalid_request_error")
    return json.dumps({"error": {"code": status, "message": message, "type": kind}}).encode()


def error_answer(
    status: int,
    message: str,
    *,
    name: str,
    close: bool,
    retry_after: int | None = None,
    without_body: bool = False,
) -> bytes:
    """Return a whole answer with *message*; *without_body* for HEAD, *retry_after* in seconds."""
    body = error_body(status, message)
    lines = [
        f"HTTP/1.1 {status} {_PHRASES[status]}",
        "Content-Type: application/json; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"X-Llamasup-Instance: {name}",
    ]
    if retry_after is not None:
        lines.append(f"Retry-After: {retry_after}")
    if close:
        lines.append("Connection: close")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("latin-1", "replace") + (b"" if without_body else body)


def error_event(message: str) -> bytes:
    """Return the event that ends a stream of server-sent events whose child broke off."""
    return b"data: " + error_body(502, message) + b"\n\n"

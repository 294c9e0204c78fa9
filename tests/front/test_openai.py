"""Our own answers."""

import json

from llamasup.front.openai import error_answer, error_event


def test_an_error_has_the_shape_of_openai():
    raw = error_answer(503, "no", name="chat", close=True, retry_after=5)

    head, _, body = raw.partition(b"\r\n\r\n")
    assert json.loads(body) == {
        "error": {"code": 503, "message": "no", "type": "unavailable_error"}
    }
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 503 Service Unavailable",
        b"Content-Type: application/json; charset=utf-8",
        b"Content-Length: %d" % len(body),
        b"X-Llamasup-Instance: chat",
        b"Retry-After: 5",
        b"Connection: close",
    ]


def test_head_gets_no_body():
    raw = error_answer(502, "no", name="chat", close=False, without_body=True)

    assert raw.endswith(b"\r\n\r\n")
    assert b"Connection" not in raw


def test_an_error_event_is_one_event():
    event = error_event("a\nb")

    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2

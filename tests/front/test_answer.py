"""The child's answer on its way to the client."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamasup.front.answer import Answer
from llamasup.front.heads import AnswerError, RequestHead, read_request
from tests.front.test_chunks import PIECES, encode, split

EXTRA = b"X-Llamasup-Instance: chat\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


def request(method: bytes = b"POST", version: bytes = b"HTTP/1.1") -> RequestHead:
    found = read_request(method + b" / " + version + b"\r\nHost: x\r\n\r\n", b"::1")
    assert found is not None
    return found[0]


@given(PIECES, st.lists(st.integers(min_value=0)))
def test_the_bytes_of_the_child_are_not_changed(pieces: list[bytes], cuts: list[int]):
    body = encode(pieces)
    answer = Answer(request(), EXTRA)

    out = b"".join(answer.feed(part) for part in split(SSE + b"\r\n" + body, cuts))

    assert out == SSE + EXTRA + b"\r\n" + body
    assert answer.has_ended
    assert not answer.closes


@given(PIECES, st.lists(st.integers(min_value=0)))
def test_an_old_client_gets_the_bare_content(pieces: list[bytes], cuts: list[int]):
    answer = Answer(request(version=b"HTTP/1.0"), EXTRA)

    out = b"".join(answer.feed(part) for part in split(SSE + b"\r\n" + encode(pieces), cuts))

    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    assert out == head + EXTRA + b"Connection: close\r\n\r\n" + b"".join(pieces)
    assert answer.has_ended


@given(st.lists(st.integers(min_value=0)))
def test_hints_before_an_answer(cuts: list[int]):
    """100 is ours to send, 103 is passed on, and all may come in one read."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    raw = b"HTTP/1.1 100 Continue\r\n\r\n" + hint + head + b"\r\nhi"
    answer = Answer(request(), EXTRA)

    out = b"".join(answer.feed(part) for part in split(raw, cuts))

    assert out == hint + head + EXTRA + b"\r\nhi"
    assert (answer.status, answer.has_ended) == (200, True)


def test_bytes_behind_an_answer_are_dropped():
    answer = Answer(request(), b"")

    out = answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n")

    assert out.endswith(b"\r\n\r\nhi")
    assert answer.has_ended


def test_an_answer_without_a_length_ends_with_the_connection():
    answer = Answer(request(), b"")

    out = answer.feed(b"HTTP/1.1 200 OK\r\n\r\nall") + answer.feed(b" of it")

    assert out == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it"
    assert not answer.has_ended
    assert answer.end_of_input("gone") == b""


def test_switching_protocols_is_an_error():
    with pytest.raises(AnswerError):
        Answer(request(), b"").feed(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")


def test_an_endless_head_is_an_error():
    with pytest.raises(AnswerError):
        Answer(request(), b"").feed(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000)


@pytest.mark.parametrize(
    ("sent", "begins"),
    [(b"", b"data: "), (b"a\r\ndata: {}\r\n\r\n", b"\n\ndata: "),
         (b"a\r\ndata: {}\n\n\r\n", b"data: "),
     (b"4\r\ndata\r\n", b"\n\ndata: "), (b"3\r\n:\n\n\r\n", b"data: ")],
)  # fmt: skip
def test_a_stream_that_breaks_off_ends_with_an_error_event(sent: bytes, begins: bytes):
    answer = Answer(request(), b"")
    answer.feed(SSE + b"\r\n" + sent)

    last = answer.end_of_input("gone")

    assert last is not None
    size, _, rest = last.partition(b"\r\n")
    event, tail = rest[: int(size, 16)], rest[int(size, 16) :]
    assert tail == b"\r\n0\r\n\r\n"
    assert event.startswith(begins)
    error = {"code": 502, "message": "gone", "type": "server_error"}
    assert json.loads(event.strip().removeprefix(b"data: ")) == {"error": error}


@pytest.mark.parametrize("sent", [b"5", b"5\r\nhel", b"5\r\nhello\r", b"5\r\nhello\r\n0\r\n"])
def test_a_stream_cut_inside_a_chunk_cannot_be_ended(sent: bytes):
    answer = Answer(request(), b"")
    answer.feed(SSE + b"\r\n" + sent)

    assert answer.end_of_input("gone") is None


@pytest.mark.parametrize(
    "head", [b"Content-Length: 9\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
)
def test_other_answers_cannot_be_ended(head: bytes):
    answer = Answer(request(), b"")
    answer.feed(b"HTTP/1.1 200 OK\r\n" + head)

    assert answer.end_of_input("gone") is None

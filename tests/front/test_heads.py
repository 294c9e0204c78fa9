"""Request and answer heads: the smuggling corpus, what the child sees, and answers."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamasup.front.heads import (
    CHUNKED,
    MAX_HEAD,
    MAX_REQUEST_LINE,
    UNTIL_CLOSE,
    AnswerError,
    HeadError,
    parse_answer,
    read_request,
)

PEER = b"192.0.2.7"


def post(*lines: bytes, version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join([b"POST /v1/chat/completions " + version, *lines, b"", b""])


HOST = b"Host: box:1234"

# Each: the bytes, and the status they are refused with.
REFUSED = {
    "both lengths": (post(HOST, b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400),
    "both lengths, reversed": (
        post(HOST, b"Transfer-Encoding: chunked", b"Content-Length: 5"),
        400,
    ),
    "both, zero": (post(HOST, b"Content-Length: 0", b"Transfer-Encoding: chunked"), 400),
    "two equal lengths": (post(HOST, b"Content-Length: 5", b"Content-Length: 5"), 400),
    "two lengths": (post(HOST, b"Content-Length: 5", b"Content-Length: 6"), 400),
    "two lengths in case": (post(HOST, b"Content-Length: 5", b"content-length: 5"), 400),
    "list of lengths": (post(HOST, b"Content-Length: 5, 5"), 400),
    "negative length": (post(HOST, b"Content-Length: -5"), 400),
    "signed length": (post(HOST, b"Content-Length: +5"), 400),
    "hex length": (post(HOST, b"Content-Length: 0x5"), 400),
    "underscored length": (post(HOST, b"Content-Length: 1_0"), 400),
    "length with a point": (post(HOST, b"Content-Length: 5.0"), 400),
    "length with an exponent": (post(HOST, b"Content-Length: 1e3"), 400),
    "empty length": (post(HOST, b"Content-Length:"), 400),
    "blank length": (post(HOST, b"Content-Length: \t "), 400),
    "spaced length": (post(HOST, b"Content-Length: 1 0"), 400),
    "endless length": (post(HOST, b"Content-Length: 99999999999999999999"), 400),
    "other digits": (post(HOST, b"Content-Length: \xd9\xa5"), 400),
    "space before colon": (post(HOST, b"Content-Length : 5"), 400),
    "tab before colon": (post(HOST, b"Content-Length\t: 5"), 400),
    "space before colon, TE": (post(HOST, b"Transfer-Encoding : chunked"), 400),
    "space before name": (b"POST / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    "gzip, chunked": (post(HOST, b"Transfer-Encoding: gzip, chunked"), 400),
    "chunked, identity": (post(HOST, b"Transfer-Encoding: chunked, identity"), 400),
    "identity": (post(HOST, b"Transfer-Encoding: identity"), 400),
    "chunked twice": (
        post(HOST, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        400,
    ),
    "chunked and cow": (post(HOST, b"Transfer-Encoding: chunked", b"Transfer-Encoding: cow"), 400),
    "xchunked": (post(HOST, b"Transfer-Encoding: xchunked"), 400),
    "quoted": (post(HOST, b'Transfer-Encoding: "chunked"'), 400),
    "chunked with parameter": (post(HOST, b"Transfer-Encoding: chunked;q=1"), 400),
    "empty TE": (post(HOST, b"Transfer-Encoding:"), 400),
    "vertical tab in TE": (post(HOST, b"Transfer-Encoding:\x0bchunked"), 400),
    "form feed in TE": (post(HOST, b"Transfer-Encoding: chunked\x0c"), 400),
    "NUL in TE": (post(HOST, b"Transfer-Encoding: chunked\x00"), 400),
    "no-break space in TE": (post(HOST, b"Transfer-Encoding:\xa0chunked"), 400),
    "TE in HTTP/1.0": (post(HOST, b"Transfer-Encoding: chunked", version=b"HTTP/1.0"), 400),
    "folded TE": (post(HOST, b"Transfer-Encoding:", b" chunked"), 400),
    "folded header": (post(HOST, b"X: a", b"\tb"), 400),
    "bare CR in value": (post(HOST, b"X: a\rTransfer-Encoding: chunked"), 400),
    "bare LF between": (post(HOST + b"\nTransfer-Encoding: chunked"), 400),
    "bare LF ends": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "bare LF at the end": (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
    "CR CR LF": (b"GET / HTTP/1.1\r\r\nHost: x\r\n\r\n", 400),
    "NUL in value": (post(HOST, b"X: a\x00b"), 400),
    "NUL in name": (post(HOST, b"X\x00: a"), 400),
    "DEL in value": (post(HOST, b"X: a\x7fb"), 400),
    "no colon": (post(HOST, b"Nonsense"), 400),
    "no name": (post(HOST, b": nonsense"), 400),
    "bracket in name": (post(HOST, b"X[]: 1"), 400),
    "umlaut in name": (post(HOST, b"X\xfc: 1"), 400),
    "no Host": (b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n", 400),
    "two Hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "two equal Hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    "two Hosts in HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
    "Host with path": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "Host with user": (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    "Host with space": (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    "Host list": (b"GET / HTTP/1.1\r\nHost: a, b\r\nHost: a\r\n\r\n", 400),
    "absolute form": (b"GET http://box/ HTTP/1.1\r\nHost: box\r\n\r\n", 400),
    "no path": (b"GET box HTTP/1.1\r\nHost: box\r\n\r\n", 400),
    "star for GET": (b"GET * HTTP/1.1\r\nHost: box\r\n\r\n", 400),
    "CONNECT": (b"CONNECT box:443 HTTP/1.1\r\nHost: box\r\n\r\n", 405),
    "HTTP/0.9": (b"GET /\r\n", 400),
    "HTTP/2.0": (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: x\r\n\r\n", 400),
    "HTTP/1.10": (b"GET / HTTP/1.10\r\nHost: x\r\n\r\n", 400),
    "http/1.1": (b"GET / http/1.1\r\nHost: x\r\n\r\n", 400),
    "preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "empty line first": (b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "two spaces": (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "tab for space": (b"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "space at line end": (b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400),
    "space in target": (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "raw umlaut in target": (b"GET /\xc3\xbc HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "bracketed method": (b"G[T / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "websocket": (post(HOST, b"Connection: Upgrade", b"Upgrade: websocket"), 501),
    "websocket in a list": (post(HOST, b"Connection: upgrade", b"Upgrade: h2c, WebSocket"), 501),
    "unknown expectation": (post(HOST, b"Expect: miracle"), 417),
    "long request line": (b"GET /" + b"a" * MAX_REQUEST_LINE, 414),
    "whole long request line": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "long head": (post(HOST, *[b"X-%d: " % i + b"a" * 1000 for i in range(33)]), 431),
    "endless head": (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 6000, 431),
}

# Each: the bytes, the length of the body, and the lines that the child gets after the request line.
TAIL = (b"X-Forwarded-For: 192.0.2.7", b"Connection: close")
ACCEPTED = {
    "no body": (post(HOST), 0, (HOST,)),
    "length": (post(HOST, b"Content-Length: 5"), 5, (HOST, b"Content-Length: 5")),
    "length zero": (post(HOST, b"Content-Length: 0"), 0, (HOST, b"Content-Length: 0")),
    "leading zeros": (post(HOST, b"Content-Length: 005"), 5, (HOST, b"Content-Length: 5")),
    "blanks around": (post(HOST, b"Content-Length: \t5 "), 5, (HOST, b"Content-Length: 5")),
    "length in capitals": (post(HOST, b"CONTENT-LENGTH: 5"), 5, (HOST, b"Content-Length: 5")),
    "chunked": (
        post(HOST, b"Transfer-Encoding: Chunked"),
        CHUNKED,
        (HOST, b"Transfer-Encoding: chunked"),
    ),
    "order kept": (post(b"B: 2", HOST, b"a:1 ", b"B: 1"), 0, (b"B: 2", HOST, b"a:1 ", b"B: 1")),
    "empty header": (post(HOST, b"X-Empty:"), 0, (HOST, b"X-Empty:")),
    "hop-by-hop": (
        post(HOST, b"Keep-Alive: 5", b"TE: trailers", b"Trailer: X", b"Proxy-Connection: x"),
        0,
        (HOST,),
    ),
    "listed": (
        post(HOST, b"Connection: x-secret, Close", b"X-Secret: 1", b"X-Other: 2"),
        0,
        (HOST, b"X-Other: 2"),
    ),
    "length listed": (
        post(HOST, b"Connection: content-length", b"Content-Length: 5"),
        5,
        (HOST, b"Content-Length: 5"),
    ),
    "host listed": (
        post(HOST, b"Connection: host, authorization", b"Authorization: k"),
        0,
        (HOST, b"Authorization: k"),
    ),
    "h2c": (
        post(HOST, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA"),
        0,
        (HOST,),
    ),
    "look-alike": (
        post(HOST, b"Content_Length: 5", b"X-Content-Length: 7"),
        0,
        (HOST, b"Content_Length: 5", b"X-Content-Length: 7"),
    ),
    "expect": (
        post(HOST, b"Expect: 100-Continue", b"Content-Length: 5"),
        5,
        (HOST, b"Content-Length: 5"),
    ),
    "HTTP/1.0 without Host": (post(version=b"HTTP/1.0"), 0, (b"Host: localhost",)),
    "IPv6 Host": (post(b"Host: [::1]:1234"), 0, (b"Host: [::1]:1234",)),
}


@pytest.mark.parametrize(("raw", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_ambiguous_is_refused(raw: bytes, status: int):
    with pytest.raises(HeadError) as caught:
        read_request(raw, PEER)

    assert caught.value.status == status


@pytest.mark.parametrize(("raw", "length", "lines"), ACCEPTED.values(), ids=ACCEPTED)
def test_the_child_gets_one_clear_head(raw: bytes, length: int, lines: tuple[bytes, ...]):
    found = read_request(raw, PEER)

    assert found is not None
    head, end = found
    assert (head.length, end) == (length, len(raw))
    first = b"POST /v1/chat/completions HTTP/1.1"
    assert head.for_child == b"\r\n".join([first, *lines, *TAIL, b"", b""])


@pytest.mark.parametrize("raw", [raw for raw, _, _ in ACCEPTED.values()], ids=ACCEPTED)
def test_another_parser_reads_the_same_in_what_the_child_gets(raw: bytes):
    found = read_request(raw, PEER)
    assert found is not None
    fields: list[tuple[bytes, bytes]] = []

    class Seen:
        def on_header(self, name: bytes, value: bytes) -> None:
            fields.append((name.lower(), value))

    parser = httptools.HttpRequestParser(Seen())
    parser.feed_data(found[0].for_child)

    assert parser.get_method() == found[0].method
    assert (b"connection", b"close") in fields
    framing = [f for f in fields if f[0] in (b"content-length", b"transfer-encoding")]
    assert len(framing) <= 1
    if found[0].length == CHUNKED:
        assert framing == [(b"transfer-encoding", b"chunked")]
    elif framing:
        assert framing == [(b"content-length", b"%d" % found[0].length)]


@pytest.mark.parametrize(
    "raw",
    [raw for raw, _ in REFUSED.values()] + [raw for raw, _, _ in ACCEPTED.values()],
    ids=[*REFUSED, *ACCEPTED],
)
def test_it_does_not_matter_how_the_bytes_come(raw: bytes):
    whole = verdict(raw)
    step = max(1, len(raw) // 400)

    for size in range(1, len(raw), step):
        part = verdict(raw[:size])
        assert part in (None, whole)


def verdict(raw: bytes) -> object:
    try:
        return read_request(raw, PEER)
    except HeadError as exc:
        return exc.status


PARTS = [b"GET /", b" HTTP/1.1", b"\r\n", b"\r", b"\n", b" ", b"Host: x", b":", b"\x00", b"X: y",
         b"Content-Length: 3", b"a" * 4000]  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=16))
def test_a_verdict_once_given_stands(pieces: list[bytes]):
    """Whatever is said of some bytes is said of all that begins with them."""
    raw = b""
    earlier = None
    for piece in pieces:
        raw += piece
        now = verdict(raw)
        assert earlier is None or now == earlier
        earlier = now


@given(st.binary(max_size=300))
def test_random_bytes_are_no_request(raw: bytes):
    assert verdict(raw) in (None, 400)


def test_forwarded_for_grows():
    found = read_request(
        post(HOST, b"X-Forwarded-For: 10.0.0.1", b"x-forwarded-for: 10.0.0.2"), PEER
    )

    assert found is not None
    assert b"\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2, 192.0.2.7\r\n" in found[0].for_child


@pytest.mark.parametrize(
    ("lines", "version", "keep_alive"),
    [((), b"HTTP/1.1", True), ((b"Connection: CLOSE",), b"HTTP/1.1", False),
     ((b"Connection: keep-alive",), b"HTTP/1.0", False)],
)  # fmt: skip
def test_who_keeps_the_connection(lines: tuple[bytes, ...], version: bytes, keep_alive: bool):
    found = read_request(post(HOST, *lines, version=version), PEER)

    assert found is not None
    assert found[0].keep_alive is keep_alive


def answer(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines, b"", b""])


@pytest.mark.parametrize(
    ("head", "method", "length"),
    [
        (answer(b"Content-Length: 7"), b"POST", 7),
        (answer(b"content-length: 7"), b"HEAD", 0),
        (answer(b"Transfer-Encoding: chunked"), b"GET", CHUNKED),
        (answer(b"Transfer-Encoding: chunked"), b"HEAD", 0),
        (answer(), b"GET", UNTIL_CLOSE),
        (answer(status=b"204 No Content"), b"GET", 0),
        (answer(b"Content-Length: 7", status=b"304 Not Modified"), b"GET", 0),
        (answer(status=b"103 Early Hints"), b"GET", 0),
    ],
)
def test_where_an_answer_ends(head: bytes, method: bytes, length: int):
    assert parse_answer(head, method, unchunked=False).length == length


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        answer(b"Content-Length: 7", b"Content-Length: 7"),
        answer(b"Content-Length: 7", b"Transfer-Encoding: chunked"),
        answer(b"Content-Length: x"),
        answer(b"Transfer-Encoding: gzip"),
        answer(b"X: a\rb"),
    ],
)
def test_an_unclear_answer_is_an_error(head: bytes):
    with pytest.raises(AnswerError):
        parse_answer(head, b"GET", unchunked=False)


def test_the_answers_own_bytes_are_kept():
    head = answer(b"server:  llama.cpp ", b"Keep-Alive: timeout=5", b"connection: close", b"X:",
                  b"Transfer-Encoding: chunked", b"Content-Type: Text/Event-Stream; x")  # fmt: skip

    plain = parse_answer(head, b"GET", unchunked=False)
    old = parse_answer(head, b"GET", unchunked=True)

    kept = b"HTTP/1.1 200 OK\r\nserver:  llama.cpp \r\nX:\r\n"
    kind = b"Content-Type: Text/Event-Stream; x\r\n"
    assert plain.for_client == kept + b"Transfer-Encoding: chunked\r\n" + kind
    assert old.for_client == kept + kind
    assert plain.is_event_stream


def test_the_head_limit_is_exact():
    filler = MAX_HEAD - len(post(HOST, b"X: "))
    assert read_request(post(HOST, b"X: " + b"a" * filler), PEER) is not None
    with pytest.raises(HeadError):
        read_request(post(HOST, b"X: " + b"a" * (filler + 1)), PEER)

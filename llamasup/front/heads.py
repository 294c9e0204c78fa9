"""Heads of requests and answers: what they say, how long the bodies are, and what is refused. Pure.

The child never sees a head as the client wrote it, but one written anew from what was understood, so
that both sides agree on where a request ends. References are to RFC 9110 and RFC 9112.
"""

import re
from typing import NamedTuple

import httptools

from llamasup.errors import LlamasupError

MAX_HEAD = 32 * 1024
"""Bytes of a request head, request line included."""

MAX_REQUEST_LINE = 8 * 1024 + 64
"""Bytes of a request line; llama-server takes 8 KiB of path itself."""

MAX_ANSWER_HEAD = 64 * 1024
"""Bytes of a child's answer head."""

CHUNKED = -1
"""Length of a body that comes in chunks."""

UNTIL_CLOSE = -2
"""Length of an answer body that ends with the connection."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(_TOKEN + rb"++ [!-~]++ HTTP/1\.[01]\r\n")
_FIELDS = rb"(?:" + _TOKEN + rb"++:[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n"
_REQUEST_HEAD = re.compile(_REQUEST_LINE.pattern + _FIELDS)
_ANSWER_HEAD = re.compile(
    rb"HTTP/1\.[01] [1-9][0-9][0-9](?: [\t\x20-\x7e\x80-\xff]*+)?\r\n" + _FIELDS
)
# A control character, a bare CR or a bare LF; a CR at the very end may still get its LF.
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r[^\n]|(?<!\r)\n")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_LENGTH = re.compile(rb"[0-9]{1,15}")

_HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", b"http2-settings",
    )
)  # fmt: skip
_OURS = _HOP_BY_HOP | {b"content-length", b"expect", b"x-forwarded-for"}
_NEVER_DROPPED = frozenset((b"host", b"authorization", b"content-type"))


class HeadError(LlamasupError):
    """A request that is answered with *status* and the end of its connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AnswerError(LlamasupError):
    """A child's answer that cannot be understood."""


class RequestHead(NamedTuple):
    """What a request head says. *length* in bytes or ``CHUNKED``; *for_child* is the head to send."""

    method: bytes
    target: bytes
    is_http_1_0: bool
    length: int
    keep_alive: bool
    expects_continue: bool
    for_child: bytes


class AnswerHead(NamedTuple):
    """What an answer head says. *length* in bytes, ``CHUNKED`` or ``UNTIL_CLOSE``."""

    status: int
    length: int
    is_event_stream: bool
    for_client: bytes  # without its last empty line, hop-by-hop headers removed


def find_head(buf: bytes) -> int:
    """Return where the request head at the start of *buf* ends, -1 if it is not complete yet.

    Raises HeadError as soon as it can never become a good one. What it says of *buf* it says of
    everything that begins with *buf*, so the client's packets do not matter.
    """
    line_end = buf.find(b"\n", 0, MAX_REQUEST_LINE)
    if line_end < 0:
        if _FORBIDDEN.search(buf, 0, MAX_REQUEST_LINE):
            raise HeadError(400, _not_http(buf))
        if len(buf) >= MAX_REQUEST_LINE:
            raise HeadError(414, f"the request line is longer than {MAX_REQUEST_LINE} bytes")
        return -1
    if not _REQUEST_LINE.fullmatch(buf, 0, line_end + 1):
        raise HeadError(400, _not_http(buf))
    end = buf.find(b"\r\n\r\n", 0, MAX_HEAD) + 4
    if end > 3 and _REQUEST_HEAD.fullmatch(buf, 0, end):
        return end
    if _FORBIDDEN.search(buf, 0, end if end > 3 else MAX_HEAD):
        raise HeadError(400, "a control character or a bare line end in the request head")
    if end > 3:
        raise HeadError(400, "a header line is not NAME:VALUE (or is folded)")
    if len(buf) >= MAX_HEAD:
        raise HeadError(431, f"the request head is longer than {MAX_HEAD} bytes")
    return -1


def _not_http(buf: bytes) -> str:
    if buf[:1] == b"\x16":
        return "this port speaks plain HTTP, not TLS"
    return "the request line is not that of HTTP/1.1"


class _Fields:
    """What httptools calls back: the target and the header fields, in order."""

    __slots__ = ("fields", "on_header", "target")

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []
        fields = self.fields
        self.on_header = lambda name, value: fields.append((name, value))

    def on_url(self, url: bytes) -> None:
        self.target += url


def parse_request(head: bytes, peer: bytes) -> RequestHead:
    """Understand *head*, as ``find_head`` delimited it; *peer* is the client's IP address.

    Raises HeadError for everything that two readers could take in two ways.
    """
    seen = _Fields()
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass  # said in the fields, and judged below
    except httptools.HttpParserInvalidMethodError:
        raise HeadError(501, "this method is not known") from None
    except httptools.HttpParserError as exc:
        raise HeadError(400, f"cannot understand the request head: {exc}") from None
    method = parser.get_method()
    is_http_1_0 = parser.get_http_version() == "1.0"
    _check_target(method, seen.target)
    return _Reading(seen.fields, is_http_1_0).head(method, seen.target, peer)


def _check_target(method: bytes, target: bytes) -> None:
    if method == b"CONNECT":
        raise HeadError(405, "this is not a proxy")
    if not (target.startswith(b"/") or (target == b"*" and method == b"OPTIONS")):
        raise HeadError(400, "the request target must be a path")


class _Reading:
    """The header fields of one request, sorted into what concerns us and what is passed on."""

    __slots__ = ("_expect", "_forwarded", "_hosts", "_is_http_1_0", "_lengths", "_options", "_others",
                 "_transfers", "_upgrades")  # fmt: skip

    def __init__(self, fields: list[tuple[bytes, bytes]], is_http_1_0: bool) -> None:
        self._is_http_1_0 = is_http_1_0
        self._hosts: list[bytes] = []
        self._lengths: list[bytes] = []
        self._transfers: list[bytes] = []
        self._upgrades: list[bytes] = []
        self._options: set[bytes] = set()  # of Connection, lower case
        self._expect: list[bytes] = []
        self._forwarded: list[bytes] = []
        self._others: list[tuple[bytes, bytes, bytes]] = []  # name in lower case, name, value
        for name, value in fields:
            self._sort(name, value)

    def _sort(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower not in _OURS:
            self._others.append((lower, name, value))
            if lower == b"host":
                self._hosts.append(value.strip(b" \t"))
        elif lower == b"content-length":
            self._lengths.append(value.strip(b" \t"))
        elif lower == b"transfer-encoding":
            self._transfers.append(value.strip(b" \t").lower())
        elif lower == b"connection":
            self._options.update(option.strip(b" \t") for option in value.lower().split(b","))
        elif lower == b"upgrade":
            self._upgrades.append(value.lower())
        elif lower == b"expect":
            self._expect.append(value.strip(b" \t").lower())
        elif lower == b"x-forwarded-for":
            self._forwarded.append(value.strip(b" \t"))

    def head(self, method: bytes, target: bytes, peer: bytes) -> RequestHead:
        """Return the whole, with the head for the child."""
        self._check_host()
        length, framing = self._framing()
        if any(b"websocket" in upgrade for upgrade in self._upgrades):
            raise HeadError(501, "websockets are not supported")
        if any(expect != b"100-continue" for expect in self._expect):
            raise HeadError(417, "the only expectation that can be met is 100-continue")
        keep_alive = not self._is_http_1_0 and b"close" not in self._options
        return RequestHead(
            method,
            target,
            self._is_http_1_0,
            length,
            keep_alive,
            bool(self._expect) and not self._is_http_1_0 and length != 0,
            self._for_child(method, target, framing, peer),
        )

    def _check_host(self) -> None:
        if len(self._hosts) > 1:
            raise HeadError(400, "more than one Host header")
        if not self._hosts:
            if not self._is_http_1_0:
                raise HeadError(400, "no Host header")
            self._others.insert(0, (b"host", b"Host", b"localhost"))
        elif not _HOST.fullmatch(self._hosts[0]):
            raise HeadError(400, "the Host header is not HOST or HOST:PORT")

    def _framing(self) -> tuple[int, bytes]:
        """Return the length of the body and the header that tells it to the child (RFC 9112 6)."""
        if self._transfers:
            if self._lengths:
                raise HeadError(400, "both Content-Length and Transfer-Encoding")
            if self._transfers != [b"chunked"]:
                raise HeadError(400, "the only Transfer-Encoding understood is chunked")
            if self._is_http_1_0:
                raise HeadError(400, "HTTP/1.0 has no Transfer-Encoding")
            return CHUNKED, b"Transfer-Encoding: chunked\r\n"
        if not self._lengths:
            return 0, b""
        if len(self._lengths) > 1:
            raise HeadError(400, "more than one Content-Length")
        if not _LENGTH.fullmatch(self._lengths[0]):
            raise HeadError(400, "the Content-Length is not a number of bytes")
        length = int(self._lengths[0])
        return length, b"Content-Length: %d\r\n" % length

    def _for_child(self, method: bytes, target: bytes, framing: bytes, peer: bytes) -> bytes:
        dropped = self._options - _NEVER_DROPPED
        fields = b"".join(
            [
                b"%b: %b\r\n" % (name, value)
                for lower, name, value in self._others
                if lower not in dropped
            ]
        )
        return b"%b %b HTTP/1.1\r\n%b%bX-Forwarded-For: %b\r\nConnection: close\r\n\r\n" % (
            method, target, fields, framing, b", ".join([*self._forwarded, peer]),
        )  # fmt: skip


_ANSWER_FIELD = re.compile(
    rb"\r\n(connection|keep-alive|proxy-connection|content-length|transfer-encoding|content-type)"
    rb":[ \t]*([^\r]*?)[ \t]*(?=\r)",
    re.IGNORECASE,
)


def parse_answer(head: bytes, method: bytes, *, unchunked: bool) -> AnswerHead:
    """Understand the child's answer *head* (with its last empty line) to a request of *method*.

    The bytes for the client are the child's own, less the headers that concern one connection only;
    *unchunked*: the client cannot read chunks, so the header that announces them goes as well.
    Raises AnswerError if it is no head, or its body has no clear end (RFC 9112 6.3).
    """
    if not _ANSWER_HEAD.fullmatch(head):
        raise AnswerError("the server's answer is not HTTP/1.1")
    status = int(head[9:12])
    lengths: list[bytes] = []
    transfers: list[bytes] = []
    is_event_stream = False
    kept = []
    start = 0
    for found in _ANSWER_FIELD.finditer(head):
        name = found[1].lower()
        if name == b"content-type":
            is_event_stream = found[2].lower().startswith(b"text/event-stream")
            continue
        if name == b"content-length":
            lengths.append(found[2])
            continue
        if name == b"transfer-encoding":
            transfers.append(found[2].lower())
            if not unchunked:
                continue
        kept.append(head[start : found.start()])
        start = found.end()
    kept.append(head[start:-2])
    length = _answer_length(status, method, lengths, transfers)
    return AnswerHead(status, length, is_event_stream, b"".join(kept))


def _answer_length(status: int, method: bytes, lengths: list[bytes], transfers: list[bytes]) -> int:
    if lengths and transfers:
        raise AnswerError("the server's answer has both Content-Length and Transfer-Encoding")
    if len(lengths) > 1 or (lengths and not _LENGTH.fullmatch(lengths[0])):
        raise AnswerError("the server's answer has no clear Content-Length")
    if transfers and transfers != [b"chunked"]:
        raise AnswerError("the server's answer has an unknown Transfer-Encoding")
    if method == b"HEAD" or status in (204, 304) or status < 200:
        return 0
    if transfers:
        return CHUNKED
    return int(lengths[0]) if lengths else UNTIL_CLOSE

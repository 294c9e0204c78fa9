"""Heads of requests and answers: what they say, how long bodies are, what is refused. Pure.

A head must match one strict grammar before anything is read out of it. The child gets a head of
our own making with the client's end-to-end header lines in it, so that both sides agree on where a
request ends. References are to RFC 9110 and RFC 9112.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

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

_BLANK = b" \t"
_HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings",
    )
)  # fmt: skip
_OURS = _HOP_BY_HOP | {b"content-length", b"expect", b"x-forwarded-for"}
_NEVER_DROPPED = frozenset((b"host", b"authorization", b"content-type"))
_USUAL_OPTIONS: tuple[list[bytes], ...] = ([], [b"keep-alive"], [b"close"])
_ANSWER_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"upgrade"))


def _first_letters(names: Iterable[bytes]) -> frozenset[int]:
    return frozenset(letter for n in names for letter in n[:1].lower() + n[:1].upper())


_FIRST_LETTERS = _first_letters([b"host", *_OURS])
_ANSWER_FIRST_LETTERS = _first_letters(
    [b"content-length", b"transfer-encoding", *_ANSWER_HOP_BY_HOP]
)


class HeadError(LlamasupError):
    """A request that is answered with *status* and the end of its connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AnswerError(LlamasupError):
    """A child's answer that cannot be understood."""


class RequestHead(NamedTuple):
    """What a request head says. *length*: bytes or ``CHUNKED``; *for_child*: the head to send."""

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


def parse_request(head: bytes, peer: bytes) -> RequestHead:
    """Understand *head*, as ``find_head`` delimited it; *peer* is the client's IP address.

    Raises HeadError for everything that two readers could take in two ways.
    """
    lines = head.split(b"\r\n")
    line = lines[0]
    method, target, version = line.split(b" ")
    _check_target(method, target)
    reading = _Reading(version == b"HTTP/1.0")
    kept = [line[:-8] + b"HTTP/1.1"]
    for line in lines[1:-2]:
        # Most headers are none of our business, and most of those show it by their first letter.
        if line[0] not in _FIRST_LETTERS or not reading.takes(line):
            kept.append(line)
    return reading.head(method, target, kept, peer)


def _check_target(method: bytes, target: bytes) -> None:
    if method == b"CONNECT":
        raise HeadError(405, "this is not a proxy")
    if not (target.startswith(b"/") or (target == b"*" and method == b"OPTIONS")):
        raise HeadError(400, "the request target must be a path")


class _Reading:
    """What concerns us among the header fields of one request."""

    __slots__ = ("_expects", "_forwarded", "_hosts", "_is_http_1_0", "_lengths", "_options",
                 "_transfers", "_upgrades")  # fmt: skip

    def __init__(self, is_http_1_0: bool) -> None:
        self._is_http_1_0 = is_http_1_0
        self._hosts: list[bytes] = []
        self._lengths: list[bytes] = []
        self._transfers: list[bytes] = []
        self._upgrades: list[bytes] = []
        self._options: list[bytes] = []  # of Connection, lower case
        self._expects: list[bytes] = []
        self._forwarded: list[bytes] = []

    def takes(self, line: bytes) -> bool:
        """Note what the header *line* says to us; return whether it is not for the child."""
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"host":
            self._hosts.append(value.strip(_BLANK))
            return False
        if name not in _OURS:
            return False
        value = value.strip(_BLANK)
        if name == b"content-length":
            self._lengths.append(value)
        elif name == b"connection":
            self._options += [option.strip(_BLANK) for option in value.lower().split(b",")]
        elif name == b"transfer-encoding":
            self._transfers.append(value.lower())
        elif name == b"upgrade":
            self._upgrades.append(value.lower())
        elif name == b"expect":
            self._expects.append(value.lower())
        elif name == b"x-forwarded-for" and value:
            self._forwarded.append(value)
        return True

    def head(self, method: bytes, target: bytes, kept: list[bytes], peer: bytes) -> RequestHead:
        """Return the whole; *kept* are the request line and the lines for the child."""
        self._check_host(kept)
        length = self._length()
        if any(b"websocket" in upgrade for upgrade in self._upgrades):
            raise HeadError(501, "websockets are not supported")
        if any(expect != b"100-continue" for expect in self._expects):
            raise HeadError(417, "the only expectation that can be met is 100-continue")
        if self._options not in _USUAL_OPTIONS:
            kept[1:] = [line for line in kept[1:] if not self._is_dropped(line)]
        if length == CHUNKED:
            kept.append(b"Transfer-Encoding: chunked")
        elif self._lengths:
            kept.append(b"Content-Length: %d" % length)
        kept.append(b"X-Forwarded-For: " + b", ".join([*self._forwarded, peer]))
        kept.append(b"Connection: close\r\n\r\n")
        return RequestHead(
            method,
            target,
            self._is_http_1_0,
            length,
            not self._is_http_1_0 and b"close" not in self._options,
            bool(self._expects) and not self._is_http_1_0,
            b"\r\n".join(kept),
        )

    def _check_host(self, kept: list[bytes]) -> None:
        if len(self._hosts) > 1:
            raise HeadError(400, "more than one Host header")
        if not self._hosts:
            if not self._is_http_1_0:
                raise HeadError(400, "no Host header")
            kept.append(b"Host: localhost")
        elif not _HOST.fullmatch(self._hosts[0]):
            raise HeadError(400, "the Host header is not HOST or HOST:PORT")

    def _length(self) -> int:
        """Return the length of the body (RFC 9112 6.3, without its mercies)."""
        lengths, transfers = self._lengths, self._transfers
        if transfers:
            if lengths:
                raise HeadError(400, "both Content-Length and Transfer-Encoding")
            if transfers != [b"chunked"]:
                raise HeadError(400, "the only Transfer-Encoding understood is chunked")
            if self._is_http_1_0:
                raise HeadError(400, "HTTP/1.0 has no Transfer-Encoding")
            return CHUNKED
        if not lengths:
            return 0
        if len(lengths) > 1:
            raise HeadError(400, "more than one Content-Length")
        if not _LENGTH.fullmatch(lengths[0]):
            raise HeadError(400, "the Content-Length is not a number of bytes")
        return int(lengths[0])

    def _is_dropped(self, line: bytes) -> bool:
        name = line.partition(b":")[0].lower()
        return name in self._options and name not in _NEVER_DROPPED


def parse_answer(head: bytes, method: bytes, *, unchunked: bool) -> AnswerHead:
    """Understand the child's answer *head* (with its last empty line) to a request of *method*.

    The bytes for the client are the child's own, less the headers that concern one connection only;
    *unchunked*: the client cannot read chunks, so the header that announces them goes as well.
    Raises AnswerError if it is no head, or its body has no clear end (RFC 9112 6.3).
    """
    if not _ANSWER_HEAD.fullmatch(head):
        raise AnswerError("the server's answer is not HTTP/1.1")
    lines = head.split(b"\r\n")
    status = int(head[9:12])
    lengths: list[bytes] = []
    transfers: list[bytes] = []
    is_event_stream = False
    kept = [lines[0]]
    for line in lines[1:-2]:
        if line[0] in _ANSWER_FIRST_LETTERS:
            name, _, value = line.partition(b":")
            name = name.lower()
            if name in _ANSWER_HOP_BY_HOP:
                continue
            if name == b"content-type":
                is_event_stream = value.strip(_BLANK).lower().startswith(b"text/event-stream")
            elif name == b"content-length":
                lengths.append(value.strip(_BLANK))
            elif name == b"transfer-encoding":
                transfers.append(value.strip(_BLANK).lower())
                if unchunked:
                    continue
        kept.append(line)
    length = _answer_length(status, method, lengths, transfers)
    return AnswerHead(status, length, is_event_stream, b"\r\n".join(kept) + b"\r\n")


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

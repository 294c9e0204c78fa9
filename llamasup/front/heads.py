"""Heads of requests and answers: what they say, how long bodies are, what is refused. Pure.

A head must match one strict grammar before anything is read out of it. The child gets a head of
our own making with the client's end-to-end header lines in it, so that both sides agree on where a
request ends. References are to RFC 9110 and RFC 9112.
"""

import functools
import re
from collections.abc import Iterable, Sequence
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

_MAX_REMEMBERED = 4096  # bytes; larger heads are understood anew each time
_BLANK = b" \t"
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb"++) ([!-~]++) HTTP/1\.([01])\r\n")
_FIELDS = rb"((?:" + _TOKEN + rb"++:[\t\x20-\x7e\x80-\xff]*+\r\n)*+)\r\n"
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
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings",
    )
)  # fmt: skip
_OURS = _HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-forwarded-for"}
_NEVER_DROPPED = frozenset((b"host", b"authorization", b"content-type"))
_USUAL_OPTIONS = ([b"keep-alive"], [b"close"])
_ANSWER_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"upgrade"))


def _first_letters(names: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(letter for n in names for letter in (n[:1].lower(), n[:1].upper()))


_FIRST_LETTERS = _first_letters(_OURS)
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


def read_request(buf: bytes, peer: bytes) -> tuple[RequestHead, int] | None:
    """Return the request head at the start of *buf* and where it ends; None: not complete yet.

    *peer* is the client's IP address. Raises HeadError for everything that two readers could take
    in two ways, as soon as that is clear. What it says of *buf* it says of everything that begins
    with *buf*, so it does not matter how the bytes came.
    """
    found = _REQUEST_HEAD.match(buf, 0, MAX_HEAD)
    if found is None or found.start(4) > MAX_REQUEST_LINE:
        _check_incomplete(buf)
        return None
    method, target, minor, fields = found.groups()
    if method == b"CONNECT":
        raise HeadError(405, "this is not a proxy")
    if not (target.startswith(b"/") or (target == b"*" and method == b"OPTIONS")):
        raise HeadError(400, "the request target must be a path")
    rest, lengths = _cut_length(fields)
    understand = _understand if len(rest) <= _MAX_REMEMBERED else _understand.__wrapped__
    reading = understand(method, target, minor, rest, peer)
    length = _length((*lengths, *reading.lengths), reading.transfers, reading.is_http_1_0)
    if length == CHUNKED:
        framing = b"Transfer-Encoding: chunked\r\n"
    elif lengths or reading.lengths:
        framing = b"Content-Length: %d\r\n" % length
    else:
        framing = b""
    head = RequestHead(
        method,
        target,
        reading.is_http_1_0,
        length,
        reading.keep_alive,
        reading.expects_continue,
        reading.start + framing + reading.end,
    )
    return head, found.end()


def _cut_length(fields: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """Return *fields* without a Content-Length in one of the usual spellings, and its value."""
    for name in (b"\r\nContent-Length:", b"\r\ncontent-length:"):
        at = fields.find(name)
        if at >= 0:
            end = fields.find(b"\r\n", at + 2)
            return fields[:at] + fields[end:], (fields[at + len(name) : end].strip(_BLANK),)
    return fields, ()


def _check_incomplete(buf: bytes) -> None:
    """Raise HeadError if *buf*, which is no whole request head, cannot become one."""
    line_end = buf.find(b"\n", 0, MAX_REQUEST_LINE)
    if line_end < 0:
        if _FORBIDDEN.search(buf, 0, MAX_REQUEST_LINE):
            raise HeadError(400, _not_http(buf))
        if len(buf) >= MAX_REQUEST_LINE:
            raise HeadError(414, f"the request line is longer than {MAX_REQUEST_LINE} bytes")
        return
    if not _REQUEST_LINE.fullmatch(buf, 0, line_end + 1):
        raise HeadError(400, _not_http(buf))
    end = buf.find(b"\r\n\r\n", 0, MAX_HEAD) + 4
    if _FORBIDDEN.search(buf, 0, end if end > 3 else MAX_HEAD):
        raise HeadError(400, "a control character or a bare line end in the request head")
    if end > 3:
        raise HeadError(400, "a header line is not NAME:VALUE (or is folded)")
    if len(buf) >= MAX_HEAD:
        raise HeadError(431, f"the request head is longer than {MAX_HEAD} bytes")


def _not_http(buf: bytes) -> str:
    if buf[:1] == b"\x16":
        return "this port speaks plain HTTP, not TLS"
    return "the request line is not that of HTTP/1.1"


class _Reading(NamedTuple):
    """A request head but for its Content-Length; *start* and *end* enclose the framing header."""

    is_http_1_0: bool
    keep_alive: bool
    expects_continue: bool
    lengths: tuple[bytes, ...]
    transfers: tuple[bytes, ...]
    start: bytes
    end: bytes


# The heads of a client differ in Content-Length alone: what is equal is understood once.
@functools.lru_cache(maxsize=128)
def _understand(method: bytes, target: bytes, minor: bytes, fields: bytes, peer: bytes) -> _Reading:
    is_http_1_0 = minor == b"0"
    kept = [b"%b %b HTTP/1.1" % (method, target)]
    ours = _sort(fields, kept)
    if _check_host(ours.get(b"host"), is_http_1_0):
        kept.append(b"Host: localhost")
    options = _options(ours.get(b"connection", ()))
    if options and options not in _USUAL_OPTIONS:
        kept[1:] = [line for line in kept[1:] if not _is_dropped(line, options)]
    expects = _check_wishes(ours.get(b"upgrade", ()), ours.get(b"expect", ()))
    if b"x-forwarded-for" in ours:
        peer = b", ".join([*filter(None, ours[b"x-forwarded-for"]), peer])
    return _Reading(
        is_http_1_0,
        not is_http_1_0 and b"close" not in options,
        expects and not is_http_1_0,
        tuple(ours.get(b"content-length", ())),
        tuple(ours.get(b"transfer-encoding", ())),
        b"\r\n".join([*kept, b""]),
        b"X-Forwarded-For: %b\r\nConnection: close\r\n\r\n" % peer,
    )


def _sort(fields: bytes, kept: list[bytes]) -> dict[bytes, list[bytes]]:
    """Add the lines for the child to *kept*; return the values that concern us, by lower name."""
    ours: dict[bytes, list[bytes]] = {}
    for line in fields.split(b"\r\n"):
        # Most headers are none of our business, and most of those show it by their first letter.
        if line[:1] in _FIRST_LETTERS:
            name, _, value = line.partition(b":")
            name = name.lower()
            if name in _OURS:
                ours.setdefault(name, []).append(value.strip(_BLANK))
                if name != b"host":
                    continue
        if line:  # the last is empty
            kept.append(line)
    return ours


def _check_host(hosts: list[bytes] | None, is_http_1_0: bool) -> bool:
    """Return whether the child must be given a Host header."""
    if hosts is None:
        if not is_http_1_0:
            raise HeadError(400, "no Host header")
        return True
    if len(hosts) > 1:
        raise HeadError(400, "more than one Host header")
    if not _HOST.fullmatch(hosts[0]):
        raise HeadError(400, "the Host header is not HOST or HOST:PORT")
    return False


def _length(lengths: Sequence[bytes], transfers: Sequence[bytes], is_http_1_0: bool) -> int:
    """Return the length of the body (RFC 9112 6.3, without its mercies)."""
    if transfers:
        if lengths:
            raise HeadError(400, "both Content-Length and Transfer-Encoding")
        if len(transfers) > 1 or transfers[0].lower() != b"chunked":
            raise HeadError(400, "the only Transfer-Encoding understood is chunked")
        if is_http_1_0:
            raise HeadError(400, "HTTP/1.0 has no Transfer-Encoding")
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1:
        raise HeadError(400, "more than one Content-Length")
    if not _LENGTH.fullmatch(lengths[0]):
        raise HeadError(400, "the Content-Length is not a number of bytes")
    return int(lengths[0])


def _check_wishes(upgrades: Sequence[bytes], expects: Sequence[bytes]) -> bool:
    """Return whether the client waits for a 100; other upgrades than websocket are ignored."""
    if any(b"websocket" in upgrade.lower() for upgrade in upgrades):
        raise HeadError(501, "websockets are not supported")
    if any(expect.lower() != b"100-continue" for expect in expects):
        raise HeadError(417, "the only expectation that can be met is 100-continue")
    return bool(expects)


def _options(values: Sequence[bytes]) -> list[bytes]:
    """Return what Connection headers list, in lower case."""
    return [o.strip(_BLANK) for value in values for o in value.lower().split(b",")]


def _is_dropped(line: bytes, options: list[bytes]) -> bool:
    name = line.partition(b":")[0].lower()
    return name in options and name not in _NEVER_DROPPED


def parse_answer(head: bytes, method: bytes, *, unchunked: bool) -> AnswerHead:
    """Understand the child's answer *head* (with its last empty line) to a request of *method*.

    The bytes for the client are the child's own, less the headers that concern one connection only;
    *unchunked*: the client cannot read chunks, so the header that announces them goes as well.
    Raises AnswerError if it is no head, or its body has no clear end (RFC 9112 6.3).
    """
    if len(head) > _MAX_REMEMBERED:
        return _parse_answer.__wrapped__(head, method, unchunked)
    return _parse_answer(head, method, unchunked)


# The heads of all streams of a llama-server are equal to the byte.
@functools.lru_cache(maxsize=128)
def _parse_answer(head: bytes, method: bytes, unchunked: bool) -> AnswerHead:
    if not _ANSWER_HEAD.fullmatch(head):
        raise AnswerError("the server's answer is not HTTP/1.1")
    lines = head.split(b"\r\n")
    status = int(head[9:12])
    lengths: list[bytes] = []
    transfers: list[bytes] = []
    is_event_stream = False
    kept = [lines[0]]
    for line in lines[1:-2]:
        if line[:1] in _ANSWER_FIRST_LETTERS:
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

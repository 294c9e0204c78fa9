"""Where a body in chunks ends (RFC 9112 7.1). Pure; bytes are followed, not copied."""

import re

from llamasup.errors import LlamasupError

MAX_SIZE_LINE = 256
"""Bytes of a chunk's first line, extensions included."""

MAX_TRAILER = 8 * 1024
"""Bytes of the trailer section."""

# The sizes of usual tokens, so that nearly no line needs the regular expression.
_KNOWN_SIZES = {b"%x" % size: size for size in range(2048)}
_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,15})(?:;[\t\x20-\x7e\x80-\xff]*+)?")
_TRAILER_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t\x20-\x7e\x80-\xff]*+")
_BARE_END = re.compile(rb"\r[^\n]|(?<!\r)\n")


class ChunkError(LlamasupError):
    """Bytes that are not a body in chunks."""


class ChunkTracker:
    """Follows one body through any split of its bytes into pieces.

    *payload*, if given, gets the pieces of the content without its framing.
    """

    __slots__ = ("_in_trailer", "_left", "_part", "_payload", "_trailer_size")

    def __init__(self, payload: list[bytes] | None = None) -> None:
        self._payload = payload
        self._left = 0  # bytes of the present chunk still to come, its CR LF included
        self._part = b""  # an unfinished line
        self._in_trailer = False  # the last chunk has been seen
        self._trailer_size = 0

    @property
    def at_boundary(self) -> bool:
        """Whether the next byte begins a chunk, so that the body could be ended here."""
        return not (self._left or self._part or self._in_trailer)

    def feed(self, data: bytes) -> int:
        """Follow *data*; return the offset behind the body's end, -1 if it goes on.

        Raises ChunkError.
        """
        before = len(self._part)
        data = self._part + data if before else data
        self._part = b""
        n = len(data)
        pos = 0
        while True:
            if self._left and (pos := self._skip(data, pos, n)) < 0:
                return -1
            end = data.find(b"\r\n", pos)
            if end < 0:
                self._keep_part(data[pos:])
                return -1
            line = data[pos:end]
            pos = end + 2
            if self._in_trailer:
                if not line:
                    return pos - before
                self._check_trailer(line)
                continue
            size = _KNOWN_SIZES.get(line)
            if size is None:
                size = _size_of(line)
            if size and self._payload is None and data.startswith(b"\r\n", pos + size):
                pos += size + 2
                if pos == n:
                    return -1
            else:
                self._in_trailer = not size
                self._left = size + 2 if size else 0

    def passes(self, data: bytes) -> bool:
        """Follow *data* if it is exactly one chunk that is not the last; else leave it alone."""
        if self._left or self._part or self._in_trailer:
            return False
        line = data.find(b"\r\n")
        size = _KNOWN_SIZES.get(data[:line], 0)
        return size > 0 and len(data) == line + size + 4 and data.endswith(b"\r\n")

    def _skip(self, data: bytes, pos: int, n: int) -> int:
        """Pass over the present chunk; return the offset behind it, -1 if *data* ends before."""
        left = self._left
        if self._payload is not None and left > 2 and pos < n:
            self._payload.append(data[pos : min(n, pos + left - 2)])
        if left > n - pos:
            self._left = left = left - (n - pos)
            if left == 1 and pos < n and data[n - 1] != 13:
                raise ChunkError("a chunk is longer than its size")
            return -1
        pos += left
        self._left = 0
        if data[pos - 1] != 10 or (left > 1 and data[pos - 2] != 13):
            raise ChunkError("a chunk is longer than its size")
        return pos

    def _keep_part(self, part: bytes) -> None:
        # One more than a line: the CR of its end may be there already.
        if len(part) > (MAX_TRAILER if self._in_trailer else MAX_SIZE_LINE) + 1:
            raise ChunkError("a line between chunks is too long")
        if _BARE_END.search(part):
            raise ChunkError("a bare line end between chunks")
        self._part = part

    def _check_trailer(self, line: bytes) -> None:
        self._trailer_size += len(line)
        if self._trailer_size > MAX_TRAILER:
            raise ChunkError("the trailer is too long")
        if not _TRAILER_LINE.fullmatch(line):
            raise ChunkError("a trailer line is not NAME:VALUE")


def _size_of(line: bytes) -> int:
    found = _SIZE_LINE.fullmatch(line) if len(line) <= MAX_SIZE_LINE else None
    if found is None:
        raise ChunkError("a chunk size is not a hexadecimal number")
    return int(found[1], 16)

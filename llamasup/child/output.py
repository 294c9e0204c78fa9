"""The output of a child: read without ever stopping, kept in a bounded ring, passed to the sinks.

Whatever a child writes costs a bounded time per turn of the loop and a bounded memory, so that we
neither block it nor are blocked by it.
"""

import asyncio
import itertools
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from llamasup.clock import SystemClock

LONGEST_LINE = 16384
"""Bytes of a line; what is longer is cut, and each part but the last ends in `CONTINUED`."""
CONTINUED = b" [continued]"
_CHUNK = 65536  # bytes read in one turn of the loop
_LAST_CHUNKS = 32  # read at most after the end: a stranger may still write into the pipe
_UNSAFE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) != "\t"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output. *seq* grows by one; *at* in Unix seconds; *text* suits a terminal."""

    seq: int
    at: float
    gen: int
    text: str


class Sink(Protocol):
    """Something that takes lines, raw and without their ends, and never blocks."""

    def write(self, name: str, gen: int, at: float, lines: Sequence[bytes]) -> None: ...


def show(line: bytes) -> str:
    """Return *line* fit for people: broken UTF-8 replaced, control characters spelled out."""
    return line.rstrip(b"\r").decode(errors="replace").translate(_UNSAFE)


class LogBook:
    """The last lines of one instance, over all its generations. Readers follow by number."""

    def __init__(
        self,
        name: str,
        clock: SystemClock,
        sinks: Sequence[Sink] = (),
        max_lines: int = 2000,
        max_bytes: int = 2 << 20,
    ) -> None:
        self.name = name
        self.lines = 0  # all that were ever written; also the last sequence number
        self.bytes = 0
        self._clock = clock
        self._sinks = sinks
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._ring: deque[tuple[int, float, int, bytes]] = deque()
        self._ring_bytes = 0
        self._news = asyncio.Event()

    def append(self, gen: int, lines: Sequence[bytes]) -> None:
        """Add *lines* of generation *gen*, tell the sinks and wake the readers."""
        at = self._clock.now().wall
        first = self.lines + 1
        self.lines += len(lines)
        self.bytes += sum(map(len, lines)) + len(lines)
        for sink in self._sinks:
            sink.write(self.name, gen, at, lines)
        self._keep(first, at, gen, lines)
        self._news.set()
        self._news = asyncio.Event()

    def _keep(self, first: int, at: float, gen: int, lines: Sequence[bytes]) -> None:
        skipped = max(0, len(lines) - self._max_lines)  # they would push each other out
        for seq, line in enumerate(lines[skipped:], first + skipped):
            self._ring.append((seq, at, gen, line))
            self._ring_bytes += len(line)
        while len(self._ring) > self._max_lines or self._ring_bytes > self._max_bytes:
            self._ring_bytes -= len(self._ring.popleft()[3])

    def tail(self, count: int, gen: int | None = None) -> list[Line]:
        """Return the last *count* lines that are kept, of generation *gen* only if one is given."""
        newest = (entry for entry in reversed(self._ring) if gen in (None, entry[2]))
        chosen = list(itertools.islice(newest, max(count, 0)))
        return [_line(entry) for entry in reversed(chosen)]

    def after(self, seq: int) -> list[Line]:
        """Return the kept lines after *seq*; if some are gone, a line that says so comes first."""
        first = self._ring[0][0] if self._ring else self.lines + 1
        wanted = itertools.islice(self._ring, max(0, seq + 1 - first), None)
        lines = [_line(entry) for entry in wanted]
        if seq + 1 < first and lines:
            gap = f"[{first - 1 - seq} lines lost]"
            lines.insert(0, replace(lines[0], seq=first - 1, text=gap))
        return lines

    async def follow(self, seq: int) -> AsyncIterator[Line]:
        """Yield what came after *seq* and then everything new, for ever."""
        while True:
            news = self._news
            for line in self.after(seq):
                seq = line.seq
                yield line
            if seq >= self.lines:
                await news.wait()


def _line(entry: tuple[int, float, int, bytes]) -> Line:
    seq, at, gen, raw = entry
    return Line(seq, at, gen, show(raw))


class LineCutter:
    """Turn chunks of bytes into lines, none longer than `LONGEST_LINE`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that *data* completes."""
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        if max(map(len, parts), default=0) > LONGEST_LINE:
            parts = [piece for part in parts for piece in _cut(part)]
        if len(self._rest) > LONGEST_LINE:
            *pieces, self._rest = _cut(self._rest)
            parts += pieces
        return parts

    def finish(self) -> list[bytes]:
        """Return what is left: a last line without its end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def _cut(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > LONGEST_LINE:
        end = LONGEST_LINE
        while end > LONGEST_LINE - 4 and line[end] & 0xC0 == 0x80:  # inside of a character
            end -= 1
        pieces.append(line[:end] + CONTINUED)
        line = line[end:]
    return [*pieces, line]


class OutputReader:
    """Read the pipe of one generation into its book, until its end or until `finish`."""

    def __init__(self, fd: int, book: LogBook, gen: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self.book = book
        self._gen = gen
        self._cutter = LineCutter()
        self._loop.add_reader(fd, self._read)

    def tail(self, count: int) -> list[Line]:
        """Return the last lines that this generation has written."""
        return self.book.tail(count, self._gen)

    async def finish(self) -> None:
        """Read what is left in the pipe of a dead child, and close it."""
        for _ in range(_LAST_CHUNKS):
            if not self._read():
                break
            await asyncio.sleep(0)
        self.close()

    def close(self) -> None:
        """Stop reading. The last line may have no end."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._store(self._cutter.finish())

    def _read(self) -> bool:
        """Read once; return whether there may be more."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._store(self._cutter.feed(data))
        return True

    def _store(self, lines: list[bytes]) -> None:
        if lines:
            self.book.append(self._gen, lines)

"""Where the output of all instances goes: a book each in memory, files, and our own stderr."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from llamasup.child.logfile import LogFile
from llamasup.child.output import LogBook, show
from llamasup.child.writer import Writer
from llamasup.clock import SystemClock

_FILE_BACKLOG = 4 << 20  # bytes that may wait for the disk, for each instance
_MIRROR_BACKLOG = 256 << 10
_MIRROR_RATE = 200  # lines a second of each instance that go to stderr
_MAX_FILE = 32 << 20
_KEEP = 5


class Logs:
    """The books of all instances. *log_dir* None: no files; *mirror_fd* None: nothing to stderr."""

    def __init__(
        self, log_dir: str | None, mirror_fd: int | None = 2, clock: SystemClock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._books: dict[str, LogBook] = {}
        self._files = FileSink(log_dir) if log_dir else None
        self._mirror = MirrorSink(mirror_fd) if mirror_fd is not None else None

    def book(self, name: str) -> LogBook:
        """Return the book of instance *name*, made at the first call."""
        if name not in self._books:
            sinks = [sink for sink in (self._files, self._mirror) if sink]
            self._books[name] = LogBook(name, self._clock, sinks)
        return self._books[name]

    def start_run(self, name: str, gen: int) -> None:
        """Begin a new file for generation *gen*."""
        if self._files:
            self._files.start_run(name, gen, self._clock.now().wall)

    def dropped(self, name: str) -> int:
        """Return how many batches of lines did not reach the file because the disk was too slow."""
        return self._files.dropped(name) if self._files else 0

    def close(self, timeout: float) -> None:
        """Write what is queued, for at most *timeout* seconds each; for the end of the daemon."""
        if self._files:
            self._files.close(timeout)
        if self._mirror:
            self._mirror.close(timeout)


class FileSink:
    """Lines to the rotated files, by one thread for all instances."""

    def __init__(self, log_dir: str, max_bytes: int = _MAX_FILE, keep: int = _KEEP) -> None:
        self._log_dir = log_dir
        self._max_bytes = max_bytes
        self._keep = keep
        self._files: dict[str, LogFile] = {}  # the thread's own
        self._writer: Writer[tuple[str, bytes | None]] = Writer(
            "log files", self._write, _FILE_BACKLOG
        )

    def start_run(self, name: str, gen: int, at: float) -> None:
        self._writer.offer(name, 0, (name, None))
        self.write(name, gen, at, [b"--- generation %d ---" % gen])

    def write(self, name: str, gen: int, at: float, lines: Sequence[bytes]) -> None:  # noqa: ARG002 - a `Sink`
        prefix = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%fZ} ".encode()
        data = prefix + (b"\n" + prefix).join(lines) + b"\n"
        self._writer.offer(name, len(data), (name, data))

    def dropped(self, name: str) -> int:
        return self._writer.dropped[name]

    def close(self, timeout: float) -> None:
        if self._writer.close(timeout):
            for file in self._files.values():
                file.close()

    def _write(self, item: tuple[str, bytes | None]) -> None:
        name, data = item
        if name not in self._files:
            self._files[name] = LogFile(self._log_dir, name, self._max_bytes, self._keep)
        if data is None:
            self._files[name].start_run()
        else:
            self._files[name].write(data)


class MirrorSink:
    """Lines to a descriptor, safe for a terminal, at most *rate* a second of each instance."""

    def __init__(self, fd: int, rate: int = _MIRROR_RATE) -> None:
        self._fd = fd
        self._rate = rate
        self._meters: dict[str, _Meter] = {}
        self._writer: Writer[bytes] = Writer("log mirror", self._write, _MIRROR_BACKLOG)

    def write(self, name: str, gen: int, at: float, lines: Sequence[bytes]) -> None:  # noqa: ARG002 - a `Sink`
        prefix = f"{name}[{gen}]: "
        meter = self._meters.setdefault(name, _Meter(self._rate))
        room = meter.take(len(lines), lambda count: self._report(prefix, name, count))
        text = "".join(f"{prefix}{show(line)}\n" for line in lines[:room])
        if text:
            data = text.encode()
            self._writer.offer(name, len(data), data)

    def close(self, timeout: float) -> None:
        self._writer.close(timeout)

    def _report(self, prefix: str, name: str, count: int) -> None:
        data = f"{prefix}{count} lines suppressed\n".encode()
        self._writer.offer(name, len(data), data)

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:  # nobody reads it any more; the books and the files have it
            return


class _Meter:
    """Lets *rate* lines a second through, and then reports how many it did not."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._room = 0
        self._suppressed = 0
        self._is_open = False

    def take(self, count: int, report: Callable[[int], None]) -> int:
        """Return how many of *count* lines may go through."""
        if not self._is_open:
            self._is_open = True
            self._room = self._rate
            asyncio.get_running_loop().call_later(1.0, self._end, report)
        allowed = min(count, self._room)
        self._room -= allowed
        self._suppressed += count - allowed
        return allowed

    def _end(self, report: Callable[[int], None]) -> None:
        self._is_open = False
        if self._suppressed:
            report(self._suppressed)
        self._suppressed = 0

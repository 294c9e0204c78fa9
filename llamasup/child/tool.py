"""Run a short command and take its output; the time limit holds even if its binary hangs."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llamasup.child.spawn import Order, Process, pipe
from llamasup.errors import SpawnError

_CHUNK = 65536
_DEATH_TIMEOUT = 1.0  # seconds from SIGKILL until a process is left behind
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of it. *code* is None if it was killed or never ran; *error* tells people why."""

    code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    error: str | None = None


class _Capture:
    """Read a pipe to its end, keeping the first *limit* bytes."""

    def __init__(self, fd: int, limit: int, on_news: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._room = limit
        self._on_news = on_news
        self._kept = bytearray()
        self._loop.add_reader(fd, self._read)

    @property
    def open(self) -> bool:
        return self._fd >= 0

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace")

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._kept += data[: self._room]
            self._room -= min(self._room, len(data))
        else:
            self.close()
            self._on_news.set()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


async def run(
    argv: Sequence[str], env: Mapping[str, str], timeout: float, limit: int = _MEBIBYTE
) -> ToolResult:
    """Run *argv* (binary's path first) in a session of its own, for at most *timeout* seconds.

    Both outputs are read to their ends, of each the first *limit* bytes are kept. At the timeout,
    and if the caller is cancelled, the process group is killed; one that does not die is left
    behind and reaped when it does.
    """
    news = asyncio.Event()
    with contextlib.ExitStack() as writers, contextlib.ExitStack() as readers:
        try:
            ends = [_pipe(readers, writers) for _ in range(2)]
            process = Process(Order(argv, env), ends[0][1], ends[1][1], None, news.set)
        except SpawnError as exc:
            return ToolResult(None, "", "", error=str(exc))
        readers.pop_all()  # the captures close them from here on
    captures = (_Capture(ends[0][0], limit, news), _Capture(ends[1][0], limit, news))
    try:
        return await _result(process, captures, news, timeout)
    finally:
        for capture in captures:
            capture.close()
        if not process.reaped:
            process.kill_group()
            process.abandon()


def _pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    """Return the two ends of a new pipe, which will be closed with the two stacks."""
    reader, writer = pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    return reader, writer


async def _result(
    process: Process, captures: tuple[_Capture, _Capture], news: asyncio.Event, timeout: float
) -> ToolResult:
    def is_over() -> bool:
        return process.ended and not any(capture.open for capture in captures)

    if await _wait_until(is_over, news, timeout):
        raw = process.reap()
        error = process.error or (f"killed by signal {raw.signal}" if raw.signal else None)
        return ToolResult(raw.code, captures[0].text, captures[1].text, error=error)
    process.kill_group()
    error = f"no end after {timeout:g} s"
    if await _wait_until(lambda: process.ended, news, _DEATH_TIMEOUT):
        process.reap()
    else:
        error += f", and pid {process.pid} does not die"
    return ToolResult(None, captures[0].text, captures[1].text, timed_out=True, error=error)


async def _wait_until(is_true: Callable[[], bool], news: asyncio.Event, timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            while not is_true():
                news.clear()
                await news.wait()
    except TimeoutError:
        return False
    return True

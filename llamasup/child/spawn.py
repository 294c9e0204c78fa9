"""Start one process through the shim, and watch its end. Nothing here waits for a file system.

The daemon starts only its own Python, from a local disk; the shim then executes the binary,
wherever that lies. A spawn has no ``await`` in it, so it cannot be cancelled half way.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamasup.errors import SpawnError

_SHIM = str(Path(__file__).with_name("shim.py"))
_FIRST_OWN_FD = (
    16  # descriptors handed over come from here, so none is overwritten on its way to 0-5
)
_READY = b"ready"
_REASONS = {
    errno.ENOENT: "no such file",
    errno.EACCES: "permission denied",
    errno.ENOEXEC: "not a program for this machine",
    errno.ENOTDIR: "no such file",
}

own_pids: set[int] = set()
"""Pids of living processes that have an owner here; all other children are orphans we inherited."""


@dataclass(frozen=True, slots=True)
class RawExit:
    """How the main process ended; neither *code* nor *signal* if the binary was never executed."""

    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class Order:
    """What the shim is to become. *nice*, *oom_score_adj*: None leaves the daemon's."""

    argv: Sequence[str]
    env: Mapping[str, str]
    nice: int | None = None
    oom_score_adj: int | None = None
    cgroup_procs: str | None = None

    def encode(self) -> bytes:
        fields = [
            str(os.getpid()),
            "" if self.nice is None else str(self.nice),
            "" if self.oom_score_adj is None else str(self.oom_score_adj),
            self.cgroup_procs or "",
            str(len(self.argv)),
            *self.argv,
            *(f"{name}={value}" for name, value in self.env.items()),
        ]
        if any("\0" in field for field in fields):
            raise SpawnError(f"cannot start {self.argv[0]}: a zero byte in an argument or variable")
        return b"".join(os.fsencode(field) + b"\0" for field in fields)


def move_up(fd: int) -> int:
    """Return a close-on-exec copy of *fd* that is fit for `Process`, and close *fd*."""
    try:
        return _copy_up(fd)
    finally:
        os.close(fd)


def _copy_up(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN_FD)


def pipe() -> tuple[int, int]:
    """Return the reading end, non-blocking, and the writing end of a pipe, fit for `Process`."""
    try:
        low = os.pipe()
    except OSError as exc:
        raise SpawnError(f"cannot make a pipe: {exc.strerror}") from exc
    high: list[int] = []
    try:
        for fd in low:
            high.append(_copy_up(fd))  # noqa: PERF401 - to be closed after a failure
    except OSError as exc:
        for fd in high:
            os.close(fd)
        raise SpawnError(f"cannot make a pipe: {exc.strerror}") from exc
    finally:
        for fd in low:
            os.close(fd)
    os.set_blocking(high[0], False)
    return high[0], high[1]


class Process:
    """A process that was spawned and is not reaped yet.

    *on_news* is called in the loop when the exec is decided and when the process ended. The owner
    calls `reap` after the end; until then the pid cannot become another process's.
    """

    def __init__(
        self, order: Order, out: int, err: int, lock: int | None, on_news: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._binary = order.argv[0]
        self._on_news = on_news
        self._status_text = b""
        self._exit: RawExit | None = None
        self.ended = False
        self.executed: bool | None = None  # None = not known yet
        self.error = ""  # why it was not executed
        self.is_hopeless = False  # and whether that will be so the next time
        self._status, writer = pipe()
        try:
            self.pid = _posix_spawn(order, out, err, writer, lock)
        except BaseException:
            os.close(self._status)
            raise
        finally:
            os.close(writer)
        own_pids.add(self.pid)
        self._pidfd = _open_pidfd(self.pid, self._status)
        self._loop.add_reader(self._status, self._read_status)
        self._loop.add_reader(self._pidfd, self._note_end)

    @property
    def reaped(self) -> bool:
        """Whether `reap` was called: from then on the pid may be anybody's."""
        return self._exit is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this one process, if it still lives."""
        if self.reaped:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill_group(self) -> None:
        """Send SIGKILL to the process and its process group."""
        if self.reaped:
            return
        self.send(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> RawExit:
        """Take the exit status of the ended process, and let its pid go; may be called again."""
        if self._exit is None:
            assert self.ended
            info = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
            assert info is not None
            self._exit = self._raw_exit(info.si_code, info.si_status)
            own_pids.discard(self.pid)
            os.close(self._pidfd)
        return self._exit

    def abandon(self) -> None:
        """Let go of a process that does not die: it is reaped when it does."""
        self._on_news = self._reap_if_ended

    def _reap_if_ended(self) -> None:
        if self.ended:
            self.reap()

    def _raw_exit(self, code: int, status: int) -> RawExit:
        for _ in range(2):  # the text and the end: the loop may not have told us of them yet
            if self._status >= 0:
                self._read_status()
        if not self.executed:
            return RawExit(None, None)
        return RawExit(status, None) if code == os.CLD_EXITED else RawExit(None, status)

    def _note_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.ended = True
        self._on_news()

    def _read_status(self) -> None:
        try:
            data = os.read(self._status, 4096)
        except BlockingIOError:
            return
        self._status_text += data
        if data:
            return
        self._loop.remove_reader(self._status)
        os.close(self._status)
        self._status = -1
        self.executed = self._status_text == _READY
        if not self.executed:
            self.error, self.is_hopeless = _reason(self._binary, self._status_text)
        self._on_news()


def _posix_spawn(order: Order, out: int, err: int, status: int, lock: int | None) -> int:
    """Start the shim; only our own local Python is executed here. Descriptors are 16 or more."""
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
        (os.POSIX_SPAWN_DUP2, status, 3),
    ]
    try:
        memory = _memory_file(order.encode())
    except OSError as exc:
        raise SpawnError(f"cannot start {order.argv[0]}: {exc.strerror}") from exc
    try:
        actions.append((os.POSIX_SPAWN_DUP2, memory, 4))
        if lock is not None:
            actions.append((os.POSIX_SPAWN_DUP2, lock, 5))
        shim = [sys.executable, "-I", "-S", _SHIM]
        # The environment is in the order: LD_LIBRARY_PATH could make our own Python hang.
        return os.posix_spawn(sys.executable, shim, {}, file_actions=actions, setsid=True)
    except OSError as exc:
        raise SpawnError(f"cannot start {order.argv[0]}: {exc.strerror}") from exc
    finally:
        os.close(memory)


def _memory_file(data: bytes) -> int:
    """Return a memory file with *data*: no size limit, nothing on a command line, never blocks."""
    fd = move_up(os.memfd_create("llamasup-order"))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _open_pidfd(pid: int, status: int) -> int:
    """Open the pidfd of a fresh child, which nobody else reaps, so it cannot be another process."""
    try:
        return os.pidfd_open(pid)
    except OSError as exc:  # no descriptors left: a child we cannot watch must not run
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        own_pids.discard(pid)
        os.close(status)
        raise SpawnError(f"cannot watch a new process: {exc.strerror}") from exc


def _reason(binary: str, text: bytes) -> tuple[str, bool]:
    """Return why *binary* was not executed, and whether that is a mistake that stays."""
    number, _, step = text.removeprefix(_READY).decode().partition(" ")
    if not number:
        return f"cannot start {binary}: it ended before it was executed", False
    if step == "interpreter":
        return f"cannot start {binary}: its interpreter is missing", True
    code = int(number)
    why = _REASONS.get(code) or os.strerror(code).lower()
    return f"cannot start {binary}: {why}", code in _REASONS

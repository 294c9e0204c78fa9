"""What an earlier daemon may have left behind: its lock, and processes of its instances."""

import asyncio
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from llamasup.child import lock
from llamasup.errors import AlreadyRunningError
from llamasup.paths import daemon_lock_path

_FIRST_DELAY = 0.005  # seconds between looks at a lock, doubled up to the longest
_LONGEST_DELAY = 0.5
_SOCKET = re.compile(r".+\.\d+\.sock")


class DaemonLock:
    """Makes the daemon the only one of its runtime folder, for as long as its process lives."""

    def __init__(self, runtime_dir: str) -> None:
        self._runtime_dir = runtime_dir
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock, making the folder if need be. Raises `AlreadyRunningError`."""
        Path(self._runtime_dir).mkdir(mode=0o755, parents=True, exist_ok=True)
        fd = lock.open_lock(daemon_lock_path(self._runtime_dir))
        if not lock.try_lock(fd):
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyRunningError(
                f"cannot use {self._runtime_dir}: another llamasup (pid {owner}) runs there"
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd  # the file stays: a lock whose file can vanish can be held twice

    def release(self) -> None:
        """Let the lock go; so does the end of the process."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process of an earlier daemon's instance. *gone* is false if it did not die in time.

    *gen* is known if it is the main process that the earlier daemon recorded.
    """

    name: str
    pid: int
    command: str
    gen: int | None
    gone: bool

    def __str__(self) -> str:
        what = "a process" if self.gen is None else f"generation {self.gen}"
        end = "was killed" if self.gone else "was killed and does not die"
        return f"{self.name}: {what} of an earlier llamasup ({self.command}, pid {self.pid}) {end}"


async def clear_leftovers(runtime_dir: str, timeout: float) -> list[Leftover]:
    """Kill the processes that still hold an instance's lock, and remove stale sockets.

    To be called with the `DaemonLock` held. What the lock files say is not trusted: only a process
    that really holds a lock is killed. Waits at most *timeout* seconds for all of them together.
    """
    folder = Path(runtime_dir)
    paths = sorted(folder.glob("*.lock"))  # noqa: ASYNC240 - a local folder
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_clear(path, timeout), name=f"leftovers {path.name}")
            for path in paths
        ]
    _remove_sockets(folder)
    return [leftover for task in tasks for leftover in task.result()]


def _remove_sockets(folder: Path) -> None:
    for path in folder.iterdir():
        if _SOCKET.fullmatch(path.name) and path.is_socket():
            path.unlink(missing_ok=True)


async def _clear(path: Path, timeout: float) -> list[Leftover]:
    try:
        fd = lock.open_lock(str(path))
    except OSError:  # a symbolic link or a folder: not one of ours
        return []
    found: dict[int, Leftover] = {}
    delay = _FIRST_DELAY
    try:
        async with asyncio.timeout(timeout):
            while not lock.is_free(fd):
                await asyncio.to_thread(_kill, fd, path.stem, found)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
    except TimeoutError:
        alive = lock.holders(fd)
        return [replace(each, gone=each.pid not in alive) for each in found.values()]
    finally:
        os.close(fd)
    return list(found.values())


def _kill(fd: int, instance: str, found: dict[int, Leftover]) -> None:
    """Describe the holders in *found*, while they can be described, then kill them."""
    record = _read_record(fd)
    for pid in lock.holders(fd):
        if pid not in found:
            gen = record.gen if record and record.is_of(pid) else None
            found[pid] = Leftover(instance, pid, lock.command_name(pid), gen, gone=True)
        lock.kill_holder(pid, fd)


@dataclass(frozen=True, slots=True)
class _Record:
    """What the earlier daemon wrote into the lock file; see `lock.record`."""

    pid: int
    starttime: int
    boot_id: str
    gen: int

    def is_of(self, pid: int) -> bool:
        same = pid == self.pid and self.starttime == lock.start_time(pid)
        return same and self.boot_id == lock.boot_id()


def _read_record(fd: int) -> _Record | None:
    try:
        return _Record(**json.loads(os.pread(fd, 4096, 0)))
    except (ValueError, TypeError):
        return None

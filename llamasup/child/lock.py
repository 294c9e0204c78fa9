"""The lock of an instance: all its processes inherit it, so a free lock means that all are gone.

flock belongs to the open file, which the daemon opens, locks, hands to the child and closes. The
kernel lets it go when the last process that inherited it is really dead, and not before.
"""

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from llamasup.child.spawn import move_up

_PROC = "/proc"
_RECORD_SIZE = 200  # characters; always as long, so that nothing of an older record stays behind


def open_lock(path: str) -> int:
    """Open the lock file *path*, made if need be; nothing is locked yet."""
    return move_up(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


def try_lock(fd: int) -> bool:
    """Take the lock if it is free; never waits."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(fd: int) -> bool:
    """Whether nobody holds the lock; *fd* is an open file of our own that does not hold it."""
    if not try_lock(fd):
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def record(fd: int, pid: int, gen: int) -> None:
    """Write into the lock file whom it was given to, for the next daemon's report."""
    facts = {"pid": pid, "starttime": start_time(pid), "boot_id": boot_id(), "gen": gen}
    with contextlib.suppress(OSError):  # a full disk; the lock itself is what counts
        os.pwrite(fd, json.dumps(facts).ljust(_RECORD_SIZE).encode() + b"\n", 0)


def start_time(pid: int) -> int | None:
    """Return when *pid* was started, in clock ticks after boot: with the pid it names a process."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def stat_fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the third (state) on; empty if it is gone."""
    try:
        text = Path(f"{_PROC}/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets


def command_name(pid: int) -> str:
    """Return the short name of a process; unlike its command line it can be read while it hangs."""
    try:
        return Path(f"{_PROC}/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


def boot_id() -> str:
    """Return the identity of this boot."""
    try:
        return Path(f"{_PROC}/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def holders(fd: int) -> list[int]:
    """Return the pids of the other processes that hold the lock of the file *fd*.

    Links are only read, never followed: what they lead to may lie on a hung mount. Somebody who
    merely has the file open is no holder.
    """
    target = _link(f"{_PROC}/self/fd/{fd}")
    inode = os.fstat(fd).st_ino
    me = os.getpid()
    pids = (int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit())
    return [pid for pid in pids if pid != me and _holds(pid, target, inode)]


def kill_holders(fd: int) -> list[int]:
    """Send SIGKILL to every other process that holds the lock; return their pids."""
    return [pid for pid in holders(fd) if kill_holder(pid, fd)]


def kill_holder(pid: int, fd: int) -> bool:
    """Send SIGKILL to *pid* if it really holds the lock of the file *fd*; return whether so."""
    with contextlib.suppress(OSError):
        # The pidfd comes before the check: whoever gets the pid afterwards is not hit.
        pidfd = os.pidfd_open(pid)
        try:
            if _holds(pid, _link(f"{_PROC}/self/fd/{fd}"), os.fstat(fd).st_ino):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _link(path: str) -> str:
    return os.readlink(path)  # noqa: PTH115 - thousands of links, and a Path costs three times as much


def _holds(pid: int, target: str, inode: int) -> bool:
    return any(_has_lock(pid, number, inode) for number in _descriptors_of(pid, target))


def _descriptors_of(pid: int, target: str) -> Iterator[str]:
    folder = f"{_PROC}/{pid}/fd"
    try:
        numbers = [entry.name for entry in os.scandir(folder)]
    except OSError:  # gone, or not ours to look into
        return
    for number in numbers:
        with contextlib.suppress(OSError):
            if _link(f"{folder}/{number}") == target:
                yield number


def _has_lock(pid: int, number: str, inode: int) -> bool:
    """Look for ``lock: 1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF``."""
    try:
        lines = Path(f"{_PROC}/{pid}/fdinfo/{number}").read_text().splitlines()
    except OSError:
        return False
    return any(
        line.startswith("lock:") and " FLOCK " in line and f":{inode} " in line for line in lines
    )

"""A read-only FUSE file system that shows a folder, and hangs for as long as a gate file exists.

Use `hanging_fs` in a process with a mount namespace of its own (``unshare -m --propagation
private``), so that a hung mount never leaks. Needs root, /dev/fuse and libfuse (Debian: ``apt-get
install fuse3``). A request that the file system has taken up makes its caller unkillable, like a
dead disk or a wedged GPU driver.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_PATIENCE = 30.0  # seconds for the mount to appear or to go


class Gate:
    """Closed: every call that reaches the file system hangs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def close(self) -> None:
        self._path.touch()

    def open(self) -> None:
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def hanging_fs(source: Path, mount: Path) -> Iterator[Gate]:
    """Show *source* under *mount*, for as long as the context lasts; the gate is open at first."""
    gate_file = mount.with_name(mount.name + ".gate")
    gate = Gate(gate_file)
    mount.mkdir(exist_ok=True)
    command = [sys.executable, __file__, str(source), str(mount), str(gate_file)]
    server = subprocess.Popen(command)
    try:
        _until(lambda: _is_mounted(mount) or server.poll() is not None)
        if server.poll() is not None:
            raise RuntimeError("the FUSE file system ended: no libfuse, no /dev/fuse, not root?")
        yield gate
    finally:
        gate.open()
        subprocess.run(["umount", "-l", "-i", "--no-canonicalize", str(mount)], check=False)
        server.kill()
        server.wait()


def _until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError("the FUSE file system was not mounted in time")
        time.sleep(0.02)


def _is_mounted(mount: Path) -> bool:
    """Look into mountinfo: to stat a mount point could hang."""
    return any(line.split()[4] == str(mount) for line in open("/proc/self/mountinfo"))


def _serve(source: str, mount: str, gate: str) -> None:
    import mfusepy

    def wait() -> None:
        while os.path.exists(gate):
            time.sleep(0.02)

    class Passthrough(mfusepy.Operations):
        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            wait()
            try:
                found = os.lstat(source + path)
            except OSError as exc:
                raise mfusepy.FuseOSError(exc.errno) from exc
            names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
            return {name: getattr(found, name) for name in names}

        def readdir(self, path: str, fh: int, *_args: object) -> list[str]:
            wait()
            return [".", "..", *os.listdir(source + path)]

        def open(self, path: str, flags: int) -> int:
            wait()
            return os.open(source + path, os.O_RDONLY)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            wait()
            return os.pread(fh, size, offset)

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

    fuse_options = {"fsname": "hangfs", "attr_timeout": 0, "entry_timeout": 0}
    mfusepy.FUSE(Passthrough(), mount, foreground=True, ro=True, nothreads=False, **fuse_options)


if __name__ == "__main__":
    _serve(*sys.argv[1:4])

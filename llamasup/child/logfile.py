"""Log files, one per run of an instance, with the runs before. All may hang: for a thread only.

``<log_dir>/<name>/<name>.log`` is the current run, ``.1`` the one before (or the part before, if
the file grew too big), up to ``.N``.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger(__name__)


class LogFile:
    """The files of one instance. An error is reported once, and the next write tries again."""

    def __init__(self, log_dir: str, name: str, max_bytes: int, keep: int) -> None:
        self.error: str | None = None
        self._path = Path(log_dir) / name / f"{name}.log"
        self._max_bytes = max_bytes
        self._keep = keep
        self._fd = -1
        self._size = 0

    def start_run(self) -> None:
        """Begin a new file."""
        self._guarded(self._rotate)

    def write(self, data: bytes) -> None:
        """Append *data*, whole lines."""
        self._guarded(lambda: self._append(data))

    def close(self) -> None:
        """Close the current file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        if self._fd < 0 or self._is_gone():
            self._open()
        self._size += len(data)
        while data:
            data = data[os.write(self._fd, data) :]

    def _is_gone(self) -> bool:
        """Whether somebody removed the file: to go on writing would fill the disk unseen."""
        try:
            return self._path.stat().st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return True

    def _open(self) -> None:
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o640)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        self.close()
        self._size = 0
        for number in range(self._keep, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = older.with_suffix(f".{number - 1}") if number > 1 else self._path
            with contextlib.suppress(FileNotFoundError):
                newer.rename(older)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as exc:
            self.close()
            if self.error is None:
                _log.error("cannot write %s: %s", self._path, exc.strerror)
            self.error = f"cannot write {self._path}: {exc.strerror}"
        else:
            self.error = None

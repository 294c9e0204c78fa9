"""A cgroup of its own for each instance, where the daemon may make one (``Delegate=yes``).

Without it nothing is missing but the kill that no fork can outrun: the instance's lock finds the
rest.
"""

import contextlib
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger(__name__)

_DAEMON = "daemon"  # our own leaf: a cgroup with children may hold no processes of its own
_SUFFIX = ".instance"


@dataclass(frozen=True, slots=True)
class Leaf:
    """The cgroup of one instance."""

    path: Path

    @property
    def procs(self) -> str:
        """The file to which a process writes 0 to enter."""
        return str(self.path / "cgroup.procs")

    def kill(self) -> None:
        """Send SIGKILL to every process in it, at once."""
        try:
            (self.path / "cgroup.kill").write_text("1")
        except FileNotFoundError:  # before Linux 5.14, or the leaf is gone
            for pid in self._pids():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        except OSError as exc:
            _log.warning("cannot kill %s: %s", self.path, exc.strerror)

    def populated(self) -> bool:
        """Whether a process, even a half-dead one, is in it."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def remove(self) -> None:
        """Remove it if it is empty."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _pids(self) -> list[int]:
        try:
            return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]
        except OSError:
            return []


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup under which the leaves are made."""

    path: Path

    @classmethod
    def detect(cls) -> "Cgroup | None":
        """Return the daemon's own cgroup, the daemon moved into a leaf of it; None if not ours.

        It is ours if it may be written to and holds no process but this one, as a service's does.
        """
        own = _own_path()
        if own is None:
            return None
        if own.name == _DAEMON and os.access(own.parent / "cgroup.procs", os.W_OK):
            return cls(own.parent)  # DelegateSubgroup= of systemd 254, or we were here before
        if not os.access(own / "cgroup.procs", os.W_OK) or not os.access(own, os.W_OK):
            return None
        try:
            if (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
                return None
            (own / _DAEMON).mkdir(exist_ok=True)
            (own / _DAEMON / "cgroup.procs").write_text("0")
        except OSError as exc:
            _log.warning("no cgroups for the instances: %s", exc)
            return None
        return cls(own)

    def leaf(self, name: str) -> Leaf | None:
        """Return the cgroup of instance *name*, made if need be; None if it cannot be made."""
        path = self.path / (name + _SUFFIX)
        try:
            path.mkdir(exist_ok=True)
        except OSError as exc:
            _log.warning("%s: no cgroup: %s", name, exc.strerror)
            return None
        return Leaf(path)

    def leaves(self) -> dict[str, Leaf]:
        """Return the cgroups of instances that are there, by name."""
        paths = self.path.glob("*" + _SUFFIX)
        return {path.name.removesuffix(_SUFFIX): Leaf(path) for path in paths}


def _own_path() -> Path | None:
    """Return the folder of our cgroup (version 2), None if there is none or it is the root."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    return None if own == "/" else find(own, mounts)


def find(own: str, mounts: list[str]) -> Path | None:
    """Return where the cgroup *own* is seen, given the lines of mountinfo; None if it is not."""
    for line in mounts:
        left, _, right = line.partition(" - ")
        if right.split(" ")[0] != "cgroup2":
            continue
        root, point = left.split(" ")[3:5]
        prefix = root.rstrip("/")
        if own.startswith(prefix + "/"):
            return Path(point + own.removeprefix(prefix))
    return None

"""Cgroups of version 2. The tests with real ones need root and a cgroup2 mount; no skip."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llamasup.child.cgroup import Cgroup, find
from llamasup.child.process import Launcher
from llamasup.child.spawn import RawExit
from tests.child.conftest import PATIENCE, alive, eventually, sh

HOST = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw"
HYBRID = "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
INSIDE = "32 30 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw"
V1 = "33 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"


@pytest.mark.parametrize(
    ("own", "mounts", "path"),
    [
        (
            "/system.slice/llamasup.service",
            [V1, HOST],
            "/sys/fs/cgroup/system.slice/llamasup.service",
        ),
        ("/a", [V1, HYBRID], "/sys/fs/cgroup/unified/a"),
        ("/docker/abc/x", [INSIDE], "/sys/fs/cgroup/x"),
        ("/docker/abcd", [INSIDE], None),
        ("/a", [V1], None),
        ("/a", [], None),
    ],
)
def test_the_folder_of_a_cgroup(own, mounts, path):
    assert find(own, mounts) == (Path(path) if path else None)


@pytest.fixture
def cgroup():
    """A cgroup made for the test, removed with all below it."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    root = find("/x", mounts)
    assert root is not None, "this test needs a cgroup2 mount"
    path = root.with_name(f"llamasup-test-{os.getpid()}")
    path.mkdir()  # fails loudly where it is not writable
    yield path
    (path / "cgroup.kill").write_text("1")
    for folder in [*path.glob("*"), path]:
        if folder.is_dir():
            _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(1000):
        try:
            folder.rmdir()
        except OSError:
            signal.sigtimedwait([], 0.01)
        else:
            return
    folder.rmdir()


async def test_a_leaf_holds_all_processes_and_none_outruns_its_kill(cgroup, tmp_path):
    launcher = Launcher(str(tmp_path), None, os.environ, Cgroup(cgroup), mirror_fd=None)
    # It leaves the session and closes the lock: only the cgroup knows it.
    script = "setsid sh -c 'exec 5>&-; echo $$; exec sleep 1000' & wait"
    child = launcher.launch("chat", 1, sh(script))
    await eventually(lambda: child.output.tail(1))
    grandchild = int(child.output.tail(1)[0].text)
    leaf = Cgroup(cgroup).leaves()["chat"]
    pids = set(map(int, Path(leaf.procs).read_text().split()))

    assert {child.pid, grandchild} <= pids
    assert leaf.populated()
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        assert await child.wait() == RawExit(None, signal.SIGKILL)
    assert not alive(grandchild)
    assert Cgroup(cgroup).leaves() == {}


async def test_a_leaf_that_cannot_be_made_stops_nobody(tmp_path):
    launcher = Launcher(str(tmp_path), None, os.environ, Cgroup(Path("/proc/no")), mirror_fd=None)

    assert await launcher.launch("chat", 1, sh("exit 3")).wait() == RawExit(3, None)


DETECT = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
from llamasup.child.cgroup import Cgroup
print(Cgroup.detect())
print(Path("/proc/self/cgroup").read_text().splitlines()[-1])
print(Cgroup.detect())
"""


def test_the_daemon_moves_into_a_leaf_of_its_own_cgroup(cgroup):
    done = subprocess.run(
        [sys.executable, "-c", DETECT, str(cgroup)], capture_output=True, text=True, check=True
    )

    found = f"Cgroup(path={cgroup!r})"
    assert done.stdout.splitlines() == [found, f"0::/{cgroup.name}/daemon", found]


def test_a_cgroup_shared_with_others_is_not_taken(cgroup):
    other = subprocess.Popen(["sleep", "1000"])
    (cgroup / "cgroup.procs").write_text(str(other.pid))

    done = subprocess.run(
        [sys.executable, "-c", DETECT, str(cgroup)], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["None", f"0::/{cgroup.name}", "None"]
    other.kill()
    other.wait()

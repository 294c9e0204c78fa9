"""Daemons that were killed, with real processes: what they leave, and what the next one does."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from llamasup.child import lock
from llamasup.child.leftovers import DaemonLock, Leftover, clear_leftovers
from llamasup.child.process import Launcher
from llamasup.child.spawn import RawExit
from llamasup.errors import AlreadyRunningError
from llamasup.paths import daemon_lock_path, lock_path
from tests.child.conftest import PATIENCE, alive, sh

DAEMON = """
import asyncio, os, sys
from llamasup.child.leftovers import DaemonLock
from llamasup.child.process import Launcher
from tests.child.conftest import sh

async def main():
    DaemonLock(sys.argv[1]).acquire()
    launcher = Launcher(sys.argv[1], None, os.environ, mirror_fd=None)
    child = launcher.launch("chat", 7, sh(sys.argv[2]))
    await child.executed()
    while not child.output.tail(1):
        await asyncio.sleep(0.01)
    print(child.pid, child.output.tail(1)[0].text, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.fixture
def daemon(tmp_path):
    """Start a daemon with one child; return it, the child's pid and the word the child printed."""
    started: list[subprocess.Popen] = []

    def start(script: str) -> tuple[subprocess.Popen, int, int]:
        process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, str(tmp_path), script],
            stdout=subprocess.PIPE,
            text=True,
            cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        )
        started.append(process)
        pid, word = process.stdout.readline().split()
        return process, int(pid), int(word)

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


async def gone_within(seconds: float, pid: int) -> None:
    async with asyncio.timeout(seconds):
        while alive(pid):
            await asyncio.sleep(0.01)


async def test_a_killed_daemon_leaves_no_child(daemon):
    process, pid, _ = daemon("echo 0; trap '' TERM; while :; do sleep 1000; done")
    assert alive(pid)

    process.kill()

    await gone_within(5.0, pid)


async def test_a_planted_orphan_is_found_and_killed_by_the_next_daemon(daemon, tmp_path):
    """A grandchild outlives the parent-death signal; its lock gives it away."""
    process, pid, grandchild = daemon("setsid sh -c 'echo $$; exec sleep 1000' & wait")
    process.kill()
    process.wait()
    await gone_within(PATIENCE, pid)
    assert alive(grandchild)
    DaemonLock(str(tmp_path)).acquire()

    left = await clear_leftovers(str(tmp_path), PATIENCE)

    assert left == [Leftover("chat", grandchild, "sleep", None, gone=True)]
    assert not alive(grandchild)
    assert str(left[0]) == (
        f"chat: a process of an earlier llamasup (sleep, pid {grandchild}) was killed"
    )
    again = Launcher(str(tmp_path), None, os.environ, mirror_fd=None)
    assert await again.launch("chat", 1, sh("exit 4")).wait() == RawExit(4, None)


@pytest.fixture
def holder():
    """Start processes that hold a lock file open, locked or not."""
    started: list[subprocess.Popen] = []

    def start(path: str, locked: bool = True) -> subprocess.Popen:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        if locked:
            fcntl.flock(fd, fcntl.LOCK_EX)
        started.append(subprocess.Popen(["sleep", "1000"], pass_fds=[fd]))
        os.close(fd)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_the_recorded_main_process_is_told_with_its_generation(holder, tmp_path):
    path = lock_path(str(tmp_path), "chat")
    process = holder(path)
    fd = os.open(path, os.O_RDWR)
    lock.record(fd, process.pid, 12)
    os.close(fd)

    left = await clear_leftovers(str(tmp_path), PATIENCE)

    assert left == [Leftover("chat", process.pid, "sleep", 12, gone=True)]
    assert process.wait() == -signal.SIGKILL


async def test_a_forged_lock_file_kills_nobody(holder, tmp_path):
    path = lock_path(str(tmp_path), "chat")
    bystander = holder(str(tmp_path / "elsewhere"))
    onlooker = holder(path, locked=False)  # has the file open and no lock
    with open(path, "w") as file:
        facts = {"pid": bystander.pid, "starttime": lock.start_time(bystander.pid)}
        json.dump({**facts, "boot_id": lock.boot_id(), "gen": 1}, file)

    assert await clear_leftovers(str(tmp_path), PATIENCE) == []

    real = holder(path)
    assert [left.pid for left in await clear_leftovers(str(tmp_path), PATIENCE)] == [real.pid]
    assert bystander.poll() is None
    assert onlooker.poll() is None


@pytest.mark.parametrize("content", [b"", b"garbage \xff", b"[]", b'{"pid": 1}', b"9" * 100_000])
async def test_garbage_in_a_lock_file_is_no_matter(holder, tmp_path, content):
    path = lock_path(str(tmp_path), "chat")
    process = holder(path)
    with open(path, "wb") as file:
        file.write(content)

    left = await clear_leftovers(str(tmp_path), PATIENCE)

    assert left == [Leftover("chat", process.pid, "sleep", None, gone=True)]


async def test_who_cannot_be_killed_in_time_is_told_so(tmp_path):
    """The lock is held here, in this very process, which is never killed."""
    path = lock_path(str(tmp_path), "chat")
    process = subprocess.Popen(["sleep", "1000"])
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)

    assert await clear_leftovers(str(tmp_path), 0.2) == []

    assert process.poll() is None
    process.kill()
    process.wait()
    os.close(fd)


async def test_stale_sockets_are_removed_and_others_kept(tmp_path):
    for name in ("chat.3.sock", "admin.sock"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(tmp_path / name))
    (tmp_path / "notes.1.sock").write_text("a file")

    await clear_leftovers(str(tmp_path), PATIENCE)

    assert sorted(os.listdir(tmp_path)) == ["admin.sock", "notes.1.sock"]


def test_the_second_daemon_is_told_the_first_ones_pid(daemon, tmp_path):
    process, _, _ = daemon("echo 0; sleep 1000")
    second = DaemonLock(str(tmp_path))

    with pytest.raises(AlreadyRunningError, match=rf"another llamasup \(pid {process.pid}\)"):
        second.acquire()
    process.kill()
    process.wait()

    second.acquire()
    with open(daemon_lock_path(str(tmp_path))) as file:
        assert file.read() == f"{os.getpid()}\n"
    second.release()


def test_the_lock_of_the_daemon_makes_the_folder(tmp_path):
    first = DaemonLock(str(tmp_path / "run/llamasup"))
    first.acquire()

    with pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"):
        DaemonLock(str(tmp_path / "run/llamasup")).acquire()

    first.release()
    DaemonLock(str(tmp_path / "run/llamasup")).acquire()


async def test_a_record_of_an_earlier_process_with_this_pid_is_not_believed(holder, tmp_path):
    path = lock_path(str(tmp_path), "chat")
    process = holder(path)
    with open(path, "w") as file:
        facts = {"pid": process.pid, "starttime": 1, "boot_id": lock.boot_id(), "gen": 12}
        json.dump(facts, file)

    left = await clear_leftovers(str(tmp_path), PATIENCE)

    assert left == [Leftover("chat", process.pid, "sleep", None, gone=True)]

"""The demo as a user runs it, and its keeper that must clean up whatever happens."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e.harness import wait_for
from tests.fakes.servers import real_server_path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
KEEPER = SCRIPTS / "demo_keeper.py"
TIMEOUT = 60.0

DAEMON = """
import os, signal, sys
print(os.getpid(), flush=True)
with open(sys.argv[1], "w") as fifo:
    fifo.write(str(os.getpid()))
signal.pause()
"""
"""Stands in for the daemon: tells its pid through the fifo, then waits for a signal."""


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="demo-test-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def keeper_command(folder: Path, fifo: Path) -> list[str]:
    return [sys.executable, str(KEEPER), str(folder), sys.executable, "-c", DAEMON, str(fifo)]


def daemon_of(fifo: Path) -> int:
    """Return a pidfd of the stand-in, which is alive."""
    return os.pidfd_open(int(fifo.read_text()))


def has_ended(pidfd: int) -> bool:
    """Wait for the end of a process; False = it lives on."""
    return select.select([pidfd], [], [], TIMEOUT)[0] != []


def test_the_end_of_the_pipe_ends_the_daemon_and_removes_the_folder(folder, fifo):
    keeper = subprocess.Popen(keeper_command(folder, fifo), stdin=subprocess.PIPE)
    daemon = daemon_of(fifo)

    keeper.communicate(timeout=TIMEOUT)

    assert has_ended(daemon)
    assert not folder.exists()
    os.close(daemon)


def test_signals_do_not_end_the_keeper_before_its_work_is_done(folder, fifo):
    keeper = subprocess.Popen(keeper_command(folder, fifo), stdin=subprocess.PIPE)
    daemon = daemon_of(fifo)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        keeper.send_signal(number)
    keeper.communicate(timeout=TIMEOUT)

    assert keeper.returncode == 0
    assert has_ended(daemon)
    assert not folder.exists()
    os.close(daemon)


def test_a_killed_demo_leaves_nothing_behind(folder, fifo):
    """The middle process stands in for the demo; it is killed with no chance to do anything."""
    middle = (
        "import subprocess, sys, signal\n"
        "subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)\n"
        "signal.pause()\n"
    )
    demo = subprocess.Popen(
        [sys.executable, "-c", middle, *keeper_command(folder, fifo)], stdout=subprocess.PIPE
    )
    daemon = daemon_of(fifo)

    demo.kill()
    demo.wait()

    assert has_ended(daemon)
    assert demo.stdout is not None
    demo.stdout.read()  # ends when the keeper, which has inherited it, has ended
    assert not folder.exists()
    demo.stdout.close()
    os.close(daemon)


def test_the_end_of_the_daemon_is_noted_and_its_log_kept_for_the_demo(folder, fifo):
    keeper = subprocess.Popen(keeper_command(folder, fifo), stdin=subprocess.PIPE)
    pid = int(fifo.read_text())
    pidfd = os.pidfd_open(pid)

    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    wait_for((folder / "ended").exists, "the keeper notes the end")

    assert (folder / "ended").read_text() == str(-signal.SIGTERM)
    assert (folder / "daemon.log").read_text() == f"{pid}\n"
    keeper.communicate(timeout=TIMEOUT)
    assert not folder.exists()
    os.close(pidfd)


# --- the whole demo ---


def demo(folder: Path, *arguments: str, server: str | None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "LLAMASUP_LLAMA_SERVER"}
    env |= {"TMPDIR": str(folder), "PATH": "/usr/bin:/bin"}
    if server is None:
        env["XDG_CACHE_HOME"] = str(folder / "cache")  # no server that was built before
    else:
        env["LLAMASUP_LLAMA_SERVER"] = server
    command = [sys.executable, str(SCRIPTS / "demo.py"), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT * 3)


@pytest.mark.e2e
def test_the_demo_checks_itself_with_the_fake_server_and_says_so(folder):
    done = demo(folder, "--check", server=None)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAKE" in done.stdout
    assert "scripts/demo --real" in done.stdout
    assert "/v1/chat/completions" in done.stdout
    assert "numbers: " in done.stdout
    assert list(folder.glob("llamasup-demo-*")) == []


@pytest.mark.e2e
@pytest.mark.real
def test_the_demo_checks_itself_with_the_real_server(folder):
    done = demo(folder, "--check", server=real_server_path())

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAKE" not in done.stdout
    assert "numbers: " in done.stdout
    assert list(folder.glob("llamasup-demo-*")) == []


@pytest.mark.e2e
def test_the_demo_needs_a_real_server_for_a_model(folder):
    model = folder / "model.gguf"
    model.touch()

    done = demo(folder, "--check", str(model), server=None)

    assert done.returncode == 1
    assert "needs a real llama-server" in done.stderr


@pytest.mark.e2e
def test_the_demo_names_a_model_that_is_not_there(folder):
    done = demo(folder, str(folder / "no.gguf"), server=None)

    assert (done.returncode, done.stderr) == (
        1,
        f"demo: cannot serve {folder / 'no.gguf'}: no such file\n",
    )

"""Must be seen 4: no orphan outlives a killed daemon, and one that is there is dealt with."""

import fcntl
import os
import subprocess
import sys

import pytest

from llamasup import paths
from tests.e2e.harness import alive, running, wait_for
from tests.e2e.test_ends import daemon_with, fake

pytestmark = pytest.mark.e2e


def test_no_child_outlives_a_daemon_that_is_killed() -> None:
    daemon = daemon_with(a=fake(), b=fake(), loads=fake("load=600"))
    with running(daemon):
        daemon.wait_ready("a", "b")
        daemon.wait_phase("loads", "loading")
        pids = [row["pid"] for row in daemon.rows().values()]
        assert all(alive(pid) for pid in pids)

        daemon.kill()

        wait_for(lambda: not any(alive(pid) for pid in pids), "every child is gone", limit=1.0)


def test_a_planted_orphan_is_named_killed_and_replaced() -> None:
    """A process that holds the instance's lock, as one would that escaped its killed daemon."""
    daemon = daemon_with(chat=fake())
    daemon.runtime_dir.mkdir(parents=True)
    lock = os.open(paths.lock_path(str(daemon.runtime_dir), "chat"), os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    orphan = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock]
    )
    os.close(lock)
    try:
        with running(daemon):
            daemon.wait_ready()

            orphan.wait(10)
            assert f"{orphan.pid}" in daemon.log_text()
            messages = [event["message"] for event in daemon.admin("GET", "/v1/events")["events"]]
            assert any(str(orphan.pid) in message for message in messages)
            assert daemon.chat("chat")[0] == 200
    finally:
        orphan.kill()
        orphan.wait()
        assert orphan.stdin is not None
        orphan.stdin.close()


def test_a_second_daemon_names_the_first_and_touches_nothing() -> None:
    daemon = daemon_with(chat=fake())
    with running(daemon):
        daemon.wait_ready()

        second = subprocess.run(daemon.command(), capture_output=True, text=True, timeout=60)

        assert second.returncode == 1
        assert str(daemon.pid) in second.stderr
        assert daemon.chat("chat")[0] == 200
        assert daemon.row("chat")["generation"] == 1


def test_a_daemon_starts_over_the_remains_of_a_killed_one() -> None:
    daemon = daemon_with(chat=fake())
    with running(daemon):
        daemon.wait_ready()
        daemon.kill()

        daemon.start()

        daemon.wait_ready()
        assert daemon.chat("chat")[0] == 200


def test_a_second_daemon_without_the_lock_file_kills_no_child_of_the_first() -> None:
    """Somebody has tidied the runtime folder up: the ports tell who owns the children."""
    daemon = daemon_with(chat=fake())
    with running(daemon):
        daemon.wait_ready()
        os.unlink(paths.daemon_lock_path(str(daemon.runtime_dir)))

        second = subprocess.run(daemon.command(), capture_output=True, text=True, timeout=60)

        assert second.returncode == 1
        assert "cannot listen on" in second.stderr
        assert daemon.row("chat")["generation"] == 1
        assert daemon.chat("chat")[0] == 200

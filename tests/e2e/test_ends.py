"""Must be seen 2: every end in every phase, deaf children, escaped ones, floods of output."""

import signal
import time
from typing import Any

import pytest

from tests.e2e.harness import Daemon, alive, processes_with, running, wait_for
from tests.fakes.servers import fake_server_path

pytestmark = pytest.mark.e2e

RESTART = {"delay": "50ms", "max_delay": "200ms", "stable": "0s", "burst": 10_000}


def fake(script: str = "", **table: Any) -> dict[str, Any]:
    env = {"LLAMASUP_FAKE": script} if script else {}
    return {"model": "/fake.gguf", "env": env, "args": {"ctx-size": 2048}, **table}


def daemon_with(**instances: dict[str, Any]) -> Daemon:
    return Daemon(fake_server_path(), instances, defaults={"restart": RESTART})


@pytest.mark.parametrize("phase", ["start", "loading", "warmup", "ready", "request"])
@pytest.mark.parametrize(
    ("word", "code", "signum"),
    [("exit_at", 0, None), ("exit_at", 1, None), ("signal_at", None, signal.SIGSEGV)],
)
def test_an_end_in_any_phase_is_seen_explained_and_mended(
    phase: str, word: str, code: int | None, signum: int | None
) -> None:
    what = code if signum is None else signal.Signals(signum).name
    daemon = daemon_with(bad=fake(f"{word}={phase}:{what}"), good=fake())
    with running(daemon):
        daemon.wait_ready("good")
        if phase == "request":
            daemon.wait_ready("bad")
            daemon.chat("bad")

        row = wait_for(
            lambda: (
                (row := daemon.row("bad"))["last_exit"] and row["restarts"] >= 2 and row
                if phase != "request"
                else (row := daemon.row("bad"))["last_exit"] and row
            ),
            "the end is recorded and a new generation launched",
        )

        assert (row["last_exit"]["code"], row["last_exit"]["signal"]) == (code, signum)
        assert row["generation"] >= 2
        assert daemon.chat("good")[0] == 200
        assert daemon.row("good")["generation"] == 1


def test_a_child_that_ignores_sigterm_is_killed_and_delays_nobody() -> None:
    stops = {"stop_timeout": "1s", "stop_again_timeout": "1s"}
    daemon = daemon_with(deaf=fake("ignore_term", **stops), good=fake())
    with running(daemon):
        daemon.wait_ready()
        pid = daemon.row("deaf")["pid"]
        operation = daemon.admin("POST", "/v1/instances/deaf/stop", {})

        assert daemon.order("restart", "good")["outcome"] == "done"
        ended = daemon.admin("GET", f"/v1/operations/{operation['id']}?wait=60")

        assert ended["outcome"] == "done"
        assert not alive(pid)
        assert daemon.row("deaf")["last_exit"]["signal"] == signal.SIGKILL


def test_a_grandchild_in_its_own_session_does_not_outlive_its_instance() -> None:
    daemon = daemon_with(forks=fake("fork_setsid"))
    with running(daemon):
        daemon.wait_ready()
        socket_name = f"{daemon.runtime_dir}/forks.1.sock"
        family = processes_with(socket_name)
        assert len(family) == 2

        assert daemon.order("stop", "forks")["outcome"] == "done"

        assert processes_with(socket_name) == []


def test_floods_and_endless_lines_never_block_the_child_nor_fill_the_memory() -> None:
    daemon = daemon_with(flood=fake("flood=50000"), long=fake("longline=200000"), good=fake())
    with running(daemon):
        daemon.wait_ready()
        daemon.rss_mb()
        begin_rss = daemon.rss_mb()
        begin = time.monotonic()
        slowest = 0.0
        while time.monotonic() - begin < 5:
            asked = time.monotonic()
            assert daemon.chat("flood")[0] == 200
            assert daemon.chat("good")[0] == 200
            slowest = max(slowest, time.monotonic() - asked)

        assert daemon.rss_mb() - begin_rss < 30
        assert slowest < 5
        longest = max(len(line["text"]) for line in daemon.logs("long"))
        assert 1_000 < longest <= 17_000

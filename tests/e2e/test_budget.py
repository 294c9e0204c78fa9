"""Must be seen 6, the supervisor: memory and CPU at rest, and the speed of a relaunch."""

import os
import random
import signal
import statistics
import time
from pathlib import Path

import pytest

from tests.e2e.harness import Daemon, running, wait_for
from tests.e2e.test_ends import daemon_with, fake

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

INSTANCES = ("a", "b", "c", "d")
KILLS = 40


def family(daemon: Daemon) -> set[int]:
    text = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
    return {int(pid) for pid in text.split()}


def executed(pid: int) -> bool:
    """Tell whether the launcher's shim has become the server."""
    try:
        return b"shim.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def respawn_seconds(daemon: Daemon, name: str) -> float:
    """Kill *name* and return the time until its successor was executed."""
    before = family(daemon)
    victim = daemon.row(name)["pid"]
    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    while time.monotonic() - begin < 20:
        fresh = [pid for pid in family(daemon) - before if executed(pid)]
        if fresh:
            return time.monotonic() - begin
    raise AssertionError("no successor within 20 s")


def test_four_idle_instances_cost_next_to_nothing() -> None:
    daemon = daemon_with(**{name: fake() for name in INSTANCES})
    with running(daemon):
        daemon.wait_ready()
        begin, cpu = time.monotonic(), daemon.cpu_seconds()
        # A measurement over real time, not a wait for something to happen.
        time.sleep(20)
        share = (daemon.cpu_seconds() - cpu) / (time.monotonic() - begin)

        print(f"\nidle: {daemon.rss_mb():.1f} MB, {100 * share:.2f} % CPU")
        assert daemon.rss_mb() < 60
        assert share < 0.003


def test_a_successor_is_launched_within_milliseconds() -> None:
    daemon = daemon_with(**{name: fake() for name in INSTANCES})
    with running(daemon):
        daemon.wait_ready()
        times = []
        for _ in range(KILLS):
            name = random.choice(INSTANCES)
            generation = daemon.row(name)["generation"]
            times.append(respawn_seconds(daemon, name))
            wait_for(
                lambda n=name, g=generation: (
                    (row := daemon.row(n))["phase"] == "ready" and row["generation"] == g + 1
                ),
                f"{name} is back",
            )

        median = statistics.median(times)
        print(f"\nrespawn: p50 {1e3 * median:.1f} ms, max {1e3 * max(times):.1f} ms")
        assert median < 0.050

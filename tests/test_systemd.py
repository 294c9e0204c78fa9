"""What the service manager hears, through a real notify socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamasup.clock import Now
from llamasup.systemd import Notifier


class Manager:
    """The receiving end, as systemd has it."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        lines = []
        while True:
            try:
                lines.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return lines


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield manager
    manager.socket.close()


def test_ready_status_and_stopping_are_sent(manager: Manager) -> None:
    notifier = Notifier(os.environ, pid=1)

    notifier.ready()
    notifier.status("3/4 ready")
    notifier.status("3/4 ready")
    notifier.stopping()
    notifier.close()

    assert manager.heard() == ["READY=1", "STATUS=3/4 ready", "STOPPING=1"]


def test_the_watchdog_is_fed_four_times_a_period(manager: Manager) -> None:
    notifier = Notifier({**os.environ, "WATCHDOG_USEC": "8000000", "WATCHDOG_PID": "7"}, pid=7)

    for second in range(10, 18):
        notifier.feed_watchdog(Now(mono=float(second), wall=0.0))
    notifier.close()

    assert manager.heard() == ["WATCHDOG=1"] * 4


def test_another_process_watchdog_is_left_alone(manager: Manager) -> None:
    notifier = Notifier({**os.environ, "WATCHDOG_USEC": "8000000", "WATCHDOG_PID": "8"}, pid=7)

    notifier.feed_watchdog(Now(mono=100.0, wall=0.0))
    notifier.close()

    assert manager.heard() == []


def test_a_long_stop_asks_for_more_time(manager: Manager) -> None:
    notifier = Notifier(os.environ, pid=1)

    for second in (100.0, 101.0, 115.0):
        notifier.extend_stop(Now(mono=second, wall=0.0))
    notifier.close()

    assert manager.heard() == ["EXTEND_TIMEOUT_USEC=30000000"] * 2


def test_a_full_queue_never_blocks(manager: Manager) -> None:
    notifier = Notifier(os.environ, pid=1)

    for number in range(10_000):  # far above what the kernel queues
        notifier.status(f"{number}")
    notifier.close()

    assert 0 < len(manager.heard()) < 10_000


def test_without_a_manager_everything_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notifier = Notifier(os.environ, pid=1)

    notifier.ready()
    notifier.status("x")
    notifier.close()

    assert notifier.watchdog_period is None

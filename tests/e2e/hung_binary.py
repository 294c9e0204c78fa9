"""The scenario of test_hung_binary, run as a program in a mount namespace of its own."""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.harness import Daemon, alive, running, wait_for
from tests.fakes.hangfs import hanging_fs
from tests.fakes.servers import fake_server_path

POLICY: dict[str, Any] = {
    "restart": {"delay": "100ms", "max_delay": "200ms", "stable": "0s", "burst": 1000},
    "load_stall_timeout": "2s",
    "stop_timeout": "1s",
    "stop_again_timeout": "1s",
    "kill_timeout": "1s",
}
LOOKS = 100


def slowest(action: Callable[[], object]) -> float:
    """Return the longest time in seconds that *action* took, of many."""
    times = []
    for _ in range(LOOKS):
        begin = time.monotonic()
        action()
        times.append(time.monotonic() - begin)
    return max(times)


def waits_in_fuse(pid: int) -> bool:
    """Tell whether the kernel keeps *pid* waiting for the file system's answer."""
    return "request_wait" in Path(f"/proc/{pid}/wchan").read_text()


def scene(folder: Path) -> None:
    disk = folder / "disk"
    disk.mkdir()
    binary = shutil.copy(fake_server_path(), disk / "llama-server")
    mount = folder / "mnt"
    table = {"model": "/fake.gguf", "args": {"ctx-size": 2048}}
    hung = {**table, "binary": str(mount / Path(binary).name)}
    daemon = Daemon(fake_server_path(), {"hung": hung, "good": table}, defaults=POLICY)
    with hanging_fs(disk, mount) as gate, running(daemon):
        daemon.wait_ready()
        calls = {
            "api": lambda: daemon.status(),
            "front": lambda: daemon.chat("good", max_tokens=1),
        }
        usual = {name: slowest(call) for name, call in calls.items()}

        gate.close()
        daemon.admin("POST", "/v1/instances/hung/restart", {})
        daemon.wait_phase("hung", "starting")
        answers: list[tuple[int, Any]] = []
        held = threading.Thread(target=lambda: answers.append(daemon.chat("hung", timeout=120)))
        held.start()
        hanging = {name: slowest(call) for name, call in calls.items()}
        print(f"slowest of {LOOKS}, seconds: usual {usual}, with a hung binary {hanging}")
        for name, took in hanging.items():
            assert took < max(0.1, 3 * usual[name]), (name, took, usual)

        daemon.wait_phase("hung", "stuck")  # killed, and still in the kernel's hands
        assert daemon.order("restart", "good")["outcome"] == "done"

        gate.open()
        daemon.wait_ready()
        held.join(60)
        assert [status for status, _ in answers] in ([200], [503]), answers
        assert daemon.chat("hung")[0] == 200

        gate.close()
        daemon.admin("POST", "/v1/instances/hung/restart", {})
        daemon.wait_phase("hung", "starting")
        rows = daemon.rows()
        wait_for(lambda: waits_in_fuse(rows["hung"]["pid"]), "the exec hangs")
        begin = time.monotonic()
        assert daemon.stop() == 0
        took = time.monotonic() - begin
        print(f"stopped within {took:.1f} s over a child that cannot be killed")
        assert took < 10  # both stop timeouts and the kill timeout, 3 s, on a slow machine
        assert not alive(rows["good"]["pid"])
    wait_for(lambda: not mount.exists() or not list(mount.iterdir()), "the mount is gone")


def boot(folder: Path) -> None:
    """Start the daemon when the binary hangs from the beginning."""
    disk = folder / "disk"
    disk.mkdir()
    shutil.copy(fake_server_path(), disk / "llama-server")
    mount = folder / "mnt"
    table = {"model": "/fake.gguf", "args": {"ctx-size": 2048}}
    hung = {**table, "binary": str(mount / "llama-server")}
    daemon = Daemon(fake_server_path(), {"hung": hung, "good": table}, defaults=POLICY)
    with hanging_fs(disk, mount) as gate:
        gate.close()
        with running(daemon):
            daemon.wait_ready("good")
            assert daemon.chat("good")[0] == 200
            gate.open()
            daemon.wait_ready()


def main() -> None:
    for part in (scene, boot):
        with tempfile.TemporaryDirectory(prefix="ls-hung-", dir="/tmp") as folder:
            part(Path(folder))
    print("all held")


if __name__ == "__main__":
    main()

"""The fake as a process, with its control socket."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.conftest import Server
from tests.fakes.servers import FakeControl, fake_server_path


class Fake(Server):
    """A fake and the test's hands on it."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], socket: str) -> None:
        super().__init__(folder, process, socket)
        self.control = FakeControl(folder / "c.sock")


@pytest.fixture
def fake(tmp_path):
    """Start fakes with the given words; all are killed at the end."""
    running: list[Fake] = []

    def start(faults: str = "", *args: str, **env: str) -> Fake:
        folder = tmp_path / f"fake{len(running)}"
        folder.mkdir()
        socket = str(folder / "s.sock")
        command = [fake_server_path(), "--model", "/fake/m.gguf", "--host", socket, *args]
        env = {"LLAMASUP_FAKE_CONTROL": str(folder / "c.sock"), "LLAMASUP_FAKE": faults} | env
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                command, env=os.environ | env, stderr=stderr, stdin=subprocess.PIPE
            )
        running.append(Fake(folder, process, socket))
        return running[-1]

    yield start
    for each in running:
        each.process.kill()
        each.process.wait()
        each.process.stdin.close()

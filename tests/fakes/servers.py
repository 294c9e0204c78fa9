"""The llama-servers that tests run: the real one, the fake one, and tiny models for both."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from llamasup.fake.gguf_model import write_chat_model, write_rerank_model

ROOT = Path(__file__).parents[2]
DEADLINE = 30.0  # seconds; far more than anything here takes


class NoServerError(Exception):
    """There is no real llama-server: the test fails, it is not skipped."""


@dataclass(frozen=True, slots=True)
class TinyModels:
    """Models that the real server loads in milliseconds; *chat* is for embeddings too."""

    chat: str
    rerank: str


def real_server_path() -> str:
    """Return the real llama-server; raises with the way to one if there is none."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build-llama-server"), "--find"],
        capture_output=True,
        text=True,
        check=False,
    )
    path = found.stdout.strip()
    if found.returncode != 0 or not os.access(path, os.X_OK):
        raise NoServerError(
            f"no real llama-server ({path or 'none found'}): run scripts/build-llama-server, "
            "or set LLAMASUP_LLAMA_SERVER"
        )
    return path


def fake_server_path() -> str:
    """Return the installed command of the fake."""
    beside = Path(sys.executable).with_name("llamasup-fake-server")
    path = str(beside) if beside.exists() else shutil.which("llamasup-fake-server")
    if path is None:
        raise NoServerError("llamasup is not installed: pip install -e .")
    return path


def tiny_models(folder: Path) -> TinyModels:
    """Return the tiny models, written to *folder* once, also if several processes ask at once."""
    folder.mkdir(parents=True, exist_ok=True)
    chat, rerank = folder / "tiny.gguf", folder / "tiny-rerank.gguf"
    with (folder / "tiny.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path, write in ((chat, write_chat_model), (rerank, write_rerank_model)):
            if not path.exists():
                part = path.with_suffix(".part")
                write(part)
                part.rename(path)
    return TinyModels(str(chat), str(rerank))


class FakeControl:
    """The test's end of ``LLAMASUP_FAKE_CONTROL``; the commands are told in fake/control.py."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)

    def ask(self, **command: object) -> dict[str, object]:
        """Send *command*, wait for the fake to be there at all, and return its state."""
        with self._connected() as connection:
            connection.sendall(json.dumps(command).encode() + b"\n")
            answer = connection.makefile().readline()
        if not answer:
            raise ConnectionError(f"the fake ended at {command}")
        state: dict[str, object] = json.loads(answer)
        return state

    def wait(self, **state: object) -> dict[str, object]:
        """Wait until the fake's state contains *state*."""
        return self.ask(wait=state)

    def end(self, **command: object) -> None:
        """Send a *command* that the fake does not survive (exit, signal)."""
        with self._connected() as connection:
            connection.sendall(json.dumps(command).encode() + b"\n")
            try:
                connection.recv(1)
            except ConnectionError:
                return

    def _connected(self) -> socket.socket:
        give_up = time.monotonic() + DEADLINE
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(DEADLINE)
            try:
                connection.connect(self._path)
            except OSError:
                connection.close()
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.005)
            else:
                return connection

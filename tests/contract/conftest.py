"""Starts a llama-server, fake or real, and talks to it over its unix socket."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.servers import (
    DEADLINE,
    TinyModels,
    fake_server_path,
    real_server_path,
    tiny_models,
)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Server:
    """One process and its socket."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], socket_path: str) -> None:
        self.process = process
        self.socket_path = socket_path
        self._folder = folder

    @property
    def log(self) -> str:
        return (self._folder / "stderr").read_text(errors="replace")

    def ask(
        self,
        path: str,
        body: object = None,
        *,
        method: str | None = None,
        timeout: float = DEADLINE,
        **headers: str,
    ) -> Answer:
        connection = _UnixConnection(self.socket_path, timeout)
        payload = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        verb = method or ("GET" if body is None else "POST")
        with contextlib.closing(connection):
            connection.request(verb, path, payload, headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def open(self, path: str, body: object) -> socket.socket:
        """Send a request and return the raw connection, nothing read yet."""
        payload = json.dumps(body).encode()
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(DEADLINE)
        try:
            connection.connect(self.socket_path)
        except OSError:
            connection.close()
            raise
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n"
        connection.sendall(head.encode() + payload)
        return connection

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < give_up, f"{what} never happened; log:\n{self.log[-3000:]}"
            time.sleep(0.005)

    def wait_until(self, status: int) -> None:
        """Wait until /health answers *status*."""
        self.wait_for(lambda: self._status() == status, f"/health {status}")

    def is_closed_within(self, seconds: float) -> bool:
        """Return whether the listener goes away within so many seconds."""
        give_up = time.monotonic() + seconds
        while self._status() is not None:
            if time.monotonic() > give_up:
                return False
            time.sleep(0.005)
        return True

    def wait_until_taken(self, number: signal.Signals) -> None:
        """Wait until the signal is not pending any more: a second one would be merged with it."""
        status = Path(f"/proc/{self.process.pid}/status")

        def pending() -> bool:
            lines = [line.split() for line in status.read_text().splitlines()]
            masks = [int(line[1], 16) for line in lines if line[0] in ("SigPnd:", "ShdPnd:")]
            return any(mask >> (number - 1) & 1 for mask in masks)

        self.wait_for(lambda: not pending(), f"the delivery of {number.name}")

    def _status(self) -> int | None:
        """Return what /health answers: None if nobody listens, 0 if the answer does not come.

        A connection that is made while the listener is being closed may never be answered.
        """
        try:
            return self.ask("/health", timeout=2.0).status
        except TimeoutError:
            return 0
        except (OSError, http.client.HTTPException):
            return None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(DEADLINE)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real)])
def binary(request) -> str:
    return real_server_path() if request.param == "real" else fake_server_path()


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> TinyModels:
    return tiny_models(tmp_path_factory.getbasetemp() / "models")


@pytest.fixture
def run(binary, tmp_path):
    """Run the binary to its end with some arguments; returns the completed process."""

    def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, *args],
            env=_environment(tmp_path) | env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


@pytest.fixture
def launch(binary, tmp_path, models) -> Iterator[Callable[..., Server]]:
    """Start the binary; *ready* waits for /health."""
    servers: list[Server] = []

    def launch(*args: str, model: str = models.chat, ready: bool = True, **env: str) -> Server:
        folder = tmp_path / f"server{len(servers)}"
        folder.mkdir()
        path = str(folder / "s.sock")
        command = [binary, "--model", model, "--host", path, "--threads", "1", "--cache-ram", "0"]
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [*command, *args], env=_environment(tmp_path) | env, cwd=folder, stderr=stderr,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        server = Server(folder, process, path)
        servers.append(server)
        if ready:
            server.wait_until(200)
        return server

    yield launch
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def _environment(folder: Path) -> dict[str, str]:
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("LLAMA_", "LLAMASUP_"))
    }
    return clean | {"XDG_CONFIG_HOME": str(folder), "GGML_NO_BACKTRACE": "1"}

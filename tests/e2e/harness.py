"""A daemon as a process, with its configuration, its ports, and a way to ask and to hurt it."""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 60.0
"""Seconds that a test waits for anything before it fails; far above what a busy machine needs."""


def wait_for(true: Callable[[], Any], what: str, limit: float = LIMIT, every: float = 0.02) -> Any:
    """Return the first truthy answer of *true*; fail with *what* after *limit* seconds."""
    end = time.monotonic() + limit
    while True:
        answer = true()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {limit:.0f} s: {what}"
        time.sleep(every)


def free_ports(number: int) -> list[int]:
    """Return ports that are free now and that the kernel gives to no outgoing connection."""
    found: list[int] = []
    while len(found) < number:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float = LIMIT) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def toml(table: Mapping[str, Any], path: str = "") -> str:
    """Write nested dicts as TOML tables; lists and inline values as JSON, which TOML reads."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"[{path}]"] if path else []
    lines += [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    text = "\n".join(lines) + "\n"
    for key, value in table.items():
        if isinstance(value, dict):
            text += toml(value, f"{path}.{key}" if path else key)
    return text


@dataclass
class Daemon:
    """One daemon over a private folder. *instances* are tables of the file, less `listen`."""

    binary: str
    instances: dict[str, dict[str, Any]]
    env: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ls-", dir="/tmp")))
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        ports = free_ports(len(self.instances) + 1)
        self.ports = dict(zip(self.instances, ports, strict=False))
        self.admin_port = ports[-1]
        self.config = self.folder / "llamasup.toml"
        self.log = self.folder / "daemon.log"
        self.write_config()

    @property
    def runtime_dir(self) -> Path:
        return self.folder / "run"

    @property
    def admin_socket(self) -> str:
        return str(self.runtime_dir / "admin.sock")

    def write_config(self) -> None:
        instances = {
            name: {"listen": f"127.0.0.1:{self.ports[name]}", **table}
            for name, table in self.instances.items()
        }
        document = {
            "daemon": {
                "runtime_dir": str(self.runtime_dir),
                "state_dir": str(self.folder / "state"),
                "log_dir": str(self.folder / "logs"),
            },
            "admin": {"listen": f"127.0.0.1:{self.admin_port}"},
            "defaults": {"binary": self.binary, "env": self.env, **self.defaults},
            "instances": instances,
        }
        self.config.write_text(toml(document))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "llamasup", "--config", str(self.config)]

    def start(self, env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        wait_for(self.answers, "the admin API answers")

    def answers(self) -> bool:
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"the daemon ended with {code}:\n{self.log_text()}"
        with contextlib.suppress(OSError, http.client.HTTPException):
            return bool(self.status()["daemon"])
        return False

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self, limit: float = LIMIT) -> int:
        """Stop it as systemd does; return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(LIMIT)

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the admin API ---

    def admin(self, method: str, path: str, body: object = None, timeout: float = LIMIT) -> Any:
        connection = UnixConnection(self.admin_socket, timeout)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def logs(self, name: str, lines: int = 500) -> list[dict[str, Any]]:
        connection = UnixConnection(self.admin_socket)
        try:
            path = f"/v1/instances/{name}/logs?lines={lines}"
            connection.request("GET", path, headers={"Accept": "application/x-ndjson"})
            body = connection.getresponse().read()
            return [json.loads(line) for line in body.splitlines() if line]
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        return dict(self.admin("GET", "/v1/status"))

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.status()["instances"]}

    def row(self, name: str) -> dict[str, Any]:
        return self.rows()[name]

    def phase(self, name: str) -> str:
        return str(self.row(name)["phase"])

    def wait_ready(self, *names: str, limit: float = LIMIT) -> None:
        wanted = names or tuple(self.instances)

        def ready() -> bool:
            rows = self.rows()
            return all(rows[name]["phase"] == "ready" for name in wanted)

        try:
            wait_for(ready, f"ready: {', '.join(wanted)}", limit)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.rows()}\n{self.log_text()[-4000:]}") from None

    def wait_phase(self, name: str, *phases: str, limit: float = LIMIT) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            row = self.row(name)
            return row if row["phase"] in phases else None

        return dict(wait_for(reached, f"{name} is {' or '.join(phases)}", limit))

    def order(self, verb: str, name: str, *, now: bool = False) -> dict[str, Any]:
        """Give a command and return the operation as it ended."""
        operation = self.admin("POST", f"/v1/instances/{name}/{verb}", {"now": now})
        return dict(self.admin("GET", f"/v1/operations/{operation['id']}?wait=60"))

    # --- the front door ---

    def post(self, name: str, path: str, body: object, timeout: float = LIMIT) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=timeout)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def chat(
        self, name: str, text: str = "hello", timeout: float = LIMIT, **more: Any
    ) -> tuple[int, Any]:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}
        return self.post(name, "/v1/chat/completions", body, timeout)

    # --- the kernel's view ---

    def fds(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def cpu_seconds(self) -> float:
        return time.clock_gettime(((~self.pid) << 3) | 2)


def alive(pid: int) -> bool:
    """Tell whether *pid* is a process that is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def processes_with(text: str) -> list[int]:
    """Return the living processes that have *text* in their command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid() and alive(int(entry)):
            with contextlib.suppress(OSError):
                if text.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
    return found


@contextlib.contextmanager
def running(daemon: Daemon, **how: Any) -> Iterator[Daemon]:
    """Start *daemon* for as long as the context lasts."""
    try:
        daemon.start(**how)
        yield daemon
    finally:
        daemon.clean_up()

"""A fake llama-server under the prober, and a list of what the prober posts."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llamasup.config.spec import Kind, Spec
from llamasup.core.model import News
from llamasup.probe.health import Prober, Timing
from tests.fakes.servers import DEADLINE, FakeControl, fake_server_path

GEN = 7
FAST = Timing(
    progress_period=0.01, retry_period=0.01, health_period=0.01, failing_period=0.01, timeout=5.0
)


def spec(kind: Kind = Kind.CHAT, **changes: object) -> Spec:
    values = {
        "name": "chat",
        "argv": ("llama-server",),
        "env": (),
        "kind": kind,
        "model": "/fake/m.gguf",
        "aliases": ("tiny",),
        "parallel": 2,
        "slot_context": 1024,
    }
    return Spec(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Posted:
    """The news so far; `until` waits for one."""

    news: list[News] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def post(self, news: News) -> None:
        self.news.append(news)
        self.changed.set()

    async def until(self, wanted: News | type) -> None:
        async with asyncio.timeout(DEADLINE):
            while not any(each == wanted or type(each) is wanted for each in self.news):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def probing(
    spec: Spec, socket: str, *, ours: Callable[[int], bool] = lambda _pid: True,
    progress: Callable[[], tuple[int, ...]] = lambda: (), timing: Timing = FAST,
) -> AsyncIterator[Posted]:  # fmt: skip
    """Run a prober in the background."""
    posted = Posted()
    prober = Prober(
        spec, GEN, socket, peer_is_ours=ours, progress=progress, post=posted.post, timing=timing
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(prober.run())
        yield posted
        task.cancel()


class Fake:
    """A fake llama-server and the test's hands on it."""

    def __init__(self, process: subprocess.Popen[bytes], socket: str, control: FakeControl) -> None:
        self.process = process
        self.socket = socket
        self._control = control

    async def ask(self, **command: object) -> dict[str, object]:
        return await asyncio.to_thread(lambda: self._control.ask(**command))

    async def wait(self, **state: object) -> dict[str, object]:
        return await self.ask(wait=state)


@pytest.fixture
def fake(tmp_path: Path):
    """Start fakes; all are killed at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def start(faults: str = "", *args: str) -> Fake:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        socket, control = str(folder / "s.sock"), str(folder / "c.sock")
        command = [fake_server_path(), "--model", "/fake/m.gguf", "--host", socket]
        command += ["--alias", "tiny", "--parallel", "2", "--ctx-size", "2048", "--no-kv-unified"]
        env = os.environ | {"LLAMASUP_FAKE": faults, "LLAMASUP_FAKE_CONTROL": control}
        process = subprocess.Popen([*command, *args], env=env, stderr=subprocess.DEVNULL)
        running.append(process)
        return Fake(process, socket, FakeControl(control))

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
async def raw(tmp_path: Path):
    """Serve a unix socket with a coroutine for each connection; returns the path."""
    servers: list[asyncio.Server] = []

    async def serve(
        talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> str:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            except ConnectionError:
                pass
            finally:
                writer.close()

        path = str(tmp_path / f"raw{len(servers)}.sock")
        servers.append(await asyncio.start_unix_server(one, path))
        return path

    yield serve
    for server in servers:
        server.close()

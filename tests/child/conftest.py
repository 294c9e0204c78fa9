import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from llamasup.child.process import Child, Launcher
from llamasup.config.spec import Kind, Spec

PYTHON = sys.executable
PATIENCE = 30.0
"""Seconds until a test gives up on something that normally takes milliseconds."""


_TICK = 0.002


def sh(script: str, **fields) -> Spec:
    return spec(("/bin/sh", "-c", script), **fields)


def py(script: str, **fields) -> Spec:
    return spec((PYTHON, "-c", script), **fields)


def spec(argv: tuple[str, ...], **fields) -> Spec:
    fields = {"env": (), **fields}
    return Spec("chat", argv, kind=Kind.CHAT, model="m", aliases=(), parallel=1, **fields)


async def eventually(claim: Callable[[], object], what: str = "") -> None:
    """Wait until *claim* is true."""
    async with asyncio.timeout(PATIENCE):
        while not claim():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether *pid* is there and not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


class Lag:
    """How long the loop was kept from other work: *wall* and *cpu* seconds of its longest turn."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.cpu = 0.0

    async def _measure(self) -> None:
        while True:
            wall, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TICK)
            self.wall = max(self.wall, time.monotonic() - wall - _TICK)
            self.cpu = max(self.cpu, time.thread_time() - cpu)


@asynccontextmanager
async def lag_of_the_loop() -> AsyncIterator[Lag]:
    lag = Lag()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(lag._measure())
        yield lag
        task.cancel()


@pytest.fixture
def launcher(tmp_path) -> Launcher:
    return Launcher(str(tmp_path), None, os.environ, mirror_fd=None)


@pytest.fixture
async def launch(launcher):
    """Launch generations; whatever of them still lives at the end of the test is killed."""
    children: list[Child] = []

    def start(spec: Spec, name: str = "chat") -> Child:
        children.append(launcher.launch(name, len(children) + 1, spec))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        async with asyncio.timeout(PATIENCE):
            await child.wait()


def pytest_asyncio_loop_factories(config, item):
    """Run the tests of what touches descriptors on both loops: the daemon's and ``--check``'s."""
    factories = {"uvloop": uvloop.new_event_loop}
    if item.path.stem in {"test_process", "test_tool", "test_spawn"}:
        factories["asyncio"] = asyncio.new_event_loop
    return factories

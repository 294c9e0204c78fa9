import asyncio
import os
import resource
import signal

import pytest

from llamasup.child.spawn import Order, Process, RawExit, own_pids, pipe
from llamasup.errors import SpawnError
from tests.child.conftest import PATIENCE, eventually, open_fds


class Started:
    """A process whose output goes nowhere, and how often it had news."""

    def __init__(self, *argv: str) -> None:
        self.news = 0
        null = os.open("/dev/null", os.O_RDWR)
        try:
            self.process = Process(Order(argv, {}), null, null, None, self._tell)
        finally:
            os.close(null)

    def _tell(self) -> None:
        self.news += 1


async def test_the_news_are_the_exec_and_the_end():
    started = Started("/bin/sh", "-c", "exit 7")

    await eventually(lambda: started.process.executed and started.process.ended)

    assert started.news == 2
    assert started.process.pid in own_pids
    assert started.process.reap() == RawExit(7, None)
    assert started.process.reap() == RawExit(7, None)
    assert started.process.pid not in own_pids


async def test_signals_after_the_end_reach_nobody():
    started = Started("/bin/true")
    await eventually(lambda: started.process.ended)

    started.process.send(signal.SIGTERM)
    started.process.reap()
    started.process.send(signal.SIGTERM)
    started.process.kill_group()


async def test_an_abandoned_process_is_reaped_when_it_ends():
    before = open_fds()
    started = Started("/bin/sleep", "1000")
    await eventually(lambda: started.process.executed)

    started.process.abandon()
    started.process.kill_group()

    await eventually(lambda: started.process.reaped)
    assert open_fds() == before


async def test_without_descriptors_the_spawn_fails_and_leaks_none():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_fds()
    null = os.open("/dev/null", os.O_RDWR)
    errors = []
    for room in range(0, 40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (16 + room, hard))
        try:
            process = Process(Order(["/bin/true"], {}), null, null, None, lambda: None)
        except SpawnError as exc:
            errors.append(exc)
            continue
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        async with asyncio.timeout(PATIENCE):
            await eventually(lambda: process.ended)  # noqa: B023 - awaited here
        process.reap()
    os.close(null)

    assert errors
    assert open_fds() == before
    assert not own_pids


def test_both_ends_of_a_pipe_stay_here():
    reader, writer = pipe()

    assert not os.get_blocking(reader)
    assert not os.get_inheritable(reader)
    assert not os.get_inheritable(writer)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)

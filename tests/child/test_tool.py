"""Short commands with real processes, on both event loops."""

import asyncio
import os
import time

from llamasup.child.tool import ToolResult, run
from tests.child.conftest import PATIENCE, alive, eventually, open_fds

ENV = {"PATH": os.environ["PATH"]}


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


async def test_both_outputs_and_the_code_come_back():
    result = await run(sh("echo out; echo err >&2; exit 3"), ENV, PATIENCE)

    assert result == ToolResult(3, "out\n", "err\n")


async def test_a_command_that_is_not_there_is_an_error():
    result = await run(["/no/such"], ENV, PATIENCE)

    assert result == ToolResult(None, "", "", error="cannot start /no/such: no such file")


async def test_a_command_killed_by_a_signal_says_so():
    result = await run(sh("kill -SEGV $$"), ENV, PATIENCE)

    assert result == ToolResult(None, "", "", error="killed by signal 11")


async def test_the_environment_is_the_given_one_alone():
    result = await run(["/usr/bin/env"], {"A": "ä=b"}, PATIENCE)

    assert result == ToolResult(0, "A=ä=b\n", "")


async def test_a_long_output_is_cut_and_still_read_to_its_end():
    result = await run(
        sh("head -c 5000000 /dev/zero | tr '\\0' x; echo y >&2"), ENV, PATIENCE, 1000
    )

    assert result == ToolResult(0, "x" * 1000, "y\n")


async def test_at_the_timeout_the_whole_group_is_killed():
    before = open_fds()

    result = await run(sh("sleep 1000 & echo $!; wait"), ENV, 1.0)

    assert result == ToolResult(None, result.stdout, "", True, "no end after 1 s")
    await eventually(lambda: not alive(int(result.stdout)))
    assert open_fds() == before


async def test_a_grandchild_that_keeps_the_output_open_does_not_keep_us():
    started = time.monotonic()

    result = await run(sh("setsid sleep 20 & echo $!"), ENV, 1.0)

    assert result.timed_out
    assert time.monotonic() - started < 15
    os.kill(int(result.stdout), 9)


async def test_who_cancels_leaves_no_process(tmp_path):
    before = open_fds()
    pid_file = tmp_path / "pid"
    async with asyncio.TaskGroup() as group:
        script = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 1000"
        task = group.create_task(run(sh(script), ENV, 1000))
        await eventually(pid_file.exists)

        task.cancel()

    await eventually(lambda: not os.path.exists(f"/proc/{pid_file.read_text().strip()}"))
    await eventually(lambda: open_fds() == before)

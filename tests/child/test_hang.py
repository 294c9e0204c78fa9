"""A binary on a hanging file system: one instance waits, and nothing else does."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.fuse

PROGRAM = """
import asyncio, os, pathlib, shutil, sys, time
import uvloop
from llamasup.child.process import Launcher
from llamasup.child.spawn import RawExit
from llamasup.child.tool import run
from tests.child.conftest import lag_of_the_loop, sh, spec
from tests.fakes.hangfs import hanging_fs

async def main(folder, gate):
    launcher = Launcher(str(folder), None, os.environ, mirror_fd=None)
    binary = str(folder / "mnt/server")
    assert (await run([binary, "0"], {}, 30)).code == 0
    gate.close()
    async with lag_of_the_loop() as lag:
        started = time.monotonic()
        hung = launcher.launch("chat", 1, spec((binary,)))
        launched = time.monotonic() - started
        other = await launcher.launch("other", 1, sh("exit 3")).wait()
        tool = await run([binary, "0"], {}, 1.0)
        async with asyncio.TaskGroup() as group:
            executed = group.create_task(hung.executed())
            end = group.create_task(hung.wait())
            await asyncio.sleep(0.5)
            assert hung.progress() == (0, 0, 0, 0, 0)
            assert not executed.done(), "executed?"
            hung.terminate()
            hung.kill()
            await asyncio.sleep(1.0)
            assert not end.done(), "the kernel does not let it die yet"
            try:
                launcher.launch("chat", 2, sh("exit 0"))
            except Exception as exc:
                refused = str(exc)
            gate.open()
            async with asyncio.timeout(30):
                raw = await end
            try:
                await executed
            except Exception:
                pass
    assert other == RawExit(3, None), other
    assert tool.timed_out and "does not die" in tool.error, tool
    assert raw.code is None, raw
    assert f"pid {hung.pid} " in refused and "still runs" in refused, refused
    assert launched < 1.0, launched
    assert lag.wall < 1.0, lag.wall  # not 50 ms: a busy machine has its moments
    assert lag.cpu < 0.05, lag.cpu
    assert await launcher.launch("chat", 2, sh("exit 4")).wait() == RawExit(4, None)
    print("ok, launch %.1f ms, longest turn of the loop %.1f ms" % (launched * 1e3, lag.wall * 1e3))

folder = pathlib.Path(sys.argv[1])
(folder / "src").mkdir()
shutil.copy("/bin/sleep", folder / "src/server")
with hanging_fs(folder / "src", folder / "mnt") as gate:
    uvloop.run(main(folder, gate))
"""


def test_a_binary_on_a_hanging_file_system_stalls_its_instance_alone(tmp_path):
    command = ["unshare", "-m", "--propagation", "private", sys.executable, "-c", PROGRAM]

    done = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, timeout=120, cwd=os.getcwd()
    )

    print(done.stdout)
    assert done.stdout.startswith("ok"), done.stderr

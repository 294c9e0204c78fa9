"""Orphans, in a process of its own: a test must not become everybody's parent."""

import subprocess
import sys

PROGRAM = """
import asyncio, os, sys, time
from llamasup.child.process import Launcher
from llamasup.child.reaper import become_subreaper, reap_orphans
from llamasup.child.tool import run
from tests.child.conftest import sh, eventually

async def main():
    become_subreaper()
    launcher = Launcher(sys.argv[1], None, os.environ, mirror_fd=None)
    # Its parent ends at once; it closes everything, so that nothing but its parenthood leads to us.
    script = "(exec 5>&- 1>&- 2>&-; sleep 0.3) & echo $!"
    result = await run(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]}, 30)
    orphan = int(result.stdout)
    ended = launcher.launch("chat", 1, sh("exit 9"))
    reaped = []
    await eventually(lambda: reaped.extend(reap_orphans()) or reaped)
    assert reaped == [orphan], (reaped, orphan)
    assert (await ended.wait()).code == 9  # was not taken for an orphan
    print("ok")

asyncio.run(main())
"""


def test_orphans_are_reaped_and_instances_left_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr) == ("ok\n", "")

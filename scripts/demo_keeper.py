"""Keep one daemon for as long as standard input stays open, then stop it and remove its folder.

Usage: demo_keeper.py FOLDER COMMAND...

The pipe on standard input belongs to the demo, and the kernel closes it however the demo ends,
SIGKILL included: so there is one way of cleaning up. If the daemon ends first, its exit code is
written to FOLDER/ended, and the folder stays until the demo has read it.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ESCALATION = ((signal.SIGTERM, 10.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0))
"""Signals to the daemon, each with the seconds until the next one. Its children die with it."""


def stop(daemon: subprocess.Popen[bytes]) -> None:
    """End *daemon*, the gentle way first."""
    for number, patience in ESCALATION:
        daemon.send_signal(number)  # does nothing once it has ended
        try:
            daemon.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return


def keep(folder: Path, command: list[str]) -> None:
    """Run *command* until our input closes."""
    with (folder / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        ended = os.pidfd_open(daemon.pid)
        ready, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
        if ended in ready:
            note = folder / "ended.new"
            note.write_text(str(daemon.wait()))
            note.rename(folder / "ended")
            select.select([sys.stdin.fileno()], [], [])
    finally:
        stop(daemon)


def main() -> None:
    """Keep, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, lambda *_: None
        )  # only the pipe ends us; not inherited, unlike SIG_IGN
    folder = Path(sys.argv[1])
    try:
        keep(folder, sys.argv[2:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

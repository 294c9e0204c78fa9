"""A served fake daemon, and llamasupctl run in this process or as a program."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llamasup.config.spec import Address, AdminConf
from llamasup.ctl.main import run
from tests.fakes.live_admin import LiveAdmin, live_admin

TOKEN = "s3cret"
PROGRAM = (sys.executable, "-c", "from llamasup.ctl.main import main; main()")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[LiveAdmin]:
    conf = AdminConf(str(tmp_path / "admin.sock"), Address("127.0.0.1", 0), TOKEN)
    with live_admin(conf) as live:
        yield live


@pytest.fixture
def environment(daemon: LiveAdmin) -> dict[str, str]:
    """The variables of a program that asks *daemon*, and nothing of ours besides."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LLAMASUP_")}
    return {**kept, "LLAMASUP_SOCKET": daemon.conf.socket, "TZ": "UTC"}


@pytest.fixture
def ctl(daemon: LiveAdmin, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run llamasupctl in this process against *daemon*."""

    def call(*arguments: str) -> Ended:
        code = run(["--socket", daemon.conf.socket, *arguments])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return call


@pytest.fixture
def program(environment: dict[str, str]) -> Callable[..., Ended]:
    """Run llamasupctl as a program against *daemon*."""

    def call(*arguments: str, **changes: str) -> Ended:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            env=environment | changes,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return call

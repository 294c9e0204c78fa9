"""Binaries that answer, refuse or hang without a process, and files to check with them."""

import asyncio
import os

from llamasup.check import check, render
from llamasup.child.tool import ToolResult
from tests.config.conftest import HELP

OK = ToolResult(0, "Available devices:\n  (none)\n", "")


class FakeBinaries:
    """Stands in for ``tool.run``: a help for every binary, and refusals by a word of the line."""

    def __init__(self, helps=None, refusals=None, settle=0):
        self.helps = helps or {}
        self.refusals = refusals or {}
        self.settle = settle  # turns of the loop that each answer takes
        self.calls = []
        self.envs = []
        self.running = 0
        self.peak = 0

    async def __call__(self, argv, env, timeout):
        self.calls.append(tuple(argv))
        self.envs.append(env)
        self.running += 1
        self.peak = max(self.peak, self.running)
        for _turn in range(self.settle):
            await asyncio.sleep(0)
        self.running -= 1
        if argv[1:] == ("--help",):
            return self.helps.get(argv[0], ToolResult(0, HELP, ""))
        assert argv[-1] == "--list-devices"
        return next((r for word, r in self.refusals.items() if word in argv), OK)

    def dry_runs(self):
        return [argv for argv in self.calls if argv[-1] == "--list-devices"]


async def lines_of(path, run=None, environ=None, deep=True):
    """Return the rendered problems, with the folder left out."""
    checked = await check(path, environ=environ or {}, deep=deep, run=run or FakeBinaries())
    return render(checked.problems).replace(f"{os.path.dirname(path)}/", "").splitlines()


def instance(name, port, more=""):
    return f'[instances.{name}]\nlisten = "127.0.0.1:{port}"\nmodel = "/m"\n{more}\n'


DEFAULTS = '[defaults]\nbinary = "/b"\n'

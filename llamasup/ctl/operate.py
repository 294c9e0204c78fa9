"""The verbs that move instances: start, stop, restart. They begin an operation and wait for it."""

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from llamasup.ctl import render
from llamasup.ctl.failures import ExitCode, NoSuchInstance
from llamasup.ctl.options import Duration, InstanceName, Options, Verb

if TYPE_CHECKING:
    from llamasup.ctl.client import Client

_HELP = """{summary}

Waits until it is done and tells meanwhile on stderr what happens. Ctrl-C and --timeout end the
waiting only: the operation goes on.

\b
Exit codes: 0 done, 1 failed or overtaken by a later command, 4 no such
instance (then nothing is done to the others either), 5 timed out, 6 the
daemon is unreachable.

\b
Examples:
  {examples}
"""


def _run(
    verb: str, names: tuple[str, ...], every: bool, now: bool, wait: bool, timeout: float | None
) -> int:
    # Imported here, because http.client costs a third of the time of --help.
    from llamasup.ctl.waiting import Wait

    options = click.get_current_context().find_object(Options)
    assert options is not None  # the common options made it
    client = options.client()
    targets = _targets(client, names, every)
    operations: list[render.Row] = [client.command(name, verb, now) for name in targets]
    if wait:
        waiting = Wait(client, operations, lambda line: click.echo(line, err=True))
        operations = waiting.run(timeout)
    if options.json:
        click.echo(json.dumps({"operations": operations}, ensure_ascii=False))
    else:
        _tell(operations, wait)
    return _exit_code({operation["outcome"] for operation in operations}, wait)


def _targets(client: "Client", names: tuple[str, ...], every: bool) -> list[str]:
    if every == bool(names):
        raise click.UsageError("give names of instances or --all, one of both")
    rows = client.status()["instances"]
    assert isinstance(rows, list)
    known = [row["name"] for row in rows]
    for name in names:
        if name not in known:
            has = ", ".join(known) or "none"
            raise NoSuchInstance(f"no instance is called {name}; there are: {has}")
    return known if every else list(dict.fromkeys(names))


def _tell(operations: list[render.Row], wait: bool) -> None:
    for operation in operations:
        is_good = operation["outcome"] == "done" or not wait
        line = render.operation_line(operation)
        if wait and operation["outcome"] == "running":
            line += ": not done in time; it goes on"
        click.echo(line, err=not is_good)


def _exit_code(outcomes: set[str], wait: bool) -> ExitCode:
    """Return how it went. The first rule that applies wins: failed, timed out, done."""
    if outcomes & {"failed", "superseded"}:
        return ExitCode.FAILED
    return ExitCode.TIMED_OUT if wait and "running" in outcomes else ExitCode.DONE


def _operator_verb(name: str, summary: str, *examples: str) -> Verb:
    return Verb(
        name,
        callback=partial(_run, name),
        help=_HELP.format(summary=summary, examples="\n  ".join(examples)),
        params=[
            click.Argument(["names"], metavar="[NAME]...", nargs=-1, type=InstanceName()),
            click.Option(["--all", "every"], is_flag=True, help="All instances."),
            click.Option(["--now"], is_flag=True, help="Do not let requests in flight finish."),
            click.Option(["--wait/--no-wait"], default=True, help="Wait for the end (default)."),
            click.Option(
                ["--timeout"], type=Duration(), help="Wait so long at most: 30s, 5m, 1h30m."
            ),
        ],
    )


ALL = (
    _operator_verb(
        "start",
        "Start instances and keep them up; one that waits for its next try is tried now.",
        "llamasupctl start chat",
        "llamasupctl start --all --timeout 10m",
    ),
    _operator_verb(
        "stop",
        "Stop instances and keep them down until they are started again.",
        "llamasupctl stop batch",
        "llamasupctl stop chat --now --no-wait",
    ),
    _operator_verb(
        "restart",
        "Replace the processes of instances; requests wait meanwhile.",
        "llamasupctl restart chat",
        "llamasupctl restart chat embed --json",
    ),
)

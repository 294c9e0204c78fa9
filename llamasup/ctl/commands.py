"""The verbs: each parses its arguments, calls the daemon and prints what came back."""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import get_completion_class

from llamasup import __version__
from llamasup.clock import SystemClock
from llamasup.ctl import operate, render
from llamasup.ctl.failures import ExitCode, Failure, NoSuchInstance
from llamasup.ctl.options import InstanceName, Options, Verb

WATCH_PERIOD = 1.0
"""Seconds between two looks of ``status --watch``."""

name_argument = click.argument("name", metavar="NAME", type=InstanceName())


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def _fetch(options: Options, name: str | None) -> dict[str, Any]:
    status = options.client().status()
    if name is None:
        return status
    assert isinstance(status["instances"], list)
    rows = [row for row in status["instances"] if row["name"] == name]
    if not rows:
        raise NoSuchInstance(f"no instance is called {name}; see: llamasupctl status")
    return {**status, "instances": rows}


# --- status --------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.argument("name", metavar="[NAME]", required=False, type=InstanceName())
@click.option("--watch", is_flag=True, help="Go on showing it until Ctrl-C.")
@click.pass_obj
def status(options: Options, name: str | None, watch: bool) -> int:
    """Show what runs, and why something does not.

    Without NAME: one line per instance. With NAME: everything known of it and, unless it is ready,
    its last lines of output. Without a terminal the columns are plain text under a header. With
    --watch and no terminal, or with --json, each change is printed below the one before.

    \b
    Exit codes: without NAME 0 if the daemon answers. With NAME 0 if the
    instance is ready and 3 if it is not (a stopped one is not), 4 if
    there is none.

    \b
    Examples:
      llamasupctl status
      llamasupctl status chat && echo "chat answers"
      llamasupctl status --json | jq '.instances[] | {name, phase}'
    """
    if watch:
        return _watch(options, name)
    found = _fetch(options, name)
    if options.json:
        _print_json(found)
    elif name is None:
        _show_table(options, found["instances"])
    else:
        _show_details(options, found["instances"][0])
    is_ready = name is None or found["instances"][0]["phase"] == "ready"
    return ExitCode.DONE if is_ready else ExitCode.NOT_READY


def _on_terminal(options: Options) -> bool:
    return options.color == "always" or sys.stdout.isatty()


def _show_table(options: Options, rows: list[render.Row]) -> None:
    now = SystemClock().now().wall
    if not _on_terminal(options):
        click.echo(render.table(rows, now))
        return
    # rich costs more than all the rest of this program: only those who see it pay.
    from llamasup.ctl.screen import draw

    draw(rows, now, options.color)


def _show_details(options: Options, row: render.Row) -> None:
    for label, text in render.details(row, SystemClock().now().wall):
        click.echo(f"{label + ':':<12}{text}")
    if row["phase"] != "ready":
        lines = list(options.client().logs(row["name"], 10, follow=False))
        if lines:
            click.echo("last output:")
        for line in lines:
            click.echo(f"  {render.clean(str(line['text']))}")


def _watch(options: Options, name: str | None) -> int:
    if options.json or not _on_terminal(options):
        last: object = None
        for found in _snapshots(options, name):
            if found != last:
                last = found
                _print_json(found) if options.json else _show_table(options, found["instances"])
                sys.stdout.flush()
        return ExitCode.DONE
    from llamasup.ctl.screen import draw_live

    draw_live(
        ((one["instances"], SystemClock().now().wall) for one in _snapshots(options, name)),
        options.color,
    )
    return ExitCode.DONE


def _snapshots(options: Options, name: str | None) -> Iterator[dict[str, Any]]:
    while True:
        yield _fetch(options, name)
        time.sleep(WATCH_PERIOD)


# --- logs and events -----------------------------------------------------------------------------


@click.command(cls=Verb)
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with every new line until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 10_000), default=100, show_default=True, metavar="N"
)
@click.pass_obj
def logs(options: Options, name: str, follow: bool, lines: int) -> int:
    """Show the last lines of an instance's output, over its restarts.

    With --json each line is an object with its time and the generation that wrote it. Control
    characters are replaced.

    \b
    Exit codes: 0 done, 4 no such instance, 6 the daemon is unreachable
    or has gone while we followed.

    \b
    Examples:
      llamasupctl logs chat -n 20
      llamasupctl logs chat -f | grep -i error
    """
    for line in options.client().logs(name, lines, follow):
        _print_json(line) if options.json else click.echo(render.clean(str(line["text"])))
    return ExitCode.DONE


@click.command(cls=Verb)
@click.option("-f", "--follow", is_flag=True, help="Go on with every new event until Ctrl-C.")
@click.option("--after", metavar="ID", help="Begin after this event (the id of --json).")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 2000), default=100, show_default=True, metavar="N"
)
@click.pass_obj
def events(options: Options, follow: bool, after: str | None, lines: int) -> int:
    """Show what happened: phases, ends of processes, commands.

    An event of the kind `gap` says that older ones are no longer kept.

    \b
    Exit codes: 0 done, 6 the daemon is unreachable or has gone while we
    followed.

    \b
    Examples:
      llamasupctl events -n 20
      llamasupctl events -f --json | jq -r 'select(.kind == "exit").message'
    """
    client = options.client()
    found: dict[str, Any] = client.events(after, lines)
    for event in found["events"]:
        _show_event(options, event)
    if follow:
        for event in client.follow_events(found["last"]):
            _show_event(options, event)
    return ExitCode.DONE


def _show_event(options: Options, event: render.Row) -> None:
    _print_json(event) if options.json else click.echo(render.event_line(event))


# --- the rest ------------------------------------------------------------------------------------


@click.command(cls=Verb)
@click.argument("file", required=False, type=click.Path())
@click.pass_obj
def check(options: Options, file: str | None) -> int:
    """Check a configuration file; the daemon is not asked.

    Runs `llamasup --check FILE` and ends like it; without FILE it is the daemon's default file.

    \b
    Exit codes: 0 the file can be used, 78 it cannot; every problem is
    listed.

    \b
    Examples:
      llamasupctl check /etc/llamasup/llamasup.toml
      llamasupctl check new.toml && sudo cp new.toml /etc/llamasup/llamasup.toml
    """
    # -P: a folder that happens to be called llamasup must not be run instead.
    command = [sys.executable, "-P", "-m", "llamasup", "--check"]
    command += [] if file is None else [file]
    command += ["--json"] if options.json else []
    sys.stdout.flush()
    try:
        os.execv(sys.executable, command)
    except OSError as exc:
        raise Failure(f"cannot run {sys.executable}: {exc.strerror}") from exc


@click.command(cls=Verb)
@click.pass_obj
def version(options: Options) -> int:
    """Show the version of this program and of the daemon.

    \b
    Exit code: 0, whether the daemon answers or not.
    """
    try:
        daemon: Any = options.client().status()["daemon"]
    except Failure:
        daemon = None
    if options.json:
        _print_json({"client": __version__, "daemon": daemon and daemon["version"]})
        return ExitCode.DONE
    click.echo(f"llamasupctl {__version__}")
    running = f"{daemon['version']} (pid {daemon['pid']})" if daemon else "not reachable"
    click.echo(f"daemon {running}")
    return ExitCode.DONE


@click.command(cls=Verb)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the completion for a shell; it completes the names of instances too.

    \b
    Examples:
      eval "$(llamasupctl completion bash)"      # in ~/.bashrc
      eval "$(llamasupctl completion zsh)"       # in ~/.zshrc
      llamasupctl completion fish | source       # in config.fish
    """
    known = get_completion_class(shell)
    assert known is not None  # click knows the three
    script = known(ctx.find_root().command, {}, "llamasupctl", "_LLAMASUPCTL_COMPLETE")
    # Not script.source(): that starts a bash to see its version.
    click.echo(script.source_template % script.source_vars())
    return ExitCode.DONE


ALL = (status, *operate.ALL, logs, events, check, version, completion)

"""llamasupctl as a program: signals, pipes, terminals, completion, start-up."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from llamasup import __version__
from tests.ctl.conftest import PROGRAM, Ended
from tests.fakes.live_admin import LiveAdmin

Program = Callable[..., Ended]

VERBS = (
    "status",
    "start",
    "stop",
    "restart",
    "logs",
    "events",
    "check",
    "version",
    "completion",
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(program: Program, verb: str):
    ended = program(verb, "--help")

    assert ended.code == 0
    assert "--json" in ended.out
    assert "Exit code" in ended.out or verb == "completion"
    assert "Example" in ended.out or verb == "version"


def test_help_lists_verbs_and_exit_codes_and_loads_little():
    code = (
        "import sys; from llamasup.ctl.main import run; run(['--help']);"
        "print([m for m in ('asyncio', 'http.client', 'rich', 'aiohttp', 'pydantic', 'ssl')"
        " if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.stdout.splitlines()[-1] == "[]"
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout
    assert "timed out; the operation goes on" in done.stdout


def test_the_version_is_an_option_too(program: Program):
    assert program("--version").out == f"llamasupctl {__version__}\n"


def test_the_environment_names_the_daemon(program: Program, daemon: LiveAdmin):
    assert program("status").code == 0
    assert program("status", LLAMASUP_SOCKET="/nowhere").code == 6
    url = f"http://{daemon.server.tcp_address}"
    assert program("status", LLAMASUP_SOCKET="/nowhere", LLAMASUP_URL=url).code == 0


def test_completion_knows_the_names_of_the_daemon(program: Program):
    def complete(words: str, count: int) -> list[str]:
        ended = program(
            _LLAMASUPCTL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(count)
        )
        return [line.partition(",")[2] for line in ended.out.splitlines() if line]

    assert complete("llamasupctl restart ", 2) == ["chat", "embed"]
    assert complete("llamasupctl restart e", 2) == ["embed"]
    assert complete("llamasupctl restart chat ", 3) == ["embed"]
    assert complete("llamasupctl logs c", 2) == ["chat"]
    assert complete("llamasupctl st", 1) == ["start", "status", "stop"]
    assert complete("llamasupctl --socket /nowhere status ", 4) == []
    assert "--timeout" in complete("llamasupctl restart --", 2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_for_their_shell(program: Program, shell: str):
    ended = program("completion", shell)

    assert ended.code == 0
    assert f"_LLAMASUPCTL_COMPLETE={shell}_complete" in ended.out


def test_the_bash_completion_is_bash(program: Program, tmp_path: object):
    script = program("completion", "bash").out

    assert subprocess.run(["bash", "-n"], input=script, text=True, timeout=60).returncode == 0


def test_a_reader_that_leaves_ends_it_quietly(environment: dict[str, str], daemon: LiveAdmin):
    def write() -> None:
        for _ in range(9000):
            daemon.control.books["chat"].write("x" * 100)

    daemon.call(write)
    with subprocess.Popen(
        [*PROGRAM, "logs", "chat", "-n", "10000"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as ctl:
        assert ctl.stdout is not None
        assert ctl.stderr is not None
        ctl.stdout.read(10)
        ctl.stdout.close()
        assert ctl.wait(60) == 141
        assert ctl.stderr.read() == b""


def follow(environment: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_following_logs_shows_new_lines_at_once_until_ctrl_c(
    environment: dict[str, str], daemon: LiveAdmin
):
    daemon.call(lambda: daemon.control.books["chat"].write("old"))
    with follow(environment, "logs", "chat", "-f") as ctl:
        assert ctl.stdout is not None
        assert ctl.stdout.readline() == "old\n"
        daemon.call(lambda: daemon.control.books["chat"].write("new"))
        assert ctl.stdout.readline() == "new\n"

        ctl.send_signal(signal.SIGINT)

        assert ctl.wait(60) == 130
        assert ctl.stderr is not None
        assert ctl.stderr.read().strip() == ""


def test_following_events_goes_on_where_the_list_ended(
    environment: dict[str, str], daemon: LiveAdmin
):
    daemon.call(lambda: daemon.control.set_phase("chat", "loading"))
    with follow(environment, "events", "-f", "--json") as ctl:
        assert ctl.stdout is not None
        assert json.loads(ctl.stdout.readline())["seq"] == 1
        daemon.call(lambda: daemon.control.set_phase("chat", "ready"))
        assert json.loads(ctl.stdout.readline())["seq"] == 2
        ctl.send_signal(signal.SIGINT)
        assert ctl.wait(60) == 130


def test_watching_without_a_terminal_prints_each_change(
    environment: dict[str, str], daemon: LiveAdmin
):
    with follow(environment, "status", "--watch", "--json") as ctl:
        assert ctl.stdout is not None
        assert json.loads(ctl.stdout.readline())["instances"][0]["phase"] == "ready"
        daemon.call(lambda: daemon.control.set_phase("chat", "draining"))
        assert json.loads(ctl.stdout.readline())["instances"][0]["phase"] == "draining"
        ctl.send_signal(signal.SIGINT)
        assert ctl.wait(60) == 130


def test_a_daemon_that_goes_ends_a_follower_with_6(environment: dict[str, str], daemon: LiveAdmin):
    daemon.call(lambda: daemon.control.books["chat"].write("old"))
    with follow(environment, "logs", "chat", "-f") as ctl:
        assert ctl.stdout is not None
        assert ctl.stdout.readline() == "old\n"
        daemon.stop()
        assert ctl.wait(60) == 6
        assert ctl.stderr is not None
        assert "has ended the stream" in ctl.stderr.read()


def on_a_terminal(environment: dict[str, str], *arguments: str) -> str:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *arguments], env=environment, stdout=follower, stderr=follower, stdin=follower
    ) as ctl:
        os.close(follower)
        seen = b""
        while select.select([leader], [], [], 60)[0]:
            try:
                seen += os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
        ctl.wait(60)
    os.close(leader)
    return seen.decode()


def test_a_terminal_gets_colours_unless_told_otherwise(environment: dict[str, str]):
    terminal = environment | {"TERM": "xterm-256color", "COLUMNS": "120"}
    terminal.pop("NO_COLOR", None)

    assert "\x1b[32mready" in on_a_terminal(terminal, "status")
    assert "\x1b[3" not in on_a_terminal(terminal | {"NO_COLOR": "1"}, "status")
    assert "\x1b[3" not in on_a_terminal(terminal, "status", "--color", "never")
    assert "\x1b[32mready" in on_a_terminal(
        terminal | {"NO_COLOR": "1"}, "status", "--color", "always"
    )


def test_colours_in_a_pipe_only_when_asked_for(program: Program):
    assert "\x1b" not in program("status").out
    assert "\x1b[32mready" in program("status", "--color", "always", TERM="xterm").out


def test_check_is_the_daemons_check(program: Program):
    """What it finds is tested there; here its exit code comes through."""
    ended = program("check", "/nowhere/llamasup.toml")

    assert ended.code == 78
    assert "/nowhere/llamasup.toml" in ended.err

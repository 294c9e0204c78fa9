import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from llamasup import __version__
from llamasup.core.model import Verb
from llamasup.core.operations import Outcome
from llamasup.ctl.main import run
from tests.ctl.conftest import TOKEN, Ended
from tests.fakes.live_admin import LiveAdmin

Ctl = Callable[..., Ended]


# --- status --------------------------------------------------------------------------------------


def test_status_without_a_terminal_is_a_plain_table(ctl: Ctl):
    ended = ctl("status")

    header, chat, embed = ended.out.splitlines()
    assert ended.code == 0
    assert header.split() == (
        ["NAME", "PHASE", "SINCE", "PID", "GEN", "LISTEN", "RESTARTS", "ACTIVE", "HELD", "REASON"]
    )
    assert chat.split()[:2] == ["chat", "ready"]
    assert chat.split()[3:] == ["4711", "3", "127.0.0.1:1234", "2", "1", "0", "-"]
    assert embed.startswith("embed  ready")
    assert ended.out.isascii()


def test_status_json_has_the_promised_keys(ctl: Ctl):
    ended = ctl("status", "--json")

    body = json.loads(ended.out)
    assert set(body) == {"daemon", "instances"}
    assert set(body["instances"][0]) >= {
        "name",
        "phase",
        "reason",
        "since",
        "pid",
        "generation",
        "model",
        "listen",
        "restarts",
        "last_exit",
        "in_flight",
        "held",
    }


def test_options_stand_before_or_after_the_verb(ctl: Ctl, daemon: LiveAdmin):
    for arguments in (["--json", "status"], ["status", "--json"]):
        assert json.loads(ctl(*arguments).out)["daemon"]["pid"] == 4242
    assert run(["status", "--socket", daemon.conf.socket]) == 0
    assert run(["--socket", "/nowhere", "status", "--socket", daemon.conf.socket]) == 0


def test_status_of_one_tells_everything(ctl: Ctl):
    ended = ctl("status", "chat")

    assert ended.code == 0
    assert "model:      /models/tiny.gguf" in ended.out
    assert "last exit:  killed by SIGSEGV (" in ended.out
    assert "last output" not in ended.out


def test_status_of_one_that_is_not_ready_ends_3_and_shows_its_last_lines(
    ctl: Ctl, daemon: LiveAdmin
):
    def crash() -> None:
        daemon.control.set_phase("chat", "backoff", "killed by SIGSEGV")
        daemon.control.books["chat"].write("out of \x1b[31mmemory")

    daemon.call(crash)

    ended = ctl("status", "chat")

    assert ended.code == 3
    assert "phase:      backoff" in ended.out
    assert ended.out.endswith("last output:\n  out of �[31mmemory\n")
    assert ctl("status", "chat", "--json").code == 3
    assert ctl("status").code == 0


def test_status_of_nobody_ends_4(ctl: Ctl):
    ended = ctl("status", "nobody")

    assert (ended.code, ended.out) == (4, "")
    assert ended.err == ("llamasupctl: no instance is called nobody; see: llamasupctl status\n")


# --- start, stop, restart ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", list(Verb))
def test_a_verb_moves_its_instance_and_waits(ctl: Ctl, daemon: LiveAdmin, verb: Verb):
    ended = ctl(verb, "chat")

    assert (ended.code, ended.out) == (0, f"chat: {verb} done (ended as done)\n")
    assert daemon.control.commands == [("chat", verb, False)]


def test_several_names_all_and_now(ctl: Ctl, daemon: LiveAdmin):
    assert ctl("stop", "embed", "chat", "embed", "--now").code == 0
    assert ctl("start", "--all").code == 0

    assert daemon.control.commands == [
        ("embed", Verb.STOP, True),
        ("chat", Verb.STOP, True),
        ("chat", Verb.START, False),
        ("embed", Verb.START, False),
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SUPERSEDED])
def test_a_bad_end_is_1_and_told_on_stderr(ctl: Ctl, daemon: LiveAdmin, outcome: Outcome):
    def prepare() -> None:
        daemon.control.outcome = outcome

    daemon.call(prepare)

    ended = ctl("start", "chat")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"chat: start {outcome} (ended as {outcome})\n"


def test_an_unknown_name_ends_4_and_nothing_is_done_to_the_others(ctl: Ctl, daemon: LiveAdmin):
    ended = ctl("stop", "chat", "nobody")

    assert ended.code == 4
    assert ended.err == "llamasupctl: no instance is called nobody; there are: chat, embed\n"
    assert daemon.control.commands == []


def test_a_timeout_ends_5_and_the_operation_goes_on(ctl: Ctl, daemon: LiveAdmin):
    def prepare() -> None:
        daemon.control.outcome = None
        daemon.control.set_phase("chat", "loading", "2.1 GiB read")

    daemon.call(prepare)

    ended = ctl("restart", "chat", "--timeout", "0.05s")

    assert (ended.code, ended.out) == (5, "")
    assert ended.err.splitlines() == [
        "chat: loading (2.1 GiB read)",
        "chat: restart under way (operation op1)",
    ]
    assert daemon.control.operations["op1"].outcome is Outcome.RUNNING


def test_no_wait_returns_the_operation_at_once(ctl: Ctl, daemon: LiveAdmin):
    def prepare() -> None:
        daemon.control.outcome = None

    daemon.call(prepare)

    ended = ctl("restart", "chat", "--no-wait")
    as_json = ctl("restart", "embed", "--no-wait", "--json")

    assert (ended.code, ended.out, ended.err) == (
        0,
        "chat: restart under way (operation op1)\n",
        "",
    )
    (operation,) = json.loads(as_json.out)["operations"]
    assert (operation["id"], operation["instance"], operation["outcome"]) == (
        "op2",
        "embed",
        "running",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["stop"],
        ["stop", "chat", "--all"],
        ["stop", "chat", "--timeout", "soon"],
        ["stop", "chat", "--timeout", ""],
        ["explode"],
        ["status", "--url", "ftp://x"],
        ["status", "--url", "http://x/path"],
        ["logs"],
        ["logs", "chat", "-n", "-1"],
        ["status", "--color", "maybe"],
        ["completion", "tcsh"],
    ],
)
def test_wrong_usage_ends_2(ctl: Ctl, daemon: LiveAdmin, arguments: list[str]):
    ended = ctl(*arguments)

    assert (ended.code, ended.out) == (2, "")
    assert "Usage: llamasupctl" in ended.err
    assert daemon.control.commands == []


# --- logs and events -----------------------------------------------------------------------------


def write_lines(daemon: LiveAdmin, *texts: str) -> None:
    for text in texts:
        daemon.call(lambda text=text: daemon.control.books["chat"].write(text))


def test_logs_are_the_last_lines(ctl: Ctl, daemon: LiveAdmin):
    write_lines(daemon, "one", "two", "thr\x07ee")

    assert ctl("logs", "chat").out == "one\ntwo\nthr�ee\n"
    assert ctl("logs", "chat", "-n", "1").out == "thr�ee\n"
    assert ctl("logs", "chat", "-n", "0").out == ""
    assert ctl("logs", "embed").out == ""
    assert json.loads(ctl("logs", "chat", "-n", "1", "--json").out) == {
        "seq": 3,
        "at": "2026-01-01T00:00:00.250+00:00",
        "generation": 3,
        "text": "thr\x07ee",
    }


def test_logs_of_nobody_end_4(ctl: Ctl):
    for name in ("nobody", "../chat", "a" * 3000, "llama🦙"):
        assert ctl("logs", name).code == 4, name


def test_events_are_lines(ctl: Ctl, daemon: LiveAdmin):
    daemon.call(lambda: daemon.control.events.append(0.0, "chat", "exit", "gone", "error"))
    daemon.call(lambda: daemon.control.events.append(1.0, "", "config", "loaded"))

    first, second = ctl("events").out.splitlines()

    assert first.endswith("  chat  exit  error: gone")
    assert second.endswith("  llamasup  config  loaded")
    assert ctl("events", "-n", "1").out.splitlines() == [second]
    assert json.loads(ctl("events", "--after", "e1-1", "--json").out) == {
        "id": "e1-2",
        "seq": 2,
        "at": "1970-01-01T00:00:01.000+00:00",
        "instance": "",
        "kind": "config",
        "level": "info",
        "message": "loaded",
    }


def test_events_after_a_foreign_id_begin_with_a_gap(ctl: Ctl, daemon: LiveAdmin):
    daemon.call(lambda: daemon.control.events.append(0.0, "chat", "exit", "gone"))

    kinds = [
        json.loads(line)["kind"]
        for line in ctl("events", "--after", "zz-7", "--json").out.splitlines()
    ]

    assert kinds == ["gap", "exit"]


def test_a_bad_id_is_refused_with_the_daemons_words(ctl: Ctl):
    ended = ctl("events", "--after", "yesterday")

    assert ended.code == 1
    assert ended.err == (
        "llamasupctl: the daemon refuses: after must be an event's id or a number\n"
    )


# --- over TCP ------------------------------------------------------------------------------------


def test_over_tcp_changes_need_the_token(ctl: Ctl, daemon: LiveAdmin, tmp_path: Path):
    url = f"http://{daemon.server.tcp_address}"
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "wrong").write_text("wrong")
    (tmp_path / "empty").write_text("\n")

    assert ctl("--url", url, "status").code == 0
    assert "Authorization: Bearer" in ctl("--url", url, "stop", "chat").err
    wrong = ctl("--url", url, "stop", "chat", "--token-file", str(tmp_path / "wrong"))
    assert (wrong.code, daemon.control.commands) == (1, [])
    assert ctl("stop", "chat", "--url", url, "--token-file", str(tmp_path / "token")).code == 0
    assert daemon.control.commands == [("chat", Verb.STOP, False)]
    assert "must hold one line" in ctl("status", "--token-file", str(tmp_path / "empty")).err
    assert "No such file" in ctl("status", "--token-file", str(tmp_path / "none")).err


# --- unreachable ---------------------------------------------------------------------------------


def unreachable(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 6
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_no_daemon_ends_6_and_says_what_to_look_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = str(tmp_path / "admin.sock")

    message = unreachable(capsys, "--socket", path, "status")

    assert message == (
        f"llamasupctl: cannot reach the daemon at {path}: no such file or directory;"
        " is it running? see: systemctl status llamasup\n"
    )
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    assert "connection refused" in unreachable(capsys, "--socket", path, "stop", "chat")


def test_a_socket_path_too_long_is_no_traceback(capsys: pytest.CaptureFixture[str]):
    assert "too long" in unreachable(capsys, "--socket", "/" + "x" * 200, "status")


def test_what_is_not_llamasup_is_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    import threading

    def serve(listener: socket.socket) -> None:
        for reply in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"SSH-2.0-x\r\n", b""):
            caller, _ = listener.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        assert run(["--url", url, "status"]) == 1
        assert "is not llamasup" in capsys.readouterr().err
        assert "broke off" in unreachable(capsys, "--url", url, "status")
        unreachable(capsys, "--url", url, "status")
        thread.join(20)


def test_version_is_told_with_and_without_a_daemon(ctl: Ctl, capsys: pytest.CaptureFixture[str]):
    assert ctl("version").out == f"llamasupctl {__version__}\ndaemon 0.1.0 (pid 4242)\n"
    assert json.loads(ctl("version", "--json").out) == {"client": __version__, "daemon": "0.1.0"}

    assert run(["--socket", "/nowhere", "version"]) == 0
    assert capsys.readouterr().out == f"llamasupctl {__version__}\ndaemon not reachable\n"

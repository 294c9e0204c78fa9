import json
from collections.abc import Callable

import pytest

from llamasup import __version__
from llamasup.ctl.main import run
from tests.ctl.conftest import Ended
from tests.fakes.live_admin import LiveAdmin

Ctl = Callable[..., Ended]


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


def test_version_is_told_with_and_without_a_daemon(ctl: Ctl, capsys: pytest.CaptureFixture[str]):
    assert ctl("version").out == f"llamasupctl {__version__}\ndaemon 0.1.0 (pid 4242)\n"
    assert json.loads(ctl("version", "--json").out) == {"client": __version__, "daemon": "0.1.0"}

    assert run(["--socket", "/nowhere", "version"]) == 0
    assert capsys.readouterr().out == f"llamasupctl {__version__}\ndaemon not reachable\n"

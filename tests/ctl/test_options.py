import json
from collections.abc import Callable

import click
import pytest

from llamasup.ctl.main import run
from llamasup.ctl.options import Duration
from tests.ctl.conftest import Ended
from tests.fakes.live_admin import LiveAdmin

Ctl = Callable[..., Ended]


def test_options_stand_before_or_after_the_verb(ctl: Ctl, daemon: LiveAdmin):
    for arguments in (["--json", "status"], ["status", "--json"]):
        assert json.loads(ctl(*arguments).out)["daemon"]["pid"] == 4242
    assert run(["status", "--socket", daemon.conf.socket]) == 0
    assert run(["--socket", "/nowhere", "status", "--socket", daemon.conf.socket]) == 0


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("30s", 30.0),
        ("0.5s", 0.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h1m1s", 3661.0),
    ],
)
def test_durations_are_seconds(text: str, seconds: float):
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 m", "1.2.3s", "m", "1m1h", "٣s"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(click.BadParameter, match="is not a duration"):
        Duration().convert(text, None, None)


def test_a_url_given_goes_over_the_environment_and_a_socket_given_over_both(
    daemon: LiveAdmin, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LLAMASUP_URL", "http://127.0.0.1:1")

    assert run(["status"]) == 6
    assert run(["status", "--url", f"http://{daemon.server.tcp_address}"]) == 0
    assert run(["status", "--socket", daemon.conf.socket]) == 0

"""How a terminal is drawn on; whether there is one is tested in test_main."""

import pytest

from llamasup.admin.views import instance_view
from llamasup.ctl.screen import draw, draw_live
from tests.fakes.control import SINCE, instance

ROWS = [
    instance_view(instance("chat")),
    instance_view(instance("embed", "failed", reason="[red]x")),
]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_phases_are_coloured(capsys: pytest.CaptureFixture[str]):
    draw(ROWS, SINCE, "always")

    shown = capsys.readouterr().out
    assert "\x1b[32mready" in shown
    assert "\x1b[31mfailed" in shown


def test_what_an_instance_says_is_no_markup(capsys: pytest.CaptureFixture[str]):
    draw(ROWS, SINCE, "never")

    shown = capsys.readouterr().out
    assert "[red]x" in shown
    assert "\x1b" not in shown


def test_a_narrow_terminal_has_the_reasons_below_and_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")

    draw(ROWS, SINCE, "never")

    lines = capsys.readouterr().out.splitlines()
    assert "REASON" not in lines[0]
    assert lines[-1] == "embed: [red]x"


def test_a_live_table_shows_the_last_state(capsys: pytest.CaptureFixture[str]):
    later = [instance_view(instance("chat", "draining"))]

    draw_live([(ROWS, SINCE), (later, SINCE)], "always")

    assert "draining" in capsys.readouterr().out.rpartition("ready")[2]

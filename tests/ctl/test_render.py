from datetime import UTC, datetime

import pytest

from llamasup.admin.views import event_view, instance_view, operation_view
from llamasup.core.model import Phase, Verb
from llamasup.core.operations import Operation, Outcome
from llamasup.ctl import render
from llamasup.events import EventLog
from tests.fakes.control import SINCE, instance

NOW = SINCE + 63


def test_a_table_is_aligned_and_has_no_empty_cell():
    rows = [
        instance_view(instance("chat")),
        instance_view(instance("embeddings", "backoff", reason="exit code 1: bad\x1b[2Jmodel")),
    ]

    assert render.table(rows, NOW).splitlines() == [
        "NAME        PHASE    SINCE  PID   GEN  LISTEN          RESTARTS  ACTIVE  HELD  REASON",
        "chat        ready    1m03s  4711  3    127.0.0.1:1234  2         1       0     -",
        "embeddings  backoff  1m03s  -     3    127.0.0.1:1234  2         1       0     "
        "exit code 1: bad�[2Jmodel",
    ]


def test_no_instances_is_the_header_alone():
    assert render.table([], NOW).split() == list(render.HEADER)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (86399, "23h59m"),
        (86400, "1d00h"),
        (400 * 86400 + 7200, "400d02h"),
    ],
)
def test_since_is_short(seconds: float, text: str):
    moment = datetime.fromtimestamp(SINCE, UTC).isoformat()

    assert render.since(moment, SINCE + seconds) == text


def test_every_phase_has_a_colour():
    assert set(render.COLORS) == {phase.value for phase in Phase} | {"waiting"}


def test_details_leave_nothing_out():
    shown = dict(render.details(instance_view(instance("chat", load_seconds=None)), NOW))

    assert set(shown) == {key.replace("_", " ") for key in instance_view(instance("chat"))} - {
        "load seconds"
    } | {"load time"}
    assert shown["last exit"] == "killed by SIGSEGV (2m03s ago)"
    assert shown["load time"] == "-"


@pytest.mark.parametrize(
    ("outcome", "message", "line"),
    [
        (Outcome.RUNNING, "", "chat: stop under way (operation op1)"),
        (Outcome.DONE, "", "chat: stop done"),
        (Outcome.FAILED, "stuck: will not die", "chat: stop failed (stuck: will not die)"),
    ],
)
def test_an_operation_is_a_sentence(outcome: Outcome, message: str, line: str):
    view = operation_view(Operation("op1", "chat", Verb.STOP, 3, SINCE, outcome, message))

    assert render.operation_line(view) == line


def test_an_event_is_a_line_even_if_its_message_is_not():
    log = EventLog(epoch="e1")
    view = event_view(log.append(SINCE, "", "config", "two\nlines", "warning"), log)

    line = render.event_line(view)

    assert line.endswith("  llamasup  config  warning: two�lines")
    assert datetime.fromisoformat(line[:25]).timestamp() == int(SINCE)


def test_clean_leaves_text_and_tabs_alone():
    assert render.clean("é 🦙\tx") == "é 🦙\tx"
    assert render.clean("a\x1b]0;b\x07\u202e\x00") == "a\ufffd]0;b" + 3 * "\ufffd"

import json
from collections.abc import Callable

import pytest

from llamasup.core.model import Verb
from llamasup.core.operations import Outcome
from tests.ctl.conftest import Ended
from tests.fakes.live_admin import LiveAdmin

Ctl = Callable[..., Ended]


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
        "chat: restart under way (operation op1): not done in time; it goes on",
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

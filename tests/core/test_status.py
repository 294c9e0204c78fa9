"""The rows that people and machines see."""

from dataclasses import replace

import pytest

from llamasup.core.model import Down, Fleet, Haste, Phase
from llamasup.core.status import ExitStatus, InstanceStatus, Live, all_ready, rows, summary
from tests.core.samples import CRASH, A, at, conf, instance

READY = InstanceStatus(
    name="chat",
    phase="ready",
    reason="before",
    since=1_000_090.0,
    pid=None,
    generation=3,
    kind="chat",
    model="/models/a.gguf",
    aliases=("alias",),
    listen="127.0.0.1:1234",
    restarts=0,
    last_exit=None,
    next_try=None,
    load_seconds=None,
    in_flight=0,
    held=0,
)


def fleet(*instances, confs=("chat",), shutdown=None):
    return Fleet(
        instances={inst.name: inst for inst in instances},
        confs={name: conf(name) for name in confs},
        shutdown=shutdown,
    )


def test_a_row_tells_all_that_is_known():
    inst = instance(
        Phase.READY, restarts=2, last_exit=CRASH, last_exit_wall=77.0, load_seconds=12.5
    )

    assert rows(fleet(inst), {"chat": Live(4711, 2, 1)}, at(100.0)) == (
        replace(
            READY,
            pid=4711,
            restarts=2,
            last_exit=ExitStatus(None, 11, "crash", "killed by SIGSEGV", 77.0),
            load_seconds=12.5,
            in_flight=2,
            held=1,
        ),
    )


def test_the_next_try_is_told_on_the_wall_clock():
    inst = instance(Phase.BACKOFF, deadline=108.0, running=None)

    assert rows(fleet(inst), {}, at(100.0)) == (
        replace(READY, phase="backoff", next_try=1_000_108.0),
    )


def test_only_a_pause_has_a_next_try():
    inst = instance(Phase.LOADING, deadline=108.0)

    assert rows(fleet(inst), {}, at(100.0)) == (replace(READY, phase="loading"),)


@pytest.mark.parametrize(
    ("phase", "goal", "shown"),
    [
        (Phase.STOPPED, Down("storage", waiting=True), "waiting"),
        (Phase.STOPPED, Down("stopped by the operator"), "stopped"),
        (Phase.DRAINING, Down("storage", waiting=True), "draining"),
    ],
)
def test_an_instance_that_is_held_down_is_shown_as_waiting(phase, goal, shown):
    inst = instance(phase, goal=goal, running=None)

    assert rows(fleet(inst), {}, at(100.0)) == (replace(READY, phase=shown),)


def test_a_row_tells_the_model_that_runs_and_not_the_one_to_come():
    inst = instance(Phase.DRAINING)
    changed = replace(fleet(inst), confs={"chat": conf(model="b")})

    assert rows(changed, {}, at(100.0)) == (replace(READY, phase="draining"),)


def test_what_is_no_longer_configured_and_rests_has_a_row_without_facts():
    inst = instance(Phase.FAILED, goal=Down("removed"), running=None)

    expected = replace(READY, phase="failed", kind="", model="", aliases=(), listen="")
    assert rows(fleet(inst, confs=()), {}, at(100.0)) == (expected,)


OTHER = replace(instance(Phase.LOADING), name="embed")
DOWN = replace(instance(Phase.STOPPED, goal=Down("stopped by the operator")), name="rank")
WAITING = replace(instance(Phase.STOPPED, goal=Down("storage", waiting=True)), name="rank")


@pytest.mark.parametrize(
    ("instances", "shutdown", "line", "ready"),
    [
        ((), None, "0/0 ready", True),
        ((instance(Phase.READY),), None, "1/1 ready", True),
        ((instance(Phase.READY), DOWN), None, "1/1 ready", True),
        ((instance(Phase.READY), OTHER), None, "1/2 ready; embed: loading", False),
        ((instance(Phase.UNREADY), OTHER), None, "0/2 ready; chat: unready; embed: loading", False),
        ((instance(Phase.READY), WAITING), None, "1/1 ready", False),
        ((DOWN,), Haste.DRAIN, "shutting down; 0/0 ready", True),
    ],
)
def test_the_summary_counts_what_is_wanted_and_names_what_is_not_ready(
    instances, shutdown, line, ready
):
    state = fleet(*instances, shutdown=shutdown)

    assert (summary(state), all_ready(state)) == (line, ready)
    assert A in (inst.goal for inst in instances) or line.endswith("0/0 ready")

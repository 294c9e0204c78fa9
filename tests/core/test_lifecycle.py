"""Examples of the state machine of one instance; what holds everywhere is in test_enumeration."""

from dataclasses import replace

import pytest

from llamasup.core.lifecycle import recover, step
from llamasup.core.model import (
    Down,
    Due,
    Exited,
    GoalChanged,
    Kill,
    Listening,
    Loaded,
    Phase,
    ProbeFailed,
    ProbePassed,
    Progressed,
    Spawn,
    Terminate,
    Warmed,
)
from llamasup.errors import InvalidTransitionError
from tests.core.samples import (
    CRASH,
    A,
    at,
    instance,
    phase_note,
    spec,
)

NOW = at(100.0)
STOP = Down("stopped by the operator")
TERM, KILL = Terminate("chat", 3), Kill("chat", 3)
A_AGAIN = replace(A, serial=1)


# --- coming up ---


def test_a_launch_keeps_nothing_of_the_former_generation():
    former = instance(
        Phase.BACKOFF,
        fault="stalled",
        hopeless=True,
        terms=2,
        ready_at=60.0,
        responsive=False,
        give_up_at=99.0,
        deadline=100.0,
    )
    unused = instance(Phase.BACKOFF, deadline=100.0)

    assert step(former, Due(), NOW) == step(unused, Due(), NOW)


def test_a_wish_to_run_launches_the_next_generation():
    inst = instance(Phase.STOPPED, goal=STOP, running=None, attempts=4, crashes=(99.0,))

    after, effects = step(inst, GoalChanged(A), NOW)

    assert after == replace(
        inst,
        goal=A,
        phase=Phase.STARTING,
        gen=4,
        running=A,
        deadline=110.0,
        give_up_at=125.0,
        launched_at=100.0,
        phase_wall=NOW.wall,
        reason="generation 4",
        attempts=1,
        crashes=(),
    )
    assert effects == [
        Spawn("chat", 4, spec()),
        phase_note(Phase.STARTING, "generation 4"),
    ]


@pytest.mark.parametrize(
    ("phase", "event", "after"),
    [
        (Phase.STARTING, Listening(3), Phase.LOADING),
        (Phase.STARTING, Loaded(3), Phase.WARMING),
        (Phase.LOADING, Loaded(3), Phase.WARMING),
    ],
)
def test_each_step_of_a_load_has_its_own_deadline(phase, event, after):
    inst = instance(phase, deadline=101.0, give_up_at=120.0)

    assert step(inst, event, NOW) == (
        replace(inst, phase=after, deadline=110.0, phase_wall=NOW.wall),
        [phase_note(after, "before")],
    )


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.LOADING, Phase.WARMING])
def test_progress_extends_the_deadline_of_a_load_but_not_that_of_the_whole(phase):
    inst = instance(phase, deadline=101.0, give_up_at=104.0)

    after, effects = step(inst, Progressed(3), NOW)

    assert (after, effects) == (replace(inst, deadline=110.0), [])
    assert after.wakes_at == 104.0


def test_ready_comes_with_the_warm_up_and_has_no_deadline():
    inst = instance(Phase.WARMING, deadline=101.0, give_up_at=104.0)
    reason = "generation 3, after 50s"

    assert step(inst, Warmed(3), NOW) == (
        replace(
            inst,
            phase=Phase.READY,
            deadline=None,
            give_up_at=None,
            ready_at=100.0,
            load_seconds=50.0,
            phase_wall=NOW.wall,
            reason=reason,
        ),
        [phase_note(Phase.READY, reason)],
    )


@pytest.mark.parametrize(
    ("give_up_at", "fault"),
    [
        (101.0, "the load made no progress for 10s (load_stall_timeout)"),
        (100.0, "not ready within load_timeout (25s)"),
    ],
)
def test_a_load_that_takes_too_long_is_taken_down_with_the_reason(give_up_at, fault):
    inst = instance(Phase.LOADING, deadline=100.0, give_up_at=give_up_at)

    after, effects = step(inst, Due(), NOW)

    assert after == replace(
        inst,
        phase=Phase.STOPPING,
        fault=fault,
        terms=1,
        deadline=115.0,
        give_up_at=None,
        phase_wall=NOW.wall,
        reason=fault,
    )
    assert effects == [TERM, phase_note(Phase.STOPPING, fault)]


# --- probes ---


def test_an_instance_that_does_not_answer_is_unready_until_it_answers_again():
    inst = instance(Phase.READY, ready_at=60.0)

    unready, effects = step(inst, ProbeFailed(3, "no answer in 2s"), NOW)
    assert unready == replace(
        inst,
        phase=Phase.UNREADY,
        responsive=False,
        phase_wall=NOW.wall,
        reason="no answer in 2s",
    )
    assert effects == [phase_note(Phase.UNREADY, "no answer in 2s", "warning")]

    assert step(unready, ProbePassed(3), NOW) == (
        replace(unready, phase=Phase.READY, responsive=True, reason="answers again"),
        [phase_note(Phase.READY, "answers again")],
    )


# --- the table ---


def test_an_event_that_the_table_does_not_know_raises():
    with pytest.raises(InvalidTransitionError, match="chat: Exited in phase stopped"):
        step(instance(Phase.STOPPED), Exited(3, CRASH), NOW)


def test_after_a_bug_of_ours_a_living_process_is_killed_and_a_dead_one_is_tried_again_slowly():
    inst = instance(Phase.READY)
    reason = "internal error in llamasup, see its log"

    killed, effects = recover(inst, alive=True, now=NOW)
    assert effects == [KILL]
    assert (killed.phase, killed.fault, killed.deadline) == (Phase.KILLING, reason, 108.0)

    waiting, effects = recover(inst, alive=False, now=NOW)
    assert effects == []
    assert (waiting.phase, waiting.deadline) == (Phase.BACKOFF, 120.0)
    assert waiting.reason == f"{reason}; next try in 20s"

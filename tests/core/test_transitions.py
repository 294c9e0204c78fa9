"""How a process is left, and what follows from its end and from pauses."""

from dataclasses import replace

import pytest

from llamasup.core.lifecycle import step
from llamasup.core.model import (
    ALIVE,
    Cause,
    Down,
    Drained,
    Due,
    Exit,
    Exited,
    GoalChanged,
    Haste,
    Kill,
    Note,
    Phase,
    ProbeFailed,
    ProbePassed,
    Retry,
    Spawn,
    Terminate,
    Unfit,
)
from tests.core.samples import (
    CRASH,
    MISCONFIGURED,
    RESTART,
    A,
    B,
    at,
    exit_note,
    instance,
    phase_note,
)

NOW = at(100.0)
STOP = Down("stopped by the operator")
TERM, KILL = Terminate("chat", 3), Kill("chat", 3)
A_AGAIN = replace(A, serial=1)


# --- leaving ---


@pytest.mark.parametrize(
    ("phase", "haste", "after", "signals", "deadline"),
    [
        (Phase.STARTING, Haste.DRAIN, Phase.STOPPING, [TERM], 115.0),
        (Phase.LOADING, Haste.STOP, Phase.STOPPING, [TERM], 115.0),
        (Phase.WARMING, Haste.KILL, Phase.KILLING, [KILL], 108.0),
        (Phase.READY, Haste.DRAIN, Phase.DRAINING, [], 130.0),
        (Phase.READY, Haste.STOP, Phase.STOPPING, [TERM], 115.0),
        (Phase.READY, Haste.KILL, Phase.KILLING, [KILL], 108.0),
        (Phase.UNREADY, Haste.DRAIN, Phase.DRAINING, [], 130.0),
        (Phase.UNREADY, Haste.STOP, Phase.STOPPING, [TERM], 115.0),
        (Phase.DRAINING, Haste.DRAIN, Phase.DRAINING, [], 95.0),
        (Phase.DRAINING, Haste.STOP, Phase.STOPPING, [TERM], 115.0),
        (Phase.DRAINING, Haste.KILL, Phase.KILLING, [KILL], 108.0),
        (Phase.STOPPING, Haste.STOP, Phase.STOPPING, [], 95.0),
        (Phase.STOPPING, Haste.KILL, Phase.KILLING, [KILL], 108.0),
        (Phase.KILLING, Haste.KILL, Phase.KILLING, [], 95.0),
        (Phase.STUCK, Haste.KILL, Phase.STUCK, [], 95.0),
    ],
)
@pytest.mark.parametrize("goal", [STOP, B, A_AGAIN], ids=["down", "other spec", "restart"])
def test_a_process_is_left_as_its_phase_and_the_haste_of_the_wish_say(
    phase, haste, after, signals, deadline, goal
):
    goal = replace(goal, haste=haste)
    inst = instance(phase, deadline=95.0)

    result, effects = step(inst, GoalChanged(goal), NOW)

    assert [effect for effect in effects if not isinstance(effect, Note)] == signals
    assert (result.phase, result.deadline, result.goal) == (after, deadline, goal)
    assert (result.running, result.fault) == (A, None)


@pytest.mark.parametrize("phase", ALIVE - {Phase.DRAINING})
def test_a_wish_that_the_process_serves_is_noted_and_no_more(phase):
    inst = instance(phase, goal=STOP, deadline=105.0)

    assert step(inst, GoalChanged(A), NOW) == (replace(inst, goal=A), [])


@pytest.mark.parametrize(("responsive", "phase"), [(True, Phase.READY), (False, Phase.UNREADY)])
def test_a_stop_taken_back_during_the_drain_leaves_the_process_as_it_was(responsive, phase):
    inst = instance(Phase.DRAINING, goal=STOP, deadline=105.0, responsive=responsive)
    reason = "the stop was taken back"

    after, effects = step(inst, GoalChanged(A), NOW)

    assert after == replace(
        inst, goal=A, phase=phase, deadline=None, phase_wall=NOW.wall, reason=reason
    )
    level = "info" if responsive else "warning"
    assert effects == [phase_note(phase, reason, level)]


@pytest.mark.parametrize(("event", "kept"), [(ProbePassed(3), True), (ProbeFailed(3, "x"), False)])
def test_what_probes_say_during_a_drain_is_remembered(event, kept):
    inst = instance(Phase.DRAINING, deadline=105.0, responsive=not kept)

    assert step(inst, event, NOW) == (replace(inst, responsive=kept), [])


@pytest.mark.parametrize(
    ("event", "reason"),
    [(Drained(3), "before"), (Due(), "before; requests were left after 30s")],
)
def test_a_drain_ends_with_the_first_sigterm(event, reason):
    inst = instance(Phase.DRAINING, goal=STOP, deadline=100.0)

    after, effects = step(inst, event, NOW)

    assert after == replace(
        inst, phase=Phase.STOPPING, terms=1, deadline=115.0, phase_wall=NOW.wall, reason=reason
    )
    assert effects == [TERM, phase_note(Phase.STOPPING, reason)]


def test_a_process_that_does_not_end_gets_two_sigterms_and_one_sigkill_and_is_stuck_then():
    inst = instance(Phase.STOPPING, goal=STOP, deadline=100.0, terms=1)
    signals, deadlines = [], []

    while inst.wakes_at is not None and len(deadlines) < 9:
        inst, effects = step(inst, Due(), at(inst.wakes_at))
        signals += [effect for effect in effects if not isinstance(effect, Note)]
        deadlines.append(inst.deadline)

    assert signals == [TERM, KILL]
    assert deadlines == [105.0, 113.0, None]
    assert (inst.phase, inst.reason) == (
        Phase.STUCK,
        "killed 8s ago and not dead; memory and device stay taken",
    )


# --- ends ---


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.KILLING, Phase.STUCK])
def test_an_end_that_was_asked_for_is_no_crash(phase):
    inst = instance(phase, goal=STOP, deadline=105.0, terms=1)

    after, effects = step(inst, Exited(3, CRASH), NOW)

    assert after == replace(
        inst,
        phase=Phase.STOPPED,
        running=None,
        deadline=None,
        phase_wall=NOW.wall,
        reason=STOP.reason,
        last_exit=replace(CRASH, cause=Cause.REQUESTED),
        last_exit_wall=NOW.wall,
    )
    assert effects == [
        exit_note("killed by SIGSEGV", "info"),
        phase_note(Phase.STOPPED, STOP.reason),
    ]


def test_an_end_during_the_drain_counts_as_a_restart_and_needs_no_pause():
    inst = instance(Phase.DRAINING, goal=B, deadline=105.0, attempts=3, crashes=(99.0,))

    after, effects = step(inst, Exited(3, CRASH), NOW)

    assert effects == [
        exit_note("killed by SIGSEGV"),
        Spawn("chat", 4, B.spec),
        phase_note(Phase.STARTING, "generation 4"),
    ]
    assert (after.restarts, after.attempts, after.crashes, after.last_exit) == (1, 1, (), CRASH)


def test_the_first_restart_after_a_stable_run_is_immediate():
    inst = instance(Phase.READY, ready_at=40.0, attempts=3)

    after, effects = step(inst, Exited(3, CRASH), NOW)

    assert effects == [
        exit_note("killed by SIGSEGV"),
        Spawn("chat", 4, A.spec),
        phase_note(Phase.STARTING, "generation 4"),
    ]
    assert (after.attempts, after.crashes, after.restarts) == (1, (100.0,), 1)


@pytest.mark.parametrize(
    ("phase", "ready_at", "attempts", "full"),
    [
        (Phase.READY, 40.1, 1, 1.0),
        (Phase.UNREADY, 90.0, 2, 2.0),
        (Phase.LOADING, None, 3, 4.0),
        (Phase.STARTING, None, 4, 8.0),
        (Phase.WARMING, None, 9, 20.0),
    ],
)
def test_later_ends_wait_twice_as_long_each_time(phase, ready_at, attempts, full):
    inst = instance(phase, ready_at=ready_at, attempts=attempts)

    after, effects = step(inst, Exited(3, CRASH), NOW)

    assert after.phase is Phase.BACKOFF
    assert after.deadline is not None
    assert 100.0 + full / 2 <= after.deadline <= 100.0 + full
    assert (after.attempts, after.crashes) == (attempts + 1, (100.0,))
    assert (after.running, after.restarts, after.last_exit) == (None, 1, CRASH)
    assert effects[0] == exit_note("killed by SIGSEGV")
    assert after.reason.startswith("killed by SIGSEGV; next try in ")


@pytest.mark.parametrize(
    ("crashes", "loops"),
    [
        ((97.0, 98.0), False),
        ((0.0, 97.0, 98.0), False),  # the first one has just left the window
        ((0.1, 97.0, 98.0), True),
    ],
)
def test_more_ends_than_burst_inside_the_window_lead_to_slow_tries(crashes, loops):
    inst = instance(Phase.READY, ready_at=0.0, crashes=crashes)

    after, _ = step(inst, Exited(3, CRASH), NOW)

    if loops:
        reason = "crash loop (4 ends within 1m40s): killed by SIGSEGV; next try in 20s"
        assert (after.phase, after.reason, after.deadline) == (Phase.BACKOFF, reason, 120.0)
    else:
        assert after.phase is Phase.STARTING
    assert after.crashes == (*[moment for moment in crashes if moment > 0.0], 100.0)


def test_no_more_crashes_are_kept_than_the_rule_needs():
    inst = instance(Phase.READY, crashes=(95.0, 96.0, 97.0, 98.0))

    after, _ = step(inst, Exited(3, CRASH), NOW)

    assert after.crashes == (96.0, 97.0, 98.0, 100.0)
    assert len(after.crashes) == RESTART.burst + 1


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.LOADING, Phase.WARMING, Phase.READY])
def test_an_end_that_no_retry_mends_is_not_retried(phase):
    inst = instance(phase, deadline=105.0, give_up_at=110.0)

    after, effects = step(inst, Exited(3, MISCONFIGURED), NOW)

    assert after == replace(
        inst,
        phase=Phase.FAILED,
        running=None,
        deadline=None,
        give_up_at=None,
        phase_wall=NOW.wall,
        reason=MISCONFIGURED.detail,
        attempts=2,
        crashes=(100.0,),
        restarts=1,
        last_exit=MISCONFIGURED,
        last_exit_wall=NOW.wall,
    )
    assert effects[-1] == phase_note(Phase.FAILED, MISCONFIGURED.detail, "error")


def test_a_child_that_runs_but_not_as_configured_is_taken_down_and_fails():
    inst = instance(Phase.LOADING, deadline=105.0, give_up_at=110.0)
    reason = "4096 tokens per slot, not 8192"

    inst, effects = step(inst, Unfit(3, reason), NOW)
    assert effects == [TERM, phase_note(Phase.STOPPING, reason)]
    inst, _ = step(inst, Exited(3, Exit(0, None, Cause.CRASH, "exit code 0")), at(101.0))

    assert (inst.phase, inst.reason, inst.running) == (Phase.FAILED, reason, None)
    assert inst.last_exit == Exit(0, None, Cause.CONFIG, f"{reason} (exit code 0)")
    assert (inst.fault, inst.hopeless, inst.restarts) == (None, False, 1)


def test_a_load_that_stalled_is_tried_again_after_a_pause():
    inst = instance(Phase.STOPPING, fault="stalled", terms=1)

    after, _ = step(inst, Exited(3, CRASH), NOW)

    assert after.phase is Phase.BACKOFF
    assert after.reason.startswith("stalled; next try in ")
    assert after.last_exit == replace(CRASH, detail="stalled (killed by SIGSEGV)")
    assert after.fault is None


@pytest.mark.parametrize("goal", [B, A_AGAIN])
@pytest.mark.parametrize("fault", [None, "stalled"])
def test_another_wish_is_launched_at_once_when_the_former_process_has_ended(goal, fault):
    inst = instance(Phase.STOPPING, goal=goal, fault=fault, hopeless=True, attempts=5)

    after, effects = step(inst, Exited(3, MISCONFIGURED), NOW)

    assert Spawn("chat", 4, goal.spec) in effects
    assert (after.phase, after.running, after.attempts) == (Phase.STARTING, goal, 1)
    assert (after.fault, after.hopeless) == (None, False)


# --- pauses and failures ---


@pytest.mark.parametrize("phase", [Phase.BACKOFF, Phase.FAILED])
@pytest.mark.parametrize("event", [Retry(), GoalChanged(B), GoalChanged(A_AGAIN)])
def test_a_person_or_a_change_starts_at_once_and_forgets_former_crashes(phase, event):
    inst = instance(phase, running=None, deadline=105.0, attempts=4, crashes=(98.0, 99.0))

    after, effects = step(inst, event, NOW)

    assert effects[0] == Spawn("chat", 4, after.goal.spec)
    assert (after.phase, after.attempts, after.crashes) == (Phase.STARTING, 1, ())


def test_a_pause_that_is_over_starts_and_keeps_the_count():
    inst = instance(Phase.BACKOFF, running=None, deadline=100.0, attempts=4, crashes=(98.0, 99.0))

    after, effects = step(inst, Due(), NOW)

    assert effects[0] == Spawn("chat", 4, A.spec)
    assert (after.phase, after.attempts, after.crashes) == (Phase.STARTING, 4, (98.0, 99.0))


@pytest.mark.parametrize("phase", [Phase.BACKOFF, Phase.FAILED])
def test_a_stop_ends_a_pause_and_a_failure(phase):
    inst = instance(phase, running=None, deadline=105.0)

    after, effects = step(inst, GoalChanged(STOP), NOW)

    assert after == replace(
        inst,
        goal=STOP,
        phase=Phase.STOPPED,
        deadline=None,
        phase_wall=NOW.wall,
        reason=STOP.reason,
    )
    assert effects == [phase_note(Phase.STOPPED, STOP.reason)]


def test_another_reason_to_rest_does_not_make_the_rest_any_younger():
    inst = instance(Phase.STOPPED, goal=STOP, running=None)
    other = Down("llamasup is shutting down")

    assert step(inst, GoalChanged(other), NOW) == (
        replace(inst, goal=other, reason=other.reason),
        [],
    )

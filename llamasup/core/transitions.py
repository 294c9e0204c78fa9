"""The transitions of one instance: what each event does in a phase. The table is in `lifecycle`.

Each takes the instance, its event and the moment, and returns the new instance and what is to be
done. None touches anything.
"""

from dataclasses import replace
from typing import TypeAlias

from llamasup.clock import Now
from llamasup.core.backoff import recent, restart_delay
from llamasup.core.model import (
    Cause,
    Down,
    Drained,
    Due,
    Effect,
    Event,
    Exit,
    Exited,
    GoalChanged,
    Haste,
    Instance,
    Kill,
    Listening,
    Loaded,
    Note,
    Phase,
    ProbeFailed,
    ProbePassed,
    Progressed,
    Retry,
    Spawn,
    Terminate,
    Unfit,
    Up,
    Warmed,
)
from llamasup.core.text import seconds

Step: TypeAlias = tuple[Instance, list[Effect]]


# --- small steps that transitions are made of ---------------------------------------------------


def _enter(inst: Instance, phase: Phase, now: Now, reason: str, timeout: float | None) -> Instance:
    deadline = None if timeout is None else now.mono + timeout
    return replace(inst, phase=phase, phase_wall=now.wall, reason=reason, deadline=deadline)


def stay(inst: Instance, _event: Event, _now: Now) -> Step:
    return inst, []


def _start(inst: Instance, goal: Up, now: Now) -> Step:
    gen = inst.gen + 1
    inst = replace(
        inst,
        gen=gen,
        running=goal,
        give_up_at=now.mono + inst.policy.load_timeout,
        launched_at=now.mono,
        fault=None,
        hopeless=False,
        terms=0,
        ready_at=None,
        responsive=True,
    )
    inst = _enter(inst, Phase.STARTING, now, f"generation {gen}", inst.policy.load_stall_timeout)
    return inst, [Spawn(inst.name, gen, goal.spec)]


def _start_afresh(inst: Instance, goal: Up, now: Now) -> Step:
    """Start because something changed or a person asked: former crashes do not count."""
    return _start(replace(inst, attempts=1, crashes=(), looping=False), goal, now)


def _rest(inst: Instance, phase: Phase, now: Now, reason: str) -> Instance:
    """Come to rest without a process."""
    inst = replace(inst, running=None, give_up_at=None, fault=None, hopeless=False, ready_at=None)
    return _enter(inst, phase, now, reason, None)


def _terminate(inst: Instance, now: Now, reason: str) -> Step:
    inst = replace(inst, terms=1, give_up_at=None)
    inst = _enter(inst, Phase.STOPPING, now, reason, inst.policy.stop_timeout)
    return inst, [Terminate(inst.name, inst.gen)]


def kill(inst: Instance, now: Now, reason: str) -> Step:
    inst = replace(inst, give_up_at=None)
    inst = _enter(inst, Phase.KILLING, now, reason, inst.policy.kill_timeout)
    return inst, [Kill(inst.name, inst.gen)]


def _why(goal: Up | Down) -> str:
    return goal.reason if isinstance(goal, Down) else "to be launched anew"


def _leave(inst: Instance, now: Now, *, drain: bool) -> Step:
    """Leave the running process for a goal that it does not serve."""
    why = _why(inst.goal)
    if inst.goal.haste >= Haste.KILL:
        return kill(inst, now, why)
    if drain and inst.goal.haste is Haste.DRAIN:
        return _enter(inst, Phase.DRAINING, now, why, inst.policy.drain_timeout), []
    return _terminate(inst, now, why)


# --- goals --------------------------------------------------------------------------------------


def goal_at_rest(inst: Instance, event: GoalChanged, now: Now) -> Step:
    former, inst = inst.goal, replace(inst, goal=event.goal)
    match event.goal:
        case Up() if isinstance(former, Up) and event.goal.same_process(former):
            return inst, []  # only the haste is new: no reason to cut a pause short
        case Up():
            return _start_afresh(inst, event.goal, now)
        case Down() if inst.phase is Phase.STOPPED:
            return replace(inst, reason=event.goal.reason), []  # it has rested all along
        case Down():
            return _rest(inst, Phase.STOPPED, now, event.goal.reason), []


def goal_while_loading(inst: Instance, event: GoalChanged, now: Now) -> Step:
    inst = replace(inst, goal=event.goal)
    if isinstance(event.goal, Up) and event.goal.same_process(inst.running):
        return inst, []
    return _leave(inst, now, drain=False)


def goal_while_serving(inst: Instance, event: GoalChanged, now: Now) -> Step:
    inst = replace(inst, goal=event.goal)
    if isinstance(event.goal, Up) and event.goal.same_process(inst.running):
        return inst, []
    return _leave(inst, now, drain=True)


def goal_while_draining(inst: Instance, event: GoalChanged, now: Now) -> Step:
    inst = replace(inst, goal=event.goal)
    if isinstance(event.goal, Up) and event.goal.same_process(inst.running):
        phase = Phase.READY if inst.responsive else Phase.UNREADY
        return _enter(inst, phase, now, "the stop was taken back", None), []
    if event.goal.haste is Haste.DRAIN:
        return inst, []  # the drain goes on, whatever comes after it
    return _leave(inst, now, drain=False)


def goal_while_ending(inst: Instance, event: GoalChanged, now: Now) -> Step:
    inst = replace(inst, goal=event.goal)
    if event.goal.haste >= Haste.KILL and inst.phase is Phase.STOPPING:
        return kill(inst, now, _why(event.goal))
    return inst, []


# --- loading ------------------------------------------------------------------------------------


def listening(inst: Instance, _event: Listening, now: Now) -> Step:
    timeout = inst.policy.load_stall_timeout
    return _enter(inst, Phase.LOADING, now, inst.reason, timeout), []


def progressed(inst: Instance, _event: Progressed, now: Now) -> Step:
    return replace(inst, deadline=now.mono + inst.policy.load_stall_timeout), []


def loaded(inst: Instance, _event: Loaded, now: Now) -> Step:
    timeout = inst.policy.load_stall_timeout
    return _enter(inst, Phase.WARMING, now, inst.reason, timeout), []


def warmed(inst: Instance, _event: Warmed, now: Now) -> Step:
    took = now.mono - inst.launched_at
    inst = replace(inst, ready_at=now.mono, load_seconds=took, give_up_at=None)
    reason = f"generation {inst.gen}, after {seconds(took)}"
    return _enter(inst, Phase.READY, now, reason, None), []


def unfit(inst: Instance, event: Unfit, now: Now) -> Step:
    return _terminate(replace(inst, fault=event.reason, hopeless=True), now, event.reason)


def load_timed_out(inst: Instance, _event: Due, now: Now) -> Step:
    if inst.give_up_at is not None and now.mono >= inst.give_up_at:
        fault = f"not ready within load_timeout ({seconds(inst.policy.load_timeout)})"
    else:
        stall = seconds(inst.policy.load_stall_timeout)
        fault = f"the load made no progress for {stall} (load_stall_timeout)"
    return _terminate(replace(inst, fault=fault), now, fault)


# --- serving ------------------------------------------------------------------------------------


def probe_failed(inst: Instance, event: ProbeFailed, now: Now) -> Step:
    inst = replace(inst, responsive=False)
    return _enter(inst, Phase.UNREADY, now, event.reason, None), []


def probe_passed(inst: Instance, _event: ProbePassed, now: Now) -> Step:
    inst = replace(inst, responsive=True)
    return _enter(inst, Phase.READY, now, "answers again", None), []


def note_probe(inst: Instance, event: ProbePassed | ProbeFailed, _now: Now) -> Step:
    return replace(inst, responsive=isinstance(event, ProbePassed)), []


def drained(inst: Instance, _event: Drained, now: Now) -> Step:
    return _terminate(inst, now, inst.reason)


def drain_timed_out(inst: Instance, _event: Due, now: Now) -> Step:
    limit = seconds(inst.policy.drain_timeout)
    inst, effects = _terminate(inst, now, f"{inst.reason}; requests were left after {limit}")
    return inst, effects


# --- ending -------------------------------------------------------------------------------------


def stop_timed_out(inst: Instance, _event: Due, now: Now) -> Step:
    """Send the second SIGTERM, at which llama-server ends at once; after that, SIGKILL."""
    if inst.terms < 2:
        deadline = now.mono + inst.policy.stop_again_timeout
        return replace(inst, terms=2, deadline=deadline), [Terminate(inst.name, inst.gen)]
    return kill(inst, now, f"{inst.reason}; did not end on two SIGTERMs")


def kill_timed_out(inst: Instance, _event: Due, now: Now) -> Step:
    reason = (
        f"killed {seconds(inst.policy.kill_timeout)} ago and not dead; memory and device stay taken"
    )
    return _enter(inst, Phase.STUCK, now, reason, None), []


def _record(inst: Instance, end: Exit, now: Now) -> Step:
    inst = replace(inst, last_exit=end, last_exit_wall=now.wall)
    level = "info" if end.cause is Cause.REQUESTED else "warning"
    return inst, [Note(inst.name, "exit", f"generation {inst.gen} ended: {end.detail}", level)]


def exited_unasked(inst: Instance, event: Exited, now: Now) -> Step:
    inst, effects = _record(inst, event.exit, now)
    inst, more = _after_crash(inst, event.exit.detail, _is_hopeless(inst, event.exit), now)
    return inst, effects + more


def _is_hopeless(inst: Instance, end: Exit) -> bool:
    """Tell whether trying again is useless.

    A binary that ran before and cannot be executed now is being replaced, or its disk is away.
    """
    was_executed = end.code is not None or end.signal is not None
    return end.cause is Cause.CONFIG and (was_executed or inst.load_seconds is None)


def exited_draining(inst: Instance, event: Exited, now: Now) -> Step:
    """End where an end was to be asked for anyway: no pause, but it counts as a restart."""
    inst, effects = _record(replace(inst, restarts=inst.restarts + 1), event.exit, now)
    inst, more = _after_stop(inst, now)
    return inst, effects + more


def exited_asked(inst: Instance, event: Exited, now: Now) -> Step:
    if inst.fault is None:
        end = replace(event.exit, cause=Cause.REQUESTED)
        inst, effects = _record(inst, end, now)
        inst, more = _after_stop(inst, now)
        return inst, effects + more
    cause = Cause.CONFIG if inst.hopeless else Cause.CRASH
    end = replace(event.exit, cause=cause, detail=f"{inst.fault} ({event.exit.detail})")
    fault, hopeless = inst.fault, inst.hopeless
    inst, effects = _record(inst, end, now)
    inst, more = _after_crash(inst, fault, hopeless, now)
    return inst, effects + more


def _after_stop(inst: Instance, now: Now) -> Step:
    match inst.goal:
        case Up():
            return _start_afresh(inst, inst.goal, now)
        case Down():
            return _rest(inst, Phase.STOPPED, now, inst.goal.reason), []


def _after_crash(inst: Instance, detail: str, hopeless: bool, now: Now) -> Step:
    """Decide on the next try. The first rule that applies wins."""
    policy = inst.policy.restart
    stable = inst.ready_at is not None and now.mono - inst.ready_at >= policy.stable
    attempts = 0 if stable else inst.attempts
    crashes = (*recent(inst.crashes, policy, now.mono), now.mono)[-policy.burst - 1 :]
    looping = len(crashes) > policy.burst or (inst.looping and not stable)
    inst = replace(
        inst,
        crashes=crashes,
        attempts=attempts + 1,
        looping=looping,
        restarts=inst.restarts + 1,
    )
    if isinstance(inst.goal, Down) or not inst.goal.same_process(inst.running):
        return _after_stop(inst, now)
    if hopeless:
        return _rest(inst, Phase.FAILED, now, detail), []
    if len(crashes) > policy.burst:
        count, window = len(crashes), seconds(policy.window)
        detail = f"crash loop ({count} ends within {window}): {detail}"
    elif looping:
        detail = f"crash loop: {detail}"  # the slow tries have left the window empty
    if looping:
        return back_off(inst, policy.max_delay, now, detail), []
    delay = restart_delay(policy, inst.name, attempts)
    if delay == 0.0:
        return _start(inst, inst.goal, now)
    return back_off(inst, delay, now, detail), []


def back_off(inst: Instance, delay: float, now: Now, detail: str) -> Instance:
    inst = _rest(inst, Phase.BACKOFF, now, f"{detail}; next try in {seconds(delay)}")
    return replace(inst, deadline=now.mono + delay)


def try_again(inst: Instance, _event: Due, now: Now) -> Step:
    match inst.goal:
        case Up():
            return _start(inst, inst.goal, now)
        case Down():
            return _rest(inst, Phase.STOPPED, now, inst.goal.reason), []


def retry_now(inst: Instance, _event: Retry, now: Now) -> Step:
    match inst.goal:
        case Up():
            return _start_afresh(inst, inst.goal, now)
        case Down():
            return inst, []

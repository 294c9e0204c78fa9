"""The state machine of one instance: a table of (phase, event) → transition.

``step`` is the only way in. News of an older generation changes nothing; a pair that the table does
not know raises, because silence would hide a bug. A transition returns the new instance and what is
to be done; it touches nothing itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from llamasup.clock import Now
from llamasup.core import transitions as to
from llamasup.core.model import (
    Drained,
    Due,
    Event,
    Exited,
    GoalChanged,
    Instance,
    Listening,
    Loaded,
    Note,
    Phase,
    ProbeFailed,
    ProbePassed,
    Progressed,
    Retry,
    Unfit,
    Warmed,
)
from llamasup.core.transitions import Step
from llamasup.errors import InvalidTransitionError

# Any: each entry takes the one event type it is listed under, which a dict cannot express.
Transition: TypeAlias = Callable[[Instance, Any, Now], Step]

LEVELS = {
    Phase.UNREADY: "warning",
    Phase.KILLING: "warning",
    Phase.BACKOFF: "warning",
    Phase.STUCK: "error",
    Phase.FAILED: "error",
}


def step(inst: Instance, event: Event, now: Now) -> Step:
    """Return *inst* after *event*, and what is to be done. Raises `InvalidTransitionError`."""
    if not isinstance(event, GoalChanged | Due | Retry) and event.gen != inst.gen:
        return inst, []  # late news of an older generation
    transition = TRANSITIONS[inst.phase].get(type(event))
    if transition is None:
        raise InvalidTransitionError(f"{inst.name}: {type(event).__name__} in phase {inst.phase}")
    after, effects = transition(inst, event, now)
    if after.phase is not inst.phase:
        message = f"{after.phase}: {after.reason}" if after.reason else str(after.phase)
        note = Note(inst.name, "phase", message, LEVELS.get(after.phase, "info"))
        effects = [*effects, note]
    return after, effects


# --- the table ----------------------------------------------------------------------------------

# News that a living generation may send at any time and that does not matter in the phase.
_QUIET: dict[type, Transition] = {
    Listening: to.stay,
    Progressed: to.stay,
    Loaded: to.stay,
    Unfit: to.stay,
    Warmed: to.stay,
    ProbePassed: to.stay,
    ProbeFailed: to.stay,
    Drained: to.stay,
    Retry: to.stay,
}

_LOADING: dict[type, Transition] = {
    **_QUIET,
    GoalChanged: to.goal_while_loading,
    Due: to.load_timed_out,
    Listening: to.listening,
    Progressed: to.progressed,  # a model may load for an hour; only a standstill counts
    Loaded: to.loaded,
    Unfit: to.unfit,
    Exited: to.exited_unasked,
}

_SERVING: dict[type, Transition] = {
    **_QUIET,
    GoalChanged: to.goal_while_serving,
    Exited: to.exited_unasked,
}

_ENDING: dict[type, Transition] = {
    **_QUIET,
    GoalChanged: to.goal_while_ending,
    Exited: to.exited_asked,
}

TRANSITIONS: dict[Phase, dict[type, Transition]] = {
    # A rest has no living generation: news can only be late news of the last one.
    Phase.STOPPED: {**_QUIET, GoalChanged: to.goal_at_rest},
    Phase.STARTING: _LOADING,
    Phase.LOADING: {**_LOADING, Listening: to.stay},
    Phase.WARMING: {**_LOADING, Listening: to.stay, Loaded: to.stay, Warmed: to.warmed},
    Phase.READY: {**_SERVING, ProbeFailed: to.probe_failed},
    Phase.UNREADY: {**_SERVING, ProbePassed: to.probe_passed},
    Phase.DRAINING: {
        **_QUIET,
        GoalChanged: to.goal_while_draining,
        Due: to.drain_timed_out,
        Drained: to.drained,
        ProbePassed: to.note_probe,
        ProbeFailed: to.note_probe,
        Exited: to.exited_draining,
    },
    Phase.STOPPING: {**_ENDING, Due: to.stop_timed_out},
    Phase.KILLING: {**_ENDING, Due: to.kill_timed_out},
    Phase.STUCK: _ENDING,
    Phase.BACKOFF: {**_QUIET, GoalChanged: to.goal_at_rest, Due: to.try_again, Retry: to.retry_now},
    Phase.FAILED: {**_QUIET, GoalChanged: to.goal_at_rest, Retry: to.retry_now},
}


def recover(inst: Instance, *, alive: bool, now: Now) -> Step:
    """Return to a known state after an `InvalidTransitionError`, by what the kernel says.

    A bug of ours in one instance must not take the other models down.
    """
    reason = "internal error in llamasup, see its log"
    if alive:
        return to.kill(replace(inst, fault=reason), now, reason)
    return to.back_off(inst, inst.policy.restart.max_delay, now, reason), []

"""Operations: an operator's command, followed until it is done, failed or overtaken. Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum

from llamasup.clock import Now
from llamasup.core.model import Down, Fleet, Instance, Phase, Verb


class Outcome(StrEnum):
    """How far an operation is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"  # a later command for the same instance took over


@dataclass(frozen=True, slots=True)
class Operation:
    """One command under way. *gen* was the last generation at that time; times in Unix seconds."""

    id: str
    name: str
    verb: Verb
    gen: int
    started: float
    outcome: Outcome = Outcome.RUNNING
    message: str = ""
    ended: float | None = None


def follow(operation: Operation, fleet: Fleet, now: Now) -> Operation:
    """Return *operation* as it stands with *fleet*: unchanged while it runs, ended otherwise."""
    if operation.outcome is not Outcome.RUNNING:
        return operation
    inst = fleet.instances.get(operation.name)
    if inst is None:
        return _end(operation, Outcome.SUPERSEDED, "the instance was removed", now)
    if operation.verb is Verb.STOP:
        outcome = _stop_outcome(inst)
    else:
        outcome = _start_outcome(inst, operation)
    if outcome is Outcome.RUNNING:
        return operation
    return _end(operation, outcome, f"{inst.phase}: {inst.reason}", now)


def overtaken(operation: Operation, by: Verb, now: Now) -> Operation:
    """Return *operation* after a later command *by* for the same instance."""
    same = operation.verb is by and by is not Verb.RESTART
    if operation.outcome is not Outcome.RUNNING or same:
        return operation
    return _end(operation, Outcome.SUPERSEDED, f"a later {by} took over", now)


def _stop_outcome(inst: Instance) -> Outcome:
    match inst.phase:
        case Phase.STOPPED:
            return Outcome.DONE
        case Phase.STUCK:
            return Outcome.FAILED
        case _:
            return Outcome.RUNNING


def _start_outcome(inst: Instance, operation: Operation) -> Outcome:
    fresh = inst.gen > operation.gen
    if isinstance(inst.goal, Down):
        return Outcome.SUPERSEDED  # a shutdown, or a reload that took it out
    match inst.phase:
        case Phase.READY if fresh or operation.verb is Verb.START:
            return Outcome.DONE
        case Phase.BACKOFF if fresh:
            return Outcome.FAILED  # its launch ended badly; the instance itself goes on trying
        case Phase.FAILED | Phase.STUCK:
            return Outcome.FAILED  # nothing more comes by itself
        case _:
            return Outcome.RUNNING


def _end(operation: Operation, outcome: Outcome, message: str, now: Now) -> Operation:
    return replace(operation, outcome=outcome, message=message, ended=now.wall)

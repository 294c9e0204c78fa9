"""All instances together: ``handle`` takes one fact, returns the new fleet and what to do."""

from dataclasses import replace
from typing import TypeVar

from llamasup.clock import Now
from llamasup.config.spec import InstanceConf
from llamasup.core.desired import desired
from llamasup.core.lifecycle import step
from llamasup.core.model import (
    ALIVE,
    Command,
    ConfigLoaded,
    Down,
    Due,
    Effect,
    Event,
    Fact,
    Fleet,
    GoalChanged,
    Haste,
    Instance,
    InstanceNews,
    Note,
    Override,
    Phase,
    Retry,
    ShutdownRequested,
    Tick,
    Verb,
)

T = TypeVar("T")


def handle(fleet: Fleet, fact: Fact, now: Now) -> tuple[Fleet, list[Effect]]:
    """Learn *fact*, give every instance its goal, wake what is due.

    Goals come before deadlines: a pause that ends at the moment of a stop must not end in a launch.
    """
    fleet, effects = _learn(fleet, fact, now)
    for name, inst in fleet.instances.items():
        goal = desired(fleet, name)
        if goal != inst.goal:
            fleet, more = _step(fleet, name, GoalChanged(goal), now)
            effects += more
    for name, inst in fleet.instances.items():
        if inst.wakes_at is not None and now.mono >= inst.wakes_at:
            fleet, more = _step(fleet, name, Due(), now)
            effects += more
    return _forget_removed(fleet), effects


def next_deadline(fleet: Fleet) -> float | None:
    """Return the monotonic moment of the next `Tick` that matters, None if nothing is due."""
    moments = (inst.wakes_at for inst in fleet.instances.values())
    return min((at for at in moments if at is not None), default=None)


def is_over(fleet: Fleet) -> bool:
    """Tell whether the daemon may end: no process is left, save those that cannot be killed."""
    at_rest = (
        inst.phase not in ALIVE or inst.phase is Phase.STUCK for inst in fleet.instances.values()
    )
    return fleet.shutdown is not None and all(at_rest)


def _step(fleet: Fleet, name: str, event: Event, now: Now) -> tuple[Fleet, list[Effect]]:
    inst, effects = step(fleet.instances[name], event, now)
    return replace(fleet, instances={**fleet.instances, name: inst}), effects


def _learn(fleet: Fleet, fact: Fact, now: Now) -> tuple[Fleet, list[Effect]]:
    match fact:
        case ConfigLoaded():
            return _learn_config(fleet, fact.instances, now), []
        case InstanceNews():
            if fact.name not in fleet.instances:
                return fleet, []  # the last words of an instance that was removed
            return _step(fleet, fact.name, fact.news, now)
        case Command():
            if fact.name not in fleet.instances:
                return fleet, []  # removed while the command was under way
            return _learn_command(fleet, fact, now)
        case ShutdownRequested():
            haste = max(fact.haste, fleet.shutdown or Haste.DRAIN)
            return replace(fleet, shutdown=haste), []
        case Tick():
            return fleet, []


def _learn_config(fleet: Fleet, confs: tuple[InstanceConf, ...], now: Now) -> Fleet:
    instances: dict[str, Instance] = {}
    for conf in confs:
        known = fleet.instances.get(conf.name)
        if known is None:
            gen = fleet.gens.get(conf.name, 0)
            known = Instance(conf.name, conf.policy, Down("new"), gen=gen, phase_wall=now.wall)
        instances[conf.name] = replace(known, policy=conf.policy)
    leaving = {name: inst for name, inst in fleet.instances.items() if name not in instances}
    instances |= leaving
    # What a reload changes is drained, whatever haste the last command asked for.
    return replace(fleet, instances=instances, confs={conf.name: conf for conf in confs}, hastes={})


def _learn_command(fleet: Fleet, command: Command, now: Now) -> tuple[Fleet, list[Effect]]:
    name = command.name
    overrides, serials = dict(fleet.overrides), dict(fleet.serials)
    if command.verb is Verb.STOP:
        overrides[name] = Override.STOPPED
    else:
        overrides[name] = Override.STARTED
    if command.verb is Verb.RESTART:
        serials[name] = serials.get(name, 0) + 1
    hastes = {**fleet.hastes, name: command.haste}
    fleet = replace(fleet, overrides=overrides, serials=serials, hastes=hastes)
    note = Note(name, "operator", f"{command.verb} by the operator")
    waits = fleet.instances[name].phase in (Phase.BACKOFF, Phase.FAILED)
    if command.verb is Verb.START and waits:
        fleet, effects = _step(fleet, name, Retry(), now)
        return fleet, [note, *effects]
    return fleet, [note]


def _forget_removed(fleet: Fleet) -> Fleet:
    gone = [
        name
        for name, inst in fleet.instances.items()
        if name not in fleet.confs and inst.phase is Phase.STOPPED
    ]
    if not gone:
        return fleet

    return replace(
        fleet,
        instances=_without(gone, fleet.instances),
        gens={**fleet.gens, **{name: fleet.instances[name].gen for name in gone}},
        overrides=_without(gone, fleet.overrides),
        serials=_without(gone, fleet.serials),
        hastes=_without(gone, fleet.hastes),
    )


def _without(gone: list[str], table: dict[str, T]) -> dict[str, T]:
    return {name: value for name, value in table.items() if name not in gone}

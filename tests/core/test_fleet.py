"""Examples of the whole fleet; random lives are in test_fleet_properties."""

from dataclasses import replace

import pytest

from llamasup.core.fleet import handle, is_over, next_deadline
from llamasup.core.model import (
    ALIVE,
    Command,
    ConfigLoaded,
    Down,
    Fleet,
    Haste,
    InstanceNews,
    Note,
    Override,
    Phase,
    ProbeFailed,
    ShutdownRequested,
    Spawn,
    Terminate,
    Tick,
    Up,
    Verb,
)
from tests.core.samples import POLICY, A, at, conf, instance, spec

NOW = at(100.0)


def fleet_of(*instances, **changes) -> Fleet:
    table = {inst.name: inst for inst in instances}
    return replace(Fleet(table, {name: conf(name) for name in table}), **changes)


def signals(effects):
    return [effect for effect in effects if not isinstance(effect, Note)]


def test_every_instance_of_a_new_configuration_is_launched_in_the_order_of_the_file():
    confs = (conf("chat"), conf("embed"), conf("rank", policy=replace(POLICY, autostart=False)))

    fleet, effects = handle(Fleet(), ConfigLoaded(confs), NOW)

    assert signals(effects) == [Spawn("chat", 1, spec("chat")), Spawn("embed", 1, spec("embed"))]
    phases = [(name, inst.phase) for name, inst in fleet.instances.items()]
    assert phases == [
        ("chat", Phase.STARTING),
        ("embed", Phase.STARTING),
        ("rank", Phase.STOPPED),
    ]
    assert fleet.instances["rank"].reason == "not started yet (autostart = false)"


def test_a_reload_changes_policies_live_and_leaves_what_runs_alone():
    fleet = fleet_of(instance(Phase.READY), hastes={"chat": Haste.KILL})
    fleet = replace(fleet, instances={"chat": instance(Phase.READY, goal=A)}, hastes={})
    policy = replace(POLICY, stop_timeout=99.0)

    after, effects = handle(fleet, ConfigLoaded((conf(policy=policy),)), NOW)

    assert effects == []
    assert after == replace(
        fleet,
        instances={"chat": instance(Phase.READY, policy=policy)},
        confs={"chat": conf(policy=policy)},
    )


def test_a_reload_drains_what_changed_whatever_haste_the_last_command_had():
    fleet = fleet_of(instance(Phase.READY), hastes={"chat": Haste.KILL})

    after, effects = handle(fleet, ConfigLoaded((conf(model="b"),)), NOW)

    assert signals(effects) == []
    assert after.instances["chat"].phase is Phase.DRAINING
    assert after.instances["chat"].goal == Up(spec(model="b"))


@pytest.mark.parametrize("phase", [Phase.BACKOFF, Phase.FAILED])
def test_a_reload_that_changes_nothing_cuts_no_pause_short(phase):
    goal = replace(A, haste=Haste.KILL)
    inst = instance(phase, goal=goal, running=None, deadline=105.0)
    fleet = fleet_of(inst, hastes={"chat": Haste.KILL})

    after, effects = handle(fleet, ConfigLoaded((conf(),)), NOW)

    assert effects == []
    assert after.instances == {"chat": replace(inst, goal=A)}


def test_what_a_reload_took_out_is_forgotten_when_it_has_ended_and_never_repeats_a_number():
    fleet = fleet_of(
        instance(Phase.STOPPED, goal=Down("x")),
        overrides={"chat": Override.STOPPED},
        serials={"chat": 1},
    )

    gone, _ = handle(fleet, ConfigLoaded(()), NOW)
    assert gone == Fleet(gens={"chat": 3})

    _, effects = handle(gone, ConfigLoaded((conf(),)), NOW)
    assert signals(effects) == [Spawn("chat", 4, spec())]


@pytest.mark.parametrize("phase", Phase)
def test_what_a_reload_took_out_stays_known_while_it_has_a_process(phase):
    fleet, _ = handle(fleet_of(instance(phase)), ConfigLoaded(()), NOW)

    assert ("chat" in fleet.instances) == (phase in ALIVE)


def test_instances_are_kept_in_the_order_of_the_file_and_leaving_ones_last():
    fleet = fleet_of(*(replace(instance(Phase.READY), name=name) for name in ("x", "a", "c")))

    after, _ = handle(fleet, ConfigLoaded((conf("a"), conf("b"), conf("c"))), NOW)

    assert list(after.instances) == ["a", "b", "c", "x"]


@pytest.mark.parametrize(
    ("phase", "verb", "sent"),
    [
        (Phase.BACKOFF, Verb.START, [Spawn("chat", 4, spec())]),
        (Phase.FAILED, Verb.START, [Spawn("chat", 4, spec())]),
        (Phase.FAILED, Verb.RESTART, [Spawn("chat", 4, spec())]),
        (Phase.BACKOFF, Verb.STOP, []),
        (Phase.READY, Verb.START, []),
        (Phase.READY, Verb.STOP, [Terminate("chat", 3)]),
        (Phase.READY, Verb.RESTART, [Terminate("chat", 3)]),
        (Phase.STOPPING, Verb.START, []),
    ],
)
def test_a_command_is_noted_and_carried_out(phase, verb, sent):
    fleet = fleet_of(instance(phase))

    after, effects = handle(fleet, Command("chat", verb, Haste.STOP), NOW)

    assert signals(effects) == sent
    assert effects[0] == Note("chat", "operator", f"{verb} by the operator")
    override = Override.STOPPED if verb is Verb.STOP else Override.STARTED
    serials = {"chat": 1} if verb is Verb.RESTART else {}
    assert after == replace(
        fleet,
        instances=after.instances,
        overrides={"chat": override},
        serials=serials,
        hastes={"chat": Haste.STOP},
    )


def test_a_command_for_a_name_that_was_removed_meanwhile_changes_nothing():
    fleet = fleet_of(instance(Phase.READY))

    assert handle(fleet, Command("gone", Verb.START), NOW) == (fleet, [])


def test_news_of_a_name_that_was_removed_changes_nothing():
    fleet = fleet_of(instance(Phase.READY))

    assert handle(fleet, InstanceNews("gone", ProbeFailed(1, "x")), NOW) == (fleet, [])


def test_a_stop_at_the_moment_a_pause_ends_launches_nothing():
    fleet = fleet_of(instance(Phase.BACKOFF, running=None, deadline=100.0))

    after, effects = handle(fleet, Command("chat", Verb.STOP), NOW)

    assert signals(effects) == []
    assert after.instances["chat"].phase is Phase.STOPPED


@pytest.mark.parametrize(("moment", "due"), [(99.9, False), (100.0, True), (5000.0, True)])
def test_a_deadline_wakes_its_instance_alone(moment, due):
    late = instance(Phase.DRAINING, goal=Down("stopped by the operator"), deadline=100.0)
    other = replace(late, name="embed", deadline=6000.0)
    stopped = {"chat": Override.STOPPED, "embed": Override.STOPPED}

    after, effects = handle(fleet_of(late, other, overrides=stopped), Tick(), at(moment))

    assert signals(effects) == ([Terminate("chat", 3)] if due else [])
    assert after.instances["embed"] == other


@pytest.mark.parametrize(
    ("asked", "haste"),
    [
        ([Haste.DRAIN], Haste.DRAIN),
        ([Haste.DRAIN, Haste.STOP], Haste.STOP),
        ([Haste.KILL, Haste.DRAIN], Haste.KILL),
    ],
)
def test_a_shutdown_only_grows_hastier(asked, haste):
    fleet = fleet_of(instance(Phase.READY))

    for one in asked:
        fleet, _ = handle(fleet, ShutdownRequested(one), NOW)

    assert fleet.shutdown is haste
    assert fleet.instances["chat"].goal == Down("llamasup is shutting down", haste)


@pytest.mark.parametrize("phase", Phase)
def test_the_daemon_may_end_when_no_process_is_left_that_could_be_ended(phase):
    fleet = fleet_of(instance(phase))

    assert not is_over(fleet)
    over = phase not in ALIVE or phase is Phase.STUCK
    assert is_over(replace(fleet, shutdown=Haste.DRAIN)) == over
    assert is_over(Fleet(shutdown=Haste.DRAIN))


def test_the_next_deadline_is_the_earliest_of_all():
    chat = instance(Phase.LOADING, deadline=120.0, give_up_at=110.0)
    embed = replace(instance(Phase.READY), name="embed")
    rank = replace(instance(Phase.BACKOFF, deadline=115.0), name="rank")

    assert next_deadline(fleet_of(chat, embed, rank)) == 110.0
    assert next_deadline(fleet_of(embed, rank)) == 115.0
    assert next_deadline(fleet_of(embed)) is None
    assert next_deadline(Fleet()) is None

"""Commands are followed until they are done, failed or overtaken."""

from dataclasses import replace

import pytest

from llamasup.core.model import Down, Fleet, Phase, Verb
from llamasup.core.operations import Operation, Outcome, follow, overtaken
from tests.core.samples import A, at, instance

NOW = at(100.0)
RUNNING, DONE, FAILED, SUPERSEDED = Outcome
DOWN = Down("stopped by the operator")


def operation(verb: Verb, gen: int = 3) -> Operation:
    return Operation("op1", "chat", verb, gen, started=5.0)


def ended(verb: Verb, outcome: Outcome, message: str, gen: int = 3) -> Operation:
    return replace(operation(verb, gen), outcome=outcome, message=message, ended=NOW.wall)


def followed(verb: Verb, phase: Phase, goal, gen: int) -> Operation:
    fleet = Fleet(instances={"chat": instance(phase, goal=goal)})
    return follow(operation(verb, gen), fleet, NOW)


# What becomes of an operation whose generation is still the one of the command, and of one that has
# seen a launch since.
START_OLD = {Phase.READY: DONE, Phase.FAILED: FAILED, Phase.STUCK: FAILED}
START_FRESH = {**START_OLD, Phase.BACKOFF: FAILED}
RESTART_OLD = {Phase.FAILED: FAILED, Phase.STUCK: FAILED}
STOP = {Phase.STOPPED: DONE, Phase.STUCK: FAILED}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(
    ("verb", "goal", "gen", "outcomes"),
    [
        (Verb.START, A, 3, START_OLD),
        (Verb.START, A, 2, START_FRESH),
        (Verb.RESTART, A, 3, RESTART_OLD),
        (Verb.RESTART, A, 2, START_FRESH),
        (Verb.STOP, DOWN, 3, STOP),
        (Verb.START, DOWN, 3, dict.fromkeys(Phase, SUPERSEDED)),
        (Verb.RESTART, DOWN, 2, dict.fromkeys(Phase, SUPERSEDED)),
    ],
)
def test_an_operation_ends_by_phase_goal_and_generation(phase, verb, goal, gen, outcomes):
    outcome = outcomes.get(phase, RUNNING)
    expected = ended(verb, outcome, f"{phase}: before", gen)

    result = followed(verb, phase, goal, gen)

    assert result == (operation(verb, gen) if outcome is RUNNING else expected)


@pytest.mark.parametrize("verb", Verb)
def test_an_operation_on_an_instance_that_was_removed_is_superseded(verb):
    expected = ended(verb, SUPERSEDED, "the instance was removed")

    assert follow(operation(verb), Fleet(), NOW) == expected


def test_an_operation_that_has_ended_stays_as_it_is():
    done = replace(operation(Verb.STOP), outcome=DONE, ended=50.0)

    assert follow(done, Fleet(), NOW) == done
    assert overtaken(done, Verb.START, NOW) == done


@pytest.mark.parametrize(
    ("verb", "by", "goes_on"),
    [
        (Verb.START, Verb.START, True),
        (Verb.STOP, Verb.STOP, True),
        (Verb.RESTART, Verb.RESTART, False),
        (Verb.START, Verb.STOP, False),
        (Verb.START, Verb.RESTART, False),
        (Verb.STOP, Verb.START, False),
        (Verb.STOP, Verb.RESTART, False),
        (Verb.RESTART, Verb.START, False),
        (Verb.RESTART, Verb.STOP, False),
    ],
)
def test_a_later_command_takes_over_unless_it_asks_for_the_same(verb, by, goes_on):
    expected = operation(verb) if goes_on else ended(verb, SUPERSEDED, f"a later {by} took over")

    assert overtaken(operation(verb), by, NOW) == expected

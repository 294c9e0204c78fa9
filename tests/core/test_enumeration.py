"""What holds for one instance in every reachable state, whatever happens next."""

from pathlib import Path

import pytest

from llamasup.core.lifecycle import TRANSITIONS, step
from llamasup.core.model import (
    ALIVE,
    Down,
    Due,
    Exited,
    GoalChanged,
    Haste,
    Kill,
    Note,
    Phase,
    ProbePassed,
    Spawn,
    Terminate,
    Up,
    Warmed,
)
from tests.core.enumeration import Move, page, walk
from tests.core.samples import at

RESTING = {Phase.STOPPED, Phase.FAILED}
LASTING = RESTING | {Phase.READY, Phase.UNREADY, Phase.STUCK}
"""The phases that may last: nothing that has to come ends them."""


@pytest.fixture(scope="module")
def moves() -> list[Move]:
    return list(walk())


def test_the_table_knows_every_event_that_can_happen(moves):
    assert [move for move in moves if move.error] == []


def test_every_entry_of_the_table_can_be_reached(moves):
    used = {(move.before.phase, type(move.event)) for move in moves}
    listed = {(phase, event) for phase, row in TRANSITIONS.items() for event in row}

    assert listed - used == set()


def test_every_phase_is_reached(moves):
    assert {move.after.phase for move in moves} == set(Phase)


def test_news_of_another_generation_changes_nothing(moves):
    stale = [
        move for move in moves if getattr(move.event, "gen", move.before.gen) != move.before.gen
    ]

    assert stale
    assert [m for m in stale if (m.after, m.effects) != (m.before, ())] == []


def test_a_process_is_there_exactly_in_the_phases_that_say_so(moves):
    # The world of a move is that before it, as the signals and ends so far made it.
    assert [move for move in moves if move.world.alive != (move.before.phase in ALIVE)] == []


def test_a_process_is_launched_only_when_none_is_left_and_under_the_next_number(moves):
    for move in moves:
        spawns = [effect for effect in move.signals if isinstance(effect, Spawn)]
        if not spawns:
            assert move.after.gen == move.before.gen
            continue
        ended = isinstance(move.event, Exited) and move.event.gen == move.before.gen
        assert ended or not move.world.alive, move
        assert isinstance(move.after.goal, Up), move
        expected = Spawn("chat", move.before.gen + 1, move.after.goal.spec)
        assert (move.signals, move.after.gen) == ((expected,), expected.gen), move
        assert move.after.running == move.after.goal, move


def test_signals_go_to_the_living_generation_alone(moves):
    for move in moves:
        for effect in move.signals:
            if isinstance(effect, Terminate | Kill):
                assert move.world.alive, move
                assert not isinstance(move.event, Exited), move
                assert effect.gen == move.before.gen, move


def test_two_sigterms_come_before_the_sigkill_unless_the_wish_says_kill(moves):
    for move in moves:
        for effect in move.signals:
            match effect:
                case Terminate():
                    assert (move.world.terms < 2, move.world.kills) == (True, 0), move
                case Kill():
                    in_haste = move.after.goal.haste is Haste.KILL
                    assert move.world.kills == 0, move
                    assert in_haste or move.world.terms == 2, move


def test_a_phase_that_must_not_last_has_a_deadline_and_the_others_have_none(moves):
    for move in moves:
        assert (move.after.wakes_at is None) == (move.after.phase in LASTING), move


def test_no_deadline_lies_beyond_its_timeout(moves):
    for move in moves:
        if move.after.phase is not move.before.phase and move.after.wakes_at is not None:
            assert 0 < move.after.wakes_at - move.now.mono <= 30.0, move


def test_time_alone_leads_out_of_every_phase_that_must_not_last(moves):
    """A process that never answers and never dies ends up stuck; a pause ends with a launch."""
    ends = {}
    for move in moves:
        inst, phases = move.after, [move.after.phase]
        while inst.wakes_at is not None and inst.phase is not Phase.BACKOFF and len(phases) < 7:
            inst, _ = step(inst, Due(), at(inst.wakes_at))
            phases.append(inst.phase)
        ends.setdefault(move.after.phase, set()).add(phases[-1])

    alive_but_lasting = {Phase.READY, Phase.UNREADY, Phase.STUCK}
    assert ends == {
        **{phase: {Phase.STUCK} for phase in ALIVE - alive_but_lasting},
        **{phase: {phase} for phase in LASTING},
        Phase.BACKOFF: {Phase.BACKOFF},
    }


def test_a_pause_that_is_over_ends_with_a_launch(moves):
    over = [m for m in moves if m.before.phase is Phase.BACKOFF and isinstance(m.event, Due)]

    assert over
    assert {move.after.phase for move in over} == {Phase.STARTING}


def test_an_end_leads_to_rest_when_down_is_wanted_and_to_another_try_when_up_is(moves):
    for move in moves:
        if not (isinstance(move.event, Exited) and move.event.gen == move.before.gen):
            continue
        if isinstance(move.before.goal, Down):
            assert move.after.phase is Phase.STOPPED, move
        else:
            assert move.after.phase in (Phase.STARTING, Phase.BACKOFF, Phase.FAILED), move


def test_what_is_not_wanted_is_never_launched_nor_left_alone(moves):
    quiet = {Phase.STOPPED, Phase.DRAINING, Phase.STOPPING, Phase.KILLING, Phase.STUCK}
    for move in moves:
        if isinstance(move.after.goal, Down):
            assert move.after.phase in quiet, move


def test_a_process_that_serves_the_new_wish_is_left_alone(moves):
    disturbed = [
        move
        for move in moves
        if isinstance(move.event, GoalChanged)
        and isinstance(move.event.goal, Up)
        and move.before.phase in ALIVE - {Phase.STOPPING, Phase.KILLING, Phase.STUCK}
        and move.event.goal.same_process(move.before.running)
        and move.signals
    ]
    assert disturbed == []


def test_ready_comes_from_the_warm_up_a_passed_probe_or_a_stop_taken_back(moves):
    for move in moves:
        if move.after.phase is Phase.READY and move.before.phase is not Phase.READY:
            assert isinstance(move.event, Warmed | ProbePassed | GoalChanged), move
            if isinstance(move.event, GoalChanged):
                assert (move.before.phase, move.before.responsive) == (Phase.DRAINING, True)


def test_a_wish_that_differs_in_haste_alone_disturbs_no_pause_and_no_failure(moves):
    for move in moves:
        match move.event, move.before.goal:
            case GoalChanged(Up() as goal), Up() as former if goal.same_process(former):
                if move.before.phase in (Phase.BACKOFF, Phase.FAILED):
                    assert (move.after.phase, move.signals) == (move.before.phase, ()), move


def test_every_change_of_phase_is_told_once_and_with_its_reason(moves):
    for move in moves:
        told = [e for e in move.effects if isinstance(e, Note) and e.kind == "phase"]
        changed = move.after.phase is not move.before.phase
        assert len(told) == changed, move
        if changed:
            assert told[0].message.startswith(move.after.phase), move


def test_docs_states_md_is_up_to_date(moves):
    kept = Path(__file__).parents[2] / "docs" / "states.md"

    assert kept.read_text() == page(iter(moves)), "run scripts/update-diagram"

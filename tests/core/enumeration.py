"""Walk one instance through every reachable state with every event, and draw what was found.

The walk plays the world, too: it knows whether there is a process and sends only what can really
happen. States are folded so that there are finitely many: moments become relative to the last step,
generations start again at 1, counters are capped, texts and statistics are dropped.

``python -m tests.core.enumeration`` prints docs/states.md; ``scripts/update-diagram`` writes it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from llamasup.clock import Now
from llamasup.core.lifecycle import step
from llamasup.core.model import (
    Down,
    Drained,
    Due,
    Effect,
    Event,
    Exited,
    Goal,
    GoalChanged,
    Haste,
    Instance,
    Kill,
    Listening,
    Loaded,
    News,
    Note,
    Phase,
    ProbeFailed,
    ProbePassed,
    Progressed,
    Retry,
    Spawn,
    Terminate,
    Unfit,
    Warmed,
)
from llamasup.errors import InvalidTransitionError
from tests.core.samples import CRASH, MISCONFIGURED, POLICY, A, B, at

LONG = 10_000.0
"""Seconds after which every window has passed and every run was stable."""

FEW_CRASHES = replace(POLICY, restart=replace(POLICY.restart, burst=1))
GOALS: tuple[Goal, ...] = (
    *(replace(up, haste=haste) for up in (A, B) for haste in Haste),
    *(Down("not wanted", haste) for haste in Haste),
)


@dataclass(frozen=True, slots=True)
class World:
    """What is true outside: is there a process, and how often was it signalled."""

    alive: bool = False
    terms: int = 0
    kills: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """One step of the walk; *error* if the table did not know it."""

    before: Instance
    world: World
    event: Event
    now: Now
    after: Instance
    effects: tuple[Effect, ...]
    error: str | None = None

    @property
    def signals(self) -> tuple[Effect, ...]:
        """The effects that act on processes."""
        return tuple(effect for effect in self.effects if not isinstance(effect, Note))


def walk() -> Iterator[Move]:
    """Yield every move from every reachable state, breadth first."""
    start = (Instance("chat", FEW_CRASHES, Down("new")), World())
    seen, queue = {start}, deque([start])
    while queue:
        inst, world = queue.popleft()
        for event, now in _moves(inst, world):
            move = _move(inst, world, event, now)
            yield move
            reached = (_fold(move.after, now), _world_after(world, move))
            if reached not in seen:
                seen.add(reached)
                queue.append(reached)


def _move(inst: Instance, world: World, event: Event, now: Now) -> Move:
    try:
        after, effects = step(inst, event, now)
    except InvalidTransitionError as exc:
        return Move(inst, world, event, now, inst, (), str(exc))
    return Move(inst, world, event, now, after, tuple(effects))


def _moves(inst: Instance, world: World) -> Iterator[tuple[Event, Now]]:
    for goal in GOALS:
        if goal != inst.goal:
            yield GoalChanged(goal), at(0.0)
    yield Retry(), at(0.0)
    if inst.wakes_at is not None:
        yield Due(), at(inst.wakes_at)
        yield Due(), at(inst.wakes_at + LONG)
    for news in all_news(inst.gen) if inst.gen > 0 else ():
        # A generation that has ended may be spoken of late, but it cannot end again.
        if not isinstance(news, Exited):
            yield news, at(0.0)
        elif world.alive:
            yield news, at(0.0)
            yield news, at(LONG)  # after a stable run
    for news in all_news(inst.gen - 1):
        yield news, at(0.0)


def all_news(gen: int) -> tuple[News, ...]:
    """Return all that a generation may report, ends last."""
    return (
        Listening(gen),
        Progressed(gen),
        Loaded(gen),
        Unfit(gen, "other context"),
        Warmed(gen),
        ProbePassed(gen),
        ProbeFailed(gen, "no answer"),
        Drained(gen),
        Exited(gen, CRASH),
        Exited(gen, MISCONFIGURED),
    )


def _world_after(world: World, move: Move) -> World:
    if isinstance(move.event, Exited) and move.event.gen == move.before.gen:
        world = World()
    for effect in move.signals:
        match effect:
            case Spawn():
                world = World(alive=True)
            case Terminate():
                world = replace(world, terms=min(world.terms + 1, 3))
            case Kill():
                world = replace(world, kills=min(world.kills + 1, 2))
            case Note():
                pass
    return world


def _fold(inst: Instance, now: Now) -> Instance:
    def ago(moment: float | None) -> float | None:
        return None if moment is None else max(moment - now.mono, -1.0)  # overdue is overdue

    stable = inst.ready_at is not None and now.mono - inst.ready_at >= inst.policy.restart.stable
    crashes = [at for at in inst.crashes if now.mono - at < inst.policy.restart.window]
    return replace(
        inst,
        gen=min(inst.gen, 1),
        running=None if inst.running is None else replace(inst.running, haste=Haste.DRAIN),
        deadline=ago(inst.deadline),
        give_up_at=ago(inst.give_up_at),
        ready_at=None if inst.ready_at is None else (-LONG if stable else 0.0),
        crashes=tuple(-1.0 for _ in crashes),
        attempts=min(inst.attempts, 2),
        terms=min(inst.terms, 3),
        fault=None if inst.fault is None else "fault",
        launched_at=0.0,
        phase_wall=0.0,
        last_exit_wall=None,
        last_exit=None,
        reason="",
        responsive=inst.responsive or inst.phase is not Phase.DRAINING,
        restarts=0,
        load_seconds=None,
    )


# --- the diagram --------------------------------------------------------------------------------

_PAGE = """\
# The phases of an instance

Made from the transition table of `llamasup/core/lifecycle.py` by `scripts/update-diagram`: do not
edit. The arrows are all that a walk through every reachable state with every event found. An arrow
from a phase to itself is shown only where something is done, e.g. the second SIGTERM.

```mermaid
stateDiagram-v2
    [*] --> stopped
{arrows}
```

`GoalChanged` is every wish: start, stop, restart, a new configuration, the shutdown. `Due` is the
deadline of the phase. `Exited` says that no process of the generation is left. What each phase
means is written in `llamasup/core/model.py`; news that is not shown for a phase leaves it as it is.
"""


def page(moves: Iterator[Move]) -> str:
    """Return docs/states.md as it should be."""
    labels: dict[tuple[Phase, Phase], set[str]] = {}
    for move in moves:
        before, after = move.before.phase, move.after.phase
        if before is not after or move.signals:
            labels.setdefault((before, after), set()).add(type(move.event).__name__)
    order = list(Phase)
    edges = sorted(labels.items(), key=lambda edge: [order.index(phase) for phase in edge[0]])
    arrows = "\n".join(f"    {a} --> {b}: {', '.join(sorted(names))}" for (a, b), names in edges)
    return _PAGE.format(arrows=arrows)


if __name__ == "__main__":
    print(page(walk()), end="")

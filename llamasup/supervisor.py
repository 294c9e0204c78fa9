"""The control loop: one mailbox of facts, one core that decides, effects carried out here.

It takes a fact, asks `core.fleet.handle`, publishes the routing table that follows, and carries out
the effects. One coroutine per living generation waits for the child and reports. Nothing in here
awaits anything that one child could delay for the others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from llamasup.adapters import Child, Clock, Gate, Launcher, ProbeFactory
from llamasup.clock import Now
from llamasup.config.spec import InstanceConf
from llamasup.core import operations
from llamasup.core.exits import classify
from llamasup.core.fleet import handle, is_over, next_deadline
from llamasup.core.lifecycle import recover
from llamasup.core.model import (
    Cause,
    Command,
    ConfigLoaded,
    Drained,
    Effect,
    Exit,
    Exited,
    Fact,
    Fleet,
    Haste,
    InstanceNews,
    Kill,
    Note,
    Phase,
    ProbeFailed,
    ShutdownRequested,
    Spawn,
    Terminate,
    Tick,
    Verb,
)
from llamasup.core.operations import Operation, Outcome
from llamasup.core.routes import admissions
from llamasup.core.status import InstanceStatus, Live, all_ready, rows, summary
from llamasup.errors import InvalidTransitionError, SpawnError, UnknownInstanceError
from llamasup.events import EventLog

log = logging.getLogger(__name__)

LONGEST_SLEEP = 10.0
"""Seconds between two facts at most: a `Tick` keeps the watchdog fed and notices clock jumps."""

OPERATIONS_KEPT = 200
"""Ended operations that can still be asked for; those under way are all kept."""

REMAINS_AFTER = 1.0
"""Seconds after the end of a main process from which what is left of it counts."""

EXIT_TAIL = 40
"""How many of the last lines of a child are looked at to explain its end."""

LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(slots=True)
class _Generation:
    """A living generation: its child and the task that waits for it."""

    gen: int
    child: Child
    task: asyncio.Task[None]


class Supervisor:
    """Owns the fleet. Facts come in by `post`, `load` and `command`; nothing else writes."""

    def __init__(
        self,
        launcher: Launcher,
        gate: Gate,
        probe: ProbeFactory,
        clock: Clock,
        events: EventLog,
        on_handled: Callable[[], None] = lambda: None,
        longest_sleep: float = LONGEST_SLEEP,
    ) -> None:
        self.events = events
        self.fleet = Fleet()
        self.invalid_transitions = 0
        self.started = asyncio.Event()  # set once the first fact is handled
        self._launcher = launcher
        self._gate = gate
        self._probe = probe
        self._clock = clock
        self._on_handled = on_handled
        self._longest_sleep = longest_sleep
        self._mailbox: deque[tuple[Fact, Operation | None]] = deque()
        self._mail = asyncio.Event()
        self._generations: dict[str, _Generation] = {}
        self._operations: dict[str, Operation] = {}
        self._operation_ids = count(1)
        self._operation_news = asyncio.Event()
        self._running: set[str] = set()  # ids of the operations that are followed
        self._handled_at = clock.now().mono
        gate.on_idle = self._on_idle

    # --- what others may ask ---

    def load(self, confs: tuple[InstanceConf, ...]) -> None:
        """Take a new, valid configuration."""
        self._post(ConfigLoaded(confs))

    def shut_down(self, haste: Haste) -> None:
        """Stop everything; `run` returns when it is done."""
        self._post(ShutdownRequested(haste))

    def command(self, name: str, verb: Verb, *, now: bool = False) -> Operation:
        """Carry out an operator's command. Raises `UnknownInstanceError`."""
        inst = self.fleet.instances.get(name)
        if inst is None:
            known = ", ".join(self.fleet.instances) or "none"
            raise UnknownInstanceError(f"no instance is named {name!r}; there are: {known}")
        wall = self._clock.now().wall
        operation = Operation(f"op{next(self._operation_ids)}", name, verb, inst.gen, wall)
        self._operations[operation.id] = operation
        self._forget_operations()
        haste = Haste.STOP if now else Haste.DRAIN
        self._post(Command(name, verb, haste), operation)
        return operation

    def _forget_operations(self) -> None:
        ended = [one.id for one in self._operations.values() if one.outcome is not Outcome.RUNNING]
        for operation_id in ended[:-OPERATIONS_KEPT]:
            del self._operations[operation_id]

    def operation(self, operation_id: str) -> Operation | None:
        """Return an operation as it stands, None if it is unknown or long forgotten."""
        return self._operations.get(operation_id)

    async def operation_ended(self, operation_id: str) -> Operation:
        """Wait until the operation is over. Raises KeyError if it is unknown."""
        while self._operations[operation_id].outcome is Outcome.RUNNING:
            await self._operation_news.wait()
        return self._operations[operation_id]

    def instance_rows(self) -> tuple[InstanceStatus, ...]:
        """Return the rows of `status`."""
        live = {
            name: Live(self._pid(name), self._gate.in_flight_total(name), self._gate.held(name))
            for name in self.fleet.instances
        }
        return rows(self.fleet, live, self._clock.now())

    def summary(self) -> str:
        """Return the one line that systemd shows."""
        return summary(self.fleet)

    def all_ready(self) -> bool:
        """Tell whether every instance that is wanted up is ready."""
        return all_ready(self.fleet)

    def healthy(self) -> bool:
        """Tell whether the control loop handles its facts in time."""
        return self._clock.now().mono - self._handled_at < 2 * self._longest_sleep

    # --- the loop ---

    async def run(self) -> None:
        """Handle facts until a shutdown has come to its end."""
        async with asyncio.TaskGroup() as group:
            while not is_over(self.fleet):
                fact, operation = await self._next()
                self._handle(group, fact, operation)
            for generation in self._generations.values():
                generation.task.cancel()  # what is stuck stays; nobody waits for it

    def _post(self, fact: Fact, operation: Operation | None = None) -> None:
        self._mailbox.append((fact, operation))
        self._mail.set()

    async def _next(self) -> tuple[Fact, Operation | None]:
        if not self._mailbox:
            self._mail.clear()
            try:
                async with asyncio.timeout(self._sleep_time()):
                    await self._mail.wait()
            except TimeoutError:
                return Tick(), None
        else:
            await asyncio.sleep(0)  # a thousand facts at once must not keep the loop from others
        return self._mailbox.popleft()

    def _sleep_time(self) -> float:
        due = next_deadline(self.fleet)
        if due is None:
            return self._longest_sleep
        return min(self._longest_sleep, max(0.0, due - self._clock.now().mono))

    def _handle(self, group: asyncio.TaskGroup, fact: Fact, operation: Operation | None) -> None:
        now = self._clock.now()
        effects = self._decide(fact, now)
        self._gate.publish(admissions(self.fleet))
        for effect in effects:
            self._carry_out(group, effect, now)
        self._report_drained()
        if operation is not None:
            self._begin(operation, now)
        self._follow_operations(now)
        if isinstance(fact, Tick):
            self._launcher.reap_orphans()
        self._handled_at = now.mono
        self.started.set()
        self._on_handled()

    def _decide(self, fact: Fact, now: Now) -> list[Effect]:
        try:
            self.fleet, effects = handle(self.fleet, fact, now)
        except InvalidTransitionError as exc:
            self.invalid_transitions += 1
            log.exception("a fact that the state machine does not know: %s", fact)
            return self._recover(fact, exc, now)
        return effects

    def _recover(self, fact: Fact, exc: InvalidTransitionError, now: Now) -> list[Effect]:
        """Bring the one instance that met a bug of ours back to a known state."""
        name = fact.name if isinstance(fact, InstanceNews | Command) else None
        if name is None or name not in self.fleet.instances:
            raise exc
        alive = name in self._generations
        inst, effects = recover(self.fleet.instances[name], alive=alive, now=now)
        self.fleet = replace(self.fleet, instances={**self.fleet.instances, name: inst})
        return effects

    def _carry_out(self, group: asyncio.TaskGroup, effect: Effect, now: Now) -> None:
        match effect:
            case Spawn():
                self._spawn(group, effect)
            case Terminate():
                generation = self._generations.get(effect.name)
                if generation is not None and generation.gen == effect.gen:
                    generation.child.terminate()
            case Kill():
                generation = self._generations.get(effect.name)
                if generation is not None and generation.gen == effect.gen:
                    generation.child.kill()
            case Note():
                log.log(LEVELS[effect.level], "%s: %s", effect.name, effect.message)
                self.events.append(now.wall, effect.name, effect.kind, effect.message, effect.level)

    def _report_drained(self) -> None:
        for name, inst in self.fleet.instances.items():
            if inst.phase is Phase.DRAINING and self._gate.in_flight(name, inst.gen) == 0:
                self._post(InstanceNews(name, Drained(inst.gen)))

    def _on_idle(self, name: str, gen: int) -> None:
        inst = self.fleet.instances.get(name)
        if inst is not None and inst.phase is Phase.DRAINING and inst.gen == gen:
            self._post(InstanceNews(name, Drained(gen)))

    # --- operations ---

    def _begin(self, operation: Operation, now: Now) -> None:
        for running in list(self._running):
            earlier = self._operations[running]
            if earlier.name == operation.name:
                self._operations[running] = operations.overtaken(earlier, operation.verb, now)
        self._running.add(operation.id)

    def _follow_operations(self, now: Now) -> None:
        if not self._running:
            return
        for running in list(self._running):
            current = operations.follow(self._operations[running], self.fleet, now)
            self._operations[running] = current
            if current.outcome is not Outcome.RUNNING:
                self._running.discard(running)
                self._operation_news.set()
        if self._operation_news.is_set():
            self._operation_news = asyncio.Event()

    # --- one generation ---

    def _pid(self, name: str) -> int | None:
        generation = self._generations.get(name)
        return generation.child.pid if generation is not None else None

    def _spawn(self, group: asyncio.TaskGroup, effect: Spawn) -> None:
        try:
            child = self._launcher.launch(effect.name, effect.gen, effect.spec)
        except (SpawnError, OSError) as exc:
            end = Exit(None, None, Cause.CRASH, str(exc))
            self._post(InstanceNews(effect.name, Exited(effect.gen, end)))
            return
        task = group.create_task(
            self._live(effect, child), name=f"generation {effect.name}.{effect.gen}"
        )
        self._generations[effect.name] = _Generation(effect.gen, child, task)

    async def _live(self, effect: Spawn, child: Child) -> None:
        """Watch one generation from its launch to its end, and report both."""
        name, gen = effect.name, effect.gen
        try:
            end = await self._watch(effect, child)
        except Exception as exc:  # the boundary of a generation: one bug, one instance
            log.exception("%s: internal error in generation %d", name, gen)
            await self._make_sure(child)
            end = Exit(None, None, Cause.CRASH, f"internal error in llamasup: {exc!r}")
        del self._generations[name]
        self._post(InstanceNews(name, Exited(gen, end)))

    async def _make_sure(self, child: Child) -> None:
        """Kill *child* and wait for its end, whatever goes wrong with that."""
        while True:
            try:
                child.kill()
                await child.wait()
            except Exception:
                log.exception("cannot kill pid %d, will try again", child.pid)
                await asyncio.sleep(REMAINS_AFTER)
            else:
                return

    async def _tell_remains(self, name: str, gen: int, child: Child) -> None:
        """Stop routing to a child that has ended, while some process of it does not die."""
        await child.main_ended()
        await asyncio.sleep(REMAINS_AFTER)
        reason = "its main process has ended, but others of its processes do not die"
        self._post(InstanceNews(name, ProbeFailed(gen, reason)))

    async def _watch(self, effect: Spawn, child: Child) -> Exit:
        name, gen = effect.name, effect.gen
        failed: list[SpawnError] = []

        async def ask() -> None:
            try:
                await child.executed()
            except SpawnError as exc:
                failed.append(exc)
                return
            report = lambda news: self._post(InstanceNews(name, news))  # noqa: E731
            await self._probe(effect.spec, gen, child, report).run()

        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(), name=f"probe {name}.{gen}")
            lingering = group.create_task(self._tell_remains(name, gen, child))
            raw = await child.wait()
            asking.cancel()
            lingering.cancel()
        if failed:  # it never was executed
            cause = Cause.CONFIG if failed[0].hopeless else Cause.CRASH
            return Exit(None, None, cause, str(failed[0]))
        return classify(raw.code, raw.signal, self._launcher.last_lines(name, gen, EXIT_TAIL))

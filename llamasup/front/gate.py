"""The gate: who may pass to a child now, who waits, and how many are inside.

It knows routes and counts, no sockets and no HTTP. The supervisor publishes routes and reads
counts; the relay asks for leases. All of it happens in the event loop, without an ``await``.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from llamasup.core.routes import Admission, Hold, Refuse, Serve

REPLAY_PATIENCE = 2.0
"""Seconds that a request whose child broke off waits for the route to leave that generation. A
child that is still served after that is alive, so the request is sent to it again."""

QUEUE_RETRY_AFTER = 5
"""Seconds that a client is asked to wait when the queue is full or its time in it is over."""

_CLOCK_GRAIN = 0.002  # seconds; an alarm may ring early by a rounding of the loop's clock


class TimerHandle(Protocol):
    """What ``call_at`` gives back."""

    def cancel(self) -> None: ...
    def when(self) -> float: ...


class Timers(Protocol):
    """The part of an event loop that the gate needs (seconds of the loop's own clock)."""

    def time(self) -> float: ...
    def call_at(
        self, when: float, callback: Callable[[str], None], name: str, /
    ) -> TimerHandle: ...


class Cause(StrEnum):
    """Why the gate refused; the label of the metric."""

    ROUTE = "route"
    QUEUE_FULL = "queue_full"
    TIMEOUT = "timeout"
    REMOVED = "removed"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Refused:
    """No: *reason* is for the client; *retry_after* in seconds, None = waiting does not help."""

    cause: Cause
    reason: str
    retry_after: int | None


class Waiter(Protocol):
    """A request in the queue. Exactly one of the two is called, once, unless it left before."""

    def admitted(self, lease: "Lease") -> None: ...
    def refused(self, refusal: Refused) -> None: ...


class Lease:
    """One admitted request, counted against generation *gen* until ``release``."""

    __slots__ = ("_gate", "arrival", "gen", "is_open", "name")

    def __init__(self, gate: "Gate", name: str, gen: int, arrival: float) -> None:
        self._gate = gate
        self.name = name
        self.gen = gen
        self.arrival = arrival
        self.is_open = True

    def release(self) -> None:
        """Give the place back; exactly once."""
        assert self.is_open, "a lease is released once"
        self.is_open = False
        self._gate._leave_generation(self.name, self.gen)


class Waiting:
    """A place in the queue of *name*."""

    __slots__ = ("_gate", "after_gen", "arrival", "impatient_at", "is_open", "name", "waiter")

    def __init__(self, gate: "Gate", name: str, waiter: Waiter, arrival: float) -> None:
        self._gate = gate
        self.name = name
        self.waiter = waiter
        self.arrival = arrival
        self.is_open = True
        # A replay must not meet the generation that broke it off: not before impatient_at.
        self.after_gen = -1
        self.impatient_at = float("inf")

    def leave(self) -> None:
        """Give the place up (the client has gone); exactly once, and never after an answer."""
        assert self.is_open, "a place in the queue is given up once"
        self.is_open = False
        self._gate._leave_queue(self)


@dataclass(slots=True)
class Counters:
    """What happened at the door of one instance since the daemon started."""

    admitted: int = 0
    held: int = 0
    replays: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)


class Gate:
    """Leases, holds and in-flight counts of all instances.

    *on_idle* is called with (name, gen) whenever the last request of a generation ends. It comes
    in the middle of the gate's work, so it may only take a note (post a fact), never call back.
    """

    def __init__(self, timers: Timers, on_idle: Callable[[str, int], None] | None = None) -> None:
        self.on_idle: Callable[[str, int], None] = on_idle or (lambda _name, _gen: None)
        self._timers = timers
        self._table: Mapping[str, Admission] = {}
        self._queues: dict[str, deque[Waiting]] = {}  # first in first out, by arrival
        self._alarms: dict[str, TimerHandle] = {}  # one per queue, for its next deadline
        self._in_flight: dict[tuple[str, int], int] = {}
        self._counters: dict[str, Counters] = {}
        self._closed: str | None = None  # the reason, once nobody is let in any more

    # ---- what the supervisor calls

    def publish(self, table: Mapping[str, Admission]) -> None:
        """Make *table* the routes from now on; wake or refuse those whose wait is over."""
        self._table = dict(table)
        for name in [name for name, queue in self._queues.items() if queue]:
            self._settle(name)

    def in_flight(self, name: str, gen: int) -> int:
        """Return how many requests are at generation *gen* of *name*."""
        return self._in_flight.get((name, gen), 0)

    def in_flight_total(self, name: str) -> int:
        """Return how many requests are at any generation of *name*."""
        return sum(count for (owner, _gen), count in self._in_flight.items() if owner == name)

    def held(self, name: str) -> int:
        """Return how many requests wait for a route to *name*."""
        return len(self._queues.get(name, ()))

    def counters(self, name: str) -> Counters:
        """Return the running counts of *name*, for metrics."""
        try:
            return self._counters[name]
        except KeyError:
            return self._counters.setdefault(name, Counters())

    def close(self, reason: str = "llamasup is shutting down") -> None:
        """Refuse everyone who waits and everyone who comes; those inside are not touched."""
        self._closed = reason
        for name in list(self._queues):
            self._settle(name)

    # ---- what the relay calls

    def admit(self, name: str, waiter: Waiter, arrival: float) -> Lease | Waiting | Refused:
        """Let a request that came at *arrival* (loop time) in, or let it wait, or refuse it.

        A ``Lease`` or ``Refused`` returned here is the answer: the waiter is not called.
        """
        admission = self._table.get(name)
        if admission is not None and self._closed is None and isinstance(admission.route, Serve):
            # Route and count together: anything between would let a drain miss this request.
            return self._grant(name, admission.route.gen, arrival)
        refusal = self._refusal(name)
        if refusal is not None or admission is None:
            assert refusal is not None
            return self._count_refusal(name, refusal)
        if self.held(name) >= admission.max_held:
            reason = f"{self.held(name)} requests are waiting already ({_reason(admission)})"
            return self._count_refusal(name, Refused(Cause.QUEUE_FULL, reason, QUEUE_RETRY_AFTER))
        return self._enqueue(Waiting(self, name, waiter, arrival))

    def replay(self, lease: Lease, waiter: Waiter) -> Lease | Waiting | Refused:
        """Take back *lease*, whose child broke off, and let its request go to the next generation.

        It keeps its arrival, so it stands in front of all that came later. It was let in once, so
        the bound of the queue does not count for it.
        """
        name = lease.name
        lease.release()
        self.counters(name).replays += 1
        refusal = self._refusal(name)
        if refusal is not None:
            return self._count_refusal(name, refusal)
        place = Waiting(self, name, waiter, lease.arrival)
        route = self._table[name].route
        if isinstance(route, Serve):
            if route.gen > lease.gen:
                return self._grant(name, route.gen, lease.arrival)
            place.impatient_at = self._timers.time() + REPLAY_PATIENCE
        place.after_gen = lease.gen
        return self._enqueue(place)

    def count_cancelled(self, name: str, stage: str) -> None:
        """Note that a client left in *stage* of its request."""
        self.counters(name).cancelled[stage] += 1

    # ---- inside

    def _refusal(self, name: str) -> Refused | None:
        """Return why *name* lets nobody in nor wait, None if it does."""
        if self._closed is not None:
            return Refused(Cause.SHUTDOWN, self._closed, QUEUE_RETRY_AFTER)
        admission = self._table.get(name)
        if admission is None:
            return Refused(Cause.REMOVED, "there is no such instance", None)
        if isinstance(admission.route, Refuse):
            return Refused(Cause.ROUTE, admission.route.reason, admission.route.retry_after)
        return None

    def _count_refusal(self, name: str, refusal: Refused) -> Refused:
        self.counters(name).refused[refusal.cause] += 1
        return refusal

    def _grant(self, name: str, gen: int, arrival: float) -> Lease:
        self._in_flight[name, gen] = self._in_flight.get((name, gen), 0) + 1
        self.counters(name).admitted += 1
        return Lease(self, name, gen, arrival)

    def _leave_generation(self, name: str, gen: int) -> None:
        left = self._in_flight.get((name, gen), 0) - 1
        assert left >= 0, "more leases released than given"
        if left:
            self._in_flight[name, gen] = left
        else:
            del self._in_flight[name, gen]
            self.on_idle(name, gen)

    def _enqueue(self, place: Waiting) -> Waiting:
        queue = self._queues.setdefault(place.name, deque())
        # Replays come back in any order: the queue stays sorted by arrival. New ones go to the end.
        at = len(queue)
        while at and queue[at - 1].arrival > place.arrival:
            at -= 1
        queue.insert(at, place)
        self.counters(place.name).held += 1
        self._set_alarm(place.name, self._deadline(place))
        return place

    def _leave_queue(self, place: Waiting) -> None:
        queue = self._queues.get(place.name)
        # While the queue is being settled a place may be out of it already.
        if queue is not None and place in queue:
            queue.remove(place)

    def _settle(self, name: str) -> None:
        """Answer those whose wait the present route has ended; the others keep their place."""
        queue = self._queues.pop(name, None)
        if not queue:
            return
        refusal = self._refusal(name)
        if refusal is not None:
            self._refuse(queue, refusal)
            return
        route = self._table[name].route
        if not isinstance(route, Serve):
            for place in queue:
                place.impatient_at = float("inf")
            self._requeue(name, queue)
            return
        now = self._timers.time()
        ready = []
        staying: deque[Waiting] = deque()
        for place in queue:
            if place.after_gen < route.gen or place.impatient_at <= now + _CLOCK_GRAIN:
                ready.append(place)
            else:
                place.impatient_at = min(place.impatient_at, now + REPLAY_PATIENCE)
                staying.append(place)
        self._requeue(name, staying)
        for place in ready:
            if place.is_open:  # it may have left while another was woken
                place.is_open = False
                place.waiter.admitted(self._grant(name, route.gen, place.arrival))

    def _requeue(self, name: str, queue: deque[Waiting]) -> None:
        if queue:
            self._queues[name] = queue
            self._set_alarm(name, min(map(self._deadline, queue)))

    def _refuse(self, places: Iterable[Waiting], refusal: Refused) -> None:
        for place in places:
            if place.is_open:
                place.is_open = False
                self._count_refusal(place.name, refusal)
                place.waiter.refused(refusal)

    def _deadline(self, place: Waiting) -> float:
        return min(place.arrival + self._table[place.name].hold_timeout, place.impatient_at)

    def _set_alarm(self, name: str, deadline: float) -> None:
        alarm = self._alarms.get(name)
        if alarm is not None:
            if alarm.when() <= deadline:
                return
            alarm.cancel()
        self._alarms[name] = self._timers.call_at(deadline, self._ring, name)

    def _ring(self, name: str) -> None:
        """The next deadline of a queue has come, or one that was there before."""
        del self._alarms[name]
        queue = self._queues.get(name)
        if not queue:
            return
        admission = self._table[name]
        now = self._timers.time()
        late = [p for p in queue if p.arrival + admission.hold_timeout <= now + _CLOCK_GRAIN]
        for place in late:
            queue.remove(place)
        reason = f"no answer within {admission.hold_timeout:.0f} s ({_reason(admission)})"
        self._refuse(late, Refused(Cause.TIMEOUT, reason, QUEUE_RETRY_AFTER))
        self._settle(name)


def _reason(admission: Admission) -> str:
    match admission.route:
        case Hold(reason) | Refuse(reason):
            return reason
        case Serve():
            return "its server broke off"

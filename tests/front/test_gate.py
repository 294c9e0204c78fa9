"""The gate: examples, and random histories against a model written apart from it."""

import heapq
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamasup.core.routes import Admission, Hold, Refuse, Route, Serve
from llamasup.front.gate import REPLAY_PATIENCE, Cause, Gate, Lease, Refused, Waiting


class FakeAlarm:
    def __init__(self, when: float) -> None:
        self._when = when
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def when(self) -> float:
        return self._when


class FakeTimers:
    """A loop's clock and alarms, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, FakeAlarm, Callable[[str], None], str]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[str], None], name: str, /) -> FakeAlarm:
        alarm = FakeAlarm(when)
        heapq.heappush(self._alarms, (when, next(self._order), alarm, callback, name))
        return alarm

    def move(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(10_000):
            if not self._alarms or self._alarms[0][0] > end:
                self.now = end
                return
            when, _, alarm, callback, name = heapq.heappop(self._alarms)
            self.now = max(self.now, when)
            if not alarm.is_cancelled:
                callback(name)
        raise AssertionError("an alarm rings for ever")


class FakeWaiter:
    def __init__(self, label: object = None, order: list[object] | None = None) -> None:
        self.label = label
        self.order = order if order is not None else []
        self.answer: Lease | Refused | None = None

    def admitted(self, lease: Lease) -> None:
        assert self.answer is None
        self.answer = lease
        self.order.append(self.label)

    def refused(self, refusal: Refused) -> None:
        assert self.answer is None
        self.answer = refusal


def table(route: Route, max_held: int = 3, hold_timeout: float = 10.0) -> dict[str, Admission]:
    return {"chat": Admission(route, max_held, hold_timeout)}


@pytest.fixture
def timers() -> FakeTimers:
    return FakeTimers()


@pytest.fixture
def idle() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def gate(timers: FakeTimers, idle: list[tuple[str, int]]) -> Gate:
    return Gate(timers, lambda name, gen: idle.append((name, gen)))


def test_a_served_request_is_counted_until_its_last_byte(gate: Gate, idle: list[tuple[str, int]]):
    gate.publish(table(Serve(4)))

    first = gate.admit("chat", FakeWaiter(), 0.0)
    second = gate.admit("chat", FakeWaiter(), 0.0)

    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    assert (gate.in_flight("chat", 4), gate.in_flight_total("chat")) == (2, 2)
    first.release()
    assert idle == []
    second.release()
    assert idle == [("chat", 4)]
    assert gate.in_flight("chat", 4) == 0
    with pytest.raises(AssertionError):
        second.release()


def test_held_requests_go_in_the_order_they_came(gate: Gate):
    order: list[object] = []
    gate.publish(table(Hold("loading")))
    waiters = [FakeWaiter(n, order) for n in range(3)]
    for n, waiter in enumerate(waiters):
        assert isinstance(gate.admit("chat", waiter, float(n)), Waiting)
    assert gate.held("chat") == 3

    gate.publish(table(Serve(1)))

    assert order == [0, 1, 2]
    assert (gate.held("chat"), gate.in_flight("chat", 1)) == (0, 3)


def test_the_queue_is_bounded(gate: Gate):
    gate.publish(table(Hold("loading"), max_held=1))
    gate.admit("chat", FakeWaiter(), 0.0)

    refused = gate.admit("chat", FakeWaiter(), 0.0)

    assert isinstance(refused, Refused)
    assert (refused.cause, refused.retry_after) == (Cause.QUEUE_FULL, 5)
    assert "loading" in refused.reason
    assert gate.held("chat") == 1


def test_a_hold_ends_after_its_time(gate: Gate, timers: FakeTimers):
    early, late = FakeWaiter(), FakeWaiter()
    gate.publish(table(Hold("loading")))
    gate.admit("chat", early, timers.time())
    timers.move(4.0)
    gate.admit("chat", late, timers.time())

    timers.move(5.9)
    assert early.answer is None
    timers.move(0.1)

    assert isinstance(early.answer, Refused)
    assert early.answer.cause is Cause.TIMEOUT
    assert late.answer is None
    timers.move(4.0)
    assert isinstance(late.answer, Refused)
    assert gate.counters("chat").refused == {Cause.TIMEOUT: 2}


def test_a_shorter_hold_timeout_counts_at_once(gate: Gate, timers: FakeTimers):
    waiter = FakeWaiter()
    gate.publish(table(Hold("loading"), hold_timeout=600.0))
    gate.admit("chat", waiter, timers.time())

    gate.publish(table(Hold("loading"), hold_timeout=1.0))
    timers.move(1.0)

    assert isinstance(waiter.answer, Refused)


def test_a_client_that_leaves_gives_its_place_up(gate: Gate):
    gate.publish(table(Hold("loading"), max_held=1))
    place = gate.admit("chat", FakeWaiter(), 0.0)
    assert isinstance(place, Waiting)

    place.leave()

    assert gate.held("chat") == 0
    assert isinstance(gate.admit("chat", FakeWaiter(), 0.0), Waiting)


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (lambda gate: gate.publish({}), Cause.REMOVED),
        (lambda gate: gate.publish(table(Refuse("broken", 7))), Cause.ROUTE),
        (lambda gate: gate.close(), Cause.SHUTDOWN),
    ],
)
def test_those_who_wait_are_told_that_it_is_over(
    gate: Gate, end: Callable[[Gate], None], cause: Cause
):
    waiter = FakeWaiter()
    gate.publish(table(Hold("loading")))
    gate.admit("chat", waiter, 0.0)

    end(gate)

    assert isinstance(waiter.answer, Refused)
    assert waiter.answer.cause is cause
    assert gate.held("chat") == 0
    later = gate.admit("chat", FakeWaiter(), 0.0)
    assert isinstance(later, Refused)
    assert later.cause is cause


def lease_of(gate: Gate, arrival: float) -> Lease:
    lease = gate.admit("chat", FakeWaiter(), arrival)
    assert isinstance(lease, Lease)
    return lease


def test_a_replay_stands_in_front_and_needs_another_generation(gate: Gate):
    order: list[object] = []
    gate.publish(table(Serve(1)))
    one, two = lease_of(gate, 1.0), lease_of(gate, 2.0)
    gate.publish(table(Hold("restarting"), max_held=1))
    gate.admit("chat", FakeWaiter("new", order), 3.0)

    gate.replay(two, FakeWaiter("two", order))
    gate.replay(one, FakeWaiter("one", order))
    gate.publish(table(Serve(1)))
    assert order == ["new"]
    gate.publish(table(Serve(2)))

    assert order == ["new", "one", "two"]
    assert gate.in_flight("chat", 1) == 1
    assert gate.counters("chat").replays == 2


def test_a_replay_goes_to_the_same_generation_if_that_lives_on(gate: Gate, timers: FakeTimers):
    waiter = FakeWaiter()
    gate.publish(table(Serve(1)))

    assert isinstance(gate.replay(lease_of(gate, 0.0), waiter), Waiting)
    timers.move(REPLAY_PATIENCE - 0.1)
    assert waiter.answer is None
    timers.move(0.1)

    assert isinstance(waiter.answer, Lease)
    assert waiter.answer.gen == 1


def test_a_replay_goes_on_at_once_if_the_next_generation_is_there(gate: Gate):
    gate.publish(table(Serve(1)))
    lease = lease_of(gate, 0.0)
    gate.publish(table(Serve(2)))

    again = gate.replay(lease, FakeWaiter())

    assert isinstance(again, Lease)
    assert again.gen == 2


def test_one_who_leaves_while_others_are_woken_gets_no_lease(gate: Gate):
    gate.publish(table(Hold("loading")))
    second = FakeWaiter()

    class Jealous(FakeWaiter):
        def admitted(self, lease: Lease) -> None:
            super().admitted(lease)
            place.leave()

    gate.admit("chat", Jealous(), 0.0)
    place = gate.admit("chat", second, 0.0)
    assert isinstance(place, Waiting)

    gate.publish(table(Serve(1)))

    assert second.answer is None
    assert gate.in_flight("chat", 1) == 1


STEPS = st.one_of(
    st.tuples(st.just("come"), st.just(0)),
    st.tuples(st.just("come"), st.just(0)),
    st.tuples(st.sampled_from(["leave", "end", "break"]), st.integers(0, 9)),
    st.tuples(st.just("serve"), st.integers(0, 3)),
    st.tuples(st.just("hold"), st.just(0)),
    st.tuples(st.just("refuse"), st.just(0)),
    st.tuples(st.just("remove"), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 6)),
)


@given(st.lists(STEPS, max_size=60))
def test_no_request_is_lost_or_let_in_twice(steps: list[tuple[str, int]]):  # noqa: C901  a model
    """Each request is in one place, as a model knows it: in flight, waiting or answered."""
    timers, idle = FakeTimers(), list[tuple[str, int]]()
    gate = Gate(timers, lambda name, gen: idle.append((name, gen)))
    gate.publish(table(Hold("loading")))
    gen = 1
    serving = False
    order: list[object] = []
    waiters: list[FakeWaiter] = []
    places: list[tuple[FakeWaiter, Waiting]] = []
    inside: list[Lease] = []

    def take(waiter: FakeWaiter, outcome: Lease | Waiting | Refused) -> None:
        if isinstance(outcome, Waiting):
            places.append((waiter, outcome))
        elif isinstance(outcome, Lease):
            inside.append(outcome)

    for what, n in steps:
        timers.move(0.01)
        if what == "come":
            waiter = FakeWaiter(timers.now, order)
            waiters.append(waiter)
            outcome = gate.admit("chat", waiter, timers.now)
            if serving:
                assert isinstance(outcome, Lease)
                assert outcome.gen == gen
            take(waiter, outcome)
        elif what == "leave" and places:
            places.pop(n % len(places))[1].leave()
        elif what == "end" and inside:
            inside.pop(n % len(inside)).release()
        elif what == "break" and inside:
            lease = inside.pop(n % len(inside))
            waiter = FakeWaiter(lease.arrival, order)
            take(waiter, gate.replay(lease, waiter))
        elif what == "serve":
            gen += n
            serving = True
            order.clear()
            gate.publish(table(Serve(gen)))
            assert order == sorted(order)  # type: ignore[type-var]
        elif what in ("hold", "refuse", "remove"):
            serving = False
            routes = {"hold": table(Hold("x")), "refuse": table(Refuse("x")), "remove": {}}
            gate.publish(routes[what])
        elif what == "wait":
            timers.move(float(n))
        for waiter, place in list(places):
            if waiter.answer is not None:
                places.remove((waiter, place))
                if isinstance(waiter.answer, Lease):
                    inside.append(waiter.answer)
        assert gate.held("chat") == len(places)
        assert gate.in_flight_total("chat") == len(inside)
        for known in range(1, gen + 1):
            assert gate.in_flight("chat", known) == sum(lease.gen == known for lease in inside)
        assert all(timers.now - place.arrival <= 10.02 for _, place in places)
        if what in ("refuse", "remove"):
            assert not places

    for lease in inside:
        lease.release()
    assert gate.in_flight_total("chat") == 0
    if inside:
        assert idle


def test_a_replay_that_lost_its_patience_waits_quietly_in_a_hold(gate: Gate, timers: FakeTimers):
    waiter = FakeWaiter()
    gate.publish(table(Serve(1)))
    gate.replay(lease_of(gate, 0.0), waiter)
    gate.publish(table(Hold("restarting")))

    timers.move(REPLAY_PATIENCE * 2)  # fails if an alarm rings again and again
    assert waiter.answer is None
    gate.publish(table(Serve(2)))

    assert isinstance(waiter.answer, Lease)

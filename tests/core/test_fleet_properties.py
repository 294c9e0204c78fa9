"""Random lives of a whole fleet; after every fact it is compared with the oracle of `oracle`."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from llamasup.core.fleet import handle, is_over, next_deadline
from llamasup.core.model import (
    Command,
    ConfigLoaded,
    Drained,
    Exited,
    Fact,
    Fleet,
    Haste,
    InstanceNews,
    Kill,
    Listening,
    Loaded,
    News,
    Note,
    Phase,
    ProbeFailed,
    ProbePassed,
    Progressed,
    ShutdownRequested,
    Spawn,
    Terminate,
    Tick,
    Unfit,
    Verb,
    Warmed,
)
from llamasup.core.operations import Operation, Outcome, follow, overtaken
from llamasup.core.routes import Refuse, Serve, admissions
from tests.core.enumeration import all_news
from tests.core.oracle import Backoff, Process, Want, Wishes
from tests.core.samples import CRASH, MISCONFIGURED, POLICY, at, conf

NAMES = ("chat", "embed", "rank")
names = st.sampled_from(NAMES)
hastes = st.sampled_from(Haste)


class FleetMachine(RuleBasedStateMachine):
    """Facts in any order; after each one, everything that the oracle knows must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.now = 1000.0
        self.wishes = Wishes()
        self.living: dict[str, Process] = {}
        self.highest: dict[str, int] = {}
        self.backoffs: dict[str, Backoff] = {}
        self.barred: dict[str, Want] = {}  # ended in a way that no retry mends
        self.tempers: dict[str, tuple[int, bool]] = {}
        self.operations: list[Operation] = []

    # --- one fact ---

    def feed(self, fact: Fact) -> list[Spawn | Terminate | Kill]:
        self.fleet, effects = handle(self.fleet, fact, at(self.now))
        signals = [effect for effect in effects if not isinstance(effect, Note)]
        act = {Spawn: self.spawned, Terminate: self.terminated, Kill: self.killed}
        for effect in signals:
            act[type(effect)](effect)
        for backoff in self.backoffs.values():
            assert not backoff.at_once, "no launch at once after a stable run"
        self.check()
        self.operations = [follow(op, self.fleet, at(self.now)) for op in self.operations]
        for operation in self.operations:
            self.check_operation(operation)
        self.operations = [op for op in self.operations if op.outcome is Outcome.RUNNING]
        return signals

    def spawned(self, effect: Spawn) -> None:
        name = effect.name
        want = self.wishes.want(name)
        assert name not in self.living, "a second process"
        assert effect.gen > self.highest.get(name, 0), "a generation number twice"
        assert want is not None, "launched although not wanted"
        assert effect.spec == self.wishes.confs[name].spec
        assert name not in self.barred, "launched although hopeless"
        backoff = self.backoffs.setdefault(name, Backoff())
        if backoff.at_once:
            backoff.at_once = False
        elif backoff.pending is not None:
            assert self.now >= backoff.pending[0], "launched before its pause was over"
        else:
            self.backoffs[name] = backoff = Backoff()  # a fresh start
        backoff.pending = None
        self.highest[name] = effect.gen
        ignores, unkillable = self.tempers.get(name, (0, False))
        self.living[name] = Process(effect.gen, want, self.now, ignores, unkillable)

    def terminated(self, effect: Terminate) -> None:
        process = self.living[effect.name]
        assert effect.gen == process.gen
        assert (process.terms < 2, process.kills) == (True, 0)
        if not process.signalled:
            process.faulted = self.wishes.want(effect.name) == process.want
            if process.faulted:
                timeout = POLICY.load_stall_timeout
                assert process.unfit or self.now >= process.born + timeout
        process.terms += 1

    def killed(self, effect: Kill) -> None:
        process = self.living[effect.name]
        assert (effect.gen, process.kills) == (process.gen, 0)
        assert process.terms == 2 or self.wishes.may_kill_at_once(effect.name)
        process.kills += 1
        process.killed_at = self.now

    def check(self) -> None:
        assert set(self.fleet.instances) >= set(self.wishes.confs) | set(self.living)
        routes = {name: admission.route for name, admission in admissions(self.fleet).items()}
        for name, route in routes.items():
            process, want = self.living.get(name), self.wishes.want(name)
            serves = process is not None and process.serves and process.want == want
            assert isinstance(route, Serve) == serves, (route, process)
            if serves:
                assert route == Serve(process.gen)
            if want is None:
                assert isinstance(route, Refuse)
            backoff = self.backoffs.get(name)
            if backoff is not None and backoff.pending is not None and name not in self.barred:
                first, last = backoff.pending
                deadline = self.fleet.instances[name].deadline
                assert deadline is not None
                assert first <= deadline <= last, "the pause is not as the policy says"
        if is_over(self.fleet):
            assert self.wishes.shutdown is not None
            for process in self.living.values():
                assert process.killed_at is not None
                assert self.now >= process.killed_at + POLICY.kill_timeout

    def check_operation(self, operation: Operation) -> None:
        if operation.outcome is not Outcome.DONE:
            return
        process = self.living.get(operation.name)
        if operation.verb is Verb.STOP:
            assert process is None
        else:
            assert process is not None
            assert process.serves
            assert operation.verb is Verb.START or process.gen > operation.gen

    def news(self, name: str, news: News) -> None:
        self.feed(InstanceNews(name, news))

    def wishes_changed(self, before: dict[str, Want | None]) -> None:
        """Forget pauses and hopelessness of instances that are to do something else now."""
        for name in NAMES:
            if self.wishes.want(name) != before[name]:
                self.give_another_chance(name)

    def give_another_chance(self, name: str) -> None:
        self.barred.pop(name, None)
        if name in self.backoffs:
            self.backoffs[name].pending = None

    def wants(self) -> dict[str, Want | None]:
        return {name: self.wishes.want(name) for name in NAMES}

    # --- what people do ---

    @initialize()
    def boot(self):
        self.load_config(dict.fromkeys(NAMES[:2], "a"), set(), 30.0)

    @rule(
        models=st.dictionaries(names, st.sampled_from("aab"), min_size=1),
        manual=st.sets(names, max_size=1),
        drain=st.sampled_from([30.0, 5.0]),
    )
    def load_config(self, models, manual, drain):
        self.pass_time(0.0)  # so that only the configuration is new
        before, former = self.wants(), dict(self.wishes.confs)
        gens = {name: inst.gen for name, inst in self.fleet.instances.items()}
        confs = [
            conf(name, model, replace(POLICY, autostart=name not in manual, drain_timeout=drain))
            for name, model in models.items()
        ]
        self.wishes.confs = {conf.name: conf for conf in confs}
        self.wishes.hastes = {}
        for name in former.keys() - models.keys() - self.living.keys():
            self.wishes.forget(name)
        self.wishes_changed(before)
        signals = self.feed(ConfigLoaded(tuple(confs)))

        assert list(self.fleet.instances)[: len(confs)] == list(self.wishes.confs)
        kept = {name for name in NAMES if self.wishes.want(name) == before[name] is not None}
        assert [effect for effect in signals if effect.name in kept] == []
        assert {n: self.fleet.instances[n].gen for n in kept} == {n: gens[n] for n in kept}

    @rule(name=names, verb=st.sampled_from(Verb), haste=hastes)
    def command(self, name, verb, haste):
        inst = self.fleet.instances.get(name)
        if inst is None:
            self.pass_time(0.0)
            before = self.fleet
            self.feed(Command(name, verb, haste))
            assert self.fleet == before
            return
        wants = self.wants()
        self.wishes.command(name, verb, haste)
        if verb is Verb.START and name not in self.living:
            self.give_another_chance(name)
        self.wishes_changed(wants)
        now = at(self.now)
        self.operations = [
            overtaken(op, verb, now) if op.name == name else op for op in self.operations
        ]
        self.operations.append(Operation("op", name, verb, inst.gen, now.wall))
        self.feed(Command(name, verb, haste))

    @precondition(lambda self: self.now > 1100 or self.wishes.shutdown is not None)
    @rule(haste=hastes)
    def shut_down(self, haste):
        before = self.wants()
        self.wishes.shutdown = max(haste, self.wishes.shutdown or Haste.DRAIN)
        self.wishes_changed(before)
        self.feed(ShutdownRequested(haste))

    # --- what time does ---

    @rule(span=st.sampled_from([0.3, 2.0, 6.0, 12.0, 45.0, 120.0]))
    def pass_time(self, span):
        end = self.now + span
        while (due := next_deadline(self.fleet)) is not None and due <= end:
            self.now = max(self.now, due)
            self.feed(Tick())
            assert (next_deadline(self.fleet) or end + 1) > self.now, "time stands still"
        self.now = end
        self.feed(Tick())

    @rule(span=st.sampled_from([3.0, 20.0, 500.0]))
    def lose_time(self, span):
        """The loop was held up: many deadlines have passed when it comes to the next fact."""
        self.now += span

    # --- what processes do ---

    @rule(name=names, ignores=st.integers(0, 3), unkillable=st.booleans())
    def form_the_character(self, name, ignores, unkillable):
        self.tempers[name] = (ignores, unkillable)

    @rule(name=names, steps=st.integers(1, 3))
    def come_up(self, name, steps):
        for _ in range(steps):
            process = self.living.get(name)
            if process is None or process.stage == 3:
                return
            process.stage += 1
            if process.stage == 3 and not process.signalled:
                process.warmed_at = self.now
            news = (Listening, Loaded, Warmed)[process.stage - 1]
            self.news(name, news(process.gen))

    @rule(name=names)
    def progress(self, name):
        if name in self.living:
            self.news(name, Progressed(self.living[name].gen))

    @rule(name=names, passed=st.booleans())
    def probe(self, name, passed):
        process = self.living.get(name)
        if process is None or process.stage < 3:
            return
        process.responsive = passed
        gen = process.gen
        self.news(name, ProbePassed(gen) if passed else ProbeFailed(gen, "no answer"))

    @rule(name=names)
    def show_another_context(self, name):
        process = self.living.get(name)
        if process is not None and process.stage < 3 and not process.signalled:
            process.unfit = True
            self.news(name, Unfit(process.gen, "4096 tokens per slot, not 8192"))

    @rule(name=names)
    def drain(self, name):
        if self.fleet.instances.get(name) and self.fleet.instances[name].phase is Phase.DRAINING:
            self.news(name, Drained(self.living[name].gen))
            assert self.living[name].terms == 1

    @rule(name=names, hopeless=st.sampled_from([False, False, True]))
    def end(self, name, hopeless):
        process = self.living.get(name)
        if process is not None and process.can_end:
            self.ended(name, hopeless)

    def ended(self, name: str, hopeless: bool) -> None:
        process = self.living.pop(name)
        # Its own fault counts only while the same is still wanted; else the next wish decides.
        own_fault = process.faulted or not process.signalled
        if process.want == self.wishes.want(name) and own_fault:
            self.backoffs[name].crash(self.now, process.warmed_at)
            if process.unfit or (hopeless and not process.signalled):
                self.barred[name] = process.want
                self.backoffs[name].pending, self.backoffs[name].at_once = None, False
        self.news(name, Exited(process.gen, MISCONFIGURED if hopeless else CRASH))
        if name not in self.wishes.confs:
            self.wishes.forget(name)
            assert name not in self.fleet.instances

    @rule(name=names, times=st.integers(2, 6))
    def crash_again_and_again(self, name, times):
        for _ in range(times):
            process = self.living.get(name)
            if process is None or process.signalled or self.wishes.want(name) != process.want:
                return
            self.ended(name, hopeless=False)
            pending = self.backoffs[name].pending
            if pending is not None:
                self.pass_time(max(0.0, pending[1] - self.now))

    @rule(name=names, age=st.integers(1, 3), kind=st.integers(0, 9))
    def talk_of_the_past(self, name, age, kind):
        """News of a generation that has ended comes late, or twice."""
        gen = self.highest.get(name, 0) + (name not in self.living) - age
        if gen < 1 or self.now >= (next_deadline(self.fleet) or self.now + 1):
            return
        current = name in self.fleet.instances and self.fleet.instances[name].gen == gen
        # The last generation ends once; only older ends are told again here.
        late = [news for news in all_news(gen) if not (current and isinstance(news, Exited))]
        before = self.fleet

        self.news(name, late[kind % len(late)])

        assert self.fleet == before

    # --- when the world is quiet ---

    @rule()
    def settle(self):
        """Let every process do what a healthy one does, until nothing is left to happen."""
        self.tempers = {}
        for _ in range(300):
            moved = [self.move_on(name) for name in NAMES]
            if not any(moved):
                due = next_deadline(self.fleet)
                if due is None:
                    break
                self.now = max(self.now, due)
                self.feed(Tick())
        else:
            raise AssertionError("never quiet")
        for name, inst in self.fleet.instances.items():
            assert inst.phase is self.expected_phase(name), (inst, self.living.get(name))
        for name in self.living.keys() | self.wishes.confs.keys():
            assert name in self.fleet.instances
        assert is_over(self.fleet) == (self.wishes.shutdown is not None)
        assert self.operations == [], "an operation that never ends"

    def move_on(self, name: str) -> bool:
        """Let the process of *name* do its next thing; tell whether there was any."""
        process = self.living.get(name)
        if process is None:
            return False
        if process.must_end:
            self.ended(name, hopeless=False)
        elif process.signalled:
            return False
        elif self.fleet.instances[name].phase is Phase.DRAINING:
            self.drain(name)
        elif process.stage < 3:
            self.come_up(name, 1)
        elif not process.responsive:
            self.probe(name, True)
        else:
            return False
        return True

    def expected_phase(self, name: str) -> Phase:
        process, want = self.living.get(name), self.wishes.want(name)
        if process is not None and process.kills:
            return Phase.STUCK
        if want is None:
            return Phase.STOPPED
        if name in self.barred:
            return Phase.FAILED
        assert process is not None
        assert process.want == want
        return Phase.READY

    def teardown(self) -> None:
        self.settle()
        self.wishes.shutdown = Haste.DRAIN if self.wishes.shutdown is None else self.wishes.shutdown
        for name in NAMES:
            self.give_another_chance(name)
        self.feed(ShutdownRequested())
        self.settle()


TestFleet = FleetMachine.TestCase
TestFleet.settings = settings(stateful_step_count=40)

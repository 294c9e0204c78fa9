"""A world without processes: a launcher, a gate and a probe to script, in the loop's own time."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llamasup.clock import Now
from llamasup.config.spec import Spec
from llamasup.core.model import Listening, Loaded, News, Warmed
from llamasup.core.routes import Admission, Serve
from llamasup.errors import SpawnError


class LoopClock:
    """Both clocks follow the event loop's time, which looptime makes virtual."""

    def now(self) -> Now:
        at = asyncio.get_running_loop().time()
        return Now(mono=at, wall=1_000_000 + at)


@dataclass(frozen=True)
class End:
    code: int | None = 0
    signal: int | None = None


@dataclass
class FakeChild:
    """A process that lives until it is signalled or `ends`."""

    pid: int
    gen: int
    load_seconds: float
    exec_error: str | None = None
    ignores_term: bool = False
    unkillable: bool = False
    signals: list[str] = field(default_factory=list)
    end: "asyncio.Future[End]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def alive(self) -> bool:
        return not self.end.done()

    def ends(self, code: int | None = 0, signal: int | None = None) -> None:
        if self.alive:
            self.end.set_result(End(code, signal))

    def terminate(self) -> None:
        self.signals.append("TERM")
        if not self.ignores_term:
            self.ends(0)

    def kill(self) -> None:
        self.signals.append("KILL")
        if not self.unkillable:
            self.ends(None, 9)

    async def executed(self) -> None:
        if self.exec_error is not None:
            self.ends(127)
            raise SpawnError(self.exec_error, hopeless=True)

    async def main_ended(self) -> None:
        await asyncio.shield(self.end)

    async def wait(self) -> End:
        return await asyncio.shield(self.end)


class FakeLauncher:
    """Launches `FakeChild`ren; `script` may change each one before it runs."""

    def __init__(self, load_seconds: float = 1.0) -> None:
        self.load_seconds = load_seconds
        self.launched: dict[str, list[FakeChild]] = {}
        self.launch_error: str | None = None
        self.tail: list[str] = []
        self.script: Callable[[str, FakeChild], None] = lambda _name, _child: None

    def launch(self, name: str, gen: int, spec: Spec) -> FakeChild:
        if self.launch_error is not None:
            raise SpawnError(self.launch_error)
        before = self.launched.setdefault(name, [])
        assert not any(child.alive for child in before), "two living processes"
        child = FakeChild(1000 + sum(map(len, self.launched.values())), gen, self.load_seconds)
        self.script(name, child)
        before.append(child)
        return child

    def last_lines(self, name: str, gen: int, lines: int) -> list[str]:
        return self.tail[-lines:]

    def reap_orphans(self) -> None:
        pass

    def last(self, name: str) -> FakeChild:
        return self.launched[name][-1]


class FakeProbe:
    """Reports a load of as many seconds as the child says, then is quiet."""

    def __init__(self, gen: int, child: FakeChild, post: Callable[[News], None]) -> None:
        self.gen, self.child, self.post = gen, child, post

    async def run(self) -> None:
        self.post(Listening(self.gen))
        await asyncio.sleep(self.child.load_seconds)
        self.post(Loaded(self.gen))
        self.post(Warmed(self.gen))
        await asyncio.Event().wait()


def fake_probe(spec: Spec, gen: int, child: FakeChild, post: Callable[[News], None]) -> FakeProbe:
    return FakeProbe(gen, child, post)


class FakeGate:
    """Counts what tests say is in flight and keeps every published table."""

    def __init__(self) -> None:
        self.on_idle: Callable[[str, int], None] = lambda _name, _gen: None
        self.table: Mapping[str, Admission] = {}
        self.counts: dict[tuple[str, int], int] = {}

    def publish(self, table: Mapping[str, Admission]) -> None:
        self.table = table

    def in_flight(self, name: str, gen: int) -> int:
        return self.counts.get((name, gen), 0)

    def in_flight_total(self, name: str) -> int:
        return sum(count for (of, _gen), count in self.counts.items() if of == name)

    def held(self, name: str) -> int:
        return 0

    def begin(self, name: str) -> int:
        route = self.table[name].route
        assert isinstance(route, Serve)
        self.counts[name, route.gen] = self.in_flight(name, route.gen) + 1
        return route.gen

    def finish(self, name: str, gen: int) -> None:
        self.counts[name, gen] -= 1
        if self.counts[name, gen] == 0:
            self.on_idle(name, gen)

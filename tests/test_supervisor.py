"""The control loop with fake processes and virtual time (looptime): sleeps cost nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from llamasup.config.spec import Address, InstanceConf, Kind, Policy, RestartPolicy, Spec
from llamasup.core.model import Haste, InstanceNews, Phase, Verb, Warmed
from llamasup.core.operations import Outcome
from llamasup.core.routes import Hold, Refuse, Serve
from llamasup.errors import UnknownInstanceError
from llamasup.events import EventLog, Record
from llamasup.supervisor import Supervisor
from tests.fakes.world import FakeGate, FakeLauncher, LoopClock, fake_probe

pytestmark = pytest.mark.looptime


def conf(name: str, *, model: str = "/m.gguf", **policy: object) -> InstanceConf:
    spec = Spec(name, ("/bin/llama-server", "--model", model), (), Kind.CHAT, model, (name,), 1)
    port = 1000 + sum(map(ord, name))
    return InstanceConf(name, Address("127.0.0.1", port), spec, Policy(**policy))  # type: ignore[arg-type]


class World:
    def __init__(self) -> None:
        self.launcher = FakeLauncher()
        self.gate = FakeGate()
        self.events = EventLog()
        self.handled = asyncio.Event()
        self.supervisor = Supervisor(
            self.launcher, self.gate, fake_probe, LoopClock(), self.events, self.handled.set
        )

    def phase(self, name: str) -> Phase:
        return self.supervisor.fleet.instances[name].phase

    async def until(self, true: Callable[[], bool], limit: float = 100_000) -> float:
        """Wait in virtual time; return the seconds it took."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        async with asyncio.timeout(limit):
            while not true():
                self.handled.clear()
                await self.handled.wait()
        return loop.time() - begin

    async def until_phase(self, name: str, phase: Phase, limit: float = 100_000) -> float:
        return await self.until(lambda: self.phase(name) is phase, limit)

    def notes(self, kind: str) -> list[str]:
        return [
            record.message
            for record in self.events.after(0)
            if isinstance(record, Record) and record.kind == kind
        ]


@asynccontextmanager
async def supervised(*confs: InstanceConf) -> AsyncIterator[World]:
    world = World()
    world.supervisor.load(confs)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.supervisor.run())
        await asyncio.sleep(0.001)
        yield world
        world.supervisor.shut_down(Haste.KILL)
        async with asyncio.timeout(1000):
            await running


async def test_every_instance_becomes_ready_and_is_routed() -> None:
    async with supervised(conf("chat"), conf("embed")) as world:
        await world.until(world.supervisor.all_ready)

        routes = {name: entry.route for name, entry in world.gate.table.items()}
        assert routes == {"chat": Serve(1), "embed": Serve(1)}
        assert world.supervisor.summary() == "2/2 ready"


async def test_the_first_end_after_a_stable_run_restarts_at_once() -> None:
    async with supervised(conf("chat")) as world:
        await world.until_phase("chat", Phase.READY)
        await asyncio.sleep(120)

        world.launcher.last("chat").ends(None, 11)
        await asyncio.sleep(0.001)

        assert world.phase("chat") is Phase.STARTING or world.phase("chat") is Phase.LOADING
        assert isinstance(world.gate.table["chat"].route, Hold)
        assert await world.until_phase("chat", Phase.READY) < 1.1
        assert world.notes("exit") == ["generation 1 ended: killed by SIGSEGV"]


async def test_a_crash_loop_slows_down_and_never_gives_up() -> None:
    policy = RestartPolicy(delay=1, max_delay=300, burst=5, window=600, stable=60)
    async with supervised(conf("chat", restart=policy)) as world:
        world.launcher.script = lambda _name, child: child.ends(0)
        world.launcher.load_seconds = 0.0
        await world.until_phase("chat", Phase.READY)
        world.launcher.last("chat").ends(0)

        await world.until(lambda: len(world.launcher.launched["chat"]) == 6)
        inst = world.supervisor.fleet.instances["chat"]
        await world.until_phase("chat", Phase.BACKOFF)

        inst = world.supervisor.fleet.instances["chat"]
        assert inst.reason == ("crash loop (6 ends within 10m): exit code 0; next try in 5m")
        assert await world.until(lambda: len(world.launcher.launched["chat"]) == 7) >= 299
        # The slow tries leave the window empty, and that must not make them quick again.
        await world.until(lambda: len(world.launcher.launched["chat"]) == 9)
        assert await world.until(lambda: len(world.launcher.launched["chat"]) == 10) >= 299


async def test_a_binary_that_never_could_be_executed_fails_without_retry() -> None:
    async with supervised(conf("chat", autostart=False)) as world:
        world.launcher.script = lambda _name, child: setattr(child, "exec_error", "no such file")
        world.supervisor.command("chat", Verb.START)

        await world.until_phase("chat", Phase.FAILED)
        await asyncio.sleep(10_000)

        assert world.phase("chat") is Phase.FAILED
        assert world.gate.table["chat"].route == Refuse("failed: no such file")
        assert len(world.launcher.launched["chat"]) == 1


async def test_a_binary_that_ran_before_is_tried_again() -> None:
    """It is being replaced, or its disk is away for a moment."""
    async with supervised(conf("chat")) as world:
        await world.until_phase("chat", Phase.READY)
        world.launcher.script = lambda _name, child: setattr(child, "exec_error", "text file busy")
        world.launcher.last("chat").ends(1)
        await world.until(lambda: len(world.launcher.launched["chat"]) >= 3)

        world.launcher.script = lambda _name, _child: None

        await world.until_phase("chat", Phase.READY)


async def test_a_launch_that_fails_in_the_launcher_backs_off() -> None:
    world_conf = conf("chat")
    async with supervised(world_conf) as world:
        await world.until_phase("chat", Phase.READY)
        world.launcher.launch_error = "cannot fork"
        world.launcher.last("chat").ends(1)
        await world.until_phase("chat", Phase.BACKOFF)
        await asyncio.sleep(0.5)

        world.launcher.launch_error = None

        await world.until_phase("chat", Phase.READY)


async def test_a_stop_drains_before_it_terminates() -> None:
    async with supervised(conf("chat")) as world:
        await world.until_phase("chat", Phase.READY)
        gen = world.gate.begin("chat")
        operation = world.supervisor.command("chat", Verb.STOP)
        await asyncio.sleep(100)
        assert world.phase("chat") is Phase.DRAINING
        assert world.launcher.last("chat").signals == []

        world.gate.finish("chat", gen)
        ended = await world.supervisor.operation_ended(operation.id)

        assert ended.outcome is Outcome.DONE
        assert world.launcher.last("chat").signals == ["TERM"]
        assert world.gate.table["chat"].route == Refuse("stopped by the operator")


async def test_a_drain_ends_at_its_timeout() -> None:
    async with supervised(conf("chat", drain_timeout=30.0)) as world:
        await world.until_phase("chat", Phase.READY)
        world.gate.begin("chat")
        world.supervisor.command("chat", Verb.STOP)

        assert 29.9 <= await world.until_phase("chat", Phase.STOPPED) <= 30.2


async def test_a_child_that_ignores_everything_becomes_stuck_and_delays_nobody() -> None:
    async with supervised(conf("bad"), conf("good")) as world:
        await world.until(world.supervisor.all_ready)
        child = world.launcher.last("bad")
        child.ignores_term = child.unkillable = True
        operation = world.supervisor.command("bad", Verb.STOP)
        good = world.supervisor.command("good", Verb.RESTART)
        assert (await world.supervisor.operation_ended(good.id)).outcome is Outcome.DONE

        ended = await world.supervisor.operation_ended(operation.id)

        assert ended.outcome is Outcome.FAILED
        assert world.phase("bad") is Phase.STUCK
        assert child.signals == ["TERM", "TERM", "KILL"]
        child.ends(None, 9)
        await world.until_phase("bad", Phase.STOPPED)


async def test_a_stuck_child_does_not_hold_up_the_daemon() -> None:
    world = World()
    world.supervisor.load((conf("bad"),))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.supervisor.run())
        await asyncio.sleep(5)
        child = world.launcher.last("bad")
        child.ignores_term = child.unkillable = True
        begin = asyncio.get_running_loop().time()

        world.supervisor.shut_down(Haste.DRAIN)
        async with asyncio.timeout(60):
            await running

        policy = Policy()
        bound = policy.stop_timeout + policy.stop_again_timeout + policy.kill_timeout
        assert asyncio.get_running_loop().time() - begin <= bound + 0.1


async def test_a_restart_is_done_when_a_new_generation_is_ready() -> None:
    async with supervised(conf("chat")) as world:
        await world.until_phase("chat", Phase.READY)

        operation = world.supervisor.command("chat", Verb.RESTART)
        ended = await world.supervisor.operation_ended(operation.id)

        assert ended.outcome is Outcome.DONE
        assert world.gate.table["chat"].route == Serve(2)
        assert world.supervisor.instance_rows()[0].restarts == 0


async def test_a_later_command_overtakes_an_earlier_one() -> None:
    async with supervised(conf("chat")) as world:
        await world.until_phase("chat", Phase.READY)
        gen = world.gate.begin("chat")
        stop = world.supervisor.command("chat", Verb.STOP)
        await asyncio.sleep(1)
        start = world.supervisor.command("chat", Verb.START)

        ended = await world.supervisor.operation_ended(stop.id)
        done = await world.supervisor.operation_ended(start.id)

        assert (ended.outcome, done.outcome) == (Outcome.SUPERSEDED, Outcome.DONE)
        assert world.gate.table["chat"].route == Serve(gen)
        assert len(world.launcher.launched["chat"]) == 1


async def test_a_changed_spec_is_relaunched_and_an_unchanged_one_is_not() -> None:
    chat, embed = conf("chat"), conf("embed")
    async with supervised(chat, embed) as world:
        await world.until(world.supervisor.all_ready)
        other = conf("chat", model="/other.gguf")

        world.supervisor.load((other, replace(embed, policy=Policy(max_held=3))))
        await asyncio.sleep(0.01)
        await world.until(world.supervisor.all_ready)

        assert [child.gen for child in world.launcher.launched["chat"]] == [1, 2]
        assert [child.gen for child in world.launcher.launched["embed"]] == [1]
        assert world.gate.table["embed"].max_held == 3


async def test_a_removed_instance_is_stopped_and_forgotten() -> None:
    async with supervised(conf("chat"), conf("embed")) as world:
        await world.until(world.supervisor.all_ready)

        world.supervisor.load((conf("chat"),))
        await asyncio.sleep(1)

        assert list(world.supervisor.fleet.instances) == ["chat"]
        assert world.launcher.last("embed").signals == ["TERM"]


async def test_an_internal_error_in_one_generation_is_a_crash_of_that_one_only() -> None:
    async with supervised(conf("chat"), conf("embed")) as world:
        await world.until(world.supervisor.all_ready)

        def broken(_name: str, child: object) -> None:
            child.load_seconds = None  # type: ignore[attr-defined]  # asyncio.sleep(None) raises

        world.launcher.script = broken
        world.launcher.last("chat").ends(1)
        await world.until(lambda: world.supervisor.fleet.instances["chat"].restarts >= 2)

        last = world.supervisor.fleet.instances["chat"].last_exit
        assert last is not None
        assert last.detail.startswith("internal error in llamasup")
        assert world.phase("embed") is Phase.READY


async def test_an_unknown_transition_is_healed_by_killing_that_one_process() -> None:
    async with supervised(conf("chat"), conf("embed")) as world:
        await world.until(world.supervisor.all_ready)
        inst = world.supervisor.fleet.instances["chat"]
        instances = {**world.supervisor.fleet.instances, "chat": replace(inst, phase=Phase.FAILED)}
        world.supervisor.fleet = replace(world.supervisor.fleet, instances=instances)

        world.launcher.last("chat").ends(0)  # an exit that FAILED cannot know
        await world.until(lambda: world.supervisor.invalid_transitions == 1)

        await world.until_phase("chat", Phase.READY)
        assert len(world.launcher.launched["embed"]) == 1


async def test_late_news_of_an_older_generation_changes_nothing() -> None:
    async with supervised(conf("chat")) as world:
        await world.until_phase("chat", Phase.READY)
        world.launcher.load_seconds = 50.0
        world.supervisor.command("chat", Verb.RESTART)
        await world.until(lambda: len(world.launcher.launched["chat"]) == 2)

        world.supervisor._post(InstanceNews("chat", Warmed(1)))
        await asyncio.sleep(1)

        assert world.phase("chat") is Phase.LOADING


async def test_a_command_for_an_unknown_instance_names_the_known_ones() -> None:
    async with supervised(conf("chat")) as world:
        with pytest.raises(UnknownInstanceError, match=r"'chta'; there are: chat"):
            world.supervisor.command("chta", Verb.STOP)


async def test_healthy_tells_whether_facts_are_handled() -> None:
    async with supervised(conf("chat")) as world:
        await asyncio.sleep(1000)  # nothing happens but ticks

        assert world.supervisor.healthy()

"""Fleet → rows for the API, the CLI and the service manager. Pure projections."""

from collections.abc import Mapping
from dataclasses import dataclass

from llamasup.clock import Now
from llamasup.core.model import Down, Fleet, Instance, Phase, Up


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """The last end of an instance's process. *at* in Unix seconds."""

    code: int | None
    signal: int | None
    cause: str
    detail: str
    at: float


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One row. *phase* is as in product.md: a held-down instance is shown as ``waiting``.

    *since* and *next_try* are Unix seconds; *attempts* is the position in the backoff.
    """

    name: str
    phase: str
    reason: str
    since: float
    pid: int | None
    generation: int
    kind: str
    model: str
    aliases: tuple[str, ...]
    listen: str
    restarts: int
    last_exit: ExitStatus | None
    next_try: float | None
    load_seconds: float | None
    in_flight: int
    held: int


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The daemon's own row. *started* in Unix seconds; *summary* is what systemd shows."""

    version: str
    pid: int
    started: float
    config: str
    summary: str
    shutting_down: bool


@dataclass(frozen=True, slots=True)
class Status:
    """Everything ``status`` shows."""

    daemon: DaemonStatus
    instances: tuple[InstanceStatus, ...]


@dataclass(frozen=True, slots=True)
class Live:
    """What the core does not know of an instance: its *pid* and the requests at its door."""

    pid: int | None = None
    in_flight: int = 0
    held: int = 0


def rows(fleet: Fleet, live: Mapping[str, Live], now: Now) -> tuple[InstanceStatus, ...]:
    """Return a row for each instance, in the order of the configuration."""
    nothing = Live()
    return tuple(
        _row(inst, fleet, live.get(name, nothing), now) for name, inst in fleet.instances.items()
    )


def summary(fleet: Fleet) -> str:
    """Return one line for the service manager: ``3/4 ready; chat: loading``."""
    wanted = [inst for inst in fleet.instances.values() if isinstance(inst.goal, Up)]
    ready = sum(inst.phase is Phase.READY for inst in wanted)
    others = [f"{inst.name}: {inst.phase}" for inst in wanted if inst.phase is not Phase.READY]
    state = "; ".join([f"{ready}/{len(wanted)} ready", *others])
    return f"shutting down; {state}" if fleet.shutdown is not None else state


def all_ready(fleet: Fleet) -> bool:
    """Tell whether every instance that is wanted up is ready."""
    return all(
        inst.phase is Phase.READY
        for inst in fleet.instances.values()
        if isinstance(inst.goal, Up) or inst.goal.waiting
    )


def _row(inst: Instance, fleet: Fleet, live: Live, now: Now) -> InstanceStatus:
    conf = fleet.confs.get(inst.name)
    running = inst.running or (inst.goal if isinstance(inst.goal, Up) else None)
    spec = running.spec if running else (conf.spec if conf else None)
    waits = inst.phase is Phase.STOPPED and isinstance(inst.goal, Down) and inst.goal.waiting
    next_try = None
    if inst.phase is Phase.BACKOFF and inst.deadline is not None:
        next_try = now.wall + inst.deadline - now.mono
    return InstanceStatus(
        name=inst.name,
        phase="waiting" if waits else str(inst.phase),
        reason=inst.reason,
        since=inst.phase_wall,
        pid=live.pid,
        generation=inst.gen,
        kind=str(spec.kind) if spec else "",
        model=spec.model if spec else "",
        aliases=spec.aliases if spec else (),
        listen=str(conf.listen) if conf else "",
        restarts=inst.restarts,
        last_exit=_exit_row(inst),
        next_try=next_try,
        load_seconds=inst.load_seconds,
        in_flight=live.in_flight,
        held=live.held,
    )


def _exit_row(inst: Instance) -> ExitStatus | None:
    if inst.last_exit is None or inst.last_exit_wall is None:
        return None
    end = inst.last_exit
    return ExitStatus(end.code, end.signal, str(end.cause), end.detail, inst.last_exit_wall)

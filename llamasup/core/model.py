"""The words of the core: goals, phases, events, effects. Values only; rules are in `lifecycle`.

Moments named ``*_at`` are on the monotonic clock unless they say ``wall`` (Unix seconds).
"""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TypeAlias

from llamasup.config.spec import InstanceConf, Policy, Spec


class Phase(StrEnum):
    """Where the process of an instance is."""

    STOPPED = "stopped"  # no process, none wanted or none allowed (then shown as `waiting`)
    STARTING = "starting"  # spawned; its socket does not answer yet
    LOADING = "loading"  # answers 503
    WARMING = "warming"  # answers 200; the warm-up request is under way
    READY = "ready"
    UNREADY = "unready"  # alive, but its readiness probe fails: nothing is routed there
    DRAINING = "draining"  # to be stopped; requests in flight may finish
    STOPPING = "stopping"  # SIGTERM sent, once or twice
    KILLING = "killing"  # SIGKILL sent
    STUCK = "stuck"  # killed but not dead; its memory and device are not free
    BACKOFF = "backoff"  # waits for its next try
    FAILED = "failed"  # config or file error: no retry until something changes


ALIVE = frozenset(
    {
        Phase.STARTING,
        Phase.LOADING,
        Phase.WARMING,
        Phase.READY,
        Phase.UNREADY,
        Phase.DRAINING,
        Phase.STOPPING,
        Phase.KILLING,
        Phase.STUCK,
    }
)
"""The phases in which there is a process."""


class Cause(StrEnum):
    """Why a process ended, as far as it decides what happens next."""

    REQUESTED = "requested"  # we asked for it
    CONFIG = "config"  # cannot ever work as configured: no retry
    CRASH = "crash"  # anything else, an unasked exit 0 included


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one process: an exit *code*, a *signal* number, or neither (never executed)."""

    code: int | None
    signal: int | None
    cause: Cause
    detail: (
        str  # one line for people: "killed by SIGSEGV", "exit code 1: error: invalid argument: --x"
    )


# --- goals --------------------------------------------------------------------------------------


class Haste(IntEnum):
    """How a running process is to be left."""

    DRAIN = 0  # let requests in flight finish first
    STOP = 1  # no drain
    KILL = 2  # SIGKILL at once


@dataclass(frozen=True, slots=True)
class Up:
    """Run *spec*. *serial* counts the operator's restarts: a higher one means a fresh process.

    *haste* says how to leave the process that runs something else.
    """

    spec: Spec
    serial: int = 0
    haste: Haste = Haste.DRAIN

    def same_process(self, other: "Up | None") -> bool:
        """Tell whether a process launched for *other* does for this goal, too."""
        return other is not None and (self.spec, self.serial) == (other.spec, other.serial)


@dataclass(frozen=True, slots=True)
class Down:
    """Do not run. *waiting* says that the instance is wanted up and held down for now."""

    reason: str
    haste: Haste = Haste.DRAIN
    waiting: bool = False


Goal: TypeAlias = Up | Down


# --- events of one instance ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GoalChanged:
    """The instance should now do something else."""

    goal: Goal


@dataclass(frozen=True, slots=True)
class Due:
    """The deadline of the phase has passed."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The operator wants the next try now."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The child's socket answers, and the answer is "loading"."""

    gen: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """The load moves on: memory, I/O or CPU time of the child grew."""

    gen: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The child says that it is healthy and reports the configured model, context and slots."""

    gen: int


@dataclass(frozen=True, slots=True)
class Unfit:
    """The child runs, but not as configured (other context, other slot count)."""

    gen: int
    reason: str


@dataclass(frozen=True, slots=True)
class Warmed:
    """The warm-up request was answered."""

    gen: int


@dataclass(frozen=True, slots=True)
class ProbePassed:
    """A readiness probe passed."""

    gen: int


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """The readiness probe failed often enough to count."""

    gen: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drained:
    """No request is in flight on this generation any more."""

    gen: int


@dataclass(frozen=True, slots=True)
class Exited:
    """Every process of this generation is gone."""

    gen: int
    exit: Exit


News: TypeAlias = (
    Listening | Progressed | Loaded | Unfit | Warmed | ProbePassed | ProbeFailed | Drained | Exited
)
"""What a generation reports of itself; late news of an older generation changes nothing."""

Event: TypeAlias = GoalChanged | Due | Retry | News


# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spawn:
    """Launch generation *gen*."""

    name: str
    gen: int
    spec: Spec


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send SIGTERM (and SIGCONT) to the main process of *gen*."""

    name: str
    gen: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL to every process of *gen*."""

    name: str
    gen: int


@dataclass(frozen=True, slots=True)
class Note:
    """Tell people: goes to the log and to the event stream."""

    name: str
    kind: str  # "phase", "exit", "probe", "operator"
    message: str
    level: str = "info"  # info, warning, error


Effect: TypeAlias = Spawn | Terminate | Kill | Note


# --- facts of the fleet -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigLoaded:
    """A new, valid configuration."""

    instances: tuple[InstanceConf, ...]


@dataclass(frozen=True, slots=True)
class InstanceNews:
    """A generation of *name* reports."""

    name: str
    news: News


class Verb(StrEnum):
    """What an operator may ask of an instance."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's command; *haste* says how to leave the process that runs."""

    name: str
    verb: Verb
    haste: Haste = Haste.DRAIN


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """Stop everything; a later request can only be hastier."""

    haste: Haste = Haste.DRAIN


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened but time."""


Fact: TypeAlias = ConfigLoaded | InstanceNews | Command | ShutdownRequested | Tick


# --- state --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instance:
    """All that is known of one instance. *gen* is the last generation launched, alive or not."""

    name: str
    policy: Policy
    goal: Goal
    phase: Phase = Phase.STOPPED
    gen: int = 0
    running: Up | None = None  # what the living process was launched as
    deadline: float | None = None  # of the phase, monotonic
    give_up_at: float | None = None  # of the load as a whole, monotonic
    launched_at: float = 0.0  # of this generation, monotonic
    phase_wall: float = 0.0  # when the phase began, Unix seconds
    reason: str = ""  # why it is in this phase, for people
    fault: str | None = None  # why we take the process down ourselves
    hopeless: bool = False  # the fault is one that no retry mends
    terms: int = 0  # SIGTERMs sent to this generation
    ready_at: float | None = None  # of this generation, monotonic
    responsive: bool = True  # what the readiness probe said last
    attempts: int = 1  # position in the backoff; 0 after a stable run
    crashes: tuple[float, ...] = ()  # moments of unrequested ends inside the window, monotonic
    looping: bool = False  # in a crash loop, until a stable run or a change
    restarts: int = 0  # unrequested ends since the daemon started
    last_exit: Exit | None = None
    last_exit_wall: float | None = None
    load_seconds: float | None = None  # of the last load that became ready

    @property
    def wakes_at(self) -> float | None:
        """When `Due` is to be sent at the latest, monotonic."""
        moments = [at for at in (self.deadline, self.give_up_at) if at is not None]
        return min(moments, default=None)


class Override(StrEnum):
    """An operator's standing wish, kept until the next one."""

    STOPPED = "stopped"
    STARTED = "started"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The state of everything: one value, replaced and never changed."""

    instances: dict[str, Instance] = field(default_factory=dict)
    confs: dict[str, InstanceConf] = field(default_factory=dict)
    overrides: dict[str, Override] = field(default_factory=dict)
    serials: dict[str, int] = field(default_factory=dict)  # restarts asked for, by name
    hastes: dict[str, Haste] = field(default_factory=dict)  # of the last command, by name
    # The last generation of removed names: one that comes back must not repeat a number.
    gens: dict[str, int] = field(default_factory=dict)
    shutdown: Haste | None = None  # None = not shutting down

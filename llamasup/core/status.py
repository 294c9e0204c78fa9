"""Fleet → rows for the API, the CLI and the service manager. Pure projections."""

from dataclasses import dataclass


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
    """The daemon's own row. *started* in Unix seconds; *summary* as given to systemd ("3/4 ready")."""

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

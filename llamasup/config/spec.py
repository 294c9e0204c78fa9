"""What the rest of the daemon knows of the configuration: frozen values, no file, no pydantic.

``Spec`` is what to launch: a change costs a relaunch. ``Policy`` is how to watch it: always live.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What an instance answers; it decides the warm-up request."""

    CHAT = "chat"
    EMBEDDING = "embedding"
    RERANK = "rerank"


@dataclass(frozen=True, slots=True)
class Spec:
    """What to launch. Two equal specs need no relaunch.

    *argv* is the whole command line, binary first, less the socket that the launcher adds at each
    spawn. *env* holds only what the config asks for; the launcher adds the clean base.
    *slot_context* is the context per slot, in tokens, that the child must report; None = any.
    """

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    kind: Kind
    model: str
    aliases: tuple[str, ...]
    parallel: int
    slot_context: int | None = None
    nice: int = 0
    oom_score_adj: int = 0
    api_key: str | None = field(default=None, repr=False)

    @property
    def binary(self) -> str:
        """The path of the llama-server binary."""
        return self.argv[0]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When to start again after an end nobody asked for. Times in seconds."""

    delay: float = 1.0
    max_delay: float = 300.0
    burst: int = 5
    window: float = 600.0
    stable: float = 60.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How to watch an instance; every value is live on reload. Times in seconds."""

    load_stall_timeout: float = 180.0
    load_timeout: float = 3600.0
    drain_timeout: float = 300.0
    stop_timeout: float = 15.0  # first SIGTERM to the second
    stop_again_timeout: float = 5.0  # second SIGTERM to SIGKILL
    kill_timeout: float = 10.0  # SIGKILL to `stuck`
    hold_timeout: float = 600.0
    max_held: int = 256
    autostart: bool = True
    restart: RestartPolicy = RestartPolicy()


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address to listen on. *host* is a literal IP address: nothing is ever resolved."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class InstanceConf:
    """One instance of the file, resolved."""

    name: str
    listen: Address
    spec: Spec
    policy: Policy


@dataclass(frozen=True, slots=True)
class AdminConf:
    """Where the admin API listens. Over TCP, changes need *token*; None = no changes over TCP."""

    socket: str
    listen: Address | None = None
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration, resolved and checked. *files* are the files it was read from."""

    runtime_dir: str
    state_dir: str
    log_dir: str | None  # None: logs are kept in memory and mirrored to stderr only
    log_level: str
    timezone: str
    admin: AdminConf
    instances: tuple[InstanceConf, ...]
    files: tuple[str, ...] = ()

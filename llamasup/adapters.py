"""What the supervisor needs of the world: clock, launcher, child, gate, probe. Protocols only.

The adapters satisfy them without inheriting; tests hand in plain classes.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from llamasup.clock import Now
from llamasup.config.spec import Spec
from llamasup.core.model import News
from llamasup.core.routes import Admission


class Clock(Protocol):
    """Reads both clocks."""

    def now(self) -> Now: ...


class RawExit(Protocol):
    """How a process ended, as the kernel tells it."""

    @property
    def code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...


class Child(Protocol):
    """One launched process."""

    @property
    def pid(self) -> int: ...
    async def executed(self) -> None: ...
    async def main_ended(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    async def wait(self) -> RawExit: ...

    # What its probe needs.
    @property
    def socket(self) -> str: ...
    def peer_is_ours(self, peer_pid: int) -> bool: ...
    def progress(self) -> tuple[int, ...]: ...


class Launcher(Protocol):
    """Starts children and keeps their output."""

    def launch(self, name: str, gen: int, spec: Spec) -> Child: ...
    def last_lines(self, name: str, gen: int, lines: int) -> list[str]: ...
    def reap_orphans(self) -> None: ...


class Gate(Protocol):
    """The front's door: takes the routing table, counts what is in flight."""

    on_idle: Callable[[str, int], None]

    def publish(self, table: Mapping[str, Admission]) -> None: ...
    def in_flight(self, name: str, gen: int) -> int: ...
    def in_flight_total(self, name: str) -> int: ...
    def held(self, name: str) -> int: ...


class Probe(Protocol):
    """Asks one child until cancelled, and posts what it learns."""

    async def run(self) -> None: ...


ProbeFactory = Callable[[Spec, int, Child, Callable[[News], None]], Probe]

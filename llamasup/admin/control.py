"""What the admin API needs of the rest of the daemon. Protocols only."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from llamasup.core.model import Verb
from llamasup.core.operations import Operation
from llamasup.core.status import Status
from llamasup.events import EventLog


class LogLine(Protocol):
    """One line that a child wrote. *seq* grows by one; *at* in Unix seconds."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> float: ...
    @property
    def gen(self) -> int: ...
    @property
    def text(self) -> str: ...


class LogBook(Protocol):
    """The last lines of one instance, over all its generations."""

    def tail(self, count: int, /) -> Sequence[LogLine]:
        """Return the last *count* lines, oldest first."""

    def after(self, seq: int, /) -> Sequence[LogLine]:
        """Return the kept lines after *seq*."""

    def follow(self, seq: int, /) -> AsyncIterator[LogLine]:
        """Yield the lines after *seq*, then every new one; too slow a reader loses some."""


class Control(Protocol):
    """The supervisor, as far as operators may see and move it. No method blocks or does I/O."""

    @property
    def events(self) -> EventLog: ...

    def status(self) -> Status: ...

    def command(self, name: str, verb: Verb, *, now: bool = False) -> Operation:
        """Begin *verb*; raise `UnknownInstanceError`. It goes on whoever asked may leave."""

    def operation(self, operation_id: str) -> Operation | None: ...

    async def operation_ended(self, operation_id: str) -> Operation:
        """Wait until the operation runs no longer. Cancelling the wait changes nothing."""

    def log_book(self, name: str) -> LogBook:
        """Return the lines of *name*; raise `UnknownInstanceError`."""

    def healthy(self) -> bool:
        """Tell whether the control loop answers."""

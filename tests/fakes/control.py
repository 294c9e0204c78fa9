"""A supervisor that does what a test says, for the admin API and the command line."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from llamasup.core.model import Verb
from llamasup.core.operations import Operation, Outcome
from llamasup.core.status import DaemonStatus, ExitStatus, InstanceStatus, Status
from llamasup.errors import UnknownInstanceError
from llamasup.events import EventLog

SINCE = 1_767_225_600.25  # 2026-01-01T00:00:00.250Z


def instance(name: str, phase: str = "ready", **changes: object) -> InstanceStatus:
    row = InstanceStatus(
        name=name,
        phase=phase,
        reason="",
        since=SINCE,
        pid=4711 if phase == "ready" else None,
        generation=3,
        kind="chat",
        model="/models/tiny.gguf",
        aliases=("tiny",),
        listen="127.0.0.1:1234",
        restarts=2,
        last_exit=ExitStatus(None, 11, "crash", "killed by SIGSEGV", SINCE - 60),
        next_try=None,
        load_seconds=1.5,
        in_flight=1,
        held=0,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class FakeLine:
    seq: int
    at: float
    gen: int
    text: str


class FakeLogBook:
    def __init__(self) -> None:
        self.lines: list[FakeLine] = []
        self._news = asyncio.Event()

    def write(self, text: str) -> None:
        self.lines.append(FakeLine(len(self.lines) + 1, SINCE, 3, text))
        self._news.set()
        self._news = asyncio.Event()

    def tail(self, count: int) -> list[FakeLine]:
        return self.lines[-count:]

    def after(self, seq: int) -> list[FakeLine]:
        return self.lines[seq:]

    async def follow(self, seq: int) -> AsyncIterator[FakeLine]:
        while True:
            news = self._news
            for line in self.after(seq):
                seq = line.seq
                yield line
            if seq == len(self.lines):
                await news.wait()


class FakeControl:
    """Commands stay under way until `end`, or end at once with *outcome*."""

    def __init__(self, *rows: InstanceStatus, outcome: Outcome | None = Outcome.DONE) -> None:
        self.events = EventLog(size=50, epoch="e1")
        self.rows = {row.name: row for row in rows or (instance("chat"), instance("embed"))}
        self.outcome = outcome
        self.is_healthy = True
        self.is_shutting_down = False
        self.commands: list[tuple[str, Verb, bool]] = []
        self.operations: dict[str, Operation] = {}
        self.books = {name: FakeLogBook() for name in self.rows}
        self._ended = asyncio.Event()

    def status(self) -> Status:
        daemon = DaemonStatus(
            version="0.1.0",
            pid=4242,
            started=SINCE - 3600,
            config="/etc/llamasup/llamasup.toml",
            summary="2/2 ready",
            shutting_down=self.is_shutting_down,
        )
        return Status(daemon, tuple(self.rows.values()))

    def set_phase(self, name: str, phase: str, reason: str = "") -> None:
        self.rows[name] = replace(self.rows[name], phase=phase, reason=reason)
        self.events.append(SINCE, name, "phase", f"{phase}: {reason}")

    def command(self, name: str, verb: Verb, *, now: bool = False) -> Operation:
        # What the API lets through must be a sane name, whether it exists or not.
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name)
        assert isinstance(now, bool)
        if name not in self.rows:
            raise UnknownInstanceError(f"no instance is called {name}")
        self.commands.append((name, verb, now))
        operation = Operation(f"op{len(self.commands)}", name, verb, 3, SINCE)
        self.operations[operation.id] = operation
        if self.outcome is not None:
            self.end(operation.id, self.outcome, f"ended as {self.outcome}")
        return self.operations[operation.id]

    def end(self, operation_id: str, outcome: Outcome, message: str = "") -> None:
        self.operations[operation_id] = replace(
            self.operations[operation_id], outcome=outcome, message=message, ended=SINCE + 5
        )
        self._ended.set()
        self._ended = asyncio.Event()

    def operation(self, operation_id: str) -> Operation | None:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", operation_id)
        return self.operations.get(operation_id)

    async def operation_ended(self, operation_id: str) -> Operation:
        while self.operations[operation_id].outcome is Outcome.RUNNING:
            await self._ended.wait()
        return self.operations[operation_id]

    def log_book(self, name: str) -> FakeLogBook:
        if name not in self.books:
            raise UnknownInstanceError(f"no instance is called {name}")
        return self.books[name]

    def healthy(self) -> bool:
        return self.is_healthy

"""Operations: an operator's command, followed until it is done, failed or overtaken. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from llamasup.core.model import Verb


class Outcome(StrEnum):
    """How far an operation is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"  # a later command for the same instance took over


@dataclass(frozen=True, slots=True)
class Operation:
    """One command under way. *gen* was the last generation when it was given; times in Unix seconds."""

    id: str
    name: str
    verb: Verb
    gen: int
    started: float
    outcome: Outcome = Outcome.RUNNING
    message: str = ""
    ended: float | None = None

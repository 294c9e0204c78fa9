"""Phase → what the front does with a request: serve, hold or refuse. Derived, never stored."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Serve:
    """Pass requests to generation *gen*."""

    gen: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Let requests wait for the next route; *reason* is told to those that wait too long."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer 503 at once with *reason*; *retry_after* in seconds, None = waiting does not help."""

    reason: str
    retry_after: int | None = None


Route: TypeAlias = Serve | Hold | Refuse


@dataclass(frozen=True, slots=True)
class Admission:
    """The route of one instance and the bounds of its queue (*hold_timeout* in seconds)."""

    route: Route
    max_held: int
    hold_timeout: float

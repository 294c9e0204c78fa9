"""Phase → what the front does with a request: serve, hold or refuse. Derived, never stored."""

from dataclasses import dataclass
from typing import TypeAlias

from llamasup.core.model import Down, Fleet, Instance, Phase

LOOP_RETRY_AFTER = 60
"""Seconds that a client is told to wait for an instance in a crash loop."""

STUCK_RETRY_AFTER = 60
"""Seconds that a client is told to wait for a process that cannot be killed."""


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


_HELD_WHILE_COMING_UP = {
    Phase.STARTING: "starting",
    Phase.LOADING: "loading its model",
    Phase.WARMING: "warming up",
    Phase.UNREADY: "its health probe fails",
    Phase.BACKOFF: "waiting for its next start",
}


def admissions(fleet: Fleet) -> dict[str, Admission]:
    """Return the routing table: what the front does with a request for each instance."""
    return {
        name: Admission(_route(inst), inst.policy.max_held, inst.policy.hold_timeout)
        for name, inst in fleet.instances.items()
    }


def _route(inst: Instance) -> Route:
    """Return the route of one instance. The first rule that applies wins."""
    if inst.phase is Phase.READY:
        return Serve(inst.gen)
    if isinstance(inst.goal, Down):
        return Refuse(inst.goal.reason)
    if inst.phase is Phase.FAILED:
        return Refuse(f"failed: {inst.reason}")
    if inst.phase is Phase.STUCK:
        return Refuse(inst.reason, STUCK_RETRY_AFTER)
    if inst.phase is Phase.BACKOFF and inst.looping:
        return Refuse(inst.reason, LOOP_RETRY_AFTER)  # the next try is minutes away
    return Hold(_HELD_WHILE_COMING_UP.get(inst.phase, "being restarted"))

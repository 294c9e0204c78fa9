"""The two clocks, read together. Nothing else in the daemon reads a clock."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Now:
    """One moment: *mono* for deadlines (seconds, never jumps), *wall* for people (Unix seconds)."""

    mono: float
    wall: float


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Now:
        return Now(mono=time.monotonic(), wall=time.time())

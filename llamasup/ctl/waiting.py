"""Waits for operations, and tells meanwhile what their instances do."""

from collections.abc import Callable
from dataclasses import dataclass, field

from llamasup.clock import SystemClock
from llamasup.ctl.client import Client
from llamasup.ctl.render import Row, phase_line

_STEP = 0.5
"""Seconds of one long poll, after which phases are looked at again."""


@dataclass(slots=True)
class Wait:
    """The *operations* under way, in order; *say* gets a line for each change of a phase."""

    client: Client
    operations: list[Row]
    say: Callable[[str], None]
    _said: dict[str, str] = field(default_factory=dict)

    def run(self, timeout: float | None) -> list[Row]:
        """Return the operations once all have ended, or as they are after *timeout* seconds."""
        clock = SystemClock()
        deadline = None if timeout is None else clock.now().mono + timeout
        while running := [one for one in self.operations if one["outcome"] == "running"]:
            left = _STEP if deadline is None else deadline - clock.now().mono
            if left <= 0:
                break
            self._tell_phases({one["instance"] for one in running})
            self._look(running, min(left, _STEP))
        return self.operations

    def _look(self, running: list[Row], wait: float) -> None:
        fresh: dict[str, Row] = {}
        for one in running:
            # Only the first is waited for: the others have had that time as well.
            fresh[one["id"]] = self.client.operation(one["id"], 0.0 if fresh else wait)
        self.operations = [fresh.get(one["id"], one) for one in self.operations]

    def _tell_phases(self, names: set[str]) -> None:
        rows = self.client.status()["instances"]
        assert isinstance(rows, list)
        for row in rows:
            line = phase_line(row)
            if row["name"] in names and self._said.get(row["name"]) != line:
                self._said[row["name"]] = line
                self.say(line)

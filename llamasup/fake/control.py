"""The control socket of the fake: one JSON object a line in, one a line out.

Commands (several in one object are done in this order):
``{"set": {"itl": "gate"}}``, ``{"clear": ["itl"]}``, ``{"open": "load"}``, ``{"close": "load"}``,
``{"step": {"itl": 3}}``, ``{"wait": {"phase": "loading", "in_flight": 2, "waiting": {"load": 1}}}``
(answers when the state contains all that), ``{"exit": 3}``, ``{"signal": "SEGV"}``. Every answer is
the state: pid, start, phase, in_flight, left (of these: by their client), deferred, inferences,
connections, seen, waiting, faults.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable

from llamasup.fake.faults import Faults, die, end

_LOOK = 0.002  # seconds between two looks of a wait


class Control:
    """Serves the socket *path*; *state* describes the fake."""

    def __init__(self, path: str, faults: Faults, state: Callable[[], dict[str, object]]) -> None:
        self._path = path
        self._faults = faults
        self._state = state

    async def listen(self) -> asyncio.Server:
        """Take the path over from an earlier process and listen."""
        fresh = f"{self._path}.{os.getpid()}"
        server = await asyncio.start_unix_server(self._talk, fresh)
        os.replace(fresh, self._path)  # never a moment without a socket once there was one
        return server

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                await self._obey(json.loads(line))
                writer.write(json.dumps(self._state()).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _obey(self, command: dict[str, object]) -> None:
        faults = self._faults
        for name, value in _pairs(command.get("set")):
            faults.words[name] = str(value)
        for name in _names(command.get("clear")):
            faults.words.pop(name, None)
        for name in _names(command.get("open")):
            faults.gates.open(name)
        for name in _names(command.get("close")):
            faults.gates.close(name)
        for name, count in _pairs(command.get("step")):
            faults.gates.step(name, int(str(count)))
        if "wait" in command:
            while not _contains(self._state(), command["wait"]):
                await asyncio.sleep(_LOOK)
        if "exit" in command:
            end(int(str(command["exit"])))
        if "signal" in command:
            die(str(command["signal"]))


def _pairs(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []


def _names(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)] * bool(value)


def _contains(state: object, wanted: object) -> bool:
    """Return whether *state* has every value of *wanted*, at any depth."""
    if isinstance(wanted, dict):
        return isinstance(state, dict) and all(
            _contains(state.get(key), value) for key, value in wanted.items()
        )
    return state == wanted

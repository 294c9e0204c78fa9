"""What can be asked to go wrong, and when: the words of ``LLAMASUP_FAKE``.

The variable holds words separated by blanks or commas. ``word@N`` holds for the first N starts only
(they are counted in the file ``LLAMASUP_FAKE_COUNTER``). Times are seconds, ``gate`` or ``never``;
a gate is opened over the control socket.

===================  ==============================================================================
load=T               stay in "Loading model" for T (0); hang_load = load=never
bind_late=T          wait T before the socket listens
load_cpu=1           burn CPU while loading, so that the load makes progress
prefill=T, itl=T     before the first token, before each further one (0)
ntok=N               tokens of an answer that names no max_tokens (16)
train=N              context that the model was trained for (131072)
wedge_after=N        after N tokens in all, no request moves any more; /health stays ok
ignore_term          SIGTERM and SIGINT do nothing
stop=T               time between SIGTERM and the end
fork_setsid          leave a grandchild in its own session that outlives us
longline=N           print a line of N bytes at the start
flood=N              print N lines a second for ever
leak=MB              keep so much memory for each request
exit_after=S:CODE    end S seconds after "listening on"
exit_at=P:CODE       end when phase P is reached; phases: start (before the socket), loading, warmup
signal_at=P:SIG      (the first inference request), ready (once that was answered), request (a later
                     one)
refuse_start=N       exit code 1 for the first N starts, like a device that is not free yet
health=T             /health takes T; health=500 answers that status instead
fail=STATUS          every inference request answers STATUS
oldapi               /slots and /metrics wait for the running request
no_metrics, no_slots these answer 501
wrong_model, wrong_ctx, wrong_slots   report something else than was asked for
garbage              answer every request with bytes that are not HTTP
huge=MB              answer every GET with a body of so many MB
cancel_deaf          go on with a request whose client has left
stdin_eof            end when stdin does
print=TEXT           print TEXT (with _ for blanks) while loading
===================  ==============================================================================

In a prompt: ``fake:id=X`` (the answer begins with X), ``fake:n=N``, ``fake:slow=S`` (a token),
``fake:hang``, ``fake:gate=NAME``, ``fake:500``, ``fake:exit0``, ``fake:exit=CODE[:N]``,
``fake:crash[=N]``, ``fake:signal=SIG[:N]`` (N: after so many tokens, else before the first byte).
"""

import asyncio
import fcntl
import os
import re
import signal

NEVER = "never"
GATE = "gate"
TOKENS_UNASKED = 16


class Gates:
    """Named gates that let waiters through when opened, all of them or so many."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self._open: set[str] = set()
        self._permits: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def passing(self, name: str) -> None:
        """Wait until the gate *name* lets one through."""
        self.waiting[name] = self.waiting.get(name, 0) + 1
        try:
            while name not in self._open:
                if self._permits.get(name, 0) > 0:
                    self._permits[name] -= 1
                    return
                await self._changed.wait()
        finally:
            self.waiting[name] -= 1

    def open(self, name: str) -> None:
        """Let everybody through from now on."""
        self._open.add(name)
        self._wake()

    def step(self, name: str, count: int) -> None:
        """Let *count* through."""
        self._permits[name] = self._permits.get(name, 0) + count
        self._wake()

    def close(self, name: str) -> None:
        """Hold everybody up again."""
        self._open.discard(name)
        self._permits.pop(name, None)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Faults:
    """The words in force. *start* is the number of this start, from 1."""

    def __init__(self, text: str, start: int) -> None:
        self.start = start
        self.gates = Gates()
        self.words: dict[str, str] = {}
        for word in re.split(r"[\s,]+", text.strip()):
            if word:
                self._add(word)

    def _add(self, word: str) -> None:
        word, _, times = word.partition("@")
        name, _, value = word.partition("=")
        if name == "refuse_start":
            name, value, times = "exit_at", "start:1", value
        if name == "hang_load":
            name, value = "load", NEVER
        if not times or self.start <= int(times):
            self.words[name] = value

    def has(self, name: str) -> bool:
        """Return whether the word is in force."""
        return name in self.words

    def number(self, name: str, default: float = 0.0) -> float:
        """Return the word's number."""
        return float(self.words.get(name, default))

    async def pause(self, name: str) -> None:
        """Wait as long as the word *name* says."""
        value = self.words.get(name, "0")
        if value == NEVER:
            await asyncio.Event().wait()
        elif value == GATE:
            await self.gates.passing(name)
        elif float(value) > 0:
            await asyncio.sleep(float(value))

    def at(self, phase: str) -> None:
        """End here if this phase is the one to end in."""
        where, _, code = self.words.get("exit_at", "").partition(":")
        if where == phase:
            end(int(code or 0))
        where, _, name = self.words.get("signal_at", "").partition(":")
        if where == phase:
            die(name)


def end(code: int) -> None:
    """End at once with the exit code *code*."""
    os._exit(code)


def die(name: str) -> None:
    """Die of the signal *name* ("SEGV" or "SIGSEGV"), whatever handlers there are."""
    number = signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def count_start(path: str | None) -> int:
    """Return the number of this start, counted in the file *path*; 1 without one."""
    if not path:
        return 1
    with open(path, "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read().strip() or 0) + 1
        file.truncate(0)
        file.write(str(number))
    return number

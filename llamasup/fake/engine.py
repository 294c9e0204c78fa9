"""The part of the fake that pretends to compute: slots, a queue, tokens and their counters."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from llamasup.fake.faults import TOKENS_UNASKED, Faults, die, end
from llamasup.fake.http import HttpError
from llamasup.fake.log import Log
from llamasup.fake.options import Settings

_PAD = 256  # contexts are rounded up to this


@dataclass(slots=True)
class Slot:
    """One slot, as /slots shows it."""

    id: int
    n_ctx: int
    busy: bool = False
    task: int = -1
    prompt: int = 0
    decoded: int = 0
    remain: int = 0

    def shown(self) -> dict[str, object]:
        """Return what /slots says of it; a fresh slot says less."""
        shown: dict[str, object] = {
            "id": self.id,
            "n_ctx": self.n_ctx,
            "speculative": False,
            "is_processing": self.busy,
        }
        if self.task >= 0:
            shown |= {
                "id_task": self.task,
                "n_prompt_tokens": self.prompt,
                "n_prompt_tokens_processed": self.prompt,
                "n_prompt_tokens_cache": 0,
                "params": {"n_predict": self.remain + self.decoded},
                "next_token": [
                    {
                        "has_next_token": self.busy,
                        "has_new_line": False,
                        "n_remain": self.remain,
                        "n_decoded": self.decoded if self.busy else 0,
                    }
                ],
            }
        return shown


@dataclass(slots=True)
class Counters:
    """What /metrics says."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    decodes: int = 0
    longest: int = 0


@dataclass(slots=True)
class Job:
    """One inference request: the prompt, its magic words and how many tokens are wanted."""

    prompt: str
    max_tokens: int
    magic: dict[str, str] = field(default_factory=dict)

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt: its words and one to begin with."""
        return len(self.prompt.split()) + 1


def magic_of(prompt: str) -> dict[str, str]:
    """Return the ``fake:`` words of a prompt."""
    words = [word[5:] for word in prompt.split() if word.startswith("fake:")]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def layout(settings: Settings, train: int) -> tuple[int, int, bool]:
    """Return how many slots, how many tokens each, and whether they share one pool."""
    count = settings.number("--parallel", -1)
    unified = settings.flag("--kv-unified", default=count < 0)
    count = 4 if count < 0 else count
    per_slot = settings.number("--kv-unified-per-slot", 0)
    total = settings.number("--ctx-size", 0)
    if total == 0:
        total = per_slot * count or (train if unified else train * count)
    each = _pad(total if unified else -(-total // count))
    each = min(each, train)
    return count, min(each, _pad(per_slot)) if per_slot else each, unified


def _pad(tokens: int) -> int:
    return -(-tokens // _PAD) * _PAD


class Engine:
    """Runs jobs on slots, first in first out, one token after the other."""

    def __init__(self, slots: list[Slot], faults: Faults, log: Log) -> None:
        self.slots = slots
        self.faults = faults
        self.counters = Counters()
        self.ending = asyncio.Event()  # SIGTERM: nothing is computed any more
        self.deferred = 0
        self.inferences = 0  # begun since the start
        self.seen: dict[str, int] = {}  # how often each fake:id was begun
        self._free = asyncio.Semaphore(len(slots))
        self._log = log
        self._leaked: list[bytearray] = []
        self._tasks = 0

    @asynccontextmanager
    async def slot(self, job: Job) -> AsyncIterator[Slot]:
        """Hold a slot for *job*; waits in the queue for one. Bad things asked for happen here."""
        self.deferred += 1
        try:
            await self._free.acquire()
        finally:
            self.deferred -= 1
        slot = next(each for each in self.slots if not each.busy)
        slot.busy, slot.task = True, self._tasks
        slot.prompt, slot.decoded, slot.remain = job.n_prompt, 0, job.max_tokens
        self._tasks += 1
        self._log.info("slot launch_slot_", f"id {slot.id:2} | task {slot.task} | processing task")
        try:
            await self._begin(job, slot)
            yield slot
        finally:
            slot.busy = False
            self._free.release()
            self._log.info(
                "slot      release", f"id {slot.id:2} | task {slot.task} | stop processing"
            )

    async def _begin(self, job: Job, slot: Slot) -> None:
        """Do what comes before the first token."""
        self.inferences += 1
        if name := job.magic.get("id"):
            self.seen[name] = self.seen.get(name, 0) + 1
        self.faults.at("warmup" if self.inferences == 1 else "request")
        if job.n_prompt > slot.n_ctx:
            error = HttpError(
                400,
                f"request ({job.n_prompt} tokens) exceeds the available context size "
                f"({slot.n_ctx} tokens), try increasing it",
                "exceed_context_size_error",
            )
            error.body["error"] |= {"n_prompt_tokens": job.n_prompt, "n_ctx": slot.n_ctx}
            raise error
        if self.faults.has("fail"):
            raise HttpError(int(self.faults.number("fail")), "compute error: asked to fail")
        if "500" in job.magic:
            raise HttpError(500, "compute error: asked to fail by the prompt")
        if self.faults.has("leak"):
            self._leaked.append(bytearray(b"x") * int(self.faults.number("leak") * (1 << 20)))
        self._crash(job, 0)
        if "hang" in job.magic:
            await asyncio.Event().wait()
        if gate := job.magic.get("gate"):
            await self.faults.gates.passing(gate)
        started = time.monotonic()
        await self.faults.pause("prefill")
        self.counters.prompt_tokens += job.n_prompt
        self.counters.prompt_seconds += time.monotonic() - started
        self.counters.decodes += 1

    async def tokens(self, job: Job, slot: Slot) -> AsyncIterator[str]:
        """Yield the text of the answer token by token; it says nothing but where it stands."""
        started = time.monotonic()
        count = min(job.max_tokens, slot.n_ctx - job.n_prompt)
        try:
            for number in range(count):
                await self._pause(job, number)
                slot.decoded, slot.remain = number + 1, count - number - 1
                self.counters.decodes += 1
                name = job.magic.get("id")
                yield f"{name}: " if name and number == 0 else f"w{number} "
                self._crash(job, number + 1)
        finally:
            self.counters.predicted_tokens += slot.decoded
            self.counters.predicted_seconds += time.monotonic() - started
            self.counters.longest = max(self.counters.longest, job.n_prompt + slot.decoded)

    async def _pause(self, job: Job, number: int) -> None:
        wedge = self.faults.words.get("wedge_after")
        if wedge is not None and self.counters.decodes - self.inferences >= int(wedge):
            await asyncio.Event().wait()
        if number > 0 and "slow" in job.magic:
            await asyncio.sleep(float(job.magic["slow"]))
        elif number > 0:
            await self.faults.pause("itl")
        if self.ending.is_set():
            await asyncio.Event().wait()

    def _crash(self, job: Job, done: int) -> None:
        """End the process if the prompt says so after *done* tokens."""
        if "exit0" in job.magic and done == 0:
            end(0)
        code, _, after = job.magic.get("exit", "").partition(":")
        if "exit" in job.magic and done == int(after or 0):
            end(int(code))
        if "crash" in job.magic and done == int(job.magic["crash"] or 0):
            die("SEGV")
        name, _, after = job.magic.get("signal", "").partition(":")
        if name and done == int(after or 0):
            die(name)


def wanted(value: object, magic: dict[str, str], faults: Faults) -> tuple[int, str]:
    """Return how many tokens to make, and the reason that the answer then gives for its end."""
    if "n" in magic:
        return int(magic["n"]), "stop"
    if isinstance(value, int) and value >= 0:
        return value, "length"
    return int(faults.number("ntok", TOKENS_UNASKED)), "stop"

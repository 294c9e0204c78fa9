"""The prober of one generation: is it loading, loaded as configured, warm, still answering?

It reports and decides nothing. Whatever a child answers, or does not, is "not yet".
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from llamasup.config.spec import Kind, Spec
from llamasup.core.model import (
    Listening,
    Loaded,
    News,
    ProbeFailed,
    ProbePassed,
    Progressed,
    Unfit,
    Warmed,
)
from llamasup.probe.ask import NoAnswerError, Reply, ask
from llamasup.probe.fitness import unfitness

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.015, 0.25  # seconds between two looks at a child that loads
PROGRESS_PERIOD = 1.0
ANSWER_TIMEOUT = 5.0
WARM_UP_TIMEOUT = 24 * 3600.0  # the load's own deadlines decide, not this one
WATCH_PERIOD = 10.0
RETRY_PERIOD = 2.0  # between two looks at a child that does not answer
FAILURES = 3  # failed rounds in a row before it counts

Post: TypeAlias = Callable[[News], None]


class Prober:
    """Asks the child of generation *gen* on *socket* until cancelled.

    *peer_is_ours* tells whether a pid belongs to the child; *progress* returns counters that only
    grow while a load moves.
    """

    def __init__(
        self,
        spec: Spec,
        gen: int,
        socket: str,
        peer_is_ours: Callable[[int], bool],
        progress: Callable[[], tuple[int, ...]],
        post: Post,
    ) -> None:
        self._spec = spec
        self._gen = gen
        self._socket = socket
        self._peer_is_ours = peer_is_ours
        self._progress = progress
        self._post = post

    async def run(self) -> None:
        """Follow the load, warm up, then watch; ends early if the child is unfit."""
        async with asyncio.TaskGroup() as group:
            moving = group.create_task(self._report_progress(), name=f"progress {self._gen}")
            ready = await self._load() and await self._warm_up()
            moving.cancel()
        if ready:
            self._post(Warmed(self._gen))
            await self._watch()

    # --- loading ---

    async def _report_progress(self) -> None:
        last = self._progress()
        while True:
            await asyncio.sleep(PROGRESS_PERIOD)
            current = self._progress()
            if any(now > before for now, before in zip(current, last, strict=True)):
                self._post(Progressed(self._gen))
            last = tuple(max(pair) for pair in zip(current, last, strict=True))

    async def _load(self) -> bool:
        """Wait for the end of the load; False if the child is not what was configured."""
        pause, listening = FIRST_PAUSE, False
        while True:
            reply = await self._try("/health")
            if reply is not None and reply.status == 503 and not listening:
                listening = True
                self._post(Listening(self._gen))
            if reply is not None and reply.status == 200:
                verdict = await self._inspect()
                if verdict == "":
                    self._post(Loaded(self._gen))
                    return True
                if verdict is not None:
                    self._post(Unfit(self._gen, verdict))
                    return False
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.3)

    async def _inspect(self) -> str | None:
        """Return why the child does not fit, "" if it fits, None if it cannot be said yet."""
        props, slots = await self._try("/props"), await self._try("/slots")
        if props is None or slots is None or 503 in (props.status, slots.status):
            return None
        if 401 in (props.status, slots.status):
            return "it refuses the API key of api_key_file; write the key on a line of its own"
        return unfitness(self._spec, props.json(), slots.json())

    async def _warm_up(self) -> bool:
        """Get one answer of the kind that clients want; False if there never will be one."""
        while True:
            problem = await self._first_answer(warm_ups(self._spec.kind))
            if problem is None:
                return True
            if problem:
                self._post(Unfit(self._gen, problem))
                return False
            await asyncio.sleep(1.0)

    async def _first_answer(self, requests: list[tuple[str, dict[str, Any]]]) -> str | None:
        """Return None if one of *requests* was answered, a refusal, or "" to try again."""
        refusal = ""
        for target, body in requests:
            try:
                reply = await ask(
                    self._socket, target, body=body, key=self._spec.api_key, timeout=WARM_UP_TIMEOUT
                )
            except NoAnswerError as exc:
                log.debug("%s: warm-up: %s", self._spec.name, exc)
                return ""
            if reply.status == 200:
                return None
            if reply.status >= 500 and reply.status != 501:
                return ""
            refusal = f"the warm-up request to {target} was refused: {_message(reply)}"
        return refusal

    # --- serving ---

    async def _watch(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(WATCH_PERIOD if failures == 0 else RETRY_PERIOD)
            if await self._answers():
                if failures >= FAILURES:
                    self._post(ProbePassed(self._gen))
                failures = 0
                continue
            failures += 1
            if failures == FAILURES:
                reason = f"/health did not answer {failures} times"
                self._post(ProbeFailed(self._gen, reason))

    async def _answers(self) -> bool:
        """Ask twice, each time on a new connection: one stranded connection proves nothing."""
        for _ in range(2):
            reply = await self._try("/health")
            if reply is not None and reply.status == 200:
                return True
        return False

    async def _try(self, target: str) -> Reply | None:
        """Return the answer of our own child, None if there is none."""
        try:
            reply = await ask(self._socket, target, key=self._spec.api_key, timeout=ANSWER_TIMEOUT)
        except NoAnswerError:
            return None
        return reply if self._peer_is_ours(reply.peer_pid) else None


def warm_ups(kind: Kind) -> list[tuple[str, dict[str, Any]]]:
    """Return the requests of which one answered is enough, cheapest first."""
    match kind:
        case Kind.CHAT:
            message = {"role": "user", "content": "hi"}
            chat = {"messages": [message], "max_tokens": 1, "cache_prompt": False}
            # A model without a chat template still completes.
            return [
                ("/v1/chat/completions", chat),
                ("/completion", {"prompt": "hi", "n_predict": 1, "cache_prompt": False}),
            ]
        case Kind.EMBEDDING:
            return [("/v1/embeddings", {"input": "hi"})]
        case Kind.RERANK:
            return [("/v1/rerank", {"query": "hi", "documents": ["hi"]})]


def _message(reply: Reply) -> str:
    body = reply.json()
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        return f"{reply.status}: {body['error'].get('message', '')}"[:300]
    return str(reply.status)

"""The prober of one generation: reports what its child's socket says, from silence to ready and on.

It decides nothing: every finding is posted as news and the core acts on it. A child that misbehaves
is only ever "not yet"; deadlines are the core's.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from llamasup.config.spec import Spec
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
from llamasup.probe.fitness import judge
from llamasup.probe.http import Answer, ProbeError, ask
from llamasup.probe.warmup import Refused, Warmup, warm_up

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """How often to look, in seconds."""

    first_delay: float = 0.015  # a tiny model is ready within 60 ms of its exec
    max_delay: float = 0.25
    growth: float = 1.3
    progress_period: float = 1.0
    retry_period: float = 1.0  # of a warm-up that failed
    health_period: float = 10.0
    failing_period: float = 2.0  # while the readiness probe fails
    timeout: float = 5.0  # of one request; the warm-up has none
    failures: int = 3  # failed rounds in a row that count


class Prober:
    """Watches generation *gen* of *spec* through its private *socket*.

    *peer_is_ours* says whether a pid belongs to this generation: an answer of any other process is
    no answer. *progress* returns counters that grow while a load moves on; () if unknown. *post*
    takes the news.
    """

    def __init__(
        self,
        spec: Spec,
        gen: int,
        socket: str,
        *,
        peer_is_ours: Callable[[int], bool],
        progress: Callable[[], tuple[int, ...]],
        post: Callable[[News], None],
        timing: Timing | None = None,
    ) -> None:
        self._spec = spec
        self._gen = gen
        self._socket = socket
        self._peer_is_ours = peer_is_ours
        self._progress = progress
        self._post = post
        self._timing = timing or Timing()
        self._stranger: int | None = None  # the last pid that answered in our child's place

    async def run(self) -> None:
        """Probe until cancelled; return only if the child is unfit."""
        async with asyncio.TaskGroup() as tasks:
            progress = tasks.create_task(
                self._watch_progress(), name=f"progress {self._spec.name}.{self._gen}"
            )
            fit = await self._come_up()
            progress.cancel()
        if fit:
            await self._watch_health()

    async def _come_up(self) -> bool:
        """Follow the child from its first answer to the end of the warm-up; False = unfit."""
        await self._wait_until_healthy()
        reason = await self._inspect()
        if reason is None:
            self._post(Loaded(self._gen))
            reason = await self._warm_up()
        if reason is not None:
            self._post(Unfit(self._gen, reason))
            return False
        self._post(Warmed(self._gen))
        return True

    async def _wait_until_healthy(self) -> None:
        """Poll /health, the only path without a key, until it says 200."""
        listening = False
        delay = self._timing.first_delay
        while True:
            answer = await self._try("/health")
            if answer is not None and answer.status == 200:
                return
            if answer is not None and answer.status == 503 and not listening:
                listening = True
                self._post(Listening(self._gen))
            await asyncio.sleep(delay)
            delay = min(delay * self._timing.growth, self._timing.max_delay)

    async def _inspect(self) -> str | None:
        """Compare what the server reports with the spec; return what does not fit."""
        while True:
            props = await self._try("/props", key=self._spec.api_key)
            if props is not None and props.status in (401, 403, 404):
                return f"the server refuses to be inspected ({props.status}): {props.message()}"
            slots = await self._try("/slots", key=self._spec.api_key)
            if (
                props is not None
                and props.status == 200
                and isinstance(props.json(), dict)
                and slots is not None
                and slots.status in (200, 501)
            ):
                return judge(self._spec, props.json(), slots.json())
            await asyncio.sleep(self._timing.retry_period)

    async def _warm_up(self) -> str | None:
        """Repeat the warm-up request until it is answered; return why it never will be."""
        while True:
            outcome = await warm_up(self._spec, self._socket)
            if isinstance(outcome, Refused):
                return outcome.reason
            if outcome is Warmup.DONE:
                return None
            await asyncio.sleep(self._timing.retry_period)

    async def _watch_progress(self) -> None:
        """Post once for each look that finds a counter grown."""
        last = self._progress()
        while True:
            await asyncio.sleep(self._timing.progress_period)
            now = self._progress()
            if any(new > old for new, old in zip(now, last, strict=False)):
                self._post(Progressed(self._gen))
            last = now

    async def _watch_health(self) -> None:
        """Probe readiness for the rest of the generation's life; post changes only."""
        failed = 0
        while True:
            failing = failed >= self._timing.failures
            await asyncio.sleep(
                self._timing.failing_period if failing else self._timing.health_period
            )
            reason = await self._failed_round()
            if reason is None:
                if failing:
                    self._post(ProbePassed(self._gen))
                failed = 0
            else:
                failed += 1
                if failed == self._timing.failures:
                    self._post(ProbeFailed(self._gen, reason))

    async def _failed_round(self) -> str | None:
        """Ask /health twice at most, each time on a new connection; return why both failed.

        After a burst a job can be stranded in llama-server's queue of connections: the next one is
        answered at once.
        """
        reason = None
        for _ in range(2):
            try:
                answer = await self._ask("/health")
            except ProbeError as exc:
                reason = str(exc)
            else:
                if answer.status == 200:
                    return None
                reason = f"/health answers {answer.status}: {answer.message()}"
        return reason

    async def _try(self, target: str, key: str | None = None) -> Answer | None:
        """Ask our own child for *target*; None for anything that is no answer of it."""
        try:
            return await self._ask(target, key)
        except ProbeError:
            return None

    async def _ask(self, target: str, key: str | None = None) -> Answer:
        answer = await ask(self._socket, target, key=key, timeout=self._timing.timeout)
        if self._peer_is_ours(answer.peer):
            return answer
        if answer.peer != self._stranger:
            self._stranger = answer.peer
            logger.warning(
                "%s: pid %d, not our child, answers on %s",
                self._spec.name,
                answer.peer,
                self._socket,
            )
        raise ProbeError(f"pid {answer.peer}, not our child, answers on {self._socket}")

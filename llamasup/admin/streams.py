"""Answers that last: SSE, followed logs, long polls. Bounded in number, closed on demand."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Protocol, TypeVar, cast

from aiohttp import web

from llamasup.admin.answers import Refusal

_LAST_WORDS = 0.2
"""Seconds that the end of a stream may take to be written."""


_BATCH = 200
"""So many events or lines are encoded in one turn of the event loop."""


class Numbered(Protocol):
    """Something with a number that grows by one."""

    @property
    def seq(self) -> int: ...


T = TypeVar("T", bound=Numbered, covariant=True)


class Journal(Protocol[T]):
    """What may be followed: the events, the lines of an instance."""

    def after(self, seq: int, /) -> Sequence[T]: ...

    def follow(self, seq: int, /) -> AsyncIterator[T]: ...


class Streams:
    """The lasting answers under way, at most *most* of them.

    A reader that takes nothing for *send_timeout* seconds is dropped; every *beat* seconds a sign
    of life is sent, which also shows us that a reader has left. What comes within *pause* seconds
    is sent together, so that a flood costs the event loop little.
    """

    def __init__(
        self,
        most: int = 64,
        beat: float = 10.0,
        send_timeout: float = 30.0,
        pause: float = 0.2,
    ) -> None:
        self._most = most
        self._pause = pause
        self._beat = beat
        self._send_timeout = send_timeout
        self._scopes: set[asyncio.Timeout] = set()
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._scopes)

    def close(self) -> None:
        """End all of them now and accept no more."""
        self._is_closed = True
        for scope in self._scopes:
            _end(scope)

    @asynccontextmanager
    async def scope(self, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        """Run the block for *seconds* at most, or until `close`; its end is no error."""
        # A bounded wait may have as many again: streams must not keep commands from ending.
        most = self._most if seconds is None else 2 * self._most
        if self._is_closed or len(self._scopes) >= most:
            raise Refusal(503, "too_many_streams", "too many streams are open: close some")
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                self._scopes.add(scope)
                yield scope
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            self._scopes.discard(scope)

    async def send(
        self,
        request: web.Request,
        response: web.StreamResponse,
        journal: Journal[T],
        seq: int,
        encode: Callable[[T], bytes],
        beat: bytes = b"",
        first: bytes = b"",
    ) -> None:
        """Write *first*, then what *journal* has after *seq* and all that comes.

        Ends when the reader leaves, stalls or must go.
        """
        async with self.scope(None) as scope:
            await response.prepare(request)
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(
                    self._watch(request, response, beat, scope), name="admin stream watch"
                )
                if not first or await self._write(request, response, first):
                    async with aclosing(_batches(journal, seq, self._pause)) as batches:
                        async for batch in batches:
                            data = b"".join(map(encode, batch))
                            if not await self._write(request, response, data):
                                break
                watch.cancel()
        await _finish(request, response)

    async def _watch(
        self,
        request: web.Request,
        response: web.StreamResponse,
        beat: bytes,
        scope: asyncio.Timeout,
    ) -> None:
        while request.transport is not None:
            await asyncio.sleep(self._beat)
            if beat and not await self._write(request, response, beat):
                break
        _end(scope)

    async def _write(self, request: web.Request, response: web.StreamResponse, data: bytes) -> bool:
        try:
            async with asyncio.timeout(self._send_timeout):
                await response.write(data)
        except TimeoutError:
            _abort(request)
            return False
        except ConnectionError:
            return False
        return True


async def _batches(
    journal: Journal[T], seq: int, pause: float
) -> AsyncGenerator[Sequence[T], None]:
    while True:
        news = cast(AsyncGenerator[T, None], journal.follow(seq))  # so that it can be closed
        async with aclosing(news):
            first = await anext(news)
        found = [first, *journal.after(first.seq)]
        seq = found[-1].seq
        for start in range(0, len(found), _BATCH):
            yield found[start : start + _BATCH]
            await asyncio.sleep(0)  # to encode a whole ring at once would hold everybody up
        await asyncio.sleep(pause)


def _end(scope: asyncio.Timeout) -> None:
    if not scope.expired():
        scope.reschedule(asyncio.get_running_loop().time())


async def _finish(request: web.Request, response: web.StreamResponse) -> None:
    try:
        async with asyncio.timeout(_LAST_WORDS):
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        _abort(request)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()

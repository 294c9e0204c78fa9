"""The event stream: numbered records in a bounded ring, for any number of readers.

No reader can slow the writer: one that is too slow loses records and is told so.
"""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice

LONGEST_MESSAGE = 4000
"""Characters kept of one message, so that the ring is bounded in bytes too."""

ELSEWHERE = -1
"""The position of a reader that comes from another epoch: before everything, with a gap."""

_CURSOR = re.compile(r"(?:([A-Za-z0-9]{1,32})-)?([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Record:
    """One event. *seq* grows by one; *at* in Unix seconds; *instance* is "" if about the daemon."""

    seq: int
    at: float
    instance: str
    kind: str
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Records up to and including *seq* are gone from the ring before this reader came to them."""

    seq: int


class EventLog:
    """The last *size* records. Readers follow by number; one that is too slow sees a `Gap`.

    *epoch* names this run of the daemon: numbers begin anew in each, so a cursor carries both.
    """

    def __init__(self, size: int = 2000, epoch: str | None = None) -> None:
        self.epoch = secrets.token_hex(4) if epoch is None else epoch
        self._ring: deque[Record] = deque(maxlen=size)
        self._last = 0
        self._news = asyncio.Event()

    @property
    def last(self) -> int:
        """The sequence number of the newest record; 0 before the first."""
        return self._last

    def append(
        self, at: float, instance: str, kind: str, message: str, level: str = "info"
    ) -> Record:
        """Add a record and wake the readers."""
        self._last += 1
        record = Record(self._last, at, instance, kind, level, message[:LONGEST_MESSAGE])
        self._ring.append(record)
        self._news.set()
        self._news = asyncio.Event()
        return record

    def cursor(self, seq: int) -> str:
        """Return the id that a reader keeps to go on after *seq*, in this daemon or the next."""
        return f"{self.epoch}-{seq}"

    def position(self, cursor: str) -> int | None:
        """Return the sequence number of *cursor* (``EPOCH-SEQ`` or ``SEQ``); None if it is neither.

        A cursor of another epoch, or one from the future, is `ELSEWHERE`.
        """
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            return None
        epoch, seq = match[1], int(match[2])
        return seq if epoch in (None, self.epoch) and seq <= self._last else ELSEWHERE

    def after(self, seq: int) -> list[Record | Gap]:
        """Return what came after *seq*, preceded by a `Gap` if some of it is gone."""
        if seq > self._last:
            seq = ELSEWHERE
        first = self._last - len(self._ring) + 1
        found: list[Record | Gap] = []
        if seq + 1 < first:
            found.append(Gap(first - 1))
        found += islice(self._ring, max(0, seq + 1 - first), None)
        return found

    async def follow(self, seq: int) -> AsyncIterator[Record | Gap]:
        """Yield what came after *seq* and then everything new, for ever."""
        while True:
            # Taken before the look: a record appended while the reader works is not slept over.
            news = self._news
            for record in self.after(seq):
                seq = record.seq
                yield record
            if seq >= self._last:
                await news.wait()

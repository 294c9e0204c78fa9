"""The event stream: numbered records in a bounded ring, for any number of readers, none of which can slow us."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One event. *seq* grows by one; *at* in Unix seconds; *instance* is empty for the daemon's own."""

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
    """The last *size* records. Readers follow by sequence number; one that is too slow sees a `Gap`."""

    def __init__(self, size: int = 2000) -> None:
        self._ring: deque[Record] = deque(maxlen=size)
        self._last = 0
        self._news = asyncio.Event()

    @property
    def last(self) -> int:
        """The sequence number of the newest record; 0 before the first."""
        return self._last

    def append(self, at: float, instance: str, kind: str, message: str, level: str = "info") -> Record:
        """Add a record and wake the readers."""
        self._last += 1
        record = Record(self._last, at, instance, kind, level, message)
        self._ring.append(record)
        self._news.set()
        self._news = asyncio.Event()
        return record

    def after(self, seq: int) -> list[Record | Gap]:
        """Return what came after *seq*, preceded by a `Gap` if some of it is gone."""
        records: list[Record | Gap] = [record for record in self._ring if record.seq > seq]
        first = self._ring[0].seq if self._ring else self._last + 1
        if seq + 1 < first:
            records.insert(0, Gap(first - 1))
        return records

    async def follow(self, seq: int) -> AsyncIterator[Record | Gap]:
        """Yield what came after *seq* and then everything new, for ever."""
        while True:
            news = self._news
            for record in self.after(seq):
                seq = record.seq
                yield record
            if seq >= self._last:
                await news.wait()

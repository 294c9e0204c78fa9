"""A thread that writes for the loop: a full or hung disk costs lines, never our time."""

import threading
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Writer(Generic[Item]):
    """Calls *write* in a thread for each item offered; at most *limit* bytes of an owner wait."""

    def __init__(self, name: str, write: Callable[[Item], None], limit: int) -> None:
        self.dropped: Counter[str] = Counter()  # items that were not written, by owner
        self._write = write
        self._limit = limit
        self._queue: SimpleQueue[tuple[str, int, Item] | None] = SimpleQueue()
        self._offered: Counter[str] = Counter()  # bytes; written by the loop alone
        self._written: Counter[str] = Counter()  # bytes; written by the thread alone
        # A daemon thread: one that hangs in a write must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def offer(self, owner: str, size: int, item: Item) -> bool:
        """Queue *item* of *size* bytes; drop and count it if too much of *owner* waits already."""
        if self._offered[owner] - self._written[owner] + size > self._limit:
            self.dropped[owner] += 1
            return False
        self._offered[owner] += size
        self._queue.put((owner, size, item))
        return True

    def close(self, timeout: float) -> bool:
        """Write what is queued and end the thread; return whether *timeout* seconds were enough."""
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            owner, size, item = entry
            self._write(item)
            self._written[owner] += size

"""Many file descriptors behind one reader of the event loop.

The front opens a socket for each request. A reader of the event loop costs it half a dozen system
calls and some objects, an epoll of our own one call; but each event of ours costs one call more. So
a descriptor begins here, and moves to the event loop once it has proved to live long.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
DEPARTED = select.EPOLLRDHUP
"""The peer has closed or half-closed, whether or not what it sent before was read."""


_PROMOTION_AGE = 8  # events
_NEVER_PROMOTED = -(1 << 62)


class Poller:
    """Calls back with the events of a file descriptor, for as long as they last.

    A hang-up or an error is told even if it was not asked for. A callback may close descriptors and
    open others: one opened with the number of one closed in the same turn may be called once for
    nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._ages: dict[int, int] = {}  # events of each descriptor in our epoll so far
        self._promoted: set[int] = set()  # read by the event loop itself, waiting for READABLE only
        loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call *callback* with the events of *fd* from now on."""
        self._callbacks[fd] = callback
        self._ages[fd] = 0 if events == READABLE else _NEVER_PROMOTED
        try:
            self._epoll.register(fd, events)
        except FileExistsError:
            self._epoll.modify(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Wait for *events* of the watched *fd* instead."""
        if fd in self._promoted:
            self._demote(fd)
            self._epoll.register(fd, events)
        else:
            self._epoll.modify(fd, events)
        self._ages[fd] = 0 if events == READABLE else _NEVER_PROMOTED

    def forget(self, fd: int) -> None:
        """Watch *fd* no more, if it was."""
        if self._callbacks.pop(fd, None) is None:
            return
        if fd in self._promoted:
            self._demote(fd)
            return
        # A socket that was closed before: the kernel has forgotten it.
        with contextlib.suppress(OSError):
            self._epoll.unregister(fd)

    def forget_closed(self, fd: int) -> None:
        """Watch *fd* no more; it is about to be closed, and was never duplicated."""
        self._callbacks.pop(fd, None)
        if fd in self._promoted:
            self._demote(fd)

    def close(self) -> None:
        """Watch nothing any more."""
        for fd in list(self._promoted):
            self._demote(fd)
        self._callbacks.clear()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _look(self) -> None:
        callbacks = self._callbacks
        ages = self._ages
        for fd, events in self._epoll.poll(0):
            callback = callbacks.get(fd)
            if callback is not None:
                age = ages[fd] = ages[fd] + 1
                if age == _PROMOTION_AGE:
                    self._promote(fd, callback)
                callback(events)

    def _promote(self, fd: int, callback: Callable[[int], None]) -> None:
        self._epoll.unregister(fd)
        self._promoted.add(fd)
        self._loop.add_reader(fd, callback, READABLE)

    def _demote(self, fd: int) -> None:
        self._promoted.discard(fd)
        self._loop.remove_reader(fd)

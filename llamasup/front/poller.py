"""Many file descriptors behind one reader of the event loop.

The front opens a socket for each request. An event loop's own reader costs it half a dozen system
calls for each, an epoll of our own one; and what is ready together is handled together.
"""

import asyncio
import select
from collections.abc import Callable

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
DEPARTED = select.EPOLLRDHUP
"""The peer has closed or half-closed, whether or not what it sent before was read."""


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
        loop.add_reader(self._epoll.fileno(), self._look)

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call *callback* with the events of *fd* from now on."""
        self._callbacks[fd] = callback
        try:
            self._epoll.register(fd, events)
        except FileExistsError:
            self._epoll.modify(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Wait for *events* of the watched *fd* instead."""
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        """Watch *fd* no more, if it was."""
        if self._callbacks.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                return  # closed before: the kernel has forgotten it

    def forget_closed(self, fd: int) -> None:
        """Watch *fd* no more; it is closed, or about to be, and was never duplicated."""
        self._callbacks.pop(fd, None)

    def close(self) -> None:
        """Watch nothing any more."""
        self._callbacks.clear()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _look(self) -> None:
        callbacks = self._callbacks
        for fd, events in self._epoll.poll(0):
            callback = callbacks.get(fd)
            if callback is not None:
                callback(events)

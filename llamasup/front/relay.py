"""The relay: client connections, one request at a time on each, and what they share.

Bytes go through as they come: no task and no buffer of its own for a request on its normal way.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from typing import cast

from llamasup.front.chunks import ChunkError
from llamasup.front.exchange import Exchange, RequestLog
from llamasup.front.gate import Gate
from llamasup.front.heads import HeadError, RequestHead, find_head, parse_request
from llamasup.front.limits import Limits
from llamasup.front.openai import error_answer
from llamasup.front.upstream import Dialer

_LOG = logging.getLogger(__name__)

_NEVER = float("inf")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Door:
    """What a listener's connections are for: the instance *name*. It may change under them."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Relay:
    """What all connections of a front share: the gate, the limits, one timer, the list of them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime_dir: str,
        gate: Gate,
        limits: Limits,
        on_done: Callable[[RequestLog], None] | None = None,
    ) -> None:
        self.time = loop.time
        self.runtime_dir = runtime_dir
        self.gate = gate
        self.limits = limits
        self.on_done = on_done
        self.dialer = Dialer(loop, limits.connect_timeout)
        self.departures = Departures(loop)
        self.connections: set[ClientConnection] = set()
        self.kept = 0  # bytes of requests kept, see Limits.keep_total
        self.is_closing = False
        self.emptied = asyncio.Event()  # set while there is no connection
        self.emptied.set()
        self._loop = loop
        self._is_sweeping = False

    def connect(self, door: Door) -> "ClientConnection":
        """Return the protocol of a new connection at *door*."""
        return ClientConnection(self, door)

    def enter(self, connection: "ClientConnection") -> bool:
        """Count *connection* in; False if there are too many already."""
        self.connections.add(connection)
        self.emptied.clear()
        if not self._is_sweeping:
            self._is_sweeping = True
            self._loop.call_later(self.limits.sweep_period, self._sweep)
        return len(self.connections) <= self.limits.connections

    def leave(self, connection: "ClientConnection") -> None:
        """Count *connection* out."""
        self.connections.discard(connection)
        if not self.connections:
            self.emptied.set()

    def close(self) -> None:
        """Let no connection begin another request; idle ones end now."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.close_if_idle()

    def abort(self) -> None:
        """Drop all connections at once."""
        for connection in list(self.connections):
            connection.abort()
        self.departures.close()

    def _sweep(self) -> None:
        """Look at all deadlines: one coarse timer, instead of one for each connection."""
        now = self._loop.time()
        for connection in list(self.connections):
            if connection.deadline <= now or connection.stall_deadline <= now:
                connection.expire(now)
        self._is_sweeping = bool(self.connections)
        if self._is_sweeping:
            self._loop.call_later(self.limits.sweep_period, self._sweep)


class Departures:
    """Notices that a client has left while nothing is read from it: the kernel says so unread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None
        self._watched: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, gone: Callable[[], None]) -> None:
        """Call *gone* once if the peer of socket *fd* closes or half-closes."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._look)
        self.forget(fd)
        self._watched[fd] = gone
        self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, fd: int) -> None:
        """Watch *fd* no more."""
        if self._watched.pop(fd, None) is not None and self._epoll is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass  # the socket was closed before: the kernel forgot it

    def close(self) -> None:
        """Stop watching."""
        epoll, self._epoll = self._epoll, None
        self._watched.clear()
        if epoll is not None:
            self._loop.remove_reader(epoll.fileno())
            epoll.close()

    def _look(self) -> None:
        assert self._epoll is not None
        for fd, _events in self._epoll.poll(0):
            gone = self._watched.get(fd)
            if gone is not None:
                gone()


class ClientConnection(asyncio.Protocol):
    """One connection of a client: its requests, strictly one after another."""

    def __init__(self, relay: Relay, door: Door) -> None:
        self._relay = relay
        self._door = door
        self._exchange: Exchange | None = None  # the request under way
        self._buf = b""  # the beginning of a head, or what follows the request under way
        self._is_in_head = False
        self._is_reading = True
        self._is_advancing = False
        self._is_closing = False  # what still comes is thrown away
        self._close_by = _NEVER  # last moment for what is unsent when closing
        self._fd = -1
        self._peer = b""
        self._transport: asyncio.Transport | None = None
        self.write: Callable[[bytes], None] = _write_nowhere
        self.deadline = _NEVER  # for the client to send what comes next
        self.stall_deadline = _NEVER  # for the client to take what is ready for it

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        self._transport.set_write_buffer_limits(high=self._relay.limits.write_buffer)
        self._fd = transport.get_extra_info("socket").fileno()
        peer = transport.get_extra_info("peername")
        self._peer = peer[0].removeprefix("::ffff:").encode() if peer else b"unknown"
        self.deadline = self._relay.time() + self._relay.limits.idle_timeout
        if not self._relay.enter(self):
            self._answer_and_close(503, "too many connections")

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        exchange = self._exchange
        try:
            if exchange is None:
                self._buf = self._buf + data if self._buf else data
                self._advance()
            else:
                self._more(exchange, data)
        except Exception:  # noqa: BLE001  the boundary of a request: no other may suffer from it
            self._crash()

    def eof_received(self) -> bool:
        self._go()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._go()
        self._relay.leave(self)

    def pause_writing(self) -> None:
        self.stall_deadline = self._relay.time() + self._relay.limits.write_timeout
        if self._exchange is not None:
            self._exchange.pause_answer()

    def resume_writing(self) -> None:
        self.stall_deadline = _NEVER
        if self._exchange is not None:
            self._exchange.resume_answer()

    # ---- requests

    def _advance(self) -> None:
        """Begin the requests that have come whole heads, for as long as none is under way."""
        self._is_advancing = True
        try:
            while self._exchange is None and self._buf and not self._is_closing:
                end = find_head(self._buf)
                if end < 0:
                    self._expect_head()
                    return
                head = parse_request(self._buf[:end], self._peer)
                rest, self._buf = self._buf[end:], b""
                self._begin(head, rest)
        except HeadError as exc:
            self._answer_and_close(exc.status, str(exc))
        finally:
            self._is_advancing = False
        self.update_reading()

    def _expect_head(self) -> None:
        """The first piece of a head has come: the rest has a fixed time, however it trickles."""
        if not self._is_in_head:
            self._is_in_head = True
            self.deadline = self._relay.time() + self._relay.limits.head_timeout

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        self._is_in_head = False
        self.deadline = _NEVER
        exchange = self._exchange = Exchange(self, self._relay, self._door.name, head)
        if rest:
            self._more(exchange, rest)
            if self._exchange is not exchange:
                return
        exchange.start()
        if self._exchange is exchange and not exchange.body.is_complete:
            self.deadline = self._relay.time() + self._relay.limits.body_timeout
            if head.expects_continue and not rest:
                self.write(_CONTINUE)

    def _more(self, exchange: Exchange, data: bytes) -> None:
        """Take *data* that came while *exchange* is under way: its body, then what follows it."""
        body = exchange.body
        if not body.is_complete:
            try:
                used = exchange.feed_body(data)
            except ChunkError as exc:
                exchange.reject(400, f"cannot understand the request body: {exc}")
                return
            if not body.is_complete:
                self.deadline = self._relay.time() + self._relay.limits.body_timeout
                return
            self.deadline = _NEVER
            data = data[used:]
        if data:
            self._buf += data
            self.update_reading()

    # ---- called by the exchange

    def update_reading(self) -> None:
        """Read from the client only while there is room for what it sends."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        exchange = self._exchange
        wanted = self._is_closing or not (
            (exchange is not None and exchange.is_full)
            or len(self._buf) > self._relay.limits.pipeline
        )
        if wanted == self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            self._relay.departures.forget(self._fd)
            transport.resume_reading()
            if exchange is not None and not exchange.body.is_complete:
                self.deadline = self._relay.time() + self._relay.limits.body_timeout
        else:
            self.deadline = _NEVER  # it is us who wait
            transport.pause_reading()
            self._relay.departures.watch(self._fd, self.abort)

    def exchange_ended(self, *, closes: bool) -> None:
        """Go on to the next request, or close."""
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        if closes or self._relay.is_closing:
            self._close(lingers=not exchange.body.is_complete or bool(self._buf))
            return
        self.deadline = self._relay.time() + self._relay.limits.idle_timeout
        if not self._is_advancing:
            self._advance()

    def cut(self) -> None:
        """Close: what was sent is incomplete, and the client must see that."""
        self._exchange = None
        self._close(lingers=True)

    # ---- the end

    def close_if_idle(self) -> None:
        """Close unless a request is under way."""
        if self._exchange is None and not self._is_closing:
            self._close(lingers=False)

    def abort(self) -> None:
        """Drop the connection, and the request under way."""
        self._go()
        if self._transport is not None:
            self._transport.abort()

    def expire(self, now: float) -> None:
        """A deadline is over."""
        if self.stall_deadline <= now:
            _LOG.info("%s: a client stopped reading its answer", self._door.name)
            self.abort()
        elif self._is_closing:
            self._expire_closing(now)
        elif self._exchange is not None:
            self._exchange.reject(408, "the request body did not come in time")
        elif self._is_in_head:
            self._answer_and_close(408, "the request head did not come in time")
        else:
            self._close(lingers=False)

    def _expire_closing(self, now: float) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() and now < self._close_by:
            self.deadline = now + self._relay.limits.linger_timeout
        else:
            self.abort()

    def _answer_and_close(self, status: int, message: str) -> None:
        self.write(error_answer(status, message, name=self._door.name, close=True))
        self._close(lingers=True)

    def _close(self, *, lingers: bool) -> None:
        """Close once all is sent. *lingers*: wait for the client's end, throwing away what it sends.

        Closing on unread bytes would make the kernel reset the connection and lose our answer.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limits = self._relay.limits
        self._is_closing = True
        self._buf = b""
        now = self._relay.time()
        self._close_by = now + limits.write_timeout
        self.deadline = now + limits.linger_timeout
        self.update_reading()
        if lingers and transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def _go(self) -> None:
        """The client has left, or is taken for gone: end its request."""
        self._relay.departures.forget(self._fd)
        self._is_closing = True
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()
            if self._transport is not None:
                self._transport.abort()

    def _crash(self) -> None:
        _LOG.exception("%s: a request failed", self._door.name)
        self.abort()


def _write_nowhere(_data: bytes) -> None:
    """There is no connection."""

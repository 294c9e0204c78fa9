"""The relay: client connections, one request at a time on each, and what they share.

Bytes go through as they come: no task and no buffer of its own for a request on its normal way.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from llamasup.front.chunks import ChunkError
from llamasup.front.exchange import Exchange, RequestLog
from llamasup.front.gate import Gate
from llamasup.front.heads import HeadError, RequestHead, read_request
from llamasup.front.limits import Limits
from llamasup.front.link import Link
from llamasup.front.openai import error_answer
from llamasup.front.poller import Poller
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
        self.poller = Poller(loop)
        self.dialer = Dialer(loop, self.poller, limits.connect_timeout)
        self.connections: set[ClientConnection] = set()
        self.kept = 0  # bytes of requests kept, see Limits.keep_total
        self.is_closing = False
        self.emptied = asyncio.Event()  # set while there is no connection
        self.emptied.set()
        self.loop = loop
        self._is_sweeping = False

    def accept(self, sock: socket.socket, peer: str, door: Door) -> None:
        """Serve the new connection *sock* of the IP address *peer* at *door*."""
        ClientConnection(self, door, peer).start(sock)

    def enter(self, connection: "ClientConnection") -> bool:
        """Count *connection* in; False if there are too many already."""
        self.connections.add(connection)
        self.emptied.clear()
        if not self._is_sweeping:
            self._is_sweeping = True
            self.loop.call_later(self.limits.sweep_period, self._sweep)
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
        self.dialer.close()
        self.poller.close()

    def _sweep(self) -> None:
        """Look at all deadlines: one coarse timer, instead of one for each connection."""
        now = self.loop.time()
        for connection in list(self.connections):
            if connection.deadline <= now or connection.stall_deadline <= now:
                connection.expire(now)
        self._is_sweeping = bool(self.connections)
        if self._is_sweeping:
            self.loop.call_later(self.limits.sweep_period, self._sweep)


class ClientConnection:
    """One connection of a client: its requests, strictly one after another."""

    __slots__ = ("_buf", "_close_by", "_door", "_exchange", "_is_advancing", "_is_closing",
                 "_is_in_head", "_is_reading", "_link", "_peer", "_relay", "deadline", "send",
                 "stall_deadline")  # fmt: skip

    def __init__(self, relay: Relay, door: Door, peer: str) -> None:
        self._relay = relay
        self._door = door
        self._peer = peer.removeprefix("::ffff:").encode()
        self._link = Link(relay.loop, relay.poller, self, relay.limits.write_buffer)
        self._exchange: Exchange | None = None  # the request under way
        self._buf = b""  # the beginning of a head, or what follows the request under way
        self._is_in_head = False
        self._is_reading = True
        self._is_advancing = False
        self._is_closing = False  # what still comes is thrown away
        self._close_by = _NEVER  # last moment for what is unsent when closing
        self.send = self._link.send
        self.deadline = _NEVER  # for the client to send what comes next
        self.stall_deadline = _NEVER  # for the client to take what is ready for it

    def start(self, sock: socket.socket) -> None:
        """Begin to read."""
        self.deadline = self._relay.time() + self._relay.limits.idle_timeout
        is_welcome = self._relay.enter(self)
        self._link.attach(sock, watches_departure=True)
        if not is_welcome:
            self._answer_and_close(503, "too many connections")

    # ---- from the link

    def received(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._is_closing:  # thrown away, but it still comes: the client has not read us yet
            self.deadline = min(
                self._relay.time() + self._relay.limits.linger_timeout, self._close_by
            )
            return
        exchange = self._exchange
        if exchange is None:
            self._buf = self._buf + data if self._buf else data
            self._advance()
        else:
            self._more(exchange, data)

    def ended(self, _reason: str) -> None:
        """The client has left or closed its side, or the link is closed: end its request."""
        self._relay.leave(self)
        self._is_closing = True
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()

    def congestion_changed(self) -> None:
        """The client reads its answer slowly, or has caught up."""
        exchange = self._exchange
        if self._link.is_congested:
            self.stall_deadline = self._relay.time() + self._relay.limits.write_timeout
            if exchange is not None:
                exchange.pause_answer()
        else:
            self.stall_deadline = _NEVER
            if exchange is not None:
                exchange.resume_answer()

    # ---- requests

    def _advance(self) -> None:
        """Begin the requests that have come whole heads, for as long as none is under way."""
        self._is_advancing = True
        try:
            while self._exchange is None and self._buf and not self._is_closing:
                found = read_request(self._buf, self._peer)
                if found is None:
                    self._expect_head()
                    return
                head, end = found
                rest, self._buf = self._buf[end:], b""
                self._begin(head, rest)
        except HeadError as exc:
            self._answer_and_close(exc.status, str(exc))
        finally:
            self._is_advancing = False
        if not self._is_reading:
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
                self.send(_CONTINUE)

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
        exchange = self._exchange
        wanted = self._is_closing or not (
            (exchange is not None and exchange.is_full)
            or len(self._buf) > self._relay.limits.pipeline
        )
        if wanted == self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            self._link.resume()
            if exchange is not None and not exchange.body.is_complete:
                self.deadline = self._relay.time() + self._relay.limits.body_timeout
        else:
            self._link.pause()
            self.deadline = _NEVER  # it is us who wait

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
        self._link.close()
        self.ended("")

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
        if self._link.unsent and now < self._close_by:
            self.deadline = now + self._relay.limits.linger_timeout
        else:
            self.abort()

    def _answer_and_close(self, status: int, message: str) -> None:
        self.send(error_answer(status, message, name=self._door.name, close=True))
        self._close(lingers=True)

    def _close(self, *, lingers: bool) -> None:
        """Close once all is sent. *lingers*: await the client's end, throwing away what it sends.

        Closing on unread bytes would make the kernel reset the connection and lose our answer.
        """
        if self._link.is_closed:
            return
        limits = self._relay.limits
        self._is_closing = True
        self._buf = b""
        now = self._relay.time()
        self._close_by = now + limits.write_timeout
        self.deadline = now + limits.linger_timeout
        self.update_reading()
        if lingers:
            self._link.shut()
        else:
            self._link.close_when_sent()

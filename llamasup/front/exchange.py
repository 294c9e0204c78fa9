"""One request and its answer, from a complete head to the last byte: held, sent, sent again."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from llamasup.front.answer import Answer
from llamasup.front.body import RequestBody
from llamasup.front.chunks import ChunkError
from llamasup.front.gate import Gate, Lease, Refused, Waiting
from llamasup.front.heads import AnswerError, RequestHead
from llamasup.front.limits import Limits
from llamasup.front.openai import error_answer
from llamasup.front.upstream import Dialer, Upstream
from llamasup.paths import socket_path

_LOG = logging.getLogger(__name__)


class Outcome(StrEnum):
    """How a request ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"  # the client got a 502, or a bad request was found out late
    CUT = "cut"  # the child broke off in the middle of its answer
    CANCELLED = "cancelled"  # the client left


class Stage(StrEnum):
    """How far a request had come when its client left."""

    HELD = "held"
    WAITING = "waiting"  # sent to the child, no answer yet
    ANSWERING = "answering"


@dataclass(frozen=True, slots=True)
class RequestLog:
    """What is known of a request at its end. Moments in loop time, None = never came."""

    name: str
    gen: int | None
    method: str
    target: str
    status: int  # what the client got, 0 = nothing
    outcome: Outcome
    is_replayed: bool
    arrived_at: float
    admitted_at: float | None
    first_byte_at: float | None
    ended_at: float


class Hub(Protocol):
    """What all requests of a front share."""

    gate: Gate
    dialer: Dialer
    limits: Limits
    runtime_dir: str
    on_done: Callable[[RequestLog], None] | None
    kept: int  # bytes kept for replays and held requests, over all of them
    is_closing: bool

    def time(self) -> float: ...


class Client(Protocol):
    """The connection that a request came on."""

    @property
    def send(self) -> Callable[[bytes], None]: ...

    def update_reading(self) -> None:
        """Look at ``Exchange.is_full`` again."""

    def exchange_ended(self, *, closes: bool) -> None:
        """Go on to the next request, or close."""

    def cut(self) -> None:
        """Close: what was sent is incomplete."""


class Exchange:
    """One request of *client* to the instance *name*."""

    __slots__ = ("_admitted_at", "_answer", "_arrived_at", "_client", "_first_byte_at", "_gen",
                 "_head", "_hub", "_is_first_answer", "_is_keeping", "_is_over", "_is_replayed",
                 "_kept", "_kept_size", "_lease", "_name", "_refusal", "_upstream", "_waiting",
                 "body", "is_full")  # fmt: skip

    def __init__(self, client: Client, hub: Hub, name: str, head: RequestHead) -> None:
        self._client = client
        self._hub = hub
        self._name = name
        self._head = head
        self._lease: Lease | None = None
        self._waiting: Waiting | None = None
        self._upstream: Upstream | None = None
        self._answer: Answer | None = None
        # What the child is to get, kept until its answer begins.
        self._kept = [head.for_child]
        self._kept_size = 0
        self._is_keeping = True
        self._is_replayed = False
        self._is_over = False
        self._refusal: Refused | None = None  # told as soon as the body is here
        self._is_first_answer = True  # nothing of an answer has gone to the client yet
        self._arrived_at = hub.time()
        self._admitted_at: float | None = None
        self._first_byte_at: float | None = None
        self._gen: int | None = None
        self.body = RequestBody(head.length)
        self.is_full = False  # no more body may be read for now

    # ---- from the client

    def start(self) -> None:
        """Ask the gate; the body that has come so far was fed before."""
        self._proceed(self._hub.gate.admit(self._name, self, self._arrived_at))

    def feed_body(self, data: bytes) -> int:
        """Take *data* of the body; return how much of it was. Raises ChunkError."""
        out, used = self.body.feed(data)
        if self._refusal is not None:
            if self.body.is_complete:
                self._hub.dialer.loop.call_soon(self._tell_refusal)
        elif out:
            if self._is_keeping:
                self._keep(out)
            if self._upstream is not None:
                self._upstream.send(out)
        return used

    def abandon(self) -> None:
        """The client has left: leave the queue, or drop the child's connection, at once."""
        stage = Stage.HELD
        if self._waiting is None:
            begun = self._answer is not None and self._answer.has_begun
            stage = Stage.ANSWERING if begun else Stage.WAITING
        self._hub.gate.count_cancelled(self._name, stage)
        self._leave(Outcome.CANCELLED, 0)

    def reject(self, status: int, message: str) -> None:
        """Give up: the client's body is no good. It gets *message* if nothing else was said yet."""
        if self._answer is not None and self._answer.has_begun:
            self._leave(Outcome.FAILED, self._answer.status)
            self._client.cut()
        else:
            self._fail(status, message, Outcome.FAILED)

    def pause_answer(self) -> None:
        """The client is slow: let the child wait."""
        if self._upstream is not None:
            self._upstream.pause()

    def resume_answer(self) -> None:
        """The client has caught up."""
        if self._upstream is not None:
            self._upstream.resume()

    # ---- from the gate

    def _proceed(self, outcome: Lease | Waiting | Refused) -> None:
        match outcome:
            case Lease():
                self.admitted(outcome)
            case Waiting():
                self._waiting = outcome
                self._check_room()
            case Refused():
                self.refused(outcome)

    def admitted(self, lease: Lease) -> None:
        """Send what there is of the request to the child."""
        self._waiting = None
        self._lease = lease
        self._gen = lease.gen
        self._admitted_at = self._hub.time()
        path = socket_path(self._hub.runtime_dir, self._name, lease.gen)
        self._upstream = Upstream(self._hub.dialer, path, self)
        self._upstream.open(b"".join(self._kept))  # tells nothing before it returns
        self._answer = Answer(self._head, b"X-Llamasup-Instance: %b\r\n" % self._name.encode())
        self._check_room()

    def refused(self, refusal: Refused) -> None:
        """Tell the client: once its body is here, if that is small. Many clients send head and
        body apart, and take an end in between for a broken connection."""
        self._waiting = None
        self._refusal = refusal
        rest_is_small = 0 <= self._head.length <= self._hub.limits.hold
        if self.body.is_complete or self._head.expects_continue or not rest_is_small:
            self._tell_refusal()
        else:
            self._forget()

    def _tell_refusal(self) -> None:
        if self._is_over or self._refusal is None:
            return  # the client has left meanwhile
        message = f"instance '{self._name}' does not answer: {self._refusal.reason}"
        self._fail(503, message, Outcome.REFUSED, self._refusal.retry_after)

    # ---- from the child

    def received(self, data: bytes) -> None:
        """Pass the child's bytes on."""
        answer = self._answer
        assert answer is not None
        try:
            out = answer.feed(data) if answer.has_begun else self._begin_answer(answer, data)
        except (AnswerError, ChunkError) as exc:
            self._broken_answer(answer, str(exc))
            return
        if out:
            self._client.send(out)
        if self._is_first_answer and answer.has_begun:
            self._has_begun(answer)
        if answer.has_ended:
            self._leave(Outcome.DONE, answer.status)
            self._client.exchange_ended(closes=answer.closes)

    def ended(self, reason: str) -> None:
        """The child closed before its answer was whole, or answers until it closes."""
        answer = self._answer
        assert answer is not None
        if answer.has_begun:
            self._end_answer(answer, reason)
        elif not self._is_replayed and self._is_keeping:
            self._send_again()
        else:
            what = "twice" if self._is_replayed else "and the request is too large to be kept"
            message = f"the server of instance '{self._name}' broke off {what}: {reason}"
            self._fail(502, message, Outcome.FAILED)

    def congestion_changed(self) -> None:
        """The child takes the body slowly, or takes it again."""
        self._check_room()

    def _begin_answer(self, answer: Answer, data: bytes) -> bytes:
        # An answer that comes before the whole body did makes the rest of the body useless, and the
        # connection too: what follows on it could not be told from the body.
        keep_alive = self._head.keep_alive and self.body.is_complete and not self._hub.is_closing
        answer.closes = not keep_alive
        out = answer.feed(data)
        if answer.has_begun:
            self._first_byte_at = self._hub.time()
        return out

    def _has_begun(self, answer: Answer) -> None:
        """Do what can wait until the first bytes of the answer are with the client."""
        self._is_first_answer = False
        self._forget()  # from now on it cannot be sent again
        if self._upstream is not None:
            self._hub.dialer.prepare(self._upstream.path)
            if answer.is_plain_chunks:
                self._upstream.on_data = self._pass_token

    def _pass_token(self, data: bytes) -> None:
        """Pass a read of a stream on: nearly always one whole chunk, and then there is no more."""
        answer = self._answer
        if answer is not None and answer.passes(data):
            self._client.send(data)
        else:
            self.received(data)

    def _end_answer(self, answer: Answer, reason: str) -> None:
        last = answer.end_of_input(f"the server of instance '{self._name}' broke off: {reason}")
        if last is None:
            _LOG.warning("%s: an answer was cut off: %s", self._name, reason)
            self._leave(Outcome.CUT, answer.status)
            self._client.cut()
            return
        if last:
            self._client.send(last)
        self._leave(Outcome.CUT if last else Outcome.DONE, answer.status)
        self._client.exchange_ended(closes=answer.closes)

    def _broken_answer(self, answer: Answer, reason: str) -> None:
        _LOG.warning("%s: cannot understand an answer: %s", self._name, reason)
        if answer.has_begun:
            self._leave(Outcome.CUT, answer.status)
            self._client.cut()
        else:
            self._fail(502, reason, Outcome.FAILED)

    def _send_again(self) -> None:
        self._is_replayed = True
        self._upstream = None
        self._answer = None
        lease, self._lease = self._lease, None
        assert lease is not None
        self._proceed(self._hub.gate.replay(lease, self))

    # ---- the end

    def _fail(
        self, status: int, message: str, outcome: Outcome, retry_after: int | None = None
    ) -> None:
        closes = self._hub.is_closing or not (self._head.keep_alive and self.body.is_complete)
        answer = error_answer(
            status,
            message,
            name=self._name,
            close=closes,
            retry_after=retry_after,
            without_body=self._head.method == b"HEAD",
        )
        self._client.send(answer)
        self._leave(outcome, status)
        self._client.exchange_ended(closes=closes)

    def _leave(self, outcome: Outcome, status: int) -> None:
        """Give back all that this request holds, whatever stage it is in."""
        if self._is_over:
            return
        self._is_over = True
        self._forget()
        if self._waiting is not None:
            self._waiting.leave()
            self._waiting = None
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if self._hub.on_done is not None:
            self._hub.on_done(self._log(outcome, status))

    def _log(self, outcome: Outcome, status: int) -> RequestLog:
        return RequestLog(
            name=self._name,
            gen=self._gen,
            method=self._head.method.decode("ascii", "replace"),
            target=self._head.target.decode("ascii", "replace"),
            status=status,
            outcome=outcome,
            is_replayed=self._is_replayed,
            arrived_at=self._arrived_at,
            admitted_at=self._admitted_at,
            first_byte_at=self._first_byte_at,
            ended_at=self._hub.time(),
        )

    # ---- what is kept of the request

    def _keep(self, out: bytes) -> None:
        self._kept.append(out)
        self._kept_size += len(out)
        self._hub.kept += len(out)
        if self._upstream is not None or self._waiting is not None:
            self._check_room()  # else the gate is asked next, and then it is looked at

    def _forget(self) -> None:
        self._hub.kept -= self._kept_size
        self._kept_size = 0
        self._kept = []
        self._is_keeping = False

    def _check_room(self) -> None:
        """Keep no more than is allowed, and read no more than can be passed on or kept."""
        limits = self._hub.limits
        crowded = self._hub.kept > limits.keep_total
        if self._upstream is None:
            full = self._kept_size > limits.hold or (crowded and self._kept_size > 0)
        else:
            full = self._upstream.is_congested
            if self._is_keeping and (crowded or self._kept_size > limits.keep):
                self._forget()
        if full != self.is_full:
            self.is_full = full
            self._client.update_reading()

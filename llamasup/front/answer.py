"""A child's answer on its way to the client: head adapted, body passed on, end found. Pure."""

from enum import Enum, auto

from llamasup.front.chunks import ChunkTracker
from llamasup.front.heads import (
    CHUNKED,
    MAX_ANSWER_HEAD,
    UNTIL_CLOSE,
    AnswerError,
    RequestHead,
    parse_answer,
)
from llamasup.front.openai import error_event


class _Part(Enum):
    HEAD = auto()
    CHUNKS = auto()
    UNCHUNKED = auto()
    COUNTED = auto()
    UNTIL_CLOSE = auto()


class Answer:
    """Follows one answer to *request*. ``feed`` gives what the client gets for the child's bytes.

    Body bytes are the child's own; only a client of HTTP/1.0 gets them without chunk framing.
    *has_begun*: the final head has gone to the client. *closes*: the client's connection must end
    after this answer (known once it has begun).
    """

    __slots__ = ("_buf", "_extra", "_is_event_stream", "_last", "_left", "_part", "_payload",
                 "_request", "_tracker", "closes", "has_begun", "has_ended", "status")  # fmt: skip

    def __init__(self, request: RequestHead, extra: bytes) -> None:
        self._request = request
        self._extra = extra  # header lines to add
        self._buf = b""  # an unfinished head
        self._left = 0
        self._payload: list[bytes] = []
        self._tracker: ChunkTracker | None = None
        self._part = _Part.HEAD  # which part of the answer comes next
        self._last = b""
        self._is_event_stream = False
        self.closes = not request.keep_alive
        self.has_begun = False
        self.has_ended = False
        self.status = 0

    def feed(self, data: bytes) -> bytes:
        """Return what the client gets for *data*. Raises AnswerError, ChunkError."""
        part = self._part
        if self._tracker is not None:
            end = self._tracker.feed(data)
            if part is _Part.UNCHUNKED:
                return self._unchunk(end)
            if end < 0:  # a token of a stream: the way that must be short
                self._last = data
                return data
            self.has_ended = True
            return data if end == len(data) else data[:end]
        if part is _Part.COUNTED:
            return self._feed_counted(data)
        if part is _Part.UNTIL_CLOSE:
            return data
        return self._feed_head(data)

    @property
    def is_plain_chunks(self) -> bool:
        """Whether a body in chunks has begun that goes to the client as it is."""
        return self._part is _Part.CHUNKS and not self.has_ended

    def passes(self, data: bytes) -> bool:
        """Take *data* if it is one whole chunk of plain chunks; ``feed`` takes all else."""
        if self._tracker is not None and self._tracker.passes(data):
            self._last = data
            return True
        return False

    def end_of_input(self, message: str) -> bytes | None:
        """Return the last bytes for the client now that the child has closed; None = cut off.

        An event stream that breaks off between two chunks ends with an error event (*message*).
        """
        if self._part is _Part.UNTIL_CLOSE:
            return b""
        if self._tracker is None or not (self._is_event_stream and self._tracker.at_boundary):
            return None
        if self._part is _Part.UNCHUNKED:
            return b"\n\n" + error_event(message)
        event = error_event(message)
        if self._last and not self._last.endswith(b"\n\n\r\n"):
            event = b"\n\n" + event  # the last event was cut short: it must not swallow ours
        return b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)

    def _feed_head(self, data: bytes) -> bytes:
        buf = self._buf + data if self._buf else data
        out = b""
        while True:
            end = buf.find(b"\r\n\r\n") + 4
            if end == 3:
                if len(buf) > MAX_ANSWER_HEAD:
                    raise AnswerError("the head of the server's answer is too long")
                self._buf = buf
                return out
            head = buf[:end]
            buf = buf[end:]
            unchunked = self._request.is_http_1_0
            answer = parse_answer(head, self._request.method, unchunked=unchunked)
            if answer.status >= 200:
                break
            if answer.status == 101:
                raise AnswerError("the server switched protocols unasked")
            # We answered any Expect ourselves, so only other hints are for the client.
            if answer.status != 100 and not unchunked:
                out += head
        self._buf = b""
        self.has_begun = True
        self.status = answer.status
        self._is_event_stream = answer.is_event_stream
        self._choose(answer.length, unchunked=unchunked)
        end_of_head = b"Connection: close\r\n\r\n" if self.closes else b"\r\n"
        out += answer.for_client + self._extra + end_of_head
        if answer.length == 0:
            self.has_ended = True
            return out
        return out + self.feed(buf) if buf else out

    def _choose(self, length: int, *, unchunked: bool) -> None:
        if length == UNTIL_CLOSE:
            self._part = _Part.UNTIL_CLOSE
            self.closes = True
        elif length != CHUNKED:
            self._part = _Part.COUNTED
            self._left = length
        elif unchunked:
            self._part = _Part.UNCHUNKED
            self._tracker = ChunkTracker(self._payload)
        else:
            self._part = _Part.CHUNKS
            self._tracker = ChunkTracker()

    def _unchunk(self, end: int) -> bytes:
        self.has_ended = end >= 0
        out = b"".join(self._payload)
        self._payload.clear()
        return out

    def _feed_counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left > 0:
            return data
        self.has_ended = True
        return data[: self._left] if self._left else data

"""The body of a request on its way to the child: where it ends, what the child gets. Pure.

A body in chunks is framed anew: sizes in plain hex, no extensions, no trailers.
"""

from llamasup.front.chunks import ChunkTracker
from llamasup.front.heads import CHUNKED


class RequestBody:
    """Follows one request body of *length* bytes, or ``CHUNKED``."""

    __slots__ = ("_left", "_payload", "_tracker", "is_complete")

    def __init__(self, length: int) -> None:
        self._left = length
        self._payload: list[bytes] = []
        self._tracker = ChunkTracker(self._payload) if length == CHUNKED else None
        self.is_complete = length == 0

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Return what *data* means for the child, and how much of *data* belonged to this body.

        Raises ChunkError.
        """
        if self._tracker is not None:
            return self._feed_chunks(self._tracker, data)
        used = min(self._left, len(data))
        self._left -= used
        self.is_complete = not self._left
        return (data if used == len(data) else data[:used]), used

    def _feed_chunks(self, tracker: ChunkTracker, data: bytes) -> tuple[bytes, int]:
        end = tracker.feed(data)
        content = b"".join(self._payload)
        self._payload.clear()
        out = b"%x\r\n%b\r\n" % (len(content), content) if content else b""
        if end < 0:
            return out, len(data)
        self.is_complete = True
        return out + b"0\r\n\r\n", end

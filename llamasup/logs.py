"""The daemon's own log: to stderr, by a thread of its own, so the loop never waits for a reader."""

import contextlib
import logging
import logging.handlers
import os
import queue
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

QUEUE_SIZE = 10_000
STOP_TIMEOUT = 2.0
"""Seconds that the end of the daemon waits for the last lines to be taken."""

PRIORITIES = {
    logging.CRITICAL: "<2>",
    logging.ERROR: "<3>",
    logging.WARNING: "<4>",
    logging.INFO: "<6>",
    logging.DEBUG: "<7>",
}


class _JournalFormatter(logging.Formatter):
    """One line with the priority that journald understands; journald adds the time."""

    def format(self, record: logging.LogRecord) -> str:
        return PRIORITIES.get(record.levelno, "<6>") + super().format(record).replace("\n", "\n ")


class _DroppingHandler(logging.handlers.QueueHandler):
    """Drops what does not fit: the daemon goes on if nobody reads its log."""

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            return


class _Listener(logging.handlers.QueueListener):
    """Writes what is queued, in a thread that nobody waits for without a limit."""

    def stop(self) -> None:
        thread = self._thread
        if thread is None:
            return
        with contextlib.suppress(queue.Full):
            self.enqueue_sentinel()
        thread.join(STOP_TIMEOUT)
        self._thread = None
        if thread.is_alive():
            # It sits in a write that nobody reads, with locks that every orderly exit waits for.
            os._exit(os.EX_IOERR)


@contextmanager
def logging_to_stderr(level: str, environ: Mapping[str, str]) -> Iterator[None]:
    """Set the log up for as long as the context lasts; what is queued is written at its end.

    Ends the process at once if nobody has taken the last lines within `STOP_TIMEOUT`.
    """
    target = logging.StreamHandler(sys.stderr)
    if "JOURNAL_STREAM" in environ:
        target.setFormatter(_JournalFormatter("%(message)s"))
    else:
        target.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    backlog: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE_SIZE)
    handler = _DroppingHandler(backlog)
    listener = _Listener(backlog, target)
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        listener.stop()

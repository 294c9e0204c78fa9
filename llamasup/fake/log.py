"""Log lines in llama-server's format, on stderr, and nothing buffered."""

import os
import threading
import time

_STARTED = time.monotonic()


class Log:
    """Writes to a file descriptor the way the real one does: blocking, one write a line."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd

    def info(self, tag: str, text: str, level: str = "I") -> None:
        """Write ``M.SS.mmm.uuu L tag: text``."""
        self.raw(f"{stamp()} {level} {tag}: {text}\n".encode())

    def raw(self, data: bytes) -> None:
        """Write bytes as they are, all of them; a reader that has left does not matter."""
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            return

    def flood(self, rate: float) -> None:
        """Write *rate* lines a second from a thread, until the process ends."""
        threading.Thread(target=self._flood, args=(rate,), daemon=True).start()

    def _flood(self, rate: float) -> None:
        number = 0
        started = time.monotonic()
        while True:
            due = int((time.monotonic() - started) * rate)
            lines = [f"{stamp()} W srv flood: line {n}\n" for n in range(number, due)]
            self.raw("".join(lines).encode())
            number = due
            time.sleep(0.02)


def stamp() -> str:
    """Return the time since the start as minutes, seconds, milli- and microseconds."""
    micros = int((time.monotonic() - _STARTED) * 1e6)
    seconds, micros = divmod(micros, 1_000_000)
    return f"{seconds // 60}.{seconds % 60:02}.{micros // 1000:03}.{micros % 1000:03}"

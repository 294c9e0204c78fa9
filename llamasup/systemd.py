"""What the service manager is told (sd_notify). Silent where there is none."""

from collections.abc import Mapping

import sdnotify

from llamasup.clock import Now

STOP_EXTENSION = 30.0
"""Seconds of further patience asked for at a time while a stop goes on."""


class Notifier:
    """Sends READY, STATUS, STOPPING and WATCHDOG; never waits, never raises."""

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        self._notifier: sdnotify.SystemdNotifier | None = None
        if environ.get("NOTIFY_SOCKET"):
            self._notifier = sdnotify.SystemdNotifier()
            if self._notifier.socket is not None:
                self._notifier.socket.setblocking(False)  # a full queue must not stop the loop
        self._status = ""
        self._fed_at = 0.0
        self._extended_at = 0.0
        self.watchdog_period = _watchdog_period(environ, pid)

    def ready(self) -> None:
        """Say that the daemon supervises; models may still be loading."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Show *text* in ``systemctl status``."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """Say that the stop has begun."""
        self._send("STOPPING=1")

    def feed_watchdog(self, now: Now) -> None:
        """Say that the control loop lives, not more often than needed."""
        if self.watchdog_period is None:
            return
        if now.mono - self._fed_at >= self.watchdog_period / 4:
            self._fed_at = now.mono
            self._send("WATCHDOG=1")

    def extend_stop(self, now: Now) -> None:
        """Ask for more time: a drain may last longer than TimeoutStopSec."""
        if now.mono - self._extended_at >= STOP_EXTENSION / 3:
            self._extended_at = now.mono
            self._send(f"EXTEND_TIMEOUT_USEC={int(STOP_EXTENSION * 1e6)}")

    def close(self) -> None:
        """Close the socket."""
        if self._notifier is not None and self._notifier.socket is not None:
            self._notifier.socket.close()

    def _send(self, message: str) -> None:
        if self._notifier is not None:
            self._notifier.notify(message)


def _watchdog_period(environ: Mapping[str, str], pid: int) -> float | None:
    """Return WatchdogSec in seconds, None if systemd does not watch this very process."""
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    usec = environ.get("WATCHDOG_USEC", "")
    return int(usec) / 1e6 if usec.isdecimal() and int(usec) > 0 else None

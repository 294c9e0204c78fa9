"""Status, operations, events and lines → JSON values. Pure. Moments are ISO 8601, in UTC."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TypeAlias

from llamasup.admin.control import LogLine
from llamasup.core.operations import Operation
from llamasup.core.status import DaemonStatus, InstanceStatus, Status
from llamasup.events import EventLog, Gap, Record

Json: TypeAlias = dict[str, object]

RESTING = frozenset({"stopped"})
"""Phases in which an instance is not wanted, so that it does not count against readiness."""


def moment(seconds: float) -> str:
    """Return *seconds* (Unix) as ``2026-01-31T12:00:00.250+00:00``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def moment_or_none(seconds: float | None) -> str | None:
    """Return *seconds* (Unix) as text, or None if there is no such moment."""
    return None if seconds is None else moment(seconds)


def status_view(status: Status) -> Json:
    """Return what ``llamasupctl status --json`` prints."""
    return {
        "daemon": daemon_view(status.daemon),
        "instances": [instance_view(row) for row in status.instances],
    }


def daemon_view(daemon: DaemonStatus) -> Json:
    """Return the daemon's own row."""
    return {**asdict(daemon), "started": moment(daemon.started)}


def instance_view(row: InstanceStatus) -> Json:
    """Return one row of the table."""
    view: Json = {
        **asdict(row),
        "aliases": list(row.aliases),
        "since": moment(row.since),
        "next_try": moment_or_none(row.next_try),
    }
    if row.last_exit is not None:
        view["last_exit"] = {**asdict(row.last_exit), "at": moment(row.last_exit.at)}
    return view


def operation_view(operation: Operation) -> Json:
    """Return an operation; `instance` is the name of its instance."""
    return {
        "id": operation.id,
        "instance": operation.name,
        "verb": operation.verb.value,
        "outcome": operation.outcome.value,
        "message": operation.message,
        "started": moment(operation.started),
        "ended": moment_or_none(operation.ended),
    }


def event_view(event: Record | Gap, log: EventLog) -> Json:
    """Return an event; a gap has the same keys, the kind ``gap`` and no time."""
    cursor = log.cursor(event.seq)
    match event:
        case Record():
            return {"id": cursor, **asdict(event), "at": moment(event.at)}
        case Gap(seq):
            return {
                "id": cursor,
                "seq": seq,
                "at": None,
                "instance": "",
                "kind": "gap",
                "level": "warning",
                "message": "earlier events are no longer kept",
            }


def line_view(line: LogLine) -> Json:
    """Return one line of a child's output."""
    return {"seq": line.seq, "at": moment(line.at), "generation": line.gen, "text": line.text}


def readiness_view(status: Status) -> Json:
    """Return whether everything that should run does, and what does not."""
    missing = [
        {"name": row.name, "phase": row.phase, "reason": row.reason}
        for row in status.instances
        if row.phase != "ready" and row.phase not in RESTING
    ]
    return {
        "ready": not missing and not status.daemon.shutting_down,
        "shutting_down": status.daemon.shutting_down,
        "not_ready": missing,
    }


def error_view(code: str, message: str) -> Json:
    """Return the body of every answer that is an error."""
    return {"error": {"code": code, "message": message}}

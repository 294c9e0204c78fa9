"""What the daemon says → text. Pure: no terminal, no clock; *now* in Unix seconds comes in."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]

HEADER = ("NAME", "PHASE", "SINCE", "PID", "GEN", "LISTEN", "RESTARTS", "ACTIVE", "HELD", "REASON")

COLORS = {
    "ready": "green",
    "stopped": "bright_black",
    "starting": "cyan",
    "loading": "cyan",
    "warming": "cyan",
    "waiting": "yellow",
    "draining": "yellow",
    "stopping": "yellow",
    "killing": "yellow",
    "backoff": "yellow",
    "unready": "red",
    "stuck": "red",
    "failed": "red",
}
"""The colour of each phase."""


def cells(row: Row, now: float) -> tuple[str, ...]:
    """Return the cells of an instance under `HEADER`; "-" stands for nothing."""
    return tuple(
        clean(text) or "-"
        for text in (
            row["name"],
            row["phase"],
            since(row["since"], now),
            "" if row["pid"] is None else str(row["pid"]),
            str(row["generation"]),
            row["listen"],
            str(row["restarts"]),
            str(row["in_flight"]),
            str(row["held"]),
            row["reason"],
        )
    )


def table(rows: Sequence[Row], now: float) -> str:
    """Return the instances as aligned columns, one line each under a header."""
    lines = [HEADER, *(cells(row, now) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def details(row: Row, now: float) -> list[tuple[str, str]]:
    """Return all that is known of one instance, as (label, text)."""
    pairs = [
        ("name", row["name"]),
        ("phase", row["phase"]),
        ("reason", row["reason"]),
        ("since", f"{local(row['since'])} ({since(row['since'], now)})"),
        ("kind", row["kind"]),
        ("model", row["model"]),
        ("aliases", ", ".join(row["aliases"])),
        ("listen", row["listen"]),
        ("pid", "" if row["pid"] is None else str(row["pid"])),
        ("generation", str(row["generation"])),
        ("restarts", str(row["restarts"])),
        ("last exit", _last_exit(row["last_exit"], now)),
        ("next try", "" if row["next_try"] is None else local(row["next_try"])),
        ("load time", "" if row["load_seconds"] is None else f"{row['load_seconds']:.1f}s"),
        ("in flight", str(row["in_flight"])),
        ("held", str(row["held"])),
    ]
    return [(label, clean(text) or "-") for label, text in pairs]


def _last_exit(last: Row | None, now: float) -> str:
    return "" if last is None else f"{last['detail']} ({since(last['at'], now)} ago)"


def operation_line(operation: Row) -> str:
    """Return one sentence on an operation."""
    name, verb, message = operation["instance"], operation["verb"], operation["message"]
    match operation["outcome"]:
        case "running":
            return clean(f"{name}: {verb} under way (operation {operation['id']})")
        case outcome:
            return clean(f"{name}: {verb} {outcome}" + (f" ({message})" if message else ""))


def event_line(event: Row) -> str:
    """Return one event as a line."""
    at = local(event["at"]) if event["at"] else "-"
    name = event["instance"] or "llamasup"
    mark = "" if event["level"] == "info" else f"{event['level']}: "
    return clean(f"{at}  {name}  {event['kind']}  {mark}{event['message']}")


def phase_line(row: Row) -> str:
    """Return the progress of an instance as a line."""
    reason = f" ({row['reason']})" if row["reason"] else ""
    return clean(f"{row['name']}: {row['phase']}{reason}")


def since(moment: str, now: float) -> str:
    """Return how long ago the ISO 8601 *moment* was: ``42s``, ``5m03s``, ``2h10m``, ``3d04h``."""
    seconds = max(0, int(now - datetime.fromisoformat(moment).timestamp()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    if minutes:
        return f"{minutes}m{seconds % 60:02}s"
    return f"{seconds}s"


def local(moment: str) -> str:
    """Return the ISO 8601 *moment* in the local time zone, to the second."""
    return datetime.fromisoformat(moment).astimezone().isoformat(sep=" ", timespec="seconds")


def clean(text: str) -> str:
    """Return *text* without control characters: what a child writes must not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in text)

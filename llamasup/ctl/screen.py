"""Draws on a terminal (rich). Imported only when there is one to draw on."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from llamasup.ctl.render import COLORS, HEADER, Row, cells, clean

_WIDE = 120
"""Columns of a terminal from which on the reasons have their own column."""

_NUMBERS = frozenset({"PID", "GEN", "RESTARTS", "ACTIVE", "HELD"})


def console(color: str) -> Console:
    """Return the terminal; *color* always goes over NO_COLOR, never goes over everything."""
    match color:
        case "always":
            return Console(force_terminal=True, no_color=False, color_system="standard")
        case "never":
            return Console(no_color=True, highlight=False)
        case _:
            return Console(highlight=False)


def draw(rows: Sequence[Row], now: float, color: str) -> None:
    """Print the instances once."""
    screen = console(color)
    screen.print(_picture(rows, now, screen.width))


def draw_live(snapshots: Iterable[tuple[Sequence[Row], float]], color: str) -> None:
    """Print each of *snapshots* (rows, now) over the one before."""
    with Live(console=console(color), auto_refresh=False) as live:
        for rows, now in snapshots:
            live.update(_picture(rows, now, live.console.width), refresh=True)


def _picture(rows: Sequence[Row], now: float, width: int) -> Group:
    """Return the table; where there is no room for a column of reasons they stand below it."""
    is_wide = width >= _WIDE
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = len(HEADER) if is_wide else len(HEADER) - 1
    for title in HEADER[:shown]:
        is_number = title in _NUMBERS
        table.add_column(title, no_wrap=title != "REASON", justify="right" if is_number else "left")
    reasons = []
    for row in rows:
        texts = [Text(text) for text in cells(row, now)]
        texts[1].stylize(COLORS.get(row["phase"], ""))
        table.add_row(*texts[:shown])
        if row["reason"] and not is_wide:
            reasons.append(Text(f"{row['name']}: {clean(row['reason'])}"))
    return Group(table, *([Text(), *reasons] if reasons else []))

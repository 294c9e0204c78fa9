"""Draws on a terminal (rich). Imported only when there is one to draw on."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from llamasup.ctl.render import COLORS, HEADER, Row, cells

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
    console(color).print(_table(rows, now))


def draw_live(snapshots: Iterable[tuple[Sequence[Row], float]], color: str) -> None:
    """Print each of *snapshots* (rows, now) over the one before."""
    with Live(console=console(color), auto_refresh=False) as live:
        for rows, now in snapshots:
            live.update(_table(rows, now), refresh=True)


def _table(rows: Sequence[Row], now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in HEADER:
        fixed = title != "REASON"
        side = "right" if title in _NUMBERS else "left"
        table.add_column(title, no_wrap=fixed, justify=side)  # type: ignore[arg-type]
    for row in rows:
        style = COLORS.get(row["phase"], "")
        texts = [Text(text) for text in cells(row, now)]
        texts[1].stylize(style)
        table.add_row(*texts)
    return table

"""Durations as the file writes them ("1h30m"). Pure."""

import re
from decimal import Decimal

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(d|h|ms|m|s))+$"
"""What an editor can check of a duration; the order of the units is checked here only."""

LONGEST = 365 * 86400.0
"""Seconds; a longer duration is a slip of the pen."""

_SECONDS = {
    "d": Decimal(86400),
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[dhms])")


def parse_duration(text: str) -> float:
    """Return the seconds of *text*, such as "2s", "1h30m" or "500ms"; raise ValueError."""
    parts = _PART.findall(text)
    units = [unit for _number, unit in parts]
    in_order = [unit for unit in _SECONDS if unit in units]
    if not parts or "".join(n + u for n, u in parts) != text or units != in_order:
        raise ValueError(
            f'"{text}" is not a duration: write it like "2s", "5m", "1h30m" or "500ms"'
        )
    seconds = float(sum(Decimal(number) * _SECONDS[unit] for number, unit in parts))
    if seconds > LONGEST:
        raise ValueError(f'"{text}" is longer than a year: write at most "365d"')
    return seconds


def format_duration(seconds: float) -> str:
    """Return *seconds* as the file writes it, to the millisecond."""
    left = round(seconds * 1000)
    text = ""
    for unit, size in _SECONDS.items():
        count, left = divmod(left, int(size * 1000))
        text += f"{count}{unit}" if count else ""
    return text or "0s"

"""How times and counts are written for people."""


def seconds(value: float) -> str:
    """Write a duration as the configuration file does: ``1.2s``, ``45s``, ``1m30s``, ``2h``."""
    if value < 9.95:
        return f"{value:.1f}s" if value % 1 else f"{value:.0f}s"
    whole = round(value)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [f"{hours}h" * bool(hours), f"{minutes}m" * bool(minutes), f"{secs}s" * bool(secs)]
    return "".join(parts)

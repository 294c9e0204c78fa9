"""When to try again after an end nobody asked for."""

from zlib import crc32

from llamasup.config.spec import RestartPolicy


def restart_delay(policy: RestartPolicy, name: str, attempts: int) -> float:
    """Return the pause in seconds before the next try: none after a stable run, then doubled.

    Jitter takes up to half of it away, so instances that fell together do not come back together.
    It is derived from *name* and *attempts*: the core draws no random numbers, and tests repeat.
    """
    if attempts <= 0:
        return 0.0
    full = min(policy.max_delay, policy.delay * 2.0 ** min(attempts - 1, 60))
    # CRC alone keeps names that differ in one letter close together; the factor spreads them.
    share = (crc32(f"{name}/{attempts}".encode()) * 0x9E3779B1 & 0xFFFFFFFF) / 0xFFFFFFFF
    return full * (0.5 + 0.5 * share)


def recent(crashes: tuple[float, ...], policy: RestartPolicy, now: float) -> tuple[float, ...]:
    """Return those of *crashes* (monotonic seconds) that lie inside the sliding window."""
    return tuple(at for at in crashes if now - at < policy.window)

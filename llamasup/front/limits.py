"""How much and how long the front bears with a client or a child. Bytes and seconds."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the front; the defaults suit a box with some dozens of users.

    *keep* is how much of one request is kept until its first answer byte, to be sent again to the
    next generation; *keep_total* bounds that over all requests. *hold* is how much of a body is
    read while its request waits.
    """

    connections: int = 10_000
    keep: int = 8 * MIB
    keep_total: int = 128 * MIB
    hold: int = 1 * MIB
    pipeline: int = 64 * KIB
    write_buffer: int = 256 * KIB
    head_timeout: float = 30.0  # first byte of a head to its last
    idle_timeout: float = 75.0  # between two requests of a connection
    body_timeout: float = 60.0  # between two pieces of a request body
    write_timeout: float = 600.0  # a client that reads nothing of what is ready for it
    linger_timeout: float = 5.0  # for a client to take note of our last answer
    connect_timeout: float = 10.0  # a child whose backlog stays full
    sweep_period: float = 1.0  # how exact the times above are

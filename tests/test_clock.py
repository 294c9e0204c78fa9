"""The two clocks."""

import time

from llamasup.clock import SystemClock


def test_both_clocks_are_read_together() -> None:
    before = time.monotonic(), time.time()
    now = SystemClock().now()
    after = time.monotonic(), time.time()

    assert before[0] <= now.mono <= after[0]
    assert before[1] <= now.wall <= after[1]

"""When to try again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamasup.config.spec import RestartPolicy
from llamasup.core.backoff import recent, restart_delay

POLICY = RestartPolicy(delay=2.0, max_delay=60.0, burst=3, window=100.0, stable=60.0)


@pytest.mark.parametrize(
    ("attempts", "full"),
    [(1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 32.0), (6, 60.0), (7, 60.0), (5000, 60.0)],
)
@pytest.mark.parametrize("name", ["chat", "embed", "rerank", "batch"])
def test_the_pause_doubles_up_to_its_cap_and_jitter_takes_at_most_half(attempts, full, name):
    assert full / 2 <= restart_delay(POLICY, name, attempts) <= full


def test_there_is_no_pause_after_a_stable_run():
    assert restart_delay(POLICY, "chat", 0) == 0.0


def test_instances_that_fell_together_do_not_come_back_together():
    pauses = [restart_delay(POLICY, f"instance{n}", 6) for n in range(50)]

    assert len({round(pause, 1) for pause in pauses}) > 35
    assert min(pauses) < 36.0 < 54.0 < max(pauses)


def test_the_same_try_always_waits_the_same():
    assert restart_delay(POLICY, "chat", 3) == restart_delay(POLICY, "chat", 3)


@given(
    delay=st.floats(0.0, 1e6),
    cap=st.floats(0.0, 1e6),
    attempts=st.integers(0, 10**9),
    name=st.text(max_size=10),
)
def test_no_pause_is_longer_than_the_cap_or_negative(delay, cap, attempts, name):
    policy = RestartPolicy(delay=delay, max_delay=cap)

    assert 0.0 <= restart_delay(policy, name, attempts) <= cap


def test_ends_count_until_they_leave_the_window():
    assert recent((1.0, 50.0, 101.0, 200.0), POLICY, 201.0) == (200.0,)
    assert recent((102.0, 200.0), POLICY, 201.0) == (102.0, 200.0)
    assert recent((), POLICY, 201.0) == ()

"""How durations are written."""

import pytest

from llamasup.core.text import seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0s"),
        (0.25, "0.2s"),
        (1.0, "1s"),
        (1.24, "1.2s"),
        (9.0, "9s"),
        (10.0, "10s"),
        (45.4, "45s"),
        (59.6, "1m"),
        (60.0, "1m"),
        (90.0, "1m30s"),
        (3600.0, "1h"),
        (3661.0, "1h1m1s"),
        (7200.0, "2h"),
        (90_005.0, "25h5s"),
    ],
)
def test_durations_are_written_as_in_the_configuration_file(value, text):
    assert seconds(value) == text

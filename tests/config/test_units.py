"""Durations: examples, and that what is written is read back."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamasup.config.units import DURATION_PATTERN, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("1d2h3m4s5ms", 93784.005),
        ("0s", 0.0),
        ("365d", 31536000.0),
    ],
)
def test_a_duration_is_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5s", "5s1m", "1m1m", "5min", "1e3s", "٣s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration: write it like"):
        parse_duration(text)


def test_more_than_a_year_is_refused():
    with pytest.raises(ValueError, match='"366d" is longer than a year'):
        parse_duration("366d")


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=365 * 86400 * 1000))
def test_a_written_duration_is_read_back(milliseconds):
    text = format_duration(milliseconds / 1000)

    assert round(parse_duration(text) * 1000) == milliseconds
    assert re.match(DURATION_PATTERN, text)

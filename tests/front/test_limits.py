"""The defaults hang together."""

from llamasup.front.limits import Limits


def test_a_held_request_fits_into_what_is_kept():
    limits = Limits()

    assert limits.hold <= limits.keep <= limits.keep_total
    assert limits.sweep_period <= limits.linger_timeout

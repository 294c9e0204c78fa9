"""Hypothesis profiles: `dev`, and `ci` (more examples, repeatable) with HYPOTHESIS_PROFILE=ci."""

import os

from hypothesis import HealthCheck, settings

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "dev", max_examples=50, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "ci",
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

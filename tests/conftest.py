"""Test set-up shared by all rooms."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples on every run: a failure in CI can be repeated at once.
settings.register_profile(
    "goffish",
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("goffish")

"""Test set-up shared by all rooms."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A runner in the background has SIGINT ignored; then no interrupt reaches a test, or a command that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run: a failure in CI can be repeated at once.
settings.register_profile(
    "goffish",
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("goffish")

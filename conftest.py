"""Test set-up shared by tests and experiments."""

from __future__ import annotations

import os
import signal
import sys

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# A runner in the background has SIGINT ignored; then no interrupt reaches a test, or a command that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes import the same modules: without bytecode, as containers often have it, each would compile them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# numba colors the messages of thousands of errors that it handles itself: with colorama, a sixth of the time that it
# takes to compile a kernel.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

# The same examples on every run: a failure in CI can be repeated at once. Hypothesis would also try constants of the
# modules that are loaded, which depend on what the process tested before.
providers.is_local_module_file = lambda path: False
settings.register_profile(
    "goffish",
    derandomize=True,
    deadline=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("goffish"), max_examples=200)
# To search for new failures: pytest --hypothesis-profile search
settings.register_profile(
    "search", settings.get_profile("goffish"), derandomize=False, print_blob=True, max_examples=400
)
settings.load_profile("goffish")

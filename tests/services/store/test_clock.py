"""A server's time of day."""

from __future__ import annotations

import time

import pytest

from goffish.services.store.records import Clock


def test_setting_the_computers_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when deadlines pass, or never do, because somebody set the clock."""
    clock = Clock()
    before = clock.now()
    assert abs(before - time.time()) < 1.0
    for jump in (86_400.0, -86_400.0):
        real = time.time()
        monkeypatch.setattr(time, "time", lambda jump=jump, real=real: real + jump)
        assert 0 <= clock.now() - before < 5.0

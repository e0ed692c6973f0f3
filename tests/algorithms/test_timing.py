"""The time that is left, as people are told it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from goffish.algorithms import timing


def test_progress_tells_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    clock = iter(range(0, 10_000, 3000))
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    tell = timing.reporter(told.append, "exact: ")
    assert tell is not None
    tell(20.0, 100.0)  # done in the run before
    tell(60.0, 100.0)
    assert told == ["exact: 20.0 % of the searches", "exact: 60.0 % of the searches, 1 h 40 min left"]
    assert timing.reporter(None) is None


def test_durations_are_rounded_for_reading() -> None:
    assert [timing.duration(s) for s in (0.4, 59.6, 61, 7260)] == ["0 s", "1 min 00 s", "1 min 01 s", "2 h 01 min"]

"""E8 and E9 of the ring of keyed state: checkpoints of worker processes. Times are printed, not tested."""

from __future__ import annotations

import pytest

from experiments.ring import processes


@pytest.mark.slow
def test_checkpoints_grow_with_their_interval() -> None:
    """E8: breaks when checkpoints hold what has not changed."""
    short, long = processes.size(0.5, checkpoints=4), processes.size(2.0)
    assert short.whole == pytest.approx(long.whole, rel=0.1)
    assert 1.5 * short.ratio < long.ratio < 0.5


@pytest.mark.slow
def test_latencies_and_pauses_are_measured() -> None:
    """E9: breaks when runs without checkpoints have some, or the other way round."""
    saved, never = (processes.run(500.0, every, 2.0) for every in (0.5, processes.NEVER_S))
    assert {step.kind for step in saved.steps} == {"capture", "pack", "install"}
    assert not never.steps
    assert len(saved.latencies) > 500 and len(never.latencies) > 500

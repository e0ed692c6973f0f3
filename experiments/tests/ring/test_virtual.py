"""E10, E11, E13 and E15 of the ring of keyed state, in virtual time."""

from __future__ import annotations

import pytest

from experiments.ring import losses, scaling, takeover, throughput
from experiments.ring.baselines import Acker, Buffer
from experiments.ring.costs import COSTS, LARGE, NODE, Access, Costs
from experiments.ring.throughput import System


def check_takeovers(cells: list[takeover.Cell]) -> None:
    assert takeover.grows(cells)
    assert max(cell.error for cell in cells) <= 0.3
    assert max(cell.fill for cell in cells) <= 1.1
    assert not any(run.missing for cell in cells for run in cell.runs)


def test_takeovers_grow_with_rate_and_interval() -> None:
    """E10: breaks when more is replayed than what came since the last checkpoint, or less."""
    check_takeovers(takeover.grid(NODE, (4000, 8000), (0.5, 1.0), (0.35, 0.95)))


@pytest.mark.slow
def test_takeovers_at_published_rates() -> None:
    """E10: below half a second on average, as published.

    The longest takes 510 ms at 10,000 records per second, if a node fails just before a checkpoint that is 10 s after
    the last one: what equations (11) and (13) say.
    """
    cells = takeover.grid(NODE)
    check_takeovers(cells)
    assert max(cell.mean_s for cell in cells) < 0.5
    assert max(cell.worst_s for cell in cells if cell.rate <= 5_000) < 0.5


def test_takeover_with_time_stamps() -> None:
    """E10, as published: what is within the bound on latency is replayed again."""
    found = takeover.take_over(6000, 1.0, 0.5, NODE, vectors=False)
    assert found.recovered_s == pytest.approx(found.predicted_s, rel=0.3)


def check_peaks(costs: Costs, counts: tuple[int, ...], seconds: float) -> dict[System, list[throughput.Peak]]:
    found = {
        s: [throughput.peak(s, count, costs.scaled(), seconds=seconds, warm_s=0.5) for count in counts] for s in System
    }
    none, one, two = ([peak.rate for peak in found[s]] for s in (System.NONE, System.ONE, System.TWO))
    assert all(a > b > c for a, b, c in zip(none, one, two, strict=True))
    assert all(2 * peak.rate <= rate for peak, rate in zip(found[System.STORE], one, strict=True))
    assert all(peak.rate < rate for peak, rate in zip(found[System.STORE_PARTS], one, strict=True))
    return found


@pytest.mark.parametrize("costs", [COSTS, LARGE], ids=["messages of 50", "messages of 500"])
def test_peaks_of_few_reducers(costs: Costs) -> None:
    """E11: breaks when copies cost nothing, or an external store costs little."""
    check_peaks(costs, (4, 12), 1.0)


@pytest.mark.slow
def test_peaks_of_many_reducers() -> None:
    """E11: the ring grows with its nodes."""
    straight = {system: throughput.linearity(found) for system, found in check_peaks(COSTS, (4, 16, 40), 2.0).items()}
    assert min(straight[System.NONE], straight[System.ONE], straight[System.TWO]) >= 0.8


def test_an_external_store_is_a_bound() -> None:
    """E11: four hosts serve so many accesses, however many reducers ask."""
    slow = COSTS.scaled()._replace(store=Access(1e-3, 1e-3))
    few, many = (throughput.peak(System.STORE, count, slow, seconds=2.0).rate for count in (8, 32))
    assert many < 1.6 * few
    assert many == pytest.approx(throughput.STORE_HOSTS / 1.5e-3, rel=0.1)


@pytest.mark.slow
def test_a_warm_spare_relieves() -> None:
    """E13: at most 3 s from the first sample of overload; later ones of a run wait while neighbors change."""
    first, every = [], []
    for seed in range(3):
        found, wrong = scaling.scale_out(NODE, seed=seed)
        assert not wrong
        every += [one.moved_s for one in found]
        first.append(min(one.moved_s for one in found))
    assert max(first) <= 3.0
    assert sorted(every)[len(every) // 2] <= 3.0


@pytest.mark.parametrize("seed", range(3))
def test_upstream_backup_loses_state_but_no_record(seed: int) -> None:
    """E15: breaks when the source forgets what was not processed, or the state survives a failure."""
    costs = COSTS.scaled()
    local = losses.upstream_backup(costs, external=False, seed=seed)
    assert not local.unprocessed
    assert local.missing > 0
    external = losses.upstream_backup(costs, external=True, seed=seed)
    assert not external.unprocessed
    assert not external.missing
    ring = losses.ring(costs, seed=seed)
    assert ring[1:] == (0, 0, 0)
    assert losses.ring(costs, replication=0, seed=seed).missing > 0


def test_acker_waits_for_the_whole_tree() -> None:
    acker = Acker()
    assert not acker.update(1, 7)  # processed before the source has reported what it created
    assert not acker.update(2, 5)
    assert not acker.update(1, 7 ^ 9)
    assert acker.update(1, 9)
    assert acker.update(2, 5)


def test_buffer_sends_again_what_is_not_done() -> None:
    buffer = Buffer(timeout_s=30.0)
    for root in range(3):
        buffer.add(root, 10 + root, float(root))
    buffer.done(1)
    assert list(buffer.due(29.9)) == []
    assert list(buffer.due(31.5)) == [10]
    assert list(buffer.due(32.0)) == [12]
    assert not len(buffer)

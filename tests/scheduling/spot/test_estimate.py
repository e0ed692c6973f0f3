"""Price chains from histories, and the market as columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from experiments.spot.paths import midpoints, most_likely
from goffish.cloud.billing import automaton
from goffish.cloud.prices import Trace, trace_of
from goffish.errors import InputError
from goffish.scheduling.spot.estimate import (
    FLOOR,
    bin_correlation,
    estimate_class,
    estimate_joint,
    log_likelihood,
    most_probable_bids,
    quantile_bids,
)
from goffish.scheduling.spot.model import Local, Market, SpotClass, chain_of, work_units
from tests.scheduling.spot.spot_cases import reference

SLOT = 600.0
EDGES = np.array([0.021, 0.051])
LEVELS = np.array([0.02, 0.05, 0.4])
GOES = np.array([[0, 0.7, 0.3], [0.6, 0, 0.4], [0.8, 0.2, 0]])


def _path(chain: np.ndarray, slots: int, seed: int) -> Trace:
    rng, state, found = np.random.default_rng(seed), 0, []
    for chance in rng.random(slots).tolist():
        found.append(state)
        state = int((np.cumsum(chain[state])[:-1] <= chance).sum())
    return trace_of(SLOT * np.arange(slots), LEVELS[found])


@pytest.mark.parametrize(("estimator", "leave"), [("paper", 0.1), ("level", [0.05, 0.1, 0.4]), ("slot", 0.1)])
@pytest.mark.slow
def test_known_chains(estimator: Any, leave: Any) -> None:
    """§7.1, 10: within 3 standard errors on a long path; breaks when changes or times are counted wrongly."""
    chain = chain_of(np.array(leave) if isinstance(leave, list) else leave, GOES)
    slots = 60_000
    found = estimate_class(_path(chain, slots, 3), 1, 0.13, SLOT, bids=EDGES, estimator=estimator)
    share = SpotClass("a", 1, 0.13, EDGES, LEVELS, chain, np.array([0, 1])).stationary
    assert share @ chain == pytest.approx(share)
    error = np.sqrt(chain * (1 - chain) / (slots * share[:, None]))
    assert (np.abs(found.chain - chain) <= 3 * error + 1e-4).all()
    assert found.levels == pytest.approx(LEVELS) and found.chain.sum(axis=1) == pytest.approx(1)
    assert found.stationary == pytest.approx(share, abs=0.02)


def test_by_hand() -> None:
    """Breaks when the paper's estimate is not 1 / mean time between changes, or histograms count the wrong pairs."""
    # Bins 0 1 0 2 0, of 2, 1, 3, 1 and 3 slots; 4 changes in 10 slots.
    trace = trace_of(SLOT * np.array([0, 2, 3, 6, 7, 10]), [0.02, 0.05, 0.02, 0.4, 0.01, 0.01])
    found = estimate_class(trace, 2, 0.13, SLOT, bids=EDGES)
    expected = chain_of(0.4, np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]]))
    assert found.chain == pytest.approx(expected)
    assert found.levels == pytest.approx([(5 * 0.02 + 3 * 0.01) / 8, 0.05, 0.4])
    each = estimate_class(trace, 2, 0.13, SLOT, bids=EDGES, estimator="level")
    assert each.chain == pytest.approx(chain_of(np.array([2 / 8, 1, 1]), np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])))
    pairs = np.array([[5, 1, 1], [1, 0, 0], [1, 0, 0]]) + 0.05
    counted = estimate_class(trace, 2, 0.13, SLOT, bids=EDGES, estimator="slot")
    pairs[0, 0] += 1  # the last slot's start and end are both in bin 0
    assert counted.chain == pytest.approx(pairs / pairs.sum(axis=1, keepdims=True))


def test_a_bin_that_is_never_left() -> None:
    """§7.1, 10: its row is that of the weights of the others; without others, all are alike."""
    trace = trace_of(SLOT * np.array([0, 2, 8, 10]), [0.02, 0.05, 0.4, 0.4])
    found = estimate_class(trace, 1, 0.13, SLOT, bids=EDGES)
    assert found.chain[2] == pytest.approx([0.2 * 2 / 8, 0.2 * 6 / 8, 0.8])
    calm = estimate_class(trace_of([0, 6000], [0.02, 0.02]), 1, 0.13, SLOT, bids=EDGES, estimator="level")
    assert calm.chain.sum(axis=1) == pytest.approx(1) and calm.levels == pytest.approx([0.02, 0.051, 0.051])


def test_bids() -> None:
    """O-6, §3.1: against the definitions by hand."""
    trace = trace_of([0, 5, 15, 16, 46, 48, 100], [0.0304, 0.0196, 0.9, 0.0201, 0.12, 0.5, 0.5])
    assert most_probable_bids(trace, 2) == pytest.approx([0.021, 0.501])
    assert most_probable_bids(trace, 9) == pytest.approx([0.021, 0.031, 0.121, 0.501, 0.901])
    assert quantile_bids(trace, 0.2, (0.1, 0.4, 0.45, 0.9)) == pytest.approx([0.0196, 0.0201, 0.0304, 0.2])
    assert quantile_bids(trace, 0.03, (0.9,)) == pytest.approx([0.03])


def test_the_most_likely_estimate() -> None:
    """Breaks when likelihoods are of other bins than those of the slots, or an impossible step is allowed."""
    chain = chain_of(np.array([0.02, 0.3, 0.9]), GOES)
    train, test = _path(chain, 5000, 1), _path(chain, 5000, 2)
    found = [estimate_class(train, 1, 0.1, SLOT, bids=EDGES, estimator=e) for e in ("paper", "level", "slot")]
    assert most_likely(found, test, SLOT) in (1, 2)
    bins = np.searchsorted(EDGES, test.at(SLOT * np.arange(5000)))
    by_hand = sum(np.log(found[1].chain[a, b]) for a, b in pairwise(bins))
    assert log_likelihood(found[1], test, SLOT) == pytest.approx(by_hand, rel=1e-4)
    never = SpotClass("n", 1, 0.1, EDGES, LEVELS, np.eye(3), np.array([0]))
    changes = int((np.diff(bins) != 0).sum())
    floor = changes * np.log(FLOOR / 3) + (4999 - changes) * np.log(1 - FLOOR * 2 / 3)
    assert log_likelihood(never, test, SLOT) == pytest.approx(floor)
    with pytest.raises(InputError, match="same bids"):
        most_likely([found[0], estimate_class(train, 1, 0.1, SLOT, bids=EDGES + 0.01)], test, SLOT)


def test_semi_markov_by_hand() -> None:
    """Counts of each age; one that was never seen leaves at its bin's rate. Breaks when ages count from elsewhere."""
    # Bins by slot: 0 0 0 1 0 0 0 1 1 0, and 0 at the end: bin 0 is left at ages -, -, 2 of 2; bin 1 at 1 of 2, 1 of 1.
    trace = trace_of(SLOT * np.array([0, 3, 4, 7, 9, 10]), [0.02, 0.05, 0.02, 0.05, 0.02, 0.02])
    found = estimate_class(trace, 1, 0.13, SLOT, bids=EDGES[:1], estimator="semi", ages=4)
    slot = estimate_class(trace, 1, 0.13, SLOT, bids=EDGES[:1], estimator="slot").chain
    assert (found.ages, found.chain.shape, found.covers.tolist()) == (4, (8, 8), [0])
    rate = slot[0, 1]
    for age, (seen, left) in enumerate([(3, 0), (2, 0), (2, 2), (0, 0)]):
        expected = (left + 0.1 * rate) / (seen + 0.1)
        assert found.chain[age, 4] == pytest.approx(expected)
        assert found.chain[age, min(age + 1, 3)] == pytest.approx(1 - expected)
    assert found.chain[4, 0] == pytest.approx((1 + 0.1 * slot[1, 0]) / 2.1)
    assert found.chain[7, 0] == pytest.approx(slot[1, 0])
    with pytest.raises(InputError, match="ages = 0"):
        estimate_class(trace, 1, 0.13, SLOT, bids=EDGES, estimator="semi", ages=0)


def test_likelihood_tells_sojourns_apart() -> None:
    """Semi-Markov where spikes last two slots for certain, Markov where they do not; by hand for both."""
    rng = np.random.default_rng(4)
    calm = rng.geometric(0.1, 2000)
    times = np.cumsum(np.stack((calm, np.full(2000, 2)), axis=1).ravel())
    regular = trace_of(SLOT * np.append(0, times), LEVELS[[*[0, 2] * 2000, 0]])
    chain = chain_of(np.array([0.05, 0.3, 0.5]), GOES)
    for history, best in ((regular, (3,)), (_path(chain, 20_000, 5), (1, 2))):
        half = (history.start + history.end) / 2 // SLOT * SLOT
        train, test = history.between(history.start, half), history.between(half, history.end)
        found = [
            estimate_class(train, 1, 0.1, SLOT, bids=EDGES, estimator=e)  # type: ignore[arg-type]
            for e in ("paper", "level", "slot", "semi")
        ]
        assert most_likely(found, test, SLOT) in best
        bins = np.searchsorted(EDGES, test.at(SLOT * np.arange(half / SLOT, test.end / SLOT + 1)))
        age, total = 0, 0.0
        for a, b in pairwise(bins.tolist()):
            chance = found[3].chain[3 * a + age, 3 * b + (min(age + 1, 2) if a == b else 0)]
            total, age = total + np.log(chance), min(age + 1, 2) if a == b else 0
        assert log_likelihood(found[3], test, SLOT) == pytest.approx(total, abs=1.0)


def test_joint_chain_and_correlation() -> None:
    """O-15: by counting; what was never seen moves as the product does. Correlations against NumPy's."""
    rng = np.random.default_rng(6)
    chain = chain_of(np.array([0.05, 0.3, 0.5]), GOES)
    first, other = _path(chain, 4000, 7), _path(chain, 4000, 8)
    mixed = np.where(rng.random(4000) < 0.8, first.at(SLOT * np.arange(4000)), other.at(SLOT * np.arange(4000)))
    second = trace_of(SLOT * np.arange(4000), mixed)
    classes = [
        estimate_class(first, 1, 0.1, SLOT, bids=EDGES, estimator="slot", name="a"),
        estimate_class(second, 1, 0.1, SLOT, bids=EDGES[:1], estimator="semi", ages=2, name="b"),
    ]
    traces = [first, second]
    prices = np.stack([t.at(SLOT * np.arange(3999)) for t in (first, second)])
    bins = np.stack([np.searchsorted(EDGES, prices[0]), np.searchsorted(EDGES[:1], prices[1])])
    found = bin_correlation(traces, classes, SLOT)
    assert found == pytest.approx(np.corrcoef(bins), abs=1e-3) and found[0, 1] > 0.3
    assert abs(bin_correlation([first, other], [classes[0], classes[0]], SLOT)[0, 1]) < 0.1
    still = trace_of([0, SLOT * 3999], [0.02, 0.02])
    assert bin_correlation([first, still], [classes[0]] * 2, SLOT).tolist() == [[1, 0], [0, 1]]
    joint = estimate_joint(traces, classes, SLOT)
    product = np.kron(classes[0].chain, classes[1].chain)
    age = [0]
    for a, b in pairwise(bins[1].tolist()):
        age.append(int(a == b))
    states = bins[0] * 4 + bins[1] * 2 + age
    pairs = np.zeros((12, 12))
    np.add.at(pairs, (states[:-1], states[1:]), 1)
    seen = pairs.sum(axis=1)
    expected = (pairs + 0.05 * 12 * product) / (seen + 0.05 * 12)[:, None]
    assert joint == pytest.approx(expected, abs=0.02) and joint.sum(axis=1) == pytest.approx(1)
    never = estimate_joint([still, still], classes, SLOT)
    assert never[2:] == pytest.approx(product[2:], abs=1e-15)
    with pytest.raises(InputError, match="traces: expected 2, one for each machine type, found 1"):
        estimate_joint([first], classes, SLOT)
    with pytest.raises(InputError, match="in common"):
        bin_correlation([first, trace_of([1e9, 2e9], [0.1, 0.1])], classes, SLOT)


def test_markets() -> None:
    """Joint states, choices and units; breaks when a class's prices are taken for another's."""
    market = reference()
    assert market.choices == 10 and market.joint_states == 25
    assert market.joint(np.array([0.0135, 5.0])) == 4 and market.joint(np.array([0.0131, 0.0])) == 0
    assert market.joint_bins[:, 7].tolist() == [1, 2]
    assert market.stationary.reshape(5, 5).sum(axis=1) == pytest.approx(market.classes[0].stationary)
    assert (market.spot_choice(1, 2), market.on_demand_choice(1)) == (6, 9)
    assert market.rules.bid[6] == midpoints(market.classes[1].levels)[2]
    assert market.units(8.0) == 24 and market.units(7.9) == 24 and market.units(8.01) == 25
    assert market.least_slots(24) == 13 and reference(local=Local(4, 1)).least_slots(24) == 7
    assert work_units([2, 4, 36], 6) == ([1, 2, 18], pytest.approx(1 / 3))


def test_what_is_refused() -> None:
    """One clear line for each thing that cannot be."""
    levels, chain, covers = np.array([0.1, 0.2]), np.full((2, 2), 0.5), np.array([0])
    edges = midpoints(levels)
    SpotClass("ok", 1, 0.1, edges, levels, chain, covers)
    for change, match in (
        ((0, 0.1, edges, levels, chain, covers), "speed"),
        ((1, 0.1, edges[:0], levels, chain, covers), "edges"),
        (
            (1, 0.1, edges, levels, chain * 1.01, covers),
            "machine type bad: rows of the chain must sum to 1, without negative entries",
        ),
        ((1, 0.1, edges, levels, chain, np.array([2])), "covers"),
        ((1, 0.1, edges, levels, chain, covers, 1.5), "hazard"),
    ):
        with pytest.raises(InputError, match=match):
            SpotClass("bad", *change)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a market requires at least one machine type, and unique names"):
        Market((SpotClass("a", 1, 0.1, edges, levels, chain, covers),) * 2)
    with pytest.raises(InputError, match="startup_slots and checkpoint_slots must be at least 1"):
        reference(startup_slots=0)
    with pytest.raises(
        InputError, match="unknown billing rule 'daily'; accepted: hourly, hourly_start, per_second, first_hour_free"
    ):
        automaton("daily", 6)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="charge_revoked"):
        automaton("per_second", 6, charge_revoked=True)
    trace = trace_of([0, 900], [0.1, 0.1])
    with pytest.raises(InputError, match="two slots"):
        estimate_class(trace, 1, 0.1, SLOT)
    with pytest.raises(InputError, match="unknown estimator 'best'; accepted: recent, paper, level, slot, semi"):
        estimate_class(trace, 1, 0.1, 60.0, estimator="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ascend"):
        estimate_class(trace, 1, 0.1, 60.0, bids=np.array([2.0, 1.0]))

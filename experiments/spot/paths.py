"""Price paths drawn from a market's own chains, and the estimate under which a history is the most likely."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices, Trace
from goffish.errors import InputError
from goffish.scheduling.spot.estimate import log_likelihood
from goffish.scheduling.spot.model import Market, SpotClass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def midpoints(levels: Floats) -> Floats:
    """Edges between ascending levels, for a chain that was not estimated from prices."""
    return np.array([(a + b) / 2 for a, b in pairwise(levels.tolist())], np.float64)


def simulate_prices(market: Market, slots: int, runs: int, rng: np.random.Generator) -> tuple[SlotPrices, Ints]:
    """Price paths of the market's own chains, one after the other, and where each begins; for `replay`.

    The first prices are from the chains' long run. Hazards are peaks that exceed every bid. Before each path are as
    many slots as it takes to know the ages of its first prices.
    """
    known = max(one.ages for one in market.classes) - 1
    steps = known + slots + 1
    levels = [_within(one.edges, one.levels) for one in market.classes]
    prices = np.empty((runs, steps, len(market.classes)))
    if market.joint_chain is not None:
        paths = _paths(market.joint_chain, market.stationary, steps, runs, rng)
        for kind in range(len(market.classes)):
            prices[:, :, kind] = levels[kind][market.joint_bins[kind][paths]]
    else:
        for kind, one in enumerate(market.classes):
            prices[:, :, kind] = levels[kind][_paths(one.chain, one.stationary, steps, runs, rng) // one.ages]
    flat = prices.reshape(runs * steps, -1)
    peaks = flat[1:].copy()
    for kind, one in enumerate(market.classes):
        if one.hazard:
            peaks[rng.random(len(peaks)) < one.hazard, kind] = np.inf
    return SlotPrices(flat, peaks), np.arange(runs, dtype=np.int64) * steps + known


def _paths(chain: Floats, first: Floats, steps: int, runs: int, rng: np.random.Generator) -> Ints:
    """States of a chain, shape (runs, steps); `first`: probabilities of the first one."""
    passed = np.cumsum(chain, axis=1)[:, :-1]
    found = np.empty((runs, steps), np.int64)
    found[:, 0] = np.searchsorted(np.cumsum(first)[:-1], rng.random(runs), "right")
    for step in range(1, steps):
        found[:, step] = (passed[found[:, step - 1]] <= rng.random(runs)[:, None]).sum(axis=1)
    return found


def _within(edges: Floats, levels: Floats) -> Floats:
    """Levels; refused unless each is in its bin."""
    if not np.array_equal(np.searchsorted(edges, levels, "left"), np.arange(levels.size)):
        raise InputError("levels outside their bins cannot be simulated")
    return levels


def most_likely(classes: Sequence[SpotClass], trace: Trace, slot_s: float) -> int:
    """Number of the estimate under which a history, best one that was not trained on, is the most likely.

    The estimates must have the same edges, else their likelihoods say nothing about each other.
    """
    if not classes or any(not np.array_equal(c.edges, classes[0].edges) for c in classes):
        raise InputError("only estimates with the same bids can be compared")
    return int(np.argmax([log_likelihood(c, trace, slot_s) for c in classes]))

"""Price chains from price histories. Specification of RTBA, §3.1 (SPSP) and §6 (O-6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.services.spot.model import SpotClass, chain_of
from goffish.services.spot.prices import Trace, in_slots

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Estimator = Literal["paper", "level", "slot"]

#: Added to the most probable prices to get bids, and what prices are rounded to before.
CENT = 0.001
#: Shares of time that bids of the default set are to cover; the price on demand is the last bid.
QUANTILES = (0.5, 0.75, 0.9)
#: Added to every count of the slot estimator.
PSEUDO_COUNT = 0.05


def most_probable_bids(trace: Trace, count: int = 4) -> Floats:
    """The prices that were in force the longest, each + $0.001, ascending (the paper's bids)."""
    ticks, place = np.unique(np.rint(trace.prices / CENT).astype(np.int64), return_inverse=True)
    weight = np.bincount(place, trace.durations(), ticks.size)
    chosen = np.sort(ticks[np.argsort(-weight, kind="stable")[:count]])
    return np.asarray((chosen + 1) * CENT, np.float64)


def quantile_bids(trace: Trace, on_demand: float, shares: Sequence[float] = QUANTILES) -> Floats:
    """Prices that were not exceeded for these shares of the time, and the price on demand; ascending, without repeats.

    Bids above the price on demand are left out: there it is cheaper on demand (O-6).
    """
    order = np.argsort(trace.prices, kind="stable")
    passed = np.cumsum(trace.durations()[order])
    total = passed[-1]
    if not total > 0:
        raise InputError(f"price trace {trace.name}: lasts no time at all")
    at = np.searchsorted(passed, np.asarray(shares) * total * (1 - 1e-12), "left")
    found = trace.prices[order][np.minimum(at, order.size - 1)]
    return np.unique(np.append(found[found < on_demand], on_demand))


def estimate_class(
    trace: Trace,
    speed: int,
    on_demand: float,
    slot_s: float,
    *,
    bids: Floats | None = None,
    estimator: Estimator = "paper",
    hazard: float = 0.0,
    name: str | None = None,
) -> SpotClass:
    """A class with the price chain of a history (ESTIMATE).

    Parameters
    ----------
    trace : Trace
        History for training.
    speed : int
        Units of work in a slot.
    on_demand : float
        Price of an hour on demand.
    slot_s : float
    bids : float64, shape (bids,), optional
        Ascending; default: `quantile_bids`. They are the edges of the bins.
    estimator : {"paper", "level", "slot"}
        One probability of a change for all bins; one for each; counts of pairs of bins a slot apart.
    hazard : float
    name : str, optional
        Default: the trace's.

    Raises
    ------
    InputError
        For an unknown estimator, bids that do not ascend, or a history shorter than two slots.
    """
    edges = quantile_bids(trace, on_demand) if bids is None else np.asarray(bids, np.float64)
    if estimator not in get_args(Estimator):
        raise InputError(f"no estimator {estimator!r}; there are: {', '.join(get_args(Estimator))}")
    if not edges.size or (np.diff(edges) <= 0).any():
        raise InputError("bids must ascend, and there must be at least one")
    if trace.end - trace.start < 2 * slot_s:
        raise InputError(f"price trace {trace.name}: is shorter than two slots of {slot_s:g} s")
    bins = np.searchsorted(edges, trace.prices, "left").astype(np.int64)
    if estimator == "slot":
        chain = _slot_chain(trace, edges, slot_s)
    else:
        chain = _change_chain(bins, trace, edges.size + 1, slot_s, each=estimator == "level")
    weight = np.bincount(bins, trace.durations(), edges.size + 1)
    money = np.bincount(bins, trace.durations() * trace.prices, edges.size + 1)
    # A bin that never occurred has the price of its upper edge; above all bids, that of the lower one.
    unseen = np.append(edges, edges[-1])
    levels = np.divide(money, weight, out=unseen, where=weight > 0)
    covers = np.arange(edges.size, dtype=np.int64)
    return SpotClass(name or trace.name, speed, on_demand, edges, levels, chain, covers, hazard)


def _change_chain(bins: Ints, trace: Trace, count: int, slot_s: float, *, each: bool) -> Floats:
    """Chain of the changes between bins: how often bins are left, and where the price goes then."""
    kept = np.append(True, bins[1:] != bins[:-1])
    visits, times = bins[kept], trace.times[kept]
    slots = np.diff(times, append=trace.end) / slot_s
    pairs = np.zeros((count, count))
    np.add.at(pairs, (visits[:-1], visits[1:]), 1.0)
    inside = np.bincount(visits, slots, count)
    left = pairs.sum(axis=1)
    never = left == 0
    pairs[never] = np.where(np.eye(count, dtype=bool), 0.0, inside)[never]
    # Where the history stays in one bin, every other one is as likely.
    pairs[pairs.sum(axis=1) == 0] = 1.0
    overall = left.sum() / inside.sum()
    alpha = np.divide(left, inside, out=np.full(count, overall), where=~never & (inside > 0)) if each else overall
    return chain_of(np.minimum(1.0, alpha), pairs)


def _slot_chain(trace: Trace, edges: Floats, slot_s: float) -> Floats:
    """Chain of the bins at the starts of neighbouring slots."""
    bins = np.searchsorted(edges, in_slots([trace], slot_s, trace.start, trace.end).prices[:, 0], "left")
    pairs = np.full((edges.size + 1,) * 2, PSEUDO_COUNT)
    np.add.at(pairs, (bins[:-1], bins[1:]), 1.0)
    return np.asarray(pairs / pairs.sum(axis=1, keepdims=True), np.float64)


def log_likelihood(one: SpotClass, trace: Trace, slot_s: float) -> float:
    """Of the bins at the starts of the slots of a history, given the first; minus infinity if one was impossible."""
    bins = one.bins_of(in_slots([trace], slot_s, trace.start, trace.end).prices[:, 0])
    likely = one.chain[bins[:-1], bins[1:]]
    return float(np.log(likely).sum()) if (likely > 0).all() else -np.inf


def most_likely(classes: Sequence[SpotClass], trace: Trace, slot_s: float) -> int:
    """Number of the estimate under which a history, best one that was not trained on, is the most likely.

    The estimates must have the same edges, else their likelihoods say nothing about each other.
    """
    if not classes or any(not np.array_equal(c.edges, classes[0].edges) for c in classes):
        raise InputError("only estimates with the same bids can be compared")
    return int(np.argmax([log_likelihood(c, trace, slot_s) for c in classes]))

"""Price chains from price histories. See docs/specs/spot.md, sections 3.1 and 6.5 (O-6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import Trace, in_slots
from goffish.errors import InputError
from goffish.scheduling.spot.model import Market, SpotClass, chain_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Estimator = Literal["paper", "level", "slot", "semi"]

#: Added to the most probable prices to get bids, and what prices are rounded to before.
CENT = 0.001
#: Shares of time that bids of the default set are to cover; the price on demand is the last bid.
QUANTILES = (0.5, 0.75, 0.9)
#: Added to every count of the slot estimator.
PSEUDO_COUNT = 0.05
#: Share of a likelihood that is spread over all bins, so that a change that was never seen is possible.
FLOOR = 1e-6


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
    ages: int = 3,
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
    estimator : {"paper", "level", "slot", "semi"}
        One probability of a change for all bins; one for each; counts of pairs of bins a slot apart; semi-Markov: to
        leave a bin also depends on how many slots ago it was entered.
    hazard : float
    name : str, optional
        Default: the trace's.
    ages : int
        Of the semi-Markov chain: that many are distinguished, the last one stands for all greater. A table's joint
        states multiply with it.

    Raises
    ------
    InputError
        For an unknown estimator, bids that do not ascend, no ages, or a history shorter than two slots.
    """
    edges = quantile_bids(trace, on_demand) if bids is None else np.asarray(bids, np.float64)
    if estimator not in get_args(Estimator):
        raise InputError(f"no estimator {estimator!r}; there are: {', '.join(get_args(Estimator))}")
    if not edges.size or (np.diff(edges) <= 0).any():
        raise InputError("bids must ascend, and there must be at least one")
    if ages < 1:
        raise InputError(f"ages = {ages}: must be at least 1")
    if trace.end - trace.start < 2 * slot_s:
        raise InputError(f"price trace {trace.name}: is shorter than two slots of {slot_s:g} s")
    bins = np.searchsorted(edges, trace.prices, "left").astype(np.int64)
    if estimator == "slot":
        chain = _slot_chain(trace, edges, slot_s)
    elif estimator == "semi":
        chain = _semi_chain(trace, edges, slot_s, ages)
    else:
        chain = _change_chain(bins, trace, edges.size + 1, slot_s, each=estimator == "level")
    weight = np.bincount(bins, trace.durations(), edges.size + 1)
    money = np.bincount(bins, trace.durations() * trace.prices, edges.size + 1)
    # A bin that never occurred has the price of its upper edge; above all bids, that of the lower one.
    unseen = np.append(edges, edges[-1])
    levels = np.divide(money, weight, out=unseen, where=weight > 0)
    covers = np.arange(edges.size, dtype=np.int64)
    kept = ages if estimator == "semi" else 1
    return SpotClass(name or trace.name, speed, on_demand, edges, levels, chain, covers, hazard, kept)


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


def _semi_chain(trace: Trace, edges: Floats, slot_s: float, ages: int) -> Floats:
    """Chain of bins with ages: how often a bin is left at each age, and where the price goes then, whatever the age.

    An age is counted with `PSEUDO_COUNT` times the bins as many slots at the rate of its bin (`_slot_chain`), so one
    that was never seen has that rate.
    """
    bins = np.searchsorted(edges, in_slots([trace], slot_s, trace.start, trace.end).prices[:, 0], "left")
    count = edges.size + 1
    entered = np.maximum.accumulate(np.where(np.append(True, bins[1:] != bins[:-1]), np.arange(bins.size), 0))
    age = np.minimum(np.arange(bins.size) - entered, ages - 1)[:-1]
    left = bins[1:] != bins[:-1]
    seen, leaves = np.zeros((count, ages)), np.zeros((count, ages))
    np.add.at(seen, (bins[:-1], age), 1.0)
    np.add.at(leaves, (bins[:-1], age), left.astype(np.float64))
    overall = _slot_chain(trace, edges, slot_s)
    away = np.where(np.eye(count, dtype=bool), 0.0, overall)
    usual = away.sum(axis=1)
    rates = (leaves + PSEUDO_COUNT * count * usual[:, None]) / (seen + PSEUDO_COUNT * count)
    goes = away / usual[:, None]
    found = np.zeros((count * ages,) * 2)
    for at in range(count * ages):
        kind, now = divmod(at, ages)
        found[at, np.arange(count) * ages] = rates[kind, now] * goes[kind]
        found[at, kind * ages + min(now + 1, ages - 1)] += 1.0 - rates[kind, now]
    return found


def estimate_joint(traces: Sequence[Trace], classes: Sequence[SpotClass], slot_s: float) -> Floats:
    """Chain of all prices together, for `Market.joint_chain`: counts of pairs of joint states a slot apart (O-15).

    To the counts of each joint state, `PSEUDO_COUNT` times the joint states are added in all, spread as the classes'
    own chains say. So a joint state never seen is left as if prices moved independently, and the more often one was
    seen, the less that weighs.

    Parameters
    ----------
    traces : sequence of Trace
        One for each class; the time that all cover is used.
    classes : sequence of SpotClass
        In the order of the market's.
    slot_s : float

    Returns
    -------
    float64, shape (joint states, joint states)

    Raises
    ------
    InputError
        If there is not a trace for each class, or the traces have less than two slots in common.
    """
    market = Market(tuple(classes))
    prices = _together(traces, classes, slot_s)
    joint = market.joint(prices, market.ages_of(prices))
    product: Floats = np.ones((1, 1))
    for one in classes:
        product = np.asarray(np.kron(product, one.chain), np.float64)
    pairs = np.zeros_like(product)
    np.add.at(pairs, (joint[:-1], joint[1:]), 1.0)
    prior = PSEUDO_COUNT * market.joint_states
    found = (pairs + prior * product) / (pairs.sum(axis=1, keepdims=True) + prior)
    return np.asarray(found, np.float64)


def bin_correlation(traces: Sequence[Trace], classes: Sequence[SpotClass], slot_s: float) -> Floats:
    """Pearson's correlation of the classes' bins at the starts of slots, shape (classes, classes).

    Near 0 wherever the classes' own chains suffice; else see `estimate_joint`. A price that stays in one bin has the
    correlation 0 with all others.
    """
    prices = _together(traces, classes, slot_s)
    bins = np.stack([one.bins_of(prices[:, at]) for at, one in enumerate(classes)]).astype(np.float64)
    off = bins - bins.mean(axis=1, keepdims=True)
    spread = np.sqrt((off * off).sum(axis=1))
    scale = np.outer(spread, spread)
    found: Floats = np.divide(off @ off.T, scale, out=np.zeros_like(scale), where=scale > 0)
    np.fill_diagonal(found, 1.0)
    return found


def _together(traces: Sequence[Trace], classes: Sequence[SpotClass], slot_s: float) -> Floats:
    """Prices of all classes at the starts of slots, shape (slots + 1, classes), while all traces last."""
    if not classes or len(traces) != len(classes):
        raise InputError(f"{len(classes)} classes need a trace each, not {len(traces)}")
    first, last = max(trace.start for trace in traces), min(trace.end for trace in traces)
    if last - first < 2 * slot_s:
        raise InputError(f"the price traces have less than two slots of {slot_s:g} s in common")
    found: Floats = in_slots(traces, slot_s, first, last).prices
    return found


def log_likelihood(one: SpotClass, trace: Trace, slot_s: float) -> float:
    """Of the bins at the starts of the slots of a history, each given those before it.

    It is comparable between estimates with the same edges, whatever states they have: a chain with ages knows how long
    the price has been in its bin since the history began. Each probability is mixed with that of a bin drawn at random,
    which counts `FLOOR`; so a single change that an estimate takes to be impossible costs it much, but not all.
    """
    prices = in_slots([trace], slot_s, trace.start, trace.end).prices[:, 0]
    bins, at = one.bins_of(prices), np.arange(prices.size)
    entered = np.maximum.accumulate(np.where(np.append(True, bins[1:] != bins[:-1]), at, 0))
    states = bins * one.ages + np.minimum(at - entered, one.ages - 1)
    likely = one.chain[states[:-1], states[1:]]
    return float(np.log((1.0 - FLOOR) * likely + FLOOR / one.bins).sum())

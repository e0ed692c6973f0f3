"""Estimation of price chains from price histories. See docs/specs/spot.md, sections 3.1 and 6.5 (O-6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices, Trace, in_slots
from goffish.errors import InputError
from goffish.scheduling.spot.model import Market, SpotClass, chain_of, slots_inside

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Estimator = Literal["recent", "paper", "level", "slot", "semi"]

#: Increment of the most probable prices to bids, and the rounding of prices before.
CENT = 0.001
#: Shares of time that the default bids cover; the on-demand price is the last bid.
QUANTILES = (0.5, 0.75, 0.9)
#: Pseudo-count of the slot estimator.
PSEUDO_COUNT = 0.05
#: Share of price changes that lead back to a usual price, in the prior of `recent_class`.
RETURNING = 0.5
#: Half-life of the weight of an observation, in seconds; weight of the prior of a bin, and of the bin's rate for each
#: age, in observations.
HALF_LIFE_S, PRIOR, AGE_PRIOR = 10 * 86_400.0, 12.0, 3.0
#: Quantiles of recent prices that separate bins; minimum ratio of two edges.
LEVELS, LEAST_RATIO = (0.25, 0.5, 0.75, 0.9), 1.03
#: Ratio of edges above which a gap is divided, ratio of the first division, and maximum number of the others.
GAP_RATIO, NEAR_RATIO, MOST_GAPS = 2.0, 1.2, 3
#: Maximum number of ages and of states.
MOST_AGES, MOST_STATES = 8, 32
#: Least price whose changes are counted as a ratio.
TINY = 1e-6
#: Share of a likelihood that is spread over all bins, so that unseen changes are possible.
FLOOR = 1e-6


def most_probable_bids(trace: Trace, count: int = 4) -> Floats:
    """Return the prices that were in force the longest, each + $0.001, ascending (the paper's bids)."""
    ticks, place = np.unique(np.rint(trace.prices / CENT).astype(np.int64), return_inverse=True)
    weight = np.bincount(place, trace.durations(), ticks.size)
    chosen = np.sort(ticks[np.argsort(-weight, kind="stable")[:count]])
    return np.asarray((chosen + 1) * CENT, np.float64)


def quantile_bids(trace: Trace, on_demand: float, shares: Sequence[float] = QUANTILES) -> Floats:
    """Return the prices not exceeded for these shares of the time, and the on-demand price; ascending, distinct.

    Bids above the on-demand price are left out, as on-demand machines are cheaper then (O-6).
    """
    order = np.argsort(trace.prices, kind="stable")
    passed = np.cumsum(trace.durations()[order])
    total = passed[-1]
    if not total > 0:
        raise InputError(f"price trace {trace.name}: duration must be positive")
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
    ages: int | None = None,
) -> SpotClass:
    """Estimate a machine type with the price chain of a history (ESTIMATE).

    Parameters
    ----------
    trace : Trace
        Price history for training.
    speed : int
        Units of work in a slot.
    on_demand : float
        On-demand price of an hour.
    slot_s : float
    bids : float64, shape (bids,), optional
        Ascending; default: `quantile_bids`. Bids are the edges of the bins. ``recent`` has its own
        bins, and only the last bid; default: the on-demand price.
    estimator : {"recent", "paper", "level", "slot", "semi"}
        See `recent_class`; one probability of a change for all bins; one per bin; counts of pairs of bins a slot apart;
        or semi-Markov: the probability of leaving a bin also depends on the number of slots since it was entered.
    hazard : float
        Added to the interruptions within slots that ``recent`` observes.
    name : str, optional
        Default: the name of the trace.
    ages : int, optional
        Number of ages of ``semi`` (default: 3), and maximum for ``recent`` (default: `MOST_AGES`); the last one
        represents all greater ages. It multiplies the joint states of a table.

    Raises
    ------
    InputError
        If the estimator is unknown, bids do not ascend, `ages` is below 1, or the history is shorter than two slots.
    """
    if estimator == "recent" and trace.end - trace.start >= 2 * slot_s:
        slots = in_slots([trace], slot_s, trace.start, trace.end)
        bid, most = None if bids is None else float(bids[-1]), MOST_AGES if ages is None else ages
        return recent_class(
            slots, 0, speed, on_demand, slot_s, bid=bid, hazard=hazard, name=name or trace.name, ages=most
        )
    edges = quantile_bids(trace, on_demand) if bids is None else np.asarray(bids, np.float64)
    if estimator not in get_args(Estimator):
        raise InputError(f"unknown estimator {estimator!r}; accepted: {', '.join(get_args(Estimator))}")
    if not edges.size or (np.diff(edges) <= 0).any():
        raise InputError("bids: expected at least one, in ascending order")
    if ages is not None and ages < 1:
        raise InputError(f"ages = {ages}: must be at least 1")
    if trace.end - trace.start < 2 * slot_s:
        raise InputError(f"price trace {trace.name}: shorter than two slots of {slot_s:g} s")
    bins = np.searchsorted(edges, trace.prices, "left").astype(np.int64)
    kept = 1 if estimator != "semi" else 3 if ages is None else ages
    if estimator == "slot":
        chain = _slot_chain(trace, edges, slot_s)
    elif estimator == "semi":
        chain = _semi_chain(trace, edges, slot_s, kept)
    else:
        chain = _change_chain(bins, trace, edges.size + 1, slot_s, each=estimator == "level")
    weight = np.bincount(bins, trace.durations(), edges.size + 1)
    money = np.bincount(bins, trace.durations() * trace.prices, edges.size + 1)
    # A bin that never occurred has the price of its upper edge; above all bids, of its lower edge.
    unseen = np.append(edges, edges[-1])
    levels = np.divide(money, weight, out=unseen, where=weight > 0)
    covers = np.arange(edges.size, dtype=np.int64)
    return SpotClass(name or trace.name, speed, on_demand, edges, levels, chain, covers, hazard, kept)


def recent_class(
    slots: SlotPrices,
    column: int,
    speed: int,
    on_demand: float,
    slot_s: float,
    *,
    bid: float | None = None,
    hazard: float = 0.0,
    name: str = "",
    half_life_s: float = HALF_LIFE_S,
    ages: int = MOST_AGES,
) -> SpotClass:
    """Estimate a machine type from recent prices, so that prices that were never seen are close to known ones.

    Parameters
    ----------
    slots : SlotPrices
        Prices for training; the end is the present.
    column : int
        Column of the machine type.
    speed : int
        Units of work in a slot.
    on_demand : float
        On-demand price of an hour.
    slot_s : float
    bid : float, optional
        The only bid; default: the on-demand price.
    hazard : float
        Probability of an interruption in a slot that prices do not show.
    name : str
    half_life_s : float
        An observation has half the weight of one that is this much later.
    ages : int
        Maximum number of ages; fewer if there are many bins.

    Notes
    -----
    An observation of age `a` weighs ``2 ** (-a / half_life_s)``. Bins are separated by quantiles of the weighted prices
    and, in gaps without prices up to the bid, by a near price and geometric steps; a bin without prices has
    the geometric mean of its edges. The distribution of the bin that follows bin `i` is the posterior mean of a
    Dirichlet distribution with `PRIOR` pseudo-observations: the ratios ``next / now`` of all prices, applied to the
    price of bin `i`, with a share of the changes leading to the usual bins instead. In turn, it is the prior of each
    age of the bin with `AGE_PRIOR` pseudo-observations. Interruptions within slots that start and end below the
    bid are a hazard.
    """
    price, peak = slots.prices[:, column], slots.peaks[:, column]
    weight: Floats = np.exp2(-np.arange(price.size, dtype=np.float64)[::-1] * slot_s / half_life_s)
    top = on_demand if bid is None else bid
    edges = _edges(price, weight, top)
    bins = np.searchsorted(edges, price, "left")
    count = edges.size + 1
    ages = max(1, min(ages, MOST_STATES // count))
    seen: Floats = np.bincount(bins, weight, count).astype(np.float64)
    low, high = np.append(edges[:1], edges), np.append(edges, 2.0 * edges[-1])
    levels = np.divide(np.bincount(bins, weight * price, count), seen, out=np.sqrt(low * high), where=seen > 0)
    pairs = np.zeros((count, ages, count))
    np.add.at(pairs, (bins[:-1], np.minimum(slots_inside(bins), ages - 1)[:-1], bins[1:]), weight[:-1])
    chain = np.zeros((count * ages,) * 2)
    for kind in range(count):
        usual = pairs[kind].sum(axis=0) + PRIOR * _usual(kind, levels, edges, price, weight, seen)
        usual /= usual.sum()
        rows = pairs[kind] + AGE_PRIOR * usual
        rows /= rows.sum(axis=1, keepdims=True)
        for age in range(ages):
            at = kind * ages + age
            chain[at, np.arange(count) * ages] = rows[age]
            chain[at, kind * ages] = 0.0
            chain[at, kind * ages + min(age + 1, ages - 1)] = rows[age, kind]
    calm = (price[:-1] <= top) & (price[1:] <= top)
    within = float(weight[:-1][calm & (peak > top)].sum() / max(weight[:-1][calm].sum(), 1.0))
    covers = np.array([count - 2], np.int64)
    risk = 1.0 - (1.0 - min(within, 1.0)) * (1.0 - hazard)
    return SpotClass(
        name, speed, on_demand, edges, levels, chain / chain.sum(axis=1, keepdims=True), covers, risk, ages
    )


def _edges(price: Floats, weight: Floats, top: float) -> Floats:
    """Edges of the bins of `recent_class`, ascending, up to the bid."""
    order = np.argsort(price, kind="stable")
    passed = np.cumsum(weight[order])
    quantiles = price[order][np.searchsorted(passed, np.array(LEVELS) * passed[-1] * (1 - 1e-12), "left")]
    found: list[float] = []
    if np.unique(price[price < top]).size > 1:
        for edge in np.append(quantiles[quantiles < top], top).tolist():
            if found and 0 < found[-1] < edge < found[-1] * LEAST_RATIO and edge < top:
                continue
            if found and edge > GAP_RATIO * found[-1] > 0:
                found.append(NEAR_RATIO * found[-1])
                steps = int(min(np.log(edge / found[-1]) / np.log(GAP_RATIO), MOST_GAPS))
                found += np.geomspace(found[-1], edge, steps + 2)[1:-1].tolist()
            found.append(edge)
    return np.unique(np.append(found, top))


def _usual(kind: int, levels: Floats, edges: Floats, price: Floats, weight: Floats, seen: Floats) -> Floats:
    """Distribution of the bin that follows a bin if its price changes like all prices on its side of the last edge.

    `seen`: weight of each bin, to which a share of the changes returns.
    """
    count = levels.size
    side = (price[:-1] > edges[-1]) == (kind == count - 1)
    if not side.any():
        return np.full(count, 1.0 / count)
    ratio = np.maximum(price[1:][side], TINY) / np.maximum(price[:-1][side], TINY)
    counts = np.bincount(np.searchsorted(edges, levels[kind] * ratio, "left"), weight[:-1][side], count)
    found: Floats = (counts / counts.sum()).astype(np.float64)
    away, others = found.copy(), seen.copy()
    away[kind] = others[kind] = 0.0
    if others.sum() > 0:
        found += RETURNING * (away.sum() * others / others.sum() - away)
    return np.asarray(0.99 * found + 0.01 / count, np.float64)


def _change_chain(bins: Ints, trace: Trace, count: int, slot_s: float, *, each: bool) -> Floats:
    """Chain of the changes between bins: rate of leaving each bin, and distribution of the next bin."""
    kept = np.append(True, bins[1:] != bins[:-1])
    visits, times = bins[kept], trace.times[kept]
    slots = np.diff(times, append=trace.end) / slot_s
    pairs = np.zeros((count, count))
    np.add.at(pairs, (visits[:-1], visits[1:]), 1.0)
    inside = np.bincount(visits, slots, count)
    left = pairs.sum(axis=1)
    never = left == 0
    pairs[never] = np.where(np.eye(count, dtype=bool), 0.0, inside)[never]
    # If the history stays in one bin, all other bins are equally likely.
    pairs[pairs.sum(axis=1) == 0] = 1.0
    overall = left.sum() / inside.sum()
    alpha = np.divide(left, inside, out=np.full(count, overall), where=~never & (inside > 0)) if each else overall
    return chain_of(np.minimum(1.0, alpha), pairs)


def _slot_chain(trace: Trace, edges: Floats, slot_s: float) -> Floats:
    """Chain of the bins at the starts of consecutive slots."""
    bins = np.searchsorted(edges, in_slots([trace], slot_s, trace.start, trace.end).prices[:, 0], "left")
    pairs = np.full((edges.size + 1,) * 2, PSEUDO_COUNT)
    np.add.at(pairs, (bins[:-1], bins[1:]), 1.0)
    return np.asarray(pairs / pairs.sum(axis=1, keepdims=True), np.float64)


def _semi_chain(trace: Trace, edges: Floats, slot_s: float, ages: int) -> Floats:
    """Chain of bins with ages: rate of leaving each bin at each age, and age-independent distribution of the next bin.

    Each age gets `PSEUDO_COUNT` times the number of bins as additional slots at the rate of its bin (`_slot_chain`), so
    unseen ages have that rate.
    """
    bins = np.searchsorted(edges, in_slots([trace], slot_s, trace.start, trace.end).prices[:, 0], "left")
    count = edges.size + 1
    age = np.minimum(slots_inside(bins), ages - 1)[:-1]
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
    """Estimate the chain of all prices together, for `Market.joint_chain`: pairs of joint states a slot apart (O-15).

    Each joint state gets `PSEUDO_COUNT` times the number of joint states as additional counts, distributed by the
    chains of the machine types. Unseen joint states are therefore left as if prices moved independently, and the effect
    decreases with the number of observations.

    Parameters
    ----------
    traces : sequence of Trace
        One per machine type; the common period is used.
    classes : sequence of SpotClass
        Machine types in the order of the market.
    slot_s : float

    Returns
    -------
    float64, shape (joint states, joint states)

    Raises
    ------
    InputError
        If a machine type has no trace, or the traces have less than two slots in common.
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
    """Pearson's correlation of the machine types' bins at the starts of slots, shape (classes, classes).

    Near 0 if separate chains suffice; otherwise see `estimate_joint`. A price that stays in one bin has the correlation
    0 with all others.
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
    """Prices of all machine types at the starts of slots, shape (slots + 1, classes), in the common period."""
    if not classes or len(traces) != len(classes):
        raise InputError(f"traces: expected {len(classes)}, one for each machine type, found {len(traces)}")
    first, last = max(trace.start for trace in traces), min(trace.end for trace in traces)
    if last - first < 2 * slot_s:
        raise InputError(f"the price traces have less than two slots of {slot_s:g} s in common")
    found: Floats = in_slots(traces, slot_s, first, last).prices
    return found


def log_likelihood(one: SpotClass, trace: Trace, slot_s: float) -> float:
    """Log-likelihood of the bins at the starts of the slots of a history, each given the earlier ones.

    Comparable between estimates with the same edges, whatever their states: a chain with ages uses the time that the
    price has been in its bin since the start of the history. Each probability is mixed with that of a random bin, with
    weight `FLOOR`, so a single change that an estimate excludes has a large but finite penalty.
    """
    prices = in_slots([trace], slot_s, trace.start, trace.end).prices[:, 0]
    bins = one.bins_of(prices)
    states = bins * one.ages + np.minimum(slots_inside(bins), one.ages - 1)
    likely = one.chain[states[:-1], states[1:]]
    return float(np.log((1.0 - FLOOR) * likely + FLOOR / one.bins).sum())

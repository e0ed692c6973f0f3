"""Walk-forward trials of policies, the choice of one of them for a job, and intervals of its cost.

A trial runs every candidate from many start slots of a history, with a market fitted to the prices before. A job then
follows the candidate that was cheapest in the trials, with a safeguard: see `shares` and docs/specs/spot.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from goffish.cloud.prices import ANY_PRICE, SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot.estimate import HALF_LIFE_S, MOST_AGES, recent_class
from goffish.scheduling.spot.heuristics import Heuristic
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.peers import PeerKind, peer
from goffish.scheduling.spot.replay import Replay, replay
from goffish.scheduling.spot.table import Table, build_table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Heuristics among the candidates; each of them for every machine type, next to the table.
RIVALS = ("greedy", "uniform-progress", "on-demand")
#: The cost of a sequence of jobs is at most this much above that of the best candidate, besides a constant.
EPSILON = 0.5
#: Weight of the safeguard, divided among the candidates; the rest belongs to the leader.
SAFEGUARD = 0.04
#: Billing rules that charge started hours.
HOURLY = ("hourly", "hourly_start")
#: Least expected cost that costs are divided by, in dollars.
TINY = 1e-12
#: Ended trials that are required to replace the table by another candidate, and for an interval; gain for the former.
LEAST_TRIALS, LEAST_GAIN = 20, 0.005
#: Share of the costs that an interval covers; rate of its adaptation; minimum half-width by expected cost.
COVERED, GAIN, LEAST_WIDTH = 0.8, 0.02, 0.005


class Candidate(NamedTuple):
    """A policy that a job may follow: the table, or a heuristic on a machine type (an index)."""

    policy: str
    kind: int = -1


class Trials(NamedTuple):
    """Costs of the candidates for jobs of one size and deadline.

    Attributes
    ----------
    candidates : tuple of Candidate
        The first one is the table.
    work, slots : int
    starts : int64, shape (jobs,)
        First slot of each job, at equal distances.
    costs : float64, shape (candidates, jobs)
    losses, checkpoints, rented, on_demand, finished : int64, shape (candidates, jobs)
        As in `replay.Replay`.
    expected : float64, shape (jobs,)
        Cost that the table of the time expected at the start.
    end : int
        Slots of the history; all jobs ended by then.
    """

    candidates: tuple[Candidate, ...]
    work: int
    slots: int
    starts: Ints
    costs: Floats
    losses: Ints
    checkpoints: Ints
    rented: Ints
    on_demand: Ints
    finished: Ints
    expected: Floats
    end: int

    @property
    def step(self) -> int:
        """Slots between two starts."""
        return int(self.starts[1] - self.starts[0]) if self.starts.size > 1 else 1


def refitted(
    market: Market, prices: SlotPrices, *, half_life_s: float = HALF_LIFE_S, ages: int | None = None
) -> Market:
    """Return the market with its machine types estimated from other prices (`recent_class`), as independent.

    The size of tables remains: with several machine types, or availability, ages are limited to those of the market.
    """
    slot_s, single = 3600.0 / market.slots_per_hour, len(market.classes) == 1
    if ages is None:
        free = single and not market.classes[0].by_availability
        ages = MOST_AGES if free else max(one.ages for one in market.classes)
    classes = []
    for at, one in enumerate(market.classes):
        bid = ANY_PRICE if one.by_availability else None
        found = recent_class(
            prices, at, one.speed, one.on_demand, slot_s, bid=bid, name=one.name, half_life_s=half_life_s, ages=ages
        )
        classes.append(replace(found, levels=one.levels) if one.by_availability else found)
    return replace(market, classes=tuple(classes), joint_chain=None)


def until(prices: SlotPrices, slot: int) -> SlotPrices:
    """Return the prices up to the start of a slot."""
    return SlotPrices(prices.prices[: slot + 1], prices.peaks[:slot])


def heuristic(market: Market, candidate: Candidate, work: int, slots: int, prices: SlotPrices) -> Heuristic:
    """Create the heuristic of a candidate; `prices`: earlier ones, for the mean time between interruptions."""
    if candidate.policy == "on-demand":
        return Heuristic(market, "on-demand", work, candidate.kind)
    one = market.classes[candidate.kind]
    bid = float(one.bids[-1])
    kept = (prices.prices[:-1, candidate.kind] <= bid) & (prices.peaks[:, candidate.kind] <= bid)
    begun = int((kept & ~np.append(False, kept[:-1])).sum())
    kind: PeerKind = "greedy" if candidate.policy == "greedy" else "uniform-progress"
    lifetime = float(kept.sum()) / max(1, begun)
    return peer(market, kind, work, slots, class_number=candidate.kind, lifetime=lifetime)


def walk_forward(
    market: Market,
    prices: SlotPrices,
    jobs: Sequence[tuple[int, int]],
    *,
    first: int,
    refit: int,
    step: int = 1,
    threads: int = 2,
    progress: Callable[[int, int], object] | None = None,
) -> list[Trials]:
    """Run all candidates over a history; every job sees only earlier prices.

    Parameters
    ----------
    market : Market
        Rules, speeds and on-demand prices; its price chains are not used.
    prices : SlotPrices
    jobs : sequence of (int, int)
        Work in units and slots to the deadline of each kind of job.
    first : int
        First slot in which a job may start; at least two.
    refit : int
        Slots after which the market is fitted again and the table rebuilt.
    step : int
        Slots between two starts.
    threads : int
    progress : callable, optional
        Called with the number of slots that are done, and all of them.

    Returns
    -------
    list of Trials
        One for each kind of job, in the same order; jobs that do not fit into the history are left out.

    Raises
    ------
    InputError
        If a number is out of range, or a deadline cannot be met.
    """
    if first < 2 or refit < 1 or step < 1 or not jobs:
        raise InputError(f"first = {first}, refit = {refit}, step = {step}: expected at least 2, 1 and 1, and a job")
    most_work, most_slots = max(work for work, _ in jobs), max(slots for _, slots in jobs)
    found: list[list[Trials]] = [[] for _ in jobs]
    candidates = [candidates_of(market, work, slots) for work, slots in jobs]
    for begin in range(first, prices.slots, refit):
        known = until(prices, begin)
        fitted = refitted(market, known)
        table = build_table(fitted, most_work, most_slots, threads=threads)
        states = fitted.joint(prices.prices, fitted.ages_of(prices.prices))
        for at, (work, slots) in enumerate(jobs):
            offset = -(-(begin - first) // step) * step
            starts = np.arange(first + offset, min(begin + refit, prices.slots - slots + 1), step, dtype=np.int64)
            if starts.size:
                rivals = [heuristic(fitted, one, work, slots, known) for one in candidates[at][1:]]
                rules: list[Table | Heuristic] = [table, *rivals]
                ran = [replay(rule, work, slots, prices, starts, threads=threads) for rule in rules]
                expected = table.values[slots, states[starts], work]
                found[at].append(_trials(candidates[at], work, slots, starts, ran, expected, prices.slots))
        if progress is not None:
            progress(min(begin + refit, prices.slots) - first, prices.slots - first)
    return [
        _joined(parts) if parts else _trials(names, work, slots, np.zeros(0, np.int64), [], np.zeros(0), prices.slots)
        for names, (work, slots), parts in zip(candidates, jobs, found, strict=True)
    ]


def candidates_of(market: Market, work: int, slots: int) -> tuple[Candidate, ...]:
    """Return the table, and the heuristics on every machine type that is fast enough."""
    able = [
        kind for kind, one in enumerate(market.classes) if market.startup_slots + -(-work // one.speed) <= slots
    ]  # fmt: skip
    return Candidate("rtba"), *(Candidate(name, kind) for name in RIVALS for kind in able)


def _trials(
    names: tuple[Candidate, ...], work: int, slots: int, starts: Ints, ran: list[Replay], expected: Floats, end: int
) -> Trials:
    """Trials from the results of each candidate."""
    shape = (len(names), starts.size)
    costs = np.array([one.costs for one in ran], np.float64).reshape(shape)
    counts: dict[str, Any] = {
        name: np.array([getattr(one, name) for one in ran], np.int64).reshape(shape)
        for name in ("losses", "checkpoints", "rented", "on_demand", "finished")
    }
    return Trials(names, work, slots, starts, costs, expected=expected, end=end, **counts)


def _joined(parts: list[Trials]) -> Trials:
    """Trials of consecutive starts together."""
    first = parts[0]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=-1)
        for name in ("starts", "costs", "losses", "checkpoints", "rented", "on_demand", "finished", "expected")
    }
    return first._replace(**joined)


def most_cost(market: Market, slots: int) -> float:
    """Return the most that a job can cost, whatever the prices.

    A job holds one machine at a time, at no more than the on-demand price. With billing by the second that is the
    on-demand price of the dearest machine until the deadline; with billing by the hour every short rental is charged
    for an hour.
    """
    hours = 1.0 / market.slots_per_hour
    if market.spot_billing in HOURLY or market.on_demand_billing in HOURLY:
        hours = 1.0 / (market.startup_slots + 1)
    late = 0.0 if market.late_penalty is None else market.late_penalty * slots * max(c.speed for c in market.classes)
    return max(one.on_demand for one in market.classes) * (slots * hours + 1.0) + late


def learning_rate(epsilon: float) -> float:
    """Return the rate `h` with ``h / (1 - exp(-h)) = 1 + epsilon``."""
    if not 0 < epsilon <= 10:
        raise InputError(f"epsilon = {epsilon:g}: must be more than 0 and at most 10")
    return float(brentq(lambda h: h / -np.expm1(-h) - 1.0 - epsilon, 1e-9, 2.0 * epsilon + 1.0))


def leaders(trials: Trials, half_life: float) -> Ints:
    """Return the cheapest candidate of the trials that ended before each start, and of all: shape (jobs + 1,).

    Parameters
    ----------
    trials : Trials
    half_life : float
        A trial has half the weight of one that ended this many slots later.
    """
    ages = (trials.starts - trials.starts[:1]) / half_life if trials.starts.size else np.zeros(0)
    # Older trials than 1000 half-lives weigh nothing; their factors would exceed the numbers that there are.
    grown = np.cumsum(trials.costs * 2.0 ** (ages - max(0.0, ages.max(initial=0.0) - 1000.0)), axis=1)
    sums = np.concatenate((np.zeros((len(grown), 1)), grown), axis=1)
    ended = np.searchsorted(trials.starts + trials.slots, np.append(trials.starts, trials.end), "right")
    then = sums[:, ended]
    enough = (ended >= LEAST_TRIALS) & (then.min(axis=0) < (1.0 - LEAST_GAIN) * then[0])
    return np.where(enough, np.argmin(then, axis=0), 0)


def shares(trials: Trials, scale: float, *, epsilon: float = EPSILON, half_life: float = 1440.0) -> Floats:
    """Return the probability with which a job follows each candidate, by start, and now: shape (candidates, jobs + 1).

    Parameters
    ----------
    trials : Trials
    scale : float
        The most that a job can cost (`most_cost`).
    epsilon : float
        The guarantee for sequences of jobs.
    half_life : float
        Half-life of the weights of trials, in slots, for the leader.

    Notes
    -----
    For jobs that follow one another, exponential weights (Hedge; Freund and Schapire, 1997) on the leader and on every
    candidate: the weight falls by ``exp(-h * cost / scale)`` with the cost that it had for the jobs before. Whatever
    the prices, the expected cost of a sequence is at most ``(1 + epsilon)`` times that of any candidate, plus
    ``(1 + epsilon) / h * log(candidates / SAFEGUARD) * scale``. The proof is in docs/specs/spot.md, section 8.
    """
    count, jobs = trials.costs.shape
    lead = leaders(trials, half_life)
    rate, back = learning_rate(epsilon), -(-trials.slots // trials.step)
    losses = np.concatenate((trials.costs, trials.costs[lead[:-1], np.arange(jobs)][None]))
    log_weights = np.zeros((count + 1, jobs + 1))
    log_weights[:count], log_weights[count] = np.log(SAFEGUARD / count), np.log(1.0 - SAFEGUARD)
    for begin in range(back, jobs, back):
        now = np.arange(begin, min(begin + back, jobs))
        log_weights[:, now] = log_weights[:, now - back] - rate / scale * losses[:, now - back]
    if jobs:
        log_weights[:, jobs] = log_weights[:, jobs - 1] - rate / scale * losses[:, jobs - 1]
    weights = np.exp(log_weights - log_weights.max(axis=0))
    weights /= weights.sum(axis=0)
    found = weights[:count].copy()
    found[lead, np.arange(jobs + 1)] += weights[count]
    return np.asarray(found, np.float64)


def chosen(share: Floats, seed: int = 0) -> int:
    """Draw a candidate from the shares of a job; the same for the same seed, so jobs of a sequence need different ones.

    The table comes first: it is drawn if its share exceeds a random number.
    """
    drawn = np.searchsorted(np.cumsum(share), np.random.default_rng(seed).random(), "right")
    return min(int(drawn), share.size - 1)


def intervals(trials: Trials, candidate: int, window: int, covered: float = COVERED) -> Floats:
    """Return intervals of a candidate's cost as factors of the expected cost, by start, and now: shape (2, jobs + 1).

    Parameters
    ----------
    trials : Trials
    candidate : int
        Index of the candidate.
    window : int
        Slots before a start whose trials count.
    covered : float
        Share of the costs within the intervals in the long run.

    Notes
    -----
    Quantiles of cost / expected cost of the trials that ended before. Their level is adapted to the share of intervals
    that held so far (adaptive conformal inference; Gibbs and Candès, NeurIPS 2021), so in the long run the intervals
    cover at least the given share, whatever the prices.
    """
    ratio = trials.costs[candidate] / np.maximum(trials.expected, TINY)
    jobs, present = ratio.size, np.append(trials.starts, trials.end)
    ended = np.searchsorted(trials.starts + trials.slots, present, "right")
    oldest = np.searchsorted(trials.starts, present - window - trials.slots, "left")
    found = np.empty((2, jobs + 1))
    missed, judged = 1.0 - covered, 0
    for at in range(jobs + 1):
        while judged < ended[at]:
            inside = found[0, judged] <= ratio[judged] <= found[1, judged]
            missed = min(missed + GAIN * ((1.0 - covered) - (0.0 if inside else 1.0)), 1.0)
            judged += 1
        recent = ratio[oldest[at] : ended[at]]
        if recent.size < LEAST_TRIALS or missed <= 0.0:
            found[:, at] = 0.0, np.inf
        else:
            low, high = np.quantile(recent, (missed / 2.0, 1.0 - missed / 2.0))
            found[:, at] = max(0.0, low - LEAST_WIDTH), high + LEAST_WIDTH
    return found

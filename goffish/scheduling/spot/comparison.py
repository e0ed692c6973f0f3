"""Comparison of policies on the same job, prices and start slots, for every sufficient machine type.

See docs/specs/spot.md, sections 3.7 and 7.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices, Trace
from goffish.errors import InputError
from goffish.partial import output_file
from goffish.scheduling.spot import path_kernels as kernels
from goffish.scheduling.spot.estimate import quantile_bids
from goffish.scheduling.spot.heuristics import (
    Heuristic,
    lifetime_interval,
    mean_lifetime,
    on_demand_cost,
    young_interval,
)
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.peers import PeerKind, peer
from goffish.scheduling.spot.replay import Replay, replay
from goffish.scheduling.spot.table import Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: All policies; ``h3-young`` uses Young's interval between checkpoints, ``clairvoyant`` has all prices.
POLICIES = (
    "rtba", "h1", "h2", "h3", "h3-young", "greedy", "eager", "uniform-progress", "on-demand", "clairvoyant",
)  # fmt: skip
#: Heuristics bid the price that was not exceeded for this share of the last days.
BID_SHARE, BID_DAYS = 0.9, 7
#: Maximum number of start slots of the clairvoyant, spread evenly.
MOST_FORESEEN = 200


class Outcome(NamedTuple):
    """Results of a policy.

    Attributes
    ----------
    policy : str
    machines : str
        The machine type, or ``all`` for policies that choose among all types.
    costs : float64, shape (runs,)
    starts : int64, shape (runs,)
        First slot of each job.
    replay : Replay, optional
        None for the clairvoyant, which has costs only.
    """

    policy: str
    machines: str
    costs: Floats
    starts: Ints
    replay: Replay | None = None

    def summary(self, on_demand: float) -> dict[str, Any]:
        """Summarize the results; `saving` is relative to the on-demand price of the job."""
        found = self.replay
        mean = float(self.costs.mean())
        shares = found is not None and int(found.rented.sum()) > 0
        return {
            "policy": self.policy,
            "machines": self.machines,
            "runs": int(self.costs.size),
            "mean_cost": mean,
            "worst_cost": float(self.costs.max()),
            "saving": 1.0 - mean / on_demand,
            "missed": 0 if found is None else found.missed,
            "losses": None if found is None else float(found.losses.mean()),
            "checkpoints": None if found is None else float(found.checkpoints.mean()),
            "on_demand_share": float(found.on_demand.sum() / found.rented.sum()) if found and shares else None,
        }


def write_outcomes(path: str | Path, outcomes: Sequence[Outcome], slot_s: float, since: float) -> None:
    """Write every run as a row of a Parquet file: policy, machines, start, cost, hours until completion, losses."""
    rows = []
    for one in outcomes:
        begun = since + slot_s * one.starts
        done = np.full(one.costs.size, np.nan) if one.replay is None else one.replay.finished * slot_s / 3600.0
        columns = {
            "policy": pa.array([one.policy] * one.costs.size),
            "machines": pa.array([one.machines] * one.costs.size),
            "start": pa.array((begun * 1e6).astype("datetime64[us]")),
            "cost": pa.array(one.costs),
            "hours": pa.array(done, from_pandas=True),
            "losses": pa.array(one.replay.losses if one.replay else [None] * one.costs.size, pa.int64()),
        }
        rows.append(pa.table(columns))
    with output_file(path) as partial:
        pa.parquet.write_table(pa.concat_tables(rows), partial, compression="zstd")


def cheapest_on_demand(market: Market, work: int, slots: int) -> float:
    """Least on-demand price of a job within its deadline; infinite if no machine type is fast enough."""
    prices = [
        on_demand_cost(market, work, kind)
        for kind, one in enumerate(market.classes)
        if market.startup_slots + -(-work // one.speed) <= slots
    ]
    return min(prices, default=np.inf)


def compare(
    market: Market,
    table: Table | None,
    policies: Sequence[str],
    work: int,
    slots: int,
    prices: SlotPrices,
    starts: Ints,
    history: Sequence[Trace] | None = None,
    *,
    bid: int | None = None,
    threads: int = 2,
) -> list[Outcome]:
    """Run every policy on every machine type that can keep the deadline.

    Parameters
    ----------
    market : Market
    table : Table, optional
        Required by ``rtba``; of a market with the same machine types.
    policies : sequence of str
        Names of `POLICIES`.
    work, slots : int
    prices : SlotPrices
    starts : int64, shape (runs,)
    history : sequence of Trace, optional
        Earlier prices, one trace per machine type, for bids, and the mean lifetimes of ``h3`` and Young's formula.
    bid : int, optional
        Index of the heuristics' bid; default: `heuristic_bid`.
    threads : int

    Raises
    ------
    InputError
        If a policy is unknown or lacks its table or history, or no policy can keep the deadline.
    """
    unknown = [name for name in policies if name not in POLICIES]
    if unknown:
        raise InputError(f"unknown policy {unknown[0]!r}; accepted: {', '.join(POLICIES)}")
    if "rtba" in policies and table is None:
        raise InputError("rtba requires a table")
    found = []
    for name in policies:
        if name == "rtba" and table is not None:
            ran = replay(table, work, slots, prices, starts, threads=threads)
            found.append(Outcome(name, "all", ran.costs, starts, ran))
        elif name == "clairvoyant":
            some = starts[np.linspace(0, starts.size - 1, min(starts.size, MOST_FORESEEN)).astype(np.int64)]
            costs = lower_bounds(market, work, slots, prices, some + slots, threads=threads)[:, slots]
            found.append(Outcome(name, "all", costs, some))
        else:
            for kind, one in enumerate(market.classes):
                if market.startup_slots + -(-work // one.speed) <= slots:
                    rule = heuristic_of(market, name, kind, work, slots, history, bid=bid)
                    ran = replay(rule, work, slots, prices, starts, threads=threads)
                    found.append(Outcome(name, one.name, ran.costs, starts, ran))
    if not found:
        hours = slots / market.slots_per_hour
        raise InputError(f"{work * market.unit:.4g} core-hours within {hours:.4g} h: no machine type is fast enough")
    return found


def heuristic_of(
    market: Market, name: str, kind: int, work: int, slots: int, history: Sequence[Trace] | None = None, *,
    bid: int | None = None,
) -> Heuristic:  # fmt: skip
    """Return the heuristic with a name of `POLICIES` on one machine type, with its bid and checkpoints.

    Parameters
    ----------
    market : Market
    name : str
        Any of `POLICIES` but ``rtba`` and ``clairvoyant``.
    kind : int
        Index of the machine type.
    work, slots : int
    history : sequence of Trace, optional
        Earlier prices, one trace per machine type.
    bid : int, optional
        Index of the bid; default: `heuristic_bid`.

    Raises
    ------
    InputError
        If a name requires a history.
    """
    one = market.classes[kind]
    if name == "on-demand":
        return Heuristic(market, "on-demand", work, kind)
    slot_s = 3600.0 / market.slots_per_hour
    by_others = name in get_args(PeerKind)
    place = heuristic_bid(market, kind, None if history is None else history[kind]) if bid is None else bid
    if by_others or not 0 <= place < one.covers.size:
        place = one.covers.size - 1
    lifetime = np.inf
    if history is not None:
        lifetime = mean_lifetime(history[kind], float(one.bids[place]), slot_s)
    elif name in ("h3", "h3-young"):
        raise InputError(f"{name} requires earlier prices, for the mean lifetime of a machine")
    if by_others:
        return peer(market, name, work, slots, class_number=kind, lifetime=lifetime)  # type: ignore[arg-type]
    interval = np.inf
    if name == "h3":
        interval = lifetime_interval(lifetime, one.speed)
    elif name == "h3-young":
        interval = young_interval(lifetime, one.speed, market.longest_checkpoint)
    return Heuristic(market, name.removesuffix("-young"), work, kind, place, interval)  # type: ignore[arg-type]


def heuristic_bid(market: Market, kind: int, history: Trace | None) -> int:
    """Index of the bid of H1 to H3 for a machine type: the least one that covers 90 % of the time of the last 7 days.

    Without a history, and with the published rules of 2012 (start-up is not billed), it is the most probable bid, which
    can be a price that was common long ago and is never met again.

    Parameters
    ----------
    market : Market
    kind : int
        Index of the machine type.
    history : Trace, optional
        Earlier prices; all of them if they are shorter than 7 days.
    """
    if history is None or not market.startup_billed:
        return most_probable_bid(market, kind)
    recent = history.between(max(history.start, history.end - BID_DAYS * 86_400.0), history.end)
    bids = market.classes[kind].bids
    return min(int(np.searchsorted(bids, quantile_bids(recent, np.inf, [BID_SHARE])[0])), bids.size - 1)


def most_probable_bid(market: Market, kind: int) -> int:
    """Index of the bid of a machine type whose bin has the largest share of time."""
    one = market.classes[kind]
    share = one.stationary.reshape(one.bins, -1).sum(axis=1)
    return int(np.argmax(share[one.covers]))


def lower_bounds(market: Market, work: int, slots: int, prices: SlotPrices, ends: Ints, *, threads: int = 2) -> Floats:
    """Least cost of a job with full information of the prices, by deadline and time of submission (§3.7).

    The job has the same choices as any policy, and may also wait for an interruption on purpose.

    Parameters
    ----------
    market : Market
    work : int
        Units of work.
    slots : int
        Longest time to the deadline, in slots.
    prices : SlotPrices
    ends : int64, shape (ends,)
        Deadlines, as the number of price slots before each.
    threads : int

    Returns
    -------
    float64, shape (ends, slots + 1)
        Column `t`: the job is submitted `t` slots before its deadline; infinite if it is infeasible.
    """
    due = np.asarray(ends, np.int64)
    if work < 1 or slots < 1 or not due.size or due.min() < slots or due.max() > prices.slots:
        raise InputError(f"ends: deadlines must be between slot {slots} and the end of the prices, slot {prices.slots}")
    if prices.prices.shape[1] != len(market.classes):
        raise InputError(f"prices: expected {len(market.classes)} machine types, found {prices.prices.shape[1]}")
    found = np.empty((due.size, slots + 1))

    def one(at: int) -> None:
        kernels.known_path(market.rules, work, slots, int(due[at]), prices.prices, prices.peaks, found[at])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, range(due.size)))
    return found

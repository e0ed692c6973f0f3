"""Policies side by side: the same job, prices and start slots for all of them, on every class that can do it.

See docs/specs/spot.md, sections 3.7 and 7.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices, Trace
from goffish.errors import InputError
from goffish.partial import local_path, partial_file
from goffish.scheduling.spot import path_kernels as kernels
from goffish.scheduling.spot.heuristics import (
    Heuristic,
    lifetime_interval,
    mean_lifetime,
    on_demand_cost,
    young_interval,
)
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.peers import peer
from goffish.scheduling.spot.replay import Replay, replay
from goffish.scheduling.spot.table import Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: All that can take part; ``h3-young`` has Young's interval between checkpoints, ``clairvoyant`` knows all prices.
POLICIES = (
    "rtba", "h1", "h2", "h3", "h3-young", "greedy", "eager", "uniform-progress", "on-demand", "clairvoyant",
)  # fmt: skip
#: The clairvoyant looks at so many start slots at most, spread evenly.
MOST_FORESEEN = 200


class Outcome(NamedTuple):
    """What a policy made of the jobs.

    Attributes
    ----------
    policy : str
    machines : str
        The class, or ``all`` for policies that choose among them.
    costs : float64, shape (runs,)
    starts : int64, shape (runs,)
        Slots in which the jobs began.
    replay : Replay, optional
        None for the clairvoyant, of whom only costs are known.
    """

    policy: str
    machines: str
    costs: Floats
    starts: Ints
    replay: Replay | None = None

    def told(self, on_demand: float) -> dict[str, Any]:
        """In a few figures; `saving` is against the price of the job on demand."""
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
    """Write every run as a row of a Parquet file: policy, machines, start, cost, hours until it was done, losses."""
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
    with partial_file(local_path(path)) as partial:
        pa.parquet.write_table(pa.concat_tables(rows), partial, compression="zstd")


def cheapest_on_demand(market: Market, work: int, slots: int) -> float:
    """Least price of a job on demand within its deadline; infinite if no class is fast enough."""
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
    """Run every policy on every class that can keep the deadline.

    Parameters
    ----------
    market : Market
    table : Table, optional
        For ``rtba``; of a market with the same classes.
    policies : sequence of str
        Of `POLICIES`.
    work, slots : int
    prices : SlotPrices
    starts : int64, shape (runs,)
    history : sequence of Trace, optional
        Prices before, one of each class, for the mean lifetimes that ``h3`` and Young's formula need.
    bid : int, optional
        Number of the heuristics' bid; default: the most probable price, that is the bin the chain is in the longest.
    threads : int

    Raises
    ------
    InputError
        For an unknown policy, one that lacks its table or history, or a deadline that no policy can keep.
    """
    unknown = [name for name in policies if name not in POLICIES]
    if unknown:
        raise InputError(f"no policy {unknown[0]!r}; there are: {', '.join(POLICIES)}")
    if "rtba" in policies and table is None:
        raise InputError("rtba needs a table")
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
                    rule = _rule(market, name, kind, work, slots, history, bid)
                    ran = replay(rule, work, slots, prices, starts, threads=threads)
                    found.append(Outcome(name, one.name, ran.costs, starts, ran))
    if not found:
        raise InputError(f"{work} units within {slots} slots: no class can do that")
    return found


def _rule(
    market: Market, name: str, kind: int, work: int, slots: int, history: Sequence[Trace] | None, bid: int | None
) -> Heuristic:
    one = market.classes[kind]
    if name == "on-demand":
        return Heuristic(market, "on-demand", work, kind)
    slot_s = 3600.0 / market.slots_per_hour
    peers = name in ("greedy", "eager", "uniform-progress")
    place = most_probable_bid(market, kind) if bid is None else bid
    if peers or not 0 <= place < one.covers.size:
        place = one.covers.size - 1
    lifetime = np.inf
    if history is not None:
        lifetime = mean_lifetime(history[kind], float(one.bids[place]), slot_s)
    elif name in ("h3", "h3-young"):
        raise InputError(f"{name} needs the prices before, for the mean lifetime of a machine")
    if name in ("greedy", "eager", "uniform-progress"):
        return peer(market, name, work, slots, class_number=kind, lifetime=lifetime)  # type: ignore[arg-type]
    interval = np.inf
    if name == "h3":
        interval = lifetime_interval(lifetime, one.speed)
    elif name == "h3-young":
        interval = young_interval(lifetime, one.speed, market.longest_checkpoint)
    return Heuristic(market, name.removesuffix("-young"), work, kind, place, interval)  # type: ignore[arg-type]


def most_probable_bid(market: Market, kind: int) -> int:
    """Number of the bid of a class whose own bin the price is in the longest."""
    one = market.classes[kind]
    share = one.stationary.reshape(one.bins, -1).sum(axis=1)
    return int(np.argmax(share[one.covers]))


def lower_bounds(market: Market, work: int, slots: int, prices: SlotPrices, ends: Ints, *, threads: int = 2) -> Floats:
    """Least money of a job on known prices, by when it must end and how long before it was submitted (§3.7).

    It may use the choices of the market as any policy may, also let a machine be taken away on purpose.

    Parameters
    ----------
    market : Market
    work : int
        Units.
    slots : int
        Longest time to the deadline.
    prices : SlotPrices
    ends : int64, shape (ends,)
        Deadlines: the number of slots of the prices that are before each.
    threads : int

    Returns
    -------
    float64, shape (ends, slots + 1)
        Column `t`: the job is submitted `t` slots before its deadline; infinite where it cannot be done.
    """
    due = np.asarray(ends, np.int64)
    if work < 1 or slots < 1 or not due.size or due.min() < slots or due.max() > prices.slots:
        raise InputError(f"deadlines must be between slot {slots} and the end of the prices, slot {prices.slots}")
    if prices.prices.shape[1] != len(market.classes):
        raise InputError(f"prices of {len(market.classes)} classes are needed, not of {prices.prices.shape[1]}")
    found = np.empty((due.size, slots + 1))

    def one(at: int) -> None:
        kernels.known_path(market.rules, work, slots, int(due[at]), prices.prices, prices.peaks, found[at])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, range(due.size)))
    return found

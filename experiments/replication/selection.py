"""Other ways to choose what is replicated (selective replication): whole queries, and the knapsack."""

from __future__ import annotations

from typing import Literal

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.model import SLACK, Floats, Ints, Places, System
from goffish.scheduling.policies.replication.selection import select

#: Steps of the budget in the exact knapsack.
GRID = 10_000


def select_queries(
    found: System, scores: Floats, budget: float, *, aggregate: Literal["min", "mean"] = "min", most: int = 1
) -> Ints:
    """Whole queries by their importance as long as any fits, then single operators; as `select`."""
    worth = query_importance(found, scores, aggregate)
    copies, left = np.zeros(found.operators, np.int64), budget
    for query in np.lexsort((np.arange(worth.size), -worth)).tolist():
        need = [o for o in found.queries[query].tolist() if not copies[o] and not found.pinned[o]]
        load = float(found.loads[need].sum())
        if load <= left + SLACK:
            copies[need] = 1
            left -= load
    return select(found, scores, left, most=most, chosen=copies)


def knapsack(
    found: System, values: Floats, budget: float, method: Literal["sorted", "ratio", "exact"] = "ratio"
) -> Ints:
    """At most one copy of each operator, so that the values of those selected sum up to much.

    Parameters
    ----------
    values : float64, shape (operators,)
        Not negative.
    method : {"sorted", "ratio", "exact"}
        By value, by value for a unit of load, or dynamic programming over loads rounded up to budget / `GRID`.

    Returns
    -------
    int64, shape (operators,)
        0 or 1.
    """
    if method == "sorted":
        return select(found, values, budget)
    if method == "ratio":
        free = found.loads <= 0
        worth = np.divide(values, found.loads, out=np.full(found.operators, np.inf), where=~free)
        return select(found, worth, budget)
    if method != "exact":
        raise InputError(f"method = {method!r}: one of sorted, ratio, exact is needed")
    return _exact(found, values, budget)


def _exact(found: System, values: Floats, budget: float) -> Ints:
    copies = np.zeros(found.operators, np.int64)
    if budget < 0:
        return copies
    free = (found.loads <= 0) & ~found.pinned
    copies[free] = 1
    items = np.flatnonzero((found.loads > 0) & ~found.pinned)
    if budget <= 0:
        return copies
    cells = np.ceil(found.loads[items] * (GRID / budget) - 1e-9).astype(np.int64)
    best = np.zeros(GRID + 1)
    taken = np.zeros((items.size, GRID + 1), np.bool_)
    for at, (item, weight) in enumerate(zip(items.tolist(), cells.tolist(), strict=True)):
        if weight <= GRID:
            other = best[: GRID + 1 - weight] + values[item]
            better = other > best[weight:]
            taken[at, weight:] = better
            best[weight:] = np.where(better, other, best[weight:])
    left = GRID
    for at in range(items.size - 1, -1, -1):
        if taken[at, left]:
            copies[items[at]] = 1
            left -= int(cells[at])
    return copies


def query_importance(found: System, scores: Floats, aggregate: Literal["min", "mean"] = "min") -> Floats:
    """Importance of every query from that of its operators, shape (queries,)."""
    if aggregate not in ("min", "mean"):
        raise InputError(f"aggregate = {aggregate!r}: one of min, mean is needed")
    combine = np.min if aggregate == "min" else np.mean
    return np.array([float(combine(scores[some])) for some in found.queries])


def single_points(found: System, places: Places) -> list[set[int]]:
    """Hosts whose crash alone breaks each query."""
    only = np.where(places.sum(axis=1) == 1, places.argmax(axis=1), -1)
    return [{int(only[o]) for o in some.tolist() if only[o] >= 0} for some in found.queries]

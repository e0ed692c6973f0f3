"""Which operators are copied, and how often, within a budget of load. Specification of selective replication, §3.3."""

from __future__ import annotations

from typing import Literal

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.importance import query_importance
from goffish.scheduling.policies.replication.model import SLACK, Floats, Ints, System

Procedure = Literal["breadth", "depth"]
#: Steps of the budget in the exact knapsack.
GRID = 10_000


def ranked(found: System, scores: Floats) -> Ints:
    """Operators by importance, the greatest first; of equal ones the smaller load, then the lower number."""
    return np.lexsort((np.arange(found.operators), found.loads, -scores)).astype(np.int64)


def select(
    found: System,
    scores: Floats,
    budget: float,
    *,
    procedure: Procedure = "breadth",
    most: int = 1,
    stop: bool = False,
    chosen: Ints | None = None,
) -> Ints:
    """Copies of each operator, by importance.

    Parameters
    ----------
    scores : float64, shape (operators,)
    budget : float
        Load that copies may add.
    procedure : {"breadth", "depth"}
        Every operator once before any twice (1), or each as often as it can before the next (2).
    most : int
        Copies of one operator.
    stop : bool
        End at the first that does not fit; else it is skipped.
    chosen : int64, shape (operators,), optional
        Copies that are selected already; they count towards `most`, not towards the budget.

    Returns
    -------
    int64, shape (operators,)
    """
    if procedure not in ("breadth", "depth"):
        raise InputError(f"procedure = {procedure!r}: one of breadth, depth is needed")
    copies = np.zeros(found.operators, np.int64) if chosen is None else chosen.copy()
    order = [o for o in ranked(found, scores).tolist() if not found.pinned[o]]
    loads = found.loads.tolist()
    turns = (
        ((o, level) for level in range(1, most + 1) for o in order)
        if procedure == "breadth"
        else ((o, level) for o in order for level in range(1, most + 1))
    )
    left = budget
    for operator, level in turns:
        if copies[operator] != level - 1 or left < -SLACK:
            continue
        if loads[operator] <= left + SLACK:
            copies[operator] += 1
            left -= loads[operator]
        elif stop:
            break
    return copies


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

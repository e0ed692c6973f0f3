"""Selection of operators to replicate, and the number of replicas, within a budget of load.

See docs/specs/selective-replication.md, section 3.3.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.model import SLACK, Floats, Ints, System

Procedure = Literal["breadth", "depth"]


def ranked(found: System, scores: Floats) -> Ints:
    """Operators by importance, the highest first; ties are broken by the smaller load, then the lower number."""
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
    """Number of replicas of each operator, by importance.

    Parameters
    ----------
    scores : float64, shape (operators,)
    budget : float
        Maximum added load.
    procedure : {"breadth", "depth"}
        Every operator once before any twice (1), or each as often as possible before the next (2).
    most : int
        Maximum number of replicas of one operator.
    stop : bool
        Whether to stop at the first operator that does not fit, or to skip it.
    chosen : int64, shape (operators,), optional
        Previously selected replicas; they count towards `most`, not towards the budget.

    Returns
    -------
    int64, shape (operators,)
    """
    if procedure not in ("breadth", "depth"):
        raise InputError(f"procedure = {procedure!r}: must be one of breadth, depth")
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

"""Importance of operators and queries. See docs/specs/selective-replication.md, section 3.2."""

from __future__ import annotations

from typing import Literal

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication.model import Floats, System

Heuristic = Literal["random", "degree", "utilisation", "combined", "ratio"]
HEURISTICS: tuple[Heuristic, ...] = ("random", "degree", "utilisation", "combined", "ratio")


def out_degree(found: System) -> Floats:
    """Share of all queries that an operator serves (QOD)."""
    return np.asarray(found.degrees / max(len(found.queries), 1), np.float64)


def low_utilisation(found: System) -> Floats:
    """1 minus the load relative to the maximum (LU); 1 for all operators if there is no load."""
    most = found.loads.max(initial=0.0)
    return np.ones(found.operators) if most <= 0 else np.asarray(1.0 - found.loads / most, np.float64)


def ratio(found: System) -> Floats:
    """Queries per unit of load, relative to the maximum; 1 for operators without load (RATIO)."""
    loaded = found.loads > 0
    worth = np.divide(found.degrees, found.loads, out=np.zeros(found.operators), where=loaded)
    return np.where(loaded, worth / max(worth.max(initial=0.0), 1e-300), 1.0)


def importance(found: System, heuristic: Heuristic = "combined", rng: np.random.Generator | None = None) -> Floats:
    """Importance of every operator, 0 to 1.

    Parameters
    ----------
    heuristic : {"random", "degree", "utilisation", "combined", "ratio"}
        `combined` is the product of `degree` and `utilisation` (QOD*LU).
    rng : Generator, optional
        Required by `random` only.

    Returns
    -------
    float64, shape (operators,)
    """
    if heuristic not in HEURISTICS:
        raise InputError(f"heuristic = {heuristic!r}: must be one of {', '.join(HEURISTICS)}")
    if heuristic == "random":
        if rng is None:
            raise InputError("heuristic = 'random': requires rng")
        return rng.random(found.operators)
    if heuristic == "degree":
        return out_degree(found)
    if heuristic == "utilisation":
        return low_utilisation(found)
    if heuristic == "ratio":
        return ratio(found)
    return out_degree(found) * low_utilisation(found)

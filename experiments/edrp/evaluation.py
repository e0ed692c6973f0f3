"""What only the evaluation of EDRP asks: weights of its configurations, and figures of single elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from goffish.scheduling.dataflow.flow import Floats
from goffish.scheduling.policies.edrp import kernels
from goffish.scheduling.policies.edrp.candidates import near_candidates
from goffish.scheduling.policies.edrp.problem import Ints, Problem, Weights
from goffish.scheduling.policies.edrp.program import Solution, solve

#: The configurations that the paper compares (docs/specs/edrp.md, section 3.8), and its baseline with a trace of
#: downtime against pointless moves.
CONFIGURATIONS = {
    "baseline": Weights(0.5, 0.5, 0.0),
    "steady baseline": Weights(0.5, 0.5, 0.0).with_downtime(1e-3),
    "balanced": Weights(0.3, 0.3, 0.4),
    "response time": Weights(0.6, 0.0, 0.4),
    "cost": Weights(0.0, 0.6, 0.4),
}


def solve_near(problem: Problem, twice: tuple[int, ...] = (), **options: Any) -> Solution:
    """r-EDRP: the best deployment one step from the current one (§3.4); of elements in `twice`, two steps."""
    return solve(problem, near_candidates(problem, twice), **options)


def overloaded(problem: Problem) -> list[int]:
    """Elements that cannot keep up on their current hosts."""
    if problem.current is None:
        return []
    sizes = np.minimum(problem.current.sum(axis=1), problem.table.shape[1] - 1)
    latency = problem.table[np.arange(problem.size), sizes]
    return [i for i in range(problem.size) if np.isinf(latency[i][problem.current[i] > 0]).any() or not sizes[i]]


def downtimes(problem: Problem, counts: Ints) -> Floats:
    """Downtime of each element's own change, seconds (Eq. 25 or 34)."""
    model = problem.model
    return np.array([kernels.element_downtime(model, i, row) for i, row in enumerate(counts)])


def restarts(problem: Problem) -> Floats:
    """Of each element, to be restarted where it is, seconds (Eq. 39); 0 in the general variant."""
    return np.asarray(problem.model.elements[kernels.RESTART], np.float64)


def transferred(before: Ints, after: Ints, *, literal: bool = False) -> tuple[float, float]:
    """Shares of an element's state that go to the store, and come from it (Eq. 31 and 32).

    Parameters
    ----------
    before, after : int64, shape (hosts,)
    literal : bool
        As printed: growing elements upload too much where they leave a host as well.
    """
    old, new = int(before.sum()), int(after.sum())
    pairs = list(zip(before.tolist(), after.tolist(), strict=True))
    up = math.fsum(kernels.upload_share(u, v, old, new, literal) for u, v in pairs)
    return up, math.fsum(kernels.download_share(u, v, old, new) for u, v in pairs)

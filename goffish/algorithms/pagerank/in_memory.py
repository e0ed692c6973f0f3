"""PageRank of a whole graph in one process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.pagerank import kernels
from goffish.algorithms.rows import Rows
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.parallel import run_tasks, thread_count
from goffish.kernels.csr import NO_WEIGHTS

Dangling = Literal["redistribute", "leak"]
_Vector = NDArray[np.float64]

#: Arcs plus rows of a Gauss-Seidel block: many, because every block border costs convergence.
_BLOCK = 1 << 22
_TRUSTED = 1e-10


@dataclass(frozen=True)
class Ranks:
    """Ranks as an array, with what is known about them.

    Attributes
    ----------
    rank : float64, shape (n,)
    iterations : int
        Passes over all arcs.
    error_bound : float
        Proved upper bound of Σ|rank - exact rank| (rounding apart).
    """

    rank: _Vector
    iterations: int
    error_bound: float


def pagerank(
    graph: Graph,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    dangling: Dangling = "redistribute",
    weighted: bool = False,
    personalization: Mapping[Any, float] | None = None,
    threads: int | None = None,
) -> Result:
    """Compute PageRank (Brin and Page 1998) with a proved error.

    Parameters
    ----------
    graph : Graph
        An undirected edge counts as two arcs, a self-loop as one, parallel arcs each.
    damping : float
        Probability of following an arc, in [0, 1).
    tolerance : float
        Upper bound of the L1 distance Σ|rank - exact rank|: the iteration ends when this is proved (see `rank_of`).
    max_iterations : int
        Largest number of passes over the arcs; when they are used up, `summary["error_bound"]` exceeds `tolerance`.
    dangling : {"redistribute", "leak"}
        Whether the rank of vertices without out-arcs returns through the teleport (ranks sum to 1, as in
        ``networkx.pagerank``) or is lost, as in the bare formula.
    weighted : bool
        Follow arcs in proportion to their weights; needs a weighted graph.
    personalization : mapping from label to weight, optional
        Where to teleport: not negative, not all zero; missing labels weigh zero. Default: all vertices alike.
    threads : int, optional
        Default: all processors. The result has the same bits for every number of threads.

    Returns
    -------
    Result
        Columns ``vertex`` and ``rank``; summary ``iterations``, ``error_bound`` and ``sum``.

    Raises
    ------
    InputError
        An option out of range, an unknown label.
    """
    teleport = None if personalization is None else teleport_vector(graph, personalization)
    ranks = rank_of(
        graph, damping=damping, tolerance=tolerance, max_iterations=max_iterations, dangling=dangling,
        weighted=weighted, teleport=teleport, threads=threads,
    )  # fmt: skip
    return Result(
        "pagerank",
        pa.table({"vertex": graph.label_column(), "rank": pa.array(ranks.rank)}),
        {
            "iterations": ranks.iterations,
            "error_bound": float(ranks.error_bound),
            "sum": float(ranks.rank.sum()),
        },
    )


def teleport_vector(graph: Graph, personalization: Mapping[Any, float]) -> _Vector:
    """The teleport distribution, shape (n,), sum 1, that a mapping from label to weight describes."""
    teleport = np.zeros(graph.num_vertices)
    for label, weight in personalization.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise InputError(
                f"personalization: the weight of {label!r} is {weight}; weights must be finite and non-negative"
            )
    if personalization:
        teleport[graph.find(list(personalization))] = np.fromiter(personalization.values(), np.float64)
    total = float(teleport.sum())
    if not (total > 0 and math.isfinite(total)):
        raise InputError("personalization: the weights must have a positive, finite sum")
    return teleport / total


def rank_of(
    graph: Graph,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    dangling: Dangling = "redistribute",
    weighted: bool = False,
    teleport: _Vector | None = None,
    threads: int | None = None,
) -> Ranks:
    """The array-level `pagerank`; `teleport` has shape (n,) and sum 1.

    Notes
    -----
    Both variants come from the *leaking* system ``(I - d P) x = (1 - d) v`` with column-substochastic ``P``: giving
    dangling mass back along ``v`` only scales the solution (Del Corso, Gulli and Romani, Internet Mathematics 2005), so
    "redistribute" divides by the sum. Because ``‖(I - d P)⁻¹‖₁ ≤ 1 / (1 - d)``, a residual ``r`` proves an error of at
    most ``‖r‖₁ / (1 - d)``, and dividing by the sum ``σ`` at most doubles it over ``σ``.

    * Undirected: ``x = S z`` turns the system into ``(S - d A) z = (1 - d) v``, symmetric, positive definite and with
      eigenvalues in ``[1 - d, 1 + d]`` relative to the diagonal ``S`` of strengths. Conjugate gradients
      (in the form with one synchronization of Chronopoulos and Gear, J. Comput. Appl. Math. 1989) have an asymptotic
      rate of ``0.557`` per pass or better at ``d = 0.85``, where power iteration has ``0.85``. The true residual is
      computed before an answer is given, and a last power step is taken with it.
    * Directed: Gauss-Seidel sweeps over the in-arcs, inside fixed blocks of rows (a regular splitting of an M-matrix,
      Varga, Matrix Iterative Analysis, thm 3.29: it always converges). A sweep that changed ``x`` by ``δ`` leaves a
      residual of at most ``d ‖δ‖₁``.
    """
    _check_options(graph, damping, tolerance, max_iterations, dangling, weighted)
    workers = thread_count(threads)
    n = graph.num_vertices
    if n == 0:
        return Ranks(np.empty(0), 0, 0.0)
    weights = graph.weights if weighted and graph.weights is not None else NO_WEIGHTS
    strength = np.empty(n)
    has_dangling = kernels.strengths(graph.offsets, weights, weighted, strength)
    start = np.full(n, 1 / n) if teleport is None else teleport
    # Only then can ranks leak; otherwise their sum is 1 and there is nothing to divide by.
    scaled = has_dangling and dangling == "redistribute"
    solve = _gauss_seidel if graph.directed else _conjugate_gradients
    system = _System(graph.reverse, weighted, strength, start, damping, workers)
    x, passes, bound = solve(system, tolerance, max_iterations, scaled)
    if scaled:
        total = float(x.sum())
        x /= total
        bound *= 2 / total
    return Ranks(x, passes, bound)


def _check_options(
    graph: Graph, damping: float, tolerance: float, max_iterations: int, dangling: str, weighted: bool
) -> None:
    if not 0 <= damping < 1:
        raise InputError(f"damping={damping}: must be at least 0 and less than 1")
    if not tolerance > 0:
        raise InputError(f"tolerance={tolerance}: must be positive")
    if max_iterations < 1:
        raise InputError(f"max_iterations={max_iterations}: must be a positive integer")
    if dangling not in ("redistribute", "leak"):
        raise InputError(f"dangling={dangling!r}: choose one of redistribute, leak")
    if weighted and graph.weights is None:
        raise InputError("weighted=True: the graph has no weights")
    if weighted:
        check_range(graph.weights)


class _System(Rows):
    """``(S - d A) z = (1 - d) v`` with the rows of the pull graph cut into ranges of equal work."""

    def __init__(
        self, pull: Graph, weighted: bool, strength: _Vector, start: _Vector, damping: float, threads: int
    ) -> None:
        super().__init__(pull, weighted, threads)
        self.strength, self.start, self.damping = strength, start, damping
        self.teleport = (1 - damping) * start


def _allowed(tolerance: float, scaled: bool, x: _Vector) -> float:
    """The L1 error that `x` may have before its division by its sum, if it is to be divided."""
    return tolerance * float(x.sum()) / 2 if scaled else tolerance


def _conjugate_gradients(
    system: _System, tolerance: float, max_passes: int, scaled: bool
) -> tuple[_Vector, int, float]:
    d, strength = system.damping, system.strength
    n = strength.size
    total = partial(system.total, ranges=system.ranges())
    z = system.start / strength
    r, s, u = np.empty(n), np.empty(n), np.empty(n)
    gain = d / (1 - d)  # of the last power step: the error is at most gain · ‖r‖₁
    passes, before = 0, math.inf
    while True:
        total(kernels.apply, *system.matrix, z, strength, d, u)
        norm, gamma = total(kernels.restart, system.teleport, u, strength, r, s)
        passes += 1
        x = strength * z + r
        allowed = _allowed(tolerance, scaled, x)
        # A restart that gained nothing has reached the rounding floor.
        if gain * norm <= allowed or passes >= max_passes or norm >= before / 2:
            return x, passes, gain * norm
        before = norm
        p, q = np.zeros(n), np.zeros(n)
        alpha, old_gamma = 1.0, math.inf
        # The recurrence drifts from the true residual by rounding, so it is trusted over ten digits at most.
        while gain * norm > allowed and norm > _TRUSTED * before and passes < max_passes - 1:
            delta = total(kernels.apply, *system.matrix, s, strength, d, u)
            passes += 1
            beta = gamma / old_gamma
            alpha = gamma / (delta - beta * gamma / alpha)
            old_gamma = gamma
            norm, gamma = total(kernels.advance, s, u, p, q, z, r, strength, alpha, beta)


def _gauss_seidel(system: _System, tolerance: float, max_passes: int, scaled: bool) -> tuple[_Vector, int, float]:
    d, strength = system.damping, system.strength
    ranges = system.ranges(_BLOCK)
    x = system.start.copy()
    old, new = x / strength, np.empty_like(x)
    gain = d / (1 - d)
    passes = 0
    while True:
        change = sum(
            run_tasks(
                lambda a, b, old=old, new=new: kernels.sweep(
                    *system.matrix, old, new, x, strength, system.teleport, d, a, b
                ),
                ranges, system.threads,
            )
        )  # fmt: skip
        passes += 1
        if gain * change <= _allowed(tolerance, scaled, x) or passes >= max_passes:
            return x, passes, gain * change
        old, new = new, old

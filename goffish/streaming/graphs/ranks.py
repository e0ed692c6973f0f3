"""PageRank that follows a live graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.pagerank.in_memory import rank_of
from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.streaming.graphs import rank_kernels
from goffish.streaming.graphs.followed import Followed
from goffish.streaming.graphs.patterns import Numbers
from goffish.streaming.graphs.rank_kernels import DRIFT, NORM, WORK
from goffish.streaming.graphs.rows import Difference, Floats
from goffish.streaming.key_table import longer

#: A neighbor of the pushes takes as long as so many of a pass over all arcs.
_PRICE = 8.0
_PASSES = 10
_ROUNDING = 2.0**-53


def shares_of(personalization: Mapping[int | str, float]) -> tuple[list[int | str], Floats]:
    """Return the labels of a personalization, and their shares of the teleport.

    Raises
    ------
    InputError
        The weights do not have a positive, finite sum, or one is negative.
    """
    shares = np.array([*personalization.values()], np.float64)
    if not (np.isfinite(shares).all() and shares.min(initial=0.0) >= 0.0 and 0.0 < shares.sum() < np.inf):
        raise InputError("personalization: weights must be finite, non-negative and not all zero")
    return list(personalization), shares / shares.sum()


class Residuals(NamedTuple):
    """Ranks divided by strengths, and what they lack; see `rank_kernels`."""

    scores: Floats
    residual: Floats
    strength: Floats
    is_listed: NDArray[np.bool_]
    listed: Numbers
    #: Of `listed`.
    used: Numbers
    numbers: Floats


class Ranks(Followed):
    """PageRank and personalized PageRank, to a proved error."""

    weighted = has_directions = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        nothing = np.zeros(0)
        self._ranks = Residuals(
            nothing, nothing, nothing, nothing.astype(np.bool_), nothing.astype(np.int64), np.zeros(1, np.int64),
            np.zeros(3),
        )  # fmt: skip
        self._damping = float(self._options.damping)
        self._sum, self._passes = 1.0, 0
        self._teleport = nothing
        if self._options.personalization is not None:
            labels, self._shares = shares_of(self._options.personalization)
            self._need("personalization", labels)

    def _fit(self, size: int) -> None:
        had = len(self._ranks.scores)
        if size > had:
            self._ranks = Residuals._make([*(longer(one, had, size) for one in self._ranks[:5]), *self._ranks[5:]])
            self._ranks.strength[had:] = 1.0
            self._teleport = np.zeros(size)
        if self._options.personalization is None:
            self._teleport[:] = self._seen.vertices
        elif size > had:
            self._teleport[self._needed] = self._shares

    @property
    def _total(self) -> float:
        """Sum of the teleport: vertices weigh 1 each unless there is a personalization."""
        return 1.0 if len(self._needed) else float(np.count_nonzero(self._seen.vertices))

    @property
    def _scaled(self) -> bool:
        """Whether ranks are divided by their sum, as some are lost in vertices without arcs."""
        if self._options.dangling == "leak":
            return False
        return bool((self._seen.vertices & (self._seen.net.out.adjacency.sizes == 0)).any())

    @property
    def _allowed(self) -> float:
        """Sum of residuals that proves the error."""
        d, tolerance = self._damping, float(self._options.tolerance)
        if d == 0.0:
            return np.inf
        return tolerance * (1.0 - d) / d * (self._sum / 2 if self._scaled else self._total)

    @property
    def _arcs(self) -> int:
        return int(self._seen.net.out.adjacency.sizes.sum()) + len(self._seen.vertices)

    def _limit(self) -> float:
        return max(self._passes, _PASSES) * self._arcs / _PRICE

    def _follow(self, difference: Difference, limit: float) -> float:
        net, ranks, d, first = self._seen.net, self._ranks, self._damping, self._ranks.numbers[WORK]
        rank_kernels.change_arcs(net, ranks, difference.pairs, difference.before, difference.weights, d)
        rank_kernels.change_vertices(net, ranks, difference.gone, difference.come, self._teleport, d)
        over = self._push(limit)
        if not over and _ROUNDING * ranks.numbers[DRIFT] > self._allowed / 4:
            rank_kernels.compute_residuals(net, ranks, self._teleport, d)
            self._push(np.inf)
        return float(ranks.numbers[WORK] - first)

    def _push(self, limit: float) -> bool:
        """Push residuals until the error is proved; return whether that took more than a limit."""
        ranks, first, over, before = self._ranks, self._ranks.numbers[WORK], False, np.inf
        while True:
            self._sum = float(rank_kernels.sum_ranks(ranks))
            norm = ranks.numbers[NORM] = rank_kernels.measure(ranks)
            # Where nothing is gained, all that is left comes from rounding.
            if over or norm <= self._allowed or norm >= before / 2:
                break
            over = bool(
                rank_kernels.push(
                    self._seen.net, ranks, self._teleport, self._damping, self._allowed, self._arcs,
                    limit - (ranks.numbers[WORK] - first),
                )
            )  # fmt: skip
            before = norm
        rank_kernels.shorten_list(self._seen.net, ranks, rank_kernels.IDLE * self._allowed / max(self._arcs, 1))
        return over

    def _pass(self) -> None:
        options, ranks, net = self._options, self._ranks, self._seen.net
        ranks.scores[:] = 0.0
        if self._damping > 0.0 and len(self._vertices):
            vertices = self._vertices
            teleport = self._teleport[vertices] if len(self._needed) else None
            # Half of the error is left to changes that follow.
            tolerance = options.tolerance * (1.0 - self._damping if self._scaled else 1.0) / 4
            found = rank_of(
                self._seen.graph(), damping=self._damping, tolerance=tolerance, dangling="leak",
                weighted=len(net.out.weights) > 0, teleport=teleport,
            )  # fmt: skip
            self._passes = found.iterations
            ranks.scores[vertices] = found.rank * self._total
            rank_kernels.measure_strengths(net, ranks)
            ranks.scores[vertices] /= ranks.strength[vertices]
        rank_kernels.compute_residuals(net, ranks, self._teleport, self._damping)
        self._push(np.inf)

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        ranks, d = self._ranks, self._damping
        found = np.empty(len(vertices))
        divisor, times = (self._sum, 2.0) if self._scaled else (max(self._total, 1.0), 1.0)
        rank_kernels.read_ranks(ranks, vertices, divisor, found)
        bound = d / (1.0 - d) * (ranks.numbers[NORM] + _ROUNDING * ranks.numbers[DRIFT]) * times / divisor
        summary = {"iterations": self._passes, "error_bound": float(bound), "sum": float(found.sum())}
        return Result("pagerank", pa.table({"vertex": labels, "rank": pa.array(found)}), summary)

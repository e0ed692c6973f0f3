"""Communities that follow a live graph, under ids that they keep."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.communities.divisions import match_ids
from goffish.algorithms.communities.in_memory import find_communities
from goffish.algorithms.communities.settings import Search
from goffish.gopher.result import Result
from goffish.streaming.graphs import move_kernels
from goffish.streaming.graphs.followed import Followed
from goffish.streaming.graphs.move_kernels import MOVES, NEXT, TOTAL
from goffish.streaming.graphs.patterns import Numbers
from goffish.streaming.graphs.rows import Difference, Floats
from goffish.streaming.key_table import longer

#: Modularity that may be lost until there is a full pass, and what may have changed: pairs, as a share of all, and
#: moves, as a share of the vertices.
_LOST, _CHANGED = 0.005, 0.25
#: Sums are computed anew when this share of the pairs has changed, or all weights are less than this share of one that
#: was changed: what rounding has left of it would count.
_DRIFT, _SMALL = 0.125, 1e-6


class Division(NamedTuple):
    """Communities of vertices, and their sums; see `move_kernels`."""

    # By vertex, the queue with one more.
    community: Numbers
    out_strength: Floats
    in_strength: Floats
    is_queued: NDArray[np.bool_]
    marks: NDArray[np.int8]
    queue: Numbers
    queues: tuple[Numbers, Numbers]
    # By community.
    size: Numbers
    out_total: Floats
    in_total: Floats
    ids: Numbers
    free: Numbers
    links: Floats
    found: Numbers
    numbers: Numbers
    sums: Floats


class Rule(NamedTuple):
    """Which moves are made, and whether communities are connected."""

    resolution: float
    least_gain: float
    connected: bool


class Communities(Followed):
    """Communities of high modularity."""

    weighted = has_directions = True
    price = 20.0
    #: What goes on when there are more vertices.
    _kept: ClassVar = ("community", "out_strength", "in_strength", "size", "out_total", "in_total", "ids")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        options = self._options
        self._rule = Rule(options.resolution, options.least_gain, options.refine == "leiden")
        self._division = _empty(0)
        #: Modularity right after the last full pass, and what has changed since then.
        self._best, self._changed = 0.0, 0
        #: Changes since all sums were computed, and the largest weight among them.
        self._unmeasured, self._largest = 0, 0.0

    def _fit(self, size: int) -> None:
        old, had = self._division, len(self._division.community)
        if size <= had:
            return
        # Nothing is queued between two results.
        kept: dict[str, Any] = {name: longer(getattr(old, name), had, size) for name in self._kept}
        self._division = _empty(size)._replace(**kept, numbers=old.numbers, sums=old.sums)
        self._division.community[had:] = -1
        self._division.numbers[2:4] = 0
        move_kernels.list_free(self._division)

    def _follow(self, difference: Difference, limit: float) -> float:
        work = move_kernels.change_division(self._seen.net, self._division, difference, self._rule, limit)
        self._changed += len(difference.pairs)
        self._unmeasured += len(difference.pairs)
        both = np.concatenate((difference.before, difference.weights[difference.pairs]))
        self._largest = max(self._largest, float(both.max(initial=0.0)))
        small = self._division.sums[TOTAL] < _SMALL * self._largest
        if small or self._unmeasured > _DRIFT * self._seen.edges:
            self._measure()
        return float(work)

    def _lost(self) -> str | None:
        division, rule, edges = self._division, self._rule, self._seen.edges
        if self._changed > _CHANGED * edges:
            return f"{self._changed:,} changes of {edges:,} pairs"
        moves, vertices = int(division.numbers[MOVES]), len(self._vertices)
        if moves > _CHANGED * vertices:
            return f"{moves:,} moves of {vertices:,} vertices"
        found = move_kernels.modularity(division, rule.resolution)[0]
        if found < self._best - _LOST:
            return f"modularity {found:.4f}, from {self._best:.4f}"
        return None

    def _measure(self) -> None:
        move_kernels.measure_division(self._seen.net, self._division, self._vertices)
        move_kernels.list_free(self._division)
        self._unmeasured, self._largest = 0, 0.0

    def _pass(self) -> None:
        vertices, division, options = self._vertices, self._division, self._options
        old = division.community[vertices]
        named = np.where(old < 0, -1, division.ids[old])
        seed = options.seed if options.seed != "random" else None
        search = Search(options.resolution, seed, options.refine, least_gain=options.least_gain)
        new = np.zeros(0, np.int64)
        if len(vertices):
            graph = self._seen.graph()
            alone = np.flatnonzero(old < 0)
            start = np.where(old < 0, 0, old)
            start[alone] = len(division.community) + alone
            found = find_communities(graph, search, np.unique(start, return_inverse=True)[1])
            if len(alone) == len(vertices) or found.modularity < self._best - _LOST:
                # There is nothing to start from, or it may lead nowhere. Other communities must be worth a change.
                other = find_communities(graph, search)
                if len(alone) == len(vertices) or other.modularity > found.modularity + _LOST:
                    found = other
            new = found.membership
        ids, last = match_ids(named, new), int(named.max(initial=-1))
        # An id is never used again.
        ids[ids > last] += max(int(division.numbers[NEXT]) - last - 1, 0)
        division.community[:] = -1
        division.community[vertices] = new
        division.ids[new] = ids
        division.numbers[NEXT] = max(int(division.numbers[NEXT]), int(ids.max(initial=-1)) + 1)
        division.numbers[MOVES] = self._changed = 0
        division.numbers[2:4], division.is_queued[:], division.marks[:], division.links[:] = 0, False, 0, 0.0
        self._measure()
        self._best = move_kernels.modularity(division, self._rule.resolution)[0]

    def _result(self, vertices: Numbers, labels: pa.Array) -> Result:
        division = self._division
        modularity, communities = move_kernels.modularity(division, self._rule.resolution)
        ids = division.ids[division.community[vertices]]
        table = pa.table({"vertex": labels, "community": pa.array(ids, pa.int64())})
        return Result("louvain", table, {"communities": int(communities), "modularity": float(modularity)})


def _empty(size: int) -> Division:
    numbers, sums = np.zeros(size, np.int64), np.zeros(size)
    queues = numbers.copy(), numbers.copy()
    return Division(
        np.full(size, -1), sums.copy(), sums.copy(), np.zeros(size, np.bool_), np.zeros(size, np.int8),
        np.zeros(size + 1, np.int64), queues, numbers.copy(), sums.copy(), sums.copy(), numbers.copy(),
        numbers.copy(), sums.copy(), numbers.copy(), np.zeros(5, np.int64), np.zeros(2),
    )  # fmt: skip

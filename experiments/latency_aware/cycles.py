"""Problems whose edges may hold cycles: their order, and what counts along it.

See docs/specs/latency-aware.md, sections 2.7 and 3.6: the heuristic of Eades, Lin and Smyth for feedback arc sets,
which removes all sources (sinks) of the moment as one level and breaks a cycle in the first strongly connected
component, at a vertex that is fed by what was removed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import Columns, Ints, PlacementProblem, grouped

Levels = list[list[int]]


class CyclicProblem(PlacementProblem):
    """A placement problem whose edges may point backwards in the order; these do not count for latency (§2.7)."""

    @cached_property
    def order(self) -> Ints:
        """The levels of `cyclic_order`, one after the other."""
        levels = cyclic_order(self.operators, [(u, v) for u, v in self.edges.tolist()])
        return np.array([v for level in levels for v in level], np.int64)

    @cached_property
    def columns(self) -> Columns:
        """The same for the kernels: predecessors along the edges that count, neighbours without the operator itself."""
        source, target = self.edges.T
        counts, real = forward(self), source != target
        pred_offsets, by_target = grouped(target[counts], self.operators)
        near_offsets, by_operator = grouped(np.concatenate((source[real], target[real])), self.operators)
        return super().columns._replace(
            pred_offsets=pred_offsets,
            pred=source[counts][by_target],
            near_offsets=near_offsets,
            near=np.concatenate((target[real], source[real]))[by_operator],
            pull=np.tile(self.apart[real], 2)[by_operator],
        )


def forward(problem: PlacementProblem) -> NDArray[np.bool_]:
    """Edges that do not point backwards in the order of a problem; only they count for latency."""
    place = np.empty(problem.operators, np.int64)
    place[problem.order] = np.arange(problem.operators)
    return np.asarray(place[problem.edges[:, 0]] < place[problem.edges[:, 1]])


def cyclic_order(size: int, edges: Sequence[tuple[int, int]]) -> Levels:
    """Every vertex once, in levels; without cycles no edge points backwards.

    Parameters
    ----------
    size : int
        Vertices are 0 to size - 1.
    edges : sequence of (int, int)
        From, to. Self-loops are ignored.

    Raises
    ------
    InputError
        If an edge names a vertex that is not there.
    """
    return _Peeling(size, edges).run()


class _Peeling:
    """A graph that loses vertices, with the degrees of those that are left."""

    def __init__(self, size: int, edges: Sequence[tuple[int, int]]) -> None:
        wrong = next((edge for edge in edges if not (0 <= edge[0] < size and 0 <= edge[1] < size)), None)
        if wrong is not None:
            raise InputError(f"edge {wrong[0]} -> {wrong[1]}: vertices are 0 to {size - 1}")
        self.succ: list[list[int]] = [[] for _ in range(size)]
        self.pred: list[list[int]] = [[] for _ in range(size)]
        for u, v in edges:
            if u != v:
                self.succ[u].append(v)
                self.pred[v].append(u)
        self.into = [len(some) for some in self.pred]
        self.out = [len(some) for some in self.succ]
        self.there = [True] * size
        self.left = [False] * size

    def run(self) -> Levels:
        size = len(self.there)
        first: Levels = []
        last: Levels = []
        sources = [v for v in range(size) if not self.into[v]]
        sinks = [v for v in range(size) if not self.out[v]]
        remaining = size
        while remaining:
            while level := [v for v in sources if self.there[v]]:
                sources, freed = self._remove(level)
                sinks += freed
                first.append(level)
                remaining -= len(level)
                for v in level:
                    self.left[v] = True
            while level := [v for v in sinks if self.there[v]]:
                freed, sinks = self._remove(level)
                sources += freed
                last.append(level)
                remaining -= len(level)
            if remaining:
                broken = self._break()
                sources, sinks = self._remove([broken])
                first.append([broken])
                remaining -= 1
                self.left[broken] = True
        return first + last[::-1]

    def _remove(self, level: list[int]) -> tuple[list[int], list[int]]:
        """Take vertices away; those that have just become sources, and sinks, as their last edges went."""
        for v in level:
            self.there[v] = False
        sources, sinks = [], []
        for v in level:
            for u in self.succ[v]:
                self.into[u] -= 1
                if self.there[u] and not self.into[u]:
                    sources.append(u)
            for u in self.pred[v]:
                self.out[u] -= 1
                if self.there[u] and not self.out[u]:
                    sinks.append(u)
        return sources, sinks

    def _break(self) -> int:
        """The vertex whose removal breaks a cycle."""
        component = first_component(len(self.there), self.succ, self.there.__getitem__)
        fed = [v for v in component if any(self.left[u] for u in self.pred[v])]
        return max(fed or component, key=lambda v: (self.out[v] - self.into[v], -v))


def first_component(size: int, succ: Sequence[Sequence[int]], there: Callable[[int], bool]) -> list[int]:
    """A strongly connected component that no other one leads to: the last one that Tarjan's algorithm puts out."""
    index, low = [-1] * size, [0] * size
    held = [False] * size
    stack: list[int] = []
    component: list[int] = []
    count = 0
    for root in range(size):
        if index[root] >= 0 or not there(root):
            continue
        walk = [(root, iter(succ[root]))]
        index[root] = low[root] = count
        count += 1
        stack.append(root)
        held[root] = True
        while walk:
            v, rest = walk[-1]
            w = next((u for u in rest if there(u) and (index[u] < 0 or held[u])), None)
            if w is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[v])
                if low[v] == index[v]:
                    cut = stack.index(v)
                    component, stack[cut:] = stack[cut:], []
                    for u in component:
                        held[u] = False
            elif index[w] < 0:
                index[w] = low[w] = count
                count += 1
                stack.append(w)
                held[w] = True
                walk.append((w, iter(succ[w])))
            else:
                low[v] = min(low[v], index[w])
    return component

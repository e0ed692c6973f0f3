"""Centrality: the vertices with the highest scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming.graphs import score_kernels
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.patterns import Deltas, Found, Net, Numbers, Pattern, longest
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.key_table import longer

_RANKED = np.dtype([("rank", np.int64), ("score", np.float64)])


class _Rule(NamedTuple):
    top: int
    is_pagerank: bool


class _Scores(NamedTuple):
    """Scores of vertices; see `score_kernels`."""

    chosen: NDArray[np.bool_]
    scores: NDArray[np.float64]
    ranks: Numbers
    is_top: NDArray[np.bool_]
    was_top: NDArray[np.bool_]
    # Vertices by rank: at the last observation, and at the next one.
    top: Numbers
    top_scores: NDArray[np.float64]
    next: Numbers
    next_scores: NDArray[np.float64]
    # PageRank.
    residuals: NDArray[np.float64]
    degrees: Numbers
    is_changed: NDArray[np.bool_]
    changed: Numbers
    queue: Numbers
    is_queued: NDArray[np.bool_]
    counts_once: NDArray[np.bool_]
    # Entries that need not be current.
    heap: Numbers
    heap_scores: NDArray[np.float64]
    counts: Numbers


class _Out(NamedTuple):
    """Events."""

    observations: Numbers
    codes: NDArray[np.int8]
    keys: Numbers
    ranks: Numbers
    scores: NDArray[np.float64]


_HEAPS = ("heap", "heap_scores")


class Centrality(Pattern):
    """Vertices with the highest scores.

    Parameters
    ----------
    query : Query

    References
    ----------
    Ohsaka, N., Maehara, T., Kawarabayashi, K.: Efficient PageRank tracking in evolving networks. KDD 2015.
    """

    operator = "scores in a heap: numbers of edges, or ranks that are pushed on along edges"
    statuses, columns, roles, dtype = ("LEFT", "ENTERED"), ("vertex",), ("vertex",), _RANKED

    kept = ("_net", "_state")

    def __init__(self, query: syntax.Query) -> None:
        super().__init__(query)
        self._rule = _Rule(self._arguments["top"], self._arguments["measure"] == "pagerank")
        self._net = Net.empty()
        none, flags, numbers = np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0)
        self._state = _Scores(
            flags, numbers, none, flags, flags, none, numbers, none, numbers, numbers, none, flags, none, none, flags,
            flags, none, numbers, np.zeros(9, np.int64),
        )  # fmt: skip
        self._out = _Out(none, none.astype(np.int8), none, none, numbers)

    @property
    def pending(self) -> bool:
        return bool(self._state.counts[score_kernels.PENDING])

    @property
    def touched(self) -> tuple[Numbers, Numbers]:
        state = self._state  # the order of the heap depends on labels
        heap = state.heap[: state.counts[score_kernels.HEAP]]
        others = np.flatnonzero(state.is_top | state.was_top | state.is_changed | state.is_queued)
        return np.concatenate([others, heap]), heap[:0]

    def fit(self, vertices: int, edges: int, deltas: Deltas) -> None:
        if self._rule.is_pagerank:
            self._net = self._net.fit(vertices, edges, deltas)
        state = self._state
        used = int(state.counts[score_kernels.HEAP])
        if used > 4 * vertices:
            score_kernels.fill_heap(state, self._keys, 0.0)
            used = int(state.counts[score_kernels.HEAP])
        heap = max(vertices, used + 2 * len(deltas.kinds)) + vertices
        sizes = dict.fromkeys(_Scores._fields[:-1], vertices) | dict.fromkeys(_HEAPS, heap) | {"counts_once": edges}
        larger: Any = {name: longest(getattr(state, name), size) for name, size in sizes.items()}
        self._state = state._replace(**larger)

    def step(self, deltas: Deltas, *, ends: bool) -> Found:
        counts = self._state.counts
        counts[[score_kernels.DELTA, score_kernels.OBSERVATION, score_kernels.COUNT]] = 0
        while not score_kernels.centrality(deltas, self._net, self._state, self._keys, self._rule, self._out, ends):
            had, size = len(self._out.codes), 2 * (len(self._out.codes) + len(self._state.chosen))
            self._out = _Out._make(longer(column, had, size) for column in self._out)
        out = _Out._make(column[: counts[score_kernels.COUNT]].copy() for column in self._out)
        return Found(out.observations, out.codes, out.keys, _ranked(out.ranks, out.scores))

    def answers(self) -> tuple[Numbers, NDArray[Any]]:
        state = self._state
        count = int(state.counts[score_kernels.TOP])
        return state.top[:count].copy(), _ranked(np.arange(1, count + 1), state.top_scores[:count])

    def shown(self, encoder: Encoder, keys: Numbers, values: NDArray[Any]) -> dict[str, pa.Array]:
        values = values.astype(_RANKED, copy=False)
        columns = super().shown(encoder, keys, values)
        # The last digits depend on the order in which scores came about.
        return columns | {"rank": pa.array(values["rank"].copy()), "score": pa.array(np.round(values["score"], 9))}


def _ranked(ranks: Numbers, scores: NDArray[np.float64]) -> NDArray[Any]:
    found = np.empty(len(ranks), _RANKED)
    found["rank"], found["score"] = ranks, scores
    return found

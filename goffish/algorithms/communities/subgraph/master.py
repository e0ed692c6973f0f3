"""The master's part of the partitioned Louvain: merge the pieces, run the remaining levels, hand out the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities import level_kernels as kernels
from goffish.algorithms.communities.hierarchy import compose, nested_maps
from goffish.algorithms.communities.levels import Level, collapse, dense_ranks, undirected_level
from goffish.algorithms.communities.merged import search_ensemble, search_from
from goffish.algorithms.communities.sequential import Collapse, collapse_in_order, run_level, run_levels
from goffish.algorithms.communities.settings import Search
from goffish.algorithms.communities.subgraph import label_kernels
from goffish.algorithms.communities.subgraph.messages import (
    Kind,
    Options,
    first_subgraphs,
    floats_of,
    of_kind,
    pack_places,
)
from goffish.gopher import BatchStep, SubgraphBatch

#: Levels that results report; of a deeper hierarchy the first ones and the last.
MOST_LEVELS = 12


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the master made of the rows.

    Attributes
    ----------
    labels : int64, shape (N,)
        Label of each vertex of the merged graph, ascending.
    maps : list of int64 arrays
        The hierarchy: community on the first level of each vertex of the merged graph, on the second of each community
        of the first, and so on. The first level is the vertices themselves.
    before, modularity : float
        Of the first and of the last division.
    merge_seconds, finish_seconds : float
    """

    labels: NDArray[np.int64]
    maps: list[NDArray[np.int64]]
    before: float
    modularity: float
    merge_seconds: float
    finish_seconds: float


def merge_rows(
    row: NDArray[np.int64], column: NDArray[np.int64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.int64], Level]:
    """S6 of section 3.3: the matrix over all labels that have a row, renumbered in increasing order.

    Parameters
    ----------
    row, column : int64 arrays
        Labels; every one has an entry with itself. Several entries for one pair are added up.
    weight : float64 array

    Returns
    -------
    labels : int64, shape (N,)
        Label of each vertex of the merged graph, ascending.
    graph : Level
    """
    labels = np.unique(row)
    apart = kernels.pair_rows(np.searchsorted(labels, row), np.searchsorted(labels, column), weight, labels.size)
    return labels, collapse_in_order(undirected_level(*apart), np.arange(labels.size))[1]


def merge_pairs(
    messages: np.ndarray[Any, Any], *, shared: bool, directed: bool = False
) -> tuple[NDArray[np.int64], Level]:
    """As `merge_rows`, from entries of which each pair has only that with the smaller label first.

    Parameters
    ----------
    messages : structured array
        The entries are those of kind `Kind.ROW`.
    shared : bool
        Several partitions may have entries for one pair.
    directed : bool
        Take the degrees by direction from the entries of kind `Kind.DEGREE`.
    """
    entry = np.int8(Kind.ROW)
    kinds, row, column = messages["kind"], messages["a"], messages["b"]
    labels, number = label_kernels.used_labels(kinds, row, entry, int(row.max(initial=-1)) + 1)
    offsets = np.zeros(labels.size + 1, np.int64)
    targets, weights, loops = label_kernels.mirror_rows(kinds, row, column, messages["weight"], entry, number, offsets)
    level = undirected_level(offsets, targets, weights, loops)
    if shared:
        level = collapse(level, np.arange(labels.size, dtype=np.uint32), labels.size, 1)
    if directed:
        received = of_kind(messages, Kind.DEGREE)
        at = number[received["a"]]
        degree, in_degree = (
            np.bincount(at, way, labels.size) for way in (received["weight"], floats_of(received["b"]))
        )
        level = replace(level, degree=degree, in_degree=in_degree)
    return labels, level


def merge_starts(
    messages: np.ndarray[Any, Any], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where the vertices of the merged graph start, numbered from 0, and which of them stay there."""
    received = of_kind(messages, Kind.BEGIN)
    start, held = np.empty(labels.size, np.int64), np.empty(labels.size, np.uint8)
    at = np.searchsorted(labels, received["a"])
    start[at], held[at] = dense_ranks(np.ascontiguousarray(received["b"]))[1], received["weight"] > 0.0
    return start, held


def finish(program: Options, batch: SubgraphBatch, step: BatchStep) -> None:
    """S6 and S7: merge, run the remaining levels, send every partition the communities of its labels."""
    messages = _in_order(step.messages)
    made = _search(program, batch, messages, step.threads) if program.refine else _remaining(program, messages)
    maps = made.maps
    if program.connected and len(maps) > 1 and not program.refine:
        maps = maps[1:]  # pieces of communities are no level of their own
    if len(maps) > MOST_LEVELS:
        maps = [*maps[: MOST_LEVELS - 1], compose(maps[MOST_LEVELS - 1 :])]
    _hand_out(batch, step, messages, made.labels, maps)
    figures = {
        "merged_vertices": made.labels.size, "merged_modularity": made.before, "modularity": made.modularity,
        "communities": int(maps[-1].max(initial=-1)) + 1, "levels": len(maps), "merge_seconds": made.merge_seconds,
        "finish_seconds": made.finish_seconds,
    }  # fmt: skip
    for name, value in figures.items():
        step.aggregate(name, value)


def _in_order(messages: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the partitions sent, in the order of the partitions, however it arrived."""
    heads = np.flatnonzero(messages["kind"] == Kind.HEAD)
    order = np.argsort(messages["a"][heads])
    if np.array_equal(order, np.arange(order.size)):
        return messages
    sent = np.split(messages, heads[1:])
    return np.concatenate([sent[i] for i in order.tolist()])


def _hand_out(
    batch: SubgraphBatch,
    step: BatchStep,
    messages: np.ndarray[Any, Any],
    labels: NDArray[np.int64],
    maps: list[NDArray[np.int64]],
) -> None:
    """Send every partition the finest community of each of its labels, and where those lie on the next levels.

    Keys are not sent: the partition's labels in ascending order, then the distinct communities that it has
    just been sent, likewise.
    """
    kind, row = messages["kind"], messages["a"]
    partitions = row[np.flatnonzero(kind == Kind.HEAD)]
    bounds = np.empty(partitions.size + 1, np.int64)
    # Every label has an entry with itself.
    own = label_kernels.own_entries(kind, row, messages["b"], np.int8(Kind.HEAD), np.int8(Kind.ROW), bounds)
    place = own if labels.size == labels.max(initial=-1) + 1 else np.searchsorted(labels, own)
    for i, partition in enumerate(partitions.tolist()):
        target = int(first_subgraphs(batch)[partition])
        below = place[bounds[i] : bounds[i + 1]]
        for depth, up in enumerate(maps, 1):
            received = up[below]
            first, second = pack_places(received)
            step.send_to_subgraph(target, kind=Kind.PLACE + depth, a=first, b=second, weight=0.0)
            below = dense_ranks(received)[0]


def _columns(messages: np.ndarray[Any, Any]) -> list[NDArray[Any]]:
    rows = np.flatnonzero(messages["kind"] == Kind.ROW)
    return [messages[name][rows] for name in ("a", "b", "weight")]


def _search(program: Options, batch: SubgraphBatch, messages: np.ndarray[Any, Any], threads: int) -> Outcome:
    begun = time.perf_counter()
    labels, level = merge_pairs(messages, shared=bool(batch["half"][0]), directed=program.by_direction(batch))
    merged = time.perf_counter()
    most = None if program.max_levels is None else max(1, program.max_levels - 1)
    search = replace(program.search(), max_levels=most, threads=threads)
    if program.start is None:
        found = search_ensemble(level, search)
    else:
        # Vertices may have to stay in a community that they are not connected to.
        search = replace(search, refine="leiden" if program.connected else "vertices")
        found = search_from(level, search, *merge_starts(messages, labels))
    maps = [np.arange(labels.size), *nested_maps(found.steps, found.membership)]
    if program.max_levels == 1:
        maps = [compose(maps)]
    before = level.modularity(program.resolution)
    finished = time.perf_counter()
    return Outcome(labels, maps, before, found.modularity, merged - begun, finished - merged)


def _remaining(program: Options, messages: np.ndarray[Any, Any]) -> Outcome:
    begun = time.perf_counter()
    rules = program.published()
    labels, graph = merge_rows(*_columns(messages))
    merged = time.perf_counter()
    received = of_kind(messages, Kind.OUTER)
    start = received["b"][np.unique(received["a"], return_index=True)[1]] if received.size else None
    heads = of_kind(messages, Kind.HEAD)
    done = heads.size == 1 and heads["weight"][0] <= rules.threshold
    before = graph.modularity(rules.resolution)
    maps, quality = [np.arange(labels.size)], before
    for level in remaining_levels(graph, rules, start, done=bool(done)):
        maps.append(level.label)
        quality = level.modularity
    finished = time.perf_counter()
    return Outcome(labels, maps, before, quality, merged - begun, finished - merged)


def remaining_levels(graph: Level, rules: Search, start: NDArray[np.int64] | None, *, done: bool) -> list[Collapse]:
    """Levels 2, 3, … on the merged graph.

    Parameters
    ----------
    start : int64, shape (N,), optional
        Communities that the first level begins with; default: single vertices.
    done : bool
        The first level of the only partition ended the sequential method.
    """
    if start is None:
        return [] if done else run_levels(graph, rules, 2)
    first = run_level(graph, rules, (rules.seed or 0, 0, 2), np.unique(start, return_inverse=True)[1])
    return [first, *run_levels(first.graph, rules, 3)]

"""The master's part of the partitioned Louvain: merge the pieces, run the remaining levels, hand out the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.louvain import _level_kernels as kernels
from goffish.algorithms.louvain import levels
from goffish.algorithms.louvain.merged import hierarchy_of, search_ensemble
from goffish.algorithms.louvain.partitioned import _piece_kernels as piece_kernels
from goffish.algorithms.louvain.partitioned.exchange import first_subgraphs
from goffish.algorithms.louvain.partitioned.messages import Kind, of_kind
from goffish.algorithms.louvain.sequential import (
    UNIT,
    HalfEdges,
    Level,
    Rules,
    collapse,
    modularity_of,
    run_level,
    run_levels,
)
from goffish.gopher import BatchStep, SubgraphBatch

if TYPE_CHECKING:
    from goffish.algorithms.louvain.partitioned.program import PartitionedLouvain

#: Levels that results report; of a deeper hierarchy the first ones and the last.
MOST_LEVELS = 12


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the master made of the rows.

    Attributes
    ----------
    labels : int64, shape (N,)
        Label of each vertex of the merged graph, ascending.
    divisions : list of int64 arrays, each of shape (N,)
        The merged graph's vertices themselves, then their communities on every level.
    before, modularity : float
        Of the first and of the last division.
    merge_seconds, finish_seconds : float
    """

    labels: NDArray[np.int64]
    divisions: list[NDArray[np.int64]]
    before: float
    modularity: float
    merge_seconds: float
    finish_seconds: float


def merge_rows(
    row: NDArray[np.int64], column: NDArray[np.int64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.int64], HalfEdges]:
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
    graph : HalfEdges
    """
    labels = np.unique(row)
    offsets, targets, weights, loops = kernels.pair_rows(
        np.searchsorted(labels, row), np.searchsorted(labels, column), weight, labels.size
    )
    apart = HalfEdges(offsets[:-1], offsets[1:], targets, weights, loops)
    return labels, collapse(apart, np.arange(labels.size))[1]


def merge_pairs(
    row: NDArray[np.int64], column: NDArray[np.int64], weight: NDArray[np.float64], *, shared: bool
) -> tuple[NDArray[np.int64], levels.Level]:
    """As `merge_rows`, from entries of which each pair has only that with the smaller label first.

    Parameters
    ----------
    shared : bool
        Several partitions may have entries for one pair.
    """
    used = np.zeros(int(max(row.max(initial=-1), column.max(initial=-1))) + 1, np.int64)
    used[row] = 1
    labels = np.flatnonzero(used)
    number = np.cumsum(used) - 1
    offsets = np.zeros(labels.size + 1, np.int64)
    targets, weights, loops = piece_kernels.mirror_rows(row, column, weight, number, offsets)
    degree = np.empty(labels.size)
    kernels.row_sums(offsets[:-1], offsets[1:], weights, loops, degree)
    level = levels.Level(offsets.view(np.uint64), targets, weights, loops, degree, UNIT, float(degree.sum()))
    if shared:
        level = levels.collapse(level, np.arange(labels.size, dtype=np.uint32), labels.size, 1)
    return labels, level


def finish(program: PartitionedLouvain, batch: SubgraphBatch, step: BatchStep) -> None:
    """S6 and S7: merge, run the remaining levels, send every partition the communities of its labels."""
    messages = _in_order(step.messages)
    made = _search(program, batch, messages, step.threads) if program.refined else _remaining(program, messages)
    chain = made.divisions
    final = chain[-1]
    if program.connected and len(chain) > 1 and not program.refined:
        chain = chain[1:]  # pieces of communities are no level of their own
    if len(chain) > MOST_LEVELS:
        chain = [*chain[: MOST_LEVELS - 1], final]
    _hand_out(batch, step, messages, made.labels, chain)
    figures = {
        "merged_vertices": made.labels.size, "merged_modularity": made.before, "modularity": made.modularity,
        "communities": int(final.max(initial=-1)) + 1, "levels": len(chain), "merge_seconds": made.merge_seconds,
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
    chain: list[NDArray[np.int64]],
) -> None:
    """Tell every partition the finest community of each of its labels, and where those lie on the next levels."""
    kind, row = messages["kind"], messages["a"]
    heads = np.flatnonzero(kind == Kind.HEAD)
    entries = np.flatnonzero((row == messages["b"]) & (kind == Kind.ROW))  # every label has one with itself
    bounds = np.append(np.searchsorted(entries, heads), entries.size)
    for i, partition in enumerate(row[heads].tolist()):
        target = int(first_subgraphs(batch)[partition])
        below = row[entries[bounds[i] : bounds[i + 1]]]
        place = np.searchsorted(labels, below)
        for depth, column in enumerate(chain, 1):
            step.send_to_subgraph(target, kind=Kind.PLACE + depth, a=below, b=column[place], weight=0.0)
            below, first = np.unique(column[place], return_index=True)
            place = place[first]


def _columns(messages: np.ndarray[Any, Any]) -> list[NDArray[Any]]:
    rows = np.flatnonzero(messages["kind"] == Kind.ROW)
    return [messages[name][rows] for name in ("a", "b", "weight")]


def _search(program: PartitionedLouvain, batch: SubgraphBatch, messages: np.ndarray[Any, Any], threads: int) -> Outcome:
    begun = time.perf_counter()
    labels, level = merge_pairs(*_columns(messages), shared=bool(batch["half"][0]))
    merged = time.perf_counter()
    most = None if program.max_levels is None else program.max_levels - 1
    found = search_ensemble(level, replace(program.search(), max_levels=most, threads=threads))
    divisions = [np.arange(labels.size), *hierarchy_of(found)]
    before = level.modularity(program.resolution)
    finished = time.perf_counter()
    return Outcome(labels, divisions, before, found.modularity, merged - begun, finished - merged)


def _remaining(program: PartitionedLouvain, messages: np.ndarray[Any, Any]) -> Outcome:
    begun = time.perf_counter()
    rules = program.rules()
    labels, graph = merge_rows(*_columns(messages))
    merged = time.perf_counter()
    told = of_kind(messages, Kind.OUTER)
    start = told["b"][np.unique(told["a"], return_index=True)[1]] if told.size else None
    heads = of_kind(messages, Kind.HEAD)
    done = heads.size == 1 and heads["weight"][0] <= rules.eps
    before = modularity_of(graph, rules.resolution)
    divisions, quality = [np.arange(labels.size)], before
    for level in remaining_levels(graph, rules, start, done=bool(done)):
        divisions.append(level.label[divisions[-1]])
        quality = level.modularity
    finished = time.perf_counter()
    return Outcome(labels, divisions, before, quality, merged - begun, finished - merged)


def remaining_levels(graph: HalfEdges, rules: Rules, start: NDArray[np.int64] | None, *, done: bool) -> list[Level]:
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
    first = run_level(graph, rules, (rules.seed, 0, 2), np.unique(start, return_inverse=True)[1])
    return [first, *run_levels(first.graph, rules, 3)]

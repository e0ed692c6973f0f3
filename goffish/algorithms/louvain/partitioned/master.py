"""The master's part of the partitioned Louvain: merge the pieces, run the remaining levels, hand out the answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.louvain import _level_kernels as kernels
from goffish.algorithms.louvain.partitioned.exchange import first_subgraphs
from goffish.algorithms.louvain.partitioned.messages import Kind, of_kind
from goffish.algorithms.louvain.sequential import (
    HalfEdges,
    Level,
    Rules,
    collapse,
    compose,
    modularity_of,
    run_level,
    run_levels,
)
from goffish.gopher import BatchStep, SubgraphBatch

if TYPE_CHECKING:
    from goffish.algorithms.louvain.partitioned.program import PartitionedLouvain

#: Levels that results report; of a deeper hierarchy the first ones and the last.
MOST_LEVELS = 12
#: A refinement that gains less modularity is the last one.
_CYCLE_GAIN = 1e-4
#: Tries of the remaining levels where communities are refined, and the arcs above which a merged graph gets only one.
_TRIES, _MOST_TRIED_ARCS = 4, 400_000
#: Most times that the outcome of a try is improved by moves of the merged graph's vertices, and the least gain of one.
_POLISHES, _POLISH_GAIN = 5, 1e-5


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


def finish(program: PartitionedLouvain, batch: SubgraphBatch, step: BatchStep) -> None:
    """S6 and S7: merge, run the remaining levels, send every partition the communities of its labels.

    While refinements gain, partitions get the final communities as labels for another cycle of rounds.
    """
    begun = time.perf_counter()
    messages, rules, cycle = step.messages, program.rules(), int(batch["cycle"][0])
    heads = np.flatnonzero(messages["kind"] == Kind.HEAD)
    rows = of_kind(messages, Kind.ROW)
    labels, graph = merge_rows(*(np.ascontiguousarray(rows[name]) for name in ("a", "b", "weight")))
    merged = time.perf_counter()
    told = of_kind(messages, Kind.OUTER)
    start = told["b"][np.unique(told["a"], return_index=True)[1]] if told.size else None
    lone = heads.size == 1 and not cycle
    done = lone and messages["weight"][heads[0]] <= rules.eps
    tries = _TRIES if program.refinements and graph.targets.size <= _MOST_TRIED_ARCS else 1
    levels = remaining_levels(graph, rules, cycle, start, done=done, tries=tries)
    at = modularity_of(graph, rules.resolution)
    quality = levels[-1].modularity if levels else at
    last = levels[-1].graph if levels else graph
    chain = [np.arange(labels.size)]
    for level in levels:
        chain.append(level.label[chain[-1]])
    final = chain[-1]
    if rules.connected and len(chain) > 1:
        del chain[0]  # pieces of communities are no level of their own
    if len(chain) > MOST_LEVELS:
        chain = [*chain[: MOST_LEVELS - 1], final]
    finished = time.perf_counter()

    gained = quality - batch["best"][0] > _CYCLE_GAIN
    more = cycle < program.refinements and gained and float(batch["two_m"][0]) > 0 and rules.max_levels != 1
    batch["best"] = quality
    bounds = np.append(heads, messages.size)
    parts = step.graph.num_partitions
    sizes = np.zeros(parts + 1, np.int64)
    sizes[messages["a"][heads] + 1] = messages["b"][heads]
    vertices = np.cumsum(sizes)
    starts = vertices * last.size // max(1, int(vertices[-1]))  # no partition owns more labels than it has vertices
    tot = last.degrees()
    for i, partition in enumerate(messages["a"][heads].tolist()):
        target = int(first_subgraphs(batch)[partition])
        mine = messages[bounds[i] : bounds[i + 1]]
        mine = mine[mine["kind"] == Kind.ROW]
        if not more:
            named = np.unique(mine["a"])
            place = np.searchsorted(labels, named)
            for depth, column in enumerate(chain, 1):
                step.send_to_subgraph(target, kind=Kind.PLACE + depth, a=named, b=column[place], weight=0.0)
            continue
        named = np.unique(np.concatenate((mine["a"], mine["b"])))
        place = np.searchsorted(labels, named)
        own = np.arange(starts[partition], starts[partition + 1])
        step.send_to_subgraph(target, kind=Kind.START, a=np.arange(parts + 1), b=starts, weight=0.0)
        step.send_to_subgraph(target, kind=Kind.PLACE, a=named, b=final[place], weight=0.0)
        step.send_to_subgraph(target, kind=Kind.DELTA, a=own, b=0, weight=tot[own])
    figures = {
        "merged_vertices": labels.size, "merged_modularity": at, "modularity": quality, "communities": last.size,
        "levels": len(chain), "refinements": cycle, "merge_seconds": merged - begun,
        "finish_seconds": finished - merged,
    }  # fmt: skip
    for name, value in figures.items():
        step.aggregate(name, value)


def remaining_levels(
    graph: HalfEdges, rules: Rules, cycle: int, start: NDArray[np.int64] | None, *, done: bool, tries: int = 1
) -> list[Level]:
    """Levels 2, 3, … on the merged graph; of several tries the first with the largest modularity.

    Parameters
    ----------
    start : int64, shape (N,), optional
        Communities that the first try begins with; further ones begin with single vertices.
    done : bool
        The first level of the only partition ended the sequential method.
    """
    key = (0, cycle) if cycle else (0,)
    best: list[Level] = []
    if start is not None:
        best = _levels_from(graph, rules, np.unique(start, return_inverse=True)[1], key)
    elif not done:
        best = run_levels(graph, rules, 2, key)
    for number in range(tries if tries > 1 else 0):
        other = best if not number else run_levels(graph, rules, 2, (*key, number))
        other = _polish(graph, rules, other, (*key, number))
        if other and (not best or other[-1].modularity > best[-1].modularity + 1e-12):
            best = other
    return best


def _levels_from(graph: HalfEdges, rules: Rules, start: NDArray[np.int64], key: tuple[int, ...]) -> list[Level]:
    first = run_level(graph, rules, (rules.seed, *key, 2), start)
    return [first, *run_levels(first.graph, rules, 3, key)]


def _polish(graph: HalfEdges, rules: Rules, levels: list[Level], key: tuple[int, ...]) -> list[Level]:
    """Move the merged graph's vertices between the final communities, and go on from there, while that gains."""
    for number in range(_POLISHES if levels else 0):
        label = compose(tuple(level.label for level in levels))
        better = _levels_from(graph, rules, label, (*key, number))
        if better[-1].modularity <= levels[-1].modularity + _POLISH_GAIN:
            break
        levels = better
    return levels

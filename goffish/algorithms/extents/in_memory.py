"""Eccentricities, diameters and neighborhood functions of a whole graph in one process."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.components.in_memory import strong_component_of
from goffish.algorithms.extents import sketch_kernels, sweep_kernels
from goffish.algorithms.extents.sweep_kernels import Bounds, Groups, Scratch
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.kernels.csr import Csr
from goffish.threads import interruptible

#: Registers that a task looks at, some milliseconds, and tasks of a step at most.
_WORK, _TASKS = 1 << 22, 256
#: Share of the pairs within the effective diameter.
_SHARE = 0.9


def eccentricities(graph: Graph) -> tuple[NDArray[np.int64], int]:
    """Hops from each vertex to the farthest one that it reaches, and the number of searches."""
    values, (searches, *_) = interruptible(graph.num_arcs, _bounded, graph, False)
    return values, searches


def farthest_pair(graph: Graph) -> tuple[int, int, int, int]:
    """Number of searches, the largest distance, and two vertices that are so far apart; -1 of an empty graph."""
    _, found = interruptible(graph.num_arcs, _bounded, graph, True)
    return found


def _bounded(graph: Graph, only_most: bool) -> tuple[NDArray[np.int64], tuple[int, int, int, int]]:
    n = graph.num_vertices
    # Arcs lead to larger numbers, so that what is reached comes first.
    number = strong_component_of(graph)
    members = np.argsort(-number, kind="stable")
    starts = np.r_[0, np.flatnonzero(np.diff(number[members])) + 1, n] if n else np.zeros(1, np.int64)
    groups, bounds = Groups(number, starts, members), Bounds(np.zeros(n, np.int64), np.zeros(n, np.int64))
    back = graph.reverse
    rows = Csr(graph.offsets, graph.targets), Csr(back.offsets, back.targets), not graph.directed
    unreached = np.full(n, np.iinfo(np.int64).max)
    scratch = Scratch(np.full(n, -1), unreached, np.empty(n + 1, graph.targets.dtype), np.zeros(n, np.int64))
    sweep_kernels.first_bounds(*rows, groups, bounds, scratch)
    most = np.maximum.reduceat(bounds.most[members], starts[:-1]) if n else bounds.most
    order = np.argsort(-most, kind="stable")
    searches, *rest = map(int, sweep_kernels.close_bounds(*rows, groups, order, bounds, only_most, scratch))
    return bounds.most, (searches + (starts.size - 1), rest[0], rest[1], rest[2])


def eccentricity(graph: Graph) -> Result:
    """Compute the eccentricity of every vertex; see `goffish.eccentricity`."""
    values, searches = eccentricities(graph)
    summary = {"diameter": int(values.max(initial=0)), "radius": int(values.min()) if values.size else 0}
    table = pa.table({"vertex": graph.label_column(), "eccentricity": values})
    return Result("eccentricity", table, summary | {"searches": searches})


def diameter(graph: Graph) -> Result:
    """Compute the largest distance; see `goffish.diameter`."""
    searches, distance, source, target = farthest_pair(graph)
    pair = np.array([[source], [target]])[:, : graph.num_vertices]
    table = pa.table(
        {
            "source": graph.labels_of(pair[0]), "target": graph.labels_of(pair[1]),
            "distance": np.array([distance])[: graph.num_vertices],
        }
    )  # fmt: skip
    return Result("diameter", table, {"diameter": max(distance, 0), "searches": searches})


def neighborhood_function(graph: Graph, *, registers: int, seed: int, threads: int | None = None) -> Result:
    """Estimate the number of pairs within each number of hops; see `goffish.neighborhood_function`."""
    n, bits, weight = graph.num_vertices, registers.bit_length() - 1, sketch_kernels.weight_of(registers)
    workers = thread_count(threads)
    sketches = sketch_kernels.Sketches.make(n, registers)
    sketch_kernels.begin(np.uint64(seed & (2**64 - 1)), bits, weight, sketches)
    bounds = balanced_rows(graph.offsets, min(1 + (graph.num_arcs + n) * registers // _WORK, _TASKS)).tolist()
    totals = [float(sketches.size.sum())]
    while n:
        sketches = sketches.turned()

        def step(first: int, last: int, now: sketch_kernels.Sketches = sketches) -> int:
            return int(sketch_kernels.step(graph.offsets, graph.targets, first, last, bits, weight, now))

        tasks = [(first, last) for first, last in pairwise(bounds) if last > first]
        if not sum(run_tasks(step, tasks, workers)):
            break
        totals.append(float(sketches.size.sum()))
    # Estimates of growing sets may shrink where small ones are corrected.
    pairs = np.maximum.accumulate(np.array(totals))
    table = pa.table({"hops": np.arange(pairs.size), "pairs": pairs})
    return Result("neighborhood", table, _spread(pairs))


def _spread(pairs: NDArray[np.float64]) -> dict[str, float]:
    """Effective diameter, by interpolation, and mean distance of different vertices."""
    at = int(np.searchsorted(pairs, _SHARE * pairs[-1]))
    effective = 0.0
    if at:
        effective = at - 1 + float((_SHARE * pairs[-1] - pairs[at - 1]) / (pairs[at] - pairs[at - 1]))
    gained, apart = np.diff(pairs), float(pairs[-1] - pairs[0])
    mean = float((gained * np.arange(1, pairs.size)).sum()) / apart if apart else 0.0
    return {"effective_diameter": effective, "mean_distance": mean}

"""Numbers of the subgraphs of three and four vertices of a whole graph in one process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.clustering import kernels, motif_kernels
from goffish.algorithms.clustering.in_memory import STEPS, by_degree
from goffish.gopher.result import Result
from goffish.graph import Graph
from goffish.graph.assembly import transpose
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count

_Numbers = NDArray[np.integer[Any]]

#: Vertices and edges of each motif.
MOTIFS = {
    "wedge": (3, 2), "triangle": (3, 3), "claw": (4, 3), "path": (4, 3), "paw": (4, 4), "cycle": (4, 4),
    "diamond": (4, 5), "clique": (4, 6),
}  # fmt: skip


class Rows(NamedTuple):
    """Arcs from the end of lower (degree, number) of each edge to the higher one, by place in this order.

    Attributes
    ----------
    degree : integers, shape (n,)
        By place, as all that follows but one.
    place : integers, shape (n,)
        Place of each vertex.
    offsets, targets, back_offsets, sources
        The arcs, and the same backwards; both in ascending rows.
    """

    degree: _Numbers
    place: _Numbers
    offsets: NDArray[np.int64]
    targets: _Numbers
    back_offsets: NDArray[np.int64]
    sources: _Numbers

    @classmethod
    def of(cls, graph: Graph) -> Rows:
        graph = graph.to_undirected()
        degree, order, place, _ = by_degree(graph)
        offsets = np.zeros(degree.size + 1, np.int64)
        targets = np.empty(int(degree.sum(dtype=np.int64)) // 2, graph.targets.dtype)
        kernels.orient(graph.offsets, graph.targets, degree, place, offsets, targets)
        # Rows are in the order of the vertices: transposed twice, they ascend.
        back_offsets, sources, _ = transpose(offsets, targets, None)
        offsets, targets, _ = transpose(back_offsets, sources, None)
        return cls(degree[order], place, offsets, targets, back_offsets, sources)


def _cliques(rows: Rows, workers: int) -> tuple[int, _Numbers]:
    """Number of cliques of four vertices, and of the triangles of each edge."""
    n, m, kind = rows.degree.size, rows.targets.size, rows.targets.dtype
    work = np.zeros_like(rows.offsets)
    kernels.intersection_work(rows.offsets, rows.targets, work)
    bounds = balanced_rows(work, max(workers, int(work[-1]) // STEPS))
    partial = np.zeros((workers, m), kind)
    numbers: Any = np.int32 if m < 1 << 31 else np.int64
    longest = int(np.diff(rows.offsets).max(initial=0))
    free = [
        ((np.full(n, -1, numbers), np.full(n, -1, numbers), np.empty(longest, kind)), partial[i])
        for i in range(workers)
    ]

    def count(first: int, last: int) -> int:
        scratch, support = free.pop()
        found = motif_kernels.count_cliques(rows.offsets, rows.targets, first, last, scratch, support)
        free.append((scratch, support))
        return int(found)

    cliques = sum(run_tasks(count, list(pairwise(bounds.tolist())), workers))
    support: _Numbers = partial[0]
    for other in partial[1:]:
        support += other
    return cliques, support


def _cycles(rows: Rows, workers: int) -> int:
    """Number of cycles of four vertices, with chords or without."""
    work = np.append(0, np.cumsum(rows.degree[rows.sources], dtype=np.int64))[rows.back_offsets]
    bounds = balanced_rows(work, max(workers, int(work[-1]) // STEPS))
    free = [np.zeros(rows.degree.size, rows.targets.dtype) for _ in range(workers)]

    def count(first: int, last: int) -> int:
        paths = free.pop()
        found = motif_kernels.count_cycles(*rows[2:], first, last, paths)
        free.append(paths)
        return int(found)

    return sum(run_tasks(count, list(pairwise(bounds.tolist())), workers))


def motifs_of(graph: Graph, *, threads: int | None = None) -> dict[str, int]:
    """Number of induced subgraphs of each kind in `MOTIFS`."""
    workers = thread_count(threads)
    rows = Rows.of(graph)
    clique, support = _cliques(rows, workers)
    every_cycle = _cycles(rows, workers)
    # Sums over edges are below the square of their number; those over vertices may exceed 64 bits.
    low, high = np.repeat(rows.degree, np.diff(rows.offsets)).astype(np.int64), rows.degree[rows.targets]
    wide = support.astype(np.int64)
    triangle = int(wide.sum()) // 3
    sizes, times = (values.astype(object) for values in np.unique(rows.degree, return_counts=True))
    every_wedge = int((times * sizes * (sizes - 1) // 2).sum())
    every_claw = int((times * sizes * (sizes - 1) * (sizes - 2) // 6).sum())
    every_path = int(((low - 1) * (high - 1)).sum()) - 3 * triangle
    # A triangle and an edge at one of its corners: each edge of a triangle is at two corners.
    every_paw = int((wide * (low + high - 4)).sum()) // 2
    every_diamond = int((wide * (wide - 1) // 2).sum())
    # Subgraphs that lack edges between their vertices are those without, and those in each motif with more edges.
    diamond = every_diamond - 6 * clique
    cycle = every_cycle - diamond - 3 * clique
    paw = every_paw - 4 * diamond - 12 * clique
    path = every_path - 2 * paw - 4 * cycle - 6 * diamond - 12 * clique
    claw = every_claw - paw - 2 * diamond - 4 * clique
    counts = every_wedge - 3 * triangle, triangle, claw, path, paw, cycle, diamond, clique
    return dict(zip(MOTIFS, counts, strict=True))


def motif_counts(graph: Graph, *, threads: int | None = None) -> Result:
    """The result of `goffish.motif_counts`."""
    found = motifs_of(graph, threads=threads)
    vertices, edges = zip(*MOTIFS.values(), strict=True)
    counts = [count if count < 1 << 63 else None for count in found.values()]
    columns = {"motif": list(found), "count": pa.array(counts, pa.int64()), "vertices": vertices, "edges": edges}
    return Result("motif_counts", pa.table(columns), found)

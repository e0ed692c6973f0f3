"""Temporal triangles: three time-stamped edges between three vertices, within a window."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.parallel import balanced_rows, run_tasks, thread_count
from goffish.temporal import motif_kernels as kernels
from goffish.temporal.event_paths import event_columns

#: Events that are not worth a thread.
_FEW = 10_000

#: The eight kinds, by their edges in the order of time; the first one always goes from a to b.
KINDS = tuple(f"ab {second} {third}" for second in ("bc", "cb", "ac", "ca")
              for third in (("ac", "ca") if "b" in second else ("bc", "cb")))  # fmt: skip


def temporal_triangles(source: Any, target: Any, time: Any, within: int) -> pa.Table:
    """How many triples of edges make a triangle in at most some time, by the order and the directions of its edges.

    The motifs of Paranjape, Benson & Leskovec ("Motifs in temporal networks", WSDM 2017) with three vertices and three
    edges of different pairs. Cost: for every triangle of the static graph, the events between its vertices.

    Parameters
    ----------
    source, target : arrays of labels
        Of the time-stamped edges; edges from a vertex to itself are left out.
    time : integer array
    within : int
        The last edge comes at most so long after the first, at least 0. Of edges at the same time, the one that is
        first in the arrays counts as the earlier one.

    Returns
    -------
    pyarrow.Table
        ``motif`` (such as ``"ab bc ca"``, the cycle) and ``count``, for all eight.

    Raises
    ------
    InputError
        Columns of different lengths, times that are not whole numbers, a negative window.
    """
    if within < 0:
        raise InputError(f"within={within}: at least 0")
    labels, src, dst, when = event_columns(source, target, time)
    found = _count(len(labels), src, dst, when, int(within), thread_count(None))
    counts = dict.fromkeys(KINDS, 0)
    for sequence, kind in _names().items():
        counts[kind] += int(found[sequence])
    return pa.table({"motif": list(counts), "count": list(counts.values())})


def _count(
    vertices: int, src: NDArray[np.integer[Any]], dst: NDArray[np.integer[Any]], when: NDArray[np.int64], within: int,
    threads: int,
) -> NDArray[np.int64]:  # fmt: skip
    """Bring the events in order of pairs, each pair at its vertex of fewer pairs, and count in threads."""
    sorted_already = bool((when[1:] >= when[:-1]).all())
    before = np.empty(0, np.int64) if sorted_already else np.argsort(when, kind="stable")
    begins, later, times, tags = kernels.sort_by_pairs(src, dst, when, before, vertices)
    low, high, first, degree = kernels.distinct_pairs(begins, later)
    beside = kernels.neighbours(low, high, first, degree, times)

    def count(low: int, high: int) -> NDArray[np.int64]:
        found = np.zeros((6, 6, 6), np.int64)
        kernels.count_triangles(low, high, *beside, first, times, tags, within, found)
        return found

    # Many more pieces than threads: the work of a vertex is not known before.
    tasks = list(pairwise(balanced_rows(beside[0], 1 if times.size < _FEW else 16 * threads).tolist()))
    found: NDArray[np.int64] = np.sum(run_tasks(count, tasks, threads), axis=0)
    return found


def _names() -> dict[tuple[int, ...], str]:
    """The kind of each sequence of labels, see `count_triangles`."""
    ends = {0: (0, 1), 1: (1, 0), 2: (0, 2), 3: (2, 0), 4: (1, 2), 5: (2, 1)}
    found = {}
    for sides in permutations(range(3)):
        for turns in product((0, 1), repeat=3):
            sequence = tuple(2 * side + turn for side, turn in zip(sides, turns, strict=True))
            a, b = ends[sequence[0]]
            letters = {a: "a", b: "b", 3 - a - b: "c"}
            found[sequence] = " ".join(letters[u] + letters[v] for u, v in (ends[label] for label in sequence))
    return found

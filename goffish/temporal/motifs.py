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
    """Count temporal triangles: three time-stamped edges between three vertices within a time window.

    Parameters
    ----------
    source, target : array-like of int or str, shape (m,)
        Labels of the ends of each edge; self-loops are ignored.
    time : array-like of int, shape (m,)
        Time of each edge.
    within : int
        Maximum time between the first and the last edge, at least 0. Edges with equal times count in array order.

    Returns
    -------
    pyarrow.Table
        Columns ``motif`` (order and directions of the edges, such as "ab bc ca" for the cycle) and ``count``, for all
        eight motifs.

    Raises
    ------
    InputError
        If columns differ in length, times are not integers, or `within` is negative.

    Notes
    -----
    Visits every triangle of the static graph and the events between its vertices.

    References
    ----------
    A. Paranjape, A. Benson, J. Leskovec, "Motifs in temporal networks", WSDM 2017.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.temporal_triangles([1, 2, 3], [2, 3, 1], [0, 1, 2], within=5).to_pylist()[1]
    {'motif': 'ab bc ca', 'count': 1}
    """
    if within < 0:
        raise InputError(f"within={within}: must be at least 0")
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

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
from goffish.temporal.event_paths import Integers, event_columns

#: Events that are not worth a thread.
_FEW = 10_000
_ALL = np.empty(0, np.bool_)
_ALL.setflags(write=False)

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
    return counts_table(count_events(len(labels), src, dst, when, int(within), threads=thread_count(None)))


def counts_table(found: NDArray[np.int64]) -> pa.Table:
    """The motifs, and how many of each `count_events` found."""
    return pa.table({"motif": KINDS, "count": found})


def count_events(
    vertices: int,
    src: Integers,
    dst: Integers,
    when: NDArray[np.int64],
    within: int,
    *,
    threads: int,
    since: int | None = None,
    degree: NDArray[np.int64] | None = None,
    middles: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Count the triangles of each of `KINDS` among events between numbered vertices.

    Parameters
    ----------
    since : int, optional
        Count only those whose last event is not before this time.
    degree : int64 array, optional
        What vertices are ranked by, the first one of equal ones [default: by their pairs].
    middles : bool array, optional
        Count only triangles whose vertex of second lowest rank is one of these.
    """
    sorted_already = bool((when[1:] >= when[:-1]).all())
    before = np.empty(0, np.int64) if sorted_already else np.argsort(when, kind="stable")
    begins, later, times, tags = kernels.sort_by_pairs(src, dst, when, before, vertices)
    low, high, first, pairs = kernels.distinct_pairs(begins, later)
    beside = kernels.Neighbours(*kernels.neighbours(low, high, first, pairs if degree is None else degree, times))
    limits = within, np.iinfo(np.int64).min if since is None else since
    counted = _ALL if middles is None else middles

    def count(low: int, high: int) -> NDArray[np.int64]:
        found = np.zeros((6, 6, 6), np.int64)
        kernels.count_triangles(low, high, beside, first, times, tags, limits, counted, found)
        return found

    # Many more pieces than threads: the work of a vertex is not known before.
    tasks = list(pairwise(balanced_rows(beside.offsets, 1 if times.size < _FEW else 16 * threads).tolist()))
    sequences = np.sum(run_tasks(count, tasks, threads), axis=0)
    found = dict.fromkeys(KINDS, 0)
    for sequence, kind in _names().items():
        found[kind] += int(sequences[sequence])
    return np.array(list(found.values()), np.int64)


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

"""The columnar graph: compressed sparse rows, optional weights, labels and attributes as Arrow columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.graph import kernels
from goffish.graph.columns import attribute_table, check_weights
from goffish.graph.labels import as_id_column, find_labels, number_labels, vertex_dtype
from goffish.notebook import facts_html

SelfLoops = Literal["drop", "keep"]
Parallel = Literal["min", "sum", "first", "keep"]

_MERGE = {"sum": kernels.MERGE_SUM, "min": kernels.MERGE_MIN, "first": kernels.MERGE_FIRST}
_NO_ROWS = np.empty(0, np.int64)
_NO_WEIGHTS = np.empty(0, np.float64)


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed or undirected graph as flat arrays (compressed sparse rows, sorted).

    Build one with `from_edges` or a reader rather than by hand. An undirected edge between different vertices is stored
    as two arcs, one in the row of each end; a self-loop is stored as one arc.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
        Row pointers.
    targets : int32 or int64, shape (arcs,)
        Neighbours, ascending in each row. ``int32`` whenever n < 2^31.
    directed : bool
    num_edges : int
        Edges as a user counts them: an undirected edge once.
    weights : float64, shape (arcs,), or None
        Non-negative and finite.
    labels : pyarrow.Array (int64 or string), length n, or None
        The user's vertex labels; ``None`` means the labels are ``0 … n-1``.
    vertex_attributes, edge_attributes : pyarrow.Table or None
        One row per vertex (in vertex order), one row per edge (in edge order, see `edge_of_arc`).
    edge_of_arc : int64, shape (arcs,), or None
        Row of `edge_attributes` for each arc; present only with edge attributes.
    """

    offsets: NDArray[np.int64]
    targets: NDArray[np.integer[Any]]
    directed: bool
    num_edges: int
    weights: NDArray[np.float64] | None = None
    labels: pa.Array | None = None
    vertex_attributes: pa.Table | None = None
    edge_attributes: pa.Table | None = None
    edge_of_arc: NDArray[np.int64] | None = field(default=None, repr=False)

    @property
    def num_vertices(self) -> int:
        return self.offsets.size - 1

    @property
    def num_arcs(self) -> int:
        return self.targets.size

    @property
    def nbytes(self) -> int:
        """Bytes of row pointers, targets and weights (labels and attributes are Arrow columns of their own)."""
        return self.offsets.nbytes + self.targets.nbytes + (0 if self.weights is None else self.weights.nbytes)

    @cached_property
    def out_degrees(self) -> NDArray[np.int64]:
        """Number of arcs in each row, shape (n,); a self-loop counts once."""
        return np.diff(self.offsets)

    def neighbors(self, vertex: int) -> NDArray[np.integer[Any]]:
        """Out-neighbours of a vertex number, ascending (a view)."""
        return self.targets[self.offsets[vertex] : self.offsets[vertex + 1]]

    def label_column(self) -> pa.Array:
        """Labels of all vertices in vertex order, also where they are implicit."""
        return self.labels if self.labels is not None else pa.array(np.arange(self.num_vertices))

    def find(self, labels: ArrayLike) -> NDArray[np.int64]:
        """Vertex numbers of `labels`; an unknown label raises `InputError`."""
        return find_labels(self.labels, self.num_vertices, labels)

    def arc_sources(self) -> NDArray[np.integer[Any]]:
        """Source vertex of every arc, shape (arcs,)."""
        out = np.empty(self.num_arcs, self.targets.dtype)
        kernels.arc_sources(self.offsets, out)
        return out

    @cached_property
    def reverse(self) -> Graph:
        """The graph with every arc turned round; an undirected graph is its own reverse."""
        if not self.directed:
            return self
        offsets, targets, rows = _transpose(self.offsets, self.targets, np.arange(self.num_arcs))
        return Graph(
            offsets,
            targets,
            True,
            self.num_edges,
            None if self.weights is None else self.weights[rows],
            self.labels,
            self.vertex_attributes,
            self.edge_attributes,
            None if self.edge_of_arc is None else self.edge_of_arc[rows],
        )

    def to_undirected(self, *, parallel: Parallel = "min") -> Graph:
        """Forget directions; ``u -> v`` and ``v -> u`` are merged as parallel edges are (see `from_edges`)."""
        if not self.directed:
            return self
        src, dst, weight, attributes = self.edge_columns()
        return _assemble(
            src, dst, weight, self.num_vertices, False, "keep", parallel, self.labels,
            self.vertex_attributes, attributes,
        )  # fmt: skip

    def unweighted(self) -> Graph:
        """The same graph without weights."""
        return self if self.weights is None else replace(self, weights=None)

    def edge_columns(
        self,
    ) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], NDArray[np.float64] | None, pa.Table | None]:
        """Every edge once, as (source, target, weight, attributes); undirected ones with source ≤ target.

        Sources and targets are vertex numbers. Rows follow the CSR order.
        """
        src = self.arc_sources()
        if self.directed:
            keep: Any = slice(None)
        else:
            keep = src <= self.targets
        weight = None if self.weights is None else self.weights[keep]
        attributes = self.edge_attributes
        if attributes is not None and self.edge_of_arc is not None:
            attributes = attributes.take(pa.array(self.edge_of_arc[keep]))
        return src[keep], self.targets[keep], weight, attributes

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        weighted = "" if self.weights is None else ", weighted"
        return f"Graph({self.num_vertices:,} vertices, {self.num_edges:,} edges, {kind}{weighted})"

    def _repr_html_(self) -> str:
        columns = {"vertex attributes": self.vertex_attributes, "edge attributes": self.edge_attributes}
        facts = {
            "vertices": self.num_vertices, "edges": self.num_edges, "directed": self.directed,
            "weighted": self.weights is not None, "bytes": self.nbytes,
        }  # fmt: skip
        named = {name: ", ".join(found.column_names) for name, found in columns.items() if found is not None}
        return facts_html("Graph", facts | named)


def from_edges(
    src: Any,
    dst: Any,
    weight: Any = None,
    *,
    directed: bool = False,
    labels: Any = None,
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
    isolated: Any = None,
    vertex_attributes: Any = None,
    edge_attributes: Any = None,
) -> Graph:
    """Build a graph from edge columns.

    Parameters
    ----------
    src, dst : array-like, shape (rows,)
        Ends of each edge: integers (any width, signed or unsigned, up to int64) or strings. Without `labels` they are
        the vertex labels themselves; with `labels` they are positions in it.
    weight : array-like, shape (rows,), optional
        Finite and not negative; whole numbers that float64 holds exactly (all up to 2^53).
    directed : bool
        An undirected graph gets the reverse of every edge; rows ``u v`` and ``v u`` are then the same edge.
    labels : array-like of int or str, shape (n,), optional
        Labels of all vertices, distinct; vertices that no edge names are isolated.
    self_loops : {"drop", "keep"}
    parallel : {"min", "sum", "first", "keep"}
        What becomes of several rows for one edge: the smallest weight, the sum, the first row, or all of them.
        Attributes come from the row that was kept (``sum``: from the first).
    isolated : array-like, optional
        Further vertex labels, for vertices without edges (only without `labels`).
    vertex_attributes : table (Arrow, pandas, polars) or mapping of columns, optional
        One value per vertex, in the order of the vertices (ascending labels; with `labels`, in their order).
    edge_attributes : table or mapping of columns, optional
        One value per row.

    Returns
    -------
    Graph
        Vertices numbered by ascending label (with `labels`: in their order).

    Raises
    ------
    InputError
        Columns of different length, a label that is missing or beyond int64, a weight that is NaN, infinite or
        negative (also a sum of weights); the message names the row or the edge.
    """
    _check_choice("self_loops", self_loops, ("drop", "keep"))
    _check_choice("parallel", parallel, ("min", "sum", "first", "keep"))
    src_ids, dst_ids = as_id_column(src, "source"), as_id_column(dst, "target")
    if len(src_ids) != len(dst_ids):
        raise InputError(f"source has {len(src_ids)} rows, target has {len(dst_ids)}")
    if labels is not None:
        if isolated is not None:
            raise InputError("give either labels or isolated: labels already lists every vertex")
        label_column, n = _label_column(labels)
        src_ids, dst_ids = _positions(src_ids, n, "source"), _positions(dst_ids, n, "target")
    else:
        extra = [] if isolated is None else [as_id_column(isolated, "isolated")]
        (src_ids, dst_ids, *_), label_column, n = number_labels(src_ids, dst_ids, *extra)
    weights = None if weight is None else check_weights(weight, len(src_ids))
    return _assemble(
        src_ids, dst_ids, weights, n, directed, self_loops, parallel, label_column,
        attribute_table(vertex_attributes, n, "vertex"),
        attribute_table(edge_attributes, len(src_ids), "edge"),
    )  # fmt: skip


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name}={value!r}: choose one of {', '.join(choices)}")


def _label_column(labels: Any) -> tuple[pa.Array | None, int]:
    column = as_id_column(labels, "labels")
    array = column if isinstance(column, pa.Array) else pa.array(column.astype(np.int64, copy=False))
    n = len(array)
    if len(array.unique()) != n:
        counts = array.value_counts()
        twice = next(c["values"].as_py() for c in counts if c["counts"].as_py() > 1)
        raise InputError(f"labels: {twice!r} occurs more than once")
    if pa.types.is_integer(array.type) and np.array_equal(array.to_numpy(), np.arange(n)):
        return None, n
    return array, n


def _positions(ids: Any, n: int, name: str) -> NDArray[np.integer[Any]]:
    if isinstance(ids, pa.Array):
        raise InputError(f"{name}: with labels given, edge ends are positions in it, not strings")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        row = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
        raise InputError(f"{name}: row {row} holds {ids[row]}; positions run from 0 to {n - 1}")
    return np.ascontiguousarray(ids, dtype=vertex_dtype(n))


def _transpose(
    offsets: NDArray[np.int64], targets: NDArray[np.integer[Any]], rows: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]], NDArray[np.int64]]:
    out_offsets = np.zeros_like(offsets)
    kernels.count_targets(targets, out_offsets)
    out_targets = np.empty_like(targets)
    want = rows is not None
    out_rows = np.empty(targets.size if want else 0, np.int64)
    given = rows if rows is not None else _NO_ROWS
    kernels.transpose_arcs(offsets, targets, given, want, out_offsets[:-1].copy(), out_targets, out_rows)
    return out_offsets, out_targets, out_rows


def _assemble(
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    weights: NDArray[np.float64] | None,
    n: int,
    directed: bool,
    self_loops: SelfLoops,
    parallel: Parallel,
    labels: pa.Array | None,
    vertex_attributes: pa.Table | None,
    edge_attributes: pa.Table | None,
) -> Graph:
    """Two stable scatters sort every row: by one end, then by the other."""
    mirror, drop = not directed, self_loops == "drop"
    want_rows = weights is not None or edge_attributes is not None
    offsets = np.zeros(n + 1, np.int64)
    # A directed graph is scattered by target first, so that the transposition leaves rows by source.
    first, second = (src, dst) if mirror else (dst, src)
    loops = kernels.count_arcs(first, second, mirror, drop, offsets)
    targets: NDArray[np.integer[Any]] = np.empty(int(offsets[-1]), vertex_dtype(n))
    rows = np.empty(targets.size if want_rows else 0, np.int64)
    kernels.scatter_arcs(first, second, mirror, drop, offsets[:-1].copy(), targets, rows, want_rows)
    offsets, targets, rows = _transpose(offsets, targets, rows if want_rows else None)
    arc_weights = None if weights is None else weights[rows]
    if parallel != "keep" and kernels.has_parallel(offsets, targets):
        merged = np.zeros_like(offsets)
        arcs = kernels.merge_parallel(
            offsets, targets, rows, want_rows,
            _NO_WEIGHTS if arc_weights is None else arc_weights, arc_weights is not None,
            _MERGE[parallel], merged,
        )  # fmt: skip
        offsets, targets, rows = merged, targets[:arcs].copy(), rows[:arcs].copy() if want_rows else rows
        arc_weights = None if arc_weights is None else arc_weights[:arcs].copy()
        if parallel == "sum" and arc_weights is not None:
            _check_sums(offsets, targets, arc_weights, labels)
        if not drop:
            loops = int(np.count_nonzero(_loop_mask(offsets, targets)))
    loops = 0 if drop else int(loops)
    edge_of_arc = None
    if edge_attributes is not None:
        if directed:
            edge_of_arc, edge_attributes = np.arange(targets.size), edge_attributes.take(pa.array(rows))
        else:
            edge_of_arc = np.empty(targets.size, np.int64)
            kept = kernels.number_edges(offsets, targets, rows, edge_of_arc)
            edge_attributes = edge_attributes.take(pa.array(rows[kept]))
    edges = targets.size if directed else (targets.size - loops) // 2 + loops
    return Graph(
        offsets, targets, directed, edges, arc_weights, labels, vertex_attributes, edge_attributes, edge_of_arc
    )


def _check_sums(
    offsets: NDArray[np.int64], targets: NDArray[np.integer[Any]], weights: NDArray[np.float64], labels: pa.Array | None
) -> None:
    over = np.flatnonzero(np.isinf(weights))
    if over.size:
        ends = int(np.searchsorted(offsets, over[0], side="right")) - 1, int(targets[over[0]])
        u, v = ends if labels is None else (labels[end].as_py() for end in ends)
        raise InputError(f"weight: the weights of the edge {u!r} - {v!r} add up to infinity; scale all weights down")


def _loop_mask(offsets: NDArray[np.int64], targets: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    sources = np.empty_like(targets)
    kernels.arc_sources(offsets, sources)
    loops: NDArray[np.bool_] = sources == targets
    return loops

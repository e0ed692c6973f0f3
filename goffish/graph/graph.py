"""The columnar graph: compressed sparse rows, optional weights, labels and attributes as Arrow columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.graph import kernels
from goffish.graph.assembly import Parallel, SelfLoops, assemble, transpose
from goffish.graph.columns import attribute_table, check_weights
from goffish.graph.labels import as_id_column, find_labels, number_labels, vertex_dtype
from goffish.notebook import facts_html


@dataclass(frozen=True, eq=False)
class Graph:
    """Directed or undirected graph in memory, in compressed sparse rows (CSR).

    Build a graph with `read`, `from_edges` or a conversion such as `from_pandas`, not with this constructor. An
    undirected edge between different vertices is stored as two arcs, one in the row of each end; a self-loop is stored
    as one arc.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
        Row pointers.
    targets : int32 or int64, shape (arcs,)
        Neighbors, ascending within each row; int32 if n < 2^31.
    directed : bool
        Whether edges have a direction.
    num_edges : int
        Number of edges; an undirected edge counts once.
    weights : float64, shape (arcs,), or None
        Finite, non-negative weight of each arc.
    labels : pyarrow.Array of int64 or string, length n, or None
        Vertex labels; ``None`` stands for the labels 0 to n - 1.
    vertex_attributes, edge_attributes : pyarrow.Table or None
        One row per vertex in vertex order, and one row per edge in edge order (see `edge_of_arc`).
    edge_of_arc : int64, shape (arcs,), or None
        Row of `edge_attributes` for each arc; present only with edge attributes.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges(["a", "b"], ["b", "c"])
    >>> graph
    Graph(3 vertices, 2 edges, undirected)
    >>> graph.neighbors(1)
    array([0, 2], dtype=int32)
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
        """Number of vertices."""
        return self.offsets.size - 1

    @property
    def num_arcs(self) -> int:
        """Number of arcs; an undirected edge between different vertices counts twice."""
        return self.targets.size

    @property
    def nbytes(self) -> int:
        """Memory of row pointers, targets and weights, in bytes; without labels and attributes."""
        return self.offsets.nbytes + self.targets.nbytes + (0 if self.weights is None else self.weights.nbytes)

    @cached_property
    def out_degrees(self) -> NDArray[np.int64]:
        """Number of arcs of each vertex, int64, shape (n,); a self-loop counts once."""
        return np.diff(self.offsets)

    def neighbors(self, vertex: int) -> NDArray[np.integer[Any]]:
        """Return the out-neighbors of a vertex as a view of `targets`.

        Parameters
        ----------
        vertex : int
            Vertex number, 0 to n - 1.

        Returns
        -------
        array of int32 or int64
            Vertex numbers, ascending.
        """
        return self.targets[self.offsets[vertex] : self.offsets[vertex + 1]]

    def label_column(self) -> pa.Array:
        """Return the labels of all vertices in vertex order.

        Returns
        -------
        pyarrow.Array
            Labels, int64 or string; 0 to n - 1 if the graph has no labels.
        """
        return self.labels if self.labels is not None else pa.array(np.arange(self.num_vertices))

    def find(self, labels: ArrayLike) -> NDArray[np.int64]:
        """Look up the vertex numbers of labels.

        Parameters
        ----------
        labels : array-like of int or str
            Vertex labels.

        Returns
        -------
        array of int64
            One vertex number per label.

        Raises
        ------
        InputError
            If a label is not a vertex of the graph.
        """
        return find_labels(self.labels, self.num_vertices, labels)

    def arc_sources(self) -> NDArray[np.integer[Any]]:
        """Return the source vertex of every arc.

        Returns
        -------
        array of int32 or int64, shape (arcs,)
            Vertex numbers, ascending.
        """
        out = np.empty(self.num_arcs, self.targets.dtype)
        kernels.arc_sources(self.offsets, out)
        return out

    @cached_property
    def reverse(self) -> Graph:
        """The graph with every arc reversed; an undirected graph is its own reverse."""
        if not self.directed:
            return self
        offsets, targets, rows = transpose(self.offsets, self.targets, np.arange(self.num_arcs))
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
        """Return the graph without edge directions.

        Parameters
        ----------
        parallel : {"min", "sum", "first", "keep"}
            How to merge ``u -> v`` with ``v -> u``; see `from_edges` [default: "min"].

        Returns
        -------
        Graph
            Undirected graph; the graph itself if it is undirected already.
        """
        if not self.directed:
            return self
        src, dst, weight, attributes = self.edge_columns()
        return Graph(*assemble(
            src, dst, weight, self.num_vertices, False, "keep", parallel, self.labels,
            self.vertex_attributes, attributes,
        ))  # fmt: skip

    def unweighted(self) -> Graph:
        """Return the graph without weights.

        Returns
        -------
        Graph
            Shares its arrays with this graph.
        """
        return self if self.weights is None else replace(self, weights=None)

    def edge_columns(
        self,
    ) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], NDArray[np.float64] | None, pa.Table | None]:
        """Return every edge once, in CSR order.

        Returns
        -------
        source, target : array of int32 or int64, shape (edges,)
            Vertex numbers; ``source <= target`` in an undirected graph.
        weight : float64, shape (edges,), or None
            Weights, if the graph has any.
        attributes : pyarrow.Table or None
            Edge attributes, if the graph has any.
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
    """Build a graph from columns of edges.

    Parameters
    ----------
    src, dst : array-like, shape (rows,)
        Ends of each edge: integers up to int64, or strings. They are vertex labels, or positions in `labels` if you
        pass that.
    weight : array-like, shape (rows,), optional
        Finite, non-negative weight of each edge. Integers must be exact in float64 (all up to 2^53 are).
    directed : bool
        Whether edges have a direction [default: False]. In an undirected graph the rows ``u v`` and ``v u`` are the
        same edge.
    labels : array-like of int or str, shape (n,), optional
        Distinct labels of all vertices [default: the labels in `src`, `dst` and `isolated`, ascending]. Vertices
        without edges are isolated.
    self_loops : {"drop", "keep"}
        What to do with edges from a vertex to itself [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with several rows for the same edge: keep the smallest weight, the sum, the first row, or all rows
        [default: "min"]. Attributes come from the row that is kept ("sum": the first).
    isolated : array-like, optional
        Labels of further vertices without edges; not with `labels`.
    vertex_attributes : table (Arrow, pandas, Polars) or mapping of columns, optional
        One row per vertex, in vertex order.
    edge_attributes : table or mapping of columns, optional
        One row per row of `src`.

    Returns
    -------
    Graph
        Vertices are numbered by ascending label, or in the order of `labels`.

    Raises
    ------
    InputError
        If columns differ in length, a label is missing or exceeds int64, or a weight (or a sum of weights) is negative,
        NaN or infinite. The message names the row or the edge.

    Notes
    -----
    Rows are sorted by two counting sorts: linear in the number of edges and vertices. Labels other than 0 to n - 1 are
    hashed or sorted first.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.from_edges([1, 2], [2, 3], [0.5, 1.5], directed=True)
    Graph(3 vertices, 2 edges, directed, weighted)
    >>> gf.from_edges([0, 1], [1, 0], labels=["ann", "bob", "eve"])
    Graph(3 vertices, 1 edges, undirected)
    """
    _check_choice("self_loops", self_loops, ("drop", "keep"))
    _check_choice("parallel", parallel, ("min", "sum", "first", "keep"))
    src_ids, dst_ids = as_id_column(src, "source"), as_id_column(dst, "target")
    if len(src_ids) != len(dst_ids):
        raise InputError(f"source has {len(src_ids)} rows, target has {len(dst_ids)}")
    if labels is not None:
        if isolated is not None:
            raise InputError("labels and isolated are mutually exclusive: labels already lists every vertex")
        label_column, n = _label_column(labels)
        src_ids, dst_ids = _positions(src_ids, n, "source"), _positions(dst_ids, n, "target")
    else:
        extra = [] if isolated is None else [as_id_column(isolated, "isolated")]
        (src_ids, dst_ids, *_), label_column, n = number_labels(src_ids, dst_ids, *extra)
    weights = None if weight is None else check_weights(weight, len(src_ids))
    return Graph(*assemble(
        src_ids, dst_ids, weights, n, directed, self_loops, parallel, label_column,
        attribute_table(vertex_attributes, n, "vertex"),
        attribute_table(edge_attributes, len(src_ids), "edge"),
    ))  # fmt: skip


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
        raise InputError(f"{name}: with labels, ends of edges must be positions in labels, not strings")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        row = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
        raise InputError(f"{name}: row {row} holds {ids[row]}; positions must be from 0 to {n - 1}")
    return np.ascontiguousarray(ids, dtype=vertex_dtype(n))

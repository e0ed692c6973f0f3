"""The columnar graph: compressed sparse rows, optional weights, labels and attributes as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.graph import kernels
from goffish.graph.assembly import Parallel, Parts, SelfLoops, assemble, transpose
from goffish.graph.columns import attribute_table, check_weights, named_columns
from goffish.graph.guards import check_choice, whole_number
from goffish.graph.labels import as_id_column, distinct_labels, find_labels, number_labels, vertex_dtype
from goffish.graph.selection import VertexValues, condition_mask, edges_of_arcs, near, select, vertex_mask
from goffish.kernels.subgraphs import local_components
from goffish.notebook import facts_html
from goffish.threads import interruptible


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

    @property
    def degree(self) -> VertexValues:
        """Number of edges at each vertex, by label: a self-loop counts twice, an arc at both ends."""
        degrees = self.out_degrees
        if self.directed:
            degrees = degrees + self._in_degrees()
        elif 2 * self.num_edges > self.num_arcs:  # a loop is one arc
            loops = self.arc_sources() == self.targets
            degrees = degrees + np.bincount(self.targets[loops], minlength=self.num_vertices)
        return VertexValues(self.labels, degrees)

    def degrees(self) -> pa.Table:
        """Return the degrees of all vertices.

        Returns
        -------
        pyarrow.Table
            Columns ``vertex`` and ``degree`` (edges; a self-loop counts twice); of a directed graph also
            ``in_degree`` and ``out_degree``, and with weights ``strength`` (sum of the weights of the edges).

        Examples
        --------
        >>> import goffish as gf
        >>> gf.from_edges(["a", "a"], ["b", "c"], directed=True).degrees().to_pylist()[0]
        {'vertex': 'a', 'degree': 2, 'in_degree': 0, 'out_degree': 2}
        """
        columns: dict[str, Any] = {"vertex": self.label_column(), "degree": np.asarray(self.degree)}
        if self.directed:
            columns |= {"in_degree": self._in_degrees(), "out_degree": self.out_degrees}
        if self.weights is not None:
            sources, n = self.arc_sources(), self.num_vertices
            counted = np.ones(self.num_arcs, np.bool_) if self.directed else sources == self.targets
            strength = np.bincount(sources, self.weights, minlength=n).astype(np.float64)  # integers if there are none
            columns["strength"] = strength + np.bincount(self.targets[counted], self.weights[counted], minlength=n)
        return pa.table(columns)

    def _in_degrees(self) -> NDArray[np.int64]:
        return np.bincount(self.targets, minlength=self.num_vertices)

    def __len__(self) -> int:
        return self.num_vertices

    def __bool__(self) -> bool:
        return True  # an empty graph is a graph

    def __contains__(self, vertex: object) -> bool:
        if isinstance(vertex, bool | np.bool_) or not isinstance(vertex, int | str | np.integer):
            return False
        if self.labels is None:
            return not isinstance(vertex, str) and bool(0 <= vertex < self.num_vertices)
        if isinstance(vertex, str) is not pa.types.is_string(self.labels.type):
            return False
        fits = isinstance(vertex, str) or -(1 << 63) <= vertex < 1 << 63
        return bool(fits and pc.index(self.labels, pa.scalar(vertex, self.labels.type)).as_py() >= 0)

    def __iter__(self) -> Iterator[int | str]:
        """Iterate over the labels."""
        return iter(range(self.num_vertices) if self.labels is None else self.labels.to_pylist())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.edges.__arrow_c_stream__(requested_schema)

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

    @property
    def vertices(self) -> pa.Table:
        """The vertices as an Arrow table: ``vertex`` (label), then the vertex attributes."""
        return self._vertex_table()

    @property
    def edges(self) -> pa.Table:
        """The edges as an Arrow table: ``source``, ``target``, ``weight`` if there are any, then the attributes."""
        return self._edge_table()

    def _vertex_table(self, vertex: str = "vertex") -> pa.Table:
        columns: dict[str, Any] = {vertex: self.label_column()}
        for name, column in named_columns(self.vertex_attributes):
            if name in columns:
                raise InputError(
                    f"the vertex attribute {name!r} is named like the label column; set vertex to another name"
                )
            columns[name] = column
        return pa.table(columns)

    def _edge_table(self, source: str = "source", target: str = "target", weight: str = "weight") -> pa.Table:
        src, dst, weights, attributes = self.edge_columns()
        columns: dict[str, Any] = {source: self.labels_of(src), target: self.labels_of(dst)}
        if weights is not None:
            columns[weight] = pa.array(weights)
        for name, column in named_columns(attributes):
            if name in columns:
                raise InputError(f"the edge attribute {name!r} and another column have the same name; rename one")
            columns[name] = column
        return pa.table(columns)

    def labels_of(self, numbers: NDArray[np.integer[Any]]) -> pa.Array:
        """Return the labels of vertex numbers.

        Parameters
        ----------
        numbers : array of int
            Vertex numbers, 0 to n - 1.

        Returns
        -------
        pyarrow.Array
            One label per number.
        """
        if self.labels is None:
            return pa.array(numbers.astype(np.int64, copy=False))
        return self.labels.take(pa.array(numbers))

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

    def subgraph(self, vertices: Any) -> Graph:
        """Return the graph of some vertices and the edges between them.

        Parameters
        ----------
        vertices : array-like of int or str, or of bool
            Labels, or a truth value for each vertex.

        Returns
        -------
        Graph
            Weights and attributes included; the order of the vertices stays.

        Raises
        ------
        InputError
            If a label is unknown, or there are more or fewer truth values than vertices.

        Examples
        --------
        >>> import goffish as gf
        >>> graph = gf.from_edges(["ann", "bob", "ann"], ["bob", "eve", "eve"])
        >>> graph.subgraph(["ann", "bob"]).edges.to_pylist()
        [{'source': 'ann', 'target': 'bob'}]
        """
        return Graph(*select(self._parts, vertex_mask(self.labels, self.num_vertices, vertices), None))

    def filter(self, *, vertices: Any = None, edges: Any = None) -> Graph:
        """Return the graph of the vertices and edges for which conditions hold.

        Parameters
        ----------
        vertices : pyarrow.compute.Expression or array of bool, optional
            Condition over the columns of `vertices` and `degrees` [default: all].
        edges : pyarrow.compute.Expression or array of bool, optional
            Condition over the columns of `edges` [default: all].

        Returns
        -------
        Graph
            Edges that stay have both ends among the vertices that stay.

        Raises
        ------
        InputError
            If there is no such column, or the values are not truth values.

        Notes
        -----
        A condition does not hold where it is null.

        Examples
        --------
        >>> import goffish as gf
        >>> import pyarrow.compute as pc
        >>> graph = gf.from_edges([1, 2, 3], [2, 3, 4], [0.5, 1.5, 2.5])
        >>> graph.filter(vertices=pc.field("degree") > 1, edges=pc.field("weight") > 1).edges.to_pylist()
        [{'source': 2, 'target': 3, 'weight': 1.5}]
        """
        kept = chosen = None
        if vertices is not None:
            table = self.vertices
            for name, column in named_columns(self.degrees().drop_columns("vertex")):
                if name not in table.column_names:
                    table = table.append_column(name, column)
            kept = condition_mask(table, vertices, "vertices", "vertices")
        if edges is not None:
            chosen = condition_mask(self.edges, edges, "edges", "edges")
            if not self.directed:
                of_arc = self.edge_of_arc
                chosen = chosen[edges_of_arcs(self.offsets, self.targets) if of_arc is None else of_arc]
        return Graph(*select(self._parts, kept, chosen))

    def component(self, vertex: int | str) -> Graph:
        """Return the connected component of a vertex; edge directions are ignored.

        Parameters
        ----------
        vertex : int or str
            Vertex label.

        Returns
        -------
        Graph
            Weights and attributes included.

        Raises
        ------
        InputError
            If the label is unknown.

        Examples
        --------
        >>> import goffish as gf
        >>> gf.from_edges([1, 2, 5], [2, 3, 6]).component(5)
        Graph(2 vertices, 1 edges, undirected)
        """
        number = int(self.find([vertex])[0])
        component, _ = self._components()
        return Graph(*select(self._parts, component == component[number], None))

    def largest_component(self) -> Graph:
        """Return the connected component with the most vertices; edge directions are ignored.

        Returns
        -------
        Graph
            Of equally large components, the one with the first vertex.

        Examples
        --------
        >>> import goffish as gf
        >>> gf.from_edges([1, 2, 5], [2, 3, 6]).largest_component()
        Graph(3 vertices, 2 edges, undirected)
        """
        component, count = self._components()
        if count < 2:
            return self
        return Graph(*select(self._parts, component == np.bincount(component).argmax(), None))

    def _components(self) -> tuple[NDArray[np.integer[Any]], int]:
        cell = np.zeros(self.num_vertices, np.int8)
        return interruptible(
            self.num_arcs, lambda: local_components(self.offsets, self.targets, cell, symmetric=not self.directed)
        )

    def ego(self, vertices: Any, *, radius: int = 1, direction: Literal["out", "in", "both"] = "out") -> Graph:
        """Return the graph of what is near some vertices.

        Parameters
        ----------
        vertices : int, str, or array-like of them
            Vertex labels.
        radius : int
            Number of steps [default: 1].
        direction : {"out", "in", "both"}
            Which arcs of a directed graph are followed [default: "out"].

        Returns
        -------
        Graph
            The vertices within `radius` steps, and all edges between them.

        Raises
        ------
        InputError
            If a label is unknown, or an option is not accepted.

        Examples
        --------
        >>> import goffish as gf
        >>> gf.from_edges([1, 2, 3], [2, 3, 4]).ego(2)
        Graph(3 vertices, 2 edges, undirected)
        """
        check_choice("direction", direction, ("out", "in", "both"))
        starts = self.find(vertices)
        steps = whole_number(radius, "radius", 0)
        if not self.directed or direction != "both":
            followed, back = (self.reverse if direction == "in" else self), None
        else:
            followed, back = self, self.reverse._parts
        return Graph(*select(self._parts, near(followed._parts, back, starts, steps), None))

    @property
    def _parts(self) -> Parts:
        return Parts(*(getattr(self, name) for name in Parts._fields))

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
    check_choice("self_loops", self_loops, ("drop", "keep"))
    check_choice("parallel", parallel, ("min", "sum", "first", "keep"))
    src_ids, dst_ids = as_id_column(src, "source"), as_id_column(dst, "target")
    if len(src_ids) != len(dst_ids):
        raise InputError(f"source has {len(src_ids)} rows, target has {len(dst_ids)}")
    if labels is not None:
        if isolated is not None:
            raise InputError("labels and isolated are mutually exclusive: labels already lists every vertex")
        label_column, n = distinct_labels(labels)
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


def _positions(ids: Any, n: int, name: str) -> NDArray[np.integer[Any]]:
    if isinstance(ids, pa.Array):
        raise InputError(f"{name}: with labels, ends of edges must be positions in labels, not strings")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        row = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
        raise InputError(f"{name}: row {row} holds {ids[row]}; positions must be from 0 to {n - 1}")
    return np.ascontiguousarray(ids, dtype=vertex_dtype(n))

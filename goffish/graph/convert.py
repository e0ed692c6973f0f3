"""Graphs from and to the objects of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph import _kernels
from goffish.graph.graph import Graph, Parallel, SelfLoops, from_edges
from goffish.graph.labels import find_labels

if TYPE_CHECKING:
    import igraph
    import networkx as nx
    import pandas as pd
    import polars as pl
    from scipy import sparse

MissingReverse = Literal["add", "error"]


def from_arrow(
    edges: pa.Table,
    *,
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    directed: bool = False,
    vertices: pa.Table | None = None,
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from a table of edges.

    Parameters
    ----------
    edges : pyarrow.Table
        One row per edge. Columns other than the three named ones become edge attributes.
    source, target : str
        Columns with the vertex labels, integers or strings.
    weight : str or None
        Column of weights, if there is one of that name; ``None`` makes it an ordinary attribute.
    directed : bool
    vertices : pyarrow.Table, optional
        One row per vertex: labels in the first column, attributes in the others. It brings isolated vertices
        and fixes the order of the vertices; every end of an edge must be in it.
    self_loops, parallel
        As for `from_edges`.

    Raises
    ------
    InputError
        A missing column, a missing label, a bad weight, an end that is not in `vertices`.
    """
    names = edges.column_names
    for column in (source, target):
        if column not in names:
            raise InputError(f"no column {column!r}; the columns are {', '.join(map(str, names)) or 'none'}")
    used = {source, target} | ({weight} if weight in names else set())
    others = [name for name in names if name not in used]
    attributes = edges.select(others) if others else None
    weights = edges.column(weight).to_numpy() if weight in names else None
    src, dst = _plain(edges.column(source)), _plain(edges.column(target))
    if vertices is None:
        return from_edges(
            src,
            dst,
            weights,
            directed=directed,
            self_loops=self_loops,
            parallel=parallel,
            edge_attributes=attributes,
        )
    if vertices.num_columns == 0:
        raise InputError("vertices: the first column must hold the vertex labels, and there is none")
    labels = _plain(vertices.column(0))
    attribute_names = vertices.column_names[1:]
    return from_edges(
        find_labels(labels, len(labels), src) if len(src) else np.empty(0, np.int64),
        find_labels(labels, len(labels), dst) if len(dst) else np.empty(0, np.int64),
        weights,
        directed=directed,
        labels=labels,
        self_loops=self_loops,
        parallel=parallel,
        vertex_attributes=vertices.select(attribute_names) if attribute_names else None,
        edge_attributes=attributes,
    )


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """One Arrow array, int64 where it is narrower, string in one of its several guises."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # older versions of Arrow for a column without rows
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_string(kind):
        return array.cast(pa.string())
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return array.cast(pa.int64())
    return array.cast(kind)


def to_arrow(
    graph: Graph, *, source: str = "source", target: str = "target", weight: str = "weight"
) -> pa.Table:
    """Edges as a table: every edge once, with labels, weight (of a weighted graph) and edge attributes.

    Vertices without edges and vertex attributes are in `vertices_to_arrow`.
    """
    src, dst, weights, attributes = graph.edge_columns()
    columns: dict[str, Any] = {source: _labels_of(graph, src), target: _labels_of(graph, dst)}
    if weights is not None:
        columns[weight] = pa.array(weights)
    for name, column in _named_columns(attributes):
        if name in columns:
            raise InputError(f"the edge attribute {name!r} has the name of another column; rename one")
        columns[name] = column
    return pa.table(columns)


def vertices_to_arrow(graph: Graph, *, vertex: str = "vertex") -> pa.Table:
    """Vertices as a table: labels in the first column, then the vertex attributes."""
    columns: dict[str, Any] = {vertex: graph.label_column()}
    for name, column in _named_columns(graph.vertex_attributes):
        if name in columns:
            raise InputError(f"the vertex attribute {name!r} has the name of the label column; rename that")
        columns[name] = column
    return pa.table(columns)


def _named_columns(table: pa.Table | None) -> list[tuple[str, pa.ChunkedArray]]:
    return [] if table is None else list(zip(table.column_names, table.columns, strict=True))


def _labels_of(graph: Graph, numbers: NDArray[np.integer[Any]]) -> pa.Array:
    if graph.labels is None:
        return pa.array(numbers.astype(np.int64, copy=False))
    return graph.labels.take(pa.array(numbers))


def from_pandas(
    edges: pd.DataFrame,
    *,
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    directed: bool = False,
    vertices: pd.DataFrame | None = None,
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from a data frame of edges; see `from_arrow`. The index is not used."""
    return from_arrow(
        _frame_to_arrow(edges),
        source=source,
        target=target,
        weight=weight,
        directed=directed,
        vertices=None if vertices is None else _frame_to_arrow(vertices),
        self_loops=self_loops,
        parallel=parallel,
    )


def _frame_to_arrow(frame: pd.DataFrame) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"the data frame has a column of mixed types ({error})") from None


def to_pandas(
    graph: Graph, *, source: str = "source", target: str = "target", weight: str = "weight"
) -> pd.DataFrame:
    """Edges as a data frame; see `to_arrow`."""
    frame: pd.DataFrame = to_arrow(graph, source=source, target=target, weight=weight).to_pandas()
    return frame


def from_polars(
    edges: pl.DataFrame,
    *,
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    directed: bool = False,
    vertices: pl.DataFrame | None = None,
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from a data frame of edges; see `from_arrow`."""
    return from_arrow(
        edges.to_arrow(),
        source=source,
        target=target,
        weight=weight,
        directed=directed,
        vertices=None if vertices is None else vertices.to_arrow(),
        self_loops=self_loops,
        parallel=parallel,
    )


def to_polars(
    graph: Graph, *, source: str = "source", target: str = "target", weight: str = "weight"
) -> pl.DataFrame:
    """Edges as a data frame; see `to_arrow`."""
    import polars as pl

    frame: pl.DataFrame = pl.from_arrow(to_arrow(graph, source=source, target=target, weight=weight))
    return frame


def from_scipy(
    matrix: sparse.sparray | sparse.spmatrix,
    *,
    directed: bool | None = None,
    labels: Any = None,
    weighted: bool | None = None,
    missing_reverse: MissingReverse = "add",
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from a square sparse adjacency matrix; every stored entry (also a zero) is an edge.

    Parameters
    ----------
    matrix : scipy sparse array or matrix, shape (n, n)
    directed : bool, optional
        By default a symmetric matrix makes an undirected graph, any other a directed one.
    labels : array-like of int or str, shape (n,), optional
        By default 0 … n-1.
    weighted : bool, optional
        By default there are weights unless every entry is 1 (or True).
    missing_reverse : {"add", "error"}
        With ``directed=False``: an entry whose reverse is missing or different stands for the edge all the
        same (`parallel` decides between two different ones), or is an error.
    self_loops, parallel
        As for `from_edges`; entries stored twice are parallel edges.
    """
    entries = matrix.tocoo()
    n, columns = entries.shape
    if n != columns:
        raise InputError(f"the matrix is not square ({n} x {columns})")
    if missing_reverse not in ("add", "error"):
        raise InputError(f"missing_reverse={missing_reverse!r}: choose one of add, error")
    src, dst, data = entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data
    if weighted is None:
        weighted = bool((data != 1).any())
    try:
        values = (
            data.astype(np.float64, casting="same_kind") if data.dtype != bool else data.astype(np.float64)
        )
    except TypeError:
        raise InputError(f"the matrix holds {data.dtype}; weights must be real numbers") from None
    paired = _has_reverse(src, dst, values, n)
    if directed is None:
        directed = not paired.all()
    if not directed:
        if missing_reverse == "error" and not paired.all():
            at = int(np.flatnonzero(~paired)[0])
            raise InputError(
                f"entry ({src[at]}, {dst[at]}) has no equal reverse; "
                'use directed=True, or missing_reverse="add" to make it an undirected edge'
            )
        keep = (src <= dst) | ~paired  # a pair is one edge
        src, dst, values = src[keep], dst[keep], values[keep]
    return from_edges(
        src,
        dst,
        values if weighted else None,
        directed=directed,
        labels=np.arange(n) if labels is None else labels,
        self_loops=self_loops,
        parallel=parallel,
    )


def _has_reverse(
    src: NDArray[np.int64], dst: NDArray[np.int64], values: NDArray[np.float64], n: int
) -> NDArray[np.bool_]:
    """For every entry whether (j, i) is stored as often and with the same values as (i, j)."""
    forward, backward = np.lexsort((values, dst, src)), np.lexsort((values, src, dst))
    mirrored = np.zeros(src.size, bool)
    if (
        np.array_equal(src[forward], dst[backward])
        and np.array_equal(dst[forward], src[backward])
        and np.array_equal(values[forward], values[backward], equal_nan=True)
    ):
        mirrored[:] = True
        return mirrored
    # Not symmetric as a whole: number the distinct (i, j, value), compare how often each and its mirror
    # occur.
    here = np.rec.fromarrays((src, dst, values))
    there = np.rec.fromarrays((dst, src, values))
    _, inverse = np.unique(np.concatenate((here, there)), return_inverse=True)
    inverse = inverse.ravel()
    count_here = np.bincount(inverse[: src.size], minlength=2 * src.size)
    count_there = np.bincount(inverse[src.size :], minlength=2 * src.size)
    own = inverse[: src.size]
    return np.asarray(count_here[own] == count_there[own])


def to_scipy(graph: Graph) -> sparse.csr_array:
    """Adjacency matrix, rows and columns in vertex order; an undirected graph gives a symmetric one.

    Entries are weights, or 1.0; parallel edges are entries of their own. Column numbers and weights are
    shared with the graph (below 2^31 arcs): do not write to them.
    """
    from scipy import sparse

    data = np.ones(graph.num_arcs) if graph.weights is None else graph.weights
    n = graph.num_vertices
    # SciPy wants one index type; it would widen the targets otherwise
    offsets = graph.offsets.astype(graph.targets.dtype) if graph.num_arcs < 2**31 else graph.offsets
    return sparse.csr_array((data, graph.targets, offsets), shape=(n, n))


def from_networkx(
    graph: nx.Graph,
    *,
    weight: str | None = "weight",
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from a networkx graph of any of the four kinds.

    Vertices are numbered by ascending label. An edge without the attribute `weight` weighs 1, as networkx
    has it, provided that some edge has it; ``weight=None`` ignores weights. Other attributes become columns,
    null where an edge or vertex lacks them.

    Raises
    ------
    InputError
        Nodes that are neither all integers nor all strings (relabel with
        `networkx.convert_node_labels_to_integers`), or an attribute whose values have no common type.
    """
    nodes = list(graph)
    kinds = {int if isinstance(v, int | np.integer) and not isinstance(v, bool) else type(v) for v in nodes}
    if not kinds <= {int} and not kinds <= {str}:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"vertex labels must be all integers or all strings, these are {shown}; "
            "networkx.convert_node_labels_to_integers(graph, label_attribute=...) makes them integers"
        )
    labels = sorted(nodes)
    number = {label: i for i, label in enumerate(labels)}
    rows = list(graph.edges(data=True))
    src = np.fromiter((number[u] for u, _, _ in rows), np.int64, len(rows))
    dst = np.fromiter((number[v] for _, v, _ in rows), np.int64, len(rows))
    edge_data = [data for _, _, data in rows]
    weights = None
    if weight is not None and any(weight in data for data in edge_data):
        weights = [data.get(weight, 1.0) for data in edge_data]
    return from_edges(
        src,
        dst,
        weights,
        directed=graph.is_directed(),
        labels=labels,
        self_loops=self_loops,
        parallel=parallel,
        vertex_attributes=_attributes([graph.nodes[label] for label in labels], set(), "vertex"),
        edge_attributes=_attributes(edge_data, {weight}, "edge"),
    )


def _attributes(rows: Sequence[dict[Any, Any]], without: set[Any], what: str) -> pa.Table | None:
    names = dict.fromkeys(name for row in rows for name in row if name not in without)
    columns = {str(name): _column([row.get(name) for row in rows], name, what) for name in names}
    return pa.table(columns) if columns else None


def _column(values: Iterable[Any], name: object, what: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InputError(f"the {what} attribute {name!r} does not fit in one column ({error})") from None


def to_networkx(graph: Graph, *, weight: str = "weight") -> nx.Graph:
    """A networkx graph of the kind that fits (parallel edges make a multigraph); nulls are left out."""
    import networkx as nx

    multi = _kernels.has_parallel(graph.offsets, graph.targets)
    kinds = {(False, False): nx.Graph, (True, False): nx.DiGraph, (False, True): nx.MultiGraph}
    result = kinds.get((graph.directed, multi), nx.MultiDiGraph)()
    vertices = vertices_to_arrow(graph, vertex="")
    labels = vertices.column(0).to_pylist()
    result.add_nodes_from(zip(labels, _dictionaries(graph.vertex_attributes, len(labels)), strict=True))
    src, dst, weights, attributes = graph.edge_columns()
    data = _dictionaries(attributes, src.size)
    if weights is not None:
        for row, value in zip(data, weights.tolist(), strict=True):
            row[weight] = value
    ends = ((labels[u], labels[v]) for u, v in zip(src.tolist(), dst.tolist(), strict=True))
    result.add_edges_from((u, v, row) for (u, v), row in zip(ends, data, strict=True))
    return result


def _dictionaries(table: pa.Table | None, rows: int) -> list[dict[str, Any]]:
    if table is None:
        return [{} for _ in range(rows)]
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def from_igraph(
    graph: igraph.Graph,
    *,
    weight: str | None = "weight",
    self_loops: SelfLoops = "drop",
    parallel: Parallel = "min",
) -> Graph:
    """Build a graph from an igraph one; vertex labels are the attribute ``name``, or else 0 … n-1."""
    ends = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2)
    names = graph.vs["name"] if "name" in graph.vs.attributes() else np.arange(graph.vcount())
    vertex_attributes = {a: _column(graph.vs[a], a, "vertex") for a in graph.vs.attributes() if a != "name"}
    edge_attributes = {a: _column(graph.es[a], a, "edge") for a in graph.es.attributes() if a != weight}
    return from_edges(
        ends[:, 0],
        ends[:, 1],
        graph.es[weight] if weight in graph.es.attributes() else None,
        directed=graph.is_directed(),
        labels=names,
        self_loops=self_loops,
        parallel=parallel,
        vertex_attributes=vertex_attributes or None,
        edge_attributes=edge_attributes or None,
    )


def to_igraph(graph: Graph, *, weight: str = "weight") -> igraph.Graph:
    """An igraph graph; labels other than 0 … n-1 become the vertex attribute ``name``."""
    import igraph

    src, dst, weights, attributes = graph.edge_columns()
    result = igraph.Graph(graph.num_vertices, np.column_stack((src, dst)), directed=graph.directed)
    if graph.labels is not None:
        result.vs["name"] = graph.labels.to_pylist()
    if weights is not None:
        result.es[weight] = weights.tolist()
    for sequence, table in ((result.vs, graph.vertex_attributes), (result.es, attributes)):
        for name, column in _named_columns(table):
            sequence[name] = column.to_pylist()
    return result

"""Graphs from and to tables: Arrow, pandas, polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from goffish.errors import InputError
from goffish.graph.assembly import Parallel, SelfLoops
from goffish.graph.columns import as_table
from goffish.graph.graph import Graph, from_edges
from goffish.graph.guards import expect
from goffish.graph.labels import find_labels

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


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
    """Build a graph from an Arrow table of edges.

    Parameters
    ----------
    edges : pyarrow.Table
        One row per edge. Columns other than `source`, `target` and `weight` become edge attributes.
    source, target : str
        Columns of vertex labels, integers or strings [default: "source", "target"].
    weight : str or None
        Column of weights, used if it exists; with ``None`` such a column is an ordinary attribute [default: "weight"].
    directed : bool
        Whether edges have a direction [default: False].
    vertices : pyarrow.Table, optional
        One row per vertex: the label in the first column, attributes in the others. The table adds isolated vertices,
        sets the vertex order and must contain both ends of every edge.
    self_loops : {"drop", "keep"}
        What to do with self-loops; see `from_edges` [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with parallel edges; see `from_edges` [default: "min"].

    Returns
    -------
    Graph
        Vertices are numbered by ascending label, or in the order of `vertices`.

    Raises
    ------
    InputError
        If a column or a label is missing, a weight is negative, NaN or infinite, or an end of an edge is not in
        `vertices`.

    Examples
    --------
    >>> import goffish as gf
    >>> import pyarrow as pa
    >>> gf.from_arrow(pa.table({"source": ["a", "b"], "target": ["b", "c"], "weight": [1.0, 2.0]}))
    Graph(3 vertices, 2 edges, undirected, weighted)
    """
    edges = as_table(edges, "edges")
    vertices = None if vertices is None else as_table(vertices, "vertices")
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
        raise InputError("vertices: the table has no columns; expected the vertex labels in the first one")
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


def to_arrow(graph: Graph, *, source: str = "source", target: str = "target", weight: str = "weight") -> pa.Table:
    """Convert the edges of a graph to an Arrow table.

    Vertex attributes and vertices without edges are in `vertices_to_arrow`.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    source, target, weight : str
        Column names [default: "source", "target", "weight"].

    Returns
    -------
    pyarrow.Table
        One row per edge: labels of both ends, the weight if the graph has weights, and the edge attributes.

    Raises
    ------
    InputError
        If `graph` is not a `Graph`, or an edge attribute has one of the column names.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.to_arrow(gf.from_edges([1, 2], [2, 3])).to_pydict()
    {'source': [1, 2], 'target': [2, 3]}
    """
    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    return graph._edge_table(source, target, weight)


def vertices_to_arrow(graph: Graph, *, vertex: str = "vertex") -> pa.Table:
    """Convert the vertices of a graph to an Arrow table.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    vertex : str
        Name of the label column [default: "vertex"].

    Returns
    -------
    pyarrow.Table
        One row per vertex: the label, then the vertex attributes.

    Raises
    ------
    InputError
        If `graph` is not a `Graph`, or a vertex attribute is named like the label column.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1], [2], vertex_attributes={"age": [30, 40]})
    >>> gf.vertices_to_arrow(graph).to_pydict()
    {'vertex': [1, 2], 'age': [30, 40]}
    """
    expect(graph, Graph, "graph", "expected a goffish Graph; convert a PartitionedGraph with to_graph()")
    return graph._vertex_table(vertex)


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
    """Build a graph from a pandas data frame of edges.

    Parameters
    ----------
    edges : pandas.DataFrame
        One row per edge; the index is ignored. Columns other than `source`, `target` and `weight` become edge
        attributes.
    source, target : str
        Columns of vertex labels, integers or strings [default: "source", "target"].
    weight : str or None
        Column of weights, used if it exists; with ``None`` such a column is an ordinary attribute [default: "weight"].
    directed : bool
        Whether edges have a direction [default: False].
    vertices : pandas.DataFrame, optional
        One row per vertex: the label in the first column, attributes in the others; see `from_arrow`.
    self_loops : {"drop", "keep"}
        What to do with self-loops; see `from_edges` [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with parallel edges; see `from_edges` [default: "min"].

    Returns
    -------
    Graph
        Vertices are numbered by ascending label, or in the order of `vertices`.

    Raises
    ------
    InputError
        If a column or a label is missing, a weight is negative, NaN or infinite, or an end of an edge is not in
        `vertices`.

    Examples
    --------
    >>> import goffish as gf
    >>> import pandas as pd
    >>> gf.from_pandas(pd.DataFrame({"source": [1, 2], "target": [2, 3]}))
    Graph(3 vertices, 2 edges, undirected)
    """
    return from_arrow(
        as_table(edges, "edges"),
        source=source,
        target=target,
        weight=weight,
        directed=directed,
        vertices=None if vertices is None else as_table(vertices, "vertices"),
        self_loops=self_loops,
        parallel=parallel,
    )


def to_pandas(graph: Graph, *, source: str = "source", target: str = "target", weight: str = "weight") -> pd.DataFrame:
    """Convert the edges of a graph to a pandas data frame.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    source, target, weight : str
        Column names [default: "source", "target", "weight"].

    Returns
    -------
    pandas.DataFrame
        One row per edge: labels of both ends, the weight if the graph has weights, and the edge attributes.

    Raises
    ------
    InputError
        If `graph` is not a `Graph`, or an edge attribute has one of the column names.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.to_pandas(gf.from_edges([1, 2], [2, 3]))
       source  target
    0       1       2
    1       2       3
    """
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
    """Build a graph from a Polars data frame of edges.

    Parameters
    ----------
    edges : polars.DataFrame
        One row per edge. Columns other than `source`, `target` and `weight` become edge attributes.
    source, target : str
        Columns of vertex labels, integers or strings [default: "source", "target"].
    weight : str or None
        Column of weights, used if it exists; with ``None`` such a column is an ordinary attribute [default: "weight"].
    directed : bool
        Whether edges have a direction [default: False].
    vertices : polars.DataFrame, optional
        One row per vertex: the label in the first column, attributes in the others; see `from_arrow`.
    self_loops : {"drop", "keep"}
        What to do with self-loops; see `from_edges` [default: "drop"].
    parallel : {"min", "sum", "first", "keep"}
        What to do with parallel edges; see `from_edges` [default: "min"].

    Returns
    -------
    Graph
        Vertices are numbered by ascending label, or in the order of `vertices`.

    Raises
    ------
    InputError
        If a column or a label is missing, a weight is negative, NaN or infinite, or an end of an edge is not in
        `vertices`.

    Examples
    --------
    >>> import goffish as gf
    >>> import polars as pl
    >>> gf.from_polars(pl.DataFrame({"source": [1, 2], "target": [2, 3]}))
    Graph(3 vertices, 2 edges, undirected)
    """
    return from_arrow(
        as_table(edges, "edges"),
        source=source,
        target=target,
        weight=weight,
        directed=directed,
        vertices=None if vertices is None else as_table(vertices, "vertices"),
        self_loops=self_loops,
        parallel=parallel,
    )


def to_polars(graph: Graph, *, source: str = "source", target: str = "target", weight: str = "weight") -> pl.DataFrame:
    """Convert the edges of a graph to a Polars data frame.

    Parameters
    ----------
    graph : Graph
        Graph in memory.
    source, target, weight : str
        Column names [default: "source", "target", "weight"].

    Returns
    -------
    polars.DataFrame
        One row per edge: labels of both ends, the weight if the graph has weights, and the edge attributes.

    Raises
    ------
    InputError
        If `graph` is not a `Graph`, or an edge attribute has one of the column names.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.to_polars(gf.from_edges([1, 2], [2, 3])).rows()
    [(1, 2), (2, 3)]
    """
    import polars as pl

    frame: pl.DataFrame = pl.from_arrow(to_arrow(graph, source=source, target=target, weight=weight))
    return frame

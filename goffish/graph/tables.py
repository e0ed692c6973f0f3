"""Graphs from and to tables: Arrow, pandas, polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.columns import as_table
from goffish.graph.graph import Graph, Parallel, SelfLoops, from_edges
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


def to_arrow(graph: Graph, *, source: str = "source", target: str = "target", weight: str = "weight") -> pa.Table:
    """Edges as a table: every edge once, with labels, weight (of a weighted graph) and edge attributes.

    Vertices without edges and vertex attributes are in `vertices_to_arrow`.
    """
    expect(graph, Graph, "graph", "give a goffish Graph (a partitioned one's to_graph())")
    src, dst, weights, attributes = graph.edge_columns()
    columns: dict[str, Any] = {source: _labels_of(graph, src), target: _labels_of(graph, dst)}
    if weights is not None:
        columns[weight] = pa.array(weights)
    for name, column in named_columns(attributes):
        if name in columns:
            raise InputError(f"the edge attribute {name!r} has the name of another column; rename one")
        columns[name] = column
    return pa.table(columns)


def vertices_to_arrow(graph: Graph, *, vertex: str = "vertex") -> pa.Table:
    """Vertices as a table: labels in the first column, then the vertex attributes."""
    expect(graph, Graph, "graph", "give a goffish Graph (a partitioned one's to_graph())")
    columns: dict[str, Any] = {vertex: graph.label_column()}
    for name, column in named_columns(graph.vertex_attributes):
        if name in columns:
            raise InputError(f"the vertex attribute {name!r} has the name of the label column; rename that")
        columns[name] = column
    return pa.table(columns)


def named_columns(table: pa.Table | None) -> list[tuple[str, pa.ChunkedArray]]:
    """Names and columns of a table that may be missing."""
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
    """Edges as a data frame; see `to_arrow`."""
    import polars as pl

    frame: pl.DataFrame = pl.from_arrow(to_arrow(graph, source=source, target=target, weight=weight))
    return frame

"""Graphs made from others: unions and differences, groups of vertices, other labels, samples, more columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.assembly import SelfLoops
from goffish.graph.columns import as_table, check_weights, named_columns
from goffish.graph.graph import Graph, from_edges
from goffish.graph.guards import GRAPH_ADVICE, expect, whole_number
from goffish.graph.labels import as_id_column, distinct_labels, number_labels
from goffish.graph.selection import edges_of_arcs


class Divisible(Protocol):
    """What parts are taken of: a `Graph`, or a `goffish.PartitionedGraph`."""

    @property
    def num_vertices(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    def subgraph(self, vertices: Any) -> Graph: ...
    def filter(self, *, vertices: Any = None, edges: Any = None) -> Graph: ...


_ADVICE = "expected a goffish Graph; convert a PartitionedGraph with to_graph()"


def union(first: Graph, second: Graph) -> Graph:
    """Return the graph with the vertices and edges of two graphs.

    Parameters
    ----------
    first, second : Graph
        Both directed or both undirected, both with weights or both without.

    Returns
    -------
    Graph
        Vertices are numbered by ascending label. Weights and attributes of what is in both are those of `first`;
        attributes that only one has are null elsewhere. Parallel edges become one.

    Raises
    ------
    InputError
        If one is directed or weighted and the other is not, or their labels or attributes have other types.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.union(gf.from_edges([1], [2]), gf.from_edges([2], [3]))
    Graph(3 vertices, 2 edges, undirected)
    """
    _check_alike(first, second)
    if not (len(first) and len(second)):
        return first if len(first) else second
    if (first.weights is None) != (second.weights is None):
        raise InputError("union: one of the graphs has weights and the other has none; use unweighted()")
    tables = [graph.edges for graph in (first, second)]
    vertices = [graph.vertices for graph in (first, second)]
    try:
        edges = pa.concat_tables(tables, promote_options="default")
        rows = pa.concat_tables(vertices, promote_options="default")
    except pa.ArrowException as error:
        raise InputError(f"union: {str(error).splitlines()[0]}") from None
    labels = rows["vertex"].combine_chunks()
    names = [name for name in edges.column_names if name not in ("source", "target", "weight")]
    graph = from_edges(
        edges["source"], edges["target"], edges["weight"].to_numpy() if first.weights is not None else None,
        directed=first.directed, self_loops="keep", parallel="first", isolated=labels,
        edge_attributes=edges.select(names) if names else None,
    )  # fmt: skip
    if rows.num_columns == 1:
        return graph
    # Of two rows with one label, the first one is found.
    places = pc.index_in(graph.label_column(), value_set=labels)
    return replace(graph, vertex_attributes=rows.drop_columns("vertex").take(places))


def intersection(first: Graph, second: Graph) -> Graph:
    """Return the graph with the edges that two graphs have, and the vertices of the first one.

    Parameters
    ----------
    first, second : Graph
        Both directed or both undirected.

    Returns
    -------
    Graph
        With weights and attributes of `first`.

    Raises
    ------
    InputError
        If one is directed and the other is not.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.intersection(gf.from_edges([1, 2], [2, 3]), gf.from_edges([3, 4], [2, 5])).edges.to_pylist()
    [{'source': 2, 'target': 3}]
    """
    return first.filter(edges=_has_edges(first, second))


def difference(first: Graph, second: Graph) -> Graph:
    """Return the graph with the edges that only the first one of two graphs has, and its vertices.

    Parameters
    ----------
    first, second : Graph
        Both directed or both undirected.

    Returns
    -------
    Graph
        With weights and attributes of `first`.

    Raises
    ------
    InputError
        If one is directed and the other is not.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.difference(gf.from_edges([1, 2], [2, 3]), gf.from_edges([3, 4], [2, 5])).edges.to_pylist()
    [{'source': 1, 'target': 2}]
    """
    return first.filter(edges=~_has_edges(first, second))


def contract(graph: Graph, groups: Any, *, self_loops: SelfLoops = "drop") -> Graph:
    """Make a graph of groups of vertices.

    Parameters
    ----------
    graph : Graph
    groups : array-like of int or str, shape (n,), or Result
        The group of each vertex, in vertex order; of a result, the first column after ``vertex``.
    self_loops : {"drop", "keep"}
        What to do with edges within a group [default: "drop"].

    Returns
    -------
    Graph
        A vertex for each group, with the attribute ``size`` (number of vertices). The weight of an edge is the sum of
        the weights of the edges between two groups, or their number if the graph has no weights.

    Raises
    ------
    InputError
        If a vertex has no group.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2, 3, 4], [2, 3, 1, 1])
    >>> gf.contract(graph, ["a", "a", "b", "b"]).edges.to_pylist()
    [{'source': 'a', 'target': 'b', 'weight': 3.0}]
    """
    expect(graph, Graph, "graph", _ADVICE)
    table = getattr(groups, "table", None)
    if isinstance(table, pa.Table):
        if table.column_names[0] != "vertex":
            raise InputError(f"groups: the result has no row for each vertex, but the keys {table.column_names[:2]}")
        places = pc.index_in(graph.label_column(), value_set=table.column(0).combine_chunks())
        groups = table.column(1).combine_chunks().take(places)
        if groups.null_count:
            vertex = graph.label_column().filter(groups.is_null())[0].as_py()
            raise InputError(f"groups: the vertex {vertex!r} has none")
    column = as_id_column(groups, "groups")
    if len(column) != graph.num_vertices:
        raise InputError(f"groups: {len(column):,} groups; accepted is one for each of {graph.num_vertices:,} vertices")
    (number,), labels, count = number_labels(column)
    source, target, weights, _ = graph.edge_columns()
    return from_edges(
        number[source], number[target], np.ones(source.size) if weights is None else weights, directed=graph.directed,
        labels=np.arange(count) if labels is None else labels, self_loops=self_loops, parallel="sum",
        vertex_attributes={"size": np.bincount(number, minlength=count)},
    )  # fmt: skip


def relabel(graph: Graph, labels: Any) -> Graph:
    """Give vertices other labels.

    Parameters
    ----------
    graph : Graph
    labels : mapping, or array-like of int or str, shape (n,)
        New labels by old ones, of vertices that get another one; or the labels of all vertices, in vertex order.

    Returns
    -------
    Graph
        Shares its arrays with `graph`; the vertices keep their order.

    Raises
    ------
    InputError
        If two vertices get the same label, or an old label is unknown.

    Examples
    --------
    >>> import goffish as gf
    >>> list(gf.relabel(gf.from_edges([1], [2]), {2: 5}))
    [1, 5]
    """
    expect(graph, Graph, "graph", _ADVICE)
    if isinstance(labels, Mapping):
        places = graph.find(list(labels))
        given: list[Any] = graph.label_column().to_pylist()
        for place, label in zip(places.tolist(), labels.values(), strict=True):
            given[place] = label
        labels = given
    found, count = distinct_labels(labels)
    if count != graph.num_vertices:
        raise InputError(f"labels: {count:,} labels; accepted is one for each of {graph.num_vertices:,} vertices")
    return replace(graph, labels=found)


def sample(graph: Divisible, *, vertices: int | None = None, edges: int | None = None, seed: int = 0) -> Graph:
    """Draw vertices or edges at random, without replacement.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Of a store, the partitions of the vertices are read, or all of them one after another.
    vertices : int, optional
        Number of vertices; the edges between them stay.
    edges : int, optional
        Number of edges; all vertices stay.
    seed : int
        The same seed draws the same ones [default: 0].

    Returns
    -------
    Graph
        All of the graph if it has no more.

    Raises
    ------
    InputError
        If not exactly one of the numbers is given, or one is negative.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.sample(gf.from_edges([1, 2, 3], [2, 3, 4]), edges=2)
    Graph(4 vertices, 2 edges, undirected)
    """
    if not hasattr(graph, "subgraph"):
        expect(graph, Graph, "graph", GRAPH_ADVICE)
    if (vertices is None) == (edges is None):
        raise InputError("sample: accepted is one of vertices and edges")
    rng = np.random.default_rng(whole_number(seed, "seed", 0))
    if vertices is not None:
        return graph.subgraph(_drawn(graph.num_vertices, whole_number(vertices, "vertices", 0), rng))
    return graph.filter(edges=_drawn(graph.num_edges, whole_number(edges, "edges", 0), rng))


def join_vertices(graph: Graph, table: Any) -> Graph:
    """Add columns to the vertex attributes.

    Parameters
    ----------
    graph : Graph
    table : table (Arrow, pandas, Polars) or Result
        Labels in the column ``vertex``, each once; other columns become attributes, and replace those of their names.
        Vertices without a row get null, and rows of other vertices are ignored.

    Returns
    -------
    Graph
        Shares its arrays with `graph`.

    Raises
    ------
    InputError
        If there is no column ``vertex``, its type is not that of the labels, or a label occurs twice.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2], [2, 3])
    >>> gf.join_vertices(graph, gf.core_numbers(graph)).vertices.to_pylist()[0]
    {'vertex': 1, 'core': 1}
    """
    expect(graph, Graph, "graph", _ADVICE)
    rows = as_table(getattr(table, "table", table), "table")
    if "vertex" not in rows.column_names:
        raise InputError(f"table: no column 'vertex'; the columns are {', '.join(rows.column_names) or 'none'}")
    column = as_id_column(rows["vertex"], "vertex")
    keys = column if isinstance(column, pa.Array) else pa.array(column.astype(np.int64, copy=False))
    labels = graph.label_column()
    if len(keys) and keys.type != labels.type:
        raise InputError(f"table: vertex is {keys.type}, and labels of the graph are {labels.type}")
    distinct_labels(keys, "vertex")
    places = pc.index_in(labels, value_set=keys.cast(labels.type))
    return replace(graph, vertex_attributes=_joined(graph.vertex_attributes, rows.drop_columns("vertex").take(places)))


def join_edges(graph: Graph, table: Any) -> Graph:
    """Add columns to the edge attributes.

    Parameters
    ----------
    graph : Graph
        Without parallel edges.
    table : table (Arrow, pandas, Polars) or Result
        Labels of ends in the columns ``source`` and ``target``; of an undirected graph in any order. Other columns
        become attributes, and replace those of their names; a ``weight`` replaces the weights, and needs a row for each
        edge. Edges without a row get null, and rows of other edges are ignored.

    Returns
    -------
    Graph

    Raises
    ------
    InputError
        If a column is missing, the type of the ends is not that of the labels, or an edge occurs twice.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2], [2, 3])
    >>> gf.join_edges(graph, gf.edge_betweenness(graph)).edges.to_pylist()[0]
    {'source': 1, 'target': 2, 'betweenness': 2.0}
    """
    expect(graph, Graph, "graph", _ADVICE)
    rows = as_table(getattr(table, "table", table), "table")
    for name in ("source", "target"):
        if name not in rows.column_names:
            raise InputError(f"table: no column {name!r}; the columns are {', '.join(rows.column_names) or 'none'}")
    keys, own = _keys(graph, rows["source"], rows["target"]), _own_keys(graph)
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    twice = np.flatnonzero((sorted_keys[1:] == sorted_keys[:-1]) & (sorted_keys[1:] >= 0))
    if twice.size:
        row = rows.slice(int(order[twice[0]]), 1).to_pylist()[0]
        raise InputError(f"table: the edge {row['source']!r} - {row['target']!r} occurs more than once")
    at = np.minimum(np.searchsorted(sorted_keys, own), max(len(keys) - 1, 0))
    found = sorted_keys[at] == own if len(keys) else np.zeros(own.size, np.bool_)
    places = pa.array(order[at] if len(keys) else np.zeros(own.size, np.int64), mask=~found)
    columns = rows.drop_columns(["source", "target"]).take(places)
    weights = graph.weights
    of_arc = graph.edge_of_arc
    if of_arc is None:
        of_arc = np.arange(graph.num_arcs) if graph.directed else edges_of_arcs(graph.offsets, graph.targets)
    if "weight" in columns.column_names:
        if columns["weight"].null_count:
            raise InputError(f"table: weight: {columns['weight'].null_count:,} edges have none")
        weights = check_weights(columns["weight"].to_numpy(), own.size)[of_arc]
        columns = columns.drop_columns("weight")
    attributes = _joined(graph.edge_attributes, columns)
    has_any = attributes.num_columns > 0
    return replace(
        graph, weights=weights, edge_attributes=attributes if has_any else None, edge_of_arc=of_arc if has_any else None
    )


def _check_alike(first: Graph, second: Graph) -> None:
    for name, graph in (("first", first), ("second", second)):
        expect(graph, Graph, name, _ADVICE)
    if first.directed != second.directed:
        raise InputError("one of the graphs is directed and the other is not; use to_undirected()")


def _has_edges(first: Graph, second: Graph) -> NDArray[np.bool_]:
    """Which edges of the first graph the second one has."""
    _check_alike(first, second)
    source, target, *_ = second.edge_columns()
    keys, own = np.sort(_keys(first, second.labels_of(source), second.labels_of(target))), _own_keys(first)
    if not keys.size:
        return np.zeros(own.size, np.bool_)
    found: NDArray[np.bool_] = keys[np.minimum(np.searchsorted(keys, own), keys.size - 1)] == own
    return found


def _own_keys(graph: Graph) -> NDArray[np.int64]:
    source, target, *_ = graph.edge_columns()
    return _key(graph, source.astype(np.int64), target.astype(np.int64))


def _keys(graph: Graph, source: Any, target: Any) -> NDArray[np.int64]:
    """Numbers of pairs of labels, the same for an edge of the graph; -1 for pairs with an end that is no vertex."""
    labels, ends = graph.label_column(), []
    for name, given in (("source", source), ("target", target)):
        column = as_id_column(given, name)
        values = column if isinstance(column, pa.Array) else pa.array(column.astype(np.int64, copy=False))
        if len(values) and values.type != labels.type:
            raise InputError(f"{name}: is {values.type}, and labels of the graph are {labels.type}")
        if graph.labels is None:
            numbers = values.cast(labels.type).to_numpy()
            ends.append(np.where((numbers >= 0) & (numbers < graph.num_vertices), numbers, -1))
        else:
            found = pc.index_in(values.cast(labels.type), value_set=labels)
            ends.append(found.fill_null(-1).to_numpy().astype(np.int64))
    return np.where((ends[0] >= 0) & (ends[1] >= 0), _key(graph, *ends), -1)


def _key(graph: Graph, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
    if not graph.directed:
        source, target = np.minimum(source, target), np.maximum(source, target)
    return source * graph.num_vertices + target


def _joined(table: pa.Table | None, more: pa.Table) -> pa.Table:
    """A table with more columns, which replace those of their names."""
    columns = dict(named_columns(table)) | dict(named_columns(more))
    return pa.table(columns)


def _drawn(size: int, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    mask = np.zeros(size, np.bool_)
    mask[rng.choice(size, min(count, size), replace=False)] = True
    return mask

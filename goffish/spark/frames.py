"""Conversion between graphs, Spark DataFrames and GraphFrames."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.gofs import PartitionedGraph, Slice, open_store
from goffish.gopher.spark.session import GRAPHFRAMES_ADVICE, has_graphframes, is_connect, running_session
from goffish.gopher.spark.tasks import open_slice
from goffish.graph import Graph, from_edges
from goffish.graph.guards import GRAPH_ADVICE, expect

if TYPE_CHECKING:
    from graphframes import GraphFrame
    from pyspark.sql import DataFrame, SparkSession

#: Types of columns as ingest names them.
_KINDS = {
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "real"),
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    "boolean": "boolean",
}
#: Rows of one Arrow batch on the way to Spark.
_BATCH_ROWS = 1 << 16


def from_dataframe(
    edges: DataFrame,
    output: str | Path,
    *,
    source: str = "src",
    target: str = "dst",
    weight: str | None = None,
    vertices: DataFrame | None = None,
    vertex: str = "id",
    **rules: Any,
) -> PartitionedGraph:
    """Write the graph of a DataFrame of edges as a store, without collecting its rows on the driver.

    Parameters
    ----------
    edges : DataFrame
        One row for each edge: of a table, a query, a stream's batch, or of anything that Spark reads.
    output : path-like or str
        Folder or URI of the store, which all executors can write. An existing store is replaced in one step.
    source, target : str
        Columns with the ends of an edge; ``user.id`` is a field of a nested column. Labels are integers if both
        columns have a type of whole numbers, otherwise texts.
    weight : str, optional
        Column of the weights [default: no weights].
    vertices : DataFrame, optional
        One row for each vertex [default: the vertices are the ends of edges]. Vertices without edges are in the graph
        as well; columns of numbers, texts and booleans become vertex attributes.
    vertex : str
        Column of `vertices` with the labels [default: "id"].
    **rules
        Other fields of an ingest specification, such as ``directed``, ``timestamp``, ``attributes``, ``clean``,
        ``instances`` and ``partition``.

    Returns
    -------
    PartitionedGraph
        The store; `goffish.spark.ingest.ingest` returns the numbers of rows that were kept and rejected instead.

    Raises
    ------
    InputError
        If a field is invalid, a column is missing, a column of `vertices` has another type, or no row can be used.
    JobError
        If Spark fails.

    Notes
    -----
    Of several rows for one vertex the first one in the order of a hash of their contents counts. Rejected rows are in
    ``OUTPUT.quarantine``. The result does not depend on the order of the rows, nor on their division into tasks.

    Examples
    --------
    >>> import tempfile
    >>> import goffish as gf
    >>> from goffish.spark import session
    >>> rows = [(1, 2, 3.0), (2, 3, 1.0), (3, 1, 2.0)]
    >>> calls = session().createDataFrame(rows, "caller long, called long, minutes double")
    >>> folder = tempfile.mkdtemp()
    >>> store = gf.from_dataframe(
    ...     calls, f"{folder}/calls.store", source="caller", target="called", weight="minutes", partition={"parts": 2}
    ... )
    >>> store.num_vertices, store.num_partitions
    (3, 2)
    """
    from goffish.spark.ingest import ingest
    from goffish.spark.ingest.run import check_places

    check_places(output, None, None)
    tables = {"edges": edges} | ({} if vertices is None else {"vertices": vertices})
    for name, frame in tables.items():
        if not hasattr(frame, "sparkSession"):
            raise InputError(f"{name}: {type(frame).__name__} is not a DataFrame of Spark")
    columns = [(edges, source), (edges, target), *([] if vertices is None else [(vertices, vertex)])]
    kinds = {_kind_of(frame, name) for frame, name in columns}
    spec = {"inputs": [{"table": "edges"}], "source": source, "target": target, **rules}
    spec.setdefault("labels", "integer" if kinds == {"integer"} else "text")
    if weight is not None:
        spec["weight"] = weight
    if vertices is not None:
        attributes = {name: _kind_of(vertices, name) for name in vertices.columns if name != vertex}
        for name, kind in attributes.items():
            if kind is None:
                found = vertices.schema[name].dataType.simpleString()
                accepted = "accepted are numbers, texts and booleans; cast or drop the column"
                raise InputError(f"vertices: column {name!r} has type {found}; {accepted}")
        spec["vertices"] = {"inputs": [{"table": "vertices"}], "vertex": vertex, "attributes": attributes}
    ingest(spec, output, edges.sparkSession, tables=tables)
    return open_store(output)


def _kind_of(frame: DataFrame, name: str) -> str | None:
    """The type of a column as ingest names it, if there is such a column and type."""
    kind: Any = frame.schema
    for part in [name] if name in frame.columns else name.split("."):
        kind = kind[part].dataType if part in getattr(kind, "names", ()) else None
    return None if kind is None else _KINDS.get(kind.typeName())


def from_graphframe(frame: Any, *, weight: str | None = None, directed: bool = True) -> Graph:
    """Build a graph from a GraphFrame.

    Parameters
    ----------
    frame : GraphFrame
        A GraphFrame, or any object with the DataFrames ``vertices`` (column ``id``) and ``edges`` (``src``, ``dst``).
        The columns are collected on the driver as Arrow.
    weight : str, optional
        Column of ``edges`` with the weights [default: no weights].
    directed : bool
        Whether edges have a direction [default: True]. With ``False`` the rows ``u v`` and ``v u`` are the same edge,
        as `to_graphframe` writes them for an undirected graph.

    Returns
    -------
    Graph
        Labels are the ids, ascending. Of parallel edges the one with the smallest weight is kept; self-loops are kept;
        other columns are dropped.

    Raises
    ------
    InputError
        If a column is missing, ids are not distinct integers or strings, an end of an edge is not in ``vertices``, or a
        weight is negative or not finite.

    Examples
    --------
    >>> import goffish as gf
    >>> from types import SimpleNamespace
    >>> from goffish.spark import from_graphframe, session, vertices_and_edges
    >>> vertices, edges = vertices_and_edges(gf.from_edges([1, 2], [2, 3]), spark=session())
    >>> from_graphframe(SimpleNamespace(vertices=vertices, edges=edges), directed=False)
    Graph(3 vertices, 2 edges, undirected)
    """
    vertices, edges = frames_of(frame)
    wanted = ["src", "dst", *([] if weight is None else [weight])]
    _need(edges, wanted, "edges")
    ids = vertices.select("id").toArrow().column(0)
    ends = edges.select(*wanted).toArrow()
    graph = from_edges(
        ends.column(0), ends.column(1), None if weight is None else ends.column(2), directed=directed,
        self_loops="keep", isolated=ids,
    )  # fmt: skip
    distinct = ids.unique()
    if len(distinct) < len(ids):
        raise InputError("vertices: the column id has duplicate values")
    if len(distinct) < graph.num_vertices:
        known = distinct.cast(graph.label_column().type)
        strangers = graph.label_column().filter(pc.invert(pc.is_in(graph.label_column(), known)))
        raise InputError(f"edges: {strangers[0].as_py()!r} is the end of an edge but not in vertices.id")
    return graph


def to_graphframe(graph: PartitionedGraph | Graph, *, spark: SparkSession | None = None) -> GraphFrame:
    """Convert a graph to a GraphFrame; executors read it from its store.

    Parameters
    ----------
    graph : PartitionedGraph or Graph
        Graph to convert; see `vertices_and_edges`.
    spark : SparkSession, optional
        Session with the GraphFrames jars, as created by ``session(graphframes=True)`` [default: the running session].

    Returns
    -------
    graphframes.GraphFrame
        The DataFrames of `vertices_and_edges`.

    Raises
    ------
    InputError
        As in `vertices_and_edges`, or if graphframes-py or its jar is missing; the message says how to add it.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.spark import session, to_graphframe
    >>> frame = to_graphframe(gf.from_edges([1], [2]), spark=session(graphframes=True))  # doctest: +SKIP
    """
    with needed_for("GraphFrames"):
        graphframes = import_module("graphframes")
    own = running_session(spark)
    if is_connect(own):
        raise InputError("spark: GraphFrames needs a classic SparkSession; on Spark Connect use vertices_and_edges")
    if not has_graphframes(own):
        raise InputError(f"this Spark session was started without the GraphFrames jar: {GRAPHFRAMES_ADVICE}")
    frame: GraphFrame = graphframes.GraphFrame(*vertices_and_edges(graph, spark=own))
    return frame


def vertices_and_edges(
    graph: PartitionedGraph | Graph, *, spark: SparkSession | None = None
) -> tuple[DataFrame, DataFrame]:
    """Convert a graph to two DataFrames, with the columns that GraphFrames expects.

    Parameters
    ----------
    graph : PartitionedGraph or Graph
        Graph to convert. Executors read a store themselves, at its path or URI; a graph in memory passes through the
        driver.
    spark : SparkSession, optional
        Session [default: the running session, or `goffish.spark.session`].

    Returns
    -------
    vertices : DataFrame
        ``id`` (the label, bigint or string) and the vertex attributes.
    edges : DataFrame
        ``src``, ``dst``, ``weight`` if the graph has weights, and the edge attributes. An undirected edge is two rows,
        one for each direction; a self-loop is one row.

    Raises
    ------
    InputError
        If `graph` is not a graph, or an attribute has the name of another column or a type that Spark does not support.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.spark import session, vertices_and_edges
    >>> vertices, edges = vertices_and_edges(gf.from_edges([1, 2], [2, 3]), spark=session())
    >>> edges.columns, edges.count()
    (['src', 'dst'], 4)
    """
    expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    own = running_session(spark)
    if isinstance(graph, PartitionedGraph):
        if graph.path is not None and not graph.path.startswith("memory:") and graph.num_partitions:
            return _from_store(graph, graph.path, own)
        graph = graph.to_graph()
    labels = graph.label_column()
    vertices = _columns({"id": labels}, _dictionary(graph.vertex_attributes), "vertex")
    ends: dict[str, Any] = {
        "src": labels.take(pa.array(graph.arc_sources())),
        "dst": labels.take(pa.array(graph.targets)),
    }
    if graph.weights is not None:
        ends["weight"] = graph.weights
    attributes = graph.edge_attributes
    if attributes is not None and graph.edge_of_arc is not None:
        attributes = attributes.take(pa.array(graph.edge_of_arc))
    edges = _columns(ends, _dictionary(attributes), "edge")
    return _frame(own, vertices), _frame(own, edges)


# -- tasks


@dataclass(frozen=True)
class _Rows(ABC):
    """Rows of partition numbers → rows of a DataFrame, made from the slices of these partitions."""

    path: str
    fingerprint: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                table = self.table(open_slice(self.path, self.fingerprint, partition)[1])
                yield from table.select(self.schema.names).cast(self.schema).to_batches(max_chunksize=_BATCH_ROWS)

    @abstractmethod
    def table(self, part: Slice) -> pa.Table:
        """All rows of one partition."""


class _Vertices(_Rows):
    def table(self, part: Slice) -> pa.Table:
        names = [name for name in self.schema.names if name != "id"]
        return pa.table({"id": part.labels(), **{name: part.column(f"vertex.{name}") for name in names}})


class _Numbers(_Rows):
    """The partitioned number of every vertex, and its label."""

    def table(self, part: Slice) -> pa.Table:
        return pa.table({"far": np.arange(part.num_vertices) + part.vertex_start, "dst": part.labels()})


class _Edges(_Rows):
    """Arcs inside of subgraphs; or those between subgraphs, whose far end is only known by its number."""

    def table(self, part: Slice) -> pa.Table:
        far = "far" in self.schema.names
        arcs, labels = part.out_arcs, part.labels()
        remote = arcs.targets < 0
        chosen = np.flatnonzero(remote if far else ~remote)
        source = np.repeat(np.arange(part.num_vertices), np.diff(arcs.offsets))[chosen]
        unit = np.searchsorted(part.subgraph_offsets, source, side="right") - 1
        columns: dict[str, Any] = {"src": labels.take(pa.array(source))}
        targets = arcs.targets[chosen].astype(np.int64)
        if far:
            columns["far"] = arcs.remote_vertex[arcs.remote_offsets[unit] + ~targets].astype(np.int64)
        else:
            columns["dst"] = labels.take(pa.array(part.subgraph_offsets[unit] + targets))
        for name in self.schema.names:
            if name == "weight" and part.weighted:
                columns[name] = np.asarray(part.column("weight"))[chosen]
            elif name not in columns:
                rows = np.asarray(part.column("edge_row"))[chosen]
                columns[name] = part.column(f"edge.{name}").take(pa.array(rows))
        return pa.table(columns)


def _from_store(graph: PartitionedGraph, path: str, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    first, info = graph.slice(0), graph.info
    place = (path if "://" in path else os.path.abspath(path), graph.fingerprint())  # noqa: PTH100
    none = np.empty(0, np.float64)
    label = first.labels().slice(0, 0)
    vertices = _columns(
        {"id": label}, {name: first.column(f"vertex.{name}").slice(0, 0) for name in info.vertex_schema}, "vertex"
    )
    attributes = {name: first.column(f"edge.{name}").slice(0, 0) for name in info.edge_schema}
    edges = _columns({"src": label, "dst": label, **({"weight": none} if info.weighted else {})}, attributes, "edge")
    cut = edges.drop_columns("dst").append_column("far", pa.array([], pa.int64()))
    numbers = pa.table({"far": pa.array([], pa.int64()), "dst": label})

    def made(kind: type[_Rows], sample: pa.Table) -> DataFrame:
        schema, arrow = schemas_of(sample)
        rows = spark.range(0, graph.num_partitions, 1, graph.num_partitions)
        return rows.mapInArrow(kind(*place, arrow), schema)

    inside = made(_Edges, edges)
    between = made(_Edges, cut).join(made(_Numbers, numbers), "far").select(*edges.column_names)
    return made(_Vertices, vertices), inside.unionAll(between)


# -- columns


def _columns(own: Mapping[str, Any], attributes: Mapping[str, Any], what: str) -> pa.Table:
    for name in attributes:
        if name in own:
            raise InputError(f"{what} attribute {name!r}: the DataFrame already has a column of this name; rename it")
    return pa.table({**own, **attributes})


def _dictionary(table: pa.Table | None) -> dict[str, Any]:
    return {} if table is None else {name: table[name] for name in table.column_names}


def schemas_of(table: pa.Table) -> tuple[Any, pa.Schema]:
    """Return the Spark types of the columns of a table, and the Arrow types that Spark requires for them."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    signed = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
    try:
        schema = from_arrow_schema(pa.schema([one.with_type(signed.get(one.type, one.type)) for one in table.schema]))
        return schema, to_arrow_schema(schema)
    except Exception as error:
        raise InputError(f"an attribute has a type that Spark does not support: {str(error).splitlines()[0]}") from None


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    schema, arrow = schemas_of(table)
    return spark.createDataFrame(table.cast(arrow), schema)


def frames_of(frame: Any) -> tuple[DataFrame, DataFrame]:
    vertices, edges = getattr(frame, "vertices", None), getattr(frame, "edges", None)
    if not (hasattr(vertices, "toArrow") and hasattr(edges, "toArrow")):
        raise InputError(
            f"{type(frame).__name__} is not a GraphFrame, nor an object with the DataFrames vertices and edges"
        )
    _need(vertices, ["id"], "vertices")
    _need(edges, ["src", "dst"], "edges")
    return vertices, edges


def _need(frame: DataFrame, names: list[str], which: str) -> None:
    for name in names:
        if name not in frame.columns:
            raise InputError(f"{which}: no column {name!r}; available: {', '.join(frame.columns)}")

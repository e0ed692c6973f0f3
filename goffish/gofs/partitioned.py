"""Partitioned graphs, in memory or backed by a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish import hooks
from goffish.errors import InputError
from goffish.gofs import kernels, selection
from goffish.gofs.encoding import is_template
from goffish.gofs.files import Folder, open_folder, side_by_side
from goffish.gofs.manifest import FileEntry, GraphInfo, Manifest
from goffish.gofs.slices import Slice
from goffish.gofs.store import (
    Companions,
    check_sizes,
    fingerprint_of,
    load_slice,
    read_checked,
    read_column,
    read_manifest,
    write_store,
)
from goffish.gofs.tables import LazyTable, edge_table, vertex_table
from goffish.graph import Graph
from goffish.graph.guards import check_choice, whole_number
from goffish.graph.labels import vertex_dtype
from goffish.graph.selection import checked_mask, truth_values
from goffish.notebook import facts_html


class PartitionedGraph:
    """Graph divided into partitions and subgraphs, in memory or backed by a store.

    Returned by `partition` and `open`. Each slice (the arrays of a partition) is loaded on first use.

    Attributes
    ----------
    info : GraphInfo
        Sizes, schema and partitioner.
    vertex_starts, subgraph_starts : int64, shape (partitions + 1,)
        First vertex and first subgraph number of each partition.
    path : str or None
        Location of the store; ``None`` for a graph in memory.
    companions : callable or None
        Yields the time series files of a partition, which `save` copies.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.partition(gf.from_edges([1, 2, 5], [2, 3, 6]), parts=1)
    PartitionedGraph(5 vertices, 3 edges, 1 partitions, 2 subgraphs)
    """

    def __init__(
        self,
        info: GraphInfo,
        load: Callable[[int], Slice],
        *,
        path: str | None = None,
        fingerprint: str | None = None,
        companions: Companions | None = None,
        read: Callable[[int, str], Any] | None = None,
        readers: int = 1,
    ) -> None:
        self.info = info
        self.path = path
        self.companions = companions
        self.vertex_starts = np.concatenate(([0], np.cumsum(info.vertices, dtype=np.int64)))
        self.subgraph_starts = np.concatenate(([0], np.cumsum(info.subgraphs, dtype=np.int64)))
        self._load, self._read, self._readers = load, read, readers
        self._slices: dict[int, Slice] = {}
        self._labels: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._fingerprint = fingerprint

    @property
    def num_partitions(self) -> int:
        """Number of partitions."""
        return self.info.num_partitions

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self.info.num_vertices

    @property
    def num_edges(self) -> int:
        """Number of edges; an undirected edge counts once."""
        return self.info.num_edges

    @property
    def num_subgraphs(self) -> int:
        """Number of subgraphs in all partitions."""
        return self.info.num_subgraphs

    def slice(self, partition: int) -> Slice:
        """Return the arrays of one partition.

        Parameters
        ----------
        partition : int
            Partition number, from 0.

        Returns
        -------
        Slice
            Topology, vertex numbers and columns of the partition.

        Raises
        ------
        InputError
            If the partition does not exist.
        StoreError
            If the slice is missing or damaged.
        """
        if not 0 <= partition < self.num_partitions:
            raise InputError(f"partition {partition} does not exist; the graph has {self.num_partitions} partitions")
        found = self._kept(partition)
        if found is None:
            found = self._load(partition)
            with self._lock:
                found = self._slices.setdefault(partition, found)
        return found

    def _kept(self, partition: int) -> Slice | None:
        with self._lock:
            return self._slices.get(partition)

    def _parts(self, *, keep: bool = False) -> selection.Partitions:
        """The partitions for parts and tables, which are kept for later calls, or only if earlier calls kept them."""

        def passing(partition: int) -> Slice:
            return self._kept(partition) or self._load(partition)

        def column(partition: int, name: str) -> Any:
            part = self._kept(partition)
            if part is None and self._read is None:
                part = passing(partition)
            if part is not None:
                return part.vertex_ids if name == "vertex_id" else part.column(name)
            assert self._read is not None
            if not keep or name.startswith("vertex."):
                return self._read(partition, name)
            if partition not in self._labels:
                self._labels[partition] = self._read(partition, name)
            return self._labels[partition]

        return selection.Partitions(self.info, self.vertex_starts, self.slice if keep else passing, column)

    def slices(self, threads: int = 1) -> list[Slice]:
        """Return the arrays of all partitions.

        Parameters
        ----------
        threads : int
            Partitions that are read at a time; more in object storage [default: 1].

        Returns
        -------
        list of Slice
            One slice per partition, in order.
        """
        return side_by_side(max(threads, self._readers), self.slice, range(self.num_partitions))

    def find(self, label: int | str) -> int:
        """Look up the partitioned number of a vertex.

        Parameters
        ----------
        label : int or str
            Vertex label.

        Returns
        -------
        int
            Partitioned number.

        Raises
        ------
        InputError
            If the label is not a vertex of the graph.
        StoreError
            If a file is missing or damaged.

        Notes
        -----
        Reads the labels of one partition after another until the vertex is found, and keeps them.
        """
        return int(selection.find_vertices(self._parts(keep=True), [label])[0])

    def labels_of(self, numbers: NDArray[np.integer[Any]]) -> pa.Array:
        """Return the labels of partitioned numbers.

        Parameters
        ----------
        numbers : array of int
            Partitioned numbers.

        Returns
        -------
        pyarrow.Array
            One label per number; read from the partitions that own the vertices.

        Raises
        ------
        InputError
            If there is no such vertex.
        """
        given = np.asarray(numbers)
        if given.size and not 0 <= given.min() <= given.max() < self.num_vertices:
            raise InputError(f"numbers: accepted are 0 to {self.num_vertices - 1}")
        return selection.labels_of(self._parts(keep=True), given)

    def neighbors(self, vertex: int) -> NDArray[np.integer[Any]]:
        """Return the out-neighbors of a vertex; reads one partition.

        Parameters
        ----------
        vertex : int
            Partitioned number, as from `find`.

        Returns
        -------
        array of int32 or int64
            Partitioned numbers, ascending.

        Raises
        ------
        InputError
            If there is no such vertex.

        Examples
        --------
        >>> import goffish as gf
        >>> cut = gf.partition(gf.from_edges(["ann", "bob"], ["bob", "eve"]), parts=2)
        >>> cut.labels_of(cut.neighbors(cut.find("ann"))).to_pylist()
        ['bob']
        """
        if whole_number(vertex, "vertex", 0) >= self.num_vertices:
            raise InputError(f"vertex={vertex}: accepted are 0 to {self.num_vertices - 1}")
        return selection.neighbors(self._parts(keep=True), vertex)

    @property
    def vertices(self) -> LazyTable:
        """The vertices as a table that is read while it is used: ``vertex`` (label), then the vertex attributes.

        Rows are in partitioned order. Libraries that read Arrow streams take the table, as in
        ``polars.DataFrame(store.vertices)``; its methods `select` and `filter` leave files unread, and `to_reader`
        returns a ``pyarrow.RecordBatchReader``. At most one partition is in memory.
        """
        return vertex_table(self._parts())

    @property
    def edges(self) -> LazyTable:
        """The edges as a table that is read while it is used: ``source``, ``target``, ``weight``, then the attributes.

        Rows are as those of `Graph.edges`, in the order of the partitions of their sources; see `vertices`. In memory
        are at most one partition and the labels of all vertices.
        """
        return edge_table(self._parts())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.edges.__arrow_c_stream__(requested_schema)

    def degrees(self) -> pa.Table:
        """Return the degrees of all vertices.

        Returns
        -------
        pyarrow.Table
            As `Graph.degrees`, in original order. Strengths are sums in another order, which may round otherwise.

        Raises
        ------
        StoreError
            If a slice is missing or damaged.

        Notes
        -----
        Reads topology, weights and labels of one partition at a time; the table is in memory.
        """
        return selection.degrees(self._parts())

    def subgraph(self, vertices: Any) -> Graph:
        """Return the graph of some vertices and the edges between them, in memory.

        Parameters
        ----------
        vertices : array-like of int or str, or of bool
            Labels, or a truth value for each vertex in original order.

        Returns
        -------
        Graph
            As `Graph.subgraph` of the whole graph.

        Raises
        ------
        InputError
            If a label is unknown, or there are more or fewer truth values than vertices.
        StoreError
            If a slice is missing or damaged.

        Notes
        -----
        Reads the labels until all vertices are found, and then the partitions that own them. In memory are the topology
        of these partitions (mapped, in a local store) and the result twice.

        Examples
        --------
        >>> import goffish as gf
        >>> graph = gf.from_edges(["ann", "bob", "ann"], ["bob", "eve", "eve"])
        >>> _ = gf.partition(graph, parts=2).save("friends.store")
        >>> gf.open("friends.store").subgraph(["ann", "bob"]).edges.to_pylist()
        [{'source': 'ann', 'target': 'bob'}]
        """
        mask = truth_values(vertices, self.num_vertices)
        if mask is not None:
            parts = self._parts()
            return selection.collect(parts, selection.by_original(parts, mask))
        parts = self._parts(keep=True)
        return selection.collect(parts, selection.listed(parts, selection.find_vertices(parts, vertices)))

    def filter(self, *, vertices: Any = None, edges: Any = None) -> Graph:
        """Return the graph of the vertices and edges for which conditions hold, in memory.

        Parameters
        ----------
        vertices : pyarrow.compute.Expression or array of bool, optional
            Condition over the columns of `vertices` and `degrees` [default: all]; truth values are in original order.
        edges : pyarrow.compute.Expression or array of bool, optional
            Condition over the columns of `edges` [default: all]; truth values are in the order of `Graph.edges`.

        Returns
        -------
        Graph
            As `Graph.filter` of the whole graph.

        Raises
        ------
        InputError
            If there is no such column, or the values are not truth values.
        StoreError
            If a slice is missing or damaged.

        Notes
        -----
        Reads the columns that the condition of vertices is about, one partition at a time, and then the partitions with
        vertices for which it holds. In memory are the topology of these (mapped, in a local store) and the result
        twice.

        Examples
        --------
        >>> import goffish as gf
        >>> import pyarrow.compute as pc
        >>> cut = gf.partition(gf.from_edges([1, 2, 3], [2, 3, 4], [0.5, 1.5, 2.5]), parts=2)
        >>> cut.filter(vertices=pc.field("degree") > 1, edges=pc.field("weight") > 1).edges.to_pylist()
        [{'source': 2, 'target': 3, 'weight': 1.5}]
        """
        parts = self._parts()
        kept = selection.all_vertices(parts)
        if vertices is not None:
            kept = selection.vertex_condition(parts, vertices, self.vertices.schema)
        if edges is None:
            return selection.collect(parts, kept)
        if isinstance(edges, pc.Expression):
            return selection.collect(parts, kept, selection.edge_condition(edges, self.edges.schema))
        chosen = selection.numbered_edges(parts, checked_mask(edges, self.num_edges, "edges", "edges"))
        graph = selection.collect(parts, selection.all_vertices(parts), lambda labels: chosen)
        if vertices is None:
            return graph
        mask = np.concatenate([kept[partition] for partition in range(self.num_partitions)])
        return graph.subgraph(mask[np.argsort(selection.original_numbers(parts), kind="stable")])

    def component(self, vertex: int | str) -> Graph:
        """Return the connected component of a vertex, in memory; edge directions are ignored.

        Parameters
        ----------
        vertex : int or str
            Vertex label.

        Returns
        -------
        Graph
            As `Graph.component` of the whole graph.

        Raises
        ------
        InputError
            If the label is unknown.
        StoreError
            If a slice is missing or damaged.

        Notes
        -----
        Reads labels until the vertex is found, and then the partitions of the component, which are kept.
        """
        parts = self._parts(keep=True)
        return selection.collect(parts, selection.near(parts, selection.find_vertices(parts, [vertex]), None, "both"))

    def largest_component(self) -> Graph:
        """Return the connected component with the most vertices, in memory; edge directions are ignored.

        Returns
        -------
        Graph
            As `Graph.largest_component` of the whole graph.

        Raises
        ------
        StoreError
            If a slice is missing or damaged.

        Notes
        -----
        Reads one topology at a time, with 8 bytes for each vertex in memory, and then the partitions of the component.
        """
        parts = self._parts()
        return selection.collect(parts, selection.largest(parts))

    def ego(self, vertices: Any, *, radius: int = 1, direction: Literal["out", "in", "both"] = "out") -> Graph:
        """Return the graph of what is near some vertices, in memory.

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
            As `Graph.ego` of the whole graph.

        Raises
        ------
        InputError
            If a label is unknown, or an option is not accepted.
        StoreError
            If a slice is missing or damaged.

        Notes
        -----
        Reads labels until the vertices are found, and then the partitions that are reached. These are kept: later calls
        do not read them again. In memory are their topology (mapped, in a local store) and the result twice.

        Examples
        --------
        >>> import goffish as gf
        >>> _ = gf.partition(gf.from_edges([1, 2, 3], [2, 3, 4]), parts=2).save("path.store")
        >>> gf.open("path.store").ego(2)
        Graph(3 vertices, 2 edges, undirected)
        """
        check_choice("direction", direction, ("out", "in", "both"))
        steps, parts = whole_number(radius, "radius", 0), self._parts(keep=True)
        return selection.collect(
            parts, selection.near(parts, selection.find_vertices(parts, vertices), steps, direction)
        )

    def labels(self) -> pa.Array:
        """Return the labels of all vertices in partitioned order.

        Returns
        -------
        pyarrow.Array
            Labels, int64 or string.
        """
        return pa.concat_arrays([part.labels() for part in self.slices()]) if self.num_partitions else pa.array([])

    def vertex_ids(self) -> NDArray[np.integer[Any]]:
        """Return the original vertex number of each partitioned number.

        Returns
        -------
        array of int, shape (n,)
            Vertex numbers in the graph as it was read.
        """
        parts = [part.vertex_ids for part in self.slices()]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def read_order(self) -> NDArray[np.int64]:
        """Return the partitioned number of each original vertex number, the inverse of `vertex_ids`.

        Returns
        -------
        int64, shape (n,)
            Index that reorders a column from partitioned to original order.
        """
        original = self.vertex_ids()
        order = np.empty(original.size, np.int64)
        order[original] = np.arange(original.size)
        return order

    def labels_by_number(self) -> pa.Array:
        """Return the labels of all vertices in original order.

        Returns
        -------
        pyarrow.Array
            Labels, int64 or string.
        """
        return self.labels().take(pa.array(self.read_order()))

    def describe(self) -> dict[str, Any]:
        """Return sizes, schema and partitioner, without reading a slice.

        Returns
        -------
        dict
            Plain values: ``path``, ``vertices``, ``edges``, ``partitions``, ``subgraphs``, ``directed``, ``weighted``,
            ``label_type``, ``vertex_schema``, ``edge_schema``, ``partitioner``, ``finder`` and, per partition,
            ``arcs``, ``remote``, ``part_vertices`` and ``part_subgraphs``.
        """
        return {
            "path": self.path,
            "vertices": self.num_vertices,
            "edges": self.num_edges,
            "partitions": self.num_partitions,
            "subgraphs": self.num_subgraphs,
            **{k: v for k, v in asdict(self.info).items() if k not in ("num_edges", "vertices", "subgraphs")},
            "part_vertices": list(self.info.vertices),
            "part_subgraphs": list(self.info.subgraphs),
        }

    def owner(self) -> NDArray[np.int32]:
        """Return the partition of each vertex, in original order.

        Returns
        -------
        int32, shape (n,)
            Partition numbers.
        """
        owner = np.repeat(np.arange(self.num_partitions, dtype=np.int32), self.info.vertices)
        return owner[self.read_order()]

    def fingerprint(self) -> str:
        """Return the SHA-256 of topology, weights, labels, attributes and partitioner.

        Returns
        -------
        str
            Hexadecimal digest; a store and the graph that it was written from have the same.
        """
        if self._fingerprint is None:
            self._fingerprint = fingerprint_of(self.info, self.slices())
        return self._fingerprint

    def to_graph(self) -> Graph:
        """Assemble the graph in memory, with its original vertex numbers.

        Returns
        -------
        Graph
            The unpartitioned graph.

        Raises
        ------
        InputError
            If edge attributes do not cover all edges.
        StoreError
            If a slice is missing or damaged.
        """
        kind = vertex_dtype(self.num_vertices)
        original = self.vertex_ids()
        degrees = np.zeros(self.num_vertices + 1, np.int64)
        for part in self.slices():
            degrees[part.vertex_ids.astype(np.int64) + 1] = np.diff(part.out_arcs.offsets)
        offsets = np.cumsum(degrees)
        targets = np.empty(int(offsets[-1]), kind)
        weights = np.empty(targets.size) if self.info.weighted else None
        edge_row = np.empty(targets.size, np.int64) if self.info.edge_schema else None
        arc = np.empty(targets.size, np.int64)
        for part in self.slices():
            rows = part.out_arcs
            kernels.restore_rows(
                rows.offsets, rows.targets, part.subgraph_offsets, rows.remote_offsets, rows.remote_vertex,
                part.vertex_start, original, part.vertex_ids, offsets, targets, arc,
            )  # fmt: skip
            if weights is None and edge_row is None:
                continue
            mine = arc_positions(offsets, part.vertex_ids)
            if weights is not None:
                weights[mine] = part.column("weight")[arc[mine]]
            if edge_row is not None:
                edge_row[mine] = part.column("edge_id")[part.column("edge_row")[arc[mine]]]
        return Graph(
            offsets, targets, self.info.directed, self.num_edges, weights,
            None if self.info.label_type == "implicit" else self.labels_by_number(),
            self._vertex_table(self.read_order()), self._edge_table(edge_row), edge_row,
        )  # fmt: skip

    def _vertex_table(self, order: NDArray[np.int64]) -> pa.Table | None:
        if not self.info.vertex_schema:
            return None
        columns = {
            name: pa.chunked_array([c for part in self.slices() for c in part.column(f"vertex.{name}").chunks]).take(
                pa.array(order)
            )
            for name in self.info.vertex_schema
        }
        return pa.table(columns)

    def _edge_table(self, edge_row: NDArray[np.int64] | None) -> pa.Table | None:
        """Edge attributes are stored per partition and edge; cut edges are in two partitions."""
        if edge_row is None:
            return None
        rows = np.concatenate([np.asarray(part.column("edge_id")) for part in self.slices()])
        distinct, first = np.unique(rows, return_index=True)
        if distinct.size != self.num_edges:
            raise InputError(f"edge attributes cover {distinct.size} of {self.num_edges} edges")
        columns = {
            name: pa.chunked_array([c for part in self.slices() for c in part.column(f"edge.{name}").chunks]).take(
                pa.array(first)
            )
            for name in self.info.edge_schema
        }
        return pa.table(columns)

    def save(self, path: str | Path) -> PartitionedGraph:
        """Write the graph as a GoFS store and open it.

        A time series in the store from which the graph was opened is copied too.

        Parameters
        ----------
        path : str or path-like
            Local folder or fsspec URI. A store there is replaced in one step.

        Returns
        -------
        PartitionedGraph
            The graph, backed by the store.

        Raises
        ------
        StoreError
            If the folder cannot be written or holds other files.
        """
        write_store(self, path)
        return open_store(path)

    def instances(
        self, start: Any = None, end: Any = None, attributes: Sequence[str] | None = None, *, reverse: bool = False
    ) -> list[Any]:
        """Return the instances of the time series in the store; attributes are read on first use.

        Parameters
        ----------
        start, end : int, datetime or str, optional
            Select instances that start at `start` or later and before `end`: numbers on the axis of the series, or
            dates and ISO 8601 strings [default: all].
        attributes : sequence of str, optional
            Attributes that may be read (``vertex.NAME``, ``edge.NAME``) [default: all].
        reverse : bool
            Return the last instance first [default: False].

        Returns
        -------
        list of Instance
            The selected instances.

        Raises
        ------
        InputError
            If the graph is not backed by a store, an attribute is unknown, or the range is outside the series.
        StoreError
            If the store has no time series.
        """
        if self.path is None:
            raise InputError("only stores have instances; write one with goffish.gofs.series.write_series and open it")
        return list(hooks.open_series(self.path).instances(start, end, attributes, reverse=reverse))

    def run(self, algorithm: Any, engine: str = "local", **options: Any) -> Any:
        """Run an algorithm by name, or your own program, on this graph.

        Parameters
        ----------
        algorithm : str or SubgraphProgram
            Name of an algorithm, or an instance of your program.
        engine : {"local", "mpi", "spark"}
            Engine [default: "local"].
        **options
            Options of the run and of the algorithm; see `goffish.run`.

        Returns
        -------
        Result
            See `goffish.run`.

        Raises
        ------
        InputError
            If the algorithm, an option or a vertex label is unknown or out of range.
        JobError
            If the program fails while it runs.
        """
        return hooks.run(algorithm, self, engine=engine, **options)

    def __repr__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return (
            f"PartitionedGraph({self.num_vertices:,} vertices, {self.num_edges:,} edges, "
            f"{self.num_partitions} partitions, {self.num_subgraphs:,} subgraphs{where})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "vertices": self.num_vertices, "edges": self.num_edges, "partitions": self.num_partitions,
            "subgraphs": self.num_subgraphs, "directed": self.info.directed,
            "method": self.info.partitioner.get("method", "unknown"),
        }  # fmt: skip
        return facts_html("PartitionedGraph", facts if self.path is None else facts | {"store": str(self.path)})


def arc_positions(offsets: NDArray[np.int64], rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Arc positions of some rows, row after row."""
    lengths = offsets[rows.astype(np.int64) + 1] - offsets[rows]
    before = np.cumsum(lengths) - lengths
    return np.repeat(offsets[rows] - before, lengths) + np.arange(int(lengths.sum()))


def open_store(path: str | Path) -> PartitionedGraph:
    """Open a store and check its format, version and file sizes.

    Slices are mapped, and their checksums verified, on first use.

    Parameters
    ----------
    path : str or path-like
        Local folder or fsspec URI.

    Returns
    -------
    PartitionedGraph
        The graph, backed by the store.

    Raises
    ------
    StoreError
        If the store is missing, damaged, not a GoFFish store, or written by a newer version.

    Examples
    --------
    >>> import goffish as gf
    >>> _ = gf.partition(gf.from_edges([1, 2], [2, 3]), parts=1).save("path.store")
    >>> gf.open("path.store").num_edges
    2
    """
    folder = open_folder(path)
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    return open_version(folder, manifest)


def open_version(folder: Folder, manifest: Manifest) -> PartitionedGraph:
    """The graph of a store as a manifest describes it; files are checked when they are read."""
    return PartitionedGraph(
        manifest.info,
        lambda partition: load_slice(folder, manifest, partition),
        path=folder.location,
        fingerprint=manifest.fingerprint(),
        companions=lambda partition: _companions(folder, manifest, partition),
        read=lambda partition, name: read_column(folder, manifest, partition, name),
        readers=folder.at_once,
    )


def _companions(folder: Folder, manifest: Manifest, partition: int) -> Iterator[tuple[str, pa.Buffer, FileEntry]]:
    """Files that are not the template's own: those of its instances go with it wherever it is saved."""
    for kind, entry in manifest.files[partition].items():
        if not is_template(kind):
            yield kind, read_checked(folder, entry), entry

"""Partitioned graphs, in memory or backed by a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish import hooks
from goffish.errors import InputError
from goffish.gofs import kernels
from goffish.gofs.encoding import is_template
from goffish.gofs.files import Folder, open_folder
from goffish.gofs.manifest import FileEntry, GraphInfo, Manifest
from goffish.gofs.slices import Slice
from goffish.gofs.store import (
    Companions,
    check_sizes,
    fingerprint_of,
    load_slice,
    read_checked,
    read_manifest,
    write_store,
)
from goffish.graph import Graph
from goffish.graph.labels import vertex_dtype
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
    ) -> None:
        self.info = info
        self.path = path
        self.companions = companions
        self.vertex_starts = np.concatenate(([0], np.cumsum(info.vertices, dtype=np.int64)))
        self.subgraph_starts = np.concatenate(([0], np.cumsum(info.subgraphs, dtype=np.int64)))
        self._load = load
        self._slices: dict[int, Slice] = {}
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
        with self._lock:
            found = self._slices.get(partition)
        if found is None:
            found = self._load(partition)
            with self._lock:
                found = self._slices.setdefault(partition, found)
        return found

    def slices(self) -> list[Slice]:
        """Return the arrays of all partitions.

        Returns
        -------
        list of Slice
            One slice per partition, in order.
        """
        return [self.slice(p) for p in range(self.num_partitions)]

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
        """
        for part in self.slices():
            local = part.find(label)
            if local >= 0:
                return part.vertex_start + local
        raise InputError(
            f"unknown vertex {label!r}: not among the {self.num_vertices:,} vertices of this graph "
            f"with {self.info.label_type} labels"
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
    return PartitionedGraph(
        manifest.info,
        lambda partition: load_slice(folder, manifest, partition),
        path=folder.location,
        fingerprint=manifest.fingerprint(),
        companions=lambda partition: _companions(folder, manifest, partition),
    )


def _companions(folder: Folder, manifest: Manifest, partition: int) -> Iterator[tuple[str, pa.Buffer, FileEntry]]:
    """Files that are not the template's own: those of its instances go with it wherever it is saved."""
    for kind, entry in manifest.files[partition].items():
        if not is_template(kind):
            yield kind, read_checked(folder, entry), entry

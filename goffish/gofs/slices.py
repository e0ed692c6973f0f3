"""The arrays of one partition: its subgraphs' topology, numbered so that every look-up is arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError

Loader = Callable[[str], Any]


@dataclass(frozen=True, eq=False)
class Arcs:
    """Compressed rows of one direction, with the table of remote vertices that they reach.

    Attributes
    ----------
    offsets : int64, shape (n_local + 1,)
        Row pointers into `targets`.
    targets : int32, shape (arcs,)
        Index inside the vertex's own subgraph, or ``~r`` where r is an index into the subgraph's part of
        the remote table. Local targets come first in every row, ascending, then remote ones by ascending r.
    remote_offsets : int64, shape (subgraphs + 1,)
        Each subgraph's rows of the remote table.
    remote_vertex : int32 or int64, shape (remote,)
        Partitioned number of each remote vertex, ascending in each subgraph.
    remote_subgraph : int64, shape (remote,)
        The subgraph that owns it.
    """

    offsets: NDArray[np.int64]
    targets: NDArray[np.int32]
    remote_offsets: NDArray[np.int64]
    remote_vertex: NDArray[np.integer[Any]]
    remote_subgraph: NDArray[np.int64]

    def __post_init__(self) -> None:
        freeze(*vars(self).values())


@dataclass(frozen=True, eq=False)
class Slice:
    """Everything one partition holds.

    Vertices are numbered 0 … n-1 over the whole graph so that each partition, and in it each subgraph, owns
    one contiguous range (the *partitioned numbering*); subgraphs likewise.

    Attributes
    ----------
    partition, vertex_start, subgraph_start : int
        Which partition, and the first vertex and subgraph number it owns.
    subgraph_offsets : int64, shape (subgraphs + 1,)
        Local vertex ranges of the subgraphs.
    out_arcs : Arcs
    in_arcs : Arcs
        The same arcs seen from their targets; identical to `out_arcs` for an undirected graph.
    neighbor_offsets, neighbor_subgraph, neighbor_links
        The rows of the quotient graph: distinct neighboring subgraphs, ascending, and how many remote
        edges lead there (for directed graphs in either direction).
    vertex_ids : int32 or int64, shape (n_local,)
        Vertex number in the graph as it was read; ascending inside a subgraph.
    column : callable
        Further columns, read on first use: ``"label"`` (per vertex), ``"weight"`` and ``"in_weight"`` (per arc),
        ``"vertex.NAME"`` (per vertex), ``"edge.NAME"`` and ``"edge_id"`` (per edge that touches the partition) and
        ``"edge_row"`` (per arc, its row among those edges).
    """

    partition: int
    vertex_start: int
    subgraph_start: int
    directed: bool
    weighted: bool
    subgraph_offsets: NDArray[np.int64]
    out_arcs: Arcs
    in_arcs: Arcs
    neighbor_offsets: NDArray[np.int64]
    neighbor_subgraph: NDArray[np.int64]
    neighbor_links: NDArray[np.int64]
    vertex_ids: NDArray[np.integer[Any]]
    column: Loader

    def __post_init__(self) -> None:
        freeze(*(v for v in vars(self).values() if isinstance(v, np.ndarray)))

    @property
    def num_vertices(self) -> int:
        return int(self.vertex_ids.size)

    @property
    def num_subgraphs(self) -> int:
        return self.subgraph_offsets.size - 1

    @property
    def num_arcs(self) -> int:
        return int(self.out_arcs.targets.size)

    def labels(self) -> pa.Array:
        """The users' labels of the local vertices."""
        column = self.column("label")
        if isinstance(column, np.ndarray):
            return pa.array(column.astype(np.int64, copy=False))
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def find(self, label: int | str) -> int:
        """Local number of the vertex with this label, or -1."""
        labels = self.labels()
        if isinstance(label, str) != pa.types.is_string(labels.type):
            return -1
        if isinstance(label, str):
            return int(labels.index(label).as_py())
        at = np.flatnonzero(labels.to_numpy() == operator.index(label))
        return int(at[0]) if at.size else -1


def freeze(*arrays: NDArray[Any]) -> None:
    """Make arrays read-only, as those mapped from a store are: one type for the kernels, no accidents."""
    for array in arrays:
        array.setflags(write=False)


def distinct(values: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """The distinct values, ascending; several times as fast as `numpy.unique`, which hashes whole numbers."""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))] if ordered.size else ordered


def column_of(values: dict[str, Any], name: str) -> Any:
    """Look a column up, or say which ones there are."""
    if name not in values:
        raise InputError(f"no column {name!r} in this graph; available: {', '.join(sorted(values)) or 'none'}")
    return values[name]

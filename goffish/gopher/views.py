"""Array views of the graph for programs: one subgraph, or all subgraphs of a partition."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs import Arcs, Slice
from goffish.kernels.subgraphs import SubgraphRows


class RemoteArcs(NamedTuple):
    """Arcs of a view that lead to other subgraphs, one row each.

    Attributes
    ----------
    source : int64 array
        Vertex of the view.
    vertex, subgraph : int64 arrays
        Partitioned number of the far end, and the subgraph that owns it.
    """

    source: NDArray[np.int64]
    vertex: NDArray[np.int64]
    subgraph: NDArray[np.int64]


class _View:
    """A contiguous range of the subgraphs of one partition.

    `offsets` point into the partition's whole `targets` (and `weights`): the arcs of local vertex v are
    ``targets[offsets[v]:offsets[v + 1]]``. A target t ≥ 0 is a vertex of the same subgraph, counted from the
    subgraph's first vertex; t < 0 is remote vertex number ``~t`` of that subgraph.
    """

    __slots__ = ("_attribute", "_first", "_last", "_part", "_remotes", "_starts", "_state", "_vertices")

    def __init__(
        self,
        part: Slice,
        starts: NDArray[np.int64],
        state: MutableMapping[str, tuple[str, NDArray[Any]]],
        attribute: Callable[[str], NDArray[Any] | pa.Array],
        first: int,
        last: int,
    ) -> None:
        self._part, self._starts, self._state, self._attribute = part, starts, state, attribute
        self._first, self._last = first, last
        self._vertices = slice(int(part.subgraph_offsets[first]), int(part.subgraph_offsets[last]))
        remotes = part.out_arcs.remote_offsets
        self._remotes = slice(int(remotes[first]), int(remotes[last]))

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the values of a state column for this view, writable."""
        try:
            level, values = self._state[name]
        except KeyError:
            declared = ", ".join(self._state) or "none"
            raise InputError(f"no state column {name!r}; declared: {declared}") from None
        if level == "vertex":
            return values[self._vertices]
        if level == "remote":
            return values[self._remotes]
        if level == "neighbor":
            return values[self._neighbor_rows]
        if level == "free":
            return values
        return values[self._first : self._last]

    def __setitem__(self, name: str, values: Any) -> None:
        before = self[name]
        if self._state[name][0] == "free":
            self._state[name] = ("free", np.asarray(values, before.dtype))
        else:
            before[...] = values

    @property
    def _neighbor_rows(self) -> slice:
        rows = self._part.neighbor_offsets
        return slice(int(rows[self._first]), int(rows[self._last]))

    @property
    def partition(self) -> int:
        """Partition that owns this view."""
        return self._part.partition

    @property
    def start(self) -> int:
        """Partitioned number of the first vertex: vertex v of the view is ``start + v`` in messages."""
        return self._part.vertex_start + self._vertices.start

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self._vertices.stop - self._vertices.start

    @property
    def num_arcs(self) -> int:
        """Number of arcs that start here, including arcs to remote vertices."""
        offsets = self._part.out_arcs.offsets
        return int(offsets[self._vertices.stop] - offsets[self._vertices.start])

    @property
    def directed(self) -> bool:
        """Whether the graph is directed."""
        return self._part.directed

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Row pointers into `targets`: the arcs of vertex v are ``targets[offsets[v]:offsets[v + 1]]``."""
        return self._part.out_arcs.offsets[self._vertices.start : self._vertices.stop + 1]

    @property
    def targets(self) -> NDArray[np.int32]:
        """Target of each arc of the partition.

        A target t >= 0 is a vertex of the same subgraph; t < 0 is remote vertex ``~t`` of the subgraph.
        """
        return self._part.out_arcs.targets

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """Weight of each arc, aligned with `targets`; ``None`` for an unweighted graph."""
        return self._weights("weight")

    @property
    def in_weights(self) -> NDArray[np.float64] | None:
        """Weight of each incoming arc, aligned with `in_targets`; ``None`` for an unweighted graph."""
        return self._weights("in_weight")

    def _weights(self, name: str) -> NDArray[np.float64] | None:
        weights: NDArray[np.float64] | None = self._part.column(name) if self._part.weighted else None
        return weights

    @property
    def in_offsets(self) -> NDArray[np.int64]:
        """Row pointers into `in_targets`, for the arcs that end here."""
        return self._part.in_arcs.offsets[self._vertices.start : self._vertices.stop + 1]

    @property
    def in_targets(self) -> NDArray[np.int32]:
        """Source of each incoming arc of the partition, encoded like `targets`."""
        return self._part.in_arcs.targets

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Out-degree of each vertex, including arcs to remote vertices."""
        return np.diff(self.offsets)

    @property
    def vertex_ids(self) -> NDArray[np.integer[Any]]:
        """Number of each vertex in the unpartitioned graph."""
        return self._part.vertex_ids[self._vertices]

    @property
    def remote_vertex(self) -> NDArray[np.integer[Any]]:
        """Partitioned number of each remote vertex."""
        return self._part.out_arcs.remote_vertex[self._remotes]

    @property
    def remote_subgraph(self) -> NDArray[np.int64]:
        """Subgraph of each remote vertex."""
        return self._part.out_arcs.remote_subgraph[self._remotes]

    @property
    def subgraph_starts(self) -> NDArray[np.int64]:
        """First subgraph of each partition, followed by the number of subgraphs, shape (partitions + 1,)."""
        return self._starts

    @property
    def remote_partition(self) -> NDArray[np.int64]:
        """Partition of each remote vertex."""
        return np.searchsorted(self._starts, self.remote_subgraph, side="right") - 1

    @property
    def neighbors(self) -> NDArray[np.int64]:
        """Neighboring subgraphs in the quotient graph."""
        return self._part.neighbor_subgraph[self._neighbor_rows]

    @property
    def neighbor_links(self) -> NDArray[np.int64]:
        """Number of remote edges to each neighboring subgraph."""
        return self._part.neighbor_links[self._neighbor_rows]

    def find(self, label: int | str) -> int:
        """Look up a vertex by its label.

        Parameters
        ----------
        label : int or str
            Vertex label.

        Returns
        -------
        int
            Index of the vertex in this view, or -1.
        """
        at = self._part.find(label)
        return at - self._vertices.start if self._vertices.start <= at < self._vertices.stop else -1

    def labels(self) -> pa.Array:
        """Return the labels of the vertices.

        Returns
        -------
        pyarrow.Array
            One label per vertex, int64 or string.
        """
        return self._part.labels()[self._vertices.start : self._vertices.stop]

    def attribute(self, name: str) -> Any:
        """Return an attribute that the program declares in `SubgraphProgram.attributes`.

        Parameters
        ----------
        name : str
            ``"vertex.NAME"`` or ``"edge.NAME"``.

        Returns
        -------
        array or pyarrow.Array
            One value per vertex of the view, or one per arc of the partition, aligned with `targets`.
        """
        values = self._attribute(name)
        return values[self._vertices] if name.startswith("vertex.") else values


class Subgraph(_View):
    """One subgraph: a weakly connected component of the vertices of one partition.

    Read and write a state column with ``sg["name"]``.
    """

    __slots__ = ()

    @property
    def id(self) -> int:
        """Number of the subgraph in the whole graph."""
        return self._part.subgraph_start + self._first

    def out_edges(self, vertex: int) -> NDArray[np.int32]:
        """Return the targets of the arcs of one vertex.

        Parameters
        ----------
        vertex : int
            Index of the vertex in the subgraph.

        Returns
        -------
        array of int32
            Local targets (>= 0) first, then remote targets (< 0); see `targets`.
        """
        offsets = self.offsets
        return self.targets[offsets[vertex] : offsets[vertex + 1]]

    @staticmethod
    def is_remote(target: int) -> bool:
        """Return whether a target is a remote vertex.

        Parameters
        ----------
        target : int
            An entry of `targets`.

        Returns
        -------
        bool
            If ``True``, ``~target`` is its row in the remote table.
        """
        return target < 0


class SubgraphBatch(_View):
    """All subgraphs of one partition; index i represents subgraph ``first_id + i``.

    Read and write a state column with ``batch["name"]``.
    """

    __slots__ = ()

    @property
    def first_id(self) -> int:
        """Number of the first subgraph in the whole graph."""
        return self._part.subgraph_start

    @property
    def num_subgraphs(self) -> int:
        """Number of subgraphs."""
        return self._last - self._first

    @property
    def subgraph_offsets(self) -> NDArray[np.int64]:
        """Vertex range of each subgraph, shape (subgraphs + 1,)."""
        return self._part.subgraph_offsets

    @property
    def remote_offsets(self) -> NDArray[np.int64]:
        """Rows of each subgraph in the remote table, shape (subgraphs + 1,)."""
        return self._part.out_arcs.remote_offsets

    @property
    def rows(self) -> SubgraphRows:
        """Row pointers and targets of all subgraphs, as one argument for kernels."""
        return SubgraphRows(self.subgraph_offsets, self.remote_offsets, self.offsets, self.targets)

    @property
    def in_rows(self) -> SubgraphRows:
        """As `rows`, for the arcs that end here."""
        return SubgraphRows(self.subgraph_offsets, self._part.in_arcs.remote_offsets, self.in_offsets, self.in_targets)

    def remotes(self, *, incoming: bool = False) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        """Return the remote table of `rows` or of `in_rows`.

        Parameters
        ----------
        incoming : bool
            The table of `in_rows` [default: False].

        Returns
        -------
        tuple of arrays
            Partitioned number and subgraph of each remote vertex.
        """
        arcs = self._part.in_arcs if incoming else self._part.out_arcs
        return arcs.remote_vertex, arcs.remote_subgraph

    @property
    def neighbor_offsets(self) -> NDArray[np.int64]:
        """Rows of each subgraph in `neighbors`, shape (subgraphs + 1,)."""
        return self._part.neighbor_offsets

    def subgraph(self, index: int) -> Subgraph:
        """Return a view of one subgraph with the same state.

        Parameters
        ----------
        index : int
            Index in the partition, from 0.

        Returns
        -------
        Subgraph
            The view.
        """
        return Subgraph(self._part, self._starts, self._state, self._attribute, index, index + 1)

    def with_attributes(self, attribute: Callable[[str], NDArray[Any] | pa.Array]) -> SubgraphBatch:
        """Return the same view with other attributes.

        Parameters
        ----------
        attribute : callable
            Takes a name and returns the values per vertex of the partition, or per arc.

        Returns
        -------
        SubgraphBatch
            The view.
        """
        return SubgraphBatch(self._part, self._starts, self._state, attribute, self._first, self._last)

    def subgraph_of_vertex(self) -> NDArray[np.int64]:
        """Return the index of the subgraph of each vertex.

        Returns
        -------
        array of int64, shape (vertices,)
            Indices in the partition.
        """
        return np.repeat(np.arange(self.num_subgraphs), np.diff(self.subgraph_offsets))

    def out_remotes(self) -> RemoteArcs:
        """Return the arcs to vertices of other subgraphs.

        Returns
        -------
        RemoteArcs
            ``source``, ``vertex`` and ``subgraph`` of each arc.
        """
        return self._remote_arcs(self._part.out_arcs)

    def in_remotes(self) -> RemoteArcs:
        """Return the arcs from vertices of other subgraphs.

        Returns
        -------
        RemoteArcs
            ``source`` is the local end; ``vertex`` and ``subgraph`` identify the remote end.
        """
        return self._remote_arcs(self._part.in_arcs)

    def _remote_arcs(self, arcs: Arcs) -> RemoteArcs:
        rows = np.flatnonzero(arcs.targets < 0)
        source = np.searchsorted(arcs.offsets, rows, side="right") - 1
        unit = np.searchsorted(self._part.subgraph_offsets, source, side="right") - 1
        remote = arcs.remote_offsets[unit] + ~arcs.targets[rows]
        return RemoteArcs(source, arcs.remote_vertex[remote].astype(np.int64), arcs.remote_subgraph[remote])

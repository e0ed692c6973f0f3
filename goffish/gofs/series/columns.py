"""From slices to columns: defaults are filled in, and what has neither value nor default is found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.partitioned import PartitionedGraph
from goffish.gofs.series.model import EXISTS, Attribute, SeriesSchema
from goffish.gofs.series.slices import Elements, _plain, _whole
from goffish.gofs.slices import Arcs, Slice

#: Rows of a bin (ascending unless the template has grown); those that have a value, or None for all; their values.
Piece = tuple[NDArray[np.int64], "NDArray[np.integer[Any]] | None", Any]


@dataclass(frozen=True, eq=False)
class Column:
    """Values of all rows of a partition.

    Attributes
    ----------
    values : NumPy or Arrow array
    missing : int64 array or None
        Ascending rows of the partition that were asked for and have neither a value nor a default.
    """

    values: Any
    missing: NDArray[np.int64] | None

    def to_arrow(self, kind: pa.DataType) -> pa.Array:
        """The values with nulls where there are none."""
        if not isinstance(self.values, np.ndarray):
            return self.values
        mask = None
        if self.missing is not None:
            mask = np.zeros(self.values.size, np.bool_)
            mask[self.missing] = True
        return pa.array(self.values, kind, mask=mask)


class Columns:
    """Puts the columns of a series together."""

    def __init__(
        self, schema: SeriesSchema, graph: Callable[[], PartitionedGraph], elements: Callable[[int], Elements]
    ) -> None:
        self._schema, self._graph, self._elements = schema, graph, elements
        self._static: dict[tuple[int, str], Any] = {}
        self._lock = threading.Lock()

    def assemble(self, partition: int, name: str, pieces: Sequence[Piece]) -> Column:
        """The values of all rows of the partition, from what its slices hold."""
        attribute = self._schema[name]
        size = self._elements(partition).count("vertex" if name.startswith("vertex.") else "edge")
        missing = None if attribute.has_default else _missing(pieces)
        ordered = not self._elements(partition).grown
        if ordered and len(pieces) == 1 and pieces[0][1] is None and pieces[0][0].size == size:
            return Column(pieces[0][2], missing)
        default = None
        if attribute.default_column is not None:
            default = self._defaults(partition, name, attribute)
        if attribute.dtype is not None:
            return Column(_fill_plain(attribute, pieces, size, default, ordered=ordered), missing)
        return Column(_fill_arrow(attribute, pieces, size, default), missing)

    def absent(self, name: str, rows: NDArray[np.int64]) -> Piece:
        """Rows that an instance has nothing of, as they are younger: they do not exist, or have the default."""
        if name.endswith(f".{EXISTS}"):
            return rows, None, np.zeros(rows.size, np.bool_)
        attribute = self._schema[name]
        nothing = np.empty(0, attribute.dtype) if attribute.dtype is not None else pa.array([], attribute.arrow_type)
        return rows, rows[:0], nothing

    def refuse(self, partition: int, name: str, instance: int, rows: NDArray[np.int64]) -> None:
        """Reject rows that require a value and have none."""
        what = self._described(partition, name.partition(".")[0], rows[:1])
        others = "" if rows.size == 1 else f" (and {rows.size - 1:,} more)"
        raise InputError(f"instance {instance}: {what}{others} has no {name}, and the attribute has no default")

    def ends(self, partition: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Both ends of some edges (ascending rows) as vertices of the partitioned graph; source and target."""
        part, elements = self._graph().slice(partition), self._elements(partition)
        asked = np.zeros(elements.count("edge"), np.bool_)
        asked[rows] = True
        first, second = np.empty(asked.size, np.int64), np.empty(asked.size, np.int64)
        # Out arcs come last: what they say of the direction holds for an edge that is in both.
        sides = ((part.in_arcs, elements.in_edge_row, second, first), (part.out_arcs, elements.edge_row, first, second))
        for arcs, row_of_arc, near, far in sides:
            # Backwards, so that of both arcs of an undirected edge the first is what stays.
            arc = np.flatnonzero(asked[row_of_arc])[::-1]
            near[row_of_arc[arc]], far[row_of_arc[arc]] = _ends(part, arcs, arc)
        return first[rows], second[rows]

    def _defaults(self, partition: int, name: str, attribute: Attribute) -> Any:
        with self._lock:
            found = self._static.get((partition, name))
        if found is None:
            part, place = self._graph().slice(partition), name.partition(".")[0]
            column = _whole(part.column(f"{place}.{attribute.default_column}")).cast(attribute.arrow_type)
            if place == "edge":
                row = np.searchsorted(part.column("edge_id"), self._elements(partition).edge_id)
                column = column.take(pa.array(row))
            found = _plain(column) if attribute.dtype is not None else column
            with self._lock:
                self._static[partition, name] = found
        return found

    def _described(self, partition: int, place: str, row: NDArray[np.int64]) -> str:
        graph = self._graph()
        if place == "vertex":
            return f"vertex {graph.slice(partition).labels()[int(row[0])].as_py()!r}"
        first, second = (_label(graph, int(end[0])) for end in self.ends(partition, row))
        return f"edge {first!r} - {second!r}"


def _ends(part: Slice, arcs: Arcs, arc: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Vertex that an arc is listed at and the one it points to, in the numbers of the partitioned graph."""
    near = np.searchsorted(arcs.offsets, arc, side="right") - 1
    subgraph = np.searchsorted(part.subgraph_offsets, near, side="right") - 1
    target = arcs.targets[arc].astype(np.int64)
    far = part.vertex_start + part.subgraph_offsets[subgraph] + target
    remote = target < 0
    far[remote] = arcs.remote_vertex[arcs.remote_offsets[subgraph[remote]] + ~target[remote]]
    return part.vertex_start + near, far


def _label(graph: PartitionedGraph, vertex: int) -> Any:
    home = graph.slice(int(np.searchsorted(graph.vertex_starts, vertex, side="right")) - 1)
    return home.labels()[vertex - home.vertex_start].as_py()


def _missing(pieces: Sequence[Piece]) -> NDArray[np.int64] | None:
    found = [np.setdiff1d(rows, given, assume_unique=True) for rows, given, _ in pieces
             if given is not None and given.size < rows.size]  # fmt: skip
    return np.sort(np.concatenate(found)) if found else None


def _fill_plain(
    attribute: Attribute, pieces: Sequence[Piece], size: int, default: NDArray[Any] | None, *, ordered: bool
) -> NDArray[Any]:
    values = np.full(size, attribute.filler, attribute.dtype) if default is None else default.copy()
    for rows, given, some in pieces:
        chosen = rows if given is None else given
        if ordered and chosen.size and int(chosen[-1]) - int(chosen[0]) + 1 == chosen.size:
            values[int(chosen[0]) : int(chosen[-1]) + 1] = some
        else:
            values[chosen] = some
    values.setflags(write=False)
    return values


def _fill_arrow(attribute: Attribute, pieces: Sequence[Piece], size: int, default: Any) -> pa.Array:
    kind = attribute.arrow_type
    if default is None and attribute.is_list and pieces:
        return _fill_lists(attribute, pieces, size)
    if default is None:
        default = pa.array([attribute.filler], kind)
        where = np.zeros(size, np.int64)
    else:
        where = np.arange(size)
    count = len(default)
    for rows, given, some in pieces:
        where[rows if given is None else given] = count + np.arange(len(some))
        count += len(some)
    return pa.concat_arrays([default, *(some for _, _, some in pieces)]).take(pa.array(where))


def _fill_lists(attribute: Attribute, pieces: Sequence[Piece], size: int) -> pa.Array:
    """As `_fill_arrow`, which takes every row by itself; mostly few have a list, the others none or an empty one."""
    rows = np.concatenate([rows if given is None else given for rows, given, _ in pieces])
    some = pa.concat_arrays([values for _, _, values in pieces])
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows)
        rows, some = rows[order], some.take(pa.array(order))
    lengths = np.zeros(size + 1, np.int32)
    lengths[rows + 1] = pc.list_value_length(some).fill_null(0).to_numpy(zero_copy_only=False)
    absent = np.full(size, attribute.filler is None)
    absent[rows] = some.is_null().to_numpy(zero_copy_only=False)
    mask = pa.array(absent) if absent.any() else None
    offsets = pa.array(np.cumsum(lengths, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, some.flatten(), type=attribute.arrow_type, mask=mask)

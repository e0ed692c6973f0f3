"""Parts of a graph: which vertices and edges they have, and the rows that are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.graph import kernels
from goffish.graph.assembly import Parts
from goffish.graph.labels import find_labels, vertex_dtype
from goffish.threads import interruptible

_ALL = np.empty(0, np.bool_)


class VertexValues:
    """A number for each vertex, by label or as an array.

    Parameters
    ----------
    labels : pyarrow.Array or None
    values : array, shape (n,)

    Examples
    --------
    >>> import goffish as gf
    >>> degree = gf.from_edges(["ann", "ann"], ["bob", "eve"]).degree
    >>> degree["ann"], len(degree), degree.to_dict()
    (2, 3, {'ann': 2, 'bob': 1, 'eve': 1})
    """

    def __init__(self, labels: pa.Array | None, values: NDArray[Any]) -> None:
        self._labels, self._values = labels, values

    def __getitem__(self, vertex: int | str) -> Any:
        return self._values[find_labels(self._labels, len(self), [vertex])[0]].item()

    def __len__(self) -> int:
        return self._values.size

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values, dtype=dtype, copy=copy) if copy else np.asarray(self._values, dtype=dtype)

    def to_dict(self) -> dict[Any, Any]:
        """Return the values by label."""
        labels = range(len(self)) if self._labels is None else self._labels.to_pylist()
        return dict(zip(labels, self._values.tolist(), strict=True))

    def __repr__(self) -> str:
        labels = range(len(self)) if self._labels is None else self._labels
        first = ", ".join(f"{name}: {value}" for name, value in zip(labels[:3], self._values[:3], strict=True))
        return f"VertexValues({len(self):,} vertices; {first}{', …' if len(self) > 3 else ''})"


def vertex_mask(labels: pa.Array | None, n: int, vertices: Any) -> NDArray[np.bool_]:
    """Return which vertices are named by labels, or by a truth value for each vertex.

    Raises
    ------
    InputError
        A label is unknown, or the number of truth values is not that of the vertices.
    """
    mask = truth_values(vertices, n)
    if mask is None:
        mask = np.zeros(n, np.bool_)
        mask[find_labels(labels, n, vertices)] = True
    return mask


def truth_values(vertices: Any, n: int) -> NDArray[np.bool_] | None:
    """Return truth values for all vertices as an array, or nothing if they are no truth values.

    Raises
    ------
    InputError
        The number of truth values is not that of the vertices.
    """
    if isinstance(vertices, pa.ChunkedArray):
        vertices = vertices.combine_chunks()
    if isinstance(vertices, pa.Array) and pa.types.is_boolean(vertices.type):
        vertices = vertices.fill_null(False).to_numpy(zero_copy_only=False)
    given = np.asarray(vertices) if isinstance(vertices, list | tuple) or hasattr(vertices, "dtype") else None
    if given is None or given.dtype != np.bool_:
        return None
    return checked_mask(given, n, "vertices", "vertices")


def checked_mask(mask: ArrayLike, size: int, name: str, noun: str) -> NDArray[np.bool_]:
    """Return a mask with one truth value for each vertex or edge."""
    found: NDArray[np.bool_] = np.asarray(mask)
    if found.shape != (size,) or found.dtype != np.bool_:
        raise InputError(f"{name}: {found.dtype} values of shape {found.shape}; accepted is a truth value for each of "
                         f"the {size:,} {noun}")  # fmt: skip
    return found


def condition_mask(table: pa.Table, condition: Any, name: str, noun: str) -> NDArray[np.bool_]:
    """Return in which rows of a table a condition holds.

    Parameters
    ----------
    condition : pyarrow.compute.Expression, or array of bool
        An expression over the columns; rows in which it is null do not count.

    Raises
    ------
    InputError
        There is no such column, or the values are not truth values.
    """
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    if not isinstance(condition, pc.Expression):
        return checked_mask(condition, table.num_rows, name, noun)
    try:
        found = ds.dataset(table).scanner(columns={"holds": condition}).to_table()["holds"].combine_chunks()
    except (pa.ArrowException, ValueError, TypeError) as error:
        columns = ", ".join(table.column_names)
        raise InputError(f"{name}: {str(error).splitlines()[0]}; the columns are {columns}") from None
    if not pa.types.is_boolean(found.type):
        raise InputError(f"{name}: the expression is {found.type}; accepted are conditions, as pc.field('weight') > 1")
    holds: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)
    return holds


def edges_of_arcs(offsets: NDArray[np.int64], targets: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the number of the edge of each arc of an undirected graph, in the order of `Graph.edge_columns`."""
    edge_of_arc = np.empty(targets.size, np.int64)
    kernels.number_edges(offsets, targets, np.empty(0, np.int64), edge_of_arc)
    return edge_of_arc


def select(graph: Parts, vertices: NDArray[np.bool_] | None, arcs: NDArray[np.bool_] | None) -> Parts:
    """Return what is left of a graph.

    Parameters
    ----------
    graph : Parts
    vertices : bool, shape (n,), optional
        Those that stay; all by default.
    arcs : bool, shape (arcs,), optional
        Of arcs between them, those that stay; both arcs of an undirected edge are alike.
    """
    n = graph.offsets.size - 1
    kept = n if vertices is None else int(np.count_nonzero(vertices))
    kind = vertex_dtype(kept)
    if vertices is None:
        number, most = np.arange(n, dtype=kind), graph.targets.size
    else:
        number = np.where(vertices, np.cumsum(vertices, dtype=kind) - 1, -1).astype(kind, copy=False)
        most = int(np.diff(graph.offsets)[vertices].sum())
    offsets, targets = np.zeros(kept + 1, np.int64), np.empty(most, kind)
    rows = np.empty(0 if graph.weights is None and graph.edge_of_arc is None else most, np.int64)
    count, loops = interruptible(
        graph.targets.size, kernels.select_arcs, graph.offsets, graph.targets, number,
        _ALL if arcs is None else arcs, offsets, targets, rows,
    )  # fmt: skip
    targets, rows = targets[:count].copy(), rows[:count]
    edge_of_arc, edge_attributes = graph.edge_of_arc, graph.edge_attributes
    if edge_of_arc is not None and edge_attributes is not None:
        stays = np.zeros(edge_attributes.num_rows, np.bool_)
        stays[edge_of_arc[rows]] = True
        edge_of_arc = (np.cumsum(stays) - 1)[edge_of_arc[rows]]
        edge_attributes = edge_attributes.filter(pa.array(stays))
    labels, vertex_attributes = graph.labels, graph.vertex_attributes
    if vertices is not None:
        mask = pa.array(vertices)
        if labels is not None:
            labels = labels.filter(mask)
        elif not vertices[:kept].all():
            labels = pa.array(np.flatnonzero(vertices))
        vertex_attributes = None if vertex_attributes is None else vertex_attributes.filter(mask)
    return Parts(
        offsets, targets, graph.directed, count if graph.directed else (count - loops) // 2 + loops,
        None if graph.weights is None else graph.weights[rows], labels, vertex_attributes, edge_attributes, edge_of_arc,
    )  # fmt: skip


def near(graph: Parts, back: Parts | None, starts: NDArray[np.int64], radius: int) -> NDArray[np.bool_]:
    """Return the vertices within some steps of others; the arcs of `back` are followed as well."""
    n = graph.offsets.size - 1
    found, queue, starts = np.zeros(n, np.bool_), np.empty(n, graph.targets.dtype), np.unique(starts)
    found[starts] = True
    queue[: starts.size] = starts
    backwards = (np.empty(0, np.int64), graph.targets[:0]) if back is None else (back.offsets, back.targets)
    interruptible(
        graph.targets.size,
        kernels.reach,
        graph.offsets,
        graph.targets,
        *backwards,
        min(radius, n),
        found,
        queue,
        starts.size,
    )
    return found

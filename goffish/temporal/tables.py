"""A time series from tables: one row for every instance and element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, SparseColumn
from goffish.gofs.series.model import Place, Unit, moment_text, type_name
from goffish.graph import Graph
from goffish.graph.columns import as_table
from goffish.graph.guards import GRAPH_ADVICE, expect, options_of
from goffish.graph.labels import as_id_column
from goffish.temporal.building import (
    EdgeFinder,
    SeriesBuild,
    StoreOptions,
    TimeUnit,
    at,
    ends_of,
    label_of,
    length,
    time_column,
    unit_of,
)  # fmt: skip

#: Element numbers, where the rows of each instance begin, and the value columns, ordered by instance.
_Rows = tuple[NDArray[np.int64], NDArray[np.int64], dict[str, pa.Array]]


def build_from_table(
    graph: Graph | PartitionedGraph,
    path: str | Path,
    *,
    vertices: Any = None,
    edges: Any = None,
    starts: Sequence[Any] | None = None,
    ends: Sequence[Any] | None = None,
    period: Any = None,
    time_unit: TimeUnit = "1",
    defaults: Mapping[str, Any] | None = None,
    **more: Any,
) -> SeriesBuild:
    """Write a store with a time series made of tables (Arrow, pandas, polars) with a row for every value.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        The template.
    path
        The store: local folder or fsspec URI.
    vertices : table, optional
        Columns ``instance``, ``vertex`` (a label), and one for every attribute of the vertices.
    edges : table, optional
        Columns ``instance``, ``source``, ``target`` (labels), and one for every attribute of the edges. Of parallel
        edges the first one gets the values. In both, ``instance`` says which one a row belongs to: with `starts` its
        number, else when it begins.
    starts, ends : sequences of moments, optional
        When the instances begin and end; without `ends` after `period`, or where the next one begins.
    period : int, timedelta or str, optional
        Length of every instance: a number in `time_unit`, or such as ``1h``, ``7d``.
    time_unit : {"s", "ms", "us", "1"}
        Of times that are numbers; ``"1"`` is a series without a calendar. Timestamps and dates need another one.
    defaults : mapping, optional
        Default of an attribute, by ``vertex.NAME`` or ``edge.NAME``; a static attribute of the template as
        ``{"column": NAME}``.
    **more
        ``instance``, ``vertex``, ``source``, ``target``: columns with other names. All others as of
        `goffish.temporal.building.StoreOptions`; a graph that is partitioned already goes without ``parts`` and
        ``method``.

    Raises
    ------
    InputError
        No table, a missing column, an unknown vertex, edge or instance, two rows for one element and instance.
    """
    columns = {name: more.pop(name) for name in COLUMNS if name in more}
    options = options_of(StoreOptions, more)
    expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    tables = Tables.of(vertices, edges, columns)
    unit, finder = unit_of(time_unit), EdgeFinder(graph.to_graph() if isinstance(graph, PartitionedGraph) else graph)
    first, last, numbers = tables.times(starts, ends, period, time_unit)
    rows, notes = tables.rows(finder, numbers, first, unit)
    schema = _schema({place: found[2] for place, found in rows.items()}, dict(defaults or {}))
    return options.write(graph, path, schema, instances_of_rows(first, last, rows), unit, notes)


#: Columns that say which instance and element a row is about.
COLUMNS = ("instance", "vertex", "source", "target")


class Finder(Protocol):
    """Numbers of vertices and edges by labels; see `EdgeFinder`."""

    def vertices(self, labels: Any, where: str) -> NDArray[np.int64]: ...

    def find(self, source: Any, target: Any, where: str) -> NDArray[np.int64]: ...


class Tables(NamedTuple):
    """Tables with values of vertices, edges, or both.

    Attributes
    ----------
    tables : mapping of place to pyarrow.Table
    keys : mapping of place to tuple of str
        Columns with the instance and the labels.
    """

    tables: dict[Place, pa.Table]
    keys: dict[Place, tuple[str, ...]]

    @classmethod
    def of(cls, vertices: Any, edges: Any, columns: Mapping[str, str]) -> Tables:
        """Check the tables; `columns` are the names of those of `COLUMNS` that have others."""
        instance, vertex, source, target = (columns.get(name, name) for name in COLUMNS)
        if vertices is None and edges is None:
            raise InputError("expected a table of vertices or of edges")
        keys: dict[Place, tuple[str, ...]] = {"vertex": (instance, vertex), "edge": (instance, source, target)}
        given: dict[Place, Any] = {"vertex": vertices, "edge": edges}
        checked = {place: _checked(table, place, keys[place]) for place, table in given.items() if table is not None}
        return cls(checked, keys)

    def labels(self, place: Place) -> list[Any]:
        """The columns with the labels of vertices, or of the ends of edges; empty without such a table."""
        if place not in self.tables:
            return [np.empty(0, np.int64)] * (len(self.keys[place]) - 1)
        return [as_id_column(self.tables[place].column(name), name) for name in self.keys[place][1:]]

    def times(
        self, starts: Sequence[Any] | None, ends: Sequence[Any] | None, period: Any, time_unit: TimeUnit
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[Place, NDArray[np.int64]]]:
        """When instances begin and end, and the instance of each row."""
        if ends is not None and (starts is None or period is not None):
            raise InputError("ends requires starts and excludes period")
        unit = unit_of(time_unit)
        moments = {
            place: _instances_of(table.column(self.keys[place][0]), starts, time_unit)
            for place, table in self.tables.items()
        }
        if starts is None:
            first = np.unique(np.concatenate(list(moments.values())))
            numbers = {place: np.searchsorted(first, column) for place, column in moments.items()}
        else:
            first, numbers = np.array([at(x, time_unit, "one of starts") for x in starts], np.int64), moments
            early = np.flatnonzero(np.diff(first) <= 0)
            if early.size:
                i = int(early[0])
                begins = f"instance {i + 1} begins at {moment_text(int(first[i + 1]), unit)}"
                raise InputError(
                    f"starts: {begins}, which is not after instance {i} ({moment_text(int(first[i]), unit)}); sort them"
                )
        step = None if period is None else length(period, time_unit, "period")
        last = (
            ends_of(first, step)
            if ends is None
            else np.array([at(x, time_unit, "one of ends") for x in ends], np.int64)
        )
        if last.size != first.size:
            raise InputError(f"ends: got {last.size} for {first.size} starts")
        return first, last, numbers

    def rows(
        self, finder: Finder, numbers: Mapping[Place, NDArray[np.int64]], first: NDArray[np.int64], unit: Unit
    ) -> tuple[dict[Place, _Rows], list[str]]:
        """Rows by instance and element, and notes."""
        notes, rows = [], {}
        for place, table in self.tables.items():
            if (np.diff(numbers[place]) < 0).any():
                notes.append(f"the rows of {place} values were not in time order and were sorted")
            rows[place] = _ordered(finder, table, self.keys[place], numbers[place], first, unit)
        return rows, notes


def instances_of_rows(
    first: NDArray[np.int64], last: NDArray[np.int64], rows: Mapping[Place, _Rows]
) -> Iterator[InstanceData]:
    """Instance by instance."""
    for i in range(first.size):
        values = {}
        for place, (elements, limits, columns) in rows.items():
            chosen = slice(int(limits[i]), int(limits[i + 1]))
            for name, column in columns.items():
                values[f"{place}.{name}"] = SparseColumn(elements[chosen], column[chosen])
        yield InstanceData(int(first[i]), int(last[i]), values)


def _checked(table: Any, place: str, keys: tuple[str, ...]) -> pa.Table:
    what = "vertices" if place == "vertex" else "edges"
    found = as_table(table, what)
    for name in keys:
        if name not in found.column_names:
            known = ", ".join(found.column_names) or "none"
            raise InputError(f"no column {name!r} in the table of {what}; the columns are {known}")
    return found


def _instances_of(column: pa.ChunkedArray, starts: Sequence[Any] | None, time_unit: str) -> NDArray[np.int64]:
    """When the instance of each row begins, or, with `starts`, its number."""
    if starts is None:
        return time_column(column, time_unit, "the column of instances")
    numbers = time_column(column, "1", "the column of instances")
    bad = np.flatnonzero((numbers < 0) | (numbers >= len(starts)))
    if bad.size:
        problem = f"instance {numbers[bad[0]]} does not exist; got {len(starts)} starts"
        raise InputError(f"row {bad[0]}: {problem}")
    return numbers


def _ordered(
    finder: Finder,
    table: pa.Table,
    keys: tuple[str, ...],
    number: NDArray[np.int64],
    starts: NDArray[np.int64],
    unit: Unit,
) -> _Rows:
    """Rows by instance and element."""
    named = [table.column(name) for name in keys[1:]]

    def where(row: int) -> str:
        return f"row {row}, instance {number[row]} ({moment_text(int(starts[number[row]]), unit)}): "

    elements = _find(finder, named, where)
    order = np.lexsort((elements, number))
    same = np.flatnonzero((np.diff(elements[order]) == 0) & (np.diff(number[order]) == 0))
    if same.size:
        row = int(order[same[0] + 1])
        what = " - ".join(repr(label_of(column, row)) for column in named)
        raise InputError(f"{where(row)}a second row for {'vertex' if len(named) == 1 else 'edge'} {what}")
    limits = np.searchsorted(number[order], np.arange(starts.size + 1))
    columns = {}
    for name in table.column_names:
        if name not in keys:
            column = table.column(name).take(pa.array(order)).combine_chunks()
            columns[name] = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
    return elements[order], limits, columns


def _find(finder: Finder, named: list[pa.ChunkedArray], where: Callable[[int], str]) -> NDArray[np.int64]:
    try:
        return _find_all(finder, named)
    except InputError as error:
        # All rows at once are fast; the first that is wrong is looked for only when there is one.
        low, high = 0, len(named[0])
        while high - low > 1:
            middle = (low + high) // 2
            try:
                _find_all(finder, [column.slice(low, middle - low) for column in named])
                low = middle
            except InputError:
                high = middle
        try:
            _find_all(finder, [column.slice(low, 1) for column in named])
        except InputError as problem:
            raise InputError(f"{where(low)}{problem}") from None
        raise error


def _find_all(finder: Finder, named: list[pa.ChunkedArray]) -> NDArray[np.int64]:
    return finder.vertices(named[0], "") if len(named) == 1 else finder.find(named[0], named[1], "")


def _schema(columns: Mapping[str, Mapping[str, pa.Array]], defaults: dict[str, Any]) -> SeriesSchema:
    found: dict[str, list[Attribute]] = {"vertex": [], "edge": []}
    for place, some in columns.items():
        for name, column in some.items():
            default = defaults.pop(f"{place}.{name}", None)
            static = default.get("column") if isinstance(default, Mapping) else None
            kind = type_name(column.type)
            found[place].append(Attribute(name, kind, None if static is not None else default, static))
    if defaults:
        known = ", ".join(f"{place}.{name}" for place, some in columns.items() for name in some) or "none"
        raise InputError(f"defaults: no attribute {next(iter(defaults))!r}; available: {known}")
    return SeriesSchema(tuple(found["vertex"]), tuple(found["edge"]))

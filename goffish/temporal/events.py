"""A time series from time-stamped edges: windows of time, and what happened on each edge in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, SparseColumn
from goffish.gofs.series.model import TYPES, moment_text, type_name
from goffish.graph import from_edges, read, to_arrow
from goffish.graph.columns import as_table
from goffish.graph.guards import options_of
from goffish.graph.labels import as_id_column, number_labels
from goffish.temporal.building import (
    EdgeFinder,
    SeriesBuild,
    StoreOptions,
    TimeUnit,
    at,
    length,
    time_column,
    unit_of,
)  # fmt: skip

Aggregation = Literal["count", "sum", "min", "max", "mean", "first", "last", "list"]
_HOW = ("count", "sum", "min", "max", "mean", "first", "last", "list")
#: More windows than this are taken for a mistake in the unit of the times or the length of the window.
MOST_WINDOWS = 1_000_000


def read_events(
    path: str | Path, *, columns: Mapping[str, str | int] | None = None, separator: str | None = None
) -> pa.Table:
    """Read a file of time-stamped edges, in the order of time.

    The columns are ``source``, ``target``, ``timestamp``, and ``weight`` if there is one.

    Parameters
    ----------
    path
        Any file that `goffish.read` reads.
    columns : mapping, optional
        Names or positions of ``source``, ``target``, ``timestamp`` and ``weight``; default: the first three columns.
    """
    chosen = {"source": 0, "target": 1, "timestamp": 2} if columns is None else dict(columns)
    suffix = Path(str(path)).suffix
    if suffix in (".parquet", ".arrow", ".feather") and columns is None:
        chosen = {}
    graph = read(
        str(path), directed=True, separator=separator, self_loops="keep", parallel="keep", columns=chosen or None
    )
    # Reading puts rows in the order of the vertices.
    return to_arrow(graph).sort_by("timestamp")


def build_from_events(
    events: Any,
    path: str | Path,
    *,
    window: Any = None,
    borders: Sequence[Any] | None = None,
    start: Any = None,
    attributes: Mapping[str, str | tuple[str, str]] | None = None,
    time_unit: TimeUnit = "s",
    directed: bool = False,
    self_loops: Literal["drop", "keep"] = "drop",
    **more: Any,
) -> SeriesBuild:
    """Write a store with a time series made of time-stamped edges.

    Parameters
    ----------
    events : table (Arrow, pandas, polars) or path
        One row for every event: ends of its edge, time, and further columns. A path is read by `read_events`.
    path
        The store: local folder or fsspec URI.
    window : int, timedelta or str
        Length of every window: a number in `time_unit`, or such as ``15min``, ``1h``, ``7d``.
    borders : sequence of moments, instead of `window`
        Where windows begin and end, ascending: k borders make k - 1 windows.
    start : moment, optional
        Where the first window begins; default: the last multiple of `window` before the first event.
    attributes : mapping, optional
        Name of each attribute of the edges to ``"count"`` or to (column, how) with how one of ``sum``, ``min``,
        ``max``, ``mean``, ``first``, ``last`` (in the order of time, then of the rows), ``list``. Default: ``count``.
        Of columns of dates and timestamps, microseconds since 1970.
    time_unit : {"s", "ms", "us", "1"}
        Of times that are numbers; ``"1"`` makes a series without a calendar.
    directed, self_loops
        As for `goffish.from_edges`.
    **more
        ``source``, ``target``, ``time``: columns of the table (default: these names, and ``timestamp``). All others as
        of `goffish.temporal.building.StoreOptions`.

    Returns
    -------
    SeriesBuild
        The template is the union of all edges (also of events outside the windows, which a note counts).
        ``edge.exists`` says which edges have an event in a window; counts and sums are 0 and lists empty without
        events, other attributes have no value then.

    Raises
    ------
    InputError
        A missing column, time or value, an unknown aggregation, borders that do not ascend, too many windows.
    """
    source, target = more.pop("source", "source"), more.pop("target", "target")
    time = more.pop("time", "timestamp")
    options = options_of(StoreOptions, more)
    table = read_events(events) if isinstance(events, str | Path) else as_table(events, "events")
    for name in (source, target, time):
        if name not in table.column_names:
            raise InputError(
                f"no column {name!r} in the events; the columns are {', '.join(table.column_names) or 'none'}"
            )
    unit, notes = unit_of(time_unit), []
    moments = time_column(table.column(time), time_unit, time)
    table = with_whole_times(table)
    if (np.diff(moments) < 0).any():
        notes.append("the events were not in time order and were sorted")
    limits = _limits(moments, window, borders, start, time_unit)
    spec = specification(attributes, table)
    ends = [as_id_column(table.column(name), name) for name in (source, target)]
    numbers, labels, n = number_labels(*ends)
    graph = from_edges(
        *numbers, directed=directed, labels=np.arange(n) if labels is None else labels, self_loops=self_loops,
        parallel="first",
    )  # fmt: skip
    which = np.searchsorted(limits, moments, side="right") - 1
    inside = (which >= 0) & (which < limits.size - 1)
    if not inside.all():
        covered = f"{moment_text(int(limits[0]), unit)} to {moment_text(int(limits[-1]), unit)}"
        notes.append(f"{np.count_nonzero(~inside):,} of {inside.size:,} events are outside the windows ({covered})")
    if self_loops == "drop":
        loops = numbers[0] == numbers[1]
        if loops.any():
            notes.append(f"{np.count_nonzero(loops):,} events from a vertex to itself were skipped")
        inside &= ~loops
    rows = np.flatnonzero(inside)
    u, v = (c.take(pa.array(rows)) if isinstance(c, pa.Array) else c[rows] for c in ends)
    edge = EdgeFinder(graph).find(u, v, "")
    order = np.lexsort((moments[rows], edge, which[rows]))
    schema = SeriesSchema(edge=(Attribute("exists", "bool", False), *(a for a, _, _ in spec)))
    data = instances_of_windows(limits, which[rows][order], edge[order], rows[order], spec, table)
    return options.write(graph, path, schema, data, unit, notes)


def _limits(
    moments: NDArray[np.int64], window: Any, borders: Sequence[Any] | None, start: Any, time_unit: str
) -> NDArray[np.int64]:
    """Borders of the windows on the axis."""
    if (window is None) == (borders is None):
        raise InputError("window and borders are mutually exclusive, and one of them is required")
    if borders is not None:
        if start is not None:
            raise InputError("start requires window; with borders, the first border is the start")
        limits = np.array([at(border, time_unit, "one of borders") for border in borders], np.int64)
        bad = np.flatnonzero(np.diff(limits) <= 0)
        if limits.size < 2 or bad.size:
            where = f"border {bad[0] + 1} is not after the previous one" if bad.size else f"got {limits.size}"
            raise InputError(f"borders: expected at least two ascending times; {where}")
        return limits
    step = length(window, time_unit, "window")
    if not moments.size:
        first = 0 if start is None else at(start, time_unit, "start")
        return np.array([first])
    first = int(moments.min()) // step * step if start is None else at(start, time_unit, "start")
    count = max((int(moments.max()) - first) // step + 1, 1)
    if count > MOST_WINDOWS:
        problem = f"window={window!r} produces {count:,} windows"
        raise InputError(
            f"{problem}, at most {MOST_WINDOWS:,} are accepted; use a longer window, another time_unit, or borders"
        )
    return first + step * np.arange(count + 1, dtype=np.int64)


def with_whole_times(table: pa.Table) -> pa.Table:
    """The table with its dates and timestamps as microseconds since 1970, which attributes can hold."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
            stamps = table.column(place).cast(pa.timestamp("us", getattr(field.type, "tz", None)))
            table = table.set_column(place, field.name, stamps.cast(pa.int64()))
    return table


_Spec = list[tuple[Attribute, "str | None", str]]


def specification(given: Mapping[str, str | tuple[str, str]] | None, table: pa.Table) -> _Spec:
    """Attribute, column and aggregation, checked against the table."""
    found: _Spec = []
    for name, rule in ({"count": "count"} if given is None else given).items():
        column, how = (None, rule) if isinstance(rule, str) else rule
        if how not in _HOW or (column is None) != (how == "count"):
            accepted = f'"count" or (column, how) with how one of {", ".join(_HOW[1:])}'
            raise InputError(f"attributes: {name!r}: {rule!r}: expected {accepted}")
        if name == "exists":
            raise InputError("attributes: 'exists' is reserved; choose another name")
        if column is None:
            found.append((Attribute(name, "int64", 0), None, how))
            continue
        if column not in table.column_names:
            known = ", ".join(table.column_names)
            raise InputError(f"attributes: {name!r}: no column {column!r} in the events; the columns are {known}")
        if table.column(column).null_count:
            row = int(np.flatnonzero(table.column(column).is_null().to_numpy())[0])
            raise InputError(f"row {row} of the events has no {column!r}; add a value or remove the row")
        found.append((_aggregated(name, type_name(table.column(column).type), column, how), column, how))
    return found


def _aggregated(name: str, kind: str, column: str, how: str) -> Attribute:
    numeric = TYPES[kind] not in (pa.bool_(), pa.string()) and not kind.startswith("list")
    if how in ("sum", "mean", "min", "max") and not numeric:
        raise InputError(f"attributes: {name!r}: the {how} of {column!r} requires numbers; the column holds {kind}")
    if how == "list":
        return Attribute(name, f"list<{kind}>", ())
    if how == "mean":
        return Attribute(name, "float64")
    if how == "sum":
        wide = "float64" if kind.startswith("float") else "uint64" if kind.startswith("u") else "int64"
        return Attribute(name, wide, 0)
    return Attribute(name, kind)


def instances_of_windows(
    limits: NDArray[np.int64],
    window: NDArray[np.int64],
    edge: NDArray[np.int64],
    rows: NDArray[np.int64],
    spec: _Spec,
    table: pa.Table,
) -> Iterator[InstanceData]:
    """Window by window; events are ordered by window, edge, and time."""
    new = (np.diff(window, prepend=-1) != 0) | (np.diff(edge, prepend=-1) != 0)
    first = np.flatnonzero(new)
    counts = np.diff(first, append=window.size)
    begins = np.searchsorted(window[first], np.arange(limits.size))
    columns: dict[str, Any] = {}
    for attribute, column, how in spec:
        if column is None:
            columns[attribute.name] = counts
        else:
            columns[attribute.name] = _aggregate(table.column(column).take(pa.array(rows)), how, first, counts)
    for i, (low, high) in enumerate(pairwise(begins.tolist())):
        edges = edge[first[low:high]]
        values: dict[str, Any] = {"edge.exists": SparseColumn(edges, np.ones(edges.size, np.bool_))}
        values |= {f"edge.{name}": SparseColumn(edges, column[low:high]) for name, column in columns.items()}
        yield InstanceData(int(limits[i]), int(limits[i + 1]), values)


def _aggregate(column: pa.ChunkedArray, how: str, first: NDArray[np.int64], counts: NDArray[np.int64]) -> Any:
    array = column.combine_chunks()
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    if how == "first":
        return array.take(pa.array(first))
    if how == "last":
        return array.take(pa.array(first + counts - 1))
    if how == "list":
        offsets = np.concatenate((first, [len(array)])).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), array)
    numbers = array.to_numpy(zero_copy_only=False)
    if not first.size:
        return numbers[:0].astype(np.float64) if how == "mean" else numbers[:0]
    if how == "min":
        return np.minimum.reduceat(numbers, first)
    if how == "max":
        return np.maximum.reduceat(numbers, first)
    wide = {"f": np.float64, "u": np.uint64, "i": np.int64}[numbers.dtype.kind]
    if how == "mean":
        return np.add.reduceat(numbers.astype(np.float64), first) / counts
    return np.add.reduceat(numbers.astype(wide), first)

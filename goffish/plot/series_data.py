"""Conversion of tables keyed by (vertex, timestep) to the numbers and dates of pictures of time series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gopher.result import Result
from goffish.graph.guards import expect, whole_number
from goffish.temporal.run import SeriesResult

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Minimum, quartiles and maximum.
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: #: Largest timestep; larger numbers are points in time instead of numbers of instances.
MOST_TIMESTEPS = 100_000
_FURTHEST = 2**31


def table_of(values: Result | pa.Table, name: str = "values") -> pa.Table:
    """Return the table of a result, or the table itself, if it has rows."""
    table = values.table if isinstance(values, Result) else values
    expect(table, pa.Table, name, "expected a Result or a pyarrow.Table")
    if not table.num_rows:
        raise InputError("the table has no rows")
    return table


def column_of(table: pa.Table, name: str) -> pa.Array:
    """A column as one array, without dictionary."""
    if name not in table.column_names:
        raise InputError(f"the table has no column {name!r}; available: {', '.join(table.column_names) or 'none'}")
    column = table.column(name).combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def keys_of(table: pa.Table) -> pa.Array:
    """Return the column ``vertex``, with a label in every row."""
    column = column_of(table, "vertex")
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"column 'vertex' has type {kind}; expected integers or strings")
    if column.null_count:
        raise InputError(f"column 'vertex' has no label in {column.null_count:,} of {len(column):,} rows")
    return column


def value_name(table: pa.Table, column: str | None, time: str) -> str:
    """Return the column to draw: the given one, or the first without vertices and timesteps."""
    if column is not None:
        return column
    others = [name for name in table.column_names if name not in ("vertex", time)]
    if not others:
        raise InputError(f"the table has no column to draw; it has only {', '.join(table.column_names)}")
    return str(others[0])


def steps_of(table: pa.Table, time: str) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the timestep of each row, and whether it has one.

    Raises
    ------
    InputError
        If the column is missing, or contains anything but integers of 0 or more.
    """
    column = column_of(table, time)
    if pa.types.is_floating(column.type):  # pandas converts integers with gaps to these
        column = pc.if_else(pc.is_nan(column), None, column)
    try:
        whole = column.cast(pa.int64()) if not pa.types.is_boolean(column.type) else None
    except pa.ArrowException:
        whole = None
    if whole is None or pa.types.is_temporal(column.type) or pa.types.is_string(column.type):
        raise InputError(f"column {time!r} has type {column.type}; expected timesteps as integers from 0")
    known = np.asarray(whole.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    steps = np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    if steps.min(initial=0) < 0:
        raise InputError(
            f"column {time!r} contains {steps.min()}: timesteps are numbered from 0 (rows of a merge have none; "
            "name the column of timesteps with time=)"
        )
    return steps, known


def numbers_of(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers; NaN for missing values."""
    column = column_of(table, name)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InputError(f"column {name!r} has type {kind}; expected numbers")
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def time_axis(steps: Ints, values: Any, time: str, timesteps: Sequence[int] | pa.Table | None) -> Ints:
    """Return every timestep from the first to the last of `steps`, `timesteps`, and those of a result."""
    if isinstance(timesteps, pa.Table):
        timesteps = _of_run(timesteps, steps)
    ran = values.timesteps if isinstance(values, SeriesResult) and time == "timestep" else None
    found = [steps]
    if timesteps is not None:
        given = np.asarray(list(timesteps) if isinstance(timesteps, Iterable) else "none")
        if given.size and given.dtype.kind not in "iu":
            raise InputError("timesteps: expected numbers of timesteps, such as range(50)")
        found.append(given.astype(np.int64).reshape(-1))
    if ran is not None:
        found.append(ran["timestep"].to_numpy())
    every = np.concatenate(found)
    if not every.size:
        raise InputError(f"column {time!r} has no values")
    first, last = int(every.min()), int(every.max())
    if first < 0 or last >= _FURTHEST or last - first >= MOST_TIMESTEPS:
        raise InputError(
            f"timesteps {first:,} to {last:,}: expected numbers of instances, from 0, at most {MOST_TIMESTEPS:,}"
        )
    return np.arange(first, last + 1)


def _of_run(timesteps: pa.Table, steps: Ints) -> list[int]:
    """Return the numbers in a table of timesteps, which must be those of the run of `steps`."""
    numbers, known = steps_of(timesteps, "timestep")
    numbers = numbers[known]
    if not numbers.size:
        raise InputError("the table of timesteps has no rows")
    first, last = int(numbers.min()), int(numbers.max())
    for step in (int(steps.min()), int(steps.max())) if steps.size else ():
        if not first <= step <= last:
            raise InputError(
                f"the table has rows of timestep {step:,}, the timesteps are {first:,} to {last:,}: "
                "give the table of timesteps of the same run"
            )
    return [first, last]


def in_windows(values: Result | pa.Table, time: str, window: int, origin: int | None = None) -> pa.Table:
    """Number points in time by windows, to plot arrivals as timesteps.

    Parameters
    ----------
    values : Result or pyarrow.Table
        Table with the column `time`.
    time : str
        Column of numbers, such as ``arrival``; null or NaN where there is no time.
    window : int
        Length of a window, in the unit of that column.
    origin : int, optional
        Start of window 0 [default: the earliest time].

    Returns
    -------
    pyarrow.Table
        The table with the column ``timestep``, replaced or appended.

    Raises
    ------
    InputError
        If the table is empty or lacks the column, the column does not hold numbers, or a time is before `origin`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> plot.in_windows(pa.table({"vertex": [1, 2], "arrival": [5, 17]}), "arrival", 10).to_pydict()
    {'vertex': [1, 2], 'arrival': [5, 17], 'timestep': [0, 1]}
    """
    table = table_of(values)
    moments = numbers_of(table, time)
    known = np.isfinite(moments)
    length = whole_number(window, "window", 1)
    begin = moments[known].min(initial=np.inf) if origin is None else float(origin)
    if (moments[known] < begin).any():
        raise InputError(f"column {time!r} contains {moments[known].min():,.0f}, before origin = {begin:,.0f}")
    steps = np.floor_divide(moments - (begin if known.any() else 0.0), length)
    if steps[known].max(initial=0.0) >= _FURTHEST:
        raise InputError(f"window = {length:,}: more than {MOST_TIMESTEPS:,} windows")
    column = pa.array(np.where(known, steps, 0).astype(np.int64), mask=~known)
    if "timestep" in table.column_names:
        return table.set_column(table.column_names.index("timestep"), "timestep", column)
    return table.append_column("timestep", column)


def largest_groups(values: Result | pa.Table, column: str | None = None, time: str = "timestep") -> pa.Table:
    """Compute the size of the largest group in every timestep.

    Parameters
    ----------
    values : Result or pyarrow.Table
        One row per member of a group and timestep.
    column : str, optional
        Column of groups, such as ``component`` or ``community``; null for no group [default: the first column that is
        not a key].
    time : str
        Column of timesteps [default: "timestep"].

    Returns
    -------
    pyarrow.Table
        Columns `time` and ``largest COLUMN``, one row per timestep with a group; an input of `values_over_time`.

    Raises
    ------
    InputError
        If the table is empty or lacks a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from goffish import plot
    >>> plot.largest_groups(pa.table({"vertex": [1, 2, 3], "timestep": [0, 0, 0], "component": [1, 1, 3]})).to_pydict()
    {'timestep': [0], 'largest component': [2]}
    """
    table = table_of(values)
    name = value_name(table, column, time)
    steps, known = steps_of(table, time)
    members = pa.table({"step": pa.array(steps, mask=~known), "group": column_of(table, name)}).drop_null()
    sizes = members.group_by(["step", "group"]).aggregate([([], "count_all")])
    found = sizes.group_by("step").aggregate([("count_all", "max")]).sort_by("step")
    return pa.table({time: found["step"], f"largest {name}": found["count_all_max"]})


def bands(steps: Ints, values: Floats, axis: Ints) -> Floats:
    """Quantiles of the values of each timestep, with linear interpolation between two values.

    Parameters
    ----------
    steps, values : shape (rows,)
        Finite values.
    axis : int64, shape (timesteps,)

    Returns
    -------
    float64, shape (5, timesteps)
        Rows as in `QUANTILES`; NaN for timesteps without a value.
    """
    order = np.lexsort((values, steps))
    steps, values = steps[order], np.append(values[order], np.nan)
    start, end = np.searchsorted(steps, axis, "left"), np.searchsorted(steps, axis, "right")
    place = start + np.array(QUANTILES)[:, None] * np.maximum(end - start - 1, 0)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(end - 1, start))
    found = values[low] + (place - low) * (values[high] - values[low])
    return np.where(end > start, found, np.nan)


def line(steps: Ints, values: Floats, axis: Ints, time: str) -> Floats:
    """One value per timestep, shape (timesteps,); NaN for missing values."""
    _check_single(steps, np.zeros(steps.size, np.int64), time, lambda _: "")
    found = np.full(axis.size, np.nan)
    found[steps - axis[0]] = values
    return found


def lines(
    keys: pa.Array,
    steps: Ints,
    values: Floats,
    known: NDArray[np.bool_],
    axis: Ints,
    vertices: Sequence[int | str],
    time: str,
) -> Floats:
    """Return the values of chosen vertices over time.

    Parameters
    ----------
    keys : pyarrow.Array of labels, shape (rows,); steps, values : shape (rows,)
    known : bool, shape (rows,)
        Whether a row has a timestep.
    vertices : sequence of labels

    Returns
    -------
    float64, shape (vertices, timesteps)
        NaN for missing values.

    Raises
    ------
    InputError
        If a vertex is not in the table, is listed twice, or has several rows in a timestep.
    """
    try:
        wanted = pa.array(vertices).cast(keys.type)
    except pa.ArrowException:
        raise InputError(f"vertices = {list(vertices)!r}: the vertices of the table have type {keys.type}") from None
    if len(wanted.unique()) != len(wanted):
        raise InputError(f"vertices = {list(vertices)!r}: list each vertex once")
    missing = wanted.filter(pc.invert(pc.is_in(wanted, value_set=keys.unique())))
    if len(missing):
        raise InputError(f"the table has no vertex {missing[0].as_py()!r}")
    row = pc.index_in(keys, value_set=wanted)
    chosen = np.flatnonzero(row.is_valid().to_numpy(zero_copy_only=False) & known)
    who = row.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)[chosen]
    _check_single(steps[chosen], who, time, lambda v: f"for vertex {wanted[v].as_py()!r} ")
    found = np.full((len(wanted), axis.size), np.nan)
    found[who, steps[chosen] - axis[0]] = values[chosen]
    return found


def _check_single(steps: Ints, who: Ints, time: str, named: Any) -> None:
    """Refuse several rows per key and timestep."""
    order = np.lexsort((steps, who))
    twice = np.flatnonzero((np.diff(steps[order]) == 0) & (np.diff(who[order]) == 0))
    if twice.size:
        row = order[twice[0]]
        raise InputError(f"the table has several rows {named(int(who[row]))}with {time} {steps[row]}")


def first_reached(table: pa.Table, time: str) -> tuple[Ints, int]:
    """The first timestep of every vertex with a timestep, and the number of vertices in the table."""
    vertex = keys_of(table)
    steps, known = steps_of(table, time)
    found = pa.table({"vertex": vertex, "step": pa.array(steps, mask=~known)})
    first = found.group_by("vertex").aggregate([("step", "min")])["step_min"]
    return first.drop_null().to_numpy(), len(first)


def newly_reached(first: Ints, axis: Ints) -> Ints:
    """Number of vertices reached in each timestep, from the timestep of each vertex."""
    return np.asarray(np.bincount(first - axis[0], minlength=axis.size), np.int64)


#: #: Units of NumPy for the shortest text that distinguishes all starts.
_PRECISION = (("D", 86_400_000_000), ("m", 60_000_000), ("s", 1_000_000), ("us", 1))


def dates_of(values: Any, time: str, timesteps: Any) -> dict[int, str]:
    """Return the start of each timestep (UTC), with the time of day on a second line if any differs from 0:00.

    Parameters
    ----------
    values : Result or pyarrow.Table
        A `SeriesResult` includes its timesteps.
    time : str
        The column of the drawn timesteps.
    timesteps : pyarrow.Table or other
        Columns ``timestep`` and ``start``, as written by ``goffish timeseries run --timesteps``.

    Returns
    -------
    dict of timestep to text
        Empty if times are unknown, or numbers without a calendar.
    """
    table = timesteps if isinstance(timesteps, pa.Table) else None
    if table is None and isinstance(values, SeriesResult) and time == "timestep":
        table = values.timesteps
    if table is None or not {"timestep", "start"} <= set(table.column_names):
        return {}
    start = _moments(table.column("start").combine_chunks())
    if start is None or not start.size or np.isnat(start).any():
        return {}
    ticks = start.view(np.int64)
    unit = next(name for name, length in _PRECISION if not (ticks % length).any())
    texts = start.astype(f"datetime64[{unit}]").astype(str)
    steps = table.column("timestep").to_pylist()
    return {
        int(step): str(text).replace("T", "\n") for step, text in zip(steps, texts, strict=True) if step is not None
    }


def _moments(column: pa.Array) -> NDArray[np.datetime64] | None:
    """Points in time as microseconds; ``None`` for columns of other types."""
    kind = column.type
    if pa.types.is_string(kind):  # JSON has no dates
        try:
            column = column.cast(pa.timestamp("us", "UTC"))
        except pa.ArrowException:
            return None
    elif not pa.types.is_timestamp(kind):
        return None
    whole = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.timestamp("us"))
    return np.asarray(whole.to_numpy(zero_copy_only=False), "datetime64[us]")

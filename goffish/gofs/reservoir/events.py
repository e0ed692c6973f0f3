"""Events as tables: what users give, in the form that is stored, and which rows are equal, in order or selected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs.reservoir.index import Bucket, decoded, in_range
from goffish.gofs.times import ACCEPTED, event_time, read_times, shown
from goffish.graph.columns import as_table

TIME = pa.timestamp("us", "UTC")
#: Columns that queries add.
ADDED = ("pool", "hops")
#: Columns by which an event is identified.
KEY = ("t", "id")


def table_of(given: Any, where: str) -> pa.Table:
    """Return what a user gives as a table: anything with ``__arrow_c_stream__``, a data frame, or mappings.

    Raises
    ------
    InputError
        It is none of these, or a column has values of several types.
    """
    if isinstance(given, Mapping):
        given = [given]
    if isinstance(given, str | bytes):
        raise InputError(f"{where}: expected a table or mappings, not a text; read the file first")
    if not hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__dataframe__") and isinstance(given, Iterable):
        given = _from_mappings(list(given), where)
    elif hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__dataframe__"):
        given = pa.table(given)
    table = as_table(given, where)
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        _check_name(name, where)
        columns[name] = _stored(column, f"{where}: column {name!r:.80}")
    return pa.table(columns)


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not name or any("\ud800" <= one <= "\udfff" for one in name):
        raise InputError(f"{where}: column {name!r:.80}: a name must be a text that is not empty")


def _from_mappings(rows: list[Any], where: str) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"{where}: row {number} is {row!r:.60}; expected a table or mappings")
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        _check_name(name, where)
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"{where}: column {name!r:.80}: values of several types, or not to be stored ({reason:.200}); append "
                "events of each type separately"
            ) from None
    return pa.table(columns)


def _stored(column: pa.ChunkedArray, where: str) -> pa.Array:
    """Return a column as the one of the equivalent types that is stored: no value changes."""
    kind = column.type
    try:
        if pa.types.is_dictionary(kind):
            column = pc.cast(column, kind.value_type)
            kind = column.type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            column = column.cast(pa.string())
        elif pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
            column = column.cast(pa.binary())
        elif pa.types.is_integer(kind) and kind != pa.uint64():
            column = column.cast(pa.int64())
        elif pa.types.is_floating(kind):
            column = column.cast(pa.float64())
        whole = column.combine_chunks()
    except pa.ArrowException as error:
        raise InputError(f"{where}: cannot be stored ({' '.join(str(error).split()):.200})") from None
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole


def events_of(given: Any, where: str) -> pa.Table:
    """Return events in the form that is stored: ``t`` and ``id`` first, and no column without values.

    Raises
    ------
    InputError
        There is no ``t`` or ``id``, one of them is null or of a type that is not accepted, or a name is reserved.
    """
    table = table_of(given, where)
    if not table.num_rows:
        return pa.table({"t": pa.array([], TIME), "id": pa.array([], pa.string())})
    for name in ADDED:
        if name in table.column_names:
            raise InputError(f"{where}: column {name!r} is reserved for the results of queries; rename it")
    others = {
        name: column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if name not in KEY and column.null_count < len(column)
    }
    return pa.table({"t": times_of(table, "t", where), "id": ids_of(table, "id", where)} | others)


def _needed(table: pa.Table, name: str, where: str) -> pa.Array:
    if name not in table.column_names:
        raise InputError(f"{where}: no column {name!r}; the columns are {', '.join(table.column_names)}")
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{where}: row {row}: {name} is null")
    return column


def times_of(table: pa.Table, name: str, where: str) -> pa.Array:
    """Return a column of times as it is stored."""
    column = _needed(table, name, where)
    try:
        times, accepted = read_times(column, exact=True)
    except InputError as error:
        raise InputError(f"{where}: {name}: {error}") from None
    if not accepted.all():
        row = int(np.argmin(accepted))
        raise InputError(f"{where}: row {row}: {name} is {shown(column[row])}; {ACCEPTED}, to the microsecond")
    return pa.array(times).cast(TIME)


def ids_of(table: pa.Table, name: str, where: str) -> pa.Array:
    """Return a column of ids as it is stored."""
    column = _needed(table, name, where)
    if pa.types.is_uint64(column.type):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowException:
            raise InputError(f"{where}: {name}: an integer exceeds 2^63 - 1; give such ids as texts") from None
    if not (pa.types.is_string(column.type) or pa.types.is_int64(column.type)):
        raise InputError(f"{where}: {name} has the type {column.type}; ids must be texts or integers")
    return column


def micros(table: pa.Table, name: str = "t") -> NDArray[np.int64]:
    """Return times as microseconds since 1970."""
    found: NDArray[np.int64] = table.column(name).cast(pa.int64()).to_numpy()
    return found


def moment(value: Any, what: str) -> int | None:
    """Return a time that a user gives as microseconds since 1970.

    Raises
    ------
    InputError
        It is no time.
    """
    if value is None:
        return None
    try:
        found = event_time(value)
    except (InputError, ValueError, OverflowError, TypeError):
        raise InputError(f"{what} = {value!r:.60}: {ACCEPTED}") from None
    return found


def text_of(time: int) -> str:
    """Return a time as ISO 8601 text."""
    found: datetime = pa.scalar(time, TIME).as_py()
    return found.astimezone(UTC).isoformat().replace("+00:00", "Z")


def repeated(known: pa.Table, new: pa.Table) -> NDArray[np.bool_]:
    """Return which rows of `new` are equal to one of `known`, or to an earlier one of `new`."""
    groups = groups_of(known, new)
    found = np.ones(len(groups), np.bool_)
    found[np.unique(groups, return_index=True)[1]] = False
    return found[len(known) :]


def among(known: pa.Table, new: pa.Table) -> NDArray[np.bool_]:
    """Return which rows of `new` are equal to one of `known`, whose columns `new` has."""
    groups = groups_of(known, new)
    present = np.zeros(len(groups), np.bool_)
    present[groups[: len(known)]] = True
    return present[groups[len(known) :]]


def groups_of(first: pa.Table, second: pa.Table) -> NDArray[np.int64]:
    """Return a number for each row of two tables, which is the same for equal rows."""
    both = pa.concat_tables([first, second.select(first.column_names)])
    codes = [_codes(column.combine_chunks()) for column in both.columns]
    order = np.lexsort(codes[::-1])
    new = np.zeros(len(order), np.int64)
    for column in codes:
        new[1:] |= np.diff(column[order]) != 0
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(new)
    return groups


def _codes(column: Any) -> NDArray[np.int64]:
    """Return numbers that are equal where values are."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if not (pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type)):
        column = column.dictionary_encode().indices
    codes: NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return codes


def in_order(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows in the order of columns."""
    if list(names) == list(KEY):
        times = micros(table)
        steps = np.diff(times)
        if not len(steps) or steps.min() > 0:
            return table
        order = np.argsort(times, kind="stable")
        if not (np.diff(times[order]) == 0).any():
            return table.take(pa.array(order))
    return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]))


#: Values of columns that are asked for.
Where = Mapping[str, Sequence[Any]]


def where_of(given: Mapping[str, Any] | None) -> Where:
    """Return the values that are asked for, by column: one, or several in a list, a tuple or a set.

    Raises
    ------
    InputError
        A name or value is not accepted.
    """
    found: dict[str, list[Any]] = {}
    for name, value in (given or {}).items():
        if name in ("t", *ADDED):
            advice = {"t": "use start and end", "pool": "use pools"}.get(name, "filter the result")
            raise InputError(f"where: {name!r} is not accepted here; {advice}")
        values = list(value) if isinstance(value, list | tuple | set | frozenset | pa.Array | np.ndarray) else [value]
        found[name] = [one.as_py() if isinstance(one, pa.Scalar) else one for one in values]
        found[name] = [one.item() if isinstance(one, np.generic) else one for one in found[name]]
        for one in found[name]:
            if isinstance(one, float) and math.isnan(one):
                raise InputError(f"where: {name} = nan: equals no value")
            if isinstance(one, Mapping | list | tuple):
                raise InputError(f"where: {name} = {one!r:.60}: accepted are plain values and lists of them")
    return found


def can_hold(bucket: Bucket, where: Where) -> bool:
    """Return whether a bucket can hold rows with the values that are asked for."""
    columns = decoded(bucket.columns)
    for name, values in where.items():
        if None in values:
            continue
        if name not in columns:
            return False
        if not any(in_range(bucket, name, value, value) for value in values):
            return False
    return True


def matches(table: pa.Table, where: Where) -> NDArray[np.bool_]:
    """Return which rows have the values that are asked for; a missing column is null."""
    found = np.ones(len(table), np.bool_)
    for name, values in where.items():
        if name not in table.column_names:
            found &= None in values
            continue
        column = table.column(name)
        wanted = _values(values, column.type)
        chosen = pc.is_in(column, wanted).to_numpy() if len(wanted) else np.zeros(len(table), np.bool_)
        found &= (chosen | pc.is_null(column).to_numpy()) if None in values else chosen
    return found


def _values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the values that a column of a type can have; no text is a number, and no number is a truth value."""
    return pa.array([found for value in values if (found := _value(value, kind)) is not None], kind)


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a column that is equal to one that is asked for, or ``None``."""
    if value is None or (isinstance(value, bool) != pa.types.is_boolean(kind)):
        return None
    is_text = isinstance(value, str)
    if is_text and not (pa.types.is_string(kind) or pa.types.is_timestamp(kind)):
        return None
    try:
        if is_text and pa.types.is_timestamp(kind):
            moment = datetime.fromisoformat(value)
            return pa.scalar(moment if moment.tzinfo else moment.replace(tzinfo=UTC), kind).as_py()
        if isinstance(value, float) and pa.types.is_integer(kind):
            value = int(value) if value.is_integer() else None
        found = pa.scalar(value, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return found if not isinstance(value, int | float) or found == value else None


def ends_of(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column."""
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]

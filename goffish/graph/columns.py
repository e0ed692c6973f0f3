"""The users' other columns: weights and attributes, checked and brought into one form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph.guards import expect, from_library

#: From here on not every whole number is a float64.
_EXACT = 2**53


def check_weights(weight: Any, rows: int) -> NDArray[np.float64]:
    """Weights as float64; ones that are NaN, infinite, negative or not exact raise `InputError` with the row."""
    try:
        given = np.asarray(weight)
        if given.dtype.kind not in "biufO" or any(isinstance(v, str | bytes) for v in _objects(given)):
            raise TypeError(f"it holds {'strings' if given.dtype.kind in 'OUS' else given.dtype}")
        weights = np.ascontiguousarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"weight: not a column of real numbers ({error})") from None
    if given.shape != (rows,):
        raise InputError(f"weight has shape {given.shape}, expected ({rows},)")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(f"weight: row {row} holds {weights[row]}; weights must be finite and non-negative")
    if given.dtype.kind in "iu" and given.dtype.itemsize == 8:
        _check_exact(given)
    return weights


def _objects(column: NDArray[Any]) -> list[Any]:
    return column.ravel().tolist() if column.dtype.kind == "O" else []


def _check_exact(column: NDArray[np.integer[Any]]) -> None:
    large = np.flatnonzero(column > _EXACT)
    if not large.size:
        return
    numbers = column[large].astype(np.uint64)
    odd = numbers // (numbers & (~numbers + np.uint64(1)))  # without the factors of two
    rounded = np.flatnonzero(odd >= _EXACT)
    if rounded.size:
        row = int(large[rounded[0]])
        raise InputError(
            f"weight: row {row} holds {column[row]}, which would be rounded: integers are exact up to 2^53"
        )


def attribute_table(table: Any, rows: int, what: str) -> pa.Table | None:
    """Attributes of the vertices or edges (`what`) as a table of `rows` rows."""
    if table is None:
        return None
    name = f"{what} attributes"
    columns = _mapping_to_arrow(table, rows, what) if isinstance(table, Mapping) else as_table(table, name)
    if not columns.num_columns:
        return None
    if columns.num_rows != rows:
        raise InputError(f"{name} have {columns.num_rows} rows, expected {rows}")
    return columns


def _mapping_to_arrow(table: Mapping[Any, Any], rows: int, what: str) -> pa.Table:
    columns = {}
    for name, values in table.items():
        expect(name, str, f"the name {name!r} of a column of {what} attributes", "must be a string")
        column = attribute_column(values, name, what)
        if len(column) != rows:
            raise InputError(f"the {what} attribute {name!r} has {len(column)} rows, expected {rows}")
        columns[name] = column
    return pa.table(columns)


def attribute_column(values: Any, name: object, what: str) -> pa.Array | pa.ChunkedArray:
    """One attribute as an Arrow column."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        if isinstance(values, str | bytes | Mapping):
            raise TypeError(f"a {type(values).__name__} is not a column")
        return values.to_arrow() if hasattr(values, "to_arrow") else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the {what} attribute {name!r} cannot be stored in one column ({error})") from None


def as_table(table: Any, name: str) -> pa.Table:
    """An Arrow table from an Arrow, pandas or polars one; columns need different names."""
    if from_library(table, "pandas", "DataFrame"):
        try:
            table = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"{name}: a column has mixed types, or two columns have the same name ({error})") from None
    elif from_library(table, "polars", "DataFrame"):
        table = table.to_arrow()
    elif isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    expect(table, pa.Table, name, "expected a table (pyarrow.Table, pandas or Polars DataFrame)")
    names = table.column_names
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise InputError(f"{name}: two columns are named {twice!r}; rename one")
    return table


def named_columns(table: pa.Table | None) -> list[tuple[str, pa.ChunkedArray]]:
    """Names and columns of a table that may be missing."""
    return [] if table is None else list(zip(table.column_names, table.columns, strict=True))

"""The users' vertex labels: mapped to dense numbers on the way in, back to labels on the way out."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.graph import kernels
from goffish.graph.guards import expect

#: An id range up to this many times the number of values is numbered through a table, not by hashing.
_DENSE_FACTOR = 4


def as_id_column(values: Any, name: str) -> NDArray[np.integer[Any]] | pa.Array:
    """Bring a column of vertex labels into one of the two supported forms.

    Parameters
    ----------
    values
        Integers of any width (also unsigned), or strings; NumPy, Arrow, pandas, polars or a sequence.
    name
        What to call the column in an error.

    Returns
    -------
    A contiguous ``int32`` or ``int64`` array, or an Arrow string array.

    Raises
    ------
    InputError
        For missing values, floats, unsigned values beyond int64, and other types; names the row.
    """
    column = _to_arrow_or_numpy(values, name)
    if isinstance(column, pa.Array):
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(f"{name}: row {row} has no vertex label")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return column.cast(pa.string()) if not pa.types.is_string(column.type) else column
        if pa.types.is_dictionary(column.type):
            return as_id_column(column.dictionary_decode(), name)
        column = column.to_numpy(zero_copy_only=False)
    if column.dtype.kind in "USO" and column.size:
        return _strings(column, name)
    if column.dtype.kind == "u" and column.dtype.itemsize == 8 and column.size:
        over = np.flatnonzero(column > np.uint64(np.iinfo(np.int64).max))
        if over.size:
            raise InputError(f"{name}: row {over[0]} holds {column[over[0]]}; ids must fit in int64")
    if column.dtype.kind not in "iu" and column.size:
        raise InputError(f"{name}: vertex labels must be integers or strings, not {column.dtype}")
    return np.ascontiguousarray(column, np.int32 if column.dtype == np.int32 else np.int64)


def _to_arrow_or_numpy(values: Any, name: str) -> pa.Array | NDArray[Any]:
    column = values
    if isinstance(values, pa.ChunkedArray):
        column = values.combine_chunks()
    elif not isinstance(values, pa.Array | np.ndarray):
        if hasattr(values, "to_arrow"):  # polars
            column = values.to_arrow()
        elif hasattr(values, "to_numpy"):  # pandas
            column = values.to_numpy()
        elif isinstance(values, Sequence | array) and not isinstance(values, str | bytes):
            column = _from_sequence(values, name)
    expect(column, (pa.Array, np.ndarray), name, "expected a column of integers or strings (list, array or series)")
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise InputError(f"{name}: expected one column, got an array of shape {column.shape}")
    return column


def _from_sequence(values: Any, name: str) -> NDArray[Any]:
    if not len(values):
        return np.empty(0, np.int64)
    try:
        column = np.asarray(values)
        # NumPy's own strings lose trailing NULs, and make "1" of a 1 among strings
        return np.asarray(values, object) if column.dtype.kind == "U" else column
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{name}: expected one column of integers or strings ({error})") from None


def _strings(column: NDArray[Any], name: str) -> Any:
    try:
        if column.dtype.kind == "S":
            column = np.char.decode(column, "utf-8")
        texts = pa.array(column.tolist())
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise InputError(f"{name}: vertex labels must be all int64 or all strings in UTF-8 ({error})") from None
    if not (pa.types.is_integer(texts.type) or pa.types.is_string(texts.type)):
        raise InputError(f"{name}: vertex labels must be integers or strings, not {texts.type}")
    return as_id_column(texts, name)


def number_labels(*columns: Any) -> tuple[list[NDArray[np.integer[Any]]], pa.Array | None, int]:
    """Number the distinct labels of several columns densely, in ascending label order.

    Parameters
    ----------
    columns
        Outputs of `as_id_column`: all integers or all strings.

    Returns
    -------
    numbers
        One array per column, ``int32`` while the count allows it.
    labels
        Sorted distinct labels, or ``None`` where they are just ``0 … n-1``.
    n
        How many there are.
    """
    texts = [isinstance(c, pa.Array) for c in columns]
    if any(texts) and not all(t or len(c) == 0 for t, c in zip(texts, columns, strict=True)):
        raise InputError("vertex labels must be all integers or all strings, in every column")
    if any(texts):
        return _number_by_hash([c if isinstance(c, pa.Array) else pa.array([], pa.string()) for c in columns])
    filled = [c for c in columns if c.size]
    if not filled:
        return [np.empty(0, np.int32) for _ in columns], None, 0
    low, high = min(int(c.min()) for c in filled), max(int(c.max()) for c in filled)
    if high - low < _DENSE_FACTOR * sum(c.size for c in filled) + 1024:
        return _number_by_table(columns, low, high)
    return _number_by_hash([pa.array(c.astype(np.int64, copy=False)) for c in columns])


def _number_by_table(
    columns: tuple[NDArray[np.integer[Any]], ...], low: int, high: int
) -> tuple[list[NDArray[np.integer[Any]]], pa.Array | None, int]:
    present = np.zeros(high - low + 1, np.uint8)
    for column in columns:
        kernels.mark_present(column, low, present)
    n = int(np.count_nonzero(present))
    kind = vertex_dtype(n)
    if n == present.size:
        labels = None if low == 0 else pa.array(np.arange(low, high + 1, dtype=np.int64))
        if low == 0:
            return [np.ascontiguousarray(c, dtype=kind) for c in columns], None, n
        return [(c.astype(np.int64, copy=False) - low).astype(kind) for c in columns], labels, n
    rank: NDArray[np.integer[Any]] = np.cumsum(present, dtype=kind)
    rank -= 1
    numbers: list[NDArray[np.integer[Any]]] = []
    for column in columns:
        out = np.empty(column.size, kind)
        kernels.relabel(column, low, rank, out)
        numbers.append(out)
    return numbers, pa.array(np.flatnonzero(present).astype(np.int64, copy=False) + low), n


def _number_by_hash(columns: list[pa.Array]) -> tuple[list[NDArray[np.integer[Any]]], pa.Array | None, int]:
    # Arrow drops empty chunks here, so they are left out and put back below.
    filled = pa.chunked_array([c for c in columns if len(c)], columns[0].type)
    encoded = filled.dictionary_encode().unify_dictionaries()
    distinct = next((c.dictionary for c in encoded.chunks), pa.array([], columns[0].type))
    n = len(distinct)
    kind = vertex_dtype(n)
    order = pc.sort_indices(distinct).to_numpy()
    rank = np.empty(n, kind)
    rank[order] = np.arange(n, dtype=kind)
    chunks = iter(encoded.chunks)
    numbers = [rank[next(chunks).indices.to_numpy()] if len(c) else np.empty(0, kind) for c in columns]
    return numbers, distinct.take(pa.array(order)), n


def distinct_labels(labels: Any, name: str = "labels") -> tuple[pa.Array | None, int]:
    """Labels of all vertices and their number; ``None`` stands for 0 to n - 1.

    Raises
    ------
    InputError
        A label occurs twice.
    """
    column = as_id_column(labels, name)
    array = column if isinstance(column, pa.Array) else pa.array(column.astype(np.int64, copy=False))
    n = len(array)
    if len(array.unique()) != n:
        counts = array.value_counts()
        twice = next(c["values"].as_py() for c in counts if c["counts"].as_py() > 1)
        raise InputError(f"{name}: {twice!r} occurs more than once")
    if pa.types.is_integer(array.type) and np.array_equal(array.to_numpy(), np.arange(n)):
        return None, n
    return array, n


def find_labels(labels: pa.Array | None, n: int, wanted: ArrayLike | Any) -> NDArray[np.int64]:
    """Vertex numbers of some labels.

    Raises
    ------
    InputError
        Naming the first label that is not a vertex of the graph.
    """
    column = _wanted(wanted)
    if not len(column):
        return np.empty(0, np.int64)
    numbers: NDArray[np.int64]
    if labels is None:
        if isinstance(column, pa.Array):
            raise InputError(f"unknown vertex {column[0].as_py()!r}: the vertex labels of this graph are integers")
        numbers = column.astype(np.int64, copy=False)
        bad = np.flatnonzero((numbers < 0) | (numbers >= n))
        if bad.size:
            raise unknown_vertex(int(numbers[bad[0]]), n)
        return numbers
    values = labels_of_type(column, labels.type)
    numbers = pc.index_in(values, value_set=labels).fill_null(-1).to_numpy().astype(np.int64)
    bad = np.flatnonzero(numbers < 0)
    if bad.size:
        raise unknown_vertex(values[int(bad[0])].as_py(), n)
    return numbers


def labels_of_type(wanted: ArrayLike | Any, kind: pa.DataType) -> pa.Array:
    """Return labels that a user gives as a column of the type that a graph's labels have.

    Raises
    ------
    InputError
        They are of another type.
    """
    column = _wanted(wanted)
    values = column if isinstance(column, pa.Array) else pa.array(column.astype(np.int64, copy=False))
    if len(values) and values.type != kind:
        accepted = "integers" if pa.types.is_integer(kind) else "strings"
        raise InputError(f"unknown vertex {values[0].as_py()!r}: the vertex labels of this graph are {accepted}")
    return values.cast(kind)


def unknown_vertex(label: int | str, n: int) -> InputError:
    """Return the error for a label that no vertex has."""
    return InputError(f"unknown vertex {label!r}: not among the {n:,} vertices of this graph")


def _wanted(wanted: Any) -> NDArray[np.integer[Any]] | pa.Array:
    return as_id_column(np.atleast_1d(wanted) if np.isscalar(wanted) else wanted, "vertex")


def vertex_dtype(n: int) -> type[np.int32] | type[np.int64]:
    """``int32`` while vertex numbers fit, ``int64`` from 2^31 vertices on."""
    return np.int32 if n < 2**31 else np.int64

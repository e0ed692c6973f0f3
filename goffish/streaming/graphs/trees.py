"""Trees of named tuples, arrays and numbers as Arrow data, and back; nothing in it is ever executed."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import CheckpointError

_SCHEMA = pa.schema([("type", pa.string()), ("shape", pa.list_(pa.int64())), ("data", pa.large_binary())])
_TYPES = {np.dtype(one).str: np.dtype(one) for one in "?bhilBHILfd"}
_PACKAGE = "goffish.streaming.graphs."
#: Bytes of arrays that share a batch.
_BATCH = 1 << 22
_DEEPEST = 40
Array = NDArray[Any]


class _Writer:
    """Collects the arrays of a tree; arrays that share their memory do so again when they are read."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._places: dict[tuple[int, int], int] = {}

    def node(self, value: Any) -> Any:
        """Return a description of a value for JSON."""
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, np.bool_ | np.integer | np.floating):
            return value.item()
        if isinstance(value, np.ndarray):
            if value.dtype.names is not None:
                return ["r", list(value.dtype.names), [self._array(value[name]) for name in value.dtype.names]]
            return ["o", self._column(value.tolist())] if value.dtype == object else self._array(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["n", _name(type(value)), [self.node(one) for one in value]]
        if isinstance(value, tuple):
            return ["t", [self.node(one) for one in value]]
        if isinstance(value, list | deque):
            return ["l", self._column(list(value))]
        if isinstance(value, set | frozenset):
            return ["s", self._column(sorted(value)), isinstance(value, frozenset)]
        if isinstance(value, dict):
            return ["d", self._column(list(value)), self._column(list(value.values()))]
        raise TypeError(f"{type(value).__name__}: cannot be saved")

    def _array(self, value: Array) -> Any:
        if value.dtype.str not in _TYPES:
            raise TypeError(f"an array of {value.dtype}: cannot be saved")
        memory = np.ascontiguousarray(value)
        key = memory.__array_interface__["data"][0], memory.nbytes
        if not memory.nbytes or key not in self._places:
            self._places[key] = len(self.arrays)
            self.arrays.append(memory)
            return ["a", len(self.arrays) - 1]
        place = self._places[key]
        return ["a", place, memory.dtype.str, list(memory.shape)]

    def _column(self, values: list[Any]) -> Any:
        """Return a description of values, as few arrays if all are alike."""
        kinds = set(map(type, values))
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind in (int, float, bool) and (kind is not int or _fits(values)):
            return ["c", self._array(np.array(values, {int: np.int64, float: np.float64, bool: np.bool_}[kind]))]
        if kind is np.ndarray and len({(one.dtype, one.ndim) for one in values}) == 1 and values[0].ndim == 1:
            return self._ragged("ra", values)
        if kind is not None and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            columns = [self._column([one[at] for one in values]) for at in range(len(kind._fields))]
            return ["cn", _name(kind), len(values), columns]
        if kind is tuple and all(type(one) is float for row in values for one in row):
            return self._ragged("rf", [np.array(row, np.float64) for row in values])
        if kind is tuple and len({len(one) for one in values}) == 1:
            return ["ct", len(values), [self._column(list(column)) for column in zip(*values, strict=True)]]
        if kind is frozenset and all(type(one) is int for row in values for one in row):
            return self._ragged("rs", [np.array(sorted(row), np.int64) for row in values])
        return ["v", [self.node(one) for one in values]]

    def _ragged(self, kind: str, rows: Sequence[Array]) -> Any:
        sizes = np.array([len(one) for one in rows], np.int64)
        return [kind, self._array(np.concatenate(rows)), self._array(sizes)]


def _fits(values: list[int]) -> bool:
    return min(values) >= -(1 << 63) and max(values) < 1 << 63


def _name(kind: type) -> str:
    if not kind.__module__.startswith(_PACKAGE) and kind.__module__ != "goffish.streaming.key_table":
        raise TypeError(f"{kind.__name__}: cannot be saved")
    return f"{kind.__module__}:{kind.__qualname__}"


class _Reader:
    """Makes values from descriptions and arrays."""

    def __init__(self, arrays: list[Array]) -> None:
        self._arrays = arrays

    def value(self, node: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ValueError("is nested too deeply")
        if node is None or isinstance(node, str | bool | int | float):
            return node
        kind, *rest = node
        match kind:
            case "a":
                return self._array(*rest)
            case "n":
                return self._class(rest[0])(*(self.value(one, depth + 1) for one in rest[1]))
            case "t":
                return tuple(self.value(one, depth + 1) for one in rest[0])
            case "l":
                return self._column(rest[0], depth + 1)
            case "s":
                return (frozenset if rest[1] else set)(self._column(rest[0], depth + 1))
            case "d":
                return dict(zip(*(self._column(one, depth + 1) for one in rest), strict=True))
            case "r":
                columns = [self.value(one, depth + 1) for one in rest[1]]
                names: list[Any] = [(name, one.dtype) for name, one in zip(rest[0], columns, strict=True)]
                rows = np.empty(len(columns[0]), names)
                for name, one in zip(rest[0], columns, strict=True):
                    rows[name] = one
                return rows
            case "o":
                values = self._column(rest[0], depth + 1)
                found = np.empty(len(values), object)
                found[:] = values
                return found
        raise ValueError(f"kind {kind!r:.20} is unknown")

    def _array(self, place: int, kind: str | None = None, shape: list[int] | None = None) -> Array:
        found = self._arrays[_number(place)]
        return found if kind is None else found.reshape(-1).view(_TYPES[kind]).reshape(_shape(shape))

    def _column(self, node: Any, depth: int) -> list[Any]:
        if depth > _DEEPEST:
            raise ValueError("is nested too deeply")
        kind, *rest = node
        match kind:
            case "c":
                return list(self.value(rest[0]).tolist())
            case "v":
                return [self.value(one, depth + 1) for one in rest[0]]
            case "cn":
                return [self._class(rest[0])(*row) for row in self._rows(rest[1], rest[2], depth)]
            case "ct":
                return self._rows(rest[0], rest[1], depth)
            case "ra" | "rf" | "rs":
                parts = self._split(*map(self.value, rest))
                if kind == "ra":
                    return parts
                return [(tuple if kind == "rf" else frozenset)(one.tolist()) for one in parts]
        raise ValueError(f"kind {kind!r:.20} is unknown")

    def _rows(self, size: int, columns: list[Any], depth: int) -> list[Any]:
        rows = list(zip(*(self._column(one, depth + 1) for one in columns), strict=True))
        if len(rows) != size:
            raise ValueError("the lengths of columns differ")
        return rows

    @staticmethod
    def _split(values: Array, sizes: Array) -> list[Array]:
        if sizes.dtype != np.int64 or np.any(sizes < 0) or int(sizes.sum()) != len(values):
            raise ValueError("the lengths of rows do not fit")
        # Copies: a part that is kept should not keep all others.
        return [one.copy() for one in np.split(values, np.cumsum(sizes)[:-1])] if len(sizes) else []

    @staticmethod
    def _class(name: str) -> Any:
        module, _, kind = name.partition(":")
        found = getattr(sys.modules.get(module), kind, None)
        if not isinstance(found, type) or not issubclass(found, tuple) or not hasattr(found, "_fields"):
            raise ValueError(f"class {name!r:.60} is unknown")
        _name(found)
        return found


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a number is negative, or none")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(_number(one) for one in value)


def write(tree: Any, file: Any) -> None:
    """Write a tree as an Arrow stream.

    Parameters
    ----------
    tree : object
        Named tuples, tuples, lists, sets and mappings of arrays, numbers and texts. Lists of named tuples are
        written as columns.
    file : file

    Raises
    ------
    TypeError
        It holds something else.
    """
    writer = _Writer()
    described = json.dumps(writer.node(tree)).encode()
    with pa.ipc.new_stream(file, _SCHEMA.with_metadata({"tree": described})) as stream:
        for part in _parts(writer.arrays):
            stream.write_batch(_batch(part))


def _parts(arrays: list[Array]) -> Iterator[list[Array]]:
    """Return small arrays together: large ones are not copied."""
    part: list[Array] = []
    size = 0
    for one in arrays:
        if part and size + one.nbytes > _BATCH:
            yield part
            part, size = [], 0
        part.append(one)
        size += one.nbytes
    if part:
        yield part


def _batch(arrays: list[Array]) -> pa.RecordBatch:
    offsets = np.cumsum([0, *(one.nbytes for one in arrays)])
    data: Any = [one.reshape(-1).view(np.uint8) for one in arrays]
    data = data[0] if len(data) == 1 else np.concatenate(data)
    columns = [
        pa.array([one.dtype.str for one in arrays]), pa.array([list(one.shape) for one in arrays], _SCHEMA[1].type),
        pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(arrays), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ),
    ]  # fmt: skip
    return pa.record_batch(columns, schema=_SCHEMA)


def read(source: Any, name: str) -> Any:
    """Return a tree that was written.

    Parameters
    ----------
    source : buffer or file
    name : str
        For messages.

    Raises
    ------
    CheckpointError
        It is damaged.
    """
    arrays: list[Array] = []
    try:
        with pa.ipc.open_stream(source) as stream:
            described = (stream.schema.metadata or {}).get(b"tree", b"")
            if not stream.schema.equals(_SCHEMA):
                raise ValueError("it has other columns")
            for batch in stream:
                batch.validate(full=True)
                arrays += map(_array, *(column.to_pylist() for column in batch.columns[:2]), batch.column(2))
        return _Reader(arrays).value(json.loads(described))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, pa.ArrowException) as error:
        raise CheckpointError(f"{name}: is damaged ({' '.join(str(error).split())[:200]})") from None
    except (RecursionError, MemoryError, OverflowError) as error:
        raise CheckpointError(f"{name}: is damaged ({type(error).__name__})") from None


def _array(kind: str, shape: list[int], data: pa.LargeBinaryScalar) -> Array:
    buffer, sizes = data.as_buffer(), _shape(shape)
    found = np.frombuffer(buffer, _TYPES[kind]) if buffer is not None and buffer.size else np.zeros(0, _TYPES[kind])
    return found.reshape(sizes).copy()


def alike(value: Any, example: Any) -> bool:
    """Return whether a value has the form of another one: the types of all arrays, and their dimensions."""
    if isinstance(example, np.ndarray):
        return isinstance(value, np.ndarray) and value.dtype == example.dtype and value.ndim == example.ndim
    if isinstance(example, tuple):
        same = type(value) is type(example) and len(value) == len(example)
        return same and all(map(alike, value, example))
    return example is None or type(value) is type(example)

"""Keyed state of operators, and the changes of it that checkpoints and backups are made of."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.streaming.hashing import (
    END,
    Positions,
    Ranges,
    distinct_key,
    original_keys,
    positions_of,
    within,
)

ALL: tuple[tuple[int, int], ...] = ((0, END),)
#: Values of these types cannot change in place.
_FIXED = {int, float, str, bytes, bool, type(None)}
_PICKLED = {b"goffish": b"pickle"}
_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.large_string(), bool: pa.bool_()}

Column: TypeAlias = Sequence[Any] | pa.Array


class Pickled(bytes):
    """A value as it was when it was captured."""


def captured(value: Any) -> Any:
    """Return the value, or a pickle of it where it could change in place."""
    return value if type(value) in _FIXED else Pickled(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def restored(value: Any) -> Any:
    """Return the value that was `captured`."""
    return pickle.loads(value) if isinstance(value, Pickled) else value


@dataclass(frozen=True)
class Delta:
    """Changed entries of a keyed state.

    Attributes
    ----------
    positions : array of uint64
        Position of every key.
    keys, subkeys, values : sequence or Arrow array
        An entry is named by its key and its subkey. Values that can change in place are `Pickled`.
    removed : array of bool
        Entries that were removed; their values have no meaning.
    """

    positions: Positions
    keys: Column
    subkeys: Column
    values: Column
    removed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.positions)

    def entries(self) -> Iterator[tuple[Any, Any, Any, bool]]:
        """Iterate over key, subkey, value and whether the entry was removed."""
        columns = (one.to_pylist() if isinstance(one, pa.Array) else one for one in (self.keys, self.subkeys))
        values = self.values.to_pylist() if isinstance(self.values, pa.Array) else self.values
        return zip(*columns, map(restored, values), self.removed.tolist(), strict=True)

    def to_arrow(self) -> pa.RecordBatch:
        """Return the delta as an Arrow batch; columns that Arrow has no type for are pickled value by value."""
        names = ("positions", "keys", "subkeys", "values", "removed")
        columns = [pa.array(self.positions), *map(_to_arrow, (self.keys, self.subkeys, self.values))]
        columns.append((pa.array(self.removed), None))
        arrays = [one if isinstance(one, pa.Array) else one[0] for one in columns]
        marks = [None if isinstance(one, pa.Array) else one[1] for one in columns]
        fields = [pa.field(n, a.type, metadata=m) for n, a, m in zip(names, arrays, marks, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    @staticmethod
    def from_arrow(batch: pa.RecordBatch) -> Delta:
        """Return the delta of an Arrow batch, which must be trusted: it can hold pickles."""
        columns: dict[str, Any] = {}
        for name in ("keys", "subkeys", "values"):
            columns[name] = batch.column(name)
            if (batch.schema.field(name).metadata or {}).get(b"goffish") == b"pickle":
                found = [Pickled(one) for one in columns[name].to_pylist()]
                columns[name] = found if name == "values" else list(map(restored, found))
        positions = batch.column("positions").to_numpy()
        return Delta(positions, removed=batch.column("removed").to_numpy(zero_copy_only=False), **columns)


def _to_arrow(column: Column) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    if isinstance(column, pa.Array):
        return column, None
    kinds = set(map(type, column))
    if kinds <= {type(None)}:
        return pa.nulls(len(column)), None
    one = _ARROW.get(kinds.pop()) if len(kinds) == 1 else None
    if one is not None:
        try:
            return pa.array(column, one), None
        except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
            pass  # integers of more than 64 bits, texts with lone surrogates
    pickled = [v if isinstance(v, Pickled) else pickle.dumps(v, pickle.HIGHEST_PROTOCOL) for v in column]
    return pa.array(pickled, pa.large_binary()), _PICKLED


class State(Protocol):
    """Keyed state that can be captured, moved and restored."""

    def collect(self) -> Delta:
        """Return the entries that changed since the last call, as they are now."""

    def extract(self, ranges: Ranges = ALL) -> Delta:
        """Return all entries whose key lies in the half-open ranges of positions."""

    def install(self, delta: Delta) -> None:
        """Add, replace and remove entries, without recording that as changes."""

    def discard(self, ranges: Ranges) -> None:
        """Remove all entries whose key lies in the ranges, without recording that as changes."""

    def sample(self, count: int) -> Delta:
        """Return the entries of about as many keys, spread over all of them."""

    def clear(self) -> None:
        """Remove all entries, and record that as changes."""

    def add(self, delta: Delta) -> None:
        """Add and replace entries, and record that as changes."""


def _delta(keys: list[Any], subkeys: list[Any], values: list[Any], removed: list[bool]) -> Delta:
    original = original_keys(keys)
    return Delta(positions_of(original), original, subkeys, values, np.array(removed, np.bool_))


@dataclass
class ValueState:
    """One value of every key.

    Attributes
    ----------
    values : dict
        By `distinct_key`.
    changed : set
        Keys whose values have changed since the last `collect`; set by the operator.
    """

    values: dict[Any, Any] = field(default_factory=dict)
    changed: set[Any] = field(default_factory=set)

    def collect(self) -> Delta:
        """Return the entries that changed since the last call, as they are now."""
        keys, self.changed = list(self.changed), set()
        removed = [key not in self.values for key in keys]
        values = [captured(self.values.get(key)) for key in keys]
        return _delta(keys, [None] * len(keys), values, removed)

    def extract(self, ranges: Ranges = ALL) -> Delta:
        """Return all entries whose key lies in the half-open ranges of positions."""
        return self._extract(_keys_within(self.values, ranges))

    def _extract(self, keys: list[Any]) -> Delta:
        return _delta(keys, [None] * len(keys), [captured(self.values[key]) for key in keys], [False] * len(keys))

    def install(self, delta: Delta) -> None:
        """Add, replace and remove entries."""
        for key, _, value, removed in delta.entries():
            if removed:
                self.values.pop(distinct_key(key), None)
            else:
                self.values[distinct_key(key)] = value

    def discard(self, ranges: Ranges) -> None:
        """Remove all entries whose key lies in the ranges, without recording that as changes."""
        for key in _keys_within(self.values, ranges):
            del self.values[key]
        positions = positions_of(original_keys(changed := list(self.changed)))
        gone = within(positions, ranges).tolist()
        self.changed.difference_update(key for key, inside in zip(changed, gone, strict=True) if inside)

    def sample(self, count: int) -> Delta:
        """Return the entries of about as many keys, spread over all of them."""
        return self._extract(_spread(self.values, count))

    def clear(self) -> None:
        """Remove all entries, and record that as changes."""
        self.changed.update(self.values)
        self.values.clear()

    def add(self, delta: Delta) -> None:
        """Add and replace entries, and record that as changes."""
        self.install(delta)
        self.changed.update(distinct_key(key) for key, _, _, _ in delta.entries())


def _spread(entries: dict[Any, Any], count: int) -> list[Any]:
    return list(itertools.islice(entries, 0, None, max(1, len(entries) // count)))


def _keys_within(entries: dict[Any, Any], ranges: Ranges) -> list[Any]:
    keys = list(entries)
    found = within(positions_of(original_keys(keys)), ranges)
    return [key for key, inside in zip(keys, found.tolist(), strict=True) if inside]


class KeyedState:
    """Several values of every key, named by subkeys."""

    def __init__(self) -> None:
        #: By `distinct_key` of the key, and subkey.
        self.entries: dict[Any, dict[Any, Any]] = {}
        self._changed: dict[tuple[Any, Any], None] = {}
        #: Entries that some delta has held. The removal of others is no change: they would pile up without `collect`.
        self._reported: set[tuple[Any, Any]] = set()

    def get(self, key: Any, subkey: Any, default: Any = None) -> Any:
        """Return a value. One that can change in place counts as changed."""
        value = self.entries.get(key, {}).get(subkey, _MISSING)
        if value is _MISSING:
            return default
        if type(value) not in _FIXED:
            self._changed[key, subkey] = None
        return value

    def put(self, key: Any, subkey: Any, value: Any) -> None:
        """Set a value."""
        self.entries.setdefault(key, {})[subkey] = value
        self._changed[key, subkey] = None

    def remove(self, key: Any, subkey: Any) -> None:
        """Remove a value if it exists."""
        values = self.entries.get(key)
        if values is not None and values.pop(subkey, _MISSING) is not _MISSING:
            if (key, subkey) in self._reported:
                self._changed[key, subkey] = None
            else:
                self._changed.pop((key, subkey), None)
            if not values:
                del self.entries[key]

    def collect(self) -> Delta:
        """Return the entries that changed since the last call, as they are now."""
        changed, self._changed = list(self._changed), {}
        found = [self.entries.get(key, {}).get(subkey, _MISSING) for key, subkey in changed]
        removed = [value is _MISSING for value in found]
        values = [None if value is _MISSING else captured(value) for value in found]
        self._reported |= set(changed)
        self._reported -= {entry for entry, gone in zip(changed, removed, strict=True) if gone}
        return _delta([key for key, _ in changed], [subkey for _, subkey in changed], values, removed)

    def extract(self, ranges: Ranges = ALL) -> Delta:
        """Return all entries whose key lies in the half-open ranges of positions."""
        return self._extract(_keys_within(self.entries, ranges))

    def _extract(self, chosen: list[Any]) -> Delta:
        found = [
            (key, subkey, captured(value)) for key in chosen for subkey, value in self.entries[key].items()
        ]  # fmt: skip
        keys, subkeys, values = ([one[at] for one in found] for at in range(3))
        self._reported |= set(zip(keys, subkeys, strict=True))
        return _delta(keys, subkeys, values, [False] * len(found))

    def install(self, delta: Delta) -> None:
        """Add, replace and remove entries."""
        for key, subkey, value, removed in delta.entries():
            known = distinct_key(key)
            if not removed:
                self.entries.setdefault(known, {})[subkey] = value
                self._reported.add((known, subkey))
            elif known in self.entries:
                self.entries[known].pop(subkey, None)
                if not self.entries[known]:
                    del self.entries[known]

    def discard(self, ranges: Ranges) -> None:
        """Remove all entries whose key lies in the ranges, without recording that as changes."""
        gone = set(_keys_within(self.entries, ranges))
        for key in gone:
            del self.entries[key]
        self._changed = {entry: None for entry in self._changed if entry[0] not in gone}
        self._reported = {entry for entry in self._reported if entry[0] not in gone}

    def sample(self, count: int) -> Delta:
        """Return the entries of about as many keys, spread over all of them."""
        return self._extract(_spread(self.entries, count))

    def clear(self) -> None:
        """Remove all entries, and record that as changes."""
        self._changed = dict.fromkeys(self._reported)
        self.entries.clear()

    def add(self, delta: Delta) -> None:
        """Add and replace entries, and record that as changes."""
        self.install(delta)
        self._changed |= {(distinct_key(key), subkey): None for key, subkey, _, _ in delta.entries()}


_MISSING: Any = object()

"""Aggregates of many keys in flat arrays, by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.streaming import kernels
from goffish.streaming.batches import Batch, column_of
from goffish.streaming.hashing import (
    Positions,
    Ranges,
    distinct_key,
    within,
)
from goffish.streaming.key_table import KeyTable, Slots, longer
from goffish.streaming.state import ALL, Column, Delta

Function = Literal["sum", "count", "min", "max", "mean"]
FUNCTIONS: tuple[Function, ...] = ("sum", "count", "min", "max", "mean")
_INT64 = pa.int64()


class Aggregate(NamedTuple):
    """One result column of an aggregation.

    Attributes
    ----------
    name : str
        Name of the result.
    function : {"sum", "count", "min", "max", "mean"}
    column : str, optional
        Column of the records; by default, the records themselves are numbers.
    """

    name: str
    function: Function
    column: str | None = None


@dataclass
class Accumulators:
    """Aggregates of the keys of one table.

    Parameters
    ----------
    functions : tuple of str
    floats : list of bool
        Whether each accumulator is a float64; shared by all tables of an operator, so that their results have the
        same types.
    """

    functions: tuple[Function, ...]
    floats: list[bool]

    def __post_init__(self) -> None:
        self.table = KeyTable()
        kinds = [np.float64 if one else np.int64 for one in self.floats]
        self._values: list[NDArray[Any]] = [np.zeros(self.table.capacity, kind) for kind in kinds]
        self._counts = [np.zeros(self.table.capacity, np.int64) for _ in self.functions]
        self._seen = np.zeros(self.table.capacity, np.bool_)
        self._changed = np.zeros(self.table.capacity, np.bool_)
        #: Slots that some delta has held: the removal of others is no change.
        self.reported = np.zeros(self.table.capacity, np.bool_)

    def _fit(self) -> None:
        size, used = self.table.capacity, len(self._seen)
        if size > used:
            self._values = [longer(one, used, size) for one in self._values]
            self._counts = [longer(one, used, size) for one in self._counts]
            self._seen, self._changed = longer(self._seen, used, size), longer(self._changed, used, size)
            self.reported = longer(self.reported, used, size)
        for at, wanted in enumerate(self.floats):
            if wanted and self._values[at].dtype != np.float64:
                self._values[at] = self._values[at].astype(np.float64)

    def update(self, keys: pa.Array | list[Any], columns: Sequence[pa.Array | None]) -> Slots:
        """Add records; return the slots that changed, in the order of first appearance.

        Parameters
        ----------
        keys : Arrow array or list
        columns : sequence of Arrow arrays
            Numbers of every aggregate, int64 or float64; ``None`` to count records.

        Raises
        ------
        InputError
            A key is not accepted, or a sum leaves the range of int64.
        """
        slots = self.table.slots(keys)
        for at, column in enumerate(columns):
            if column is not None and pa.types.is_floating(column.type):
                self.floats[at] = True
        self._fit()
        for at, (function, column) in enumerate(zip(self.functions, columns, strict=True)):
            values, counts, chosen = self._values[at], self._counts[at], slots
            if column is None:
                kernels.add_counts(chosen, counts)
                continue
            if column.null_count:
                chosen = slots[pc.is_valid(column).to_numpy(zero_copy_only=False)]
            data = column.drop_null().to_numpy()
            if data.dtype != values.dtype:
                data = data.astype(values.dtype)
            if function == "count":
                kernels.add_counts(chosen, counts)
            elif function == "min":
                kernels.add_minima(chosen, data, values, counts)
            elif function == "max":
                kernels.add_maxima(chosen, data, values, counts)
            else:
                if values.dtype == np.float64:
                    kernels.add_floats(chosen, data, values)
                elif kernels.add_integers(chosen, data, values) >= 0:
                    raise InputError("a sum exceeds the range of int64; convert the column to float")
                if function == "mean":
                    kernels.add_counts(chosen, counts)
        found = np.empty(min(len(slots), self.table.count), np.int64)
        return found[: kernels.distinct(slots, self._seen, self._changed, found)]

    def all_slots(self) -> Slots:
        """Return the slots of all keys."""
        return np.arange(self.table.count)

    def results(self, slots: Slots) -> list[pa.Array]:
        """Return the aggregates of slots; null where no number was aggregated, but 0 for sums."""
        found = []
        for function, values, counts in zip(self.functions, self._values, self._counts, strict=True):
            count = counts[slots]
            if function == "count":
                found.append(pa.array(count))
            elif function == "mean":
                with np.errstate(invalid="ignore", divide="ignore"):
                    found.append(pa.array(values[slots] / count, mask=count == 0))
            else:
                found.append(pa.array(values[slots], mask=None if function == "sum" else count == 0))
        return found

    def captured(self, slots: Slots) -> pa.Array:
        """Return the accumulators of slots as a struct column."""
        arrays, names = [], []
        for at, (values, counts) in enumerate(zip(self._values, self._counts, strict=True)):
            arrays += [pa.array(values[slots]), pa.array(counts[slots])]
            names += [f"value{at}", f"count{at}"]
        return pa.StructArray.from_arrays(arrays, names)

    def changed_slots(self) -> Slots:
        """Return the slots that changed since the last call, and mark them as reported."""
        slots = np.flatnonzero(self._changed[: self.table.count])
        self._changed[slots] = False
        self.reported[slots] = True
        return slots

    def install(self, keys: Column, values: pa.Array) -> None:
        """Set the accumulators of keys, which count as reported."""
        slots = self.table.slots(keys if isinstance(keys, pa.Array) else list(keys))
        numbers = [values.field(2 * at) for at in range(len(self.functions))]
        for at, one in enumerate(numbers):
            self.floats[at] |= pa.types.is_floating(one.type)
        self._fit()
        for at, one in enumerate(numbers):
            self._values[at][slots] = one.to_numpy()
            self._counts[at][slots] = values.field(2 * at + 1).to_numpy()
        self.reported[slots] = True


class AggregateState:
    """Aggregates of every key, in windows or without.

    Attributes
    ----------
    windows : dict
        Accumulators by the start of their window, or by ``None``.
    """

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self.functions = tuple(one.function for one in aggregates)
        self._floats = [one.function == "mean" for one in aggregates]
        self.windows: dict[int | None, Accumulators] = {}
        self._removed: list[tuple[Positions, Column, int | None]] = []

    def at(self, window: int | None) -> Accumulators:
        """Return the accumulators of a window, which are made if they do not exist."""
        found = self.windows.get(window)
        if found is None:
            found = self.windows[window] = Accumulators(self.functions, self._floats)
        return found

    def remove(self, window: int | None) -> None:
        """Remove a window."""
        gone = self.windows.pop(window)
        slots = np.flatnonzero(gone.reported[: gone.table.count])
        if len(slots):
            self._removed.append((gone.table.positions[slots], gone.table.keys(slots), window))

    def collect(self) -> Delta:
        """Return the entries that changed since the last call, as they are now."""
        removed, self._removed = self._removed, []
        return self._delta([(window, one.changed_slots()) for window, one in self.windows.items()], removed)

    def extract(self, ranges: Ranges = ALL) -> Delta:
        """Return all entries whose key lies in the half-open ranges of positions."""
        ranges = list(ranges)
        return self._extract(lambda table: np.flatnonzero(within(table.positions[: table.count], ranges)))

    def _extract(self, chosen: Callable[[KeyTable], Slots]) -> Delta:
        parts = []
        for window, one in self.windows.items():
            slots = chosen(one.table)
            one.reported[slots] = True
            parts.append((window, slots))
        return self._delta(parts, [])

    def _delta(
        self, parts: list[tuple[int | None, Slots]], removed: list[tuple[Positions, Column, int | None]]
    ) -> Delta:
        parts = [(window, slots) for window, slots in parts if len(slots)]
        tables = [(self.windows[window], slots) for window, slots in parts]
        for one, _ in tables:
            one._fit()  # all of the same types
        positions = [one.table.positions[slots] for one, slots in tables] + [gone for gone, _, _ in removed]
        keys = [one.table.keys(slots) for one, slots in tables] + [known for _, known, _ in removed]
        windows = [(window, len(slots)) for window, slots in parts] + [
            (window, len(gone)) for gone, _, window in removed
        ]
        values = [one.captured(slots) for one, slots in tables]
        lost = sum(len(gone) for gone, _, _ in removed)
        kind = Accumulators(self.functions, self._floats).captured(np.empty(0, np.int64)).type
        count = sum(size for _, size in windows)
        return Delta(
            np.concatenate([np.empty(0, np.uint64), *positions]),
            _joined(keys),
            pa.array(np.repeat([0 if w is None else w for w, _ in windows], [n for _, n in windows]).astype(np.int64))
            if windows and windows[0][0] is not None else pa.nulls(count),
            pa.concat_arrays([*values, pa.nulls(lost, kind)]),
            np.arange(count) >= count - lost,
        )  # fmt: skip

    def install(self, delta: Delta) -> None:
        """Add, replace and remove entries."""
        if not len(delta):
            return
        for window, found in _places(delta.subkeys):
            gone = delta.removed[found]
            if gone.any():
                known = _chosen(delta.keys, found[gone])
                self._drop(window, set(map(distinct_key, known.to_pylist() if isinstance(known, pa.Array) else known)))
            if not gone.all():
                at = found[~gone]
                self.at(window).install(_chosen(delta.keys, at), delta.values.take(pa.array(at)))  # type: ignore[union-attr]

    def _drop(self, window: int | None, gone: set[Any]) -> None:
        """Remove keys of a window."""
        before = self.windows.pop(window, None)
        if before is None:
            return
        slots = before.all_slots()
        keys = before.table.keys(slots)
        named = map(distinct_key, keys.to_pylist() if isinstance(keys, pa.Array) else keys)
        self._keep(window, before, np.array([key not in gone for key in named], np.bool_))

    def _keep(self, window: int | None, before: Accumulators, kept: NDArray[np.bool_]) -> None:
        """Replace the accumulators of a window by those of the slots to keep."""
        self.windows.pop(window, None)
        slots = np.flatnonzero(kept)
        if len(slots):
            after = self.at(window)
            after.install(before.table.keys(slots), before.captured(slots))
            after._changed[: len(slots)] = before._changed[slots]

    def discard(self, ranges: Ranges) -> None:
        """Remove all entries whose key lies in the ranges, without recording that as changes."""
        ranges = list(ranges)
        for window, one in list(self.windows.items()):
            found = within(one.table.positions[: one.table.count], ranges)
            if found.any():
                self._keep(window, one, ~found)
        kept = []
        for positions, keys, window in self._removed:
            at = np.flatnonzero(~within(positions, ranges))
            kept.append((positions[at], _chosen(keys, at), window))
        self._removed = kept

    def sample(self, count: int) -> Delta:
        """Return the entries of about as many keys, spread over all of them."""
        each = max(1, count // max(1, len(self.windows)))
        return self._extract(lambda table: np.arange(0, table.count, max(1, table.count // each)))

    def clear(self) -> None:
        """Remove all entries, and record that as changes."""
        for window in list(self.windows):
            self.remove(window)

    def add(self, delta: Delta) -> None:
        """Add and replace entries, and record that as changes."""
        self.install(delta)
        windows = delta.subkeys.to_pylist() if isinstance(delta.subkeys, pa.Array) else delta.subkeys
        for window in set(windows):
            at = np.array([place for place, one in enumerate(windows) if one == window], np.intp)
            keys, table = _chosen(delta.keys, at), self.windows[window]
            table._changed[table.table.slots(keys if isinstance(keys, pa.Array) else list(keys))] = True


def _places(windows: Column) -> Iterator[tuple[int | None, NDArray[np.intp]]]:
    """Iterate over windows and the places that have them."""
    column = windows if isinstance(windows, pa.Array) else pa.array(windows, pa.int64())
    if column.null_count == len(column):
        yield None, np.arange(len(column))
        return
    found, inverse = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    cuts = np.cumsum(np.bincount(inverse))[:-1]
    yield from zip(found.tolist(), np.split(order, cuts), strict=True)


def _chosen(column: Column, at: NDArray[np.intp]) -> Column:
    if isinstance(column, pa.Array):
        return column.take(pa.array(at))
    return [column[place] for place in at.tolist()]


def _joined(columns: list[Column]) -> Column:
    arrays = [one for one in columns if isinstance(one, pa.Array)]
    if arrays and len(arrays) == len(columns) and len({one.type for one in arrays}) == 1:
        return pa.concat_arrays(arrays)
    return [key for one in columns for key in (one.to_pylist() if isinstance(one, pa.Array) else one)]


def numbers_of(batch: Batch, aggregates: Sequence[Aggregate]) -> list[pa.Array | None]:
    """Return the column of every aggregate as int64 or float64.

    Raises
    ------
    InputError
        A column does not exist, or has no numbers.
    """
    found: dict[str | None, pa.Array] = {}
    for one in aggregates:
        if one.function == "count" and one.column is None:
            continue
        if one.column not in found:
            found[one.column] = _numbers(_column(batch, one.column), one)
    return [
        None if one.function == "count" and one.column is None else found[one.column] for one in aggregates
    ]  # fmt: skip


def _column(batch: Batch, column: str | None) -> pa.Array | list[Any]:
    if isinstance(batch.values, list):
        if column is None:
            return batch.values
        try:
            return [value[column] for value in batch.values]
        except (KeyError, TypeError, IndexError) as error:
            raise InputError(f"no column {column!r} in a record ({type(error).__name__})") from None
    if column is None:
        raise InputError(f"the records have columns ({', '.join(batch.values.schema.names)}); name one")
    return column_of(batch.values, column)


def _numbers(column: pa.Array | list[Any], aggregate: Aggregate) -> pa.Array:
    """Return numbers as int64 or float64; any column to count its values."""
    if isinstance(column, list):
        try:
            if aggregate.function == "count":
                return pa.array([None if value is None else 1 for value in column], _INT64)
            column = pa.array(column)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            try:
                column = pa.array([None if value is None else float(value) for value in column], pa.float64())
            except (TypeError, ValueError, OverflowError):
                raise _refused(aggregate, "mixed values") from None
    if pa.types.is_null(column.type):
        return column.cast(_INT64)
    if aggregate.function == "count":
        return pa.array(np.ones(len(column), np.int64), mask=pc.is_null(column).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        if column.type == pa.uint64():
            return column.cast(pa.float64(), safe=False)
        return column.cast(_INT64)
    if pa.types.is_floating(column.type):
        return column.cast(pa.float64())
    raise _refused(aggregate, str(column.type))


def _refused(aggregate: Aggregate, found: str) -> InputError:
    what = "the records" if aggregate.column is None else f"column {aggregate.column!r}"
    return InputError(f"{aggregate.function} of {what} of type {found}: accepted are integers and floats")

"""Instances of operators: they process batches and watermarks, and hold keyed state; without clocks, files or threads.

An instance is driven by `process`, `advance` and its `state`. Records that cannot be processed are collected in
`failures` for the caller.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.gofs.times import Times, event_time, event_times, moments
from goffish.streaming.aggregates import Aggregate, AggregateState, numbers_of
from goffish.streaming.batches import FIRST, LAST, Batch, as_arrow, column_of
from goffish.streaming.hashing import distinct_keys, original_key, original_keys, positions_of
from goffish.streaming.state import Delta, KeyedState, State, ValueState
from goffish.streaming.topology import (
    AggregateOptions,
    BranchOptions,
    JoinOptions,
    Key,
    Operator,
    ReduceOptions,
    TimeOptions,
)
from goffish.streaming.windows import Window

LATE = "late"
_ATOMIC = (int, float, str, bytes, bool, type(None))
_FIXED = set(_ATOMIC)
_MICROSECONDS = pa.timestamp("us", "UTC")


class Failure(NamedTuple):
    """A record that could not be processed.

    Attributes
    ----------
    operator : str
    record : object
    error : str
        Type and message.
    """

    operator: str
    record: Any
    error: str

    def __str__(self) -> str:
        shown = repr(self.record)
        shown = shown if len(shown) <= 200 else f"{shown[:199]}…"
        return " ".join(f"operator {self.operator}: {self.error} (record {shown})".split())


def described(error: BaseException) -> str:
    """Return the type and message of an error; the message of our own errors."""
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


class Instance:
    """A running instance of an operator that forwards its records.

    Attributes
    ----------
    name : str
    failures : list of Failure
        Since the caller last emptied it.
    late : int
        Records that arrived behind the watermark of their window.
    watermark : int
        All later records have this event time at least, in microseconds since 1970.
    state : State or None
    """

    state: State | None = None

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.name = operator.name
        self.function: Callable[..., Any] = operator.function or (lambda value: value)
        self.failures: list[Failure] = []
        self.late = 0
        self.watermark = FIRST

    def share(self, other: Instance) -> None:
        """Use the state of another instance, which may be of another version of the operator."""
        self.state = other.state

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        return [batch]

    def advance(self, watermark: int) -> list[Batch]:
        """Note that all later records have at least this event time; return what is sent."""
        self.watermark = watermark
        return []

    def forwarded(self, watermark: int) -> int:
        """Return the watermark that is sent after records up to one."""
        return watermark

    def progress(self) -> dict[str, int]:
        """Return what a checkpoint keeps beside the keyed state."""
        return {"watermark": self.watermark, "late": self.late}

    def resume(self, progress: Mapping[str, int]) -> None:
        """Continue from `progress`."""
        self.watermark, self.late = progress["watermark"], progress["late"]

    def _fail(self, record: Any, error: BaseException) -> None:
        self.failures.append(Failure(self.name, record, described(error)))

    def _apply(self, function: Callable[[Any], Any], values: list[Any]) -> tuple[list[Any], list[int]]:
        """Call a function with every value; return the results and the places of values that failed."""
        results: list[Any] = []
        failed: list[int] = []
        ahead = iter(values)
        while True:
            try:
                results.extend(map(function, ahead))
                return results, failed
            except Exception as error:
                at = len(results) + len(failed)
                self._fail(values[at], error)
                failed.append(at)

    def by_key(self, batch: Batch, key: Key) -> tuple[Batch, list[Any]]:
        """Return the records that have a key, and their keys as `distinct_key`."""
        if isinstance(key, str) and not isinstance(batch.values, list):
            found = column_of(batch.values, key).to_pylist()
            failed: list[int] = []
        else:
            found, failed = self._apply(itemgetter(key) if isinstance(key, str) else key, batch.rows())
        batch = _without(batch, failed)
        try:
            return batch, distinct_keys(found)
        except InputError:
            rows = batch.rows()
            keys: list[Any] = []
            kept = []
            for at, one in enumerate(found):
                try:
                    keys.append(distinct_keys([one])[0])
                    kept.append(at)
                except InputError as error:
                    self._fail(rows[at], error)
            return batch.take(np.array(kept, np.intp)), keys


def _without(batch: Batch, failed: list[int]) -> Batch:
    return batch.take(np.delete(np.arange(len(batch)), failed)) if failed else batch


class Map(Instance):
    """Sends the result of a function for every record."""

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        results, failed = self._apply(self.function, batch.rows())
        times = batch.times if batch.times is None or not failed else np.delete(batch.times, failed)
        return [Batch(results, times)] if results else []


class Filter(Instance):
    """Sends the records for which a predicate holds."""

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        rows = batch.rows()
        kept, failed = self._apply(self.function, rows)
        if not set(map(type, kept)) <= {bool, np.bool_}:
            places = np.delete(np.arange(len(rows)), failed).tolist()
            for at, one in zip(places, kept, strict=True):
                if not isinstance(one, bool | np.bool_):
                    self._fail(rows[at], InputError(f"the predicate returned {one!r:.60}: return True or False"))
            kept = [isinstance(one, bool | np.bool_) and one for one in kept]
        if failed:
            batch = _without(batch, failed)
        if all(kept):
            return [batch] if len(batch) else []
        if isinstance(batch.values, list):
            times = None if batch.times is None else batch.times[np.array(kept, np.bool_)]
            values = list(itertools.compress(batch.values, kept))
            return [Batch(values, times)] if values else []
        batch = batch.take(np.array(kept, np.bool_))
        return [batch] if len(batch) else []


class FlatMap(Instance):
    """Sends all results that a function returns for every record."""

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        rows = batch.rows()
        results, failed = self._apply(self._all, rows)
        values = list(itertools.chain.from_iterable(results))
        times = batch.times
        if times is not None:
            times = np.repeat(np.delete(times, failed), [len(one) for one in results])
        return [Batch(values, times)] if values else []

    def _all(self, value: Any) -> list[Any]:
        found = self.function(value)
        if isinstance(found, str | bytes | dict) or not isinstance(found, Iterable):
            raise InputError(f"the function returned {found!r:.60}: return a list or another iterable of records")
        return list(found)


class MapBatches(Instance):
    """Sends the result of a function for every Arrow batch."""

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        values = batch.values if isinstance(batch.values, pa.RecordBatch) else as_arrow(batch.values, self.name)
        try:
            found = self.function(values)
            parts = _batches(found)
        except Exception as error:
            for row in batch.rows():
                self._fail(row, error)
            return []
        count = sum(map(len, parts))
        if batch.times is None:
            return [Batch(part) for part in parts if len(part)]
        if count != len(batch):
            raise JobError(
                f"operator {self.name}: {count:,} records returned for {len(batch):,} records with event times; "
                "return as many, or set the event time after this operator"
            )
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        return [Batch(part, times) for part, times in zip(parts, np.split(batch.times, cuts), strict=True) if len(part)]


def _batches(found: Any) -> list[pa.RecordBatch]:
    if isinstance(found, pa.RecordBatch):
        return [found]
    if isinstance(found, pa.Table):
        batches: list[pa.RecordBatch] = found.to_batches()
        return batches
    if isinstance(found, pa.ChunkedArray):
        return [pa.record_batch({"value": chunk}) for chunk in found.chunks]
    if isinstance(found, pa.Array):
        return [pa.record_batch({"value": found})]
    raise InputError(f"the function returned {type(found).__name__}: return a RecordBatch, Table or Array of pyarrow")


class FilterBatches(Instance):
    """Sends the records of every Arrow batch that a mask selects."""

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        values = batch.values if isinstance(batch.values, pa.RecordBatch) else as_arrow(batch.values, self.name)
        try:
            found = self.function(values)
            mask = found if isinstance(found, np.ndarray) else pc.fill_null(found, False).to_numpy(zero_copy_only=False)
            if mask.dtype != np.bool_ or mask.shape != (len(batch),):
                raise InputError(
                    f"the function returned {mask.dtype} of shape {mask.shape} for {len(batch):,} records: return a "
                    "boolean for each"
                )
        except Exception as error:
            for row in batch.rows():
                self._fail(row, error)
            return []
        kept = Batch(values, batch.times).take(mask)
        return [kept] if len(kept) else []


class Branch(Instance):
    """Sends every record by the first output whose predicate holds."""

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        assert isinstance(self.operator.options, BranchOptions)
        rows = batch.rows()
        predicates = list(self.operator.options.predicates.values())

        def choose(value: Any) -> int:
            return next((at for at, predicate in enumerate(predicates) if predicate(value)), -1)

        found, failed = self._apply(choose, rows)
        batch = _without(batch, failed)
        chosen = np.array(found, np.int64)
        parts = [batch.take(chosen == at, name) for at, name in enumerate(self.operator.options.predicates)]
        return [part for part in parts if len(part)]


class EventTime(Instance):
    """Sets the event time of records, and the watermark by the latest one."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        assert isinstance(operator.options, TimeOptions)
        self.clock = Clock(operator.options.time, operator.options.lateness)

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        timed, failures = self.clock.timed(batch, self.name)
        self.failures += failures
        return [timed] if len(timed) else []

    def forwarded(self, watermark: int) -> int:
        """Return the watermark that is sent after records up to one."""
        return LAST if watermark == LAST else self.clock.watermark

    def progress(self) -> dict[str, int]:
        """Return what a checkpoint keeps beside the keyed state."""
        return super().progress() | {"clock": self.clock.watermark}

    def resume(self, progress: Mapping[str, int]) -> None:
        """Continue from `progress`."""
        super().resume(progress)
        self.clock.watermark = progress["clock"]


class Clock:
    """Event times of a stream, and its watermark: the latest time less the lateness that is accepted.

    Parameters
    ----------
    time : str or callable
        Column or function of the record.
    lateness : int
        Microseconds.
    """

    def __init__(self, time: Key, lateness: int) -> None:
        self.time = time
        self.lateness = lateness
        self.watermark = FIRST

    def timed(self, batch: Batch, operator: str) -> tuple[Batch, list[Failure]]:
        """Return the records with their event times, and those that have none."""
        failures: list[Failure] = []
        if isinstance(self.time, str) and not isinstance(batch.values, list):
            try:
                times = event_times(column_of(batch.values, self.time))
            except (InputError, TypeError, ValueError) as error:
                raise JobError(f"operator {operator}: column {self.time}: {described(error)}") from None
        else:
            rows = batch.rows()
            function = itemgetter(self.time) if isinstance(self.time, str) else self.time
            found, kept = [], []
            for at, value in enumerate(rows):
                try:
                    found.append(event_time(function(value)))
                    kept.append(at)
                except Exception as error:
                    failures.append(Failure(operator, value, described(error)))
            times = np.array(found, np.int64)
            if failures:
                batch = batch.take(np.array(kept, np.intp))
        if len(times):
            self.watermark = max(self.watermark, int(times.max()) - self.lateness)
        return Batch(batch.values, times), failures


def _named_key(key: Key) -> str:
    return key if isinstance(key, str) else "key"


class KeyedAggregate(Instance):
    """Sends, for every batch, the aggregates of all keys in it; in windows, those of every window that has ended."""

    state: AggregateState

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        assert isinstance(operator.options, AggregateOptions) and operator.key is not None
        self.aggregates, self.window, self.key = operator.options.aggregates, operator.options.window, operator.key
        self.state = AggregateState(self.aggregates)
        self._arrow = False

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        self._arrow = isinstance(batch.values, pa.RecordBatch)
        sent: list[Batch] = []
        if self.window is not None:
            batch, sent = self._on_time(batch, self.window)
        batch, keys, numbers = self._columns(batch)
        if not len(batch):
            return sent
        try:
            if self.window is None:
                slots = self.state.at(None).update(keys, numbers)
                last = None if batch.times is None else int(batch.times.max())
                return [self._results(None, slots, last)]
            for start, places in self.window.starts(_times(batch, self.name)):
                if start + self.window.size <= self.watermark:
                    continue
                whole = len(places) == len(batch)
                self.state.at(start).update(
                    keys if whole else _taken(keys, places),
                    numbers if whole else [None if one is None else one.take(pa.array(places)) for one in numbers],
                )
        except InputError as error:
            raise JobError(f"operator {self.name}: {error}") from None
        return sent

    def _on_time(self, batch: Batch, window: Window) -> tuple[Batch, list[Batch]]:
        late = window.last_end(_times(batch, self.name)) <= self.watermark
        if not late.any():
            return batch, []
        self.late += int(late.sum())
        return batch.take(~late), [batch.take(late, LATE)]

    def _columns(self, batch: Batch) -> tuple[Batch, pa.Array | list[Any], list[pa.Array | None]]:
        keys: pa.Array | list[Any]
        try:
            if isinstance(self.key, str) and isinstance(batch.values, pa.RecordBatch):
                keys = column_of(batch.values, self.key)
            else:
                batch, found = self.by_key(batch, self.key)
                keys = original_keys(found)
            return batch, keys, numbers_of(batch, self.aggregates)
        except InputError as error:
            if not isinstance(batch.values, list):
                raise JobError(f"operator {self.name}: {error}") from None
        # Some record has no number: find out which.
        kept = []
        for at, value in enumerate(batch.values):
            try:
                numbers_of(Batch([value]), self.aggregates)
                kept.append(at)
            except InputError as error:
                self._fail(value, error)
        if len(kept) == len(batch):
            raise JobError(f"operator {self.name}: the numbers of a batch have no common type")
        return self._columns(batch.take(np.array(kept, np.intp)))

    def advance(self, watermark: int) -> list[Batch]:
        """Note that all later records have at least this event time; return what is sent."""
        self.watermark = watermark
        if self.window is None:
            return []
        sent = []
        for start in sorted(start for start in self.state.windows if start is not None):
            if start + self.window.size > watermark:
                break
            table = self.state.windows[start]
            sent.append(self._results(start, table.all_slots(), start + self.window.size - 1))
            self.state.remove(start)
        return sent

    def _results(self, start: int | None, slots: NDArray[np.int64], time: int | None) -> Batch:
        table = self.state.at(start)
        keys, results = table.table.keys(slots), table.results(slots)
        names = [_named_key(self.key), *(one.name for one in self.aggregates)]
        times = None if time is None else np.full(len(slots), time, np.int64)
        bounds: list[tuple[str, int]] = []
        if start is not None and self.window is not None:
            bounds = [("window_start", start), ("window_end", start + self.window.size)]
        if self._arrow:
            columns = [keys if isinstance(keys, pa.Array) else pa.array(keys), *results]
            for at, (name, value) in enumerate(bounds, 1):
                columns.insert(at, pa.array(np.full(len(slots), value, np.int64)).cast(_MICROSECONDS))
                names.insert(at, name)
            return Batch(pa.RecordBatch.from_arrays(columns, names), times)
        listed = [keys.to_pylist() if isinstance(keys, pa.Array) else keys, *(one.to_pylist() for one in results)]
        for at, (name, value) in enumerate(bounds, 1):
            listed.insert(at, moments(np.full(1, value, np.int64)) * len(slots))
            names.insert(at, name)
        return Batch([dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)], times)


def _taken(keys: pa.Array | list[Any], places: NDArray[np.intp]) -> pa.Array | list[Any]:
    return keys.take(pa.array(places)) if isinstance(keys, pa.Array) else [keys[at] for at in places.tolist()]


def _times(batch: Batch, operator: str) -> Times:
    if batch.times is None:
        raise JobError(f"operator {operator}: records without an event time; give time= to the source or the window")
    return batch.times


def _copied(value: Any) -> Any:
    """Return a value that later changes of the state do not reach."""
    return value if isinstance(value, _ATOMIC) else pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class Reduce(Instance):
    """Sends, for every batch, the totals of all keys in it."""

    state: ValueState

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        assert isinstance(operator.options, ReduceOptions) and operator.key is not None
        self.key, self.initial = operator.key, operator.options.initial
        self.state = ValueState()

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        batch, keys = self.by_key(batch, self.key)
        rows = batch.rows()
        totals, function, initial = self.state.values, self.function, self.initial
        copied = not isinstance(initial, _ATOMIC)
        failed = set()
        ahead = enumerate(zip(keys, rows, strict=True))
        get = totals.get
        while True:
            at = -1
            try:
                if copied:
                    for at, (key, value) in ahead:  # noqa: B007 (of the record that fails)
                        totals[key] = function(totals[key] if key in totals else _copied(initial), value)
                else:
                    for at, (key, value) in ahead:  # noqa: B007
                        totals[key] = function(get(key, initial), value)
                break
            except Exception as error:
                self._fail(rows[at], error)
                failed.add(at)
        found = dict.fromkeys(keys)
        if failed:
            found = dict.fromkeys(key for at, key in enumerate(keys) if at not in failed)
        if not found:
            return []
        self.state.changed.update(found)
        name = _named_key(self.key)
        known = list(map(totals.__getitem__, found))
        if not set(map(type, known)) <= _FIXED:
            known = list(map(_copied, known))
        values = [{name: key, "value": total} for key, total in zip(original_keys(list(found)), known, strict=True)]
        times = None if batch.times is None else np.full(len(values), batch.times.max(), np.int64)
        return [Batch(values, times)]


class WindowState(KeyedState):
    """State of windows, and the earliest end of one."""

    earliest = LAST

    def install(self, delta: Delta) -> None:
        """Add, replace and remove entries."""
        super().install(delta)
        self.earliest = FIRST


class WindowedReduce(Instance):
    """Sends the totals of every key and window at the end of the window.

    The state has an entry for every key and start of a window: the total; in sessions, the end and the times and
    values, because sessions that grow together are reduced in the order of event time.
    """

    state: WindowState

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        options = operator.options
        assert isinstance(options, ReduceOptions | AggregateOptions) and options.window is not None
        assert operator.key is not None
        self.key, self.window = operator.key, options.window
        self.aggregates = options.aggregates if isinstance(options, AggregateOptions) else None
        self.initial = options.initial if isinstance(options, ReduceOptions) else None
        self.state = WindowState()

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        batch, keys = self.by_key(batch, self.key)
        late: list[int] = []
        for at, (key, value, time) in enumerate(
            zip(keys, batch.rows(), _times(batch, self.name).tolist(), strict=True)
        ):
            try:
                if self.aggregates is not None:
                    numbers_of(Batch([value]), self.aggregates)
                if not (self._in_session(key, value, time) if self.window.gap else self._in_windows(key, value, time)):
                    late.append(at)
            except Exception as error:
                self._fail(value, error)
        self.late += len(late)
        return [batch.take(np.array(late, np.intp), LATE)] if late else []

    def _in_windows(self, key: Any, value: Any, time: int) -> bool:
        """Add a record to its windows; whether one of them is open."""
        start, added = time - time % self.window.slide, False
        while start + self.window.size > time:
            if start + self.window.size > self.watermark:
                total = self.state.get(key, start, _MISSING)
                total = _copied(self.initial) if total is _MISSING else total
                self.state.put(key, start, self.function(total, value))
                self.state.earliest = min(self.state.earliest, start + self.window.size)
                added = True
            start -= self.window.slide
        return added

    def _in_session(self, key: Any, value: Any, time: int) -> bool:
        """Add a record to its session, and join the sessions that it connects; whether that is open."""
        gap, first, end = self.window.gap, time, time + self.window.gap
        met = [
            (start, known) for start, known in self.state.entries.get(key, {}).items()
            if start < time + gap and time < known[0]
        ]  # fmt: skip
        if not met and end <= self.watermark:
            return False
        records = met[0][1][1] if met else []
        records.append((time, value))
        for place, (start, (ended, known)) in enumerate(met):
            first, end = min(first, start), max(end, ended)
            if place:
                records += known
        for start, _ in met:
            if start != first:
                self.state.remove(key, start)
        self.state.put(key, first, (end, records))
        self.state.earliest = min(self.state.earliest, end)
        return True

    def advance(self, watermark: int) -> list[Batch]:
        """Note that all later records have at least this event time; return what is sent."""
        self.watermark = watermark
        if watermark < self.state.earliest:
            return []
        due, self.state.earliest = [], LAST
        for key, windows in self.state.entries.items():
            for start, kept in windows.items():
                end = kept[0] if self.window.gap else start + self.window.size
                if end <= watermark:
                    due.append((end, start, key))
                else:
                    self.state.earliest = min(self.state.earliest, end)
        values, times = [], []
        for end, start, key in sorted(due, key=itemgetter(0, 1)):
            kept = self.state.entries[key][start]
            self.state.remove(key, start)
            begun, ended = moments(np.array([start, end]))
            row = {_named_key(self.key): original_key(key), "window_start": begun, "window_end": ended}
            try:
                row |= self._result(kept)
            except Exception as error:
                self._fail(row, error)
                continue
            values.append(row)
            times.append(end - 1)
        return [Batch(values, np.array(times, np.int64))] if values else []

    def _result(self, kept: Any) -> dict[str, Any]:
        if not self.window.gap:
            return {"value": kept}
        records = [value for _, value in sorted(kept[1], key=itemgetter(0))]
        if self.aggregates is not None:
            return aggregate(records, self.aggregates)
        total = _copied(self.initial)
        for value in records:
            total = self.function(total, value)
        return {"value": total}


def aggregate(records: list[Any], aggregates: tuple[Aggregate, ...]) -> dict[str, Any]:
    """Return the aggregates of some records."""
    state = AggregateState(aggregates)
    slots = state.at(None).update(pa.array(np.zeros(len(records), np.int64)), numbers_of(Batch(records), aggregates))
    results = state.at(None).results(slots)
    return {one.name: found[0].as_py() for one, found in zip(aggregates, results, strict=True)}


class Join(Instance):
    """Sends the pairs of records of two inputs with one key that are close in event time, or in one window.

    The state keeps every record, by its side and a number, until no partner can arrive.
    """

    state: KeyedState

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        assert isinstance(operator.options, JoinOptions)
        self.within, self.window = operator.options.within, operator.options.window
        self.keys: list[Key] = [channel.key for channel in operator.inputs if channel.key is not None]
        self.function = operator.function or (lambda left, right: (left, right))
        self.state = KeyedState()
        self._sweep = FIRST

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        batch, keys = self.by_key(batch, self.keys[port])
        values: list[Any] = []
        times: list[int] = []
        late: list[int] = []
        for at, (key, value, time) in enumerate(
            zip(keys, batch.rows(), _times(batch, self.name).tolist(), strict=True)
        ):
            if self._expires(time) <= self.watermark if self.window is not None else time < self.watermark:
                late.append(at)
                continue
            known = self.state.entries.get(key, {})
            partners = [kept for (side, _), kept in known.items() if side != port and self._joined(time, kept[0])]
            for other_time, other in partners:
                try:
                    values.append(self.function(value, other) if port == 0 else self.function(other, value))
                    times.append(max(time, other_time))
                except Exception as error:
                    self._fail(value, error)
            number = max((number for side, number in known if side == port), default=-1) + 1
            self.state.put(key, (port, number), (time, value))
        self.late += len(late)
        sent = [batch.take(np.array(late, np.intp), LATE)] if late else []
        return [Batch(values, np.array(times, np.int64)), *sent] if values else sent

    def _joined(self, time: int, other: int) -> bool:
        if self.window is not None:
            return time // self.window.size == other // self.window.size
        return self.within is not None and abs(time - other) <= self.within

    def _expires(self, time: int) -> int:
        """Return the watermark at which a record has no partner any more."""
        if self.window is not None:
            return time - time % self.window.size + self.window.size
        return time + (self.within or 0) + 1

    def advance(self, watermark: int) -> list[Batch]:
        """Note that all later records have at least this event time; return what is sent."""
        self.watermark = watermark
        # Records that have expired find no partner: they may stay for a while.
        if watermark < self._sweep:
            return []
        self._sweep = min(
            LAST, watermark + 1 + (self.window.size if self.window is not None else self.within or 0) // 2
        )
        gone = [
            (key, subkey)
            for key, known in self.state.entries.items() for subkey, (time, _) in known.items()
            if self._expires(time) <= watermark
        ]  # fmt: skip
        for key, subkey in gone:
            self.state.remove(key, subkey)
        return []


class KeyState:
    """Values that a `process` operator keeps for the current key, by subkey.

    Behaves like a dictionary. A value that was read may be changed in place.

    Examples
    --------
    >>> import goffish as gf
    >>> class Count:
    ...     def on_value(self, key, value, state, timers, emit):
    ...         state["seen"] = state.get("seen", 0) + 1
    ...         emit((key, state["seen"]))
    >>> flow, seen = gf.stream.Flow("count"), gf.stream.collect()
    >>> _ = flow.source(gf.stream.from_iterable("aba")).key_by(lambda one: one).process(Count).sink(seen)
    >>> _ = flow.run()
    >>> seen.values
    [('a', 1), ('b', 1), ('a', 2)]
    """

    def __init__(self, state: KeyedState, key: Any = None) -> None:
        self._state, self.key = state, key

    def get(self, subkey: Any = None, default: Any = None) -> Any:
        """Return a value, or `default`.

        Parameters
        ----------
        subkey : object
        default : object

        Returns
        -------
        object
        """
        return self._state.get(self.key, (VALUE, subkey), default)

    def put(self, subkey: Any, value: Any) -> None:
        """Set a value.

        Parameters
        ----------
        subkey, value : object
        """
        self._state.put(self.key, (VALUE, subkey), value)

    def __getitem__(self, subkey: Any) -> Any:
        found = self.get(subkey, _MISSING)
        if found is _MISSING:
            raise KeyError(subkey)
        return found

    __setitem__ = put

    def __delitem__(self, subkey: Any) -> None:
        if subkey not in self:
            raise KeyError(subkey)
        self._state.remove(self.key, (VALUE, subkey))

    def __contains__(self, subkey: Any) -> bool:
        return (VALUE, subkey) in self._state.entries.get(self.key, ())

    def __iter__(self) -> Iterator[Any]:
        return iter([subkey for kind, subkey in self._state.entries.get(self.key, ()) if kind == VALUE])

    def __len__(self) -> int:
        return len(list(iter(self)))


class Timers:
    """Timers of a `process` operator for the current key, in event time."""

    def __init__(self, state: KeyedState, key: Any = None) -> None:
        self._state, self.key = state, key
        self._heap: list[tuple[int, int, int, Any]] = []
        self._numbers = itertools.count()
        #: Watermark, in microseconds since 1970.
        self.watermark = FIRST

    def set(self, time: Any) -> None:
        """Call ``on_timer`` when the watermark passes a time.

        Parameters
        ----------
        time : datetime, str or float
            Timestamp, ISO 8601 text, or seconds since 1970.
        """
        self.set_microseconds(event_time(time))

    def set_microseconds(self, time: int) -> None:
        """Call ``on_timer`` when the watermark passes a time.

        Parameters
        ----------
        time : int
            Microseconds since 1970.
        """
        if (TIMER, time) not in self._state.entries.get(self.key, ()):
            self._state.put(self.key, (TIMER, time), True)
            self._push(self.key, time)

    def cancel(self, time: Any) -> None:
        """Remove a timer if it exists.

        Parameters
        ----------
        time : datetime, str or float
        """
        self._state.remove(self.key, (TIMER, event_time(time)))

    def _push(self, key: Any, time: int) -> None:
        """Enter a timer of the state."""
        position = int(positions_of([original_key(key)])[0])
        heapq.heappush(self._heap, (time, position, next(self._numbers), key))

    def _due(self, watermark: int) -> Iterator[tuple[Any, int]]:
        """Remove and iterate over the timers up to a watermark, in order of time and position of the key."""
        while self._heap and self._heap[0][0] <= watermark:
            time, _, _, key = heapq.heappop(self._heap)
            if (TIMER, time) in self._state.entries.get(key, ()):
                self._state.remove(key, (TIMER, time))
                yield key, time


#: Kinds of entries in the state of `process`.
VALUE, TIMER = 0, 1
_MISSING: Any = object()


class ProcessState(KeyedState):
    """State of a `process` operator, which enters the timers that are installed."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers(self)

    def install(self, delta: Delta) -> None:
        """Add, replace and remove entries."""
        super().install(delta)
        for key, subkey, _, removed in delta.entries():
            if subkey[0] == TIMER and not removed:
                self.timers._push(distinct_keys([key])[0], subkey[1])


class Process(Instance):
    """Calls ``on_value`` of an object of the user for every record, and ``on_timer`` for every timer.

    Values and timers of keys are in the state; the object itself must not keep anything that has to survive.
    """

    state: ProcessState

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        assert operator.key is not None
        self.key = operator.key
        try:
            self.logic = self.function()
        except Exception as error:
            raise JobError(f"operator {self.name}: {described(error)}") from error
        self.state = ProcessState()
        self._view, self._timers = KeyState(self.state), self.state.timers
        self._sent: list[Any] = []

    def share(self, other: Instance) -> None:
        """Use the state and the timers of another instance."""
        super().share(other)
        self._view, self._timers = KeyState(self.state), self.state.timers

    def process(self, port: int, batch: Batch) -> list[Batch]:
        """Process the records of an input; return what is sent."""
        batch, keys = self.by_key(batch, self.key)
        sent, times = self._sent, batch.times
        counts = []
        for key, value in zip(keys, batch.rows(), strict=True):
            self._view.key = self._timers.key = key
            before = len(sent)
            try:
                self.logic.on_value(original_key(key), value, self._view, self._timers, sent.append)
            except Exception as error:
                self._fail(value, error)
            counts.append(len(sent) - before)
        return self._taken(None if times is None else np.repeat(times, counts))

    def advance(self, watermark: int) -> list[Batch]:
        """Note that all later records have at least this event time; return what is sent."""
        self.watermark = self._timers.watermark = watermark
        times = []
        for key, time in self._timers._due(watermark):
            self._view.key = self._timers.key = key
            before = len(self._sent)
            try:
                self.logic.on_timer(original_key(key), time / 1e6, self._view, self._timers, self._sent.append)
            except Exception as error:
                self._fail({"key": original_key(key), "timer": time / 1e6}, error)
            times += [time] * (len(self._sent) - before)
        return self._taken(np.array(times, np.int64))

    def _taken(self, times: Times | None) -> list[Batch]:
        # `emit` appends to one list: the user may have kept it.
        values = self._sent.copy()
        self._sent.clear()
        return [Batch(values, times)] if values else []


def _aggregate_instance(operator: Operator) -> Instance:
    assert isinstance(operator.options, AggregateOptions)
    session = operator.options.window is not None and operator.options.window.gap
    return WindowedReduce(operator) if session else KeyedAggregate(operator)


def _reduce_instance(operator: Operator) -> Instance:
    assert isinstance(operator.options, ReduceOptions)
    return Reduce(operator) if operator.options.window is None else WindowedReduce(operator)


_INSTANCES: dict[str, Callable[[Operator], Instance]] = {
    "source": Instance,
    "union": Instance,
    "loop": Instance,
    "sink": Instance,
    "map": Map,
    "filter": Filter,
    "flat_map": FlatMap,
    "map_batches": MapBatches,
    "filter_batches": FilterBatches,
    "branch": Branch,
    "event_time": EventTime,
    "aggregate": _aggregate_instance,
    "reduce": _reduce_instance,
    "join": Join,
    "process": Process,
}
KINDS = tuple(_INSTANCES)


def make_instance(operator: Operator) -> Instance:
    """Return an instance of an operator with empty state.

    Raises
    ------
    JobError
        The class of the user cannot be instantiated.
    """
    return _INSTANCES[operator.kind](operator)

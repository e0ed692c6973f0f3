"""Keyed state: changes that are captured, moved and restored, compared with dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.streaming.aggregates import Aggregate, AggregateState
from goffish.streaming.hashing import END, distinct_key, original_key, positions_of
from goffish.streaming.key_table import KeyTable
from goffish.streaming.state import Delta, KeyedState, State, ValueState

KEYS = st.one_of(
    st.integers(-3, 3), st.text("ab", max_size=2), st.booleans(), st.none(), st.sampled_from([0.5, 1.0, (1, "a")])
)
HALF = END // 2


def moved(delta: Delta) -> Delta:
    """A delta after it was written and read."""
    sink = pa.BufferOutputStream()
    batch = delta.to_arrow()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    read = Delta.from_arrow(pa.ipc.open_stream(sink.getvalue()).read_next_batch())
    assert np.array_equal(read.positions, positions_of([key for key, *_ in read.entries()]))
    return read


def content(state: State) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, subkey, value, removed in state.extract(((0, END),)).entries():
        assert not removed
        assert (distinct_key(key), subkey) not in found
        found[distinct_key(key), subkey] = value
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_deltas_rebuild_keyed_state(data: st.DataObject) -> None:
    """Breaks when the deltas of a state, applied in order, do not give the same state."""
    state, copy, expected = KeyedState(), KeyedState(), {}
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, 6))):
            key, subkey = distinct_key(data.draw(KEYS)), data.draw(st.integers(0, 2))
            if data.draw(st.booleans()):
                value = data.draw(st.one_of(st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2)))
                state.put(key, subkey, value)
                expected[key, subkey] = value
            else:
                state.remove(key, subkey)
                expected.pop((key, subkey), None)
        copy.install(moved(state.collect()))
        assert content(copy) == content(state) == expected
        assert len(state.collect()) == 0
    low, high = KeyedState(), KeyedState()
    low.install(moved(state.extract([(0, HALF)])))
    high.install(moved(state.extract([(HALF, END)])))
    assert content(low) | content(high) == expected
    assert not content(low).keys() & content(high).keys()
    state.discard([(0, HALF)])
    assert content(state) == content(high)


@pytest.mark.parametrize("reported", ["collect", "extract", None])
def test_only_removals_that_matter_are_changes(reported: str | None) -> None:
    """Breaks when a copy keeps what was removed, or removals pile up in a flow without checkpoints."""
    keyed, windows = KeyedState(), AggregateState((Aggregate("s", "sum"),))
    keyed.put("k", 0, 1)
    windows.at(5).update(["k"], [pa.array([1])])
    for state in (keyed, windows):
        if reported is not None:
            getattr(state, reported)()
    keyed.remove("k", 0)
    windows.remove(5)
    for state in (keyed, windows):
        assert state.collect().removed.tolist() == ([] if reported is None else [True])


def test_values_changed_in_place_are_captured() -> None:
    state, copy = KeyedState(), KeyedState()
    state.put("k", 0, [1])
    first = state.collect()
    state.get("k", 0).append(2)
    copy.install(first)
    assert content(copy) == {("k", 0): [1]}
    copy.install(state.collect())
    assert content(copy) == {("k", 0): [1, 2]}


def test_value_state_captures_and_moves() -> None:
    state, copy = ValueState(), ValueState()
    state.values |= {"a": [1], distinct_key(True): 2, 1: 3}
    state.changed |= set(state.values)
    delta = state.collect()
    state.values["a"].append(9)
    copy.install(moved(delta))
    assert copy.values == {"a": [1], distinct_key(True): 2, 1: 3}
    copy.discard([(0, END)])
    assert copy.values == {}


def test_keys_of_all_types_have_one_slot_each() -> None:
    keys: list[Any] = [1, "1", True, 1.0, None, b"1", (1,), 1 << 70, "ä", "\ud800", "", -5]
    table = KeyTable()
    slots = table.slots(keys * 2)
    assert slots.tolist() == [*range(len(keys))] * 2
    found = table.keys(slots)
    assert [repr(key) for key in found] == [repr(key) for key in keys * 2]
    assert table.positions[: table.count].tolist() == positions_of(keys).tolist()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.text("abcä", max_size=6), max_size=40), max_size=5))
def test_texts_of_arrow_and_python_share_slots(batches: list[list[str]]) -> None:
    table, known = KeyTable(), dict[str, int]()
    for at, batch in enumerate(batches):
        slots = table.slots(pa.array(batch, pa.string()) if at % 2 else batch)
        assert slots.tolist() == [known.setdefault(key, len(known)) for key in batch]
    column = table.keys(np.arange(len(known)))
    assert (column.to_pylist() if isinstance(column, pa.Array) else column) == list(known)


def test_tables_grow() -> None:
    table, count = KeyTable(), 20_000
    for _ in range(2):
        assert table.slots(pa.array(range(count))).tolist() == list(range(count))
        texts = table.slots(pa.array([f"key {i}" * (1 + i % 7) for i in range(count)]))
        assert texts.tolist() == list(range(count, 2 * count))
    assert table.keys(np.array([1, 3])).to_pylist() == [1, 3]
    assert table.keys(np.array([count, count + 1])).to_pylist() == ["key 0", "key 1" * 2]


AGGREGATES = (
    Aggregate("s", "sum", "v"), Aggregate("c", "count"), Aggregate("n", "count", "v"), Aggregate("l", "min", "v"),
    Aggregate("h", "max", "v"), Aggregate("m", "mean", "v"),
)  # fmt: skip
NUMBERS = st.one_of(st.none(), st.integers(-100, 100))


def results(state: AggregateState, window: int | None) -> dict[Any, tuple[Any, ...]]:
    if window not in state.windows:
        return {}
    table = state.windows[window]
    keys = table.table.keys(table.all_slots())
    columns = [one.to_pylist() for one in table.results(table.all_slots())]
    listed = keys.to_pylist() if isinstance(keys, pa.Array) else keys
    return {distinct_key(key): row for key, row in zip(listed, zip(*columns, strict=True), strict=True)}


def expected_of(records: list[tuple[Any, int | None]]) -> dict[Any, tuple[Any, ...]]:
    groups: dict[Any, list[int | None]] = {}
    for key, value in records:
        groups.setdefault(distinct_key(key), []).append(value)
    found = {}
    for key, values in groups.items():
        numbers = [value for value in values if value is not None]
        known = (min(numbers), max(numbers), sum(numbers) / len(numbers)) if numbers else (None, None, None)
        found[key] = (sum(numbers), len(values), len(numbers), *known)
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_aggregates_and_their_deltas(data: st.DataObject) -> None:
    """Breaks when aggregates differ from those of Python, or are lost on the way to another instance."""
    state, copy, records = AggregateState(AGGREGATES), AggregateState(AGGREGATES), dict[Any, list[Any]]()
    for _ in range(data.draw(st.integers(1, 4))):
        for window in (0, 7):
            batch = data.draw(st.lists(st.tuples(KEYS, NUMBERS), max_size=8))
            if not batch:
                continue
            column = pa.array([value for _, value in batch], pa.int64())
            numbers = [None if one.function == "count" and one.column is None else column for one in AGGREGATES]
            state.at(window).update([key for key, _ in batch], numbers)
            records.setdefault(window, []).extend(batch)
        if data.draw(st.booleans()) and 7 in state.windows:
            state.remove(7)
            records.pop(7)
        copy.install(moved(state.collect()))
        for window in (0, 7):
            assert results(copy, window) == results(state, window) == expected_of(records.get(window, []))
    low = AggregateState(AGGREGATES)
    low.install(moved(state.extract([(0, HALF)])))
    state.discard([(0, HALF)])
    for window in (0, 7):
        assert results(low, window) | results(state, window) == expected_of(records.get(window, []))
        assert not results(low, window).keys() & results(state, window).keys()
    for key, position in ((key, positions_of([original_key(key)])[0]) for key in results(low, 0)):
        assert position < HALF, key


def test_integers_become_floats_in_all_windows() -> None:
    state = AggregateState((Aggregate("s", "sum"),))
    state.at(0).update(["a"], [pa.array([1])])
    state.at(1).update(["a"], [pa.array([0.5])])
    copy = AggregateState((Aggregate("s", "sum"),))
    copy.install(moved(state.collect()))
    assert results(copy, 0) == {"a": (1.0,)} and results(copy, 1) == {"a": (0.5,)}


def test_sums_beyond_int64_are_refused() -> None:
    state = AggregateState((Aggregate("s", "sum"),))
    with pytest.raises(InputError, match="exceeds the range of int64"):
        state.at(None).update(["a", "a"], [pa.array([(1 << 63) - 1, 1])])


@pytest.mark.parametrize("make", [KeyedState, ValueState, lambda: AggregateState((Aggregate("s", "sum"),))])
def test_empty_states(make: Callable[[], State]) -> None:
    state = make()
    state.install(moved(state.collect()))
    assert len(state.extract(())) == 0


@pytest.mark.parametrize("state", [ValueState, KeyedState, lambda: AggregateState((Aggregate("n", "sum", "n"),))])
def test_all_entries_are_removed_and_added(state: Callable[[], Any]) -> None:
    """Breaks when the deltas of a state that was emptied, and filled again, do not give the same state."""
    one, copy = state(), state()
    keys = [*range(50), "a", None, (1, "b")]
    if isinstance(one, AggregateState):
        one.at(None).update(keys, [pa.array(range(len(keys)))])
    else:
        for at, key in enumerate(keys):
            if isinstance(one, ValueState):
                one.values[distinct_key(key)] = at
                one.changed.add(distinct_key(key))
            else:
                one.put(distinct_key(key), "s", at)
    copy.install(moved(one.collect()))
    assert content(copy) == content(one) and len(content(one)) == len(keys)
    assert 10 <= len(one.sample(10)) <= 20
    taken = one.extract()
    one.clear()
    assert content(one) == {} and len(taken) == len(keys)
    copy.install(moved(one.collect()))
    assert content(copy) == {}
    one.add(taken)
    copy.install(moved(one.collect()))
    assert content(copy) == content(one) and len(content(one)) == len(keys)
    one.clear()
    one.add(taken)
    copy.install(moved(one.collect()))
    assert content(copy) == content(one) and len(content(one)) == len(keys)

"""Tasks alone: order by number, duplicates, state that moves, whatever arrives when."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.edrp.stateful.definition import (
    Executor,
    Operator,
    Stream,
    check,
    producer_of,
    spread,
    task_of,
    with_copies,
)
from experiments.edrp.stateful.storage import DataStore, SwapArea
from experiments.edrp.stateful.task import Item, Task
from goffish.errors import InputError

#: Items of one source that go two ways and meet, and meet what came one way only.
DIAMOND = Stream(
    ("s", "t"),
    (
        Operator("a", "pass", ("s",), 2), Operator("b", "pass", ("s", "t"), 2),
        Operator("c", "count", ("a", "b")), Operator("d", "count", ("c", "t")),
    ),
    ("d",),
)  # fmt: skip


def carried_out(items: list[tuple[str, int, str]], turns: list[int], moves: set[int]) -> dict[str, list[Item]]:
    """All tasks of DIAMOND in one process: channels deliver in the order of `turns`, tasks move at `moves`."""
    tasks = {producer_of(o.name, t): Task(DIAMOND, o.name) for o in DIAMOND.operators for t in range(o.tasks)}
    sent: dict[str, list[Item]] = {name: [] for name in tasks}
    channels: dict[tuple[str, str], list[Any]] = {}

    def emit(producer: str, name: str, item: Item) -> None:
        for consumer in DIAMOND.consumers(name):
            at = task_of(item[1], DIAMOND.of[consumer].tasks)
            channels.setdefault((producer, producer_of(consumer, at)), []).append(item)

    def mark(producer: str, name: str, complete: int) -> None:
        for consumer in DIAMOND.consumers(name):
            for at in range(DIAMOND.of[consumer].tasks):
                channels.setdefault((producer, producer_of(consumer, at)), []).append(complete)

    for source, number, key in items:
        emit(producer_of(source, 0), source, ([number], key, None))
    for source in DIAMOND.sources:
        mark(producer_of(source, 0), source, 10_000)
    turn = 0
    while waiting := sorted(at for at, some in channels.items() if some):
        producer, consumer = waiting[turns[turn % len(turns)] % len(waiting)]
        said, task = channels[producer, consumer].pop(0), tasks[consumer]
        if isinstance(said, int):
            task.mark(producer, said)
        else:
            for _ in range(1 + turn % 2):  # a copy of the producer sends the same
                task.receive(producer, *said)
        if turn in moves:
            exported = json.loads(json.dumps(task.exported()))
            task = tasks[consumer] = Task(DIAMOND, consumer.split("/")[0])
            task.restore(exported)
        before, name = task.complete, consumer.split("/")[0]
        for item in task.run():
            sent[consumer].append(item)
            emit(consumer, name, item)
        if task.complete > before or isinstance(said, int):
            mark(consumer, name, task.complete)
        turn += 1
    return sent


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("st"), st.sampled_from("vwxyz")), max_size=25),
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.sets(st.integers(0, 150)),
)
def test_order_does_not_depend_on_timing(kinds: list[tuple[str, str]], turns: list[int], moves: set[int]) -> None:
    """Breaks when tasks do not wait for smaller numbers, numbers are not unique, or a move loses anything."""
    items = [(source, 2 * at + (source == "t"), key) for at, (source, key) in enumerate(kinds)]
    found, other = carried_out(items, turns, moves), carried_out(items, [0], set())
    assert found == other
    for some in found.values():
        assert all(a[0] < b[0] for a, b in pairwise(some))
    # s comes to c both ways and t one way; to d comes what c sends, and t.
    expected = Counter({"s": 0})
    for source, _, _ in items:
        expected["c"] += 2 if source == "s" else 1
        expected["d"] += 2
    assert (len(found["c/0"]), len(found["d/0"])) == (expected["c"], expected["d"])
    for key in "vwxyz":
        assert [value for _, k, value in found["d/0"] if k == key] == list(
            range(1, sum(2 for _, _, k in items if k == key) + 1)
        )


def test_stores_keep_exports_by_reconfiguration(tmp_path: Any) -> None:
    """Breaks when an export is mixed up with that of another task or reconfiguration, or is forgotten too early."""
    store, swap = DataStore(tmp_path / "store"), SwapArea(tmp_path / "swap")
    for place in (store, swap):
        place.put(1, {"a/0": {"n": 1}})
        place.put(2, {"a/0": {"n": 2}, "a/1": {"n": 3}})
        assert [place.get(1, "a/0"), place.get(2, "a/0"), place.get(2, "a/1"), place.get(1, "a/1")] == [
            {"n": 1}, {"n": 2}, {"n": 3}, None,
        ]  # fmt: skip
        place.forget(2)
        assert place.get(1, "a/0") is None and place.get(2, "a/0") == {"n": 2}


def test_deployments() -> None:
    """Breaks when a task runs nowhere, or a copy is put where there is one."""
    two = spread(DIAMOND, {"a": [0, 1], "b": [0], "c": [1], "d": [1]})
    assert two[:3] == (Executor("a", 0, (0,)), Executor("a", 1, (1,)), Executor("b", 0, (0, 1)))
    check(DIAMOND, with_copies(DIAMOND, two, {"c": [0]}))
    for bad, told in (
        (two[1:], r"task 0 of a on machines \[\]"),
        (with_copies(DIAMOND, two, {"c": [1]}), r"task 0 of c on machines \[1, 1\]"),
        ((*two, Executor("a", 3, (7,))), "executor of task 7 of 'a': there is none"),
    ):
        with pytest.raises(InputError, match=told):
            check(DIAMOND, bad)
    with pytest.raises(InputError, match="3 executors for 2 tasks"):
        spread(DIAMOND, {"a": [0, 1, 2], "b": [0], "c": [1], "d": [1]})
    for wrong, told in (
        (lambda: Operator("x", "sum", ("s",)), "kind 'sum': one of pass, count"),  # type: ignore[arg-type]
        (lambda: Operator("x", "pass", ("s",), 0), "0 tasks"),
        (lambda: Operator("x", "pass", ()), "at least one"),
        (lambda: Stream(("s",), (Operator("x", "pass", ("t",)),), ("x",)), "reads 't'"),
        (lambda: Stream(("s",), (Operator("s", "pass", ("s",)),), ("s",)), "each must be there once"),
        (lambda: Stream(("s",), (Operator("x", "pass", ("s",)),), ("y",)), "sink 'y'"),
    ):
        with pytest.raises(InputError, match=told):
            wrong()

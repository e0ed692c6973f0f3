"""Messages along all edges, against a loop over the edges; in memory and on engines to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.gofs import build_layout

REDUCE = {"sum": sum, "min": min, "max": max, "mean": lambda m: sum(m) / len(m), "count": len}


def by_loop(edges: Any, n: int, directed: bool, values: Any, combine: str, direction: str) -> dict[int, Any]:
    """Every message by itself, as the docstring has it; messages of odd halves are not sent."""
    inbox: dict[int, list[float]] = {v: [] for v in range(n)}

    def send(u: int, v: int, w: float) -> None:
        message = 2.0 * values[u] - values[v] + w
        if message % 2.0 != 1.0:
            inbox[v].append(message)

    for u, v, w in edges:
        if direction != "in" or not directed:
            send(u, v, w)
        if (direction != "out" and directed) or (not directed and u != v):
            send(v, u, w)
    empty = {"sum": 0.0, "count": 0}.get(combine)
    return {v: REDUCE[combine](mail) if mail else empty for v, mail in inbox.items()}  # type: ignore[operator]


def message(sent: Any, there: Any, weight: Any) -> Any:
    found = 2.0 * sent - there + weight
    return np.where(found % 2.0 == 1.0, np.nan, found)


@given(st.data())
@settings(max_examples=60)
def test_random_graphs(data: st.DataObject) -> None:
    """Loops, parallel edges, isolated vertices, weights; on 1 to 5 parts."""
    n = data.draw(st.integers(1, 9))
    ends = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(ends, ends, st.integers(0, 5)), max_size=20))
    directed, weighted, k = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.integers(1, 5))
    columns = [np.array([edge[i] for edge in edges], np.int64) for i in range(3)]
    graph = gf.from_edges(
        columns[0], columns[1], columns[2].astype(float) if weighted else None, directed=directed,
        labels=np.arange(n), self_loops="keep", parallel="keep",
    )  # fmt: skip
    values = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)))
    combine, direction = data.draw(st.sampled_from(sorted(REDUCE))), data.draw(st.sampled_from(["out", "in", "both"]))
    options: dict[str, Any] = {"combine": combine, "direction": direction}
    found = gf.aggregate_messages(graph, message, values=values, **options)
    given_edges = [(u, v, float(w) if weighted else 1.0) for u, v, w in edges]
    assert found.to_dict() == by_loop(given_edges, n, directed, values.tolist(), combine, direction)
    owner = np.random.default_rng(n).integers(0, k, n).astype(np.int32)
    parts = build_layout(graph, owner, k)
    assert gf.aggregate_messages(parts, message, values=values, **options).table.equals(found.table)
    # Sums that round, in one order.
    rough = values / 7.0 + 1e9
    whole = gf.aggregate_messages(graph, lambda s, t, w: s / 3.0 + w * t, values=rough, **options)
    again = gf.aggregate_messages(parts, lambda s, t, w: s / 3.0 + w * t, values=rough, threads=2, **options)
    assert again.table.equals(whole.table)


def test_defaults_attributes_and_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without options: degrees. Batches of few edges give the same as one."""
    graph = gf.from_edges(["a", "a", "b"], ["b", "c", "c"], vertex_attributes={"age": [3, 5, 9]})
    assert gf.aggregate_messages(graph).to_dict() == {"a": 2.0, "b": 2.0, "c": 2.0}
    for place in (graph, gf.partition(graph, 2)):
        assert gf.aggregate_messages(place, combine="max", values="age").to_dict() == {"a": 9.0, "b": 9.0, "c": 5.0}
        one = gf.aggregate_messages(place, lambda s, t, w: pa.array(s).filter(pa.array(s > 0)), values="age")
        assert one.to_dict() == {"a": 14.0, "b": 12.0, "c": 8.0}
        assert gf.aggregate_messages(place, lambda s, t, w: 2).to_dict() == {"a": 4.0, "b": 4.0, "c": 4.0}
        nothing = gf.aggregate_messages(place, lambda s, t, w: pa.nulls(len(s), pa.float64()), combine="min")
        assert nothing.to_dict() == {"a": None, "b": None, "c": None}
    monkeypatch.setattr("goffish.algorithms.aggregation.columns.CHUNK", 2)
    assert gf.aggregate_messages(graph, values="age").to_dict() == {"a": 14.0, "b": 12.0, "c": 8.0}
    assert gf.aggregate_messages(gf.from_edges([], [])).table.num_rows == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"combine": "median"}, "combine='median': choose one of sum, min, max, mean, count"),
        ({"direction": "up"}, "direction='up': choose one of out, in, both"),
        ({"message": "source"}, "message='source': expected a function"),
        ({"message": lambda s, t, w: s[:1]}, "expected one number for each of the"),
        ({"message": lambda s, t, w: ["x"] * len(s)}, "expected one number for each of the"),
        ({"values": [1]}, "one number per vertex, in vertex order, shape"),
        ({"values": ["x", "y", "z"]}, "one number per vertex"),
        ({"values": "age"}, "age"),
        ({"output": "rows"}, "no option 'output'"),
        ({"method": "nothing"}, "nothing"),
        ({"colour": 1}, "colour"),
    ],
)
@pytest.mark.parametrize("parts", [None, 2])
def test_what_means_nothing_is_refused(options: dict[str, Any], problem: str, parts: int | None) -> None:
    graph = gf.from_edges([1, 1, 2], [2, 3, 3])
    with pytest.raises((InputError, JobError, TypeError), match=problem) as raised:
        gf.aggregate_messages(graph, parts=parts, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("parts", [None, 2])
def test_a_function_that_fails_is_named(parts: int | None) -> None:
    graph = gf.from_edges([1, 1, 2], [2, 3, 3])
    with pytest.raises(JobError, match="message failed: ZeroDivisionError"):
        gf.aggregate_messages(graph, lambda s, t, w: 1 / 0, parts=parts)


@pytest.mark.slow
def test_on_spark(spark: Any, tmp_path: Any) -> None:
    graph = gf.generators.erdos_renyi(200, 0.05, seed=1)
    store = gf.partition(graph, 3).save(tmp_path / "g")
    found = gf.aggregate_messages(
        gf.open(tmp_path / "g"), lambda s, t, w: s / 3.0, values=np.arange(200), engine="spark", spark=spark
    )
    assert store.num_partitions == 3
    assert found.table.equals(gf.aggregate_messages(graph, lambda s, t, w: s / 3.0, values=np.arange(200)).table)

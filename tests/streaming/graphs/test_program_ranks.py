"""PageRank on several workers, compared with linear systems and NetworkX."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import networkx as nx
import numpy as np
import pytest

from goffish.errors import InputError
from goffish.streaming.graphs.live import LiveGraph
from goffish.streaming.graphs.programs import ranks
from goffish.streaming.graphs.programs import run as runs
from goffish.streaming.graphs.programs.run import ProgramRun
from tests.streaming.graphs.test_programs import Oracle, Records, begin, edges, stream

OPTIONS: list[dict[str, Any]] = [
    {"tolerance": 1e-8}, {"tolerance": 1e-9, "dangling": "leak", "directed": False},
    {"damping": 0.97, "tolerance": 1e-7, "dangling": "leak"}, {"personalization": {0: 1, 1: 3}, "tolerance": 1e-10},
    {"damping": 0.0, "directed": False}, {"tolerance": 1e-2},
    {"personalization": {2: 0.5, 3: 0, 99: 1}, "directed": False}, {"damping": 1e-12, "tolerance": 1e-12},
]  # fmt: skip


def exact(
    live: LiveGraph, damping: float = 0.85, tolerance: float = 0.0, dangling: str = "redistribute",
    personalization: dict[int, float] | None = None, directed: bool = True,
) -> np.ndarray[Any, Any]:  # fmt: skip
    """Return the ranks as the solution of a linear system."""
    oracle = Oracle(live)
    graph = oracle.directed if directed else oracle.graph
    vertices = live.vertices["id"].to_pylist()
    if not vertices:
        return np.zeros(0)
    teleport = np.array([1.0 if personalization is None else personalization.get(one, 0.0) for one in vertices])
    if not teleport.any():
        return teleport
    arcs = nx.to_numpy_array(graph, nodelist=vertices, weight=None)
    steps = arcs / np.maximum(arcs.sum(axis=1), 1.0)[:, None]
    teleport /= teleport.sum()
    found: np.ndarray[Any, Any] = np.linalg.solve(np.eye(len(vertices)) - damping * steps.T, (1.0 - damping) * teleport)
    return found / found.sum() if dangling == "redistribute" else found


def compare(run: ProgramRun, expected: np.ndarray[Any, Any], tolerance: float) -> list[float]:
    found = run.result().table["rank"].to_numpy()
    assert len(found) == len(expected)
    assert np.abs(found - expected).sum() <= run.value + 1e-14
    assert run.value <= tolerance
    return [*found.tolist(), run.value]


def check(seed: int, size: int, batch: int, plans: list[tuple[int, Any]], **options: Any) -> None:
    """Compare ranks after each epoch; their bits with those of other workers and of another order in epochs."""
    records = list(stream(seed, size, removals=True))
    found = []
    for workers, partitioner in plans:
        live = LiveGraph(lateness=0)
        live.feed(records[: seed % 3 * 4])
        run, mine = begin(live, "pagerank", workers, partitioner, **options), list[Any]()
        for at in range(seed % 3 * 4, size, batch):
            live.feed(records[at : at + batch])
            mine.append(compare(run, exact(live, **options), options.get("tolerance", 1e-6)))
        found.append((mine, run.statistics["supersteps"]))
        run.close()
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(one, marks=pytest.mark.slow) for one in range(2, len(OPTIONS)))])
@pytest.mark.slow
def test_ranks(seed: int) -> None:
    check(seed, 45, 15, [(1, "ldg"), (2, "hash"), (4, "hash")], **OPTIONS[seed])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_ranks_of_many_streams(seed: int) -> None:
    options, batch = OPTIONS[seed % len(OPTIONS)], (1, 7, 100)[seed % 3]
    plans = [(1, "ldg"), (2, "hash"), (4, "fennel"), (8, "hash")]
    check(seed, 60 if batch == 1 else 250, batch, plans, **options)


def graph_records(seed: int, vertices: int, count: int) -> Records:
    """Return edges of which few vertices have many."""
    chance = np.random.default_rng(seed)
    ends = (vertices * chance.random((2, count)) ** 3).astype(int)
    return edges(*zip(*ends.tolist(), strict=True))


def networkx_ranks(live: LiveGraph) -> np.ndarray[Any, Any]:
    found = nx.pagerank(Oracle(live).directed, tol=1e-15, max_iter=1000)
    return np.array([found[one] for one in live.vertices["id"].to_pylist()])


@pytest.mark.slow
@pytest.mark.parametrize("first", [12, 2])
def test_a_larger_graph(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when scores keep their units with more vertices than they are for."""
    monkeypatch.setattr(ranks, "_FIRST_BITS", first)
    records = graph_records(1, 1500, 6000)
    for number, one in enumerate(records):
        one["id"] = number
    gone = [{"t": 9, "op": "-e", "id": number} for number in range(0, 6000, 3)]
    found = []
    for workers, order in ((1, 0), (3, 1)):
        live = LiveGraph(lateness=0)
        run, mine = begin(live, "pagerank", workers, "hash"), list[Any]()
        for epoch in (records[:3000], records[3000:5900], records[5900:], gone):
            shuffled = random.Random(1).sample(epoch, len(epoch)) if order else epoch
            live.feed([one | {"t": epoch[0]["t"] + at / 1e6} for at, one in enumerate(shuffled)])
            result = run.result()
            assert np.abs(result.table["rank"].to_numpy() - networkx_ranks(live)).sum() <= run.value <= 1e-6
            mine.append((sorted(result.to_dict().items()), run.value))
        found.append(mine)
        run.close()
    assert found[0] == found[1]


def test_a_vertex_with_all_of_the_rank() -> None:
    """Breaks when a score stays while a vertex gets so many arcs that its rank exceeds the largest integer."""
    live = LiveGraph(lateness=0)
    with begin(live, "pagerank", 2, personalization={0: 1}, damping=0.1) as run:
        live.feed([{"t": 0, "op": "+v", "id": 0}])
        compare(run, np.ones(1), 1e-6)
        live.feed(edges(*((0, one) for one in range(1, 2000))))
        expected = np.full(2000, 0.1 / 1999 / 1.1)
        expected[0] = 1 / 1.1
        compare(run, expected, 1e-6)
        live.feed([{"t": 5, "op": "-v", "id": 0}])
        compare(run, np.zeros(1999), 1e-6)
        live.feed([{"t": 6, "op": "+v", "id": 0}])
        compare(run, np.eye(1, 2000, list(run.result().to_dict()).index(0))[0], 1e-6)


def test_graphs_without_edges() -> None:
    live = LiveGraph(lateness=0)
    with begin(live, "pagerank", 2) as run:
        assert run.result().table.num_rows == 0
        live.feed([{"t": n, "op": "+v", "id": n} for n in range(1, 6)])
        assert list(run.result().to_dict().values()) == pytest.approx([0.2] * 5, abs=1e-15)
        live.feed(edges((1, 1), t=6))
        assert list(run.result().to_dict().values()) == pytest.approx([0.2] * 5, abs=1e-15)
        live.feed([{"t": 7 + n, "op": "-v", "id": n} for n in range(1, 6)])
        assert run.result().table.num_rows == 0
        assert run.value == 0.0


@pytest.mark.parametrize("damping", [0.5, 0.999])
def test_a_tolerance_that_is_not_reached(damping: float) -> None:
    """Pushes end, and the bound is above the tolerance."""
    live = LiveGraph(lateness=0)
    with begin(live, "pagerank", 2, damping=damping, tolerance=1e-18) as run:
        for epoch in (edges(*((n, (n + 1) % 9) for n in range(9)), (1, 5)), edges((5, 1), (2, 4), t=2)):
            live.feed(epoch)
            compare(run, exact(live, damping=damping), 1e-6)
            assert run.value > 1e-18


def test_small_changes_take_little() -> None:
    """An epoch whose residuals are allowed takes three supersteps."""
    live = LiveGraph(lateness=0)
    with begin(live, "pagerank", 2, tolerance=0.1) as run:
        live.feed(graph_records(2, 800, 4000))
        run.result()
        before = run.statistics["supersteps"]
        live.feed(edges((0, 799), t=9))
        compare(run, networkx_ranks(live), 0.1)
        assert run.statistics["supersteps"] - before == 3


@pytest.mark.parametrize(("options", "message"), [
    ({"damping": 1.0}, "damping"), ({"tolerance": 0}, "tolerance"), ({"dangling": "keep"}, "dangling"),
    ({"personalization": {}}, "not all zero"), ({"personalization": {1: -1}}, "non-negative"),
    ({"personalization": {1: float("inf")}}, "finite"), ({"personalization": {1.5: 1}}, "personalization"),
    ({"weight": "w"}, "unexpected keyword argument 'weight'"),
])  # fmt: skip
def test_options_that_are_not_accepted(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LiveGraph(lateness=0).run("pagerank", **options)


@pytest.mark.slow
def test_workers_that_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks have the bits that they have without faults."""
    monkeypatch.setattr(runs, "_SNAPSHOT_CHANGES", 40)
    records = list(stream(3, 120, removals=True))
    live, other = LiveGraph(lateness=0), LiveGraph(lateness=0)
    with live.run("pagerank", changes=15, every=None) as run, begin(other, "pagerank", 1, changes=15) as plain:
        for at in range(0, len(records), 60):
            live.feed(records[at : at + 60])
            other.feed(records[at : at + 60])
            if at:
                os.kill(run._processes[1].pid, signal.SIGKILL)
            assert run.result().to_dict() == plain.result().to_dict()
            assert run.value == plain.value
        assert run.statistics["recoveries"] == 1
        assert run._snapshot  # the state of the first epochs was not computed again

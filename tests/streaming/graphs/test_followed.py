"""Algorithms that follow a live graph, compared with a run on the whole graph after each batch of records."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.errors import InputError, JobError
from goffish.gopher import Result
from goffish.streaming.graphs.live import LiveGraph

#: Vertices that are never removed.
HUB, OTHER = "hub", "other"
#: Records of long tests by the size of batches.
_SIZES = {1: 80, 7: 300, 100: 1000}


def stream(seed: int, size: int, *, vertices: int = 24) -> Iterator[dict[str, Any]]:
    """Yield random records: parallel edges, loops, isolated vertices, removals, and weights that change."""
    chance = random.Random(seed)
    dense = chance.random() < 0.5
    live: list[int] = []
    time = 0

    def weight() -> dict[str, Any]:
        return {} if chance.random() < 0.2 else {"w": chance.choice([1, 2, 5, 0.5, 0.25, 8.0, 3])}

    for vertex in (HUB, OTHER):
        time += 1
        yield {"t": time, "op": "+v", "id": vertex}
    while time < size:
        time += 1
        x, edge = chance.random(), time
        if x < (0.6 if dense else 0.45) or not live:
            u, v = (chance.choice([HUB, OTHER, *range(vertices)]) for _ in range(2))
            live.append(edge)
            yield {"t": time, "op": "+e", "id": f"e{edge}", "src": str(u), "dst": str(v), "attrs": weight()}
        elif x < 0.8:
            yield {"t": time, "op": "-e", "id": f"e{live.pop(chance.randrange(len(live)))}"}
        elif x < 0.9:
            yield {"t": time, "op": "+ae", "id": f"e{chance.choice(live)}", "attrs": weight()}
        elif x < 0.93:
            yield {"t": time, "op": "-ae", "id": f"e{chance.choice(live)}", "names": ["w"]}
        elif x < 0.97:
            yield {"t": time, "op": "+v", "id": str(chance.randrange(vertices))}
        else:
            yield {"t": time, "op": "-v", "id": str(chance.randrange(vertices))}


def check(
    name: str, compare: Callable[[Result, Any], None], seed: int, batch: int, *, size: int = 400,
    weight: str | None = None, directed: bool = True, **options: Any,
) -> None:  # fmt: skip
    """Follow an algorithm, and compare its result after each batch."""
    live = LiveGraph(lateness=0)
    begins_late = seed % 2 and batch > 1
    followed = None if begins_late else live.follow(name, weight=weight, directed=directed, **options)
    records = list(stream(seed, size))
    # Vertices that options name exist from the second record on.
    bounds = [0, *range(max(2, batch), len(records), batch), len(records)]
    for first, last in itertools.pairwise(bounds):
        live.feed(records[first:last])
        if followed is None:
            followed = live.follow(name, weight=weight, directed=directed, **options)
        is_known = weight is not None and "w" in live.edges.column_names
        compare(followed.result(), live.graph(weight=weight if is_known else None, directed=directed))
    assert followed is not None
    assert followed.statistics["updates"] > 0
    # The graphs are so small that changes of what is exact are never too much work.
    assert name in ("louvain", "pagerank") or followed.statistics["full_passes"] == 1


def compare_ranks(**options: Any) -> Callable[[Result, Any], None]:
    def compare(found: Result, graph: Any) -> None:
        weighted = options.get("weighted", False) and graph.weights is not None
        expected = gf.pagerank(graph, **options | {"tolerance": 1e-13, "weighted": weighted})
        assert found.table["vertex"].equals(expected.table["vertex"])
        ranks, exact = found.table["rank"].to_numpy(), expected.table["rank"].to_numpy()
        assert np.abs(ranks - exact).sum() <= options["tolerance"]
        assert found.summary["error_bound"] <= options["tolerance"]
        assert abs(found.summary["sum"] - expected.summary["sum"]) <= options["tolerance"]

    return compare


RANKS: list[dict[str, Any]] = [
    {"tolerance": 1e-6}, {"tolerance": 1e-10, "damping": 0.95, "dangling": "leak"}, {"tolerance": 1e-3, "damping": 0.5},
    {"tolerance": 1e-7, "personalization": {HUB: 1, OTHER: 3}}, {"tolerance": 1e-9, "damping": 0.0},
]  # fmt: skip


def check_ranks(seed: int, batch: int, size: int = 200) -> None:
    options = RANKS[seed % len(RANKS)]
    for weight, directed in ((None, True), (None, False), ("w", True), ("w", False)):
        compare = compare_ranks(weighted=weight is not None, **options)
        check("pagerank", compare, seed, batch, size=size, weight=weight, directed=directed, **options)


@pytest.mark.parametrize("batch", [1, pytest.param(7, marks=pytest.mark.slow), 100])
@pytest.mark.slow
def test_ranks(batch: int) -> None:
    for seed in range(len(RANKS)):
        check_ranks(seed, batch, 40 if batch == 1 else 150)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, pytest.param(7, marks=pytest.mark.slow), 100])
def test_ranks_of_many_streams(batch: int) -> None:
    for seed in range(100, 200):
        check_ranks(seed, batch, _SIZES[batch] // 2)


def compare_tables(found: Result, expected: Result) -> None:
    assert found.table.equals(expected.table), (found.table.to_pylist(), expected.table.to_pylist())
    assert found.summary == pytest.approx(expected.summary)


def compare_degrees(found: Result, graph: gf.Graph) -> None:
    out = graph.out_degrees.tolist()
    if graph.directed:
        into = graph.reverse.out_degrees.tolist()
        assert found.table["out_degree"].to_pylist() == out
        assert found.table["in_degree"].to_pylist() == into
        out = [a + b for a, b in zip(out, into, strict=True)]
    assert found.table["vertex"].equals(pa.chunked_array([graph.label_column()]))
    assert found.table["degree"].to_pylist() == out
    assert found.summary == {"edges": graph.num_edges, "largest": max(out, default=0)}


#: Algorithms, whether they have weights and directions, and their options.
EXACT: dict[str, tuple[bool, bool, dict[str, Any]]] = {
    "degrees": (False, True, {}), "components": (False, False, {}), "bfs": (False, True, {"source": HUB}),
    "sssp": (True, True, {"source": HUB}), "cores": (False, False, {}), "triangles": (False, False, {}),
}  # fmt: skip


def check_exact(name: str, seed: int, batch: int, size: int) -> None:
    weighted, has_directions, options = EXACT[name]

    def compare(found: Result, graph: gf.Graph) -> None:
        if name == "degrees":
            compare_degrees(found, graph)
        else:
            compare_tables(found, gf.run(name, graph, **options))

    for weight in (None, "w") if weighted else (None,):
        for directed in (True, False) if has_directions else (True,):
            check(name, compare, seed, batch, size=size, weight=weight, directed=directed, **options)


@pytest.mark.parametrize("batch", [1, pytest.param(7, marks=pytest.mark.slow), 100])
@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str, batch: int) -> None:
    for seed in range(3):
        check_exact(name, seed, batch, {1: 80, 7: 250, 100: 600}[batch])


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, pytest.param(7, marks=pytest.mark.slow), 100])
@pytest.mark.parametrize("name", EXACT)
def test_exact_on_many_streams(name: str, batch: int) -> None:
    for seed in range(100, 200):
        check_exact(name, seed, batch, _SIZES[batch])


def check_communities(seed: int, batch: int, size: int) -> None:
    """Check the modularity, that ids are never used again, and that communities of Leiden are connected."""
    for weight, directed, refine in ((None, False, "vertices"), ("w", True, "leiden"), ("w", False, "leiden")):
        before: set[int] = set()
        used: set[int] = set()

        def compare(found: Result, graph: gf.Graph, *, connected: bool = refine == "leiden") -> None:
            nonlocal before, used
            community = found.to_dict()
            modularity = gf.modularity(graph, found.table["community"].to_numpy())
            assert found.summary["modularity"] == pytest.approx(modularity, abs=1e-9)
            assert found.summary["communities"] == len(set(community.values()))
            assert not (set(community.values()) - before) & used
            before = set(community.values())
            used |= before
            plain = nx.Graph(gf.to_networkx(graph)).subgraph(community)
            for one in before if connected else ():
                assert nx.is_connected(plain.subgraph(v for v in community if community[v] == one))

        check("louvain", compare, seed, batch, size=size, weight=weight, directed=directed, refine=refine)


@pytest.mark.parametrize("batch", [1, pytest.param(7, marks=pytest.mark.slow), 100])
@pytest.mark.slow
def test_communities(batch: int) -> None:
    for seed in range(2):
        check_communities(seed, batch, {1: 80, 7: 200, 100: 500}[batch])


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, pytest.param(7, marks=pytest.mark.slow), 100])
def test_communities_of_many_streams(batch: int) -> None:
    for seed in range(100, 200):
        check_communities(seed, batch, _SIZES[batch])


def planted(communities: int, size: int, seed: int) -> list[tuple[int, int]]:
    """Return edges of a graph of communities, one edge in five between them."""
    chance = random.Random(seed)
    ends = [chance.randrange(communities * size) for _ in range(6 * communities * size)]
    far = [chance.random() < 0.2 for _ in ends]
    return [
        (u, chance.randrange(communities * size) if is_far else u // size * size + chance.randrange(size))
        for u, is_far in zip(ends, far, strict=True)
    ]


def test_communities_keep_their_ids_and_are_as_good_as_new_ones() -> None:
    given = planted(20, 50, 1)
    live = LiveGraph(lateness=0)
    live.feed(edges(given))
    communities = live.follow("louvain", directed=False)
    first = communities.result()
    for step in range(1, 11):
        live.feed(edges(given[step * 50 : step * 50 + 3], 100 * step, "-e"))
        live.feed(edges(planted(20, 50, 1 + step)[:3], 100 * step + 50))
    found = communities.result()
    assert communities.statistics["full_passes"] == 1
    assert found.summary["modularity"] > gf.louvain(live.graph(directed=False)).modularity - 0.005
    old, new = first.to_dict(), found.to_dict()
    assert np.mean([old[v] == new[v] for v in old]) > 0.98
    # The communities fall apart, and two of them become one.
    live.feed(edges([(u, 50 + v) for u in range(50) for v in range(50)], 5000))
    live.feed(edges([(u, v) for u, v in given if u // 50 == v // 50 > 10], 6000, "-e"))
    found = communities.result()
    assert communities.statistics["full_passes"] == 2
    new = found.to_dict()
    assert len({new[v] for v in range(100)}) == 1
    assert np.mean([old[v] == new[v] for v in range(100, 500)]) > 0.9


def edges(pairs: list[tuple[Any, Any]], begin: float = 0.0, op: str = "+e") -> list[dict[str, Any]]:
    return [
        {"t": begin + at / 1e3, "op": op, "src": u, "dst": v} for at, (u, v) in enumerate(pairs, 1)
    ]  # fmt: skip


def test_ranks_of_networkx() -> None:
    graph = nx.gnp_random_graph(200, 0.03, seed=3, directed=True)
    live = LiveGraph(lateness=0)
    live.feed(edges(list(graph.edges)))
    ranks = live.follow("pagerank", tolerance=1e-9)
    ranks.result()
    for step in range(1, 20):
        gone = list(graph.edges)[step::97]
        graph.remove_edges_from(gone)
        live.feed(edges(gone, 10 * step, "-e"))
        found, expected = ranks.result().to_dict(), nx.pagerank(graph, tol=1e-14, max_iter=1000)
        assert sum(abs(found[v] - expected[v]) for v in found) < 1e-9
    assert ranks.statistics["full_passes"] < 19


def test_a_full_pass_where_it_is_cheaper() -> None:
    live = LiveGraph(lateness=0)
    live.feed(edges([(v, (v + 1) % 5000) for v in range(5000)]))
    ranks = live.follow("pagerank")
    assert ranks.statistics == {"updates": 0, "full_passes": 0, "work": 0, "reason": None}
    ranks.result()
    live.feed(edges([(0, 2500)], 10))
    ranks.result()
    assert ranks.statistics["full_passes"] == 1
    assert ranks.statistics["reason"] == "first result"
    live.feed(edges([(v, v * v % 5000) for v in range(5000)], 20))
    compare_ranks(tolerance=1e-6)(ranks.result(), live.graph())
    assert ranks.statistics["full_passes"] == 2
    assert "full pass" in ranks.statistics["reason"]
    # As many changes are not tried again at once.
    work = ranks.statistics["work"]
    live.feed(edges([(v, v * v % 5000) for v in range(5000)], 30, "-e"))
    compare_ranks(tolerance=1e-6)(ranks.result(), live.graph())
    assert ranks.statistics["full_passes"] == 3
    assert ranks.statistics["work"] == work
    live.feed(edges([(0, 7)], 40))
    compare_ranks(tolerance=1e-6)(ranks.result(), live.graph())
    assert ranks.statistics["full_passes"] == 3


def test_weights_that_are_not_accepted() -> None:
    live = LiveGraph(lateness=0)
    ranks = live.follow("pagerank", weight="w")
    live.feed([{"t": 1, "op": "+e", "id": 1, "src": "a", "dst": "b", "attrs": {"w": 2}}])
    ranks.result()
    live.feed([{"t": 2, "op": "+ae", "id": 1, "attrs": {"w": -2}}, {"t": 3, "op": "+e", "src": "b", "dst": "c"}])
    for _ in range(2):
        with pytest.raises(InputError, match="weight = 'w': -2 is negative"):
            ranks.result()
    live.feed([{"t": 4, "op": "+ae", "id": 1, "attrs": {"w": 1e200}}])
    with pytest.raises(InputError, match="1e\\+200"):
        ranks.result()
    live.feed([{"t": 5, "op": "+ae", "id": 1, "attrs": {"w": "text"}}])
    assert ranks.result().to_dict() == pytest.approx(gf.pagerank(live.graph()).to_dict(), abs=1e-6)


def test_options_and_the_end() -> None:
    live = LiveGraph(lateness=0)
    for name, options, error in (
        ("pagerank", {"weighted": True}, "option 'weighted' is not accepted"),
        ("pagerank", {"damping": 2}, "damping=2"),
        ("pagerank", {"personalization": {"a": -1}}, "finite, non-negative"),
        ("blockrank", {}, "'blockrank' cannot be followed: choose one of degrees"),
    ):
        with pytest.raises(InputError, match=error):
            live.follow(name, **options)
    ranks = live.follow("pagerank", personalization={"a": 1})
    with pytest.raises(InputError, match="personalization: a is not a vertex"):
        ranks.result()
    live.feed(edges([("a", "b")]))
    assert ranks.result().to_dict()["a"] > 0.5
    live.feed([{"t": 1, "op": "-v", "id": "a"}])
    with pytest.raises(InputError, match="personalization: a is not a vertex"):
        ranks.result()
    live.feed(edges([("a", "c")], 2))
    assert ranks.result().to_dict() == pytest.approx(
        gf.pagerank(live.graph(), personalization={"a": 1}).to_dict(), abs=1e-6
    )
    ranks.close()
    with pytest.raises(InputError, match="closed"):
        ranks.result()


def test_networkx_on_a_graph_that_changes() -> None:
    chance = random.Random(4)
    graph = nx.barabasi_albert_graph(300, 4, seed=4)
    live = LiveGraph(lateness=0)
    live.feed([
        {"t": at, "op": "+e", "id": f"{u} {v}", "src": u, "dst": v, "attrs": {"w": 1 + (u + v) % 5}}
        for at, (u, v) in enumerate(graph.edges)
    ])  # fmt: skip
    cores, triangles, components = (live.follow(name) for name in ("cores", "triangles", "components"))
    paths = live.follow("sssp", source=0, weight="w", directed=False)
    for step in range(1, 60):
        gone = chance.sample([one for one in graph.edges if 0 not in one], 8)
        new = [(chance.randrange(300), chance.randrange(300)) for _ in range(5)]
        graph.remove_edges_from(gone)
        graph.add_edges_from((u, v) for u, v in new if u != v)
        time, records = 10_000 * step, []
        for u, v in gone:
            time += 2
            records += [{"t": time, "op": "-e", "id": f"{u} {v}"}, {"t": time + 1, "op": "-e", "id": f"{v} {u}"}]
        for u, v in new:
            time += 2
            attrs = {"w": 1 + (u + v) % 5}
            records.append({"t": time, "op": "+e", "id": f"{u} {v}", "src": u, "dst": v, "attrs": attrs})
        live.feed(records)
        assert cores.result().to_dict() == nx.core_number(graph)
        assert triangles.result().to_dict() == nx.triangles(graph)
        assert triangles.result().summary["average_clustering"] == pytest.approx(nx.average_clustering(graph))
        assert components.result().summary["components"] == nx.number_connected_components(graph)
        lengths = nx.single_source_dijkstra_path_length(graph, 0, weight=lambda u, v, _: 1 + (u + v) % 5)
        assert {v: d for v, d in paths.result().to_dict().items() if np.isfinite(d)} == lengths
    for followed in (cores, triangles, components, paths):
        assert followed.statistics["full_passes"] == 1


@pytest.mark.slow
def test_paths_by_edges_of_weight_0() -> None:
    chance = random.Random(5)
    live = LiveGraph(lateness=0)
    live.feed([{"t": 0, "op": "+v", "id": 0}])
    paths = live.follow("sssp", source=0, weight="w")
    for time in range(1, 800):
        edge = chance.randrange(60)
        ends = {"src": edge // 6, "dst": (edge * 7 + edge // 6) % 10, "attrs": {"w": chance.choice([0, 0, 1, 2])}}
        live.feed([{"t": time, "op": "-e", "id": edge} if chance.random() < 0.45 else
                   {"t": time, "op": "+e", "id": edge, **ends}])  # fmt: skip
        if "w" not in live.edges.column_names:
            continue
        found, expected = paths.result(), gf.sssp(live.graph(weight="w"), 0)
        assert found.table["distance"].equals(expected.table["distance"])
        parents = found.to_dict("parent")
        for vertex, distance in found.to_dict().items():
            steps, one = 0, vertex
            while one != 0 and np.isfinite(distance):
                one = parents[one]
                steps += 1
                assert one is not None
                assert steps <= 10
    assert paths.statistics["full_passes"] == 1


def test_a_path_of_a_vertex_that_is_gone() -> None:
    live = LiveGraph(lateness=0)
    hops = live.follow("bfs", source="a")
    live.feed(edges([("a", "b"), ("b", "c")]))
    assert hops.result().to_dict() == {"a": 0, "b": 1, "c": 2}
    live.feed([{"t": 1, "op": "-v", "id": "a"}])
    with pytest.raises(InputError, match="source: a is not a vertex of the graph now"):
        hops.result()
    live.feed(edges([("a", "c")], 2))
    assert hops.result().to_dict() == {"a": 0, "b": None, "c": 1}


def test_a_tolerance_below_rounding() -> None:
    live = LiveGraph(lateness=0)
    live.feed(edges(planted(10, 20, 1)))
    ranks = live.follow("pagerank", tolerance=1e-18)
    ranks.result()
    live.feed(edges(planted(10, 20, 1)[:3], 10, "-e"))
    found = ranks.result()
    assert 1e-18 < found.summary["error_bound"] < 1e-12
    assert found.to_dict() == pytest.approx(gf.pagerank(live.graph(), tolerance=1e-14).to_dict(), abs=1e-14)


def test_modularity_after_a_large_weight() -> None:
    live = LiveGraph(lateness=0)
    communities = live.follow("louvain", weight="w", directed=False)
    for time, (u, v, weight) in enumerate([(0, 1, 0.1), (1, 2, 0.2), (3, 4, 0.3), (5, 6, 1e30), (6, 0, 0.7)]):
        live.feed([{"t": time, "op": "+e", "id": time, "src": u, "dst": v, "attrs": {"w": weight}}])
        communities.result()
    for time, edge in enumerate([3, 1, 0, 4, 2], 10):
        live.feed([{"t": time, "op": "-e", "id": edge}])
        found = communities.result()
        graph = live.graph(weight="w" if live.num_edges else None, directed=False)
        modularity = gf.modularity(graph, found.table["community"].to_numpy())
        assert found.summary["modularity"] == pytest.approx(modularity, abs=1e-9)


def test_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveGraph(lateness=0)
    live.feed(edges(planted(4, 20, 1)))
    followed = [live.follow(name) for name in ("pagerank", "cores", "louvain", "components", "triangles")]
    for one in followed:
        one.result()
    live.feed(edges(planted(4, 20, 2)[:5], 10))
    for one in followed:
        with monkeypatch.context() as patched:
            patched.setattr(one, "_follow", stop)
            with pytest.raises(KeyboardInterrupt):
                one.result()
    live.feed(edges(planted(4, 20, 1)[:9], 20, "-e"))
    compare_ranks(tolerance=1e-6)(followed[0].result(), live.graph())
    for at in (1, 3, 4):
        name = ("", "cores", "", "components", "triangles")[at]
        compare_tables(followed[at].result(), gf.run(name, live.graph()))
    found = followed[2].result()
    modularity = gf.modularity(live.graph(), found.table["community"].to_numpy())
    assert found.summary["modularity"] == pytest.approx(modularity)
    assert followed[0].statistics["reason"] == "interrupted"


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


def test_an_interruption_that_numba_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when Ctrl-C ends a result with an internal error of numba, or other errors are taken for Ctrl-C."""
    live = LiveGraph(lateness=0)
    live.feed(edges(planted(2, 5, 1)))
    cores = live.follow("cores")
    for cause, kind in ((KeyboardInterrupt(), KeyboardInterrupt), (ValueError(), SystemError)):

        def fail(cause: BaseException = cause) -> None:
            raise SystemError("returned a result with an exception set") from cause

        with monkeypatch.context() as patched:
            patched.setattr(cores, "_pass", fail)
            with pytest.raises(kind):
                cores.result()
    compare_tables(cores.result(), gf.run("cores", live.graph()))


def test_algorithms_that_are_not_used_any_more() -> None:
    live = LiveGraph(lateness=0)
    live.follow("degrees")
    degrees = live.follow("degrees", directed=False)
    live.feed(edges([("a", "b"), ("b", "a"), ("a", "a")]))
    assert degrees.result().to_dict() == {"a": 1, "b": 1}
    assert len(live._engine.followers) == 1
    degrees.close()
    degrees.close()
    assert len(live._engine.followers) == 0


def test_a_graph_that_was_interrupted() -> None:
    live = LiveGraph(lateness=0)
    degrees = live.follow("degrees")
    live._torn = "was interrupted while it applied records"
    with pytest.raises(JobError, match="interrupted"):
        degrees.result()


def test_an_empty_graph() -> None:
    for name in ("degrees", "components", "cores", "triangles", "louvain"):
        live = LiveGraph(lateness=0)
        followed = live.follow(name)
        assert followed.result().table.num_rows == 0
        live.feed(edges([("a", "b")]))
        assert followed.result().table.num_rows == 2
    live = LiveGraph(lateness=0)
    ranks = live.follow("pagerank")
    assert ranks.result().table.num_rows == 0
    live.feed(edges([("a", "b")]))
    assert ranks.result().table.num_rows == 2
    live.feed([{"t": t, "op": "-v", "id": one} for t, one in ((1, "a"), (2, "b"))])
    assert ranks.result().table.num_rows == 0
    live.feed(edges([("a", "b")], 3))
    assert ranks.result().to_dict() == pytest.approx(gf.pagerank(live.graph()).to_dict(), abs=1e-6)


def test_labels_that_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a vertex has the result of one that is gone, or the source of paths is another vertex."""
    monkeypatch.setattr("goffish.streaming.graphs.engine._LEAST", 8)
    live = LiveGraph(lateness=0)
    paths, components = live.follow("bfs", source="a"), live.follow("components")
    for part in range(12):
        live.feed([
            *({"t": 100 * part + n, "op": "-v", "id": f"v{part - 1}-{n}"} for n in range(1, 9)),
            *([{"t": 100 * part + 10, "op": "-v", "id": "a"}] if part % 3 == 2 else []),
            {"t": 100 * part + 20, "op": "+e", "src": "a", "dst": f"v{part}-1"},
            *({"t": 100 * part + 20 + n, "op": "+e", "src": f"v{part}-{n - 1}", "dst": f"v{part}-{n}"}
              for n in range(2, 9)),
        ])  # fmt: skip
        graph = live.graph()
        assert paths.result().to_dict() == gf.bfs(graph, "a").to_dict()
        assert components.result().summary["components"] == gf.connected_components(graph).summary["components"] == 1
    encoder = live._engine.encoder
    assert encoder.vertices.count < 60 and paths.statistics["full_passes"] > 1

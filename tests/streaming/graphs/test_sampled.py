"""Sampled betweenness of live graphs against networkx, and the distribution of the paths that are kept."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.graphs.live import LiveGraph

#: Records that add and remove edges and vertices around two ends with several shortest paths.
ADDED, REMOVED = "+e", "-e"


def edges(pairs: list[tuple[Any, Any]], begin: float, op: str = ADDED) -> list[dict[str, Any]]:
    return [{"t": begin + at / 1e3, "op": op, "src": u, "dst": v} for at, (u, v) in enumerate(pairs)]


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
def test_bounds_enclose_the_exact_values(directed: bool) -> None:
    wrong = results = kept = 0
    for seed in range(3):
        chance = random.Random(seed)
        graph: Any = nx.gnm_random_graph(40, 70, seed=seed, directed=True)
        live = LiveGraph(lateness=0)
        live.feed([{"t": 0, "op": "+v", "id": v} for v in graph])
        live.feed(edges(list(graph.edges), 1))
        followed = live.follow("betweenness", epsilon=0.05, directed=directed, seed=seed)
        for step in range(1, 15):
            gone = chance.sample(list(graph.edges), 2)
            graph.remove_edges_from(gone)
            live.feed(edges(gone, 100 * step, REMOVED))
            new = [(chance.randrange(44), chance.randrange(44)) for _ in range(3)]
            new = [(u, v) for u, v in dict.fromkeys(new) if u != v and not graph.has_edge(u, v)]
            graph.add_edges_from(new)
            live.feed(edges(new, 100 * step + 10))
            if step % 4 == 0:
                vertex = chance.choice(list(graph))
                graph.remove_node(vertex)
                live.feed([{"t": 100 * step + 20, "op": "-v", "id": vertex}])
            found, simple = followed.result(), plain(live, directed=directed)
            truth, score = nx.betweenness_centrality(simple, normalized=False), found.to_dict()
            pairs = len(simple) * (len(simple) - 1) / (1 if directed else 2)
            assert set(score) == set(truth)
            low, high = found.to_dict("least"), found.to_dict("most")
            wrong += any(not low[v] - 1e-9 <= truth[v] <= high[v] + 1e-9 for v in truth)
            assert all(abs(score[v] - truth[v]) <= 0.1 * pairs for v in truth)
            assert all(high[v] - score[v] <= 0.05 * pairs + 1e-9 for v in truth)
            results += 1
        kept += followed.statistics["full_passes"] == 1
    assert results == 42 and wrong <= 4  # a tenth, and bounds are wider than that
    assert kept == 3


def plain(live: LiveGraph, *, directed: bool) -> Any:
    """Return the live graph for networkx."""
    graph = live.graph(directed=directed)
    labels, (sources, targets, _, _) = graph.label_column().to_pylist(), graph.edge_columns()
    found = nx.DiGraph() if directed else nx.Graph()
    found.add_nodes_from(labels)
    found.add_edges_from((labels[u], labels[v]) for u, v in zip(sources.tolist(), targets.tolist(), strict=True))
    return found


def history(name: str) -> list[list[dict[str, Any]]]:
    """Return records between two results each; the shortest paths from s to t at the end are at least three."""
    wide = [(a, b) for m in "abcd" for a, b in (("s", m), (m, "t"))]
    if name == "removed":
        return [edges(wide, 0), edges([("d", "t")], 10, REMOVED)]
    if name == "added":
        return [edges(wide[:4], 0), edges(wide[4:], 10)]
    if name == "both":
        return [edges(wide[:6], 0), edges(wide[6:], 10) + edges([("s", "a")], 20, REMOVED)]
    if name == "shorter":
        return [edges([("s", "x"), ("x", "y"), ("y", "t"), ("s", "a"), ("s", "b"), ("s", "c")], 0),
                edges([(m, "t") for m in "abc"], 10)]  # fmt: skip
    if name == "farther":
        return [edges([("s", "x"), ("x", "t"), *((m, "y") for m in "abc"), *(("s", m) for m in "abc"), ("y", "t")], 0),
                edges([("s", "x")], 10, REMOVED)]  # fmt: skip
    return [edges(wide, 0), [{"t": 10, "op": "-v", "id": "a"}], edges(wide[:2], 20) + edges([("q", "t")], 30)]


@pytest.mark.parametrize("name", ["removed", "added", "both", "shorter", "farther", "vertices"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.slow
def test_kept_paths_are_equally_likely(name: str, directed: bool) -> None:
    """Pairs and paths as often as each other, by chi-square; every history has one full pass."""
    seen: Counter[tuple[Any, ...]] = Counter()
    total = 0
    for seed in range(8):
        live = LiveGraph(lateness=0)
        followed: Any = live.follow("betweenness", epsilon=0.05, delta=0.5, directed=directed, seed=seed)
        for records in history(name):
            live.feed(records)
            followed.result()
        assert followed.statistics["full_passes"] == 1
        samples, keys = followed._samples, followed._encoder.vertices.keys
        at = 0
        for s, t, size in zip(*(one.tolist() for one in samples[:3]), strict=True):
            inner = samples.path[at : at + max(size, 0)]
            at += len(inner)
            ends = list(keys(np.array([s, *inner, t], np.int64)))
            seen[tuple(map(str, ends)) if size >= 0 else (str(ends[0]), None, str(ends[-1]))] += 1
            total += 1
    graph = plain(live, directed=directed)
    expected: dict[tuple[Any, ...], float] = {}
    share = total / (len(graph) * (len(graph) - 1))
    for s in graph:
        for t in set(graph) - {s}:
            paths = list(nx.all_shortest_paths(graph, s, t)) if nx.has_path(graph, s, t) else [[s, None, t]]
            expected |= {tuple(path): share / len(paths) for path in paths}
    assert set(seen) <= set(expected)
    assert min(expected.values()) > 5
    found = [seen[path] for path in expected]
    assert stats.chisquare(found, list(expected.values())).pvalue > 1e-3


def test_columns_options_and_graphs_without_inner_vertices() -> None:
    live = LiveGraph(lateness=0)
    with pytest.raises(InputError, match="epsilon is missing"):
        live.follow("betweenness")
    with pytest.raises(InputError, match="option 'pivots' is not accepted"):
        live.follow("betweenness", epsilon=0.1, pivots=3)
    tiny = live.follow("betweenness", epsilon=1e-7)
    followed = live.follow("betweenness", epsilon=0.1, top=2, directed=False)
    assert followed.result().table.num_rows == 0
    live.feed([{"t": 0, "op": "+v", "id": 1}])
    assert followed.result().to_dict() == {1: 0.0}
    live.feed(edges([(1, 2), (2, 3), (3, 4)], 1))
    static, found = gf.betweenness(live.graph(directed=False), epsilon=0.1, top=2), followed.result()
    assert found.table.schema.equals(static.table.schema)
    assert found.summary.keys() == static.summary.keys()
    assert set(found.to_dict()) == {2, 3}
    again = live.follow("betweenness", epsilon=0.1, top=2, directed=False)
    assert again.result().table.equals(live.follow("betweenness", epsilon=0.1, top=2, directed=False).result().table)
    with pytest.raises(InputError, match=r"epsilon=1e-07: takes .* samples"):
        tiny.result()
    live.feed([{"t": 10 + v, "op": "-v", "id": v} for v in (1, 2, 3, 4)])
    assert followed.result().table.num_rows == 0
    live.feed(edges([(1, 2), (2, 3)], 20))
    assert set(followed.result().to_dict()) == {1, 2} or set(followed.result().to_dict()) == {2, 1}
    assert followed.result().to_dict()[2] == pytest.approx(1.0, abs=0.3)

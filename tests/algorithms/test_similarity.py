"""Similarity of vertices, against sets of neighbors."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, permutations
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import goffish as gf
from goffish.algorithms.similarity import in_memory
from goffish.graph import Graph
from tests.algorithms.test_whole_counts import EDGES, build, simple

Formula = Callable[[set[int], set[int], Callable[[int], int]], float]
METRICS: dict[str, Formula] = {
    "jaccard": lambda a, b, d: len(a & b) / len(a | b),
    "common_neighbors": lambda a, b, d: len(a & b),
    "overlap": lambda a, b, d: len(a & b) / min(len(a), len(b)),
    "cosine": lambda a, b, d: len(a & b) / math.sqrt(len(a) * len(b)),
    "adamic_adar": lambda a, b, d: sum(1 / math.log(d(w)) for w in sorted(a & b)),
    "resource_allocation": lambda a, b, d: sum(1 / d(w) for w in sorted(a & b)),
}


def value(reference: nx.Graph, metric: str, u: int, v: int) -> float:
    near, far = set(reference[u]), set(reference[v])
    return METRICS[metric](near, far, lambda w: max(reference.degree(w), 2)) if near & far else 0.0


@settings(max_examples=200)
@given(EDGES, st.booleans(), st.sampled_from(sorted(METRICS)), st.integers(1, 4), st.sampled_from([1, 3]))
def test_pairs_and_best_pairs(
    case: tuple[int, list[tuple[int, int]]], directed: bool, metric: str, top: int, threads: int
) -> None:
    """Breaks when loops, parallel edges or neighbors count, or one of equal pairs is returned at random."""
    n, edges = case
    graph, reference = build(n, edges, directed), simple(n, edges)
    options = {"metric": metric, "threads": threads}
    pairs = [(u, v) for u in range(n) for v in range(n)]
    found = gf.similarity(
        graph, pa.table({"source": [u for u, _ in pairs], "target": [v for _, v in pairs]}), **options
    )
    values = {pair: value(reference, metric, *pair) for pair in pairs}
    assert list(found.to_dict()) == pairs
    assert found.to_dict() == pytest.approx(values)
    exact = found.to_dict()
    free = [pair for pair in permutations(range(n), 2) if exact[pair] and not reference.has_edge(*pair)]
    best = [
        (u, v) for u in range(n)
        for _, _, v in sorted((-exact[u, v], u, v) for _, v in filter(lambda pair: pair[0] == u, free))[:top]
    ]  # fmt: skip
    each = gf.similarity(graph, top=top, **options)
    assert list(each.to_dict().items()) == [(pair, exact[pair]) for pair in best]
    once = sorted((-exact[u, v], u, v) for u, v in free if u < v)[:top]
    whole = gf.similarity(graph, top=top, each=False, **options)
    assert list(whole.to_dict().items()) == [((u, v), -minus) for minus, u, v in once]
    assert whole.summary == {"pairs": len(once), "largest": -min(once)[0] if once else 0.0}


@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_hubs_and_many_tasks(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are looked up in longer ones; buffers pass from task to task; any number of threads."""
    monkeypatch.setattr(in_memory, "STEPS", 1 << 9)
    rng = np.random.default_rng(4)
    edges = [*(rng.random((1500, 2)) ** 3 * 400).astype(np.int64).tolist(), *((0, v) for v in range(1, 400, 2))]
    graph, reference = build(400, edges, False), simple(400, edges)
    graph = Graph(graph.offsets, graph.targets.astype(kind), False, graph.num_edges)
    exact = {pair: value(reference, "adamic_adar", *pair) for pair in combinations(range(400), 2)}
    pairs = list(exact)
    columns = tuple(np.array(pairs).T)
    found = gf.similarity(graph, columns, metric="adamic_adar", threads=2).to_dict()
    assert found == pytest.approx(exact)
    best = sorted((-found[pair], *pair) for pair in pairs if found[pair] and not reference.has_edge(*pair))
    first, *others = (gf.similarity(graph, metric="adamic_adar", top=50, threads=t) for t in (1, 3))
    assert all(other.table == first.table for other in others)
    for threads in (1, 3):
        whole = gf.similarity(graph, metric="adamic_adar", top=50, each=False, threads=threads)
        assert list(whole.to_dict().items()) == [((u, v), -minus) for minus, u, v in best[:50]]
    huge = gf.similarity(graph, metric="adamic_adar", top=1 << 40, each=False)
    assert len(huge) == len(best)
    assert len(gf.similarity(graph, top=1 << 40)) == 2 * len(best)


def test_labels_files_and_stores(tmp_path: Path) -> None:
    graph = gf.from_edges(["a", "a", "b", "b", "c"], ["x", "y", "x", "y", "y"])
    expected = {("a", "b"): 1.0, ("c", "a"): 0.5}
    pairs = pa.table({"source": ["a", "c"], "target": ["b", "a"]})
    file = gf.similarity(graph, pairs).write(tmp_path / "pairs.csv")
    for given_pairs in (pairs, pairs.to_pandas(), str(file), file, (["a", "c"], ["b", "a"])):
        assert gf.similarity(graph, given_pairs).to_dict() == expected
    assert gf.run("similarity", gf.partition(graph, parts=2), pairs=pairs).to_dict() == expected
    assert len(gf.similarity(graph, pairs[:0])) == 0
    empty = gf.from_edges([], [])
    assert len(gf.similarity(empty)) == len(gf.similarity(empty, each=False)) == 0
    assert len(gf.similarity(gf.from_edges([1], [2]))) == 0


def test_errors(tmp_path: Path) -> None:
    graph = gf.from_edges(["a", "b"], ["b", "c"])
    (tmp_path / "bad.csv").write_text("source,to\na,b\n")
    for pairs, told in (
        (pa.table({"source": ["a"]}), r"pairs: no column 'target'; available: source"),
        (str(tmp_path / "bad.csv"), r"pairs: no column 'target'; available: source, to"),
        (str(tmp_path / "none.csv"), "existing table file"),
        (str(tmp_path / "bad.txt"), "suffix"),
        ((["a"], ["b", "c"]), "pairs: source has 1 rows, target has 2"),
        ((["a"], ["z"]), "unknown vertex 'z'"),
        (([1], [2]), "unknown vertex 1"),
        (([None], ["a"]), "source|vertex"),
        (7, "pairs is of type int: expected a table"),
    ):
        with pytest.raises(gf.InputError, match=told):
            gf.similarity(graph, pairs)
    for options, told in (
        ({"top": 0}, "top=0"),
        ({"top": 10**30}, "top="),
        ({"metric": "near"}, "metric='near'"),
        ({"threads": 0}, "threads=0"),
    ):
        with pytest.raises(gf.InputError, match=told):
            gf.similarity(graph, **options)

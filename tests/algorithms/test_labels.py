"""Every table of every algorithm names vertices by the user's labels: integers with gaps, or texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
from goffish.temporal.options import APPLICATIONS

#: What columns hold. The column of a new algorithm belongs into one of the two.
VERTICES = {"vertex", "source", "target", "component", "parent", "value", "central", "via"}
OTHERS = {
    "distance", "hops", "vertices", "rank", "local_rank", "block_rank", "community", "betweenness", "closeness",
    "harmonic", "level", "size", "internal_weight", "cut_weight", "triangles", "core", "partition", "subgraph", "arcs",
    "remote_arcs", "neighbor", "links", "conductance", "volume", "density", "timestep", "arrival", "departure", "count",
    "change", "total",
}  # fmt: skip
N = 12
INTEGERS = [100 + 7 * v for v in range(N)]
TEXTS = [f"vertex {v:02d}" for v in range(N)]
EDGES = [*sorted(nx.connected_watts_strogatz_graph(N - 3, 4, 0.3, seed=5).edges), (N - 3, N - 2), (N - 2, N - 1)]
GRAPHS = {
    name: gf.from_edges([labels[u] for u, _ in EDGES], [labels[v] for _, v in EDGES], np.arange(1.0, 1 + len(EDGES)))
    for name, labels in (("integers", INTEGERS), ("texts", TEXTS), ("numbers", list(range(N))))
}
LABELS = {"integers": INTEGERS, "texts": TEXTS}


def check(found: pa.Table, numbered: pa.Table, labels: list[Any]) -> None:
    """`found` is `numbered`, the same table of a graph whose labels are vertex numbers, with other labels."""
    assert found.column_names == numbered.column_names
    for name in found.column_names:
        assert (name in VERTICES) != (name in OTHERS), f"say what column {name!r} holds, at the top of this file"
        expected = numbered[name].to_pylist()
        if name in VERTICES:
            expected = [renamed(value, labels) for value in expected]
        assert found[name].to_pylist() == expected, name


def renamed(value: Any, labels: list[Any]) -> Any:
    if isinstance(value, list):
        return [renamed(one, labels) for one in value]
    return None if value is None else labels[value]


def tables(result: Any) -> list[pa.Table]:
    """The table of a result, and every further one that it holds or makes."""
    found = [result.table]
    if hasattr(result, "hierarchy"):
        found.append(result.hierarchy)
    return [*found, result.describe()] if hasattr(result, "describe") else found


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_tables_of_algorithms(name: str, kind: str) -> None:
    model = ALGORITHMS[name]

    def answers(graph: gf.Graph, source: Any) -> list[pa.Table]:
        options = {"source": source} if "source" in model.model_fields else {}
        cut = gf.partition(graph, 2, "range")
        return [table for given in (graph, cut) for table in tables(gf.run(name, given, **options))]

    pairs = zip(answers(GRAPHS[kind], LABELS[kind][1]), answers(GRAPHS["numbers"], 1), strict=True)
    for found, numbered in pairs:
        check(found, numbered, LABELS[kind])


def functions() -> dict[str, Callable[..., Any]]:
    """The public functions of a graph that return a result."""
    found = {}
    for name in gf.__all__:
        function = getattr(gf, name)
        if inspect.isfunction(function):
            given = list(inspect.signature(function).parameters)
            returned = str(inspect.signature(function).return_annotation)
            if given[:1] == ["graph"] and returned in ("Result", "Communities", "CommunityLandscape"):
                found[name] = function
    return found


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", functions())
def test_tables_of_functions(name: str, kind: str) -> None:
    function = functions()[name]
    more = "source" in inspect.signature(function).parameters
    found = function(GRAPHS[kind], *([LABELS[kind][1]] if more else []))
    numbered = function(GRAPHS["numbers"], *([1] if more else []))
    for one, other in zip(tables(found), tables(numbered), strict=True):
        check(one, other, LABELS[kind])


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", APPLICATIONS)
def test_tables_of_applications(name: str, kind: str, tmp_path: Path) -> None:
    edges = len(EDGES)
    schema = SeriesSchema(
        vertex=(Attribute("tags", "list<string>"),), edge=(Attribute("latency", "float64"), Attribute("exists", "bool"))
    )  # fmt: skip

    def answer(which: str, source: Any) -> list[pa.Table]:
        cut = gf.partition(GRAPHS[which], 2, "range")
        instances = [
            InstanceData(10 * t, 10 * t + 10, {
                "vertex.tags": [["a"] if v % 4 == t else [] for v in range(N)],
                "edge.latency": np.full(edges, 2.0), "edge.exists": np.arange(edges) % 3 != t,
            })
            for t in range(3)
        ]  # fmt: skip
        write_series(cut, tmp_path / which, schema, instances, unit="1")
        options = {
            "tdsp": {"source": source}, "memes": {"meme": "a", "attribute": "tags"},
            "hashtags": {"hashtag": "a", "attribute": "tags"},
            "vehicles": {"plate": "a", "last_seen": source, "max_speed": 1.0, "plates": "tags", "distance": "latency"},
        }.get(name, {"edge_exists": "exists"})  # fmt: skip
        return [
            table for engine in ("auto", "local")
            for table in tables(gf.run_series(name, tmp_path / which, engine=engine, **options))
        ]  # fmt: skip

    for found, numbered in zip(answer(kind, LABELS[kind][1]), answer("numbers", 1), strict=True):
        check(found, numbered, LABELS[kind])


def test_edges_are_keys() -> None:
    graph = gf.from_edges([10, 20, 30], [20, 30, 10])
    assert gf.edge_betweenness(graph).to_dict() == {(10, 20): 1.0, (10, 30): 1.0, (20, 30): 1.0}
    assert gf.edge_betweenness(gf.from_edges(["x"], ["y"])).to_dict() == {("x", "y"): 1.0}
    links = gf.run("quotient", gf.partition(gf.from_edges([0, 1, 2], [1, 2, 3]), 2, "range")).to_dict()
    assert links == {(0, 1): 1, (1, 0): 1}
    with pytest.raises(gf.InputError, match=r"several rows have the same level: use \.table"):
        gf.landscape(graph).to_dict()

"""Every table of every algorithm names vertices by the user's labels: integers with gaps, or texts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import goffish as gf
from goffish.algorithms.algorithm import Algorithm
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
from goffish.temporal.options import APPLICATIONS

#: What columns hold. The column of a new algorithm belongs into one of the two.
VERTICES = {"vertex", "source", "target", "component", "parent", "value", "central", "via", "partner"}
OTHERS = {
    "distance", "hops", "vertices", "rank", "local_rank", "block_rank", "community", "betweenness", "closeness",
    "harmonic", "level", "size", "internal_weight", "cut_weight", "triangles", "core", "partition", "subgraph", "arcs",
    "remote_arcs", "neighbor", "links", "conductance", "volume", "density", "timestep", "arrival", "departure", "count",
    "change", "total", "least", "most", "clustering", "neighbors", "truss",
    "eigenvector", "katz", "hub", "authority", "similarity", "walk", "step", *(f"x{at}" for at in range(128)),
    "weight",
    "block", "pieces", "smaller_side", "member", "color",
    "path",
    "eccentricity", "pairs",
    "flow", "cut", "source_side", "motif", "edges", "side", *(f"orbit_{at}" for at in range(15)),
}  # fmt: skip
#: Where such a column holds no vertices: communities of the next level, or numbers.
NO_VERTICES = {"landscape": {"parent"}, "aggregate_messages": {"value"}}
#: Need a bipartite graph.
BIPARTITE = {"bipartition", "bipartite-projection", "bipartite-cores"}
N = 12
INTEGERS = [100 + 7 * v for v in range(N)]
TEXTS = [f"vertex {v:02d}" for v in range(N)]
EDGES = [*sorted(nx.connected_watts_strogatz_graph(N - 3, 4, 0.3, seed=5).edges), (N - 3, N - 2), (N - 2, N - 1)]
GRAPHS = {
    name: gf.from_edges(
        [labels[u] for u, _ in EDGES], [labels[v] for _, v in EDGES], np.arange(1.0, 1 + len(EDGES)),
        vertex_attributes={"height": np.arange(N) % 5},
    )
    for name, labels in (("integers", INTEGERS), ("texts", TEXTS), ("numbers", list(range(N))))
}  # fmt: skip
LABELS = {"integers": INTEGERS, "texts": TEXTS}


def check(found: pa.Table, numbered: pa.Table, labels: list[Any], others: Collection[str] = ()) -> None:
    """`found` is `numbered`, the same table of a graph whose labels are vertex numbers, with other labels."""
    assert found.column_names == numbered.column_names
    for name in found.column_names:
        assert (name in VERTICES) != (name in OTHERS), f"say what column {name!r} holds, at the top of this file"
        expected = numbered[name].to_pylist()
        if name in VERTICES and name not in others:
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
    if hasattr(result, "sides"):
        found.append(result.sides)
    return [*found, result.describe()] if hasattr(result, "describe") else found


def forward(name: str, graph: gf.Graph) -> gf.Graph:
    """The graph, with directions from smaller to larger labels for what needs a graph without cycles.

    A path for what needs a bipartite graph.
    """
    if name.replace("_", "-") in BIPARTITE:
        return gf.from_edges(np.arange(N - 1), np.arange(1, N), labels=graph.label_column())
    if name.replace("_", "-") not in ("topological-order", "longest-path"):
        return graph
    src, dst, weight, _ = graph.edge_columns()
    return gf.from_edges(graph.labels_of(src), graph.labels_of(dst), weight, directed=True)


def ends(model: type[Algorithm], graph: gf.Graph, source: Any) -> dict[str, Any]:
    """The required options of an algorithm: a source, and a target three vertices later."""
    labels = list(graph)
    given = {"source": source, "target": labels[labels.index(source) + 3]}
    return {name: value for name, value in given.items() if name in model.model_fields}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_tables_of_algorithms(name: str, kind: str) -> None:
    model = ALGORITHMS[name]

    def answers(graph: gf.Graph, source: Any) -> list[pa.Table]:
        graph = forward(name, graph)
        options = ends(model, graph, source)
        cut = gf.partition(graph, 2, "range")
        return [table for given in (graph, cut) for table in tables(gf.run(name, given, **options))]

    pairs = zip(answers(GRAPHS[kind], LABELS[kind][1]), answers(GRAPHS["numbers"], 1), strict=True)
    for found, numbered in pairs:
        check(found, numbered, LABELS[kind])


#: What is tried for options whose type does not say it, given the labels; all other options have their values by type.
TRIED: dict[str, Callable[[list[Any]], Any]] = {
    "sources": lambda labels: [labels[1], labels[4], labels[9]],
    "targets": lambda labels: [labels[2], labels[4]],
    "vertices": lambda labels: [labels[3], labels[0]],
    "personalization": lambda labels: {labels[1]: 1.0, labels[4]: 2.0},
    "initial": lambda labels: {label: v % 3 for v, label in enumerate(labels)},
    "fixed": lambda labels: {labels[0]: 0, labels[7]: 1},
    "truth": lambda labels: {label: v % 2 for v, label in enumerate(labels)},
    "attribute": lambda labels: "height",
    "reductions": lambda labels: "leaves",
    "seed": lambda labels: 7,
    "max_iterations": lambda labels: 500,
    "pairs": lambda labels: pa.table({"source": [labels[1], labels[4]], "target": [labels[9], labels[2]]}),
    "iteration_weights": lambda labels: (0.5, 1.0),
    "alpha": lambda labels: 0.01,
    "registers": lambda labels: 16,
    "features": lambda labels: pa.table({"vertex": labels[:3], "a": [0, 1, 1], "x0": [1, 0, 1]}),
    "time_limit": lambda labels: 1000.0,
    "bounds": lambda labels: [0.0] * N,
}


def values(name: str, annotation: Any, labels: list[Any]) -> list[Any]:
    """What is tried for an option."""
    if name in TRIED:
        return [TRIED[name](labels)]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    parts = get_args(annotation) or (annotation,)
    tried = [v for kind, some in ((bool, (True, False)), (int, (2,)), (float, (0.25,))) if kind in parts for v in some]
    assert tried, f"say what to try for the option {name!r}, in TRIED"
    return tried


def choices(name: str, labels: list[Any]) -> list[dict[str, Any]]:
    """Every option of an algorithm by itself."""
    fields = ALGORITHMS[name].model_fields.items()
    return [
        {option: value} for option, field in fields if option not in ("source", "target")
        for value in values(option, field.annotation, labels)
    ]  # fmt: skip


def answered(name: str, graph: gf.Graph, source: Any, options: dict[str, Any]) -> list[pa.Table] | str:
    """The tables in memory and of a partitioned graph; of options that contradict each other, what is said."""
    graph = forward(name, graph)
    options |= ends(ALGORITHMS[name], graph, source)
    found = []
    for given in (graph, gf.partition(graph, 2, "range")):
        try:
            found += tables(gf.run(name, given, **options))
        except gf.InputError as error:
            if given is graph:
                return str(error)
    return found


@pytest.mark.parametrize("kind", ["texts", pytest.param("integers", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.slow
def test_tables_of_every_option(name: str, kind: str) -> None:
    """Each option by itself, and each with every one that adds a column."""
    labels, numbers = LABELS[kind], list(range(N))

    def compare(of_labels: dict[str, Any], of_numbers: dict[str, Any]) -> set[str]:
        found = answered(name, GRAPHS[kind], labels[1], of_labels)
        numbered = answered(name, GRAPHS["numbers"], 1, of_numbers)
        if isinstance(found, str):
            assert isinstance(numbered, str), f"{of_labels}: {found}"
            return set()
        for one, other in zip(found, numbered, strict=True):
            others = NO_VERTICES.get(name, set()) | ({"value"} if "attribute" in of_labels else set())
            check(one, other, labels, others)
        return {column for table in found for column in table.column_names}

    usual = compare({}, {})
    singles = list(zip(choices(name, labels), choices(name, numbers), strict=True))
    adding = [pair for pair in singles if compare(*pair) - usual]
    for first, first_numbered in adding:
        for other, other_numbered in singles:
            if not first.keys() & other.keys():
                compare(first | other, first_numbered | other_numbered)


def test_options_that_add_columns_are_found() -> None:
    """Breaks when the walk over options does not reach the bounds of sampled values."""
    for name in ("betweenness", "landscape"):
        plain, sampled = (tables(gf.run(name, GRAPHS["texts"], **more))[0] for more in ({}, {"epsilon": 0.25}))
        assert {"least", "most"} <= set(sampled.column_names) - set(plain.column_names)


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
    names = inspect.signature(function).parameters
    places = [place for end, place in (("source", 1), ("target", 4)) if end in names]
    found = function(forward(name, GRAPHS[kind]), *(LABELS[kind][place] for place in places))
    numbered = function(forward(name, GRAPHS["numbers"]), *places)
    for one, other in zip(tables(found), tables(numbered), strict=True):
        check(one, other, LABELS[kind], NO_VERTICES.get(name, ()))


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", sorted(APPLICATIONS.keys() - {"temporal-triangles"}))  # whose tables have no vertices
@pytest.mark.slow
def test_tables_of_applications(name: str, kind: str, tmp_path: Path) -> None:
    edges = len(EDGES)
    schema = SeriesSchema(
        vertex=(Attribute("tags", "list<string>"),), edge=(Attribute("latency", "float64"), Attribute("exists", "bool"),
              Attribute("times", "list<int64>")),
    )  # fmt: skip

    def answer(which: str, source: Any) -> list[pa.Table]:
        cut = gf.partition(GRAPHS[which], 2, "range")
        instances = [
            InstanceData(10 * t, 10 * t + 10, {
                "vertex.tags": [["a"] if v % 4 == t else [] for v in range(N)],
                "edge.latency": np.full(edges, 2.0), "edge.exists": np.arange(edges) % 3 != t,
                "edge.times": [[10 * t + e % 10] for e in range(edges)],
            })
            for t in range(3)
        ]  # fmt: skip
        write_series(cut, tmp_path / which, schema, instances, unit="1")
        options = {
            "tdsp": {"source": source}, "temporal-paths": {"vertex": source},
            "memes": {"meme": "a", "attribute": "tags"},
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
    with pytest.raises(gf.InputError, match=r"several rows have the same level; use \.table"):
        gf.landscape(graph).to_dict()

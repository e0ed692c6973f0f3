"""Weights at the edge of float64: refused in one line, or answered as weights of an ordinary size are.

What calculates with weights is not listed here but found: every algorithm, public function and function of the networkx
backend whose answer changes with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, ValuesView
from functools import cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from networkx.utils.backends import _registered_algorithms
from scipy.sparse.linalg import ArpackError

import goffish as gf
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.algorithms.communities.communities import merge_small
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.networkx_backend import interface
from goffish.networkx_backend.info import FUNCTIONS

EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]
SRC, DST = np.array(EDGES).T
PLAIN = np.arange(1.0, 8.0)
#: Changes the answer of everything that calculates with weights.
OTHER = np.array([9.0, 1.0, 2.0, 7.0, 1.0, 7.0, 9.0])
#: What functions are called with that need more than a graph.
NEEDED: dict[str, Any] = {
    "source": 0, "target": 5, "membership": [0, 0, 0, 1, 1, 1], "communities": [{0, 1, 2}, {3, 4, 5}], "distance": 1,
    "sources": [0, 1], "targets": range(6), "n": 0, "seed": 1, "max_iterations": 20_000, "_s": 0, "_t": 5,
}  # fmt: skip
#: And functions of networkx, of which others have options of the same names with other meanings.
NEEDED_IN_NETWORKX: dict[str, dict[str, Any]] = {
    "k_truss": {"k": 3}, "katz_centrality": {"alpha": 0.01}, "projected_graph": {"nodes": [0, 1]},
    "weighted_projected_graph": {"nodes": [0, 1]},
}  # fmt: skip
#: Answers that are lengths, or one over lengths; all others do not depend on the unit of the weights.
LENGTHS = {"distance": 1, "closeness": -1, "harmonic": -1, "weight": 1, "flow": 1}
RETURNED = {"Result", "Communities", "CommunityLandscape", "MaximumFlow", "float"}
RULE = "weights must be 0 or from 1e-140 to 1e+140; scale all weights by the same factor"
TOO_SMALL_OR_LARGE = [
    *(PLAIN * factor for factor in (5e-324, 1e-310, 1e-141, 1e140, 2e307)),
    *(np.full(7, weight) for weight in (5e-324, 5e-141, 2e140, 1e308)),
]


def weighted(weights: Any, directed: bool = False) -> gf.Graph:
    return gf.from_edges(SRC, DST, weights, directed=directed)


def forward(graph: gf.Graph) -> gf.Graph:
    """The graph with directions from smaller to larger vertices, so that it has no cycle."""
    src, dst, weights, _ = graph.edge_columns()
    return gf.from_edges(np.minimum(src, dst), np.maximum(src, dst), weights, directed=True)


def with_sides(graph: gf.Graph) -> gf.Graph:
    """A path with the weights of the graph, which has no cycle of odd length."""
    _, _, weights, _ = graph.edge_columns()
    return gf.from_edges(np.arange(7), np.arange(1, 8), weights, directed=graph.directed)


def as_it_is(graph: gf.Graph) -> gf.Graph:
    return graph


#: What needs a directed graph without cycles, or one with two sides.
READY = {
    "topological-order": forward, "longest-path": forward, "bipartition": with_sides,
    "bipartite-projection": with_sides, "bipartite-cores": with_sides,
}  # fmt: skip


class Way(NamedTuple):
    """A way to ask something about a graph, and whether it takes a partitioned one."""

    call: Callable[[Any], pa.Table]
    cut: bool


def ways() -> dict[str, Way]:
    found = {}

    def table_of(answer: Any) -> pa.Table:
        return pa.table({"value": [answer]}) if isinstance(answer, float) else answer.table

    for name, model in ALGORITHMS.items():
        given = {"weighted": True, "epsilon": 0.2, "variant": "sequential" if name == "louvain" else None}
        for more in ({}, *({k: v} for k, v in given.items() if k in model.model_fields and v is not None)):
            options = {
                option: NEEDED[option]
                for option in ("source", "target", "max_iterations")
                if option in model.model_fields
            } | more
            cut = not model.checked(**options).only_whole()
            ready = READY.get(name, as_it_is)
            call = lambda g, n=name, o=options, r=ready: gf.run(n, r(g), **o).table  # noqa: E731
            found[f"run {name} {more}"] = Way(call, cut and name not in READY)
    for name in gf.__all__:
        function = getattr(gf, name)
        if inspect.isfunction(function):
            taken = inspect.signature(function).parameters
            returned = str(inspect.signature(function).return_annotation)
            if next(iter(taken)) == "graph" and returned in RETURNED:
                options = {
                    option: NEEDED[option]
                    for option in ("source", "target", "membership", "max_iterations")
                    if option in taken
                }
                ready = READY.get(name.replace("_", "-"), as_it_is)
                cut = taken["graph"].annotation != "Graph" and name.replace("_", "-") not in READY
                found[name] = Way(lambda g, f=function, o=options, r=ready: table_of(f(r(g), **o)), cut)
    # Not among the names of `goffish`, but part of its modules' documented interface.
    found["merge_small"] = Way(lambda g: pa.table({"value": merge_small(g, [0, 0, 1, 2, 2, 2], 2)}), False)
    return found


WAYS = ways()


@cache
def depends_on_weights(name: str) -> bool:
    call = WAYS[name].call
    return any(call(weighted(OTHER, way)) != call(weighted(PLAIN, way)) for way in (False, True))


@pytest.mark.slow
def test_the_walk_finds_what_is_known_to_calculate_with_weights() -> None:
    found = {name.removeprefix("run ").split()[0] for name in WAYS if depends_on_weights(name)}
    assert found >= {
        "betweenness", "closeness", "distances", "edge_betweenness", "harmonic", "landscape", "longest-path", "louvain",
        "merge_small", "modularity", "pagerank", "path", "sssp",
    }  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_weights_out_of_range(name: str) -> None:
    """Refused by what calculates with weights, and of no matter to everything else."""
    call, cut = WAYS[name]
    for directed in (False, True):
        if not depends_on_weights(name):
            assert call(weighted(TOO_SMALL_OR_LARGE[-1], directed)) == call(weighted(PLAIN, directed))
            continue
        for column in TOO_SMALL_OR_LARGE:
            graph = weighted(column, directed)
            for given in (graph, gf.partition(graph, 2, "range"))[: 1 + cut]:
                with pytest.raises(InputError) as refused:
                    call(given)
                assert str(refused.value) in {f"weight {w:g}: {RULE}" for w in column}


@pytest.mark.parametrize("factor", [2.0**-460, 2.0**460])
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.slow
def test_a_power_of_two_changes_nothing_but_the_unit_of_lengths(name: str, factor: float) -> None:
    call, cut = WAYS[name]
    if not depends_on_weights(name) or "katz" in name:  # whose option alpha has the unit of one over a weight
        return
    for prepare in (lambda g: g, lambda g: gf.partition(g, 2, "range"))[: 1 + cut]:
        scaled, plain = call(prepare(weighted(PLAIN * factor))), call(prepare(weighted(PLAIN)))
        assert scaled.column_names == plain.column_names
        for column in plain.column_names:
            unit = factor if column.endswith("_weight") else factor ** LENGTHS.get(column, 0)
            found, expected = scaled[column].to_pylist(), plain[column].to_pylist()
            if pa.types.is_floating(plain[column].type):
                assert np.array(found) / unit == pytest.approx(np.array(expected), rel=1e-12)
            else:
                assert found == expected


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 2e140, -2e140, 5e-141, -5e-141])
def test_the_rule(wrong: float) -> None:
    check_range(None)
    check_range(np.array([0.0, -0.0, 1e-140, 1e140, -1e-140, -1e140]))
    for column in ([wrong], [1.0, wrong], [0.0, wrong, 3.0], [-1.0, wrong]):
        with pytest.raises(InputError) as refused:
            check_range(np.array(column))
        assert str(refused.value) == f"weight {wrong:g}: {RULE}"


def weight_options(name: str) -> list[str]:
    """Options of a networkx function that name the attribute with the weights."""
    taken = inspect.signature(_registered_algorithms[name].orig_func).parameters
    return [
        option
        for option in ("weight", "distance", "capacity")
        if option in taken and taken[option].default in (None, "weight", "capacity")
    ]


def in_networkx(name: str, weights: Any, directed: bool, backend: str | None) -> Any:
    """What networkx answers (iterators as lists), or the class of its exception and the reason for that."""
    function = next(found for one in (nx, nx.community, nx.bipartite) if (found := getattr(one, name, None)))
    graph = nx.DiGraph() if directed else nx.Graph()
    ends = [(min(edge), max(edge)) if name.startswith("dag") else edge for edge in EDGES]
    graph.add_weighted_edges_from((u, v, float(w)) for (u, v), w in zip(ends, weights, strict=True))
    given = {option: NEEDED[option] for option in inspect.signature(function).parameters if option in NEEDED}
    given |= dict.fromkeys(weight_options(name), "weight") | NEEDED_IN_NETWORKX.get(name, {})
    try:
        # Without a name networkx asks this backend, but not for graphs as small as these.
        with nx.config.backend_priority(algos=["goffish"]), pytest.MonkeyPatch.context() as patch:
            patch.setattr(interface, "should_run", lambda *_: True)
            answer = function(graph, **given, **({} if backend is None else {"backend": backend}))
            if isinstance(answer, nx.Graph):
                return list(answer.edges)
            return list(answer) if isinstance(answer, Iterator | ValuesView) else answer
    except (
        NotImplementedError,
        ZeroDivisionError,
        OverflowError,
        ValueError,
        ArpackError,
        nx.NetworkXException,
    ) as error:
        return type(error), str(error.__cause__)


@cache
def networkx_depends_on_weights(name: str) -> bool:
    answers = [[in_networkx(name, w, directed, "goffish") for directed in (False, True)] for w in (PLAIN, OTHER)]
    return bool(answers[0] != answers[1])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.slow
def test_networkx_is_left_what_is_out_of_range(name: str) -> None:
    for directed in (False, True):
        plain = in_networkx(name, PLAIN, directed, "goffish")
        for column in TOO_SMALL_OR_LARGE:
            found = in_networkx(name, column, directed, "goffish")
            if not networkx_depends_on_weights(name) or (isinstance(plain, tuple) and isinstance(plain[0], type)):
                assert found == plain
                continue
            assert found in [(NotImplementedError, f"weight {w:g}: {RULE}") for w in column]
            if not name.startswith(("leiden", "hits")):  # networkx has none, or begins at random
                left = [in_networkx(name, column, directed, backend) for backend in (None, "networkx")]
                assert repr(left[0]) == repr(left[1]), "as texts, for NaN is not equal to itself"


def test_the_walk_over_networkx_finds_every_function_with_weights() -> None:
    found = {name for name in FUNCTIONS if networkx_depends_on_weights(name)}
    left_to_networkx = {
        "average_clustering", "clustering", "center", "diameter", "eccentricity", "periphery", "radius",
    }  # fmt: skip
    # Hubs and authorities have weights, but no option for them.
    assert found - {"hits"} == {name for name in FUNCTIONS if weight_options(name)} - left_to_networkx

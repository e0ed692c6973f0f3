"""`run` and the plain functions: which route answers, and one sentence of `InputError` for what cannot be run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import goffish as gf
from goffish.algorithms.components.subgraph import ConnectedComponents
from goffish.errors import GoffishWarning, InputError

PATH = gf.from_edges(np.arange(9), np.arange(1, 10))
CUT = gf.partition(PATH, 3, "range")
NO_GRAPHS = [None, 5, "edges.txt", nx.path_graph(3), [[0, 1]], gf.Graph]


@pytest.mark.parametrize("program", [ConnectedComponents, 5, None, b"components", ["components"]])
@pytest.mark.parametrize("graph", [PATH, CUT])
def test_what_is_no_algorithm(program: Any, graph: Any) -> None:
    with pytest.raises(InputError, match=r"algorithm is .*MyProgram\(\)"):
        gf.run(program, graph)


@pytest.mark.parametrize("graph", NO_GRAPHS)
def test_what_is_no_graph(graph: Any) -> None:
    calls = (
        lambda: gf.run("components", graph), lambda: gf.run(ConnectedComponents(), graph),
        lambda: gf.connected_components(graph), lambda: gf.bfs(graph, 0), lambda: gf.pagerank(graph),
        lambda: gf.partition(graph, 2),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(InputError, match=r"gf\.read\(path\) or gf\.from_networkx"):
            call()


@pytest.mark.parametrize("graph", [PATH, CUT])
@pytest.mark.parametrize("engine", ["auto", "local"])
@pytest.mark.parametrize(
    "options",
    [{"max_supersteps": "2"}, {"max_supersteps": 0}, {"max_supersteps": True}, {"checkpoint_dir": 5},
     {"checkpoint_dir": "a\0"}, {"checkpoint_every": -1}, {"checkpoint_every": 2}, {"resume": True},
     {"method": "nonsense"}, {"method": 5}, {"units": "nonsense"}, {"threads": "2"}, {"threads": 0}, {"progress": 5},
     {"parts": 0}, {"parts": "2"}, {"parts": 2.5}],
)  # fmt: skip
def test_options_of_the_engine_are_checked_on_every_route(graph: Any, engine: str, options: Any) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        gf.run("components", graph, engine=engine, **options)


def test_checkpoint_every_is_checked_with_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="checkpoint_every"):
        gf.run("components", PATH, checkpoint_dir=tmp_path, checkpoint_every=-1)


@pytest.mark.parametrize("name", ["components", "bfs", "sssp", "cores"])
def test_threads_that_would_do_nothing_are_pointed_out(name: str) -> None:
    """Breaks when `threads` is ignored without a word."""
    options = {"source": 0} if name in ("bfs", "sssp") else {}
    with pytest.warns(GoffishWarning, match=rf"^threads=2 has no effect: {name} in memory uses one thread"):
        gf.run(name, PATH, threads=2, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for graph, engine in ((CUT, "auto"), (PATH, "local")):
            gf.run(name, graph, engine, threads=2, **options)
        gf.run("pagerank", PATH, threads=2)


def test_threads_of_the_sequential_variant_are_pointed_out() -> None:
    with pytest.warns(GoffishWarning, match="^threads=2 has no effect: variant='sequential' uses one thread"):
        gf.louvain(PATH, variant="sequential", threads=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gf.louvain(PATH, threads=2)
        gf.louvain(PATH, variant="sequential")


def test_a_method_is_refused_for_a_partitioned_graph() -> None:
    with pytest.raises(InputError, match="already partitioned"):
        gf.run("components", CUT, method="hash")


@pytest.mark.parametrize(
    ("options", "engine"),
    [({}, False), ({"method": "hash"}, True), ({"parts": 2}, True),
     ({"units": "vertex"}, True), ({"max_supersteps": 50}, True),
     ({"checkpoint_dir": "here", "checkpoint_every": 1}, True)],
)  # fmt: skip
def test_what_only_the_engine_offers_goes_to_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, engine: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    called: list[Any] = []
    result = gf.run("components", PATH, progress=lambda *told: called.append(told), **options)
    assert (result.stats is not None, bool(called)) == (engine, engine)
    assert set(result.to_dict().values()) == {9}


@pytest.mark.parametrize("source", [True, np.True_, 1.0, None, [1], np.array([1]), 2**70, "1", -1])
@pytest.mark.parametrize("graph", [PATH, CUT])
def test_sources_that_are_no_labels(graph: Any, source: Any) -> None:
    for call in (gf.bfs, gf.sssp):
        with pytest.raises(InputError):
            call(graph, source)

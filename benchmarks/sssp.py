"""Shortest paths, weighted and unit, against igraph, NetworKit and SciPy: ``python benchmarks/sssp.py [--quick]``.

Weights are whole numbers from 1 to 255. Each call goes once from every source; sources lie in the giant component.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import _graphs
import _harness
import numpy as np
from _peers import igraph_graph, networkit_graph, scipy_matrix

from goffish.algorithms.components.in_memory import component_of
from goffish.algorithms.paths.in_memory import bfs, sssp
from goffish.graph import Graph

PEERS = ("igraph", "networkit", "scipy")


def giant_sources(graph: Graph, count: int) -> list[int]:
    """`count` vertices of the largest component, drawn with a fixed seed."""
    component = component_of(graph)
    members = np.flatnonzero(component == np.argmax(np.bincount(component)))
    return np.random.default_rng(9).choice(members, count, replace=False).tolist()


def calls(graph: Graph, weighted: bool) -> dict[str, Callable[[int], Any]]:
    import networkit as nk
    from scipy.sparse.csgraph import dijkstra

    matrix, nk_graph = scipy_matrix(graph, weighted), networkit_graph(graph, weighted)
    ig_graph = igraph_graph(graph)
    lengths = None
    if weighted:
        weight = graph.edge_columns()[2]
        assert weight is not None
        lengths = weight.tolist()

    def with_networkit(source: int) -> Any:
        search = nk.distance.Dijkstra if weighted else nk.distance.BFS
        return search(nk_graph, source, storePaths=False).run()

    return {
        "goffish": lambda source: sssp(graph, source),
        "igraph": lambda source: ig_graph.distances(source=source, weights=lengths),
        "networkit": with_networkit,
        "scipy": lambda source: dijkstra(matrix, indices=source, unweighted=not weighted),
    } | ({} if weighted else {"goffish bfs": lambda source: bfs(graph, source)})


def check(graph: Graph, ready: dict[str, Callable[[int], Any]], source: int) -> None:
    """Equal distances from all; whole-number weights make them exact."""
    ours = ready["goffish"](source).table.column("distance").to_numpy()
    theirs = np.array(ready["networkit"](source).getDistances())
    assert np.array_equal(np.where(theirs > 1e300, np.inf, theirs), ours), "networkit"
    assert np.array_equal(np.array(ready["igraph"](source)[0], float), ours), "igraph"
    assert np.array_equal(ready["scipy"](source), ours), "scipy"


def from_all(call: Callable[[int], Any], sources: list[int]) -> list[Any]:
    return [call(source) for source in sources]


def table(weighted: bool, quick: bool) -> None:
    columns = ("goffish", *(() if weighted else ("goffish bfs",)), *PEERS)
    rows, ratios, named = [], [], []
    for name, graph in _graphs.load_available(_graphs.QUICK if quick else _graphs.UNDIRECTED, weighted):
        ready = calls(graph, weighted)
        sources = giant_sources(graph, 3)
        check(graph, ready, sources[0])
        timings = _harness.measure_together(
            {c: partial(from_all, call, sources) for c, call in ready.items()},
            repeats=3 if quick else 5,
        )
        ratio, peer = _harness.best_peer(timings, ["goffish"], PEERS)
        ratios.append(ratio)
        named.append(_harness.best_peer(timings, ["goffish"], ["igraph", "scipy"])[0])
        rows.append(
            [f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})"]
            + [_harness.milliseconds(timings[c]) for c in columns]
            + [f"**{ratio:.1f}** ({peer})"]
        )
    print(f"\n{'Weighted' if weighted else 'Unit weights'}: milliseconds for three sources\n")
    _harness.print_table(["graph (n / m)", *columns, "best peer / goffish"], rows)
    print(
        f"\ngeometric mean of best peer / goffish: {_harness.geometric_mean(ratios):.2f}; "
        f"least of best(igraph, scipy) / goffish: {min(named):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs only, fewer repeats")
    quick = parser.parse_args().quick
    print(_harness.machine_line(PEERS))
    print("milliseconds: best wall (median wall; CPU)")
    for weighted in (True, False):
        table(weighted, quick)


if __name__ == "__main__":
    main()

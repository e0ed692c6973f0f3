"""Paths and distances against libraries for graphs and SciPy: ``python benchmarks/paths.py [--quick]``.

Weights are whole numbers from 1 to 255. Pairs and sources lie in the giant component. networkx runs on small graphs
only.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import _graphs
import _harness
import numpy as np
from _peers import igraph_graph, networkit_graph, rustworkx_graph, scipy_matrix
from sssp import giant_sources

import goffish as gf
from goffish.graph import Graph

PEERS = ("igraph", "networkit", "rustworkx", "scipy", "networkx")
PAIRS, PATHS, SOURCES = 20, 20, 16
#: Vertices up to which networkx takes seconds.
_SMALL = 50_000

Calls = dict[str, Callable[[], Any]]


def lengths_of(graph: Graph) -> list[float] | None:
    weight = graph.edge_columns()[2]
    return None if weight is None else weight.tolist()


def pairs(graph: Graph) -> tuple[Calls, Callable[[str, Any], Any]]:
    """Lengths of shortest paths between random pairs; igraph and networkx find them, too."""
    import networkit as nk
    import networkx as nx
    import rustworkx

    weighted = graph.weights is not None
    rusty = rustworkx_graph(graph)
    ends = np.array(giant_sources(graph, 2 * PAIRS)).reshape(-1, 2).tolist()
    nk_graph, ig_graph, weights = networkit_graph(graph, weighted), igraph_graph(graph), lengths_of(graph)
    kind = nk.distance.BidirectionalDijkstra if weighted else nk.distance.BidirectionalBFS

    def with_networkit(u: int, v: int) -> float:
        search = kind(nk_graph, u, v, storePred=True)
        search.run()
        search.getPath()
        return float(search.getDistance())

    def with_igraph(u: int, v: int) -> float:
        path = ig_graph.get_shortest_path(u, v, weights=weights, output="epath")
        return float(len(path) if weights is None else sum(weights[e] for e in path))

    calls: Calls = {
        "goffish": lambda: [gf.shortest_path(graph, u, v).summary["length"] for u, v in ends],
        "igraph": lambda: [with_igraph(u, v) for u, v in ends],
        "networkit": lambda: [with_networkit(u, v) for u, v in ends],
        "rustworkx": lambda: [rustworkx.dijkstra_shortest_path_lengths(rusty, u, float, goal=v)[v] for u, v in ends],
    }
    if len(graph) <= _SMALL:
        nx_graph, weight = gf.to_networkx(graph), "weight" if weighted else None
        calls["networkx"] = lambda: [nx.bidirectional_dijkstra(nx_graph, u, v, weight)[0] for u, v in ends]
    return calls, lambda name, found: found


def alternatives(graph: Graph) -> tuple[Calls, Callable[[str, Any], Any]]:
    """Lengths of the k shortest paths between a pair."""
    import networkx as nx

    weights = lengths_of(graph)
    source, target = giant_sources(graph, 2)
    ig_graph = igraph_graph(graph)

    def with_igraph() -> list[float]:
        paths = ig_graph.get_k_shortest_paths(source, target, k=PATHS, weights=weights, output="epath")
        return [float(len(path) if weights is None else sum(weights[e] for e in path)) for path in paths]

    def with_goffish() -> list[float]:
        table = gf.shortest_path(graph, source, target, k=PATHS).table
        path, distance = table["path"].to_numpy(), table["distance"].to_numpy()
        return distance[np.append(np.flatnonzero(np.diff(path)), path.size - 1)].tolist()

    calls: Calls = {"goffish": with_goffish, "igraph": with_igraph}
    if len(graph) <= _SMALL:
        nx_graph, weight = gf.to_networkx(graph), "weight" if weights else None

        def with_networkx() -> list[float]:
            found = islice(nx.shortest_simple_paths(nx_graph, source, target, weight), PATHS)
            return [float(nx.path_weight(nx_graph, p, weight) if weight else len(p) - 1) for p in found]

        calls["networkx"] = with_networkx
    return calls, lambda name, found: found


def tables(graph: Graph) -> tuple[Calls, Callable[[str, Any], Any]]:
    """Distances between several sources and as many targets."""
    import networkit as nk
    from scipy.sparse.csgraph import dijkstra

    weighted = graph.weights is not None
    vertices = np.unique(giant_sources(graph, 2 * SOURCES))
    sources, targets = vertices[::2].tolist(), vertices[1::2].tolist()
    nk_graph, ig_graph, weights = networkit_graph(graph, weighted), igraph_graph(graph), lengths_of(graph)
    matrix = scipy_matrix(graph, weighted)

    def with_networkit() -> Any:
        search = nk.distance.SPSP(nk_graph, sources, targets)
        search.run()
        return np.array(search.getDistances())

    def as_rows(name: str, found: Any) -> Any:
        return found.table["distance"].to_numpy() if name == "goffish" else np.asarray(found, float).ravel()

    return {
        "goffish": lambda: gf.distances(graph, sources, targets),
        "igraph": lambda: ig_graph.distances(sources, targets, weights=weights),
        "networkit": with_networkit,
        "scipy": lambda: dijkstra(matrix, indices=sources, unweighted=not weighted)[:, targets],
    }, as_rows


def extents(graph: Graph) -> tuple[Calls, Callable[[str, Any], Any]]:
    """Diameters of the largest components."""
    import networkit as nk
    import networkx as nx

    whole = graph.unweighted().largest_component()
    nk_graph = networkit_graph(whole)

    def with_networkit() -> int:
        search = nk.distance.Diameter(nk_graph, algo=nk.distance.DiameterAlgo.EXACT)
        search.run()
        return int(search.getDiameter()[0])

    calls: Calls = {"goffish": lambda: gf.diameter(whole).summary["diameter"], "networkit": with_networkit}
    if len(whole) <= _SMALL:
        nx_graph = gf.to_networkx(whole)
        calls["networkx"] = lambda: nx.diameter(nx_graph, usebounds=True)
    return calls, lambda name, found: found


def spreads(graph: Graph) -> tuple[Calls, Callable[[str, Any], Any]]:
    """Effective diameters, estimated with 64 registers or as many bits."""
    import networkit as nk

    nk_graph = networkit_graph(graph.unweighted())

    def with_networkit() -> float:
        search = nk.distance.EffectiveDiameterApproximation(nk_graph, 0.9, k=64)
        search.run()
        return float(search.getEffectiveDiameter())

    def near(name: str, found: Any) -> Any:
        return "similar" if 0.8 < found / reference < 1.25 else found

    reference = gf.neighborhood_function(graph, registers=256).summary["effective_diameter"]
    return {
        "goffish": lambda: gf.neighborhood_function(graph).summary["effective_diameter"], "networkit": with_networkit,
    }, near  # fmt: skip


def orders(graph: Graph) -> tuple[Calls, Callable[[str, Any], Any]]:
    """Topological orders, with directions from smaller to larger vertices."""
    import networkit as nk
    import rustworkx

    src, dst, _, _ = graph.edge_columns()
    forward = gf.from_edges(src, dst, directed=True, labels=np.arange(len(graph)))
    ig_graph, nk_graph, rusty = igraph_graph(forward), networkit_graph(forward), rustworkx_graph(forward)

    def valid(name: str, found: Any) -> bool:
        order = found.table["vertex"].to_numpy() if name == "goffish" else np.asarray(found)
        place = np.empty(order.size, np.int64)
        place[order] = np.arange(order.size)
        return bool((place[src] < place[dst]).all())

    calls: Calls = {
        "goffish": lambda: gf.topological_order(forward), "igraph": ig_graph.topological_sorting,
        "networkit": lambda: nk.graphtools.topologicalSort(nk_graph),
        "rustworkx": lambda: rustworkx.topological_sort(rusty),
    }  # fmt: skip
    return calls, valid


MEASURED: dict[str, tuple[Callable[[Graph], tuple[Calls, Callable[[str, Any], Any]]], bool]] = {
    f"{PAIRS} pairs, unit weights": (pairs, False),
    f"{PAIRS} pairs, weighted": (pairs, True),
    f"the {PATHS} shortest paths of a pair, weighted": (alternatives, True),
    f"distances between {SOURCES} sources and {SOURCES} targets, weighted": (tables, True),
    "diameter": (extents, False),
    "effective diameter, estimated": (spreads, False),
    "topological order": (orders, False),
}


def report(title: str, names: Iterable[str], quick: bool) -> None:
    make, weighted = MEASURED[title]
    rows, ratios = [], []
    for name, graph in _graphs.load_available(names, weighted):
        calls, comparable = make(graph)
        answers = {peer: comparable(peer, call()) for peer, call in calls.items()}
        for peer, answer in answers.items():
            assert np.array_equal(answer, answers["goffish"]), f"{title}, {name}: {peer} disagrees"
        timings = _harness.measure_together(calls, repeats=3 if quick else 5, warmup=0)
        ratio, best = _harness.best_peer(timings, ["goffish"], [peer for peer in calls if peer != "goffish"])
        ratios.append(ratio)
        rows.append(
            [f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})"]
            + [_harness.milliseconds(timings[c]) if c in timings else "" for c in ("goffish", *PEERS)]
            + [f"**{ratio:.1f}** ({best})"]
        )
    print(f"\n{title}\n")
    _harness.print_table(["graph (n / m)", "goffish", *PEERS, "best of the others / goffish"], rows)
    print(f"\ngeometric mean: {_harness.geometric_mean(ratios):.2f}; least: {min(ratios):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs only, fewer repeats")
    parser.add_argument("--only", help="titles that contain this text")
    given = parser.parse_args()
    print(_harness.machine_line(PEERS))
    print("milliseconds: best wall (median wall; CPU)")
    for title in MEASURED:
        if given.only is None or given.only in title:
            report(title, _graphs.QUICK if given.quick else _graphs.UNDIRECTED, given.quick)


if __name__ == "__main__":
    main()

"""Components, weak and strong, against igraph, NetworKit and SciPy: ``python benchmarks/components.py [--quick]``.

Every call includes the peer's own answer object; NetworKit's is not even converted to Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import _graphs
import _harness
import numpy as np
from _peers import igraph_graph, networkit_graph, scipy_matrix

from goffish.algorithms.components.in_memory import connected_components, strongly_connected_components
from goffish.graph import Graph

PEERS = ("igraph", "networkit", "scipy")


def calls(graph: Graph) -> dict[str, Callable[[], Any]]:
    import networkit as nk
    from scipy.sparse.csgraph import connected_components as scipy_components

    matrix, nk_graph, ig_graph = scipy_matrix(graph), networkit_graph(graph), igraph_graph(graph)

    def with_igraph() -> Any:
        # igraph remembers that a graph is connected and then answers without looking.
        ig_graph.__invalidate_cache()
        return ig_graph.connected_components(mode="weak")

    def parallel(threads: int) -> Callable[[], Any]:
        def run() -> Any:
            nk.setNumberOfThreads(threads)
            return nk.components.ParallelConnectedComponents(nk_graph).run()

        return run

    out: dict[str, Callable[[], Any]] = {"goffish": lambda: connected_components(graph), "igraph": with_igraph}
    if graph.directed:
        out["networkit"] = lambda: nk.components.WeaklyConnectedComponents(nk_graph).run()
    else:
        out["networkit"] = lambda: nk.components.ConnectedComponents(nk_graph).run()
        out["networkit par 1"], out["networkit par 2"] = parallel(1), parallel(2)
    out["scipy"] = lambda: scipy_components(matrix, directed=graph.directed, connection="weak")
    return out


def strong_calls(graph: Graph) -> dict[str, Callable[[], Any]]:
    import networkit as nk
    from scipy.sparse.csgraph import connected_components as scipy_components

    matrix, nk_graph, ig_graph = scipy_matrix(graph), networkit_graph(graph), igraph_graph(graph)

    def with_igraph() -> Any:
        ig_graph.__invalidate_cache()
        return ig_graph.connected_components(mode="strong")

    return {
        "goffish": lambda: strongly_connected_components(graph),
        "igraph": with_igraph,
        "networkit": lambda: nk.components.StronglyConnectedComponents(nk_graph).run(),
        "scipy": lambda: scipy_components(matrix, directed=True, connection="strong"),
    }


def check(answers: dict[str, Callable[[], Any]]) -> None:
    """All find the same partition: our label, the largest member, is a function of the peer's and back."""
    ours = answers["goffish"]().table.column("component").to_numpy()
    roots = np.unique(ours).size
    for name, call in answers.items():
        if name == "goffish":
            continue
        answer = call()
        if name == "igraph":
            theirs = np.array(answer.membership)
        elif name == "scipy":
            theirs = answer[1]
        else:
            theirs = np.array(answer.getPartition().getVector())
        pairs = np.unique(np.stack([ours, theirs.astype(np.int64)]), axis=1).shape[1]
        assert pairs == roots == np.unique(theirs).size, name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs only, fewer repeats")
    quick = parser.parse_args().quick
    print(_harness.machine_line(PEERS))
    print("milliseconds: best wall (median wall; CPU)\n")
    names = _graphs.QUICK if quick else (*_graphs.UNDIRECTED, *_graphs.DIRECTED)
    repeats = 7 if quick else 15
    columns = ["goffish", "igraph", "networkit", "networkit par 1", "networkit par 2", "scipy"]
    report(names, calls, columns, repeats)
    print("\nStrong components:\n")
    report(_graphs.ONE_WAY, strong_calls, ["goffish", *PEERS], repeats)


def report(
    names: Iterable[str], make: Callable[[Graph], dict[str, Callable[[], Any]]], columns: list[str], repeats: int
) -> None:
    rows, ratios = [], []
    for name, graph in _graphs.load_available(names):
        ready = make(graph)
        check(ready)
        timings = _harness.measure_together(ready, repeats=repeats)
        ratio, peer = _harness.best_peer(timings, ["goffish"], [c for c in ready if c != "goffish"])
        ratios.append(ratio)
        cells = [_harness.milliseconds(timings[c]) if c in timings else "" for c in columns]
        size = f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})"
        rows.append([size, *cells, f"**{ratio:.1f}** ({peer})"])
    _harness.print_table(["graph (n / m)", *columns, "best peer / goffish"], rows)
    print(f"\ngeometric mean of best peer / goffish: {_harness.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()

"""PageRank at equal measured error against igraph and NetworKit: ``python benchmarks/pagerank.py [--quick]``.

The reference is computed to 1e-14. GoFFish runs with its default, a proved L1 error of 1e-6. NetworKit's tolerance is
the largest power of sqrt(10) whose measured L1 error is at most 1e-6; igraph's PRPACK has no tolerance (its error is
shown, and both are checked against GoFFish's reference, so a wrong reference could not pass).
All vectors are scaled to sum 1 before they are compared: NetworKit runs without its handling of sinks, whose
answer on graphs with isolated vertices is another one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import _graphs
import _harness
import numpy as np
from _peers import igraph_graph, networkit_graph
from numpy.typing import NDArray

from goffish.algorithms.pagerank.in_memory import pagerank, rank_of
from goffish.graph import Graph

PEERS = ("igraph", "networkit")
ERROR = 1e-6


def error(ranks: Any, reference: NDArray[np.float64]) -> float:
    vector = np.asarray(ranks, float)
    return float(np.abs(vector / vector.sum() - reference).sum())


def calls(graph: Graph, reference: NDArray[np.float64]) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    import networkit as nk

    nk_graph, ig_graph = networkit_graph(graph), igraph_graph(graph)

    def with_networkit(tolerance: float, threads: int) -> Any:
        nk.setNumberOfThreads(threads)
        run = nk.centrality.PageRank(nk_graph, damp=0.85, tol=tolerance)
        run.norm = nk.centrality.Norm.L1_NORM
        return run.run()

    tolerance = 1e-3
    while error(with_networkit(tolerance, 2).scores(), reference) > ERROR:
        tolerance /= 10**0.5
        assert tolerance > 1e-13, "NetworKit does not reach the reference"
    ready: dict[str, Callable[[], Any]] = {
        "goffish 1": lambda: pagerank(graph, threads=1),
        "goffish 2": lambda: pagerank(graph, threads=2),
        "igraph": lambda: ig_graph.pagerank(damping=0.85),
        "networkit 1": lambda: with_networkit(tolerance, 1),
        "networkit 2": lambda: with_networkit(tolerance, 2),
    }
    errors = {
        "goffish": error(ready["goffish 2"]().table.column("rank").to_numpy(), reference),
        "igraph": error(ready["igraph"](), reference),
        "networkit": error(ready["networkit 2"]().scores(), reference),
    }
    assert max(errors.values()) <= ERROR, errors
    return ready, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs only, fewer repeats")
    quick = parser.parse_args().quick
    print(_harness.machine_line(PEERS))
    print("milliseconds: best wall (median wall; CPU)\n")
    names = _graphs.QUICK if quick else (*_graphs.UNDIRECTED, *_graphs.DIRECTED)
    columns = ("goffish 1", "goffish 2", "igraph", "networkit 1", "networkit 2")
    rows, ratios, single = [], [], []
    for name, graph in _graphs.load_available(names):
        _ = graph.reverse  # the peers keep in-arcs in their graph objects too
        reference = rank_of(graph, tolerance=1e-14).rank
        ready, errors = calls(graph, reference)
        timings = _harness.measure_together(ready, repeats=3 if quick else 7)
        ratio, peer = _harness.best_peer(timings, ["goffish 1", "goffish 2"], columns[2:])
        ratios.append(ratio)
        cpu = min(timings[c].cpu for c in columns[2:]) / min(timings[c].cpu for c in columns[:2])
        single.append(cpu)
        rows.append(
            [f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})"]
            + [_harness.milliseconds(timings[c]) for c in columns]
            + [" / ".join(f"{value:.0e}" for value in errors.values())]
            + [f"**{ratio:.1f}** ({peer})", f"{cpu:.1f}"]
        )
    header = ["graph (n / m)", *columns, f"L1 error {' / '.join(errors)}", "best peer / goffish", "in CPU time"]
    _harness.print_table(header, rows)
    print(
        f"\ngeometric mean of best peer / goffish: {_harness.geometric_mean(ratios):.2f}; "
        f"in CPU time: {_harness.geometric_mean(single):.2f}"
    )


if __name__ == "__main__":
    main()

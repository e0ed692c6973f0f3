"""Maximum flows against igraph and SciPy: ``python benchmarks/flows.py [--quick]``.

Between the two vertices of highest degree with unit capacities, between two random vertices with capacities from 1 to
255, and between 2 % of the vertices and 2 % others, at random, with the same capacities. Calls of ours include the
table of all edges; the minimum cut is part of the answers of igraph and ours. NetworKit's Dinic took 2.6 s between the
hubs of email-Enron, 100 times as long as SciPy, and is left out; so is igraph where it takes minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import _graphs
import _harness
import numpy as np
from _peers import igraph_graph, scipy_matrix

import goffish as gf
from goffish.graph import Graph, from_edges

PEERS = ("igraph", "scipy")
Calls = dict[str, Callable[[], float]]


def calls_for(graph: Graph, source: int, target: int, *, slow: bool) -> Calls:
    """Calls that return the value; with `slow`, without those that take minutes."""
    from scipy.sparse.csgraph import maximum_flow

    src, _, weight, _ = graph.edge_columns()
    capacity = np.ones(src.size) if weight is None else weight
    ig_graph, listed = igraph_graph(graph), capacity.tolist()
    matrix = scipy_matrix(graph, weighted=weight is not None).astype(np.int32)
    calls = {
        "goffish": lambda: gf.maximum_flow(graph, source, target).value,
        "igraph": lambda: float(ig_graph.maxflow(source, target, capacity=listed).value),
        "scipy": lambda: float(maximum_flow(matrix, source, target).flow_value),
    }
    return {name: calls[name] for name in calls if not slow or name in ("goffish", "scipy")}


def between_hubs(graph: Graph) -> tuple[Graph, int, int]:
    order = np.argsort(-np.asarray(graph.degree), kind="stable")
    return graph.unweighted(), int(order[0]), int(order[1])


def between_two(graph: Graph) -> tuple[Graph, int, int]:
    ends = np.random.default_rng(3).choice(np.flatnonzero(np.asarray(graph.degree) > 1), 2, replace=False)
    return graph, int(ends[0]), int(ends[1])


def between_many(graph: Graph) -> tuple[Graph, int, int]:
    src, dst, weight, _ = graph.edge_columns()
    n = graph.num_vertices
    many = n // 50
    ends = np.random.default_rng(3).permutation(np.flatnonzero(np.asarray(graph.degree) > 0))[: 2 * many]
    src = np.concatenate([src, np.full(many, n), ends[many:]])
    dst = np.concatenate([dst, ends[:many], np.full(many, n + 1)])
    return from_edges(src, dst, np.concatenate([weight, np.full(2 * many, 1000.0)]), labels=np.arange(n + 2)), n, n + 1


#: Title, ends, and whether igraph takes minutes on small graphs, too.
PARTS: dict[str, tuple[str, Callable[[Graph], tuple[Graph, int, int]], bool]] = {
    "hubs": ("Between hubs, unit capacities", between_hubs, False),
    "two": ("Between two vertices, capacities from 1 to 255", between_two, False),
    "many": ("Between many vertices, capacities from 1 to 255", between_many, True),
}


def report(part: str, quick: bool) -> None:
    title, make, slow = PARTS[part]
    print(f"\n{title}:\n")
    rows, ratios, columns = [], [], ("goffish", "igraph", "scipy")
    names = _graphs.QUICK if quick else (*_graphs.QUICK, "lfr-200k", "rmat-18")
    for name, graph in _graphs.load_available(names, True):
        network, source, target = make(graph)
        calls = calls_for(network, source, target, slow=slow or name not in _graphs.QUICK)
        values: Any = {one: call() for one, call in calls.items()}
        assert len(set(values.values())) == 1, values
        timings = _harness.measure_together(calls, repeats=3)
        ratio, best = _harness.best_peer(timings, ["goffish"], list(calls)[1:])
        ratios.append(ratio)
        size = f"{name} ({network.num_vertices:,} / {network.num_edges:,})"
        times = [_harness.milliseconds(timings[c]) if c in calls else "-" for c in columns]
        rows.append([size, f"{values['goffish']:,.0f}", *times, f"**{ratio:.1f}** ({best})"])
    _harness.print_table(["graph (n / m)", "value", *columns, "best baseline / goffish"], rows)
    print(f"\ngeometric mean of best baseline / goffish: {_harness.geometric_mean(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs only")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} [default: all]")
    given = parser.parse_args()
    print(_harness.machine_line(PEERS))
    print("milliseconds: best wall (median wall; CPU)")
    for part in given.parts or PARTS:
        report(part, given.quick)


if __name__ == "__main__":
    main()

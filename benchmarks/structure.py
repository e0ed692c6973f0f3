"""Structure of graphs against igraph, NetworKit and SciPy: ``python benchmarks/structure.py [--quick]``.

Spanning forests, biconnected components, articulation points, bridges, label propagation, independent sets, matchings
and colorings. Every call of ours includes the table of the result; answers of NetworKit are not converted to Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import _graphs
import _harness
import numpy as np
from _peers import igraph_graph, networkit_graph, scipy_matrix

import goffish as gf
from goffish.algorithms.structure import in_memory as ours
from goffish.graph import Graph, from_edges

PEERS = ("igraph", "networkit", "scipy")
Calls = dict[str, Callable[[], Any]]
#: From an answer to the number that is compared, or shown.
Figures = dict[str, Callable[[Any], float]]


def forest_calls(graph: Graph) -> tuple[Calls, Figures]:
    import networkit as nk
    from scipy.sparse.csgraph import minimum_spanning_tree

    src, dst, weight, _ = graph.edge_columns()
    assert weight is not None
    matrix, ig_graph = scipy_matrix(graph, weighted=True), igraph_graph(graph)
    listed = weight.tolist()
    # NetworKit finds the heaviest forest.
    turned = networkit_graph(from_edges(src, dst, 256.0 - weight, labels=np.arange(graph.num_vertices)), weighted=True)

    def with_networkit() -> Any:
        found = nk.graph.RandomMaximumSpanningForest(turned)
        return found.run()

    def total(answer: Any) -> float:
        tree = answer.getMSF(False)
        return 256.0 * tree.numberOfEdges() - tree.totalEdgeWeight()

    return {
        "goffish": lambda: ours.minimum_spanning_forest(graph),
        "igraph": lambda: ig_graph.spanning_tree(weights=listed, return_tree=False),
        "networkit": with_networkit,
        "scipy": lambda: minimum_spanning_tree(matrix),
    }, {
        "goffish": lambda answer: answer.summary["weight"],
        "igraph": lambda answer: float(weight[answer].sum()),
        "networkit": total,
        "scipy": lambda answer: float(answer.sum()),
    }  # fmt: skip


def block_calls(graph: Graph) -> tuple[Calls, Figures]:
    import networkit as nk

    ig_graph, nk_graph = igraph_graph(graph), networkit_graph(graph)
    return {
        "goffish": lambda: ours.biconnected_components(graph),
        "igraph": ig_graph.biconnected_components,
        "networkit": lambda: nk.components.BiconnectedComponents(nk_graph).run(),
    }, {
        "goffish": lambda answer: answer.summary["blocks"],
        "igraph": len,
        "networkit": lambda answer: answer.numberOfComponents(),
    }  # fmt: skip


def point_calls(graph: Graph) -> tuple[Calls, Figures]:
    ig_graph = igraph_graph(graph)
    return {
        "goffish": lambda: ours.articulation_points(graph),
        "igraph": ig_graph.articulation_points,
    }, {"goffish": len, "igraph": len}  # fmt: skip


def bridge_calls(graph: Graph) -> tuple[Calls, Figures]:
    ig_graph = igraph_graph(graph)
    return {
        "goffish": lambda: ours.bridges(graph),
        "igraph": ig_graph.bridges,
    }, {"goffish": len, "igraph": len}  # fmt: skip


def label_calls(graph: Graph) -> tuple[Calls, Figures]:
    """Without igraph, whose label propagation does not end on the road network within minutes."""
    import networkit as nk

    nk_graph = networkit_graph(graph)

    def parallel() -> Any:
        nk.setNumberOfThreads(2)
        return nk.community.PLP(nk_graph).run()

    def modularity(label: Any) -> float:
        return gf.modularity(graph, np.asarray(label, np.int64))

    return {
        "goffish": lambda: ours.label_propagation(graph),
        "networkit": parallel,
    }, {
        "goffish": lambda answer: modularity(answer.table["community"]),
        "networkit": lambda answer: modularity(answer.getPartition().getVector()),
    }  # fmt: skip


def independent_calls(graph: Graph) -> tuple[Calls, Figures]:
    import networkit as nk

    nk_graph = networkit_graph(graph)
    return {
        "goffish": lambda: ours.maximal_independent_set(graph),
        "networkit": lambda: nk.independentset.Luby().run(nk_graph),
    }, {"goffish": lambda answer: answer.summary["members"], "networkit": sum}  # fmt: skip


def matching_calls(graph: Graph) -> tuple[Calls, Figures]:
    import networkit as nk

    nk_graph = networkit_graph(graph)

    return {
        "goffish": lambda: ours.maximal_matching(graph),
        "networkit": lambda: nk.matching.PathGrowingMatcher(nk_graph).run(),
        "networkit suitor": lambda: nk.matching.SuitorMatcher(nk_graph, False, False).run(),
    }, {
        "goffish": lambda answer: answer.summary["edges"],
        "networkit": lambda answer: answer.getMatching().size(nk_graph),
        "networkit suitor": lambda answer: answer.getMatching().size(nk_graph),
    }  # fmt: skip


def coloring_calls(graph: Graph) -> tuple[Calls, Figures]:
    ig_graph = igraph_graph(graph)
    return {
        "goffish": lambda: ours.greedy_coloring(graph),
        "goffish smallest-last": lambda: ours.greedy_coloring(graph, "smallest-last"),
        "igraph": ig_graph.vertex_coloring_greedy,
    }, {
        "goffish": lambda answer: answer.summary["colors"],
        "goffish smallest-last": lambda answer: answer.summary["colors"],
        "igraph": lambda answer: max(answer) + 1,
    }  # fmt: skip


#: Title, calls, whether edges have weights, and whether all answers have the same figure.
PARTS: dict[str, tuple[str, Callable[[Graph], tuple[Calls, Figures]], bool, bool]] = {
    "forests": ("Minimum spanning forests; weight", forest_calls, True, True),
    "blocks": ("Biconnected components; number", block_calls, False, True),
    "points": ("Articulation points; number", point_calls, False, True),
    "bridges": ("Bridges; number", bridge_calls, False, True),
    "labels": ("Label propagation; modularity", label_calls, False, False),
    "independent": ("Maximal independent sets; members", independent_calls, False, False),
    "matchings": ("Maximal matchings; edges", matching_calls, False, False),
    "colorings": ("Greedy colorings; colors", coloring_calls, False, False),
}


def report(part: str, quick: bool) -> None:
    title, make, weighted, equal = PARTS[part]
    print(f"\n{title}:\n")
    rows, ratios, columns = [], [], list[str]()
    names = _graphs.QUICK if quick else (*_graphs.QUICK, "lfr-200k", "rmat-18")
    for name, graph in _graphs.load_available(names, weighted):
        calls, figures = make(graph)
        columns = list(calls)
        shown = {one: figures[one](call()) for one, call in calls.items()}
        assert not equal or len(set(shown.values())) == 1, shown
        timings = _harness.measure_together(calls, repeats=3 if quick else 7)
        ratio, best = _harness.best_peer(timings, ["goffish"], [c for c in calls if not c.startswith("goffish")])
        ratios.append(ratio)
        cells = [f"{_harness.milliseconds(timings[c])}; {shown[c]:.6g}" for c in columns]
        size = f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})"
        rows.append([size, *cells, f"**{ratio:.1f}** ({best})"])
    _harness.print_table(["graph (n / m)", *columns, "best peer / goffish"], rows)
    print(f"\ngeometric mean of best peer / goffish: {_harness.geometric_mean(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs only, fewer repeats")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} [default: all]")
    given = parser.parse_args()
    print(_harness.machine_line(PEERS))
    print("milliseconds: best wall (median wall; CPU); figure of the answer")
    for part in given.parts or PARTS:
        report(part, given.quick)


if __name__ == "__main__":
    main()

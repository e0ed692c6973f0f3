"""Clustering, trusses, spectral centralities, similarity, walks and embeddings: ``python benchmarks/centrality.py``.

Against igraph, NetworKit, SciPy and, where none of them has it, networkx. Before anything is timed, answers are
compared. ``--quick``: small graphs only.
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
from goffish.graph import Graph

PEERS = ("igraph", "networkit", "scipy", "networkx")
TOLERANCE = 1e-6
Calls = dict[str, Callable[[], Any]]


def clustering(graph: Graph) -> Calls:
    import networkit as nk

    ig, other = igraph_graph(graph), networkit_graph(graph)

    def turbo() -> Any:
        return nk.centrality.LocalClusteringCoefficient(other, True).run().scores()

    return {
        "goffish": lambda: np.asarray(gf.clustering(graph)),
        "igraph": lambda: ig.transitivity_local_undirected(mode="zero"),
        "networkit": turbo,
    }


def trusses(graph: Graph) -> Calls:
    import networkx as nx

    plain = gf.to_networkx(graph)

    def levels() -> Any:
        """Truss numbers by networkx, which has the truss for one k only."""
        found, k, left = {}, 2, plain
        while left.number_of_edges():
            found |= dict.fromkeys(map(tuple, map(sorted, left.edges)), k)
            k += 1
            left = nx.k_truss(left, k)
        return [found[edge] for edge in sorted(found)]

    return {"goffish": lambda: np.asarray(gf.truss_numbers(graph)), "networkx": levels}


def small_subgraphs(graph: Graph) -> Calls:
    """Motifs of four vertices: claw, path, paw, cycle, diamond and clique."""
    ig = igraph_graph(graph)
    return {
        "goffish": lambda: np.asarray(gf.motif_counts(graph))[2:].astype(float),
        "igraph": lambda: np.array(ig.motifs_randesu(size=4))[[4, 6, 7, 8, 9, 10]],
    }


def orbits(graph: Graph) -> Calls:
    """Graphlet degrees of each vertex; igraph counts the same motifs of four vertices for the whole graph only."""
    ig = igraph_graph(graph)
    orbit, each = np.array([[7, 1], [4, 2], [9, 1], [8, 4], [12, 2], [14, 4]]).T

    def summed() -> Any:
        table = gf.graphlet_degrees(graph).table
        return np.array([table[f"orbit_{at}"].to_numpy().sum() for at in orbit]) / each

    return {"goffish": summed, "igraph": lambda: np.array(ig.motifs_randesu(size=4))[[4, 6, 7, 8, 9, 10]]}


def eigenvector(graph: Graph) -> Calls:
    import networkit as nk
    from scipy.sparse.linalg import eigsh

    ig, other, matrix = igraph_graph(graph), networkit_graph(graph), scipy_matrix(graph)
    start = np.full(graph.num_vertices, 1.0)

    def unit(values: Any) -> Any:
        values = np.abs(np.asarray(values))
        return values / np.linalg.norm(values)

    return {
        "goffish": lambda: unit(gf.eigenvector(graph, tolerance=TOLERANCE, max_iterations=100_000)),
        "igraph": lambda: unit(ig.eigenvector_centrality()),
        "networkit": lambda: unit(nk.centrality.EigenvectorCentrality(other, TOLERANCE * 1e-2).run().scores()),
        "scipy": lambda: unit(eigsh(matrix, 1, which="LA", v0=start, tol=TOLERANCE)[1][:, 0]),
    }


def katz(graph: Graph) -> Calls:
    """NetworKit's Katz centrality solves another equation, igraph has none."""
    import scipy.sparse
    from scipy.sparse.linalg import cg

    alpha = 1.0 / (1.0 + int(graph.out_degrees.max(initial=0)))
    system = scipy.sparse.identity(graph.num_vertices, format="csr") - alpha * scipy_matrix(graph)
    ones = np.ones(graph.num_vertices)
    return {
        "goffish": lambda: np.asarray(gf.katz(graph, alpha=alpha, tolerance=TOLERANCE)),
        "scipy": lambda: cg(system, ones, rtol=TOLERANCE)[0],
    }


def hits(graph: Graph) -> Calls:
    from scipy.sparse.linalg import svds

    ig, matrix = igraph_graph(graph), scipy_matrix(graph)
    start = np.full(graph.num_vertices, 1.0)

    def shares(values: Any) -> Any:
        values = np.abs(np.asarray(values))
        return values / values.sum()

    return {
        "goffish": lambda: shares(gf.hits(graph, tolerance=TOLERANCE, max_iterations=100_000)),
        "igraph": lambda: shares(ig.hub_score()),
        "scipy": lambda: shares(svds(matrix, 1, v0=start, tol=TOLERANCE)[0][:, 0]),
    }


def pairs(graph: Graph) -> Calls:
    import networkit as nk

    ig, other = igraph_graph(graph), networkit_graph(graph)
    first, second = np.random.default_rng(1).integers(0, graph.num_vertices, (2, 100_000))
    first, second = first[first != second], second[first != second]
    listed = list(zip(first.tolist(), second.tolist(), strict=True))
    labels = graph.labels_of(first), graph.labels_of(second)

    def run_on() -> Any:
        found = {(u, v): value for (u, v), value in nk.linkprediction.JaccardIndex(other).runOn(listed)}
        return [found[pair] for pair in listed]

    return {
        "goffish": lambda: np.asarray(gf.similarity(graph, labels)),
        "igraph": lambda: ig.similarity_jaccard(pairs=listed, loops=False),
        "networkit": run_on,
    }


def best(graph: Graph) -> Calls:
    """The hundred pairs at distance two with the most common neighbors; only their values are unique."""
    matrix = scipy_matrix(graph)

    def squared() -> Any:
        square = (matrix @ matrix).tocoo()
        kept = square.row < square.col
        row, col, value = square.row[kept], square.col[kept], square.data[kept]
        free = np.asarray(matrix[row, col]).ravel() == 0
        return -np.sort(-value[free])[:100]

    return {
        "goffish": lambda: np.asarray(gf.similarity(graph, metric="common_neighbors", top=100, each=False)),
        "scipy": squared,
    }


def walks(graph: Graph) -> Calls:
    """Walks of 40 steps from 1,000 vertices with neighbors; only their lengths can be compared."""
    ig = igraph_graph(graph)
    starts = np.random.default_rng(1).choice(np.flatnonzero(graph.out_degrees), 1_000).tolist()
    options = {"length": 40, "walks": 1, "sources": graph.labels_of(np.array(starts)).to_pylist()}

    def one_by_one() -> Any:
        return [len(ig.random_walk(start, 40)) for start in starts]

    return {
        "goffish": lambda: (gf.random_walks(graph, **options) >= 0).sum(axis=1),
        "goffish p=0.5 q=2": lambda: (gf.random_walks(graph, p=0.5, q=2.0, **options) >= 0).sum(axis=1),
        "igraph": one_by_one,
    }


def embeddings(graph: Graph) -> Calls:
    import scipy.sparse

    matrix = scipy_matrix(graph).astype(np.float32)
    shares = scipy.sparse.diags((1.0 / np.maximum(graph.out_degrees, 1)).astype(np.float32)) @ matrix
    rows = gf.fastrp(graph, iteration_weights=(1.0,))
    projection = np.sign(rows)

    def products() -> Any:
        found, at = np.zeros_like(projection), projection
        for _ in range(2):
            at = shares @ at
            found += at / np.maximum(np.linalg.norm(at, axis=1), 1e-30)[:, None]
        return found

    return {"goffish": lambda: gf.fastrp(graph), "scipy": products}


#: Meshes, whose largest eigenvalues are so close that peers stop at other vectors, or not for hours.
MESHES = {"grid-1000x900", "perforated-700x700", "road-usroads"}
#: What is timed: title, calls, largest difference of two answers, graphs that are left out because a peer takes hours.
PARTS: list[tuple[str, Callable[[Graph], Calls], float, set[str]]] = [
    ("Local clustering coefficients", clustering, 1e-9, set()),
    ("Truss numbers", trusses, 0.0, {"rmat-18", "lfr-200k", "grid-1000x900", "perforated-700x700"}),
    (
        "Motifs of four vertices",
        small_subgraphs,
        0.0,
        {"rmat-18", "rmat-20", "lfr-200k", "email-Enron", "soc-Epinions1", "as-Caida"},
    ),
    ("Graphlet degrees", orbits, 0.0, {"rmat-18", "rmat-20", "lfr-200k", "email-Enron", "soc-Epinions1", "as-Caida"}),
    (
        "Eigenvector centrality, tolerance 1e-6",
        eigenvector,
        1e-3,
        {"grid-1000x900", "perforated-700x700", "road-usroads"},
    ),
    ("Katz centrality, relative error 1e-6", katz, 1e-3, set()),
    ("Hubs and authorities, tolerance 1e-6", hits, 1e-3, MESHES),
    ("Jaccard coefficients of 100,000 pairs", pairs, 1e-12, set()),
    ("The hundred pairs with the most common neighbors", best, 0.0, {"rmat-18"}),
    ("Walks of 40 steps", walks, 0.0, set()),
    ("FastRP, 128 dimensions, two passes", embeddings, 1e-3, {"grid-1000x900"}),
]


def check(answers: Calls, largest: float) -> None:
    """All answers are ours, up to a difference."""
    ours = np.asarray(answers["goffish"]())
    for name, call in answers.items():
        difference = np.abs(np.asarray(call()) - ours).max(initial=0.0)
        assert difference <= largest, f"{name}: {difference}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs only, fewer repeats")
    parser.add_argument("--only", default="", help="title of a part, or its beginning")
    given = parser.parse_args()
    print(_harness.machine_line(PEERS))
    print("milliseconds: best wall (median wall; CPU)")
    names = _graphs.QUICK if given.quick else _graphs.UNDIRECTED
    for title, make, largest, left_out in PARTS:
        if not title.startswith(given.only):
            continue
        print(f"\n## {title}\n")
        ratios, rows, columns = [], [], []
        for name, graph in _graphs.load_available([one for one in names if one not in left_out]):
            calls = make(graph)
            check(calls, largest)
            timings = _harness.measure_together(calls, repeats=3 if given.quick else 7, warmup=0)
            columns = list(calls)
            ratio, peer = _harness.best_peer(timings, ["goffish"], [c for c in calls if not c.startswith("goffish")])
            ratios.append(ratio)
            cells = [_harness.milliseconds(timings[column]) for column in columns]
            rows.append([f"{name} ({graph.num_vertices:,} / {graph.num_edges:,})", *cells, f"**{ratio:.1f}** ({peer})"])
        _harness.print_table(["graph (n / m)", *columns, "best baseline / goffish"], rows)
        print(f"\ngeometric mean of best baseline / goffish: {_harness.geometric_mean(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()

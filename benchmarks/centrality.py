"""Clustering, trusses, small subgraphs and spectral centralities: ``python benchmarks/centrality.py``.

Against igraph, NetworKit, rustworkx, SciPy and, where none of them has it, networkx. Before anything is timed, answers
are compared. ``--quick``: small graphs only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _parts import Calls, Part, compare
from _peers import igraph_graph, networkit_graph, rustworkx_graph, scipy_matrix

import goffish as gf
from goffish.graph import Graph

PEERS = ("igraph", "networkit", "rustworkx", "scipy", "networkx")
TOLERANCE = 1e-6


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
    import rustworkx
    from scipy.sparse.linalg import eigsh

    ig, other, matrix = igraph_graph(graph), networkit_graph(graph), scipy_matrix(graph)
    rusty = rustworkx_graph(graph)
    start = np.full(graph.num_vertices, 1.0)

    def unit(values: Any) -> Any:
        values = np.abs(np.asarray(values))
        return values / np.linalg.norm(values)

    return {
        "goffish": lambda: unit(gf.eigenvector(graph, tolerance=TOLERANCE, max_iterations=100_000)),
        "igraph": lambda: unit(ig.eigenvector_centrality()),
        "networkit": lambda: unit(nk.centrality.EigenvectorCentrality(other, TOLERANCE * 1e-2).run().scores()),
        "rustworkx": lambda: unit(
            list(rustworkx.eigenvector_centrality(rusty, max_iter=100_000, tol=TOLERANCE * 1e-2).values())
        ),
        "scipy": lambda: unit(eigsh(matrix, 1, which="LA", v0=start, tol=TOLERANCE)[1][:, 0]),
    }


def katz(graph: Graph) -> Calls:
    """NetworKit's Katz centrality solves another equation, igraph has none."""
    import rustworkx
    import scipy.sparse
    from scipy.sparse.linalg import cg

    rusty = rustworkx_graph(graph)
    alpha = 1.0 / (1.0 + int(graph.out_degrees.max(initial=0)))
    system = scipy.sparse.identity(graph.num_vertices, format="csr") - alpha * scipy_matrix(graph)
    ones = np.ones(graph.num_vertices)

    def unit(values: Any) -> Any:
        values = np.asarray(values)
        return values / np.linalg.norm(values)

    return {
        "goffish": lambda: unit(gf.katz(graph, alpha=alpha, tolerance=TOLERANCE)),
        "rustworkx": lambda: unit(
            list(rustworkx.katz_centrality(rusty, alpha=alpha, max_iter=1000, tol=TOLERANCE * 1e-2).values())
        ),
        "scipy": lambda: unit(cg(system, ones, rtol=TOLERANCE)[0]),
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


#: Meshes, whose largest eigenvalues are so close that peers stop at other vectors, or not for hours.
MESHES = frozenset({"grid-1000x900", "perforated-700x700", "road-usroads"})
#: Graphs with hubs, in which igraph enumerates billions of subgraphs.
HUBS = frozenset({"rmat-18", "rmat-20", "lfr-200k", "email-Enron", "soc-Epinions1", "as-Caida"})
#: Graphs for which networkx takes hours.
LARGE = frozenset({"rmat-18", "rmat-20", "lfr-200k", "grid-1000x900", "perforated-700x700"})
PARTS = [
    Part("Local clustering coefficients", clustering, 1e-9),
    Part("Truss numbers", trusses, left_out=LARGE),
    Part("Motifs of four vertices", small_subgraphs, left_out=HUBS),
    Part("Graphlet degrees", orbits, left_out=HUBS),
    Part("Eigenvector centrality, tolerance 1e-6", eigenvector, 1e-3, MESHES),
    Part("Katz centrality, relative error 1e-6", katz, 1e-3),
    Part("Hubs and authorities, tolerance 1e-6", hits, 1e-3, MESHES),
]

if __name__ == "__main__":
    compare(PARTS, PEERS, __doc__)

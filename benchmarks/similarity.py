"""Similarity and embeddings against igraph, NetworKit, SciPy and NumPy: ``python benchmarks/similarity.py [--quick]``.

Before anything is timed, answers are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _parts import Calls, Part, compare
from _peers import igraph_graph, networkit_graph, scipy_matrix

import goffish as gf
from goffish.graph import Graph

PEERS = ("igraph", "networkit", "scipy")
#: Which hash function of features, as in HashGNN: of a vertex's own, for its neighbors, and of those that these chose.
OWN, NEAR, AMONG = range(3)


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


def mixed(values: Any) -> Any:
    """Numbers of splitmix64, uint64."""
    values = np.asarray(values, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def hashes(step: int, draw: int, which: int, features: Any) -> Any:
    """Hashes of features with the seed 0."""
    return mixed(mixed(mixed(mixed([0]) ^ np.uint64(step)) ^ np.uint64(3 * draw + which)) ^ features.astype(np.uint64))


def hashing(graph: Graph) -> Calls:
    """HashGNN with its defaults; no library has it, NumPy takes the least ranks of rows of features."""
    width, density, initial, n = 128, 32, 4, graph.num_vertices
    starts, linked = graph.offsets[:-1], graph.out_degrees > 0
    every = np.arange(width)
    draws = np.arange(initial)

    def least(rank: Any, listed: Any) -> Any:
        """Ranks of the features of smallest rank of each vertex; `width` is none."""
        return np.append(rank, width)[listed].min(axis=1)

    def with_numpy() -> Any:
        keys = hashes(0, 0, OWN, np.arange(n))
        lists = (mixed(keys[:, None] ^ draws.astype(np.uint64)) % np.uint64(width)).astype(np.int64)
        for step in (1, 2):
            drawn = np.empty((n, density), np.int64)
            for draw in range(density):
                own, near, among = (hashes(step, draw, which, every) for which in (OWN, NEAR, AMONG))
                order = [np.append(np.argsort(hashed), width) for hashed in (own, near, among)]
                rank = [np.argsort(one[:-1]) for one in order]
                mine = order[0][least(rank[0], lists)]
                offered = np.append(rank[2], width)[order[1][least(rank[1], lists)]]
                arrived = np.full(n, width)
                arrived[linked] = np.minimum.reduceat(offered[graph.targets], starts[linked])
                theirs = order[2][arrived]
                shifted = [np.append(hashed >> np.uint64(11), 0) for hashed in (own, among)]
                closer = (theirs < width) & ((mine == width) | (shifted[1][theirs] < shifted[0][mine]))
                drawn[:, draw] = np.where(closer, theirs, mine)
            lists = drawn
        found = np.zeros((n, width + 1), np.uint8)
        found[np.arange(n)[:, None], lists] = 1
        return found[:, :-1].astype(np.int8)

    return {"goffish": lambda: gf.hashgnn(graph).astype(np.int8), "numpy": with_numpy}


PARTS = [
    Part("Jaccard coefficients of 100,000 pairs", pairs, 1e-12),
    Part("The hundred pairs with the most common neighbors", best, left_out=frozenset({"rmat-18", "rmat-20"})),
    Part("FastRP, 128 dimensions, two passes", embeddings, 1e-3, frozenset({"grid-1000x900"})),
    Part("HashGNN, 128 features, 32 draws, two passes", hashing),
]

if __name__ == "__main__":
    compare(PARTS, PEERS, __doc__)

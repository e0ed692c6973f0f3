"""Random walks against igraph, and on partitions: ``python benchmarks/walks.py [--quick]``.

Walks of 40 steps from vertices with neighbors. Partitions are compared with memory, with the same walks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _parts import Calls, Part, compare
from _peers import igraph_graph

import goffish as gf
from goffish.graph import Graph

PEERS = ("igraph",)
PARTITIONS = 4


def walks_from(graph: Graph, size: int) -> tuple[list[int], dict[str, Any]]:
    """Vertices where walks begin, and the options."""
    starts = np.random.default_rng(1).choice(np.flatnonzero(graph.out_degrees), size)
    return starts.tolist(), {"length": 40, "walks": 1, "sources": graph.labels_of(starts).to_pylist()}


def in_memory(graph: Graph) -> Calls:
    """Only lengths of walks can be compared."""
    ig = igraph_graph(graph)
    starts, options = walks_from(graph, 1_000)

    def one_by_one() -> Any:
        return [len(ig.random_walk(start, 40)) for start in starts]

    return {
        "goffish": lambda: (gf.random_walks(graph, **options) >= 0).sum(axis=1),
        "goffish p=0.5 q=2": lambda: (gf.random_walks(graph, p=0.5, q=2.0, **options) >= 0).sum(axis=1),
        "igraph": one_by_one,
    }


def on_partitions(graph: Graph, p: float = 1.0, q: float = 1.0) -> Calls:
    """The table of 20,000 walks; of 4 partitions by METIS on threads."""
    _, options = walks_from(graph, 20_000)
    options |= {"p": p, "q": q}
    cut = gf.partition(graph, parts=PARTITIONS)

    def table(of: Any) -> Any:
        return gf.run("walks", of, **options).table["vertex"].to_numpy()

    return {"goffish": lambda: table(cut), "memory": lambda: table(graph)}


PARTS = [
    Part("1,000 walks in memory", in_memory),
    Part("20,000 walks on 4 partitions", on_partitions),
    Part("20,000 walks on 4 partitions, p = 0.5, q = 2", lambda graph: on_partitions(graph, 0.5, 2.0)),
    Part("20,000 walks on 4 partitions, p = 4, q = 0.25", lambda graph: on_partitions(graph, 4.0, 0.25)),
]

if __name__ == "__main__":
    compare(PARTS, PEERS, __doc__)

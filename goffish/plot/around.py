"""A part of a graph that is small enough for a picture."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import InputError
from goffish.graph import Graph, from_edges
from goffish.graph.guards import expect, whole_number


def around(graph: Graph, vertex: int | str, hops: int = 1) -> Graph:
    """The vertices within some hops of one, whatever the direction of the edges, and the edges between them.

    Parameters
    ----------
    graph : Graph
    vertex : label
    hops : int

    Returns
    -------
    Graph
        Without weights and attributes; vertices in the order of `graph`.

    Raises
    ------
    InputError
        The vertex is not in the graph.
    """
    expect(graph, Graph, "graph", "give a goffish Graph (a partitioned one's to_graph())")
    labels = graph.label_column()
    try:
        start = pc.index(labels, pa.scalar(vertex).cast(labels.type)).as_py()
    except (pa.ArrowException, TypeError):
        start = -1
    if start < 0:
        raise InputError(f"unknown vertex {vertex!r}: the graph has none of this name")
    src, dst, _, _ = graph.edge_columns()
    inside = np.zeros(graph.num_vertices, np.bool_)
    inside[start] = True
    for _ in range(min(whole_number(hops, "hops"), graph.num_vertices)):
        forward, backward = dst[inside[src]], src[inside[dst]]
        before = int(inside.sum())
        inside[forward] = inside[backward] = True
        if int(inside.sum()) == before:
            break
    kept = inside[src] & inside[dst]
    number = np.cumsum(inside) - 1
    return from_edges(
        number[src[kept]], number[dst[kept]], directed=graph.directed, labels=labels.filter(pa.array(inside)),
        self_loops="keep", parallel="keep",
    )  # fmt: skip

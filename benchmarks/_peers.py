"""The peers' graph objects, built from a `Graph` outside every timed region."""

from __future__ import annotations

from typing import Any

import numpy as np

from goffish.graph import Graph


def networkit_graph(graph: Graph, weighted: bool = False) -> Any:
    import networkit as nk

    src, dst, weight, _ = graph.edge_columns()
    ends = (src.astype(np.uint64), dst.astype(np.uint64))
    data: Any = (weight, ends) if weighted else ends
    return nk.GraphFromCoo(data, n=graph.num_vertices, weighted=weighted, directed=graph.directed)


def igraph_graph(graph: Graph) -> Any:
    import igraph

    src, dst, _, _ = graph.edge_columns()
    return igraph.Graph(n=graph.num_vertices, edges=np.stack([src, dst], axis=1), directed=graph.directed)


def rustworkx_graph(graph: Graph) -> Any:
    """With the weights of the edges, or 1, as their values."""
    import rustworkx

    src, dst, weight, _ = graph.edge_columns()
    values = [1.0] * src.size if weight is None else weight.tolist()
    made = rustworkx.PyDiGraph() if graph.directed else rustworkx.PyGraph()
    made.add_nodes_from(range(graph.num_vertices))
    made.add_edges_from(list(zip(src.tolist(), dst.tolist(), values, strict=True)))
    return made


def scipy_matrix(graph: Graph, weighted: bool = False) -> Any:
    """Rows as in the graph; SciPy's routines want 32-bit subscripts and copy anything else."""
    import scipy.sparse

    data = graph.weights if weighted and graph.weights is not None else np.ones(graph.num_arcs)
    shape = (graph.num_vertices, graph.num_vertices)
    return scipy.sparse.csr_matrix((data, graph.targets.astype(np.int32), graph.offsets.astype(np.int32)), shape=shape)

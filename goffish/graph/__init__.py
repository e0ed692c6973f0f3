"""Graphs as arrays: the columnar `Graph`, its constructors, readers and writers."""

from goffish.graph.algebra import contract, difference, intersection, join_edges, join_vertices, relabel, sample, union
from goffish.graph.assembly import Parallel, SelfLoops
from goffish.graph.graph import Graph, from_edges
from goffish.graph.io import read, write
from goffish.graph.libraries import from_igraph, from_networkx, from_scipy, to_igraph, to_networkx, to_scipy
from goffish.graph.tables import (
    from_arrow,
    from_pandas,
    from_polars,
    to_arrow,
    to_pandas,
    to_polars,
    vertices_to_arrow,
)

__all__ = [
    "Graph",
    "Parallel",
    "SelfLoops",
    "contract",
    "difference",
    "from_arrow",
    "from_edges",
    "from_igraph",
    "from_networkx",
    "from_pandas",
    "from_polars",
    "from_scipy",
    "intersection",
    "join_edges",
    "join_vertices",
    "read",
    "relabel",
    "sample",
    "to_arrow",
    "to_igraph",
    "to_networkx",
    "to_pandas",
    "to_polars",
    "to_scipy",
    "union",
    "vertices_to_arrow",
    "write",
]

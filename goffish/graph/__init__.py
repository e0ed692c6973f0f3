"""Graphs as arrays: the columnar `Graph`, its constructors, readers and writers."""

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
    "from_arrow",
    "from_edges",
    "from_igraph",
    "from_networkx",
    "from_pandas",
    "from_polars",
    "from_scipy",
    "read",
    "to_arrow",
    "to_igraph",
    "to_networkx",
    "to_pandas",
    "to_polars",
    "to_scipy",
    "vertices_to_arrow",
    "write",
]

"""Graphs as arrays: the columnar `Graph`, its constructors, readers and writers."""

from goffish.graph.graph import Graph, Parallel, SelfLoops, from_edges

__all__ = ["Graph", "Parallel", "SelfLoops", "from_edges"]

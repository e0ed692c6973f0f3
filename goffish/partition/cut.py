"""From a graph to a partitioned graph: assignment, optional splitting, layout."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from goffish.gofs import PartitionedGraph, build_layout
from goffish.graph import Graph
from goffish.graph.parallel import thread_count
from goffish.partition.assignment import assign, check_parts
from goffish.partition.split import split_cells


def partition_graph(
    graph: Graph,
    parts: int,
    method: str = "metis",
    *,
    units: Literal["components", "single", "vertex"] = "components",
    split: int | None = None,
    threads: int | None = None,
    **options: Any,
) -> PartitionedGraph:
    """Partition a graph and renumber it so that every partition and sub-graph owns one range of vertices.

    Parameters
    ----------
    graph : Graph
    parts : int
        Number of partitions; more than there are vertices leaves some empty.
    method : {"metis", "hash", "range", "ldg", "fennel", "predefined"}
    units : {"components", "single", "vertex"}
        Unit of computation in a partition: its connected sub-graphs, the whole partition, or every vertex.
    split : int, optional
        Cut sub-graphs of more vertices than this further.
    threads : int, optional
        For building the layout; default: all processors.
    **options
        Of the method, see `goffish.partition.OPTIONS`.

    Returns
    -------
    PartitionedGraph
        In memory; `PartitionedGraph.save` makes it a store.
    """
    owner = assign(graph, parts, method, **options)
    cells = None if split is None else split_cells(graph, owner, split)
    sources = np.repeat(owner, np.diff(graph.offsets))
    cut = int(np.count_nonzero(sources != owner[graph.targets]))
    plain = {name: v for name, v in options.items() if isinstance(v, str | int | float | bool)}
    partitioner = {
        "method": method,
        "options": plain,
        "edge_cut": cut if graph.directed else cut // 2,
        "edge_cut_share": cut / graph.num_arcs if graph.num_arcs else 0.0,
    }
    if split is not None:
        partitioner["split"] = split
    return build_layout(
        graph, owner, check_parts(parts), finder=units, cells=cells, partitioner=partitioner,
        threads=thread_count(threads),
    )  # fmt: skip

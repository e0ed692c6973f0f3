"""From a graph to a partitioned graph: assignment, optional splitting, layout."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.graph import Graph
from goffish.graph.guards import GRAPH_ADVICE, expect, whole_number
from goffish.graph.parallel import thread_count
from goffish.partition.assignment import assign, check_parts
from goffish.partition.split import split_cells

#: Every partition costs memory and a file, also an empty one: so many are allowed, or one per vertex.
MOST_PARTS = 2**16
_UNITS = ("components", "single", "vertex")


def partition_graph(
    graph: Graph | PartitionedGraph,
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
    graph : Graph or PartitionedGraph
        One that is partitioned already is cut anew.
    parts : int
        Number of partitions; more than there are vertices leaves some empty. At most 2^16, or one per vertex.
    method : {"metis", "hash", "range", "ldg", "fennel", "predefined"}
    units : {"components", "single", "vertex"}
        Unit of computation in a partition: its connected sub-graphs, the whole partition, or every vertex.
    split : int, optional
        Cut sub-graphs of more vertices than this further (with ``units="components"`` only).
    threads : int, optional
        For building the layout; default: all processors.
    **options
        Of the method, see `goffish.partition.OPTIONS`.

    Returns
    -------
    PartitionedGraph
        In memory; `PartitionedGraph.save` makes it a store.

    Raises
    ------
    InputError
        No graph, an unknown method or option, `parts` or `split` out of range.
    """
    expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    if units not in _UNITS:
        raise InputError(f"units={units!r}: choose one of {', '.join(_UNITS)}")
    if split is not None:
        split = whole_number(split, "split")
        if units != "components":
            raise InputError(f"split={split}: cuts connected sub-graphs, so it does not go with units={units!r}")
    threads = thread_count(threads)
    if isinstance(graph, PartitionedGraph):
        graph = graph.to_graph()
    parts, most = check_parts(parts), max(graph.num_vertices, MOST_PARTS)
    if parts > most:
        raise InputError(f"parts={parts}: at most {most:,} partitions for a graph of {graph.num_vertices:,} vertices")
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
        graph, owner, parts, finder=units, cells=cells, partitioner=partitioner,
        threads=threads,
    )  # fmt: skip

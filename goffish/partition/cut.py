"""From a graph to a partitioned graph: assignment, optional splitting, layout."""

from __future__ import annotations

from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, build_layout
from goffish.graph import Graph, from_edges
from goffish.graph.guards import GRAPH_ADVICE, expect, whole_number
from goffish.graph.parallel import thread_count
from goffish.kernels.subgraphs import local_components
from goffish.partition.assignment import assign, check_parts
from goffish.partition.metis import metis
from goffish.partition.options import MetisOptions


def split_cells(graph: Graph, owner: NDArray[np.int32], largest: int, *, seed: int = 0) -> NDArray[np.int32]:
    """Cut every subgraph of more than `largest` vertices by METIS into virtual partitions.

    Parameters
    ----------
    graph : Graph
    owner : int32, shape (n,)
    largest : int
        Most vertices of a subgraph, and 3 % more: METIS's imbalance.
    seed : int
        Of METIS.

    Returns
    -------
    int32, shape (n,)
        Cell of each vertex: a subgraph lies in one partition and one cell (`build_layout`, ``cells``). Zero where
        nothing is split.

    Notes
    -----
    All large subgraphs are handed to METIS as one graph whose components they are: a part of it may consist of pieces
    of several, which are subgraphs of their own all the same. What METIS leaves too large is cut again, into more
    parts every time, at the worst into single vertices.

    See docs/specs/engine.md, section 5.9: evens out the supersteps of a few huge subgraphs; changes the quotient graph
    and with it superstep counts.
    """
    bound = largest + largest * 3 // 100
    cells = np.zeros(graph.num_vertices, np.int32)
    sources = graph.arc_sources()
    for attempt in count():
        cell = owner * np.int64(int(cells.max(initial=0)) + 1) + cells
        unit, units = local_components(graph.offsets, graph.targets, cell, symmetric=not graph.directed)
        sizes = np.bincount(unit, minlength=units)
        large = sizes > (bound if attempt else largest)
        if not large.any():
            break
        members = np.flatnonzero(large[unit])
        pieces = int((-(-sizes[large] // largest)).sum()) << max(0, attempt - 1)
        piece = _induced(graph, sources, unit, members)
        cells[members] = int(cells.max()) + 1 + metis(piece, pieces, MetisOptions(seed=seed))
    return cells


def _induced(
    graph: Graph, sources: NDArray[np.integer[Any]], unit: NDArray[np.integer[Any]], members: NDArray[np.int64]
) -> Graph:
    """The graph of some subgraphs, without the edges between them."""
    local = np.full(graph.num_vertices, -1, np.int64)
    local[members] = np.arange(members.size)
    inside = (unit[sources] == unit[graph.targets]) & (local[sources] >= 0)
    return from_edges(local[sources[inside]], local[graph.targets[inside]], labels=np.arange(members.size))


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
    """Partition a graph and renumber it so that every partition and subgraph owns one range of vertices.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        One that is partitioned already is cut anew.
    parts : int
        Number of partitions; more than there are vertices leaves some empty. At most 2^16, or one per vertex.
    method : {"metis", "hash", "range", "ldg", "fennel", "predefined"}
    units : {"components", "single", "vertex"}
        Unit of computation in a partition: its connected subgraphs, the whole partition, or every vertex.
    split : int, optional
        Cut subgraphs of more vertices than this further (with ``units="components"`` only).
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
            raise InputError(f"split={split}: cuts connected subgraphs, so it does not go with units={units!r}")
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

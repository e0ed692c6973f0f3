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
    """Partition a graph, so that each partition and each subgraph owns one range of vertex numbers.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        Graph to partition; a partitioned graph is partitioned again.
    parts : int
        Number of partitions, 1 to max(65,536, number of vertices). With more partitions than vertices some are empty.
    method : {"metis", "hash", "range", "ldg", "fennel", "predefined"}
        Partitioning method [default: "metis"].
    units : {"components", "single", "vertex"}
        Unit of computation: connected subgraphs, whole partitions, or single vertices [default: "components"].
    split : int, optional
        Split subgraphs of more than this number of vertices with METIS; only with ``units="components"`` [default: no
        splitting].
    threads : int, optional
        Number of threads that build the layout [default: all processors].
    **options
        Options of the method, listed under Other Parameters.

    Returns
    -------
    PartitionedGraph
        In memory; `PartitionedGraph.save` writes it as a store.

    Other Parameters
    ----------------
    recursive : bool
        "metis": recursive bisection instead of direct k-way partitioning [default: False].
    vertex_weights : {"one", "degree"} or array-like
        "metis": what to balance: vertices, 1 + degree, or one number per vertex [default: "one"].
    edge_weights : {"none", "weight"} or array-like
        "metis": cost of a cut edge: 1, its weight, or one number per arc [default: "none"].
    imbalance : float
        "metis", "ldg", "fennel": maximum size of a part, as a multiple of the mean [default: 1.03, 1.0, 1.1].
    objective : {"cut", "volume"}
        "metis": minimize cut edges or the communication volume [default: "cut"].
    contiguous : bool
        "metis": make every part connected; requires a connected graph [default: False].
    min_connectivity : bool
        "metis": also minimize the number of neighbors of each part [default: False].
    part_shares : array-like
        "metis": target share of each part, one positive number per part [default: equal parts].
    iterations : int
        "metis": refinement passes on each level [default: 10].
    cuts : int
        "metis": number of partitionings to compute; the best is kept [default: 1].
    balance : {"vertices", "edges"}
        "range": whether ranges have equal numbers of vertices or of arcs [default: "vertices"].
    order : {"natural", "random", "bfs", "degree"}
        "ldg", "fennel": order of arrival [default: "natural"].
    passes : int
        "ldg", "fennel": passes over the vertices [default: 1].
    gamma : float
        "fennel": exponent of the load penalty, 1 < `gamma` <= 10 [default: 1.5].
    assignment : path, array-like or mapping of label to int
        "predefined": part of each vertex; a file has the columns ``label`` and ``part``, or one part number per line.
    seed : int
        "metis", "hash", "ldg", "fennel": random seed, 0 <= `seed` < 2^31 [default: 0].

    Raises
    ------
    InputError
        If `graph` is not a graph, a method or option is unknown, or a value is out of range.

    References
    ----------
    G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM Journal on
    Scientific Computing 20 (1998). I. Stanton, G. Kliot, "Streaming graph partitioning for large distributed graphs",
    KDD 2012. C. Tsourakakis et al., "FENNEL", WSDM 2014.

    Examples
    --------
    >>> import goffish as gf
    >>> graph = gf.from_edges([1, 2, 3, 3, 4, 5, 6], [2, 3, 1, 4, 5, 6, 4])
    >>> gf.partition(graph, parts=2).owner().tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """
    expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    if units not in _UNITS:
        raise InputError(f"units={units!r}: choose one of {', '.join(_UNITS)}")
    if split is not None:
        split = whole_number(split, "split")
        if units != "components":
            raise InputError(f"split={split}: requires units='components', not {units!r}")
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

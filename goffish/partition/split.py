"""Sub-graph splitting: a second cut inside partitions, so that no sub-graph grows beyond a limit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.graph import Graph, from_edges
from goffish.graph._subgraphs import local_components
from goffish.partition.metis import metis
from goffish.partition.options import MetisOptions


def split_cells(graph: Graph, owner: NDArray[np.int32], largest: int, *, seed: int = 0) -> NDArray[np.int32]:
    """Cut every sub-graph of more than `largest` vertices by METIS into virtual partitions.

    Parameters
    ----------
    graph : Graph
    owner : int32, shape (n,)
    largest : int
        Most vertices of a sub-graph (METIS may exceed it by its imbalance of 3 %).

    Returns
    -------
    int32, shape (n,)
        Cell of each vertex: a sub-graph lies in one partition and one cell (`build_layout`, ``cells``). Zero where
        nothing is split.

    Notes
    -----
    Engine specification §8, item 13: evens out the supersteps of a few huge sub-graphs; changes the quotient graph and
    with it superstep counts.
    """
    if largest < 1:
        raise InputError(f"split={largest}: at least 1 vertex")
    cells = np.zeros(graph.num_vertices, np.int32)
    unit, count = local_components(graph.offsets, graph.targets, owner, symmetric=not graph.directed)
    sizes = np.bincount(unit, minlength=count)
    large = np.flatnonzero(sizes > largest)
    if not large.size:
        return cells
    src, dst, _, _ = graph.edge_columns()
    inside = unit[src] == unit[dst]
    src, dst = src[inside], dst[inside]
    for number in large:
        members = np.flatnonzero(unit == number)
        local = np.zeros(graph.num_vertices, np.int64)
        local[members] = np.arange(members.size)
        edges = unit[src] == number
        piece: Any = from_edges(local[src[edges]], local[dst[edges]], labels=np.arange(members.size))
        cells[members] = metis(piece, -(-members.size // largest), MetisOptions(seed=seed))
    return cells

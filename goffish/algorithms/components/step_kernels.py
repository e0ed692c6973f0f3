"""Kernels of strongly connected components inside subgraphs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64


class Search(NamedTuple):
    """What is found about the vertices of a partition.

    Attributes
    ----------
    done : bool
        Whether the component is found.
    group : int64
        Only vertices of the same group can be in the same component.
    color : int64
        Highest rank of a vertex of the group from which the vertex is reached.
    back : bool
        Whether the vertex reaches the one with the rank `color`.
    """

    done: Any
    group: Any
    color: Any
    back: Any


@kernel
def draw_ranks(vertex_ids, rank):
    """Random ranks that differ; no number below 2^61 has the least one."""
    for v in range(rank.size):
        rank[v] = np.int64(splitmix64(np.uint64(vertex_ids[v])))


@kernel
def reach_forward(vertices, colors, groups, units, rows, search, moved):
    """Color what some vertices reach in their subgraphs, in descending order of the colors.

    Parameters
    ----------
    vertices, colors, groups : int64
        Colors that vertices of some groups are given; higher ones stay.
    units : int64, shape (n,)
        Subgraph of each vertex.
    moved : bool, shape (n,)
        Receives whether the color of the vertex has changed.
    """
    stack = np.empty(moved.size, np.int64)
    for at in range(vertices.size):
        v, color = vertices[at], colors[at]
        if search.done[v] or search.group[v] != groups[at] or search.color[v] >= color:
            continue
        search.color[v], moved[v] = color, True
        stack[0], size = v, 1
        while size:
            size -= 1
            v = stack[size]
            low = rows.starts[units[v]]
            for i in range(rows.offsets[v], rows.offsets[v + 1]):
                u = low + rows.targets[i]
                if rows.targets[i] < 0 or search.done[u] or search.group[u] != groups[at] or search.color[u] >= color:
                    continue
                search.color[u], moved[u] = color, True
                stack[size] = u
                size += 1


@kernel
def reach_backward(vertices, colors, units, rows, search, moved):
    """Mark the vertices of the same color from which some vertices are reached in their subgraphs.

    Parameters
    ----------
    rows : SubgraphRows
        Of the arcs that end in the partition.
    moved : bool, shape (n,)
        Receives whether the vertex was marked.
    """
    stack = np.empty(moved.size, np.int64)
    for at in range(vertices.size):
        v, color = vertices[at], colors[at]
        if search.done[v] or search.back[v] or search.color[v] != color:
            continue
        search.back[v], moved[v] = True, True
        stack[0], size = v, 1
        while size:
            size -= 1
            v = stack[size]
            low = rows.starts[units[v]]
            for i in range(rows.offsets[v], rows.offsets[v + 1]):
                u = low + rows.targets[i]
                if rows.targets[i] < 0 or search.done[u] or search.back[u] or search.color[u] != color:
                    continue
                search.back[u], moved[u] = True, True
                stack[size] = u
                size += 1

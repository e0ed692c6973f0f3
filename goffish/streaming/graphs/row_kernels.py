"""Pairs of adjacent vertices, and rows of their neighbors, that follow the edges of a live graph."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import link, unlink
from goffish.streaming.graphs.updates import FLOAT, INTEGER

#: Weight of a pair without an edge.
ABSENT = -np.inf


# Parallel edges.


@kernel(allocates=False)
def _note(pairs, pair):
    if not pairs.is_touched[pair]:
        pairs.is_touched[pair] = True
        pairs.touched[pairs.used[0]] = pair
        pairs.used[0] += 1


@kernel(allocates=False)
def join_edges(pairs, edges, added, keys, slots):
    """Add edges to their pairs, or remove them, or note that their weights have changed.

    `added` is 1, -1 or 0; `keys` and `slots` have the ends of each edge that is added, and its pair; a loop has -1.
    """
    for i in range(edges.size):
        edge = edges[i]
        if added[i] > 0:
            pair = slots[i]
            pairs.of_edge[edge] = pair
            if pair < 0:
                continue
            pairs.sources[pair], pairs.targets[pair] = keys[i] >> 32, keys[i] & 0xFFFFFFFF
            head = pairs.first[pair] - 1
            pairs.following[edge], pairs.preceding[edge] = head, -1
            if head >= 0:
                pairs.preceding[head] = edge
            pairs.first[pair] = edge + 1
        pair = pairs.of_edge[edge]
        if pair < 0:
            continue
        _note(pairs, pair)
        if added[i] < 0:
            before, after = pairs.preceding[edge], pairs.following[edge]
            if before >= 0:
                pairs.following[before] = after
            else:
                pairs.first[pair] = after + 1
            if after >= 0:
                pairs.preceding[after] = before
            pairs.of_edge[edge] = -1


@kernel(allocates=False)
def weigh_pairs(pairs, kinds, bits, floats, found):
    """Write the weights of the pairs that were touched: the least ones of their edges.

    Edges without a number weigh 1; `kinds` is empty if all edges do.
    """
    for i in range(pairs.used[0]):
        edge, weight = pairs.first[pairs.touched[i]] - 1, ABSENT
        while edge >= 0:
            one = 1.0
            if kinds.size and kinds[edge] == FLOAT:
                one = floats[edge]
            elif kinds.size and kinds[edge] == INTEGER:
                one = float(bits[edge])
            weight = one if weight == ABSENT else min(weight, one)
            edge = pairs.following[edge]
        found[i] = weight


@kernel(allocates=False)
def settle_pairs(pairs, new, numbers, before):
    """Take new weights of the pairs that were touched; write those that are different, and their weights before."""
    count = 0
    for i in range(pairs.used[0]):
        pair = pairs.touched[i]
        pairs.is_touched[pair] = False
        if new[i] != pairs.weights[pair]:
            numbers[count], before[count] = pair, pairs.weights[pair]
            pairs.weights[pair] = new[i]
            count += 1
    pairs.used[0] = 0
    return count


# Rows.


@kernel(allocates=False, inner=True)
def attach_other(rows, vertex, half, other, weight):
    """Add a neighbor to the row of a vertex, by its half of a pair."""
    adjacency = rows.adjacency
    start, size = adjacency.starts[vertex], adjacency.sizes[vertex]
    link(adjacency, vertex, half)
    moved = adjacency.starts[vertex]
    if moved != start:
        for i in range(size):
            rows.others[moved + i] = rows.others[start + i]
            if rows.weights.size:
                rows.weights[moved + i] = rows.weights[start + i]
    rows.others[moved + size] = other
    if rows.weights.size:
        rows.weights[moved + size] = weight


@kernel(allocates=False, inner=True)
def detach_other(rows, vertex, half):
    """Remove a neighbor from the row of a vertex."""
    adjacency = rows.adjacency
    at = adjacency.starts[vertex] + adjacency.places[half]
    last = adjacency.starts[vertex] + adjacency.sizes[vertex] - 1
    unlink(adjacency, vertex, half)
    rows.others[at] = rows.others[last]
    if rows.weights.size:
        rows.weights[at] = rows.weights[last]


@kernel(allocates=False, inner=True)
def put(net, pair, old, new):
    """Add a pair to the rows of its ends, remove it, or change its weight."""
    u, v = net.sources[pair], net.targets[pair]
    one, other = (pair, pair) if net.directed else (2 * pair, 2 * pair + 1)
    back = net.into if net.directed else net.out
    if old == ABSENT:
        attach_other(net.out, u, one, v, new)
        attach_other(back, v, other, u, new)
    elif new == ABSENT:
        detach_other(net.out, u, one)
        detach_other(back, v, other)
    elif net.out.weights.size:
        net.out.weights[net.out.adjacency.starts[u] + net.out.adjacency.places[one]] = new
        back.weights[back.adjacency.starts[v] + back.adjacency.places[other]] = new


@kernel(allocates=False)
def put_all(net, pairs, before, weights):
    """Apply changes of pairs to the rows."""
    for i in range(pairs.size):
        put(net, pairs[i], before[i], weights[pairs[i]])


@kernel(allocates=False, inner=True)
def degrees(net, sizes):
    """Write the number of neighbors of each vertex, in both directions together."""
    for v in range(sizes.size):
        sizes[v] = net.out.adjacency.sizes[v] + (net.into.adjacency.sizes[v] if net.directed else 0)

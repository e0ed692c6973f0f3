"""Kernels of spanning forests, matchings, independent sets, colorings and label propagation, over sparse rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from goffish.kernels.compile import kernel


class Links(NamedTuple):
    """Edges between trees, in the order that decides between equal weights.

    Attributes
    ----------
    low, high : integers, shape (edges,)
        The trees at both ends.
    weight : float64, shape (edges,)
    edge : int64, shape (edges,)
        What each was numbered by the caller.
    """

    low: Any
    high: Any
    weight: Any
    edge: Any


@kernel(allocates=False)
def lightest_arcs(offsets, targets, weights, other, edge):
    """The lightest edge of each vertex, as its other end and its arc; a vertex without one is its own other end.

    Of equal weights the first arc counts: edges have the same order in the rows of both ends. Every edge is named by
    its arc in the row of the lower end.
    """
    weighted = weights.size > 0
    for v in range(other.size):
        at, least = np.int64(-1), np.inf
        for i in range(offsets[v], offsets[v + 1]):
            if targets[i] == v:
                continue
            if not weighted:
                at = i
                break
            if weights[i] < least:
                at, least = i, weights[i]
        other[v] = v if at < 0 else targets[at]
        if other[v] < v:
            at, last = offsets[other[v]], offsets[other[v] + 1]
            while at < last:
                middle = (at + last) >> 1
                if targets[middle] < v:
                    at = middle + 1
                else:
                    last = middle
            while weighted and weights[at] != least:  # parallel edges
                at += 1
        edge[v] = at


@kernel(allocates=False)
def lightest_links(links, size, least, at, other, edge):
    """The lightest of the first links of each tree, as its other end and its edge.

    Parameters
    ----------
    least : float64, shape (trees,)
        Scratch.
    at : int64, shape (trees,)
        Scratch.
    """
    for tree in range(other.size):
        least[tree], at[tree] = np.inf, -1
    for i in range(size):
        u, v, w = links.low[i], links.high[i], links.weight[i]
        if w < least[u]:
            least[u], at[u] = w, i
        if w < least[v]:
            least[v], at[v] = w, i
    for tree in range(other.size):
        i = at[tree]
        other[tree] = tree if i < 0 else links.low[i] + links.high[i] - tree
        edge[tree] = -1 if i < 0 else links.edge[i]


@kernel(allocates=False)
def join(other, edge, number, chosen, count):
    """Join each tree with its other end; the edges that do it are appended to `chosen`.

    Weights and places of edges are a strict order, so that the only cycles are pairs that choose each other.

    Parameters
    ----------
    number : integers, shape (trees,)
        Receives the new tree of each tree.

    Returns
    -------
    trees, count : int
        Number of new trees, and of edges in `chosen`.
    """
    for tree in range(other.size):
        target = other[tree]
        number[tree] = -1
        if target == tree:
            continue
        if other[target] == tree and tree < target:
            other[tree] = tree
        else:
            chosen[count] = edge[tree]
            count += 1
    trees = 0
    for tree in range(other.size):
        if other[tree] == tree:
            number[tree] = trees
            trees += 1
    for tree in range(other.size):
        root = tree
        while number[root] < 0:
            root = other[root]
        found, at = number[root], tree
        while number[at] < 0:
            number[at] = found
            at = other[at]
    return trees, count


@kernel(allocates=False)
def links_of_rows(offsets, targets, weights, number, links):
    """The edges between different trees, from the rows of their lower ends; gives how many there are."""
    weighted, size = weights.size > 0, 0
    for v in range(number.size):
        for i in range(offsets[v], offsets[v + 1]):
            if targets[i] > v and number[targets[i]] != number[v]:
                links.low[size], links.high[size] = number[v], number[targets[i]]
                links.weight[size] = weights[i] if weighted else 1.0
                links.edge[size] = i
                size += 1
    return size


@kernel(allocates=False)
def renumber_links(links, size, number):
    """Keep the links between different new trees, in place; gives how many there are."""
    kept = 0
    for i in range(size):
        u, v = number[links.low[i]], number[links.high[i]]
        if u != v:
            links.low[kept], links.high[kept] = u, v
            links.weight[kept], links.edge[kept] = links.weight[i], links.edge[i]
            kept += 1
    return kept


@kernel(allocates=False)
def sources_of(offsets, arcs, source):
    """The vertex in whose row each arc lies; `arcs` are ascending."""
    v = 0
    for i in range(arcs.size):
        while offsets[v + 1] <= arcs[i]:
            v += 1
        source[i] = v


@kernel(allocates=False)
def blocks_of_edges(src, dst, home, top, number, block):
    """The biconnected component of each edge, numbered in the order of their first edges; -1 for a loop.

    Parameters
    ----------
    home, top : int64
        As `find_blocks` leaves them.
    number : int64, shape (blocks,)
        Filled with -1; receives the number of each block.
    """
    count = 0
    for i in range(src.size):
        u, v = src[i], dst[i]
        block[i] = -1
        if u == v:
            continue
        at = home[u]
        if at < 0 or (home[v] != at and top[at] != v):
            at = home[v]
        if number[at] < 0:
            number[at] = count
            count += 1
        block[i] = number[at]


@kernel(allocates=False)
def single_arcs(offsets, targets, low, high, single):
    """Whether exactly one arc leads from each vertex `low` to the vertex `high`; there is one at least."""
    for i in range(low.size):
        at, last = offsets[low[i]], offsets[low[i] + 1]
        end = last
        while at < last:
            middle = (at + last) >> 1
            if targets[middle] < high[i]:
                at = middle + 1
            else:
                last = middle
        single[i] = at + 1 == end or targets[at + 1] != high[i]


@kernel(allocates=False)
def choose_independent(offsets, targets, order, state):
    """Take each vertex of `order` that has no neighbor among those taken before.

    Parameters
    ----------
    state : int8, shape (n,)
        Zeros; receives 1 for vertices that are taken and 2 for their neighbors. Loops do not count.
    """
    for at in range(order.size):
        v = order[at]
        if state[v] == 0:
            state[v] = 1
            for i in range(offsets[v], offsets[v + 1]):
                if targets[i] != v:
                    state[targets[i]] = 2


@kernel(allocates=False)
def match(offsets, targets, partner):
    """Take each edge, in the order of the rows, whose ends are both free; rows may hold every edge once or twice.

    Parameters
    ----------
    partner : integers, shape (n,)
        Filled with -1; receives the other end of the edge that is taken.
    """
    for v in range(partner.size):
        if partner[v] >= 0:
            continue
        for i in range(offsets[v], offsets[v + 1]):
            u = targets[i]
            if u != v and partner[u] < 0:
                partner[v], partner[u] = u, v
                break


@kernel(allocates=False)
def color_greedily(offsets, targets, order, color, mark):
    """Give each vertex of `order` the least color that no neighbor has; gives the number of colors.

    Parameters
    ----------
    color : integers, shape (n,)
        Filled with -1; receives the colors.
    mark : integers, shape (largest degree + 2,)
        Filled with -1; scratch.
    """
    colors = 0
    for at in range(order.size):
        v = order[at]
        for i in range(offsets[v], offsets[v + 1]):
            if color[targets[i]] >= 0:
                mark[color[targets[i]]] = v
        free = 0
        while mark[free] == v:
            free += 1
        color[v] = free
        colors = max(colors, free + 1)
    return colors


@kernel(allocates=False)
def propagate(offsets, targets, weights, order, label, waiting, votes):
    """One round of label propagation over the vertices of `order` that wait; gives how many labels changed.

    A vertex takes the label with the most weight among its neighbors, of several the largest one, unless no label has
    more than that which it has.

    Parameters
    ----------
    weights : float64
        Empty where each neighbor counts once, parallel edges or not.
    waiting : bool, shape (n,)
        Whether a neighbor has changed its label since the vertex had its turn.
    votes : float64, shape (n,)
        Zeros; scratch.
    """
    weighted, changed = weights.size > 0, 0
    for at in range(order.size):
        v = order[at]
        if not waiting[v]:
            continue
        waiting[v] = False
        first, last = offsets[v], offsets[v + 1]
        most = 0.0
        for i in range(first, last):
            found = label[targets[i]]
            if weighted:
                votes[found] += weights[i]
            elif i == first or targets[i] != targets[i - 1]:
                votes[found] += 1.0
            most = max(most, votes[found])
        mine, largest = votes[label[v]], -1
        for i in range(first, last):
            found = label[targets[i]]
            if votes[found] == most:
                largest = max(largest, found)
            votes[found] = 0.0
        # Sums of the same weights in different orders may differ in their last digits: labels would not settle.
        if most > mine * (1.0 + 1e-12):
            label[v] = largest
            changed += 1
            for i in range(first, last):
                waiting[targets[i]] = True
    return changed


@kernel(allocates=False)
def number_groups(label, number):
    """Number labels in place by their first vertices; gives how many there are. `number` is filled with -1."""
    count = 0
    for v in range(label.size):
        at = label[v]
        if number[at] < 0:
            number[at] = count
            count += 1
        label[v] = number[at]
    return count

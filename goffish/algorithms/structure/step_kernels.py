"""Kernels of greedy choices and label propagation inside subgraphs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64


class Turns(NamedTuple):
    """Who decides before whom: vertices by ascending key, of the same key by ascending number.

    Attributes
    ----------
    key, number : int64, shape (n,)
    remote_key, remote_number : int64, shape (rows of the remote table,)
    """

    key: Any
    number: Any
    remote_key: Any
    remote_number: Any


@kernel
def decide(active, rows, order, turns, value, remote_value, coloring, changed):
    """Decide about each vertex of the active subgraphs whose neighbors with an earlier turn have decided.

    With `coloring`, a vertex takes the least value that no neighbor has; else 1 if no neighbor has 1, and 0 otherwise.

    Parameters
    ----------
    order : int64, shape (n,)
        Vertices of each subgraph in the order of their turns, counted from the first one of the partition.
    value, remote_value : int64
        -1 where a vertex has not decided.
    """
    subgraph_offsets, remote_offsets, offsets, targets = rows
    mark = np.full(16, -1, np.int64)
    for a in range(active.size):
        s = active[a]
        low, remote = subgraph_offsets[s], remote_offsets[s]
        for at in range(low, subgraph_offsets[s + 1]):
            v = order[at]
            if value[v] >= 0:
                continue
            if offsets[v + 1] - offsets[v] + 2 > mark.size:
                mark = np.full(2 * (offsets[v + 1] - offsets[v]) + 2, -1, np.int64)
            ready = True
            for i in range(offsets[v], offsets[v + 1]):
                t = targets[i]
                if t >= 0:
                    key, number, taken = turns.key[low + t], turns.number[low + t], value[low + t]
                else:
                    r = remote + ~t
                    key, number, taken = turns.remote_key[r], turns.remote_number[r], remote_value[r]
                if taken >= 0:
                    # A neighbor with a later turn cannot have decided.
                    if taken < mark.size:
                        mark[taken] = v
                elif key < turns.key[v] or (key == turns.key[v] and number < turns.number[v]):
                    ready = False
                    break
            if not ready:
                continue
            if coloring:
                free = 0
                while mark[free] == v:
                    free += 1
                value[v] = free
            else:
                value[v] = mark[1] != v
            changed[v] = True


class Labels(NamedTuple):
    """Labels of the vertices, and of the rows of the remote table: int64."""

    near: Any
    remote: Any


class Votes(NamedTuple):
    """A hash table of the votes for labels; slots whose round is not the current one are free.

    Attributes
    ----------
    round, label : int64, shape (a power of 2,)
    weight : float64
    """

    round: Any
    label: Any
    weight: Any


@kernel(allocates=False, inner=True)
def find_slot(votes, number, label):
    """The slot of a label in the round with this number; a free one if it has no votes."""
    mask = np.int64(votes.label.size - 1)
    slot = np.int64(splitmix64(np.uint64(label))) & mask
    while votes.round[slot] == number and votes.label[slot] != label:
        slot = (slot + 1) & mask
    return slot


@kernel(allocates=False)
def vote(turns, units, rows, arcs, weights, labels, votes, waiting, changed):
    """Let vertices take the label with the most weight among their neighbors, as `kernels.propagate` does.

    Parameters
    ----------
    turns, units : int64
        Vertices without edges between them, and the subgraph of each.
    arcs : int64
        Arcs of each row in the order of the neighbors in the graph as read, so that sums have the same last digits;
        empty without weights.
    weights : float64
        Empty where each neighbor counts once, parallel edges or not.
    votes : Votes
        With more than twice as many slots as a vertex of `turns` has arcs; all rounds are -1.
    waiting : bool, shape (n,)
        Whether a neighbor has changed its label since the vertex had its turn.
    changed : bool, shape (turns,)
        Receives whether each took another label.
    """
    weighted = weights.size > 0
    for at in range(turns.size):
        v, s = turns[at], units[at]
        low, remote, first, last = rows.starts[s], rows.remote_starts[s], rows.offsets[v], rows.offsets[v + 1]
        waiting[v] = False
        most = 0.0
        for i in range(first, last):
            arc = arcs[i] if weighted else i
            t = rows.targets[arc]
            if not weighted and i > first and t == rows.targets[i - 1]:
                continue
            found = labels.near[low + t] if t >= 0 else labels.remote[remote + ~t]
            slot = find_slot(votes, at, found)
            if votes.round[slot] != at:
                votes.round[slot], votes.label[slot], votes.weight[slot] = at, found, 0.0
            votes.weight[slot] += weights[arc] if weighted else 1.0
            most = max(most, votes.weight[slot])
        slot, largest = find_slot(votes, at, labels.near[v]), np.int64(-1)
        mine = votes.weight[slot] if votes.round[slot] == at else 0.0
        changed[at] = most > mine * (1.0 + 1e-12)
        if not changed[at]:
            continue
        for i in range(first, last):
            t = rows.targets[i]
            found = labels.near[low + t] if t >= 0 else labels.remote[remote + ~t]
            if votes.weight[find_slot(votes, at, found)] == most:
                largest = max(largest, found)
            if t >= 0:
                waiting[low + t] = True
        labels.near[v] = largest

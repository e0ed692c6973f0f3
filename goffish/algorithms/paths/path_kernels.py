"""The shortest paths without repeated vertices, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.paths.search_kernels import End, arc_length
from goffish.kernels.compile import kernel
from goffish.kernels.heap import pop, push

#: Places of the state that a search keeps between two calls.
NODES, WAITING, PATHS, STAMP = 0, 1, 2, 3
STATE = 4


class Remainder(NamedTuple):
    """The tree of shortest paths to the target.

    Attributes
    ----------
    distance : float64, shape (n,)
        To the target; infinite where it cannot be reached.
    following : integers, shape (n,)
        Next vertex on a shortest path; -1 for the target.
    """

    distance: NDArray[np.float64]
    following: NDArray[Any]


class Tree(NamedTuple):
    """Paths that share their beginnings, as a tree of nodes; node 0 is the source.

    Attributes
    ----------
    vertex, parent : int64
    length : float64
        From the source.
    child, sibling : int64
        First and next node of those by which a path that was found continues; -1 after the last.
    found : bool
        Whether a path that was found has the node.
    keys, items : float64 and int64
        What waits: a lower bound and twice the node where paths deviate, or the length of a path and one more than
        twice its last node.
    """

    vertex: NDArray[np.int64]
    parent: NDArray[np.int64]
    length: NDArray[np.float64]
    child: NDArray[np.int64]
    sibling: NDArray[np.int64]
    found: NDArray[np.bool_]
    keys: NDArray[np.float64]
    items: NDArray[np.int64]

    @classmethod
    def make(cls, size: int) -> Tree:
        whole, real = np.int64, np.float64
        kinds = whole, whole, real, whole, whole, np.bool_, real, whole
        return cls(*(np.empty(size, kind) for kind in kinds))

    def doubled(self) -> Tree:
        """A copy with twice the memory."""
        larger = Tree.make(2 * self.vertex.size)
        for new, old in zip(larger, self, strict=True):
            new[: old.size] = old
        return larger


class Scratch(NamedTuple):
    """Memory of searches.

    Attributes
    ----------
    passed, reached : int64, shape (n,)
        Zeros; stamps of the vertices of a beginning, and twice those of vertices that a search has reached, plus one
        of those that it has settled.
    line : int64, shape (n,)
    end : End
    """

    passed: NDArray[np.int64]
    reached: NDArray[np.int64]
    line: NDArray[np.int64]
    end: End


@kernel(inner=True, allocates=False)
def add(keys, items, size, key, item):
    push(keys, items, size, key, item, True)
    return size + 1


@kernel(inner=True, allocates=False)
def take(keys, items, size):
    item = items[0]
    pop(keys, items, size, True)
    return item


@kernel(inner=True, allocates=False)
def add_node(tree, node, vertex, parent, length):
    tree.vertex[node], tree.parent[node], tree.length[node] = vertex, parent, length
    tree.child[node], tree.sibling[node], tree.found[node] = -1, -1, False


@kernel(inner=True, allocates=False)
def mark(tree, node, passed, stamp):
    """Put the stamp on the vertices of the beginning that ends at a node."""
    while node >= 0:
        passed[tree.vertex[node]] = stamp
        node = tree.parent[node]


@kernel(inner=True, allocates=False)
def is_used(tree, node, vertex):
    """Whether a path that was found continues from the node to the vertex."""
    child = tree.child[node]
    while child >= 0:
        if tree.vertex[child] == vertex:
            return True
        child = tree.sibling[child]
    return False


@kernel(inner=True, allocates=False)
def best_exit(arcs, rest, tree, node, passed, stamp):
    """The next vertex by which a path could be shortest, the length to it, and a lower bound of the whole path.

    The beginning that ends at the node has the stamp. Gives -1 where no path is left.
    """
    offsets, targets, weights = arcs
    u = tree.vertex[node]
    best, exit_vertex, exit_length = np.inf, np.int64(-1), 0.0
    for i in range(offsets[u], offsets[u + 1]):
        v = targets[i]
        length = tree.length[node] + (weights[i] if weights.size else 1.0)
        if length + rest.distance[v] < best and passed[v] != stamp and not is_used(tree, node, v):
            best, exit_vertex, exit_length = length + rest.distance[v], np.int64(v), length
    return exit_vertex, exit_length, best


@kernel(inner=True, allocates=False)
def search(arcs, rest, tree, node, target, stamp, scratch):
    """A* to the target from a node, around its beginning and what was used; gives whether there is a path."""
    offsets, targets, weights = arcs
    passed, reached, _, end = scratch
    distance, link, heap_keys, heap_items = end
    start = tree.vertex[node]
    distance[start] = tree.length[node]
    heap_items[0], size = start, 1
    heap_keys[0] = 0.0
    while size > 0:
        u = take(heap_keys, heap_items, size)
        size -= 1
        if u == target:
            return True
        if reached[u] == 2 * stamp + 1:
            continue
        reached[u] = 2 * stamp + 1
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if rest.distance[v] == np.inf or passed[v] == stamp or reached[v] == 2 * stamp + 1:
                continue
            length = distance[u] + (weights[i] if weights.size else 1.0)
            if reached[v] == 2 * stamp and length >= distance[v]:
                continue
            if u == start and is_used(tree, node, v):
                continue
            distance[v], link[v], reached[v] = length, u, 2 * stamp
            size = add(heap_keys, heap_items, size, length + rest.distance[v], np.int64(v))
    return False


@kernel(allocates=False)
def begin(source, bound, tree, state):
    """Start with the source, and a lower bound of all paths."""
    add_node(tree, 0, source, -1, 0.0)
    tree.found[0] = True
    tree.keys[0], tree.items[0] = bound, 0
    state[NODES], state[WAITING], state[PATHS], state[STAMP] = 1, 1, 0, 0


@kernel(inner=True, allocates=False)
def accept(arcs, rest, tree, leaf, state, scratch):
    """Take a path, and let all its nodes wait for deviations, from the one where it deviates itself."""
    passed, _, line, _ = scratch
    stamp, waiting = state[STAMP], state[WAITING]
    steps, node = 0, leaf
    while not tree.found[node]:
        line[steps] = node
        steps += 1
        node = tree.parent[node]
    tree.sibling[line[steps - 1]] = tree.child[node]
    tree.child[node] = line[steps - 1]
    for at in range(1, steps):
        tree.child[line[at]] = line[at - 1]
    mark(tree, node, passed, stamp)
    while node != leaf:
        following, _, bound = best_exit(arcs, rest, tree, node, passed, stamp)
        if following >= 0:
            waiting = add(tree.keys, tree.items, waiting, bound, 2 * node)
        steps -= 1
        node = line[steps]
        tree.found[node] = True
        passed[tree.vertex[node]] = stamp
    state[WAITING] = waiting


@kernel(inner=True, allocates=False)
def resolve(arcs, rest, tree, node, target, state, scratch):
    """Append the best path that deviates at a node; without effect if there is none."""
    passed, _, line, end = scratch
    stamp, nodes = state[STAMP], state[NODES]
    mark(tree, node, passed, stamp)
    v, length, _ = best_exit(arcs, rest, tree, node, passed, stamp)
    at = v
    while at >= 0 and passed[at] != stamp:
        at = np.int64(rest.following[at])
    if at < 0:
        add_node(tree, nodes, v, node, length)
        nodes += 1
        while v != target:
            following = np.int64(rest.following[v])
            length += arc_length(arcs, v, following)
            v = following
            add_node(tree, nodes, v, nodes - 1, length)
            nodes += 1
    elif search(arcs, rest, tree, node, target, stamp, scratch):
        start, v, steps = tree.vertex[node], target, 0
        while v != start:
            line[steps] = v
            steps += 1
            v = end.link[v]
        parent = node
        while steps > 0:
            steps -= 1
            add_node(tree, nodes, line[steps], parent, end.distance[line[steps]])
            parent = nodes
            nodes += 1
    else:
        return
    state[WAITING] = add(tree.keys, tree.items, state[WAITING], tree.length[nodes - 1], 2 * nodes - 1)
    state[NODES] = nodes


@kernel(allocates=False)
def shortest_paths(arcs, rest, target, tree, leaves, state, scratch):
    """Find the shortest paths without repeated vertices (Yen 1971), different in their vertices.

    Each path that was found leaves, at each of its nodes, the paths that deviate there and at no earlier node (Lawler
    1972). A node waits with a lower bound of their lengths, from the tree of shortest paths to the target; only when
    that is the least of all is the best of them looked for: along the tree, if that meets no vertex twice, or by A*.

    Parameters
    ----------
    arcs : Csr
        Without weights, every arc is 1 long.
    rest : Remainder
    target : int64
    tree : Tree
    leaves : int64
        Receives the node of the target for each path, in the order in which they are found.
    state : int64, shape (STATE,)
    scratch : Scratch

    Returns
    -------
    bool
        Whether `leaves` is full, or no path is left; else the tree is too small to continue.
    """
    n = rest.distance.size
    while state[WAITING] > 0 and state[PATHS] < leaves.size:
        # A step appends a path, or lets the nodes of one wait.
        if max(state[NODES], state[WAITING]) + n > tree.vertex.size:
            return False
        item = take(tree.keys, tree.items, state[WAITING])
        state[WAITING] -= 1
        state[STAMP] += 1
        if item % 2:
            leaves[state[PATHS]] = item // 2
            state[PATHS] += 1
            accept(arcs, rest, tree, item // 2, state, scratch)
        else:
            resolve(arcs, rest, tree, item // 2, target, state, scratch)
    return True


@kernel(allocates=False)
def count_nodes(tree, leaves, starts):
    """First row of each path, and the end; shape (paths + 1,)."""
    starts[0] = 0
    for i in range(leaves.size):
        size, node = 0, leaves[i]
        while node >= 0:
            size += 1
            node = tree.parent[node]
        starts[i + 1] = starts[i] + size


@kernel(allocates=False)
def write_paths(tree, leaves, starts, vertex, length):
    """Vertices of each path, and their distances from the source."""
    for i in range(leaves.size):
        node = leaves[i]
        for at in range(starts[i + 1] - 1, starts[i] - 1, -1):
            vertex[at], length[at] = tree.vertex[node], tree.length[node]
            node = tree.parent[node]

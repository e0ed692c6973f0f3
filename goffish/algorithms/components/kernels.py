"""Union-find kernels. A parent is never smaller than its child, so a root is its tree's largest vertex."""

from __future__ import annotations

from goffish.kernels.compile import kernel


@kernel(inline="always")
def link(parent, u, v):
    """Join the trees of `u` and `v`: Rem's algorithm with splicing.

    Dijkstra, A Discipline of Programming (1976), ch. 23; the fastest of the 53 variants that Patwary, Blair and
    Manne compare (SEA 2010). It climbs both paths at once and re-hangs what it passes, so no separate find is needed.
    """
    up_u, up_v = parent[u], parent[v]
    while up_u != up_v:
        if up_u < up_v:
            parent[u] = up_v
            if u == up_u:
                return
            u, up_u = up_u, parent[up_u]
        else:
            parent[v] = up_u
            if v == up_v:
                return
            v, up_v = up_v, parent[up_v]


@kernel(inner=True)
def flatten(parent):
    """Point every vertex at its root. Parents come before children in descending order, so one look suffices."""
    for v in range(parent.size - 1, -1, -1):
        parent[v] = parent[parent[v]]


@kernel
def join_all(offsets, targets, mirrored, parent):
    """Union over every arc; `mirrored` graphs hold each edge in both rows, of which the lower end's is used."""
    for v in range(parent.size - 1, -1, -1):
        parent[v] = v
        if not mirrored:
            continue
        for i in range(offsets[v + 1] - 1, offsets[v] - 1, -1):
            if targets[i] <= v:
                break
            link(parent, v, targets[i])
    if not mirrored:
        for v in range(parent.size - 1, -1, -1):
            for i in range(offsets[v], offsets[v + 1]):
                link(parent, v, targets[i])
    flatten(parent)


@kernel
def join_sampled(offsets, targets, samples, parent, seen):
    """Afforest for symmetric rows: link the last two neighbors of each vertex, then skip the rows of the giant tree.

    Every edge that leaves the giant is met again from its other end, whose row is not skipped.

    Parameters
    ----------
    samples
        How many vertices are asked for their tree to guess the giant.
    seen : integers, shape (n,)
        Zeros; scratch.
    """
    n = parent.size
    for v in range(n):
        parent[v] = v
    # In descending order trees of larger vertices are flat; two neighbors side by side are one access to memory.
    for v in range(n - 1, -1, -1):
        for i in range(offsets[v + 1] - 1, max(offsets[v + 1] - 2, offsets[v]) - 1, -1):
            link(parent, v, targets[i])
    flatten(parent)
    giant, most = parent[0], 0
    step = max(n // samples, 1)
    for v in range(0, n, step):
        root = parent[v]
        seen[root] += 1
        if seen[root] > most:
            giant, most = root, seen[root]
    for v in range(n - 1, -1, -1):
        if parent[v] != giant:
            for i in range(offsets[v], offsets[v + 1] - 2):
                link(parent, v, targets[i])
    flatten(parent)


@kernel
def census(parent, sizes):
    """Sizes by root; returns (trees, the largest tree's size, trees of one vertex)."""
    n = parent.size
    start = 0
    for v in range(1, n + 1):
        # Neighboring numbers mostly share their tree: counting runs spares a chain of dependent increments.
        if v == n or parent[v] != parent[start]:
            sizes[parent[start]] += v - start
            start = v
    trees, largest, single = 0, 0, 0
    for v in range(n):
        if parent[v] == v:
            trees += 1
            single += sizes[v] == 1
            largest = max(largest, sizes[v])
    return trees, largest, single


@kernel(allocates=False)
def strong_components(offsets, targets, found, path, cursor, is_root):
    """Strongly connected components, in one search (Pearce, Inf. Process. Lett. 116(1), 2016, with one index).

    While a vertex is on a path or waits for its component, `found` is the least index that it reaches; then it is the
    number of the component. These are counted down from n, and no index is larger: at most n - c vertices have one.

    Parameters
    ----------
    found : integers, shape (n,)
        Zeros; receives the components, numbered from n downwards in the order in which they are complete: an arc
        between two leads to the larger number.
    path : integers, shape (n,)
        Scratch: the path from the left, vertices that wait from the right.
    cursor : int64, shape (n,)
        Scratch: next arc of each vertex of the path.
    is_root : bool, shape (n,)
        Scratch: whether no vertex that is reached has a lower index.

    Returns
    -------
    int
        Number of components.
    """
    n = found.size
    component, index, waiting = n, 1, n
    for start in range(n):
        if found[start]:
            continue
        depth, path[0], cursor[0], is_root[0] = 0, start, offsets[start], True
        found[start] = index
        index += 1
        while depth >= 0:
            v = path[depth]
            low, root, at, end = found[v], is_root[depth], cursor[depth], offsets[v + 1]
            while at < end:
                other = found[targets[at]]
                if other == 0:
                    break
                if other < low:
                    low, root = other, False
                at += 1
            found[v] = low
            if at < end:
                # The arc is looked at again when its end is complete.
                cursor[depth], is_root[depth] = at, root
                depth += 1
                path[depth] = targets[at]
                cursor[depth], is_root[depth] = offsets[path[depth]], True
                found[path[depth]] = index
                index += 1
                continue
            depth -= 1
            if not root:
                waiting -= 1
                path[waiting] = v
                continue
            while waiting < n and found[path[waiting]] >= low:
                found[path[waiting]] = component
                waiting += 1
                index -= 1
            found[v] = component
            component -= 1
            index -= 1
    return n - component


@kernel
def last_members(component, last):
    """The largest vertex of each vertex's component, in place; `last` is scratch by component."""
    for v in range(component.size):
        last[component[v]] = v
    for v in range(component.size):
        component[v] = last[component[v]]
    return component

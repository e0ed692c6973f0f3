"""Kernels that count subgraphs of four vertices, on rows by ascending degree."""

from __future__ import annotations

from goffish.kernels.compile import kernel


@kernel(allocates=False)
def count_cliques(offsets, targets, first, last, scratch, support):
    """Count cliques of four vertices whose lowest is in some rows, and add their triangles to all three edges.

    Parameters
    ----------
    offsets, targets
        Arcs from the lower to the higher end of each edge.
    scratch : tuple
        Twice no arc (-1), shape (n,), and an array with a place for each arc of the longest row.
    support : integers, shape (m,)
        Triangles of each edge.
    """
    mark, inner, third_corners = scratch
    cliques = 0
    for u in range(first, last):
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = i
        for i in range(offsets[u], offsets[u + 1]):
            v, found = targets[i], 0
            for j in range(offsets[v], offsets[v + 1]):
                w = targets[j]
                if mark[w] >= 0:
                    support[mark[w]] += 1
                    support[j] += 1
                    inner[w] = i
                    third_corners[found] = w
                    found += 1
            support[i] += found
            for at in range(found):
                w = third_corners[at]
                for j in range(offsets[w], offsets[w + 1]):
                    cliques += inner[targets[j]] == i
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = -1
    return cliques


@kernel(allocates=False)
def count_cycles(offsets, targets, back_offsets, sources, first, last, paths):
    """Count cycles of four vertices whose highest is in some rows.

    Chiba and Nishizeki, "Arboricity and subgraph listing algorithms", SIAM J. Comput. 14(1), 1985.

    Parameters
    ----------
    offsets, targets, back_offsets, sources
        Arcs from the lower to the higher end of each edge, and the same backwards; both in ascending rows.
    paths : integers, shape (n,)
        Zeros; scratch.
    """
    cycles = 0
    for v in range(first, last):
        for i in range(back_offsets[v], back_offsets[v + 1]):
            u = sources[i]
            for j in range(back_offsets[u], back_offsets[u + 1]):
                cycles += paths[sources[j]]
                paths[sources[j]] += 1
            for j in range(offsets[u], offsets[u + 1]):
                if targets[j] >= v:
                    break
                cycles += paths[targets[j]]
                paths[targets[j]] += 1
        for i in range(back_offsets[v], back_offsets[v + 1]):
            u = sources[i]
            for j in range(back_offsets[u], back_offsets[u + 1]):
                paths[sources[j]] = 0
            for j in range(offsets[u], offsets[u + 1]):
                if targets[j] >= v:
                    break
                paths[targets[j]] = 0
    return cycles

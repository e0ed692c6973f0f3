"""Kernels that count at each vertex the subgraphs of four vertices, on rows by ascending degree."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel


@kernel(allocates=False)
def edge_triangles(offsets, targets, first, last, mark, support):
    """Add the triangles whose lowest corner is in some rows to all three edges; `mark` holds -1."""
    for u in range(first, last):
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = i
        for i in range(offsets[u], offsets[u + 1]):
            v, found = targets[i], 0
            for j in range(offsets[v], offsets[v + 1]):
                third = mark[targets[j]]
                if third >= 0:
                    support[third] += 1
                    support[j] += 1
                    found += 1
            support[i] += found
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = -1


@kernel(allocates=False)
def corners(offsets, targets, support, first, last, scratch, wings, cliques):
    """Count, of triangles whose lowest corner is in some rows, what is opposite each corner; and cliques of four.

    Parameters
    ----------
    support : integers, shape (m,)
        Triangles of each edge.
    scratch : tuple
        Twice no arc (-1), shape (n,), and an array with a place for each arc of the longest row.
    wings : int64, shape (n,)
        Receives the number of other triangles at the opposite edges of the triangles of each vertex.
    cliques : int64, shape (n,)
        Receives the number of cliques of four vertices with each vertex.
    """
    mark, inner, third_corners = scratch
    for u in range(first, last):
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = i
        for i in range(offsets[u], offsets[u + 1]):
            v, found = targets[i], 0
            for j in range(offsets[v], offsets[v + 1]):
                w = targets[j]
                k = mark[w]
                if k >= 0:
                    wings[u] += support[j] - 1
                    wings[v] += support[k] - 1
                    wings[w] += support[i] - 1
                    inner[w] = i
                    third_corners[found] = w
                    found += 1
            at_edge = 0
            for at in range(found):
                w, at_w = third_corners[at], 0
                for j in range(offsets[w], offsets[w + 1]):
                    closed = inner[targets[j]] == i
                    cliques[targets[j]] += closed
                    at_w += closed
                cliques[w] += at_w
                at_edge += at_w
            cliques[u] += at_edge
            cliques[v] += at_edge
        for i in range(offsets[u], offsets[u + 1]):
            mark[targets[i]] = -1


@kernel(allocates=False)
def cycle_corners(rows, first, last, paths, cycles):
    """Count at each vertex the cycles of four vertices whose highest is in some rows.

    Parameters
    ----------
    rows : tuple
        Arcs from the lower to the higher end of each edge (offsets, targets), and the same backwards (offsets,
        sources); both in ascending rows.
    paths : integers, shape (n,)
        Zeros; scratch.
    cycles : int64, shape (n,)
    """
    offsets, targets, back_offsets, sources = rows
    for v in range(first, last):
        for i in range(back_offsets[v], back_offsets[v + 1]):
            u = sources[i]
            for j in range(back_offsets[u], back_offsets[u + 1]):
                paths[sources[j]] += 1
            for j in range(offsets[u], offsets[u + 1]):
                if targets[j] >= v:
                    break
                paths[targets[j]] += 1
        twice = 0
        for i in range(back_offsets[v], back_offsets[v + 1]):
            u = sources[i]
            through = 0
            for j in range(back_offsets[u], back_offsets[u + 1]):
                # With each other path to w, this one is a cycle; each of the two counts half at w.
                others = paths[sources[j]] - 1
                cycles[sources[j]] += others
                through += others
            for j in range(offsets[u], offsets[u + 1]):
                w = targets[j]
                if w >= v:
                    break
                others = paths[w] - 1
                cycles[w] += others
                through += others
            cycles[u] += 2 * through
            twice += through
        cycles[v] += twice
        for i in range(back_offsets[v], back_offsets[v + 1]):
            u = sources[i]
            for j in range(back_offsets[u], back_offsets[u + 1]):
                paths[sources[j]] = 0
            for j in range(offsets[u], offsets[u + 1]):
                if targets[j] >= v:
                    break
                paths[targets[j]] = 0


@kernel(allocates=False)
def orbits(offsets, targets, degree, support, counts):
    """Numbers of subgraphs, induced or not, at each vertex that follow from degrees and triangles; then the induced.

    Parameters
    ----------
    degree : integers, shape (n,)
    support : integers, shape (m,)
        Triangles of each edge.
    counts : int64, shape (15, n)
        On entry zeros, but numbers of subgraphs in the rows of claw centers (7), cycles (8), wings of diamonds (12)
        and cliques (14); on return the orbits. Claws may be wrapped around.
    """
    n = degree.size
    for u in range(n):
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            # Ends of paths of three vertices, and twice the triangles.
            counts[1, u] += degree[v] - 1
            counts[1, v] += degree[u] - 1
            counts[3, u] += support[i]
            counts[3, v] += support[i]
    for u in range(n):
        counts[3, u] //= 2
    for u in range(n):
        for i in range(offsets[u], offsets[u + 1]):
            v, between = np.int64(targets[i]), np.int64(support[i])
            for x, y in ((u, v), (v, u)):
                dx, dy = np.int64(degree[x]), np.int64(degree[y])
                counts[4, x] += counts[1, y] - (dx - 1) - between
                counts[5, x] += (dx - 1) * (dy - 1) - between
                counts[6, x] += (dy - 1) * (dy - 2) // 2
                counts[9, x] += counts[3, y] - between
                counts[10, x] += between * (dy - 2)
                counts[13, x] += between * (between - 1) // 2
    for v in range(n):
        d, triangles, clique = np.int64(degree[v]), counts[3, v], counts[14, v]
        # Subgraphs that lack edges between their vertices are those without, and those in each graphlet with more.
        counts[13, v] -= 3 * clique
        counts[12, v] -= 3 * clique
        hub, wing = counts[13, v], counts[12, v]
        counts[8, v] -= wing + hub + 3 * clique
        cycle = counts[8, v]
        counts[11, v] = triangles * (d - 2) - 2 * hub - 3 * clique
        counts[10, v] -= 2 * wing + 2 * hub + 6 * clique
        counts[9, v] -= 2 * wing + 3 * clique
        tail, side, center = counts[9, v], counts[10, v], counts[11, v]
        counts[7, v] -= center + hub + clique
        counts[6, v] -= tail + side + 2 * wing + hub + 3 * clique
        counts[5, v] -= side + 2 * center + 2 * cycle + 2 * wing + 4 * hub + 6 * clique
        counts[4, v] -= 2 * tail + side + 2 * cycle + 4 * wing + 2 * hub + 6 * clique
        counts[2, v] = d * (d - 1) // 2 - triangles
        counts[1, v] -= 2 * triangles
        counts[0, v] = d

"""Kernels about a given division of a graph; none of them cares how it was found."""

from __future__ import annotations

import heapq

import numpy as np

from goffish.kernels.compile import kernel

#: The smallest probability that the expected mutual information looks at; a shared member has one of at least 1/n.
_VANISHED = 1e-25


@kernel
def renumber(values, low, table, out):
    """Numbers 0, 1, … in order of first appearance; `table` has one entry of -1 for each value from `low` on."""
    count = 0
    for i in range(values.size):
        at = values[i] - low
        if table[at] < 0:
            table[at] = count
            count += 1
        out[i] = table[at]
    return count


@kernel
def community_sums(arcs, directed, community, inside, out, into, cut):
    """Weights of every community.

    Parameters
    ----------
    inside
        Arcs within; an undirected edge counts from both ends, an undirected loop twice.
    out, into
        Arcs from and to the members; `into` is written for directed graphs only.
    cut
        Arcs that leave or, in a directed graph, come in.
    """
    offsets, targets, weights = arcs
    weighted = weights.size > 0
    for u in range(offsets.size - 1):
        own = community[u]
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            weight = weights[i] if weighted else 1.0
            other = community[v]
            if directed:
                into[other] += weight
                if own == other:
                    inside[own] += weight
                else:
                    cut[own] += weight
                    cut[other] += weight
            else:
                if u == v:
                    weight *= 2.0
                if own == other:
                    inside[own] += weight
                else:
                    cut[own] += weight
            out[own] += weight


@kernel
def inner_structure(arcs, directed, community, degree, pairs):
    """Weighted degree of every vertex within its community, and the linked pairs of different members of each.

    Pairs of an undirected graph are counted from both ends.
    """
    offsets, targets, weights = arcs
    weighted = weights.size > 0
    for u in range(offsets.size - 1):
        before = targets.dtype.type(-1)
        for i in range(offsets[u], offsets[u + 1]):
            v = targets[i]
            if community[v] == community[u]:
                weight = weights[i] if weighted else 1.0
                degree[u] += weight
                if directed or u == v:
                    degree[v] += weight
                # Rows are ascending, so parallel arcs follow each other.
                new = v != before
                if new and u != v:
                    pairs[community[u]] += 1
            before = v


@kernel
def first_members(order, community, starts, filled, members):
    """The first vertices in `order` of every community c, as many as fit from ``starts[c]`` to ``starts[c + 1]``."""
    for i in range(order.size):
        v = order[i]
        c = community[v]
        at = starts[c] + filled[c]
        if at < starts[c + 1]:
            members[at] = v
            filled[c] += 1


@kernel
def weight_between(arcs, directed, node, matrix):
    """Weight of the edges between every two nodes, in both halves of `matrix`; vertices with node -1 have none."""
    offsets, targets, weights = arcs
    weighted = weights.size > 0
    for u in range(offsets.size - 1):
        if node[u] < 0:
            continue
        for i in range(offsets[u], offsets[u + 1]):
            other = node[targets[i]]
            if other >= 0 and other != node[u]:
                weight = weights[i] if weighted else 1.0
                matrix[node[u], other] += weight
                if directed:
                    matrix[other, node[u]] += weight


@kernel
def _find(root, c):
    while root[c] != c:
        root[c] = root[root[c]]
        c = root[c]
    return c


@kernel
def merge_small(arcs, back_arcs, community, size, out, into, scale, resolution, min_size, root):
    """Join small communities to neighbors, smallest first; `root` receives where each of them went.

    A community's members are a linked list, so that joining two costs nothing and only the rows of small communities
    are ever read. The smallest goes first and therefore at least doubles: no row is read more than log2(min_size)
    times.
    """
    offsets, targets, weights = arcs
    back_offsets, back_targets, back_weights = back_arcs
    weighted = weights.size > 0
    communities = size.size
    first = np.full(communities, -1, np.int64)
    last = np.full(communities, -1, np.int64)
    after = np.full(community.size, -1, np.int64)
    for v in range(community.size - 1, -1, -1):
        c = community[v]
        after[v] = first[c]
        first[c] = v
        if last[c] < 0:
            last[c] = v
    total = out.sum()
    between = np.zeros(communities, np.float64)
    seen = np.zeros(communities, np.bool_)
    near = np.empty(communities, np.int64)
    heap = [np.int64(0) for _ in range(0)]
    for c in range(communities):
        root[c] = c
        if size[c] < min_size:
            heapq.heappush(heap, size[c] * communities + c)
    while len(heap) > 0:
        key = heapq.heappop(heap)
        c = key % communities
        if root[c] != c or size[c] != key // communities:
            continue
        found = 0
        v = first[c]
        while v >= 0:
            for turn in range(2):
                ends = targets if turn == 0 else back_targets
                row = offsets if turn == 0 else back_offsets
                for i in range(row[v], row[v + 1]):
                    d = _find(root, community[ends[i]])
                    if d == c:
                        continue
                    if not seen[d]:
                        seen[d] = True
                        near[found] = d
                        found += 1
                    if weighted:
                        between[d] += (weights[i] if turn == 0 else back_weights[i]) * scale
                    else:
                        between[d] += scale
            v = after[v]
        best, highest = np.int64(-1), 0.0
        for i in range(found):
            d = near[i]
            gain = between[d] * total - resolution * (out[c] * into[d] + out[d] * into[c])
            if best < 0 or gain > highest or (gain == highest and d < best):
                best, highest = d, gain
            between[d] = 0.0
            seen[d] = False
        if best < 0:
            continue
        root[c] = best
        size[best] += size[c]
        out[best] += out[c]
        into[best] += into[c]
        after[last[best]] = first[c]
        last[best] = last[c]
        if size[best] < min_size:
            heapq.heappush(heap, size[best] * communities + best)
    for c in range(communities):
        root[c] = _find(root, c)


@kernel
def match_greedily(old, new, taken, partner):
    """Walk the pairs, best first: ``partner[new]`` becomes the old community, each of them given once."""
    for i in range(old.size):
        if not taken[old[i]] and partner[new[i]] < 0:
            taken[old[i]] = True
            partner[new[i]] = old[i]


@kernel
def expected_mutual_information(first, first_many, second, second_many, n):
    """Mean mutual information (nats) of two random divisions of n things into groups of these sizes.

    N. X. Vinh, J. Epps, J. Bailey, JMLR 11 (2010), equation 24a: the overlap of two groups is hypergeometric. Its
    probabilities are walked from the mode outwards until they vanish, relative to that of the mode; so no factorial is
    needed, of which large n would leave few right digits. Groups of equal size are treated as one.

    Parameters
    ----------
    first, first_many, second, second_many : int64
        Distinct sizes of groups and how many groups have each.
    """
    expected = 0.0
    for i in range(first.size):
        a = first[i]
        for j in range(second.size):
            b = second[j]
            low, high = max(0, a + b - n), min(a, b)
            mode = min(max(((a + 1) * (b + 1)) // (n + 2), low), high)
            shift = np.log(n) - np.log(a) - np.log(b)
            total, mean = 0.0, 0.0
            chance, k = 1.0, mode
            while k <= high and chance > _VANISHED:
                total += chance
                if k > 0:
                    mean += chance * k * (np.log(k) + shift)
                chance *= (a - k) / (k + 1) * ((b - k) / (n - a - b + k + 1))
                k += 1
            chance, k = 1.0, mode
            while k > low and chance > _VANISHED:
                chance *= k / (a - k + 1) * ((n - a - b + k) / (b - k + 1))
                k -= 1
                total += chance
                if k > 0:
                    mean += chance * k * (np.log(k) + shift)
            expected += first_many[i] * second_many[j] * (mean / total / n)
    return expected

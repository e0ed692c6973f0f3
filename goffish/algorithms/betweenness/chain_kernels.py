"""Kernels that make one long edge of every chain of vertices with two neighbors, and search on what that leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.lane_kernels import MOST
from goffish.algorithms.betweenness.search_kernels import DijkstraMemory
from goffish.kernels.compile import kernel
from goffish.kernels.csr import Csr
from goffish.kernels.heap import lower_distance, take_nearest


class Chains(NamedTuple):
    """Branch vertices and the chains of vertices with two neighbors between them, all int64.

    Attributes
    ----------
    arcs : Csr
        Rows of the branch vertices: at the other end of a chain lies which vertex, how far.
    chain : shape (arcs,)
        The chain of each arc.
    ends, starts
        See `walk_chains`.
    first : shape (branch vertices + 1,)
        The chains whose first end is each vertex.
    piece : shape (branch vertices,)
    vertex_bounds, bounds : shape (pieces + 1,)
        The vertices and chains of each piece.
    """

    arcs: Csr
    chain: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    first: NDArray[np.int64]
    piece: NDArray[np.int64]
    vertex_bounds: NDArray[np.int64]
    bounds: NDArray[np.int64]


@kernel
def walk_chains(offsets, targets, members, number, chain_ends, starts, inner):
    """List the chains between the branch vertices `members`, in the order of their first ends.

    Parameters
    ----------
    members : int64
        Branch vertices; every vertex that they reach through others has two neighbors.
    number : int64, shape (n,)
        Place in `members`, -1 elsewhere.
    chain_ends : int64, shape (chains, 2)
        Receives places in `members`, the first no larger than the second.
    starts : int64, shape (chains + 1,), inner : int64
        Receive the vertices inside each chain, from the first end to the second.

    Returns
    -------
    int64
        The number of chains.
    """
    chains, end = 0, 0
    for i in range(members.size):
        for a in range(offsets[members[i]], offsets[members[i] + 1]):
            begin, before, v = end, members[i], np.int64(targets[a])
            while number[v] < 0:
                inner[end] = v
                end += 1
                first = np.int64(targets[offsets[v]])
                after = np.int64(targets[offsets[v] + 1]) if first == before else first
                before, v = v, after
            # A chain is walked from both of its ends and taken once.
            if number[v] < i or (number[v] == i and inner[begin] > inner[end - 1]):
                end = begin
                continue
            chain_ends[chains, 0], chain_ends[chains, 1] = i, number[v]
            chains += 1
            starts[chains] = end
    return chains


@kernel
def _search(source, arcs, memory):
    """Distances and numbers of paths from `source` to all it reaches (Dijkstra); gives how many that are."""
    offsets, targets, lengths = arcs
    distance, paths, place, heap, order = memory
    distance[source], paths[source] = 0.0, 1.0
    heap[0] = source
    size, settled = 1, 0
    while size > 0:
        u = take_nearest(heap, place, distance, size)
        size -= 1
        place[u] = -1
        order[settled] = u
        settled += 1
        for a in range(offsets[u], offsets[u + 1]):
            v = targets[a]
            length = distance[u] + lengths[a]
            if length < distance[v]:
                size = lower_distance(heap, place, distance, size, v, length)
                paths[v] = paths[u]
            elif length == distance[v] and place[v] >= 0:
                paths[v] += paths[u]
    return settled


@kernel
def _spread(settled, chains, memory, mass, share, score, through):
    """Lead `mass`, which ends at each vertex, along the shortest paths of a search; forgets mass and distances.

    Brandes' dependencies with one mass per target. `score` receives what passes a vertex other than the source and
    goes on, `through` what passes each chain as a whole.
    """
    offsets, targets, lengths = chains.arcs
    distance, paths, _, _, order = memory
    chain = chains.chain
    for at in range(settled - 1, -1, -1):
        u = order[at]
        total = 0.0
        for a in range(offsets[u], offsets[u + 1]):
            v = targets[a]
            if distance[u] + lengths[a] == distance[v]:
                part = share[v] * paths[u]
                total += part
                through[chain[a]] += part
        if at > 0:
            score[u] += total if paths[u] <= MOST else np.nan
        share[u] = (mass[u] + total) / paths[u]
    for at in range(settled):
        v = order[at]
        distance[v] = np.inf
        share[v] = mass[v] = 0.0


@kernel(inline="always")
def _halves(near, far, length):
    """Of the places inside a chain: the last one nearer to its first end, and the one in the middle (0: none)."""
    twice = far + length - near
    middle = twice // 2 if twice % 2 == 0 else 0
    return max((twice - 1) // 2, 0), middle if 0 < middle < length else 0


@kernel
def search_chains(chains, vertices, inner, first, last, score, inner_score):
    """Add the dependencies of the searches from the branch vertices ``first … last`` and from inside their chains.

    Shortest paths from inside a chain leave it by one of its ends or by both: the distances of all branch vertices
    follow from those of the two ends, and how far into the other chains paths from either side reach is a division by
    two. What flows between the ends then takes one accumulation for a chain, not one for each vertex inside.

    The number of paths to a vertex may pass `MOST`; then its score is NaN and all of this call is worthless.

    Parameters
    ----------
    chains : Chains
    vertices, inner : VertexWeights
        Of the branch vertices, and of the vertices inside the chains.
    score : float64, shape (branch vertices,), inner_score : float64, shape (inner vertices,)
    """
    arcs, _, chain_ends, starts, first_chain, piece, vertex_bounds, chain_bounds = chains
    out, into, _ = vertices
    inner_out, inner_into, _ = inner
    size, chain_count = score.size, starts.size - 1
    near, far = np.full(size, np.inf), np.full(size, np.inf)
    paths, other_paths, mass, other_mass = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    place, heap = np.empty(size, np.int64), np.empty(size, np.int64)
    memory = DijkstraMemory(near, paths, place, heap, np.empty(size, np.int64))
    other_memory = DijkstraMemory(far, other_paths, place, heap, np.empty(size, np.int64))
    share, distance, ways, part = np.zeros(size), np.empty(size), np.empty(size), np.empty(size)
    # Mass of targets up to each place of each chain, from 0: place p of chain c is number ``starts[c] + c + p``.
    upto = np.zeros(starts[-1] + chain_count + 1)
    for c in range(chain_count):
        for i in range(starts[c], starts[c + 1]):
            upto[i + c + 1] = upto[i + c] + inner_into[i]
    through = np.zeros(chain_count)
    # How often the targets up to (from) a place are reached from the first (second) end, and single targets.
    reach_up, reach_down = np.zeros(upto.size), np.zeros(upto.size + 1)
    single_up, single_down = np.zeros(upto.size), np.zeros(upto.size)

    for a in range(first, last):
        low, high = vertex_bounds[piece[a]], vertex_bounds[piece[a] + 1]
        low_chain, high_chain = chain_bounds[piece[a]], chain_bounds[piece[a] + 1]
        settled = _search(a, arcs, memory)
        weight = out[a]
        if weight > 0.0:
            for x in range(low, high):
                mass[x] += weight * into[x]
            for c in range(low_chain, high_chain):
                begin, count = starts[c] + c, starts[c + 1] - starts[c]
                if count == 0:
                    continue
                c0, c1 = chain_ends[c, 0], chain_ends[c, 1]
                near_end, middle = _halves(np.int64(near[c0]), np.int64(near[c1]), count + 1)
                up = upto[begin + near_end]
                down = upto[begin + count] - up
                reach_up[begin + near_end] += weight
                reach_down[begin + near_end + 1 + (middle > 0)] += weight
                if middle > 0:
                    single = upto[begin + middle] - up
                    left = single * (paths[c0] / (paths[c0] + paths[c1]))
                    single_up[begin + middle] += weight * left
                    single_down[begin + middle] += weight * (single - left)
                    up += left
                    down -= left
                mass[c0] += weight * up
                mass[c1] += weight * down
                if c0 != a:
                    score[c0] += weight * up
                if c1 != a:
                    score[c1] += weight * down

        for own in range(first_chain[a], first_chain[a + 1]):
            inside = starts[own + 1] - starts[own]
            if inside == 0:
                continue
            length, b, own_begin = inside + 1, chain_ends[own, 1], starts[own] + own
            if b == a:
                there, there_paths, there_mass = near, paths, mass
                other_settled = 0
            else:
                there, there_paths, there_mass = far, other_paths, other_mass
                other_settled = _search(b, arcs, other_memory)
            loop = np.int64(near[b]) + length  # once round, by the chain and the shortest way outside
            half, tie = (loop - 1) // 2, loop // 2 if loop % 2 == 0 else length
            direct = 1.0 / (1.0 + paths[b])
            # What passes a place: paths out through the ends, and straight ones (as differences).
            leave_a, leave_b = np.zeros(inside + 2), np.zeros(inside + 2)
            plain, ahead, ahead_mass = np.zeros(inside + 3), np.zeros(inside + 3), np.zeros(inside + 3)
            back, back_mass = np.zeros(inside + 3), np.zeros(inside + 3)
            for i in range(1, inside + 1):
                weight = inner_out[starts[own] + i - 1]
                if weight == 0.0:
                    continue
                by_a, by_b = 0.0, 0.0
                for x in range(low, high):
                    to_a, to_b = i + near[x], length - i + there[x]
                    distance[x] = min(to_a, to_b)
                    left = paths[x] if to_a <= to_b else 0.0
                    right = there_paths[x] if to_b <= to_a else 0.0
                    ways[x] = left + right
                    part[x] = left / (left + right)
                    flow = weight * into[x]
                    mass[x] += flow * part[x]
                    there_mass[x] += flow * (1.0 - part[x])
                    by_a += flow * part[x]
                    by_b += flow * (1.0 - part[x])
                # The ends do not pass on what ends at them.
                score[a] -= weight * into[a] * part[a]
                score[b] -= weight * into[b] * (1.0 - part[b])
                for c in range(low_chain, high_chain):
                    begin, count = starts[c] + c, starts[c + 1] - starts[c]
                    if count == 0 or c == own:
                        continue
                    c0, c1 = chain_ends[c, 0], chain_ends[c, 1]
                    near_end, middle = _halves(np.int64(distance[c0]), np.int64(distance[c1]), count + 1)
                    up = upto[begin + near_end]
                    down = upto[begin + count] - up
                    reach_up[begin + near_end] += weight
                    reach_down[begin + near_end + 1 + (middle > 0)] += weight
                    if middle > 0:
                        single = upto[begin + middle] - up
                        left = single * (ways[c0] / (ways[c0] + ways[c1]))
                        single_up[begin + middle] += weight * left
                        single_down[begin + middle] += weight * (single - left)
                        up += left
                        down -= left
                    for x, flow in ((c0, weight * up), (c1, weight * down)):
                        here = flow * part[x]
                        mass[x] += here
                        there_mass[x] += flow - here
                        by_a += here
                        by_b += flow - here
                        if x != a:
                            score[x] += here
                        if x != b:
                            score[x] += flow - here
                # The same chain: straight on, or out at one end and in at the other.
                last_on, first_on = min(inside, i + half), max(1, i - half)
                ahead[i + 1] += weight
                ahead[last_on + 1] -= weight
                ahead_mass[i + 1] += weight * upto[own_begin + last_on]
                ahead_mass[last_on + 1] -= weight * upto[own_begin + last_on]
                back[first_on] += weight
                back[i] -= weight
                back_mass[first_on] += weight * upto[own_begin + first_on - 1]
                back_mass[i] -= weight * upto[own_begin + first_on - 1]
                round_a = upto[own_begin + inside] - upto[own_begin + last_on]
                round_b = upto[own_begin + first_on - 1]
                tied = i + tie <= inside
                reach_down[own_begin + last_on + 1 + tied] += weight
                if tied:
                    single = inner_into[starts[own] + i + tie - 1]
                    straight = weight * single * direct
                    plain[i + 1] += straight
                    plain[i + tie] -= straight
                    single_down[own_begin + i + tie] += weight * single - straight
                    round_a -= single * direct
                tied = i - tie >= 1
                if first_on > 1:
                    reach_up[own_begin + first_on - 1 - tied] += weight
                if tied:
                    single = inner_into[starts[own] + i - tie - 1]
                    straight = weight * single * direct
                    plain[i - tie + 1] += straight
                    plain[i] -= straight
                    single_up[own_begin + i - tie] += weight * single - straight
                    round_b -= single * direct
                mass[b] += weight * round_a
                there_mass[a] += weight * round_b
                if b != a:
                    score[b] += weight * round_a
                    score[a] += weight * round_b
                by_a += weight * round_a
                by_b += weight * round_b
                score[a] += by_a
                score[b] += by_b
                leave_a[i] += by_a
                leave_b[i] += by_b
            sum_ahead = sum_ahead_mass = sum_back = sum_back_mass = sum_plain = passed = 0.0
            for p in range(1, inside + 1):
                sum_ahead += ahead[p]
                sum_ahead_mass += ahead_mass[p]
                sum_back += back[p]
                sum_back_mass += back_mass[p]
                sum_plain += plain[p]
                inner_score[starts[own] + p - 1] += (
                    sum_ahead_mass - sum_ahead * upto[own_begin + p]
                    + sum_back * upto[own_begin + p - 1] - sum_back_mass + sum_plain + passed
                )  # fmt: skip
                passed += leave_b[p]
            passed = 0.0
            for p in range(inside, 0, -1):
                inner_score[starts[own] + p - 1] += passed
                passed += leave_a[p]
            if b != a:
                _spread(other_settled, chains, other_memory, other_mass, share, score, through)
        _spread(settled, chains, memory, mass, share, score, through)

    for c in range(chain_count):
        begin, count = starts[c] + c, starts[c + 1] - starts[c]
        passed = reached = 0.0
        for p in range(count, 0, -1):
            inner_score[starts[c] + p - 1] += passed + through[c]
            reached += reach_up[begin + p]
            passed += reached * inner_into[starts[c] + p - 1] + single_up[begin + p]
        passed = reached = 0.0
        for p in range(1, count + 1):
            inner_score[starts[c] + p - 1] += passed
            reached += reach_down[begin + p]
            passed += reached * inner_into[starts[c] + p - 1] + single_down[begin + p]

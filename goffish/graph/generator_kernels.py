"""Numba kernels of random graphs: what is drawn for a vertex or an edge depends on the seed and its number only."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.kernels.mixing import splitmix64

#: Levels of R-MAT that one random number of 64 bits is enough for, and the bits of each.
_LEVELS, _BITS = 3, 21
_MASK = np.uint64((1 << _BITS) - 1)
#: Edges that are tried in place of one that cannot stay.
_TRIES = 200
_FREE, _GONE = -1, -2


@kernel(inner=True)
def _unit(state):
    """A number in (0, 1]."""
    return (float(state >> np.uint64(11)) + 1.0) * 2.0**-53


@kernel(inner=True)
def _below(state, bound):
    """A whole number from 0 to bound - 1, for bounds far below 2^53."""
    return min(int(float(state >> np.uint64(11)) * 2.0**-53 * bound), bound - 1)


@kernel(inner=True)
def _scrambled(number, mask, half, keys):
    """Another number of the same bits: a permutation of all numbers up to `mask`."""
    number = np.uint64(number)
    for key in keys:
        number = (number * (key | np.uint64(1)) + (key >> np.uint64(32))) & mask
        number ^= number >> half
    return number


@kernel(allocates=False)
def rmat_edges(first, last, scale, bounds, salt, src, dst):
    """Edges first to last - 1 of R-MAT; `bounds` are sums of the quadrants' chances in units of 2^-21."""
    one, mask, half = np.uint64(1), np.uint64((1 << scale) - 1), np.uint64((scale + 1) // 2)
    keys = (splitmix64(~salt), splitmix64(~salt - one), splitmix64(~salt + one))
    low, middle, high = bounds[0], bounds[1], bounds[2]
    for i in range(first, last):
        state = splitmix64(np.uint64(i) ^ salt)
        row = column = level = 0
        while level < scale:
            state = splitmix64(state)
            bits = state
            for _ in range(min(_LEVELS, scale - level)):
                draw = np.int64(bits & _MASK)
                bits >>= np.uint64(_BITS)
                # Without branches: no processor predicts random numbers.
                below, right = np.int64(draw >= middle), np.int64(draw >= low) + np.int64(draw >= high)
                row = 2 * row + below
                column = 2 * column + right - below
            level += _LEVELS
        src[i] = _scrambled(row, mask, half, keys)
        dst[i] = _scrambled(column, mask, half, keys)


@kernel(allocates=False)
def block_edges(first, last, begins, skips, upper, salt, src, dst):
    """Edges of rows first to last - 1 of a stochastic block model; returns their number, and keeps them if space is.

    Between two edges of a row, the number of vertices that have none is geometric (Batagelj & Brandes 2005).

    Parameters
    ----------
    begins : int64, shape (blocks + 1,)
        First vertex of each block.
    skips : float64, shape (blocks, blocks)
        1 / log(1 - chance); 0 for chance 1, and -inf for chance 0.
    upper : bool
        Whether only edges to higher vertices are drawn.
    """
    count, row_block = 0, 0
    for u in range(first, last):
        while begins[row_block + 1] <= u:
            row_block += 1
        state = splitmix64(np.uint64(u) ^ salt)
        for block in range(begins.size - 1):
            end, scale = begins[block + 1], skips[row_block, block]
            v = max(begins[block], u + 1) - 1 if upper else begins[block] - 1
            if end - v <= 1 or scale == -np.inf:
                continue
            while True:
                state = splitmix64(state)
                skip = np.log(_unit(state)) * scale
                if skip >= end - 1 - v:
                    break
                v += 1 + int(skip)
                if v == u:
                    continue
                if src.size:
                    src[count], dst[count] = u, v
                count += 1
    return count


@kernel(allocates=False)
def preferential_edges(first, last, each, salt, src, dst):
    """Edges of vertices first to last - 1, `each` per vertex, to vertices before them in proportion to their degrees.

    The end of an edge is copied from a random earlier place in the list of all ends, which is found without the list:
    it is followed back to the place of a new vertex (Sanders & Schulz 2016).
    """
    for v in range(first, last):
        for i in range(v * each, (v + 1) * each):
            at = i
            while True:
                limit = at // each
                if limit == 0:
                    end = 0
                    break
                place = _below(splitmix64(np.uint64(at) ^ salt), 2 * each * limit)
                if place % 2 == 0:
                    end = place // 2 // each
                    break
                at = place // 2
            src[i - each], dst[i - each] = v, end


@kernel(allocates=False)
def ring_edges(first, last, n, half, chance, salt, src, dst):
    """Edges of vertices first to last - 1 to the next ones of a ring, some of which end elsewhere."""
    for u in range(first, last):
        for j in range(half):
            i = u * half + j
            state = splitmix64(np.uint64(i) ^ salt)
            v = (u + j + 1) % n
            if _unit(state) <= chance:
                v = (u + 1 + _below(splitmix64(state), n - 1)) % n
            src[i], dst[i] = u, v


@kernel(inner=True)
def _find(table, key):
    """Place of a key in a hash table of a power of two, or -1."""
    mask = table.size - 1
    at = np.int64(splitmix64(np.uint64(key))) & mask
    while table[at] != _FREE:
        if table[at] == key:
            return at
        at = (at + 1) & mask
    return -1


@kernel(inner=True)
def _add(table, key):
    mask = table.size - 1
    at = np.int64(splitmix64(np.uint64(key))) & mask
    while table[at] >= 0:
        at = (at + 1) & mask
    table[at] = key


@kernel(inner=True)
def _key(u, v, n, directed):
    return u * n + v if directed or u < v else v * n + u


@kernel(inner=True)
def _fits(u, v, n, groups, directed, table):
    return u != v and (groups.size == 0 or groups[u] != groups[v]) and _find(table, _key(u, v, n, directed)) < 0


@kernel(allocates=False)
def match_stubs(stubs, n, groups, directed, salt, table):
    """Pair stubs ``2i`` and ``2i + 1`` so that few pairs are loops, repeated, or inside a group; returns how many are.

    The stubs come in random order. A pair that cannot stay exchanges ends with a random other one, if both then can.

    Parameters
    ----------
    groups : int64, shape (n,) or (0,)
        Vertices of the same group may not be connected.
    table : int64, shape (power of two,)
        All -1, at least four times as long as there are pairs.
    """
    pairs, state, wrong = stubs.size // 2, splitmix64(salt), 0
    for i in range(pairs):
        u, v = stubs[2 * i], stubs[2 * i + 1]
        if _fits(u, v, n, groups, directed, table):
            _add(table, _key(u, v, n, directed))
            continue
        stubs[2 * wrong], stubs[2 * i] = u, stubs[2 * wrong]
        stubs[2 * wrong + 1], stubs[2 * i + 1] = v, stubs[2 * wrong + 1]
        wrong += 1
    left = 0
    for i in range(wrong):
        u, v, done = stubs[2 * i], stubs[2 * i + 1], False
        for _ in range(_TRIES if wrong < pairs else 0):
            state = splitmix64(state)
            j = wrong + _below(state, pairs - wrong)
            a, b = stubs[2 * j], stubs[2 * j + 1]
            if not directed and state & np.uint64(1):
                a, b = b, a
            if u == a or v == b or not _fits(u, b, n, groups, directed, table):
                continue
            if not _fits(a, v, n, groups, directed, table) or _key(u, b, n, directed) == _key(a, v, n, directed):
                continue
            table[_find(table, _key(a, b, n, directed))] = _GONE
            _add(table, _key(u, b, n, directed))
            _add(table, _key(a, v, n, directed))
            stubs[2 * i], stubs[2 * i + 1], stubs[2 * j], stubs[2 * j + 1] = u, b, a, v
            done = True
            break
        if not done:
            stubs[2 * i], stubs[2 * i + 1] = stubs[2 * left], stubs[2 * left + 1]
            stubs[2 * left], stubs[2 * left + 1] = u, v
            left += 1
    return left


@kernel(allocates=False)
def draw_communities(degrees, sizes, slots, salt, out):
    """Put each vertex into a random community of more than `degrees` vertices; returns how many vertices were put.

    Parameters
    ----------
    degrees : int64, shape (n,)
        Descending.
    sizes : int64, shape (communities,)
        Descending, with sum n.
    slots : int64, shape (n,)
        Each community as often as it has vertices, in the order of `sizes`.
    """
    communities = open_slots = 0
    for v in range(degrees.size):
        while communities < sizes.size and sizes[communities] > degrees[v]:
            open_slots += sizes[communities]
            communities += 1
        if v == open_slots:
            return v
        at = v + _below(splitmix64(np.uint64(v) ^ salt), open_slots - v)
        out[v] = slots[at]
        slots[at] = slots[v]
    return degrees.size

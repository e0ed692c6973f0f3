"""The part of a graph that a worker has, and what the bundled programs compute on it."""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import make_room
from goffish.kernels.compile import kernel
from goffish.streaming.graphs.row_kernels import ABSENT, attach_other, detach_other
from goffish.streaming.kernels import xxh64_number

#: States of pairs while the edges of an epoch are counted.
_WAS_ABSENT, _WAS_PRESENT = 1, 2


# Edges.


@kernel(allocates=False)
def count_edges(pairs, slots, keys, kinds, places, touched):
    """Count the edges that are added to pairs, or removed; return how many pairs were touched."""
    count = 0
    for i in range(slots.size):
        pair = slots[i]
        pairs.sources[pair], pairs.targets[pair] = keys[i] >> 32, keys[i] & 0xFFFFFFFF
        if not pairs.states[pair]:
            pairs.states[pair] = _WAS_PRESENT if pairs.counts[pair] else _WAS_ABSENT
            touched[count] = pair
            count += 1
        pairs.counts[pair] += kinds[i]
        pairs.places[pair] = places[i]
    return count


@kernel(allocates=False)
def settle_edges(pairs, touched, first, changed, before):
    """Write the pairs that exist and did not, or the reverse, and their weights before; return how many."""
    count = 0
    for i in range(touched.size):
        pair = touched[i]
        old = 1.0 if pairs.states[pair] == _WAS_PRESENT else ABSENT
        new = 1.0 if pairs.counts[pair] > 0 else ABSENT
        pairs.states[pair] = 0
        if old != new:
            pairs.weights[pair], pairs.seqs[pair] = new, first + pairs.places[pair]
            changed[count], before[count] = pair, old
            count += 1
    return count


@kernel(allocates=False)
def put_owned(net, owned, pairs, before):
    """Apply changes of pairs to the rows of the vertices of this worker, as those of others are incomplete anyway."""
    back = net.into if net.directed else net.out
    for i in range(pairs.size):
        pair = pairs[i]
        u, v = net.sources[pair], net.targets[pair]
        one, other = (pair, pair) if net.directed else (2 * pair, 2 * pair + 1)
        if before[i] == ABSENT:
            if owned[u]:
                attach_other(net.out, u, one, v, 1.0)
            if owned[v]:
                attach_other(back, v, other, u, 1.0)
        else:
            if owned[u]:
                detach_other(net.out, u, one)
            if owned[v]:
                detach_other(back, v, other)


@kernel(allocates=False)
def find_gains(net, owners, vertices, worker, counts, found):
    """Write for each vertex the other part in which most neighbors are, and how many more than here.

    `counts` has a zero for each part, also afterwards.
    """
    parts, gains = found
    for i in range(vertices.size):
        v = vertices[i]
        for turn in range(1 + net.directed):
            rows = net.into if turn else net.out
            start = rows.adjacency.starts[v]
            for j in range(start, start + rows.adjacency.sizes[v]):
                counts[owners[rows.others[j]]] += 1
        parts[i], most = worker, 0
        for part in range(counts.size):
            if part != worker and counts[part] > most:
                parts[i], most = part, counts[part]
        gains[i] = most - counts[worker]
        counts[:] = 0


@kernel
def group_targets(targets, group_of, groups):
    """Number the targets by first appearance; return the first row of each. `group_of` has zeros, also afterwards."""
    firsts = np.empty(targets.size, np.int64)
    count = 0
    for i in range(targets.size):
        if not group_of[targets[i]]:
            firsts[count] = i
            count += 1
            group_of[targets[i]] = count
        groups[i] = group_of[targets[i]] - 1
    for i in range(targets.size):
        group_of[targets[i]] = 0
    return firsts[:count]


# Values that only fall: labels of components, and distances.


@kernel(allocates=False)
def note_values(wave, vertices, epoch):
    """Keep the values that vertices had when the epoch began."""
    for v in vertices:
        if wave.marks[v] != epoch:
            wave.marks[v] = epoch
            wave.logged[wave.used[0]], wave.olds[wave.used[0]] = v, wave.values[v]
            wave.used[0] += 1


@kernel(allocates=False)
def _lower(wave, v, value, epoch):
    """Take a smaller value; return whether the neighbors of the vertex are to get it."""
    if value >= wave.values[v]:
        return False
    if wave.owned[v]:
        if wave.marks[v] != epoch:
            wave.marks[v] = epoch
            wave.logged[wave.used[0]], wave.olds[wave.used[0]] = v, wave.values[v]
            wave.used[0] += 1
        wave.values[v] = value
        return not wave.queued[v]
    wave.values[v] = value
    if not wave.queued[v]:
        wave.queued[v] = True
        wave.outside[wave.used[1]] = v
        wave.used[1] += 1
    return False


@kernel(allocates=False)
def relax(rows, wave, targets, values, starts, step, epoch):
    """Take smaller values, and pass them on, each one larger by `step`, until nothing changes in this part.

    `starts` are vertices whose values are passed on as they are. Vertices of other parts that are to get a value are
    added to ``wave.outside``.
    """
    head, size, space = 0, 0, wave.queue.size
    for i in range(targets.size + starts.size):
        if i < targets.size:
            v = targets[i]
            if not _lower(wave, v, values[i], epoch):
                continue
        else:
            v = starts[i - targets.size]
            if wave.queued[v]:
                continue
        wave.queued[v] = True
        wave.queue[(head + size) % space] = v
        size += 1
    while size:
        v = wave.queue[head]
        head, size = (head + 1) % space, size - 1
        wave.queued[v] = False
        value = wave.values[v] + step
        for i in range(rows.adjacency.starts[v], rows.adjacency.starts[v] + rows.adjacency.sizes[v]):
            w = rows.others[i]
            if _lower(wave, w, value, epoch):
                wave.queued[w] = True
                wave.queue[(head + size) % space] = w
                size += 1


@kernel
def forget(rows, wave, targets, values, nothing, epoch):
    """Take `nothing` as the value of targets that have these values, and of those that may have theirs from them.

    Return vertices of other parts, and the values that those may have from here.
    """
    outside, theirs, used = np.empty(16, np.int64), np.empty(16, np.int64), 0
    size = 0
    for i in range(targets.size):
        size = _forget(wave, targets[i], values[i], nothing, epoch, size)
    head = 0
    while head < size:
        v = wave.queue[head]
        value = wave.passing[v] + 1
        head += 1
        for i in range(rows.adjacency.starts[v], rows.adjacency.starts[v] + rows.adjacency.sizes[v]):
            w = rows.others[i]
            if wave.owned[w]:
                size = _forget(wave, w, value, nothing, epoch, size)
                continue
            outside, theirs = make_room(outside, used, used + 1), make_room(theirs, used, used + 1)
            outside[used], theirs[used] = w, value
            used += 1
    return outside[:used], theirs[:used]


@kernel(allocates=False)
def _forget(wave, v, value, nothing, epoch, size):
    if wave.values[v] != value:
        return size
    if wave.marks[v] != epoch:
        wave.marks[v] = epoch
        wave.logged[wave.used[0]], wave.olds[wave.used[0]] = v, value
        wave.used[0] += 1
    wave.passing[v], wave.values[v] = value, nothing
    wave.queue[size] = v
    return size + 1


# Sets of sources that reach a vertex, as bits.


@kernel(allocates=False)
def _join(flood, v, bits, at):
    """Add bits to a set, or remove them, and to what is passed on; return whether there is something."""
    some = False
    for k in range(bits.shape[1]):
        new = bits[at, k]
        if flood.removes:
            # What the vertex itself is stays, and other parts find out which of the bits they have.
            new = new & flood.sets[v, k] & ~flood.own[v, k] if flood.owned[v] else new & ~flood.passing[v, k]
            if flood.owned[v]:
                flood.sets[v, k] &= ~new
        else:
            new = new & ~flood.sets[v, k]
            flood.sets[v, k] |= new
        flood.passing[v, k] |= new
        some |= new != 0
    if some and flood.removes:
        flood.hit[v] = True
    return some


@kernel(allocates=False)
def _enqueue(flood, v, head, size):
    """Note a vertex that has something to pass on."""
    if flood.queued[v]:
        return size
    flood.queued[v] = True
    if not flood.owned[v]:
        flood.outside[flood.used[0]] = v
        flood.used[0] += 1
        return size
    flood.queue[(head + size) % flood.queue.size] = v
    return size + 1


@kernel(allocates=False)
def spread(rows, flood, targets, bits, starts):
    """Add bits to the sets of vertices, or remove them, and pass them on until nothing changes in this part.

    `starts` are vertices whose sets are passed on as they are.
    """
    head, size = 0, 0
    for i in range(targets.size):
        if _join(flood, targets[i], bits, i):
            size = _enqueue(flood, targets[i], head, size)
    for v in starts:
        for k in range(flood.sets.shape[1]):
            flood.passing[v, k] |= flood.sets[v, k]
        size = _enqueue(flood, v, head, size)
    while size:
        v = flood.queue[head]
        head, size = (head + 1) % flood.queue.size, size - 1
        flood.queued[v] = False
        for k in range(flood.sets.shape[1]):
            flood.carried[0, k] = flood.passing[v, k]
            flood.passing[v, k] = 0
        for i in range(rows.adjacency.starts[v], rows.adjacency.starts[v] + rows.adjacency.sizes[v]):
            w = rows.others[i]
            if _join(flood, w, flood.carried, 0):
                size = _enqueue(flood, w, head, size)


# Triangles. Each is counted at the last of its edges that is added, and at the first one that is removed.


@kernel(allocates=False)
def _find(by_hash, key):
    """Return the slot of a number, or -1."""
    table, numbers = by_hash
    mask = np.uint64(table.size - 1)
    at = xxh64_number(key) & mask
    while table[at]:
        if numbers[table[at] - 1] == key:
            return np.int64(table[at] - 1)
        at = (at + np.uint64(1)) & mask
    return np.int64(-1)


@kernel(allocates=False)
def _counts(seq, is_present, key, is_added, first):
    """Whether an edge is one of those that a triangle may have beside the one with a key."""
    if is_added:
        return is_present and seq < key
    return seq < first if is_present else seq > key


@kernel(allocates=False)
def _has(pairs, by_hash, u, w, event):
    key, is_added, first = event
    pair = _find(by_hash, min(u, w) << 32 | max(u, w))
    return pair >= 0 and _counts(pairs.seqs[pair], pairs.weights[pair] != ABSENT, key, is_added, first)


@kernel
def _candidates(rows, pairs, removed, v, event, found):
    """Write the neighbors of a vertex by edges that count; return the list and how many there are.

    `removed` has vertices in order, their former neighbors, and the pairs.
    """
    key, is_added, first = event
    count = 0
    for i in range(rows.adjacency.starts[v], rows.adjacency.starts[v] + rows.adjacency.sizes[v]):
        if _counts(pairs.seqs[rows.adjacency.pool[i] >> 1], True, key, is_added, first):
            found = make_room(found, count, count + 1)
            found[count] = rows.others[i]
            count += 1
    if not is_added:
        vertices, others, of_pair = removed
        for i in range(np.searchsorted(vertices, v), vertices.size):
            if vertices[i] != v:
                break
            if _counts(pairs.seqs[of_pair[i]], False, key, is_added, first):
                found = make_room(found, count, count + 1)
                found[count] = others[i]
                count += 1
    return found, count


@kernel
def count_triangles(rows, pairs, by_hash, removed, chosen, first):
    """Return by how much the pairs that were added, less those that were removed, change the number of triangles."""
    found, total = np.empty(64, np.int64), 0
    for pair in chosen:
        u, v = np.int64(pairs.sources[pair]), np.int64(pairs.targets[pair])
        if rows.adjacency.sizes[u] < rows.adjacency.sizes[v]:
            u, v = v, u
        event = (pairs.seqs[pair], pairs.weights[pair] != ABSENT, first)
        found, count = _candidates(rows, pairs, removed, v, event, found)
        common = 0
        for i in range(count):
            common += _has(pairs, by_hash, u, found[i], event)
        total += common if event[1] else -common
    return total


@kernel(allocates=False)
def find_numbers(by_hash, keys, found):
    """Write the slots of numbers, or -1."""
    for i in range(keys.size):
        found[i] = _find(by_hash, keys[i])


@kernel
def list_candidates(rows, pairs, removed, chosen, vertices, first):
    """Return for pairs and one of their ends the neighbors by edges that count: the places of the pairs, and those."""
    places, others, used = np.empty(16, np.int64), np.empty(16, np.int64), 0
    found = np.empty(64, np.int64)
    for i in range(chosen.size):
        pair = chosen[i]
        event = (pairs.seqs[pair], pairs.weights[pair] != ABSENT, first)
        found, count = _candidates(rows, pairs, removed, vertices[i], event, found)
        places, others = make_room(places, used, used + count), make_room(others, used, used + count)
        for j in range(count):
            places[used], others[used] = i, found[j]
            used += 1
    return places[:used], others[:used]


@kernel(allocates=False)
def count_common(pairs, by_hash, numbers, chosen, vertices, others, first):
    """Return the change of the number of triangles, for pairs, their ends in this part, and neighbors of the other end.

    `numbers` finds vertices of this part by their numbers.
    """
    total = 0
    for i in range(chosen.size):
        pair = chosen[i]
        event = (pairs.seqs[pair], pairs.weights[pair] != ABSENT, first)
        w = _find(numbers, others[i])
        if w >= 0 and _has(pairs, by_hash, np.int64(vertices[i]), w, event):
            total += 1 if event[1] else -1
    return total

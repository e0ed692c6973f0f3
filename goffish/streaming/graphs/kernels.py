"""Sequencing of records, and changes of the current graph."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.streaming.batches import LAST
from goffish.streaming.graphs.updates import (
    ADD_EDGE,
    ADD_VERTEX,
    HEARTBEAT,
    NONE,
    REMOVE_EDGE,
    REMOVE_VERTEX,
    SET_EDGE,
    SET_VERTEX,
    UNSET_VERTEX,
)

#: What becomes of a record.
KEPT, DUPLICATE, LATE = range(3)
#: Counters of updates without effect: of elements that do not exist, and of ids of edges that have other ends.
UNKNOWN, CONFLICT = 0, 1
#: Edges for which a vertex has space when it has one.
LEAST_SPACE = 4


@kernel
def first_seen(seqs, ring, high, window, states):
    """Mark sequence numbers of one stream that were seen before; return the last one up to which all were seen.

    `ring` has a bit for each of the `window` numbers after that one.
    """
    for i in range(seqs.size):
        seq = seqs[i]
        if seq < 0:
            continue
        if seq <= high:
            states[i] = DUPLICATE
            continue
        if seq - high > 2 * window:  # what is so far behind counts as seen
            ring[:] = 0
            high = seq - window
        while seq - high > window:
            high += 1
            ring[high % window >> 6] &= ~(np.uint64(1) << np.uint64(high % window & 63))
        word, bit = seq % window >> 6, np.uint64(1) << np.uint64(seq % window & 63)
        if ring[word] & bit:
            states[i] = DUPLICATE
            continue
        ring[word] |= bit
        while True:
            word, bit = (high + 1) % window >> 6, np.uint64(1) << np.uint64((high + 1) % window & 63)
            if not ring[word] & bit:
                break
            ring[word] &= ~bit
            high += 1
    return high


@kernel
def watermarks(times, streams, states, latest, active, lateness, watermark):
    """Mark records that are late, and follow the watermark: the least of the latest times of the active streams."""
    for i in range(times.size):
        if states[i] != KEPT:
            continue
        stream, time = streams[i], times[i]
        if time <= watermark:
            states[i] = LATE
            continue
        if time <= latest[stream] and active[stream]:
            continue  # moves nothing
        latest[stream] = max(latest[stream], time)
        active[stream] = True
        least = LAST
        for other in range(latest.size):
            if active[other] and latest[other] < least:
                least = latest[other]
        watermark = max(watermark, least - lateness)
    return watermark


@kernel
def _less(kinds, numbers, bounds, stored, a, b):
    """Whether the key of a slot comes first: numbers by value, then texts by code point."""
    if kinds[a] != kinds[b]:
        return kinds[a] < kinds[b]
    if kinds[a] == 0:
        return numbers[a] < numbers[b]
    first, second = bounds[2 * a], bounds[2 * b]
    one, other = bounds[2 * a + 1] - first, bounds[2 * b + 1] - second
    for i in range(min(one, other)):
        if stored[first + i] != stored[second + i]:
            return stored[first + i] < stored[second + i]
    return one < other


@kernel
def _sift(keys, slots, root, size):
    """Restore the heap below a root: no slot comes before one of its parents'."""
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and _less(*keys, slots[child], slots[child + 1]):
            child += 1
        if not _less(*keys, slots[root], slots[child]):
            return
        slots[root], slots[child] = slots[child], slots[root]
        root = child


@kernel
def sort_by_key(keys, slots):
    """Sort slots by their keys (heapsort, as ids have any length)."""
    for root in range(slots.size // 2 - 1, -1, -1):
        _sift(keys, slots, root, slots.size)
    for last in range(slots.size - 1, 0, -1):
        slots[0], slots[last] = slots[last], slots[0]
        _sift(keys, slots, 0, last)


@kernel
def _logarithm(space):
    found = 0
    while space > 1:
        space >>= 1
        found += 1
    return found


@kernel
def _link(adjacency, vertex, edge):
    """Add an edge to a vertex; the pool has space for a larger block."""
    size, space = adjacency.sizes[vertex], adjacency.spaces[vertex]
    if size == space:
        start, larger = adjacency.starts[vertex], max(LEAST_SPACE, 2 * space)
        at = _logarithm(larger)
        block = adjacency.free[at]
        if block >= 0:
            adjacency.free[at] = adjacency.pool[block]
        else:
            block = adjacency.used[0]
            adjacency.used[0] += larger
        for i in range(size):
            adjacency.pool[block + i] = adjacency.pool[start + i]
        if space:
            at = _logarithm(space)
            adjacency.pool[start] = adjacency.free[at]
            adjacency.free[at] = start
        adjacency.starts[vertex], adjacency.spaces[vertex] = block, larger
    adjacency.pool[adjacency.starts[vertex] + size] = edge
    adjacency.places[edge] = size
    adjacency.sizes[vertex] = size + 1


@kernel
def _unlink(adjacency, vertex, edge):
    """Remove an edge from a vertex; the last one takes its place."""
    start, last = adjacency.starts[vertex], adjacency.sizes[vertex] - 1
    other = adjacency.pool[start + last]
    adjacency.pool[start + adjacency.places[edge]] = other
    adjacency.places[other] = adjacency.places[edge]
    adjacency.sizes[vertex] = last


@kernel
def _fits(adjacency, vertex):
    return adjacency.used[0] + max(LEAST_SPACE, 2 * adjacency.spaces[vertex]) <= adjacency.pool.size


@kernel
def _write(changes, at, record, op, element, name, kind, bits, old_kind, old_bits):
    changes.records[at], changes.ops[at], changes.elements[at], changes.names[at] = record, op, element, name
    changes.kinds[at], changes.bits[at] = kind, bits
    changes.old_kinds[at], changes.old_bits[at] = old_kind, old_bits
    return at + 1


@kernel
def _add_vertex(vertices, vertex, changes, at, record):
    if vertices[vertex]:
        return at
    vertices[vertex] = True
    return _write(changes, at, record, ADD_VERTEX, vertex, -1, NONE, 0, NONE, 0)


@kernel
def _remove_edge(graph, edge, changes, at, record):
    source, target = graph.edges.sources[edge], graph.edges.targets[edge]
    graph.edges.alive[edge] = False
    _unlink(graph.outgoing, source, edge)
    _unlink(graph.incoming, target, edge)
    graph.of_edges.kinds[:, edge] = NONE
    return _write(changes, at, record, REMOVE_EDGE, edge, -1, NONE, source, NONE, target)


@kernel
def _remove_vertex(graph, keys, vertex, changes, at, record):
    """Remove a vertex, after its edges in the order of their ids."""
    found = np.empty(graph.outgoing.sizes[vertex] + graph.incoming.sizes[vertex], np.int64)
    count = 0
    for i in range(graph.outgoing.sizes[vertex]):
        found[count] = graph.outgoing.pool[graph.outgoing.starts[vertex] + i]
        count += 1
    for i in range(graph.incoming.sizes[vertex]):
        edge = graph.incoming.pool[graph.incoming.starts[vertex] + i]
        if graph.edges.sources[edge] != vertex:  # loops are among the others
            found[count] = edge
            count += 1
    sort_by_key(keys, found[:count])
    for i in range(count):
        at = _remove_edge(graph, found[i], changes, at, record)
    graph.vertices[vertex] = False
    graph.of_vertices.kinds[:, vertex] = NONE
    return _write(changes, at, record, REMOVE_VERTEX, vertex, -1, NONE, 0, NONE, 0)


@kernel
def _set(attributes, op, element, records, update, changes, at, record):
    """Set or remove the attributes of an update."""
    for i in range(records.first_values[update], records.first_values[update + 1]):
        name, kind, bits = records.names[i], records.kinds[i], records.bits[i]
        old_kind, old_bits = attributes.kinds[name, element], attributes.bits[name, element]
        if kind == old_kind and (kind == NONE or bits == old_bits):
            continue
        attributes.kinds[name, element], attributes.bits[name, element] = kind, bits
        at = _write(changes, at, record, op, element, name, kind, bits, old_kind, old_bits)
    return at


@kernel
def apply_updates(graph, records, of_updates, keys, begin, changes, at, counts):
    """Apply updates from `begin` on; return the first one for which there is no space, and the number of changes.

    `of_updates` has the record of each update, and `keys` the keys of edges as of `sort_by_key`.
    """
    for update in range(begin, records.ops.size):
        op, element, record = records.ops[update], records.elements[update], of_updates[update]
        most = 3 + records.first_values[update + 1] - records.first_values[update]
        if op == REMOVE_VERTEX:
            most += graph.outgoing.sizes[element] + graph.incoming.sizes[element]
        if at + most > changes.ops.size:
            return update, at
        if op == ADD_EDGE:
            source, target = records.sources[update], records.targets[update]
            if not (_fits(graph.outgoing, source) and _fits(graph.incoming, target)):
                return update, at
            edges = graph.edges
            if edges.alive[element] and (edges.sources[element] != source or edges.targets[element] != target):
                counts[CONFLICT] += 1
                continue
            at = _add_vertex(graph.vertices, source, changes, at, record)
            at = _add_vertex(graph.vertices, target, changes, at, record)
            if not edges.alive[element]:
                edges.sources[element], edges.targets[element], edges.alive[element] = source, target, True
                _link(graph.outgoing, source, element)
                _link(graph.incoming, target, element)
                at = _write(changes, at, record, ADD_EDGE, element, -1, NONE, source, NONE, target)
            edges.seen[element] = records.times[record]
            at = _set(graph.of_edges, SET_EDGE, element, records, update, changes, at, record)
        elif op in (ADD_VERTEX, SET_VERTEX):
            at = _add_vertex(graph.vertices, element, changes, at, record)
            at = _set(graph.of_vertices, SET_VERTEX, element, records, update, changes, at, record)
        elif op == HEARTBEAT:
            continue
        elif not (graph.vertices[element] if op in (REMOVE_VERTEX, UNSET_VERTEX) else graph.edges.alive[element]):
            counts[UNKNOWN] += 1
        elif op == REMOVE_EDGE:
            at = _remove_edge(graph, element, changes, at, record)
        elif op == REMOVE_VERTEX:
            at = _remove_vertex(graph, keys, element, changes, at, record)
        elif op == UNSET_VERTEX:
            at = _set(graph.of_vertices, op, element, records, update, changes, at, record)
        else:
            at = _set(graph.of_edges, op, element, records, update, changes, at, record)
    return records.ops.size, at

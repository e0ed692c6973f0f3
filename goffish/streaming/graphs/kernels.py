"""Sequencing of records, and changes of the current graph."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.streaming.batches import FIRST, LAST
from goffish.streaming.graphs.predicate_kernels import (
    EVERYTHING,
    NEW,
    begin_vertex,
    follow_edge,
    follow_vertex,
    less,
    lose_edge,
    lose_vertex,
    renew_edge,
)
from goffish.streaming.graphs.updates import (
    ADD_EDGE,
    ADD_VERTEX,
    HEARTBEAT,
    NONE,
    REMOVE_EDGE,
    REMOVE_VERTEX,
    SET_EDGE,
    SET_VERTEX,
    UNSET_EDGE,
    UNSET_VERTEX,
)

#: What becomes of a record; a late one that is applied is tardy.
KEPT, DUPLICATE, LATE, TARDY = range(4)
#: Counters of updates without effect: of elements that do not exist, and of ids of edges that have other ends.
UNKNOWN, CONFLICT = 0, 1
#: Edges for which a vertex has space when it has one.
LEAST_SPACE = 4
#: Bits of the number of an edge in an entry of an adjacency.
LOW = (1 << 32) - 1


@kernel(allocates=False)
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
            after = high + 1
            if after & 63 == 0 and seq - window - high >= 64:
                ring[after % window >> 6] = 0  # a whole word
                high += 64
            else:
                ring[after % window >> 6] &= ~(np.uint64(1) << np.uint64(after % window & 63))
                high = after
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
def watermarks(times, streams, states, latest, heard, clock, spans, watermark, reached):
    """Mark records that are late, and follow the watermark: the least of the latest times of the active streams.

    `clock` has the time of arrival, and how long streams are active after they were heard of. `spans` are the lateness,
    and how late records are that are still applied, or -1. `reached` is for the watermarks at which these have arrived.
    Return the watermark, and whether all records are kept.
    """
    now, idle = clock
    for stream in streams:
        heard[stream] = now
    active = (latest > FIRST) & (heard >= now - idle)
    lateness, longest = spans
    whole = True
    for i in range(times.size):
        if states[i] != KEPT:
            whole = False
            continue
        stream, time = streams[i], times[i]
        if time <= watermark:
            states[i], whole = LATE, False
            if longest >= 0 and watermark < LAST and time >= watermark - longest:
                states[i], reached[i] = TARDY, watermark
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
    return watermark, whole


@kernel(allocates=False)
def _sift(keys, slots, root, size):
    """Restore the heap below a root: no slot comes before one of its parents'."""
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and less(*keys, slots[child], slots[child + 1]):
            child += 1
        if not less(*keys, slots[root], slots[child]):
            return
        slots[root], slots[child] = slots[child], slots[root]
        root = child


@kernel(allocates=False)
def sort_by_key(keys, slots):
    """Sort slots by their keys (heapsort, as ids have any length)."""
    for root in range(slots.size // 2 - 1, -1, -1):
        _sift(keys, slots, root, slots.size)
    for last in range(slots.size - 1, 0, -1):
        slots[0], slots[last] = slots[last], slots[0]
        _sift(keys, slots, 0, last)


@kernel(allocates=False)
def _logarithm(space):
    found = 0
    while space > 1:
        space >>= 1
        found += 1
    return found


@kernel(allocates=False, inner=True)
def link(adjacency, vertex, edge):
    """Add an edge to a vertex; the pool has space for a larger block."""
    attach(adjacency, vertex, edge, edge)


@kernel(allocates=False, inner=True)
def attach(adjacency, vertex, edge, entry):
    """Add an edge to a vertex by an entry whose lower 32 bits are its number."""
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
    adjacency.pool[adjacency.starts[vertex] + size] = entry
    adjacency.places[edge] = size
    adjacency.sizes[vertex] = size + 1


@kernel(allocates=False, inner=True)
def unlink(adjacency, vertex, edge):
    """Remove an edge from a vertex; the last one takes its place."""
    start, last = adjacency.starts[vertex], adjacency.sizes[vertex] - 1
    other = adjacency.pool[start + last]
    adjacency.pool[start + adjacency.places[edge]] = other
    adjacency.places[other & LOW] = adjacency.places[edge]
    adjacency.sizes[vertex] = last


@kernel(allocates=False, inner=True)
def fits(adjacency, vertex):
    return adjacency.used[0] + max(LEAST_SPACE, 2 * adjacency.spaces[vertex]) <= adjacency.pool.size


@kernel(allocates=False, inner=True)
def note(changes, at, record, op, element, name, kind, bits, old_kind, old_bits):
    changes.records[at], changes.ops[at], changes.elements[at], changes.names[at] = record, op, element, name
    changes.kinds[at], changes.bits[at] = kind, bits
    changes.old_kinds[at], changes.old_bits[at] = old_kind, old_bits
    return at + 1


@kernel(allocates=False, inner=True)
def add_vertex(vertices, vertex, changes, at, record):
    if vertices[vertex]:
        return at
    vertices[vertex] = True
    return note(changes, at, record, ADD_VERTEX, vertex, -1, NONE, 0, NONE, 0)


@kernel(allocates=False, inner=True)
def remove_edge(graph, edge, changes, at, record):
    source, target = graph.edges.sources[edge], graph.edges.targets[edge]
    graph.edges.alive[edge] = False
    unlink(graph.outgoing, source, edge)
    unlink(graph.incoming, target, edge)
    graph.of_edges.kinds[:, edge] = NONE
    return note(changes, at, record, REMOVE_EDGE, edge, -1, NONE, source, NONE, target)


@kernel(inner=True)
def edges_of(graph, keys, vertex):
    """Return the edges of a vertex in the order of their ids."""
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
    return found[:count]


@kernel
def _remove_vertex(graph, keys, vertex, changes, at, record):
    """Remove a vertex, after its edges in the order of their ids."""
    edges = edges_of(graph, keys, vertex)
    for i in range(edges.size):
        at = remove_edge(graph, edges[i], changes, at, record)
    graph.vertices[vertex] = False
    graph.of_vertices.kinds[:, vertex] = NONE
    return note(changes, at, record, REMOVE_VERTEX, vertex, -1, NONE, 0, NONE, 0)


@kernel(allocates=False)
def _set(attributes, op, element, records, update, changes, at, record):
    """Set or remove the attributes of an update."""
    for i in range(records.first_values[update], records.first_values[update + 1]):
        name, kind, bits = records.names[i], records.kinds[i], records.bits[i]
        old_kind, old_bits = attributes.kinds[name, element], attributes.bits[name, element]
        if kind == old_kind and (kind == NONE or bits == old_bits):
            continue
        attributes.kinds[name, element], attributes.bits[name, element] = kind, bits
        at = note(changes, at, record, op, element, name, kind, bits, old_kind, old_bits)
    return at


@kernel(allocates=False, inline="compiled")
def _apply(graph, records, keys, update, record, changes, at, counts):
    """Apply an update; return the number of changes."""
    op, element = records.ops[update], records.elements[update]
    if op == ADD_EDGE:
        source, target = records.sources[update], records.targets[update]
        edges = graph.edges
        if edges.alive[element] and (edges.sources[element] != source or edges.targets[element] != target):
            counts[CONFLICT] += 1
            return at
        at = add_vertex(graph.vertices, source, changes, at, record)
        at = add_vertex(graph.vertices, target, changes, at, record)
        if not edges.alive[element]:
            edges.sources[element], edges.targets[element], edges.alive[element] = source, target, True
            link(graph.outgoing, source, element)
            link(graph.incoming, target, element)
            at = note(changes, at, record, ADD_EDGE, element, -1, NONE, source, NONE, target)
        edges.seen[element] = records.times[record]
        return _set(graph.of_edges, SET_EDGE, element, records, update, changes, at, record)
    if op in (ADD_VERTEX, SET_VERTEX):
        at = add_vertex(graph.vertices, element, changes, at, record)
        return _set(graph.of_vertices, SET_VERTEX, element, records, update, changes, at, record)
    if op == HEARTBEAT:
        return at
    if not (graph.vertices[element] if op in (REMOVE_VERTEX, UNSET_VERTEX) else graph.edges.alive[element]):
        counts[UNKNOWN] += 1
        return at
    if op == REMOVE_EDGE:
        return remove_edge(graph, element, changes, at, record)
    if op == REMOVE_VERTEX:
        return _remove_vertex(graph, keys, element, changes, at, record)
    attributes = graph.of_vertices if op == UNSET_VERTEX else graph.of_edges
    return _set(attributes, op, element, records, update, changes, at, record)


@kernel(allocates=False, inner=True, inline="compiled")
def follow(graph, watches, changes, begin, end, flips, at):
    """Evaluate the predicates that some changes concern."""
    for i in range(begin, end):
        op, element, record = changes.ops[i], changes.elements[i], changes.records[i]
        if op == ADD_VERTEX:
            at = follow_vertex(graph, watches, element, NEW, record, flips, at)
        elif op == ADD_EDGE:
            at = follow_edge(graph, watches, element, NEW, record, flips, at)
        elif op == REMOVE_VERTEX:
            at = lose_vertex(graph, watches, element, record, flips, at)
        elif op == REMOVE_EDGE:
            at = lose_edge(watches, element, changes.bits[i], changes.old_bits[i], record, flips, at)
        elif op in (SET_VERTEX, UNSET_VERTEX):
            at = follow_vertex(graph, watches, element, changes.names[i], record, flips, at)
        else:
            at = follow_edge(graph, watches, element, changes.names[i], record, flips, at)
    return at


@kernel(allocates=False, inline="compiled")
def most_changes(graph, watches, records, update):
    """Return how many changes an update can make, and how many flips of predicates."""
    op, values = records.ops[update], records.first_values[update + 1] - records.first_values[update]
    vertices, edges = watches.vertices, watches.edges
    most, of_vertices, of_edges, flips = 3 + values, 0, 0, 0
    if op in (ADD_VERTEX, SET_VERTEX, UNSET_VERTEX, REMOVE_VERTEX):
        vertex, of_vertices = records.elements[update], 1 + values
        for adjacency in (graph.outgoing, graph.incoming):
            degree = adjacency.sizes[vertex]
            if op == REMOVE_VERTEX:
                most += degree
                for i in range(degree):
                    flips += edges.counts[adjacency.pool[adjacency.starts[vertex] + i]]
            # Edges whose ends must satisfy a predicate are evaluated again with each value.
            flips += degree * edges.depending * of_vertices
    elif op in (ADD_EDGE, SET_EDGE, UNSET_EDGE, REMOVE_EDGE):
        of_vertices, of_edges = 2 if op == ADD_EDGE else 0, 3 + values
        if op == ADD_EDGE and edges.depending:
            for vertex in (records.sources[update], records.targets[update]):
                flips += (graph.outgoing.sizes[vertex] + graph.incoming.sizes[vertex] + 1) * edges.depending
    return most, flips + of_vertices * vertices.ends.size + of_edges * edges.ends.size


@kernel(allocates=False)
def apply_updates(graph, records, of_updates, keys, watches, begin, out, used, counts):
    """Apply updates from `begin` on; return the first one for which there is no space.

    `of_updates` has the record of each update, `keys` the keys of edges as of `sort_by_key`, `out` the changes and the
    flips of predicates, and `used` how many there are of both.
    """
    changes, flips = out
    some = watches.vertices.ends.size + watches.edges.ends.size > 0
    for update in range(begin, records.ops.size):
        op, record = records.ops[update], of_updates[update]
        most, most_flips = most_changes(graph, watches, records, update)
        if used[0] + most > changes.ops.size or used[1] + most_flips > flips.states.size:
            return update
        if op == ADD_EDGE and not (
            fits(graph.outgoing, records.sources[update]) and fits(graph.incoming, records.targets[update])
        ):
            return update
        at = used[0]
        used[0] = _apply(graph, records, keys, update, record, changes, at, counts)
        if some:
            used[1] = follow(graph, watches, changes, at, used[0], flips, used[1])
            edge = records.elements[update]
            if op == ADD_EDGE and graph.edges.seen[edge] == records.times[record]:
                used[1] = renew_edge(graph, watches, edge, record, flips, used[1])
    return records.ops.size


@kernel(allocates=False)
def follow_all(graph, watches, flips, begin):
    """Evaluate all predicates for vertices, then edges, from `begin` on.

    Return the first one for which there is no space, and the number of flips.
    """
    vertices, at = graph.vertices.size, 0
    for element in range(begin, vertices + graph.edges.alive.size):
        edge = element - vertices
        if at + (watches.edges if edge >= 0 else watches.vertices).ends.size > flips.states.size:
            return element, at
        if edge < 0 and graph.vertices[element]:
            at = begin_vertex(graph, watches, element, flips, at)
        elif edge >= 0 and graph.edges.alive[edge]:
            at = follow_edge(graph, watches, edge, EVERYTHING, 0, flips, at)
    return vertices + graph.edges.alive.size, at

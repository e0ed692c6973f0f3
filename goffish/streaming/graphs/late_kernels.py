"""Changes by records that may be late: each one that is newer than what it would overwrite has an effect.

Stamps are times, ranks of streams, sequence numbers, and streams; columns of them have no ranks.
"""

from __future__ import annotations

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import (
    CONFLICT,
    UNKNOWN,
    add_vertex,
    edges_of,
    fits,
    follow,
    link,
    most_changes,
    note,
    remove_edge,
)
from goffish.streaming.graphs.predicate_kernels import renew_edge
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

#: Counters: updates without effect as they are older, and those of one update that were.
STALE, LOST = 0, 1


@kernel(allocates=False)
def _stamp(column, at, ranks):
    return column[at, 0], ranks[column[at, 1]], column[at, 2], column[at, 1]


@kernel(allocates=False)
def _named(column, name, at, ranks):
    return column[name, at, 0], ranks[column[name, at, 1]], column[name, at, 2], column[name, at, 1]


@kernel(allocates=False)
def _keep(column, at, stamp, ranks):
    """Keep the newer one of two stamps."""
    if _stamp(column, at, ranks) < stamp:
        column[at, 0], column[at, 1], column[at, 2] = stamp[0], stamp[3], stamp[2]


@kernel(allocates=False)
def _put(column, at, stamp):
    column[at, 0], column[at, 1], column[at, 2] = stamp[0], stamp[3], stamp[2]


@kernel(allocates=False)
def _removal(graph, written, edge, ranks):
    """Return when an edge that exists, or one of its ends, was last removed."""
    return _removal_of(written, edge, graph.edges.sources[edge], graph.edges.targets[edge], ranks)


@kernel(allocates=False)
def _removal_of(written, edge, source, target, ranks):
    found = _stamp(written.removed_edges, edge, ranks)
    for vertex in (source, target):
        other = _stamp(written.removed_vertices, vertex, ranks)
        if found < other:  # noqa: PLR1730 - numba has no max of tuples
            found = other
    return found


@kernel(allocates=False)
def _unset(attributes, op, element, name, changes, at, record):
    kind = attributes.kinds[name, element]
    attributes.kinds[name, element] = NONE
    return note(changes, at, record, op, element, name, NONE, 0, kind, attributes.bits[name, element])


@kernel(allocates=False)
def _lose_edge(graph, written, edge, now, changes, at):
    """Remove an edge, or what is older than its removal."""
    stamp, ranks, record = now
    attributes, hidden = graph.of_edges, written.hidden
    for name in range(hidden.kinds.shape[0]):
        if hidden.kinds[name, edge] != NONE and _named(written.of_edges, name, edge, ranks) <= stamp:
            hidden.kinds[name, edge] = NONE
    if not graph.edges.alive[edge]:
        return at
    if _stamp(written.last, edge, ranks) <= stamp:
        for name in range(attributes.kinds.shape[0]):  # those that were set later wait for the edge
            if attributes.kinds[name, edge] != NONE and _named(written.of_edges, name, edge, ranks) > stamp:
                hidden.kinds[name, edge] = attributes.kinds[name, edge]
                hidden.bits[name, edge] = attributes.bits[name, edge]
        return remove_edge(graph, edge, changes, at, record)
    _keep(written.born, edge, stamp, ranks)  # it was added anew after that, at a time that is not remembered
    for name in range(attributes.kinds.shape[0]):
        if attributes.kinds[name, edge] != NONE and _named(written.of_edges, name, edge, ranks) <= stamp:
            at = _unset(attributes, UNSET_EDGE, edge, name, changes, at, record)
    return at


@kernel
def _lose_vertex(graph, written, keys, vertex, now, changes, at):
    """Remove a vertex after its edges, or what of them is older than the removal."""
    stamp, ranks, record = now
    edges = edges_of(graph, keys, vertex)
    for i in range(edges.size):
        at = _lose_edge(graph, written, edges[i], now, changes, at)
    attributes = graph.of_vertices
    if _stamp(written.added, vertex, ranks) <= stamp:
        graph.vertices[vertex] = False
        attributes.kinds[:, vertex] = NONE
        return note(changes, at, record, REMOVE_VERTEX, vertex, -1, NONE, 0, NONE, 0)
    for name in range(attributes.kinds.shape[0]):
        if attributes.kinds[name, vertex] != NONE and _named(written.of_vertices, name, vertex, ranks) <= stamp:
            at = _unset(attributes, UNSET_VERTEX, vertex, name, changes, at, record)
    return at


@kernel(allocates=False)
def _set(attributes, column, lost, element, records, update, now, changes, at):
    """Set or remove the attributes of an update that are not newer."""
    stamp, ranks, record = now
    op = SET_VERTEX if records.ops[update] == ADD_VERTEX else records.ops[update]
    op = SET_EDGE if op == ADD_EDGE else op
    for i in range(records.first_values[update], records.first_values[update + 1]):
        name, kind, bits = records.names[i], records.kinds[i], records.bits[i]
        if _named(column, name, element, ranks) > stamp:
            lost[LOST] += 1
            continue
        column[name, element, 0], column[name, element, 1], column[name, element, 2] = stamp[0], stamp[3], stamp[2]
        old_kind, old_bits = attributes.kinds[name, element], attributes.bits[name, element]
        if kind == old_kind and (kind == NONE or bits == old_bits):
            continue
        attributes.kinds[name, element], attributes.bits[name, element] = kind, bits
        at = note(changes, at, record, op, element, name, kind, bits, old_kind, old_bits)
    return at


@kernel(allocates=False)
def _set_of_edge(graph, written, records, update, now, changes, at):
    """Set or remove attributes of an edge, or keep them until a record adds the edge at an earlier time."""
    stamp, ranks, _ = now
    edge, hidden = records.elements[update], written.hidden
    if graph.edges.alive[edge] and _stamp(written.born, edge, ranks) <= stamp:
        at = _set(graph.of_edges, written.of_edges, written.counts, edge, records, update, now, changes, at)
        for i in range(records.first_values[update], records.first_values[update + 1]):
            if _named(written.of_edges, records.names[i], edge, ranks) == stamp:
                hidden.kinds[records.names[i], edge] = NONE
        return at
    return _set(hidden, written.of_edges, written.counts, edge, records, update, now, changes, at)


@kernel(allocates=False)
def _add_edge(graph, written, records, update, now, moment, changes, at, counts):
    stamp, ranks, record = now
    edge, source, target = records.elements[update], records.sources[update], records.targets[update]
    edges = graph.edges
    if edges.alive[edge] and (edges.sources[edge] != source or edges.targets[edge] != target):
        counts[CONFLICT] += 1
        return at
    for vertex in (source, target):
        if _stamp(written.removed_vertices, vertex, ranks) <= stamp:
            _keep(written.added, vertex, stamp, ranks)
            at = add_vertex(graph.vertices, vertex, changes, at, record)
    removal = _removal_of(written, edge, source, target, ranks)
    if stamp < removal:
        written.counts[LOST] += 1
        return at
    is_new = not edges.alive[edge]
    if is_new:
        edges.sources[edge], edges.targets[edge], edges.alive[edge] = source, target, True
        link(graph.outgoing, source, edge)
        link(graph.incoming, target, edge)
        at = note(changes, at, record, ADD_EDGE, edge, -1, NONE, source, NONE, target)
    if is_new or _stamp(written.last, edge, ranks) <= stamp:
        _put(written.last, edge, stamp)
        edges.seen[edge] = moment
    if is_new or stamp < _stamp(written.born, edge, ranks):
        _put(written.born, edge, stamp)
        attributes, hidden = graph.of_edges, written.hidden
        for name in range(hidden.kinds.shape[0]):  # what was set between this record and others
            kind, set_at = hidden.kinds[name, edge], _named(written.of_edges, name, edge, ranks)
            if kind != NONE and set_at > stamp and set_at > removal:
                attributes.kinds[name, edge], attributes.bits[name, edge] = kind, hidden.bits[name, edge]
                hidden.kinds[name, edge] = NONE
                at = note(changes, at, record, SET_EDGE, edge, name, kind, hidden.bits[name, edge], NONE, 0)
    return _set_of_edge(graph, written, records, update, now, changes, at)


@kernel
def _apply(graph, written, records, keys, update, now, moment, changes, at, counts):
    """Apply what is newer of an update; return the number of changes."""
    stamp, ranks, _ = now
    op, element = records.ops[update], records.elements[update]
    if op == HEARTBEAT:
        return at
    if op == ADD_EDGE:
        return _add_edge(graph, written, records, update, now, moment, changes, at, counts)
    if op in (ADD_VERTEX, SET_VERTEX, UNSET_VERTEX, REMOVE_VERTEX):
        exists = graph.vertices[element]
        if not exists and op in (UNSET_VERTEX, REMOVE_VERTEX):
            counts[UNKNOWN] += 1
        if op == REMOVE_VERTEX:
            _keep(written.removed_vertices, element, stamp, ranks)
            if not exists:
                return at
            written.counts[LOST] += stamp < _stamp(written.added, element, ranks)
            return _lose_vertex(graph, written, keys, element, now, changes, at)
        if stamp < _stamp(written.removed_vertices, element, ranks):
            written.counts[LOST] += 1
            return at
        if op != UNSET_VERTEX:
            _keep(written.added, element, stamp, ranks)
            at = add_vertex(graph.vertices, element, changes, at, now[2])
        return _set(
            graph.of_vertices, written.of_vertices, written.counts, element, records, update, now, changes, at
        )  # fmt: skip
    exists = graph.edges.alive[element]
    if not exists:
        counts[UNKNOWN] += 1
    if op == REMOVE_EDGE:
        _keep(written.removed_edges, element, stamp, ranks)
        written.counts[LOST] += exists and stamp < _stamp(written.last, element, ranks)
        return _lose_edge(graph, written, element, now, changes, at)
    removal = _stamp(written.removed_edges, element, ranks)
    if exists:
        removal = _removal(graph, written, element, ranks)
    if stamp < removal:
        written.counts[LOST] += 1
        return at
    return _set_of_edge(graph, written, records, update, now, changes, at)


@kernel(allocates=False)
def most_late_changes(graph, watches, records, update):
    """Return how many changes an update can make, and how many flips of predicates."""
    most, flips = most_changes(graph, watches, records, update)
    op, names = records.ops[update], graph.of_edges.kinds.shape[0]
    of_edges = names if op in (ADD_EDGE, REMOVE_EDGE) else 0
    of_vertices = 0
    if op == REMOVE_VERTEX:
        vertex, of_vertices = records.elements[update], graph.of_vertices.kinds.shape[0]
        degree = graph.outgoing.sizes[vertex] + graph.incoming.sizes[vertex]
        of_edges = names * degree
        flips += of_vertices * degree * watches.edges.depending
    most += of_edges + of_vertices
    return most, flips + of_vertices * watches.vertices.ends.size + of_edges * watches.edges.ends.size


@kernel
def apply_late_updates(graph, written, records, given, keys, watches, begin, out, used, counts):
    """Apply updates from `begin` on, as `kernels.apply_updates`.

    `given` has the record of each update, the event times of records, and the ranks of streams.
    """
    (changes, flips), (of_updates, moments, ranks) = out, given
    some = watches.vertices.ends.size + watches.edges.ends.size > 0
    for update in range(begin, records.ops.size):
        op, record = records.ops[update], of_updates[update]
        most, most_flips = most_late_changes(graph, watches, records, update)
        if used[0] + most > changes.ops.size or used[1] + most_flips > flips.states.size:
            return update
        if op == ADD_EDGE and not (
            fits(graph.outgoing, records.sources[update]) and fits(graph.incoming, records.targets[update])
        ):
            return update
        stream = records.streams[record]
        stamp = moments[record], ranks[stream], records.seqs[record], stream
        at, written.counts[LOST] = used[0], 0
        used[0] = _apply(
            graph, written, records, keys, update, (stamp, ranks, record), moments[record], changes, at, counts
        )
        written.counts[STALE] += used[0] == at and written.counts[LOST] > 0
        if some:
            used[1] = follow(graph, watches, changes, at, used[0], flips, used[1])
            edge = records.elements[update]
            if op == ADD_EDGE and graph.edges.alive[edge] and _stamp(written.last, edge, ranks) == stamp:
                used[1] = renew_edge(graph, watches, edge, record, flips, used[1])
    return records.ops.size

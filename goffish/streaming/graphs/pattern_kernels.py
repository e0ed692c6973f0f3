"""Answers of queries, kept up to date with what they see.

Answers are compared at observations: when one begins, the answers that were touched since the last one are looked at.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import copy_values, stable_order
from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import link, unlink

#: What a query sees of an edge; the next numbers are those of vertices by role: not any more, and from now on.
EDGE_OFF, EDGE_ON = 0, 1
#: Values of the first measured attribute of vertices; those of others follow.
VALUE = EDGE_ON + 5
#: Moves of vertices from one cluster to another one, by the topic that the pattern follows: this one, or one less.
MOVE = -1
#: Sides of the edges of a vertex.
OUTGOING, INCOMING = 1, 2
#: Hops to a vertex that is not reached.
FAR = np.int32(2**31 - 1)
_ROW = np.int64(1) << 32


# Lists that grow.


@kernel(inner=True)
def doubled(column):
    found = np.empty(max(16, 2 * column.size), column.dtype)
    copy_values(found, column)
    return found


@kernel(inner=True)
def touch(touched, key, old):
    """Note an answer and its value, which only counts if it is the first one since the last observation."""
    keys, olds, count = touched
    if count == keys.size:
        keys, olds = doubled(keys), doubled(olds)
    keys[count], olds[count] = key, old
    return keys, olds, count + 1


@kernel
def _find(found, observation, opens, key, value):
    """Note that an answer is new, or is none any more."""
    observations, opening, keys, values, count = found
    if count == keys.size:
        observations, opening, keys, values = (
            doubled(observations), doubled(opening), doubled(keys), doubled(values)
        )  # fmt: skip
    observations[count], opening[count], keys[count], values[count] = observation, opens, key, value
    return observations, opening, keys, values, count + 1


@kernel
def _first_touches(touched):
    """Return the places of the answers that were touched, each at its first value."""
    keys, _, count = touched
    if count == 1:
        return np.zeros(1, np.int64)
    order = stable_order(keys[:count])
    size = 0
    for i in range(count):
        if i == 0 or keys[order[i]] != keys[order[i - 1]]:
            order[size] = order[i]
            size += 1
    return order[:size]


# Elements that match.


@kernel
def _observe_matches(current, held, ends, touched, found, observation):
    for i in _first_touches(touched):
        element = touched[0][i]
        if current[element] != held[element]:
            held[element] = current[element]
            found = _find(found, observation, current[element], element, ends[element] if ends.size else 0)
    return found


@kernel
def match(deltas, current, held, ends, touched, found, observation, whole):
    """Follow elements, and the ends of edges; return what is touched and found."""
    for i in range(deltas.kinds.size + whole):
        over = i == deltas.kinds.size
        if over or deltas.begins[i]:  # in one place, as it is large
            if touched[2]:
                found = _observe_matches(current, held, ends, touched, found, observation)
                touched = touched[0], touched[1], 0
            observation += 1
        if over:
            break
        current[deltas.elements[i]] = deltas.kinds[i] & 1
        if ends.size:
            ends[deltas.elements[i]] = deltas.sources[i] * _ROW + deltas.targets[i]
        touched = touch(touched, deltas.elements[i], 0)
    return touched, found


# Degrees.


@kernel(allocates=False, inner=True)
def parallel_edge(net, edge, u, v):
    """Return another edge from a vertex to another one, or -1."""
    if net.outgoing.sizes[u] <= net.incoming.sizes[v]:
        for i in range(net.outgoing.sizes[u]):
            other = net.outgoing.pool[net.outgoing.starts[u] + i]
            if other != edge and net.targets[other] == v:
                return other
        return -1
    for i in range(net.incoming.sizes[v]):
        other = net.incoming.pool[net.incoming.starts[v] + i]
        if other != edge and net.sources[other] == u:
            return other
    return -1


@kernel(inline="compiled")
def _count_edge(net, degrees, rule, edge, u, v, change, touched):
    """Count an edge that has come or is to go."""
    if rule.distinct:
        known = u == v or parallel_edge(net, edge, u, v) >= 0
        if known or (rule.sides == OUTGOING | INCOMING and parallel_edge(net, edge, v, u) >= 0):
            return touched
    if rule.sides & OUTGOING:
        touched = touch(touched, u, 0)
        degrees[u] += change
    if rule.sides & INCOMING:
        touched = touch(touched, v, 0)
        degrees[v] += change
    return touched


@kernel
def _accepts(rule, degree):
    sign = (degree > rule.bound) - (degree < rule.bound)
    return (sign == 0 and rule.equal) or (sign < 0 and rule.less) or (sign > 0 and rule.more)


@kernel
def _observe_degrees(degrees, chosen, held, rule, touched, found, observation):
    """Look at degrees; `held` has that of an answer, or -1."""
    for i in _first_touches(touched):
        vertex = touched[0][i]
        degree, old = degrees[vertex], held[vertex]
        holds = chosen[vertex] and (_accepts(rule, degree) or (old >= 0 and degree >= rule.clear))
        held[vertex] = degree if holds else -1
        if holds != (old >= 0):
            found = _find(found, observation, holds, vertex, degree if holds else old)
    return found


@kernel
def degree(deltas, net, degrees, chosen, held, rule, touched, found, observation, whole):
    """Follow degrees; return what is touched and found."""
    for i in range(deltas.kinds.size + whole):
        over = i == deltas.kinds.size
        if over or deltas.begins[i]:
            if touched[2]:
                found = _observe_degrees(degrees, chosen, held, rule, touched, found, observation)
                touched = touched[0], touched[1], 0
            observation += 1
        if over:
            break
        kind, element = deltas.kinds[i], deltas.elements[i]
        if kind > EDGE_ON:
            chosen[element] = kind & 1
            touched = touch(touched, element, 0)
            continue
        u, v = deltas.sources[i], deltas.targets[i]
        if kind == EDGE_OFF and rule.distinct:
            unlink(net.outgoing, u, element)
            unlink(net.incoming, v, element)
        touched = _count_edge(net, degrees, rule, element, u, v, 1 if kind == EDGE_ON else -1, touched)
        if kind == EDGE_ON and rule.distinct:
            net.sources[element], net.targets[element] = u, v
            link(net.outgoing, u, element)
            link(net.incoming, v, element)
    return touched, found


# Distances from sources.


@kernel
def _set_hops(hops, row, vertex, value, sinks, touched):
    """Change the hops from a source to a vertex."""
    if sinks.chosen[vertex] and sinks.groups[vertex] >= 0:
        touched = touch(touched, row * _ROW + sinks.groups[vertex], 0)
    hops[row, vertex] = value
    return touched


@kernel
def _relax(net, hops, row, sinks, rule, candidates, distances, touched):
    """Bring vertices nearer that candidates, ordered by their new distances, are reached by."""
    queue = np.empty(16, np.int64)
    first, last, at = 0, 0, 0
    while first < last or at < candidates.size:
        if at < candidates.size and (first == last or distances[at] <= hops[row, queue[first]]):
            vertex, distance = candidates[at], distances[at]
            at += 1
            if distance >= hops[row, vertex] or distance > rule.most:
                continue
            touched = _set_hops(hops, row, vertex, distance, sinks, touched)
        else:
            vertex = queue[first]
            distance = hops[row, vertex]
            first += 1
        if distance >= rule.most:
            continue
        for side in range(2):
            if not rule.sides >> side & 1:
                continue
            adjacency = (net.outgoing, net.incoming)[side]
            for i in range(adjacency.sizes[vertex]):
                edge = adjacency.pool[adjacency.starts[vertex] + i]
                other = net.sources[edge] + net.targets[edge] - vertex
                if distance + 1 < hops[row, other]:
                    touched = _set_hops(hops, row, other, distance + 1, sinks, touched)
                    if last == queue.size:
                        queue = doubled(queue)
                    queue[last] = other
                    last += 1
    return touched


@kernel(allocates=False)
def _supported(net, hops, row, vertex, back, losing):
    """Whether a vertex is a source, or has a neighbor that is one hop nearer and stays where it is."""
    distance = hops[row, vertex]
    if distance == 0:
        return True
    for side in range(2):
        if not back >> side & 1:
            continue
        adjacency = (net.outgoing, net.incoming)[side]
        for i in range(adjacency.sizes[vertex]):
            edge = adjacency.pool[adjacency.starts[vertex] + i]
            other = net.sources[edge] + net.targets[edge] - vertex
            if not losing[other] and hops[row, other] + 1 == distance:
                return True
    return False


@kernel
def _shrink(net, hops, row, sinks, rule, vertex, losing, touched):
    """Let a vertex go that has lost its last shortest path, with all that depend on it, and reach them anew."""
    sides = rule.sides
    back = (sides & OUTGOING) << 1 | (sides & INCOMING) >> 1
    gone = np.empty(16, np.int64)
    gone[0], size, at = vertex, 1, 0
    losing[vertex] = True
    while at < size:
        one = gone[at]
        at += 1
        for side in range(2):
            if not sides >> side & 1:
                continue
            adjacency = (net.outgoing, net.incoming)[side]
            for i in range(adjacency.sizes[one]):
                edge = adjacency.pool[adjacency.starts[one] + i]
                other = net.sources[edge] + net.targets[edge] - one
                if losing[other] or hops[row, other] != hops[row, one] + 1:
                    continue
                if _supported(net, hops, row, other, back, losing):
                    continue
                losing[other] = True
                if size == gone.size:
                    gone = doubled(gone)
                gone[size] = other
                size += 1
    for i in range(size):
        touched = _set_hops(hops, row, gone[i], FAR, sinks, touched)
    candidates, distances, count = np.empty(size, np.int64), np.empty(size, np.int32), 0
    for i in range(size):
        losing[gone[i]] = False
        nearest = FAR
        for side in range(2):
            if not back >> side & 1:
                continue
            adjacency = (net.outgoing, net.incoming)[side]
            for j in range(adjacency.sizes[gone[i]]):
                edge = adjacency.pool[adjacency.starts[gone[i]] + j]
                nearest = min(nearest, hops[row, net.sources[edge] + net.targets[edge] - gone[i]])
        if nearest < rule.most:
            candidates[count], distances[count] = gone[i], nearest + 1
            count += 1
    order = stable_order(distances[:count])
    return _relax(net, hops, row, sinks, rule, candidates[:count][order], distances[:count][order], touched)


@kernel(allocates=False)
def _moves(net, state, row, rule, u, v, kind):
    """Whether an arc that has come or gone brings its end nearer to a source, or farther away."""
    hops = state.hops
    if kind == EDGE_ON:
        return hops[row, u] < min(rule.most, hops[row, v] - 1)
    if hops[row, v] == FAR or hops[row, u] + 1 != hops[row, v]:
        return False
    sides = rule.sides
    return not _supported(net, hops, row, v, (sides & OUTGOING) << 1 | (sides & INCOMING) >> 1, state.losing)


@kernel
def _follow_arc(net, state, row, rule, u, v, kind, touched):
    """Follow an arc that has come or gone, and moves its end."""
    if kind == EDGE_OFF:
        return _shrink(net, state.hops, row, state.sinks, rule, v, state.losing, touched)
    candidates, distances = np.empty(1, np.int64), np.empty(1, np.int32)
    candidates[0], distances[0] = v, state.hops[row, u] + 1
    return _relax(net, state.hops, row, state.sinks, rule, candidates, distances, touched)


# Groups of sources and sinks.


@kernel(allocates=False)
def _join_group(side, vertex, group):
    side.groups[vertex] = group
    if group >= 0:
        first = side.firsts[group]
        side.following[vertex], side.preceding[vertex] = first, -1
        if first >= 0:
            side.preceding[first] = vertex
        side.firsts[group] = vertex


@kernel(allocates=False)
def _leave_group(side, vertex):
    group = side.groups[vertex]
    if group >= 0:
        before, after = side.preceding[vertex], side.following[vertex]
        if before >= 0:
            side.following[before] = after
        else:
            side.firsts[group] = after
        if after >= 0:
            side.preceding[after] = before
    side.groups[vertex] = -1


@kernel
def _begin_source(net, state, rule, vertex, touched):
    """Find what a new source reaches; others of its group may reach that already."""
    group = state.sources.groups[vertex]
    row = state.rows[group]
    if row < 0:
        row = state.free[0]
        state.free[0] = state.of_rows[row]
        state.of_rows[row], state.rows[group], state.used[row], state.seeds[row] = group, row, True, 0
    state.seeds[row] += 1
    candidates, distances = np.empty(1, np.int64), np.zeros(1, np.int32)
    candidates[0] = vertex
    return _relax(net, state.hops, row, state.sinks, rule, candidates, distances, touched)


@kernel
def _end_source(net, state, rule, vertex, touched):
    """Forget what a vertex reached that is no source any more."""
    row = state.rows[state.sources.groups[vertex]]
    state.seeds[row] -= 1
    if state.seeds[row]:
        return _shrink(net, state.hops, row, state.sinks, rule, vertex, state.losing, touched)
    for other in range(state.losing.size):
        if state.hops[row, other] != FAR:
            touched = _set_hops(state.hops, row, other, FAR, state.sinks, touched)
    return touched


@kernel
def _touch_sink(state, vertex, touched):
    """Note that the group of a sink has another member, or one less."""
    group = state.sinks.groups[vertex]
    for row in range(state.used.size if group >= 0 else 0):
        if state.hops[row, vertex] != FAR:
            touched = touch(touched, row * _ROW + group, 0)
    return touched


@kernel
def _list_members(listed, side, group, most):
    """Add the members of a group, unless there are too many."""
    vertices, count = listed
    begin, vertex = count, side.firsts[group]
    while vertex >= 0:
        if count - begin == most:
            return vertices, begin
        if count == vertices.size:
            vertices = doubled(vertices)
        vertices[count] = vertex
        count += 1
        vertex = side.following[vertex]
    return vertices, count


@kernel
def _observe_hops(state, rule, touched, found, listed, ends, observation):
    """Look at pairs of groups; a value is that with which an answer begins, or held at last.

    `ends` has for each answer the end of its vertices in `listed`.
    """
    sources, sinks = state.sources, state.sinks
    for i in _first_touches(touched):
        row, group = touched[0][i] // _ROW, touched[0][i] % _ROW
        source, now, old = state.of_rows[row], FAR, state.held[row, group]
        if not (rule.alike and source == group):
            vertex = sinks.firsts[group]
            while vertex >= 0:
                if sinks.chosen[vertex]:
                    now = min(now, state.hops[row, vertex])
                vertex = sinks.following[vertex]
        state.held[row, group] = now
        if (now == FAR) == (old == FAR):
            continue
        found = _find(found, observation, now != FAR, source * _ROW + group, now if now != FAR else old)
        if rule.lists:
            listed = _list_members(listed, sources, source, rule.lists)
            listed = _list_members(listed, sinks, group, rule.lists)
            if found[4] > ends.size:
                ends = doubled(ends)
            ends[found[4] - 1] = listed[1]
    return found, listed, ends


@kernel(allocates=False)
def _free_rows(state):
    """Let rows go whose groups have no source any more."""
    for row in range(state.used.size):
        if state.used[row] and not state.seeds[row]:
            state.rows[state.of_rows[row]] = -1
            state.of_rows[row], state.used[row], state.free[0] = state.free[0], False, row


@kernel
def _move(net, state, rule, vertex, is_source, group, touched):
    """Follow a vertex from one group to another one."""
    side = state.sources if is_source else state.sinks
    chosen, had = side.chosen[vertex], side.groups[vertex] >= 0
    if chosen and had and is_source:
        touched = _end_source(net, state, rule, vertex, touched)
    if chosen and had and not is_source:
        touched = _touch_sink(state, vertex, touched)
    _leave_group(side, vertex)
    _join_group(side, vertex, group)
    if chosen and group >= 0 and is_source:
        touched = _begin_source(net, state, rule, vertex, touched)
    if chosen and group >= 0 and not is_source:
        touched = _touch_sink(state, vertex, touched)
    return touched


@kernel
def _choose(net, state, rule, vertex, is_source, comes, touched):
    """Note that a vertex may be a source or a sink from now on, or not any more."""
    side = state.sources if is_source else state.sinks
    side.chosen[vertex] = comes
    if not is_source:
        return _touch_sink(state, vertex, touched)
    if side.groups[vertex] < 0:
        return touched
    if comes:
        return _begin_source(net, state, rule, vertex, touched)
    return _end_source(net, state, rule, vertex, touched)


@kernel(allocates=False)
def _pass_over(deltas, net, state, rule, at, observation, idle):
    """Change the net, and go on while that changes no hops if no answer is touched; return where, and the observation.

    Only allocating kernels count references to arrays, which takes longer than all of this.
    """
    for i in range(at, deltas.kinds.size):
        if i > at and deltas.begins[i]:
            observation += 1
        kind, element, u, v = deltas.kinds[i], deltas.elements[i], deltas.sources[i], deltas.targets[i]
        if kind == EDGE_ON:
            net.sources[element], net.targets[element] = u, v
            link(net.outgoing, u, element)
            link(net.incoming, v, element)
        elif kind == EDGE_OFF:
            unlink(net.outgoing, u, element)
            unlink(net.incoming, v, element)
        else:
            return i, observation
        if not idle:
            return i, observation
        for row in range(state.used.size):
            if state.used[row] and state.seeds[row]:
                if rule.sides & OUTGOING and _moves(net, state, row, rule, u, v, kind):
                    return i, observation
                if rule.sides & INCOMING and _moves(net, state, row, rule, v, u, kind):
                    return i, observation
    return deltas.kinds.size, observation


@kernel
def distances(deltas, net, state, rule, touched, made, observation, whole):
    """Follow the hops from sources (the first role) to sinks (the second one); return what is touched and found.

    Sources and sinks are groups of vertices: each vertex for itself, or the members of a cluster.
    """
    found, listed, ends = made
    i = 0
    while i < deltas.kinds.size + whole:
        over = i == deltas.kinds.size
        if over or deltas.begins[i]:
            if touched[2]:
                found, listed, ends = _observe_hops(state, rule, touched, found, listed, ends, observation)
                touched = touched[0], touched[1], 0
            if state.counts[0]:
                _free_rows(state)
                state.counts[0] = 0
            observation += 1
        if over:
            break
        i, observation = _pass_over(deltas, net, state, rule, i, observation, touched[2] == state.counts[0] == 0)
        if i == deltas.kinds.size:
            continue
        kind, element, u, v = deltas.kinds[i], deltas.elements[i], deltas.sources[i], deltas.targets[i]
        i += 1
        if kind < 0:
            state.counts[0] = 1
            touched = _move(net, state, rule, element, kind == MOVE, v, touched)
        elif kind > EDGE_ON:
            state.counts[0] = 1
            touched = _choose(net, state, rule, element, kind <= EDGE_ON + 2, kind & 1 == 1, touched)
        else:
            for row in range(state.used.size):
                for side in range(2 if state.used[row] and state.seeds[row] else 0):
                    one, other = (u, v) if side == 0 else (v, u)
                    if rule.sides >> side & 1 and _moves(net, state, row, rule, one, other, kind):
                        touched = _follow_arc(net, state, row, rule, one, other, kind, touched)
    return touched, (found, listed, ends)

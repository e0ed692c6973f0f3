"""Answers of queries, kept up to date with what they see.

Answers are compared at observations: when one begins, the answers that were touched since the last one are looked at.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import link, unlink

#: What a query sees of an edge; the next numbers are those of vertices by role: not any more, and from now on.
EDGE_OFF, EDGE_ON = 0, 1
#: Sides of the edges of a vertex.
OUTGOING, INCOMING = 1, 2
#: Hops to a vertex that is not reached.
FAR = np.int32(2**31 - 1)
_ROW = np.int64(1) << 32


# Lists that grow.


@kernel
def _longer(column):
    found = np.empty(max(16, 2 * column.size), column.dtype)
    found[: column.size] = column
    return found


@kernel
def touch(touched, key, old):
    """Note an answer and its value, which only counts if it is the first one since the last observation."""
    keys, olds, count = touched
    if count == keys.size:
        keys, olds = _longer(keys), _longer(olds)
    keys[count], olds[count] = key, old
    return keys, olds, count + 1


@kernel
def _find(found, observation, opens, key, value):
    """Note that an answer is new, or is none any more."""
    observations, opening, keys, values, count = found
    if count == keys.size:
        observations, opening, keys, values = (
            _longer(observations), _longer(opening), _longer(keys), _longer(values)
        )  # fmt: skip
    observations[count], opening[count], keys[count], values[count] = observation, opens, key, value
    return observations, opening, keys, values, count + 1


@kernel
def _first_touches(touched):
    """Return the places of the answers that were touched, each at its first value."""
    keys, _, count = touched
    if count == 1:
        return np.zeros(1, np.int64)
    order = np.argsort(keys[:count], kind="mergesort")
    size = 0
    for i in range(count):
        if i == 0 or keys[order[i]] != keys[order[i - 1]]:
            order[size] = order[i]
            size += 1
    return order[:size]


# Windows.


@kernel
def _push(timers, time, edge):
    times, edges, count = timers
    if count == times.size:
        times, edges = _longer(times), _longer(edges)
    at = count
    while at and times[(at - 1) >> 1] > time:
        times[at], edges[at] = times[(at - 1) >> 1], edges[(at - 1) >> 1]
        at = (at - 1) >> 1
    times[at], edges[at] = time, edge
    return times, edges, count + 1


@kernel
def _pop(timers):
    """Remove the first timer."""
    times, edges, count = timers
    count -= 1
    time, edge, at = times[count], edges[count], 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[at], edges[at] = times[child], edges[child]
        at = child
    times[at], edges[at] = time, edge
    return times, edges, count


@kernel
def _see(made, flip, time, kind, element, source, target):
    flips, times, kinds, elements, sources, targets, count = made
    if count == flips.size:
        flips, times, kinds, elements = _longer(flips), _longer(times), _longer(kinds), _longer(elements)
        sources, targets = _longer(sources), _longer(targets)
    flips[count], times[count], kinds[count], elements[count] = flip, time, kind, element
    sources[count], targets[count] = source, target
    return flips, times, kinds, elements, sources, targets, count + 1


@kernel
def _expire(window, until, timers, made):
    """Let the edges go whose time has come."""
    while timers[2] and timers[0][0] <= until:
        time, edge = timers[0][0], timers[1][0]
        timers = _pop(timers)
        if window.live[edge] and window.seen[edge] + window.span == time:  # and not of an edge that was seen again
            window.live[edge] = False
            made = _see(made, -1, time, EDGE_OFF, edge, window.sources[edge], window.targets[edge])
    return timers, made


@kernel
def slide(flips, kinds, times, window, until, timers, made):
    """Insert the expirations of edges between what else has changed, until a time.

    Each row of `made` is a flip (or -1), the time, the kind, the element, and the ends of an edge.
    """
    for i in range(kinds.size):
        timers, made = _expire(window, times[i], timers, made)
        kind, edge = kinds[i], flips.elements[i]
        if kind > EDGE_ON:
            made = _see(made, i, times[i], kind, edge, -1, -1)
            continue
        comes = flips.states[i] != 0
        if comes:
            window.seen[edge], window.sources[edge], window.targets[edge] = (
                flips.seen[i], flips.sources[i], flips.targets[i],
            )  # fmt: skip
            comes = window.seen[edge] + window.span > times[i]
        if comes:
            timers = _push(timers, window.seen[edge] + window.span, edge)
        if comes != window.live[edge]:
            window.live[edge] = comes
            kind = EDGE_ON if comes else EDGE_OFF
            made = _see(made, i, times[i], kind, edge, flips.sources[i], flips.targets[i])
    return _expire(window, until, timers, made)


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
    for i in range(deltas.kinds.size):
        if deltas.begins[i]:
            if touched[2]:
                found = _observe_matches(current, held, ends, touched, found, observation)
                touched = touched[0], touched[1], 0
            observation += 1
        current[deltas.elements[i]] = deltas.kinds[i] & 1
        if ends.size:
            ends[deltas.elements[i]] = deltas.sources[i] * _ROW + deltas.targets[i]
        touched = touch(touched, deltas.elements[i], 0)
    if whole and touched[2]:
        found = _observe_matches(current, held, ends, touched, found, observation)
        touched = touched[0], touched[1], 0
    return touched, found


# Degrees.


@kernel(allocates=False)
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


@kernel
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
    for i in range(deltas.kinds.size):
        if deltas.begins[i]:
            if touched[2]:
                found = _observe_degrees(degrees, chosen, held, rule, touched, found, observation)
                touched = touched[0], touched[1], 0
            observation += 1
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
    if whole and touched[2]:
        found = _observe_degrees(degrees, chosen, held, rule, touched, found, observation)
        touched = touched[0], touched[1], 0
    return touched, found


# Distances from sources.


@kernel
def _set_hops(hops, row, vertex, value, source, sinks, touched):
    """Change the hops from a source to a vertex."""
    if sinks[vertex] and vertex != source:
        touched = touch(touched, source * _ROW + vertex, hops[row, vertex])
    hops[row, vertex] = value
    return touched


@kernel
def _relax(net, hops, row, source, sinks, sides, most, candidates, distances, touched):
    """Bring vertices nearer that candidates, ordered by their new distances, are reached by."""
    queue = np.empty(16, np.int64)
    first, last, at = 0, 0, 0
    while first < last or at < candidates.size:
        if at < candidates.size and (first == last or distances[at] <= hops[row, queue[first]]):
            vertex, distance = candidates[at], distances[at]
            at += 1
            if distance >= hops[row, vertex] or distance > most:
                continue
            touched = _set_hops(hops, row, vertex, distance, source, sinks, touched)
        else:
            vertex = queue[first]
            distance = hops[row, vertex]
            first += 1
        if distance >= most:
            continue
        for side in range(2):
            if not sides >> side & 1:
                continue
            adjacency = (net.outgoing, net.incoming)[side]
            for i in range(adjacency.sizes[vertex]):
                edge = adjacency.pool[adjacency.starts[vertex] + i]
                other = net.sources[edge] + net.targets[edge] - vertex
                if distance + 1 < hops[row, other]:
                    touched = _set_hops(hops, row, other, distance + 1, source, sinks, touched)
                    if last == queue.size:
                        queue = _longer(queue)
                    queue[last] = other
                    last += 1
    return touched


@kernel
def _supported(net, hops, row, vertex, back, losing):
    """Whether a vertex has a neighbor that is one hop nearer, and stays where it is."""
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
def _shrink(net, hops, row, source, sinks, sides, most, vertex, losing, touched):
    """Let a vertex go that may have lost its last shortest path, with all that depend on it, and reach them anew."""
    back = (sides & OUTGOING) << 1 | (sides & INCOMING) >> 1
    if _supported(net, hops, row, vertex, back, losing):
        return touched
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
                    gone = _longer(gone)
                gone[size] = other
                size += 1
    for i in range(size):
        touched = _set_hops(hops, row, gone[i], FAR, source, sinks, touched)
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
        if nearest < most:
            candidates[count], distances[count] = gone[i], nearest + 1
            count += 1
    order = np.argsort(distances[:count])
    return _relax(
        net, hops, row, source, sinks, sides, most, candidates[:count][order], distances[:count][order], touched
    )


@kernel
def _observe_hops(hops, rows, sinks, touched, found, observation):
    """Look at pairs of a source and a sink; a value is that with which an answer begins, or held at last."""
    for i in _first_touches(touched):
        key, old = touched[0][i], touched[1][i]
        row, vertex = rows[key // _ROW], key % _ROW
        now = hops[row, vertex] if row >= 0 and sinks[vertex] else FAR
        if (now == FAR) != (old == FAR):
            found = _find(found, observation, now != FAR, key, now if now != FAR else old)
    return found


@kernel
def _follow_arc(net, hops, row, source, sinks, sides, most, u, v, comes, losing, touched):
    """Follow an arc that has come or gone."""
    if comes:
        if hops[row, u] < min(most, hops[row, v] - 1):
            candidates, distances = np.empty(1, np.int64), np.empty(1, np.int32)
            candidates[0], distances[0] = v, hops[row, u] + 1
            touched = _relax(net, hops, row, source, sinks, sides, most, candidates, distances, touched)
    elif hops[row, v] != FAR and hops[row, u] + 1 == hops[row, v]:
        touched = _shrink(net, hops, row, source, sinks, sides, most, v, losing, touched)
    return touched


@kernel
def _begin_source(net, state, rule, vertex, touched):
    """Find what a new source reaches."""
    row = state.free[0]
    state.free[0] = state.sources[row]
    state.sources[row], state.rows[vertex] = vertex, row
    state.hops[row, :] = FAR
    candidates, distances = np.empty(1, np.int64), np.zeros(1, np.int32)
    candidates[0] = vertex
    return _relax(net, state.hops, row, vertex, state.sinks, rule.sides, rule.most, candidates, distances, touched)


@kernel
def _end_source(state, vertex, touched):
    """Forget what a vertex reached that is no source any more; its row becomes the first free one."""
    row = state.rows[vertex]
    for other in range(state.sinks.size):
        if state.hops[row, other] != FAR:
            touched = _set_hops(state.hops, row, other, FAR, vertex, state.sinks, touched)
    state.rows[vertex] = -1
    state.sources[row] = state.free[0]
    state.free[0] = row
    state.used[row] = False
    return touched


@kernel
def _change_sink(state, vertex, comes, touched):
    """Note that a vertex is a sink from now on, or none any more."""
    for row in range(state.used.size):
        if state.used[row] and state.sources[row] != vertex:
            old = FAR if comes else state.hops[row, vertex]
            touched = touch(touched, state.sources[row] * _ROW + vertex, old)
    state.sinks[vertex] = comes
    return touched


@kernel
def distances(deltas, net, state, rule, touched, found, observation, whole):
    """Follow the hops from sources (the first role) to sinks (the second one); return what is touched and found."""
    for i in range(deltas.kinds.size):
        if deltas.begins[i]:
            if touched[2]:
                found = _observe_hops(state.hops, state.rows, state.sinks, touched, found, observation)
                touched = touched[0], touched[1], 0
            observation += 1
        kind, element = deltas.kinds[i], deltas.elements[i]
        comes = kind & 1 == 1
        if kind > EDGE_ON + 2:
            touched = _change_sink(state, element, comes, touched)
            continue
        if kind > EDGE_ON:
            if comes:
                touched = _begin_source(net, state, rule, element, touched)
                state.used[state.rows[element]] = True
            else:
                touched = _end_source(state, element, touched)
            continue
        u, v = deltas.sources[i], deltas.targets[i]
        if comes:
            net.sources[element], net.targets[element] = u, v
            link(net.outgoing, u, element)
            link(net.incoming, v, element)
        else:
            unlink(net.outgoing, u, element)
            unlink(net.incoming, v, element)
        for row in range(state.used.size):
            if not state.used[row]:
                continue
            if rule.sides & OUTGOING:
                touched = _follow_arc(
                    net, state.hops, row, state.sources[row], state.sinks, rule.sides, rule.most, u, v, comes,
                    state.losing, touched,
                )  # fmt: skip
            if rule.sides & INCOMING:
                touched = _follow_arc(
                    net, state.hops, row, state.sources[row], state.sinks, rule.sides, rule.most, v, u, comes,
                    state.losing, touched,
                )  # fmt: skip
    if whole and touched[2]:
        found = _observe_hops(state.hops, state.rows, state.sinks, touched, found, observation)
        touched = touched[0], touched[1], 0
    return touched, found

"""Members of clusters that are followed by their ids, also when the clusters are gone.

A vertex has an entry for each group that it is in: at most one cluster that exists, and any number of former ones.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.streaming.batches import LAST
from goffish.streaming.graphs.cluster_kernels import EXACT, accepts, add_vertex, emit, quick_measure, slow_measure
from goffish.streaming.graphs.kernels import link, unlink
from goffish.streaming.graphs.pattern_kernels import EDGE_ON, VALUE

#: Counts: groups that were touched, entries that may have to go, entries that are free, groups that have ended; and the
#: time of the last change.
_TOUCHED, _DOUBTFUL, _FREE, _ENDED, _TIME = range(5)


@kernel(allocates=False)
def _touch(state, group):
    if not state.is_touched[group]:
        state.is_touched[group] = True
        state.touched[state.counts[_TOUCHED]] = group
        state.counts[_TOUCHED] += 1


@kernel(allocates=False)
def _tally(state, group, vertex, sign):
    """Add the values of a vertex that is seen to those of a group, or subtract them."""
    for k in range(state.kinds.shape[0] if state.is_seen[vertex] else 0):
        kind = state.kinds[k, vertex]
        state.tallies[k, kind, group] += sign
        if kind == EXACT:
            state.sums[k, group] += sign * state.numbers[k, vertex]


@kernel(allocates=False)
def _entry(state, vertex, group):
    """Return the entry of a vertex in a group, or -1."""
    entry = state.entries[vertex]
    while entry >= 0 and state.groups[entry] != group:
        entry = state.after[entry]
    return entry


@kernel(allocates=False)
def _inner_edges(state, vertex, group):
    """Return how many edges a vertex has to a group and itself."""
    count = 0
    for side in range(2):
        adjacency = (state.outgoing, state.incoming)[side]
        for i in range(adjacency.sizes[vertex]):
            edge = adjacency.pool[adjacency.starts[vertex] + i]
            other = state.sources[edge] + state.targets[edge] - vertex
            count += side == 0 if other == vertex else _entry(state, other, group) >= 0
    return count


@kernel(allocates=False)
def _add(state, vertex, group):
    """Add a vertex to a group."""
    state.edges[group] += _inner_edges(state, vertex, group)
    state.counts[_FREE] -= 1
    entry = state.free[state.counts[_FREE]]
    state.members[entry], state.groups[entry] = vertex, group
    first = state.entries[vertex]
    state.entries[vertex], state.after[entry], state.before[entry] = entry, first, -1
    if first >= 0:
        state.before[first] = entry
    first = state.first[group]
    state.first[group], state.following[entry], state.preceding[entry] = entry, first, -1
    if first >= 0:
        state.preceding[first] = entry
    state.size[group] += 1
    _tally(state, group, vertex, 1)
    _touch(state, group)


@kernel(allocates=False)
def _drop(state, entry):
    """Remove a vertex from a group."""
    vertex, group = state.members[entry], state.groups[entry]
    before, after = state.before[entry], state.after[entry]
    if before >= 0:
        state.after[before] = after
    else:
        state.entries[vertex] = after
    if after >= 0:
        state.before[after] = before
    before, after = state.preceding[entry], state.following[entry]
    if before >= 0:
        state.following[before] = after
    else:
        state.first[group] = after
    if after >= 0:
        state.preceding[after] = before
    state.members[entry] = state.groups[entry] = -1
    state.leaves[entry] = state.is_doubtful[entry] = False
    state.free[state.counts[_FREE]] = entry
    state.counts[_FREE] += 1
    state.size[group] -= 1
    state.edges[group] -= _inner_edges(state, vertex, group)
    _tally(state, group, vertex, -1)


@kernel(allocates=False)
def _end_group(state, group):
    """Follow a group no longer."""
    while state.first[group] >= 0:
        _drop(state, state.first[group])
    state.is_used[group] = state.holds[group] = False
    state.ended[state.counts[_ENDED]] = group
    state.counts[_ENDED] += 1


@kernel(allocates=False)
def _doubt(state, entry):
    if not state.is_doubtful[entry]:
        state.is_doubtful[entry] = True
        state.doubtful[state.counts[_DOUBTFUL]] = entry
        state.counts[_DOUBTFUL] += 1


@kernel(allocates=False)
def _move(state, vertex, before, after):
    """Note that a vertex has left a cluster, or has come into one."""
    entry = _entry(state, vertex, before) if before >= 0 else -1
    if entry >= 0:
        state.leaves[entry] = True
        state.leaving[before] += 1
        state.is_merged[before] |= after >= 0
        _doubt(state, entry)
        _touch(state, before)
    if after >= 0:
        if not state.is_used[after]:
            state.is_used[after], state.since[after] = True, LAST
        _add(state, vertex, after)


@kernel(allocates=False)
def _follow_edge(state, edge, u, v, comes):
    if comes:
        state.sources[edge], state.targets[edge] = u, v
        link(state.outgoing, u, edge)
        link(state.incoming, v, edge)
    else:
        unlink(state.outgoing, u, edge)
        unlink(state.incoming, v, edge)
    entry = state.entries[u]
    while entry >= 0:
        group = state.groups[entry]
        if u == v or _entry(state, v, group) >= 0:
            state.edges[group] += 1 if comes else -1
            _touch(state, group)
        entry = state.after[entry]


@kernel(allocates=False)
def _change(state, kind, vertex, code, number):
    """Follow whether a vertex is seen, whether it exists, or a value of it."""
    comes = kind & 1 == 1
    if EDGE_ON + 2 < kind < VALUE:
        state.exists[vertex] = comes
        entry = state.entries[vertex]
        while entry >= 0 and not comes:
            _doubt(state, entry)
            entry = state.after[entry]
        return
    for step in range(2):
        entry = state.entries[vertex]
        while entry >= 0:
            _tally(state, state.groups[entry], vertex, 2 * step - 1)
            _touch(state, state.groups[entry])
            entry = state.after[entry]
        if step == 0 and kind < VALUE:
            state.is_seen[vertex] = comes
        elif step == 0:
            state.kinds[kind - VALUE, vertex], state.numbers[kind - VALUE, vertex] = code, number


@kernel(allocates=False)
def _settle(state):
    """Remove entries that have to go, and note which clusters are gone."""
    for i in range(state.counts[_TOUCHED]):
        group = state.touched[i]
        if state.leaving[group] and state.leaving[group] == state.size[group]:
            state.since[group] = state.counts[_TIME]  # all members have left at once: those count that it had
            if state.is_merged[group]:
                _end_group(state, group)
        state.leaving[group], state.is_merged[group] = 0, False
    for i in range(state.counts[_DOUBTFUL]):
        entry = state.doubtful[i]
        if not state.is_doubtful[entry]:
            continue  # its group has ended
        state.is_doubtful[entry] = False
        former = state.since[state.groups[entry]] != LAST
        if not state.exists[state.members[entry]] if former else state.leaves[entry]:
            _touch(state, state.groups[entry])
            _drop(state, entry)
        else:
            state.leaves[entry] = False
    state.counts[_DOUBTFUL] = 0


@kernel
def _members(state, group, only_seen):
    found, count = np.empty(state.size[group], np.int64), 0
    entry = state.first[group]
    while entry >= 0:
        if state.is_seen[state.members[entry]] or not only_seen:
            found[count] = state.members[entry]
            count += 1
        entry = state.following[entry]
    return found[:count]


@kernel
def _measure(state, group, code, k):
    found = quick_measure(state, group, code, k)
    if np.isnan(found):
        return slow_measure(state, code, k, _members(state, group, False), _members(state, group, True))
    return found


@kernel
def _observe(state, rules, made, observation):
    """Report the groups for which all conditions hold and did not hold before."""
    _settle(state)
    for i in range(state.counts[_TOUCHED]):
        group = state.touched[i]
        state.is_touched[group] = False
        if not state.is_used[group]:
            continue
        former, conditions = state.since[group] != LAST, rules.conditions
        over = former and (state.holds[group] or state.counts[_TIME] > state.since[group] + rules.track)
        if over or not state.size[group]:
            _end_group(state, group)
            continue
        good = True
        for k in range(conditions.codes.size):
            value = _measure(state, group, conditions.codes[k], conditions.attributes[k])
            good = good and not np.isnan(value) and accepts(conditions, k, value)
        if good and not state.holds[group]:
            made = emit(made, observation, 0, group, 0, state.size[group])
            if state.size[group] <= rules.most_members:
                for vertex in _members(state, group, False):
                    made = add_vertex(made, vertex)
            for k in range(conditions.codes.size):
                made[1][made[3] - 1, k] = _measure(state, group, conditions.codes[k], conditions.attributes[k])
        state.holds[group] = good
        if good and former:
            _end_group(state, group)
    state.counts[_TOUCHED] = 0
    return made


@kernel(allocates=False)
def forget(state, time, track):
    """Follow groups no longer whose clusters have been gone for too long."""
    for group in range(state.is_used.size):
        if state.is_used[group] and state.since[group] != LAST and time > state.since[group] + track:
            _end_group(state, group)


@kernel
def evolved(deltas, state, rules, made, observation, whole):
    """Follow groups of vertices, of which some are seen (the first role), and which exist (the second one)."""
    for i in range(deltas.kinds.size + whole):
        over = i == deltas.kinds.size
        if over or deltas.begins[i]:  # in one place, as it is large
            made = _observe(state, rules, made, observation)
            observation += 1
        if over:
            break
        kind, element = deltas.kinds[i], deltas.elements[i]
        state.counts[_TIME] = deltas.times[i]
        if kind < 0:
            _move(state, element, deltas.sources[i], deltas.targets[i])
        elif kind <= EDGE_ON:
            _follow_edge(state, element, deltas.sources[i], deltas.targets[i], kind == EDGE_ON)
        else:
            _change(state, kind, element, deltas.sources[i], deltas.targets[i])
    return made

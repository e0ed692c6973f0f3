"""Vertices with the highest scores: numbers of edges, or PageRank by pushing residuals."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import link, unlink
from goffish.streaming.graphs.pattern_kernels import EDGE_ON, parallel_edge
from goffish.streaming.graphs.predicate_kernels import less

#: Numbers that are kept: entries of the heap, vertices at the top and in the list of those whose edges have changed,
#: whether something has changed since the last observation, and whether that matters; residuals that were pushed; next
#: change, observation, and number of events.
HEAP, TOP, CHANGED, PENDING, MATTERS, PUSHES, DELTA, OBSERVATION, COUNT = range(9)
_DAMPING, _LEAST = 0.85, 1e-12
_DECIMALS = 1e9
#: After so many pushes, rounding errors may add up to what is settled: all residuals are computed anew.
_MOST_PUSHES = 1 << 22


# A heap of scores, from which entries that are not current any more are removed when they are met.


@kernel(allocates=False)
def _comes_first(keys, a, score, b, other):
    return score > other or (score == other and a != b and less(*keys, a, b))


@kernel(allocates=False)
def _add(state, keys, vertex, score):
    at = state.counts[HEAP]
    state.counts[HEAP] += 1
    while at:
        parent = (at - 1) >> 1
        if not _comes_first(keys, vertex, score, state.heap[parent], state.heap_scores[parent]):
            break
        state.heap[at], state.heap_scores[at] = state.heap[parent], state.heap_scores[parent]
        at = parent
    state.heap[at], state.heap_scores[at] = vertex, score


@kernel(allocates=False)
def _take(state, keys):
    """Remove the first entry."""
    heap, scores = state.heap, state.heap_scores
    first, best = heap[0], scores[0]
    state.counts[HEAP] -= 1
    size = state.counts[HEAP]
    vertex, score, at = heap[size], scores[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _comes_first(keys, heap[child + 1], scores[child + 1], heap[child], scores[child]):
            child += 1
        if not _comes_first(keys, heap[child], scores[child], vertex, score):
            break
        heap[at], scores[at] = heap[child], scores[child]
        at = child
    heap[at], scores[at] = vertex, score
    return first, best


@kernel(allocates=False)
def fill_heap(state, keys, total):
    """Put all vertices into the heap; with a total, by their rounded shares of it."""
    state.counts[HEAP] = 0
    for vertex in range(state.chosen.size):
        if state.chosen[vertex]:
            score = state.scores[vertex]
            _add(state, keys, vertex, np.round(score / total * _DECIMALS) / _DECIMALS if total else score)


@kernel(allocates=False)
def _observe(state, keys, rule, total, out):
    """Find the vertices at the top, and report which ones are new there or are there no more."""
    counts, found = state.counts, 0
    most = min(rule.top, state.chosen.size)
    while found < most and counts[HEAP]:
        vertex, score = _take(state, keys)
        is_current = state.chosen[vertex] and (total or score == state.scores[vertex])
        if is_current and not state.ranks[vertex]:
            found += 1
            state.ranks[vertex] = found
            state.next[found - 1], state.next_scores[found - 1] = vertex, score
    if not total:
        for at in range(found):
            _add(state, keys, state.next[at], state.next_scores[at])
    for at in range(counts[TOP]):
        vertex = state.top[at]
        if not state.ranks[vertex]:
            _report(out, counts, 0, vertex, at + 1, state.top_scores[at])
        state.is_top[vertex] = False
    # The entries before are those of the last observation: `is_top` of vertices that stay is set again.
    for at in range(counts[TOP]):
        state.was_top[state.top[at]] = True
    for at in range(found):
        vertex = state.next[at]
        score = state.scores[vertex] / total if total else state.scores[vertex]
        if not state.was_top[vertex]:
            _report(out, counts, 1, vertex, at + 1, score)
        state.next_scores[at] = score
        state.ranks[vertex] = 0
        state.is_top[vertex] = True
    for at in range(counts[TOP]):
        state.was_top[state.top[at]] = False
    for at in range(found):
        state.top[at], state.top_scores[at] = state.next[at], state.next_scores[at]
    counts[TOP] = found
    counts[MATTERS] = counts[PENDING] = False


@kernel(allocates=False)
def _report(out, counts, code, vertex, rank, score):
    at = counts[COUNT]
    out.observations[at], out.codes[at], out.keys[at] = counts[OBSERVATION], code, vertex
    out.ranks[at], out.scores[at] = rank, score
    counts[COUNT] += 1


# Numbers of edges.


@kernel(allocates=False)
def _changed(state, keys, rule, vertex):
    """Note a new number of edges, and whether the vertices at the top may change."""
    counts, score = state.counts, state.scores[vertex]
    counts[PENDING] = True
    if state.chosen[vertex]:
        _add(state, keys, vertex, score)
        last = counts[TOP] - 1
        counts[MATTERS] |= counts[TOP] < rule.top or _comes_first(
            keys, vertex, score, state.top[last], state.top_scores[last]
        )
    counts[MATTERS] |= state.is_top[vertex]


# PageRank.


@kernel(allocates=False)
def _spread(net, state, vertex, amount):
    """Add parts of an amount to the residuals of the vertices to which edges lead."""
    if not state.degrees[vertex]:
        return
    share = _DAMPING * amount / state.degrees[vertex]
    for at in range(net.outgoing.starts[vertex], net.outgoing.starts[vertex] + net.outgoing.sizes[vertex]):
        edge = net.outgoing.pool[at]
        if state.counts_once[edge]:
            state.residuals[net.targets[edge]] += share


@kernel(allocates=False)
def _touch(net, state, vertex):
    """Take back what a vertex has given along its edges, which are about to change."""
    if not state.is_changed[vertex]:
        _spread(net, state, vertex, -state.scores[vertex])
        state.is_changed[vertex] = True
        state.changed[state.counts[CHANGED]] = vertex
        state.counts[CHANGED] += 1


@kernel(allocates=False)
def _set_edge(net, state, edge, source, target, comes):
    """Follow an edge; of those that lead from one vertex to another, one counts."""
    _touch(net, state, source)
    if comes:
        net.sources[edge], net.targets[edge] = source, target
        link(net.outgoing, source, edge)
        link(net.incoming, target, edge)
        state.counts_once[edge] = parallel_edge(net, edge, source, target) < 0
        state.degrees[source] += state.counts_once[edge]
        return
    unlink(net.outgoing, source, edge)
    unlink(net.incoming, target, edge)
    if state.counts_once[edge]:
        state.counts_once[edge] = False
        other = parallel_edge(net, edge, source, target)
        if other >= 0:
            state.counts_once[other] = True
        else:
            state.degrees[source] -= 1


@kernel(allocates=False)
def _set_vertex(net, state, vertex, comes):
    _touch(net, state, vertex)
    state.chosen[vertex] = comes
    state.scores[vertex], state.residuals[vertex] = 0.0, 1 - _DAMPING if comes else 0.0


@kernel(allocates=False)
def _settle(net, state):
    """Push residuals until all are small; return the sum of the scores."""
    counts, size, first, last, queued = state.counts, state.chosen.size, 0, 0, 0
    for at in range(counts[CHANGED]):
        vertex = state.changed[at]
        state.is_changed[vertex] = False
        _spread(net, state, vertex, state.scores[vertex])
    counts[CHANGED] = 0
    if counts[PUSHES] > _MOST_PUSHES:
        counts[PUSHES] = 0
        for vertex in range(size):
            state.residuals[vertex] = 1 - _DAMPING - state.scores[vertex] if state.chosen[vertex] else 0.0
        for vertex in range(size):
            _spread(net, state, vertex, state.scores[vertex])
    for vertex in range(size):
        if state.chosen[vertex] and abs(state.residuals[vertex]) > _LEAST:
            state.queue[last] = vertex
            state.is_queued[vertex] = True
            last, queued = (last + 1) % size, queued + 1
    while queued:
        vertex = state.queue[first]
        first, queued = (first + 1) % size, queued - 1
        state.is_queued[vertex] = False
        amount = state.residuals[vertex]
        state.residuals[vertex] = 0.0
        state.scores[vertex] += amount
        counts[PUSHES] += 1
        if not state.degrees[vertex]:
            continue
        share = _DAMPING * amount / state.degrees[vertex]
        for at in range(net.outgoing.starts[vertex], net.outgoing.starts[vertex] + net.outgoing.sizes[vertex]):
            edge = net.outgoing.pool[at]
            if not state.counts_once[edge]:
                continue
            other = net.targets[edge]
            state.residuals[other] += share
            if not state.is_queued[other] and abs(state.residuals[other]) > _LEAST:
                state.queue[last] = other
                state.is_queued[other] = True
                last, queued = (last + 1) % size, queued + 1
    total = 0.0
    for vertex in range(size):
        if state.chosen[vertex]:
            total += state.scores[vertex]
    return total


@kernel(allocates=False)
def _end(net, state, keys, rule, out):
    """End an observation."""
    counts = state.counts
    if rule.is_pagerank and counts[PENDING]:
        total = _settle(net, state)
        fill_heap(state, keys, total)
        _observe(state, keys, rule, total, out)
    elif counts[MATTERS]:
        _observe(state, keys, rule, 0.0, out)
    counts[PENDING] = False


@kernel(allocates=False)
def centrality(deltas, net, state, keys, rule, out, whole):
    """Follow scores from where work was left; return whether it is finished, or needs more space for events."""
    counts = state.counts
    most = 2 * min(rule.top, state.chosen.size)
    while counts[DELTA] < deltas.kinds.size:
        i = counts[DELTA]
        kind, element = deltas.kinds[i], deltas.elements[i]
        if deltas.begins[i]:
            if counts[COUNT] + most > out.codes.size:
                return False
            _end(net, state, keys, rule, out)
            counts[OBSERVATION] += 1
        counts[DELTA], counts[PENDING] = i + 1, True
        comes = kind & 1 == 1
        source, target = deltas.sources[i], deltas.targets[i]
        if rule.is_pagerank:
            if kind > EDGE_ON:
                _set_vertex(net, state, element, comes)
            else:
                _set_edge(net, state, element, source, target, comes)
        elif kind > EDGE_ON:
            state.chosen[element] = comes
            _changed(state, keys, rule, element)
        else:
            for vertex in (source, target):
                state.scores[vertex] += 1 if comes else -1
                _changed(state, keys, rule, vertex)
    if whole:
        if counts[COUNT] + most > out.codes.size:
            return False
        _end(net, state, keys, rule, out)
    return True

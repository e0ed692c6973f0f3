"""What queries see of changes: edges within a window, and elements that depend on members of clusters."""

from __future__ import annotations

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import link, unlink
from goffish.streaming.graphs.pattern_kernels import EDGE_OFF, EDGE_ON, doubled
from goffish.streaming.graphs.predicate_kernels import ALL, ANY, COMPARE, NOT

#: Instruction of a formula: whether a part of it holds; the others are those of predicates.
PART = COMPARE

# Windows.


@kernel
def _push(timers, time, edge):
    times, edges, count = timers
    if count == times.size:
        times, edges = doubled(times), doubled(edges)
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
        flips, times, kinds, elements = doubled(flips), doubled(times), doubled(kinds), doubled(elements)
        sources, targets = doubled(sources), doubled(targets)
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


# Members of clusters.


@kernel(allocates=False)
def holds(formulas, formula, parts, vertex, stack):
    """Whether a formula holds for a vertex."""
    size = 0
    for at in range(formulas.firsts[formula], formulas.firsts[formula + 1]):
        code, count = formulas.codes[at], formulas.counts[at]
        if code == PART:
            found = parts[count, vertex]
        elif code == NOT:
            size -= 1
            found = not stack[size]
        else:
            found = code == ALL
            for _ in range(count):
                size -= 1
                if stack[size] != (code == ALL):
                    found = code == ANY
        stack[size] = found
        size += 1
    return stack[0]


@kernel
def _copy(made, row, kind, element, source, target):
    """Add a row; its tick is that of another one."""
    kinds, elements, sources, targets, rows, count = made
    if count == kinds.size:
        kinds, elements, rows = doubled(kinds), doubled(elements), doubled(rows)
        sources, targets = doubled(sources), doubled(targets)
    kinds[count], elements[count], sources[count], targets[count], rows[count] = kind, element, source, target, row
    return kinds, elements, sources, targets, rows, count + 1


@kernel
def _show_edges(row, net, seen, vertex, kind, made):
    """Add the edges between a vertex and others that are seen."""
    for side in range(2):
        adjacency = (net.outgoing, net.incoming)[side]
        for i in range(adjacency.sizes[vertex]):
            edge = adjacency.pool[adjacency.starts[vertex] + i]
            source, target = net.sources[edge], net.targets[edge]
            if seen[source] and seen[target] and (side == 0 or source != target):
                made = _copy(made, row, kind, edge, source, target)
    return made


@kernel
def _evaluate(row, formulas, state, net, vertex, made):
    """Evaluate all formulas for a vertex: the first one decides over its edges, the others are those of roles."""
    sees, was = state.truth[0, vertex], state.truth[0, vertex]
    if formulas.of_edges:
        sees = holds(formulas, 0, state.parts, vertex, state.stack)
    if was and not sees:
        made = _show_edges(row, net, state.truth[0], vertex, EDGE_OFF, made)
        state.truth[0, vertex] = False
    for role in range(1, formulas.firsts.size - 1):
        found = holds(formulas, role, state.parts, vertex, state.stack)
        if found != state.truth[role, vertex]:
            state.truth[role, vertex] = found
            made = _copy(made, row, EDGE_ON + 2 * role - 1 + found, vertex, -1, -1)
    if sees and not was:
        state.truth[0, vertex] = True
        made = _show_edges(row, net, state.truth[0], vertex, EDGE_ON, made)
    return made


@kernel
def narrow(deltas, formulas, state, net, made):
    """Return what a query sees whose formulas depend on members of clusters.

    Kinds from `formulas.first` on are those of other parts than roles; kinds below 0 are moves of members, of which
    `formulas.topics` has the part.
    """
    for row in range(deltas.kinds.size):
        kind, element = deltas.kinds[row], deltas.elements[row]
        source, target = deltas.sources[row], deltas.targets[row]
        part = -1
        if kind < 0:
            if formulas.passes[-1 - kind]:
                made = _copy(made, row, kind, element, source, target)
            part = formulas.topics[-1 - kind]
            if part >= 0:
                state.parts[part, element] = target > 0
        elif kind <= EDGE_ON:
            if not formulas.of_edges:
                made = _copy(made, row, kind, element, source, target)
                continue
            if kind == EDGE_ON:
                net.sources[element], net.targets[element] = source, target
                link(net.outgoing, source, element)
                link(net.incoming, target, element)
            else:
                unlink(net.outgoing, source, element)
                unlink(net.incoming, target, element)
            if state.truth[0, source] and state.truth[0, target]:
                made = _copy(made, row, kind, element, source, target)
        elif kind <= EDGE_ON + 2 * formulas.roles:
            part = (kind - EDGE_ON - 1) >> 1
            state.parts[part, element] = kind & 1
        elif kind >= formulas.first:
            part = formulas.roles + ((kind - formulas.first) >> 1)
            state.parts[part, element] = (kind - formulas.first) & 1
        else:
            made = _copy(made, row, kind, element, source, target)
        if part >= 0:
            made = _evaluate(row, formulas, state, net, element, made)
    return made

"""Matches of a pattern of a few vertices and edges, found through what has changed.

A match binds *positions*: the vertices of the pattern, then its edges. What a change adds or takes away are the matches
through the element that has changed, after or before it: the search begins there, and goes from edge to edge. Matches
themselves are not kept. Of those that differ by an automorphism only, the search finds one: it binds positions that can
be exchanged in the order of their slots.
"""

from __future__ import annotations

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import LOW, attach, unlink
from goffish.streaming.graphs.pattern_kernels import EDGE_OFF, EDGE_ON, INCOMING, OUTGOING
from goffish.streaming.graphs.predicate_kernels import accepts, less, sign_of_numbers
from goffish.streaming.graphs.updates import BOOLEAN, FLOAT, INTEGER, LIST, NONE, TEXT, TIME

#: Why a kernel returns: it has finished, needs space for rows or for the table, or has looked at too much.
DONE, ROWS, TABLE, LIMIT = range(4)
#: Where work goes on: change, stage of it, beginning of a search, whether one is interrupted, and its depth; number of
#: rows, and of those whose observation has ended; observation; candidates that were looked at for the change; whether
#: matches are looked for after it.
DELTA, STAGE, START, INSIDE, DEPTH, COUNT, MARK, OBSERVATION, LOOKED, GAINS = range(10)
#: Attributes in comparisons of two variables: the id of an element.
OWN_ID = -1
_START, _BEFORE, _APPLY, _AFTER = range(4)
_HASH = -7046029254386353131


# Values.


@kernel(allocates=False)
def _sign_of_texts(one, a, other, b):
    """Compare texts of two tables by code point."""
    first, second = one[2][2 * a], other[2][2 * b]
    length, size = one[2][2 * a + 1] - first, other[2][2 * b + 1] - second
    for i in range(min(length, size)):
        x, y = one[3][first + i], other[3][second + i]
        if x != y:
            return 1 if x > y else -1
    return (length > size) - (length < size)


@kernel(allocates=False)
def _pair_compares(operator, left, right):
    """Whether two values compare that are no lists: each is a kind, bits, a number, and the table of texts."""
    if left[0] == INTEGER and right[0] == INTEGER:
        sign = (left[1] > right[1]) - (left[1] < right[1])
    elif left[0] == INTEGER and right[0] == FLOAT:
        sign = sign_of_numbers(left[1], right[2])
    elif left[0] == FLOAT and right[0] == INTEGER:
        sign = -sign_of_numbers(right[1], left[2])
    elif left[0] == FLOAT and right[0] == FLOAT:
        sign = (left[2] > right[2]) - (left[2] < right[2])
    elif left[0] == TEXT and right[0] == TEXT:
        sign = _sign_of_texts(left[3], left[1], right[3], right[1])
    elif left[0] == TIME and right[0] == TIME:
        sign = (left[1] > right[1]) - (left[1] < right[1])
    elif left[0] == BOOLEAN and right[0] == BOOLEAN and operator < 2:
        sign = left[1] - right[1]
    else:
        return False
    return accepts(operator, sign)


@kernel(allocates=False)
def _value(net, shape, tables, position, name, element):
    """Return the value of an attribute of what a position is bound to."""
    is_vertex = position < shape.want.size
    if name == OWN_ID:
        keys = tables.vertices if is_vertex else tables.edges
        if keys[0][element] == 0:
            return INTEGER, keys[1][element], 0.0, keys
        return TEXT, element, 0.0, keys
    values = net.of_vertices if is_vertex else net.of_edges
    return values.kinds[name, element], values.bits[name, element], values.floats[name, element], tables.texts


@kernel(allocates=False)
def _right_compares(operator, left, right, tables):
    """Whether a value that is no list compares with another one."""
    if right[0] != LIST:
        return _pair_compares(operator, left, right)
    lists = tables.lists
    for i in range(lists.firsts[right[1]], lists.firsts[right[1] + 1]):
        one = lists.kinds[i], lists.bits[i], lists.floats[i], tables.texts
        if _pair_compares(operator, left, one) != (operator == 1):
            return operator != 1
    return operator == 1


@kernel(allocates=False)
def _compares(operator, left, right, tables):
    """Whether two values compare: lists if any of their elements do, or all of them for ``!=``."""
    if left[0] == NONE or right[0] == NONE:
        return False
    if left[0] != LIST:
        return _right_compares(operator, left, right, tables)
    lists = tables.lists
    for i in range(lists.firsts[left[1]], lists.firsts[left[1] + 1]):
        one = lists.kinds[i], lists.bits[i], lists.floats[i], tables.texts
        if _right_compares(operator, one, right, tables) != (operator == 1):
            return operator != 1
    return operator == 1


@kernel(allocates=False)
def _satisfies(net, shape, tables, bound, mask, position):
    """Whether the comparisons hold that a position takes part in, with others that are bound."""
    for i in range(shape.operators.size):
        one, other = shape.lefts[i], shape.rights[i]
        if not (mask >> one & 1 and mask >> other & 1) or (position != one and position != other):  # noqa: PLR1714
            continue
        left = _value(net, shape, tables, one, shape.left_names[i], bound[one])
        right = _value(net, shape, tables, other, shape.right_names[i], bound[other])
        if not _compares(shape.operators[i], left, right, tables):
            return False
    return True


# Search.


@kernel(allocates=False)
def _is_ordered(smaller, larger, bound, position):
    """Whether a position is bound in the order that is required of those that can be exchanged."""
    value = bound[position]
    rest, at = smaller, 0
    while rest:
        if rest & 1 and bound[at] > value:
            return False
        rest >>= 1
        at += 1
    rest, at = larger, 0
    while rest:
        if rest & 1 and bound[at] < value:
            return False
        rest >>= 1
        at += 1
    return True


@kernel(inline="always", allocates=False)
def _open(net, shape, work, depth):
    """Choose the edge of the pattern that is bound next, and where to look for it, in up to two parts.

    It is one whose ends are both bound, or else the one for which the fewest edges fit.
    """
    bound, mask, count = work.bound, work.masks[depth], shape.want.size
    edge, vertex, fewest = -1, -1, 1 << 62
    for one in range(shape.sources.size):
        source, target = shape.sources[one], shape.targets[one]
        if mask >> (count + one) & 1 or not (mask >> source & 1 or mask >> target & 1):
            continue
        if mask >> source & 1 and mask >> target & 1:
            edge, vertex = one, -1
            break
        side = 0 if mask >> source & 1 else 1
        fitting = net.counts[shape.needs[side, one], bound[target if side else source]]
        if fitting < fewest:
            edge, vertex, fewest = one, source if side else target, fitting
    work.vertices[depth] = vertex
    work.edges[depth] = edge
    parts = 1 if shape.directed[edge] else 2
    for part in range(2):
        if part >= parts:
            work.ends[part, depth] = work.places[part, depth] = 0
            continue
        one, other = shape.sources[edge], shape.targets[edge]
        if part:
            one, other = other, one
        if vertex < 0:
            one, other = bound[one], bound[other]
            side = OUTGOING if net.outgoing.sizes[one] <= net.incoming.sizes[other] else INCOMING
            work.others[part, depth] = other if side == OUTGOING else one
            one = one if side == OUTGOING else other
        else:
            side = OUTGOING if other == vertex else INCOMING
            one = bound[one if other == vertex else other]
        work.sides[part, depth] = side
        adjacency = net.outgoing if side == OUTGOING else net.incoming
        work.places[part, depth] = adjacency.starts[one]
        work.ends[part, depth] = adjacency.starts[one] + adjacency.sizes[one]
        work.cursor[LOOKED] += adjacency.sizes[one]


@kernel(inline="always", allocates=False)
def _next(net, shape, plan, work, start, depth, tables):
    """Bind the next edge that fits, and its other end; return whether there is one."""
    bound, edge, vertex = work.bound, work.edges[depth], work.vertices[depth]
    mask, position = work.masks[depth], shape.want.size + work.edges[depth]
    wanted = shape.edge_want[edge]
    for part in range(2):
        pool = net.outgoing.pool if work.sides[part, depth] == OUTGOING else net.incoming.pool
        end, other = work.ends[part, depth], work.others[part, depth]
        at = work.places[part, depth]
        while at < end:
            entry = pool[at]
            at += 1
            neighbor, number = entry >> 32, entry & LOW
            if vertex < 0:
                if neighbor != other:
                    continue
            elif net.words[neighbor] & shape.want[vertex] != shape.want[vertex]:
                continue
            if wanted and net.bits[number] & wanted != wanted:
                continue
            taken = False
            if vertex >= 0:
                for i in range(shape.want.size):
                    taken |= bound[i] == neighbor and mask >> i & 1 == 1
            rest, i = shape.parallel[edge] & mask, 0
            while rest:
                taken |= rest & 1 == 1 and bound[i] == number
                rest >>= 1
                i += 1
            if taken:
                continue
            bound[position] = number
            now = mask | 1 << position
            if vertex >= 0:
                bound[vertex] = neighbor
                now |= 1 << vertex
                smaller, larger = plan.smaller[start, vertex] & now, plan.larger[start, vertex] & now
                if (smaller or larger) and not _is_ordered(smaller, larger, bound, vertex):
                    continue
                if shape.compared[vertex] and not _satisfies(net, shape, tables, bound, now, vertex):
                    continue
            smaller, larger = plan.smaller[start, position] & now, plan.larger[start, position] & now
            if (smaller or larger) and not _is_ordered(smaller, larger, bound, position):
                continue
            if shape.compared[position] and not _satisfies(net, shape, tables, bound, now, position):
                continue
            work.places[part, depth] = at
            work.masks[depth + 1] = now
            return True
        work.places[part, depth] = end
    return False


@kernel(inline="always", allocates=False)
def _fits(net, shape, plan, work, start, element):
    """Whether a search can begin with an element, or goes on."""
    edge, first = plan.edges[start], plan.firsts[start]
    if edge < 0:
        fits = net.words[element] & shape.want[first] == shape.want[first]
    else:
        second = shape.sources[edge] + shape.targets[edge] - first
        fits = net.words[net.sources[element]] & shape.want[first] == shape.want[first]
        fits &= net.words[net.targets[element]] & shape.want[second] == shape.want[second]
        fits &= net.bits[element] & shape.edge_want[edge] == shape.edge_want[edge]
    return fits or work.cursor[INSIDE]


@kernel(allocates=False)
def _begin(net, shape, plan, work, start, element, tables):
    """Bind the element that a search begins with; return whether comparisons hold."""
    bound, edge, first = work.bound, plan.edges[start], plan.firsts[start]
    vertices = shape.want.size
    if edge < 0:
        bound[first], mask = element, 1 << first
    else:
        second = shape.sources[edge] + shape.targets[edge] - first
        bound[first], bound[second] = net.sources[element], net.targets[element]
        bound[vertices + edge] = element
        mask = 1 << first | 1 << second | 1 << (vertices + edge)
    work.masks[0] = mask
    for position in range(bound.size):
        is_compared = mask >> position & 1 and shape.compared[position]
        if is_compared and not _satisfies(net, shape, tables, bound, mask, position):
            return False
    return True


@kernel(inline="always", allocates=False)
def _write(shape, work, rows, signs, sign, tables):
    """Add the match that is bound: of its images under the automorphisms, that with the least labels."""
    best, vertices, bound = 0, shape.want.size, work.bound
    for one in range(1, shape.images.shape[0]):
        for at in range(bound.size):
            a, b = bound[shape.images[one, at]], bound[shape.images[best, at]]
            if a != b:
                if less(*tables.vertices, a, b) if at < vertices else less(*tables.edges, a, b):
                    best = one
                break
    count = work.cursor[COUNT]
    for at in range(bound.size):
        rows[count, at] = bound[shape.images[best, at]]
    signs[count] = sign
    work.cursor[COUNT] = count + 1


@kernel(allocates=False)
def _search(net, shape, plan, work, start, element, out, sign, tables):
    """Find the matches through an element that begin with one position; go on with a search that was interrupted."""
    rows, signs = out
    cursor, length = work.cursor, shape.sources.size - (plan.edges[start] >= 0)
    depth, opens = 0, True
    if cursor[INSIDE]:
        depth = cursor[DEPTH]
    elif not _begin(net, shape, plan, work, start, element, tables):
        return DONE
    cursor[INSIDE] = False
    while depth >= 0:
        if opens and depth < length:
            _open(net, shape, work, depth)
        opens = False
        if cursor[LOOKED] > work.most:
            return LIMIT
        if depth == length:
            if cursor[COUNT] == signs.size:
                cursor[INSIDE], cursor[DEPTH] = True, depth
                return ROWS
            _write(shape, work, rows, signs, sign, tables)
            depth -= 1
        elif _next(net, shape, plan, work, start, depth, tables):
            depth, opens = depth + 1, True
        else:
            depth -= 1
    return DONE


@kernel(inline="always", allocates=False)
def _search_all(net, shape, plan, work, reason, element, out, sign, tables):
    """Find the matches through an element that a change concerns."""
    for start in range(work.cursor[START], plan.edges.size):
        if plan.reasons[start] & reason == 0 or not _fits(net, shape, plan, work, start, element):
            continue
        state = _search(net, shape, plan, work, start, element, out, sign, tables)
        if state != DONE:
            work.cursor[START] = start
            return state
    work.cursor[START] = 0
    return DONE


# What a vertex needs of its neighbors.


@kernel(inline="always", allocates=False)
def _count(net, shape, need, vertex, change):
    net.counts[need, vertex] += change
    bit = shape.need_bits[need]
    if net.counts[need, vertex] == 0:
        net.words[vertex] &= ~bit
    else:
        net.words[vertex] |= bit


@kernel(inline="always", allocates=False)
def _count_edge(net, shape, edge, change, only):
    """Count an edge for the needs of its ends; with `only`, for needs that ask for this class of edges."""
    source, target = net.sources[edge], net.targets[edge]
    for need in range(shape.need_sides.size):
        wanted, of_other = shape.need_edges[need], shape.need_vertices[need]
        if net.bits[edge] & wanted != wanted or (only and wanted & only == 0):
            continue
        if shape.need_sides[need] & OUTGOING and net.words[target] & of_other == of_other:
            _count(net, shape, need, source, change)
        if shape.need_sides[need] & INCOMING and net.words[source] & of_other == of_other:
            _count(net, shape, need, target, change)


@kernel(allocates=False)
def _count_vertex(net, shape, vertex, bit, change):
    """Count the edges of a vertex for the needs of its neighbors that ask for a class of vertices."""
    for need in range(shape.need_sides.size):
        if shape.need_vertices[need] & bit == 0:
            continue
        wanted = shape.need_edges[need]
        for side in (OUTGOING, INCOMING):
            if shape.need_sides[need] & (OUTGOING + INCOMING - side) == 0:
                continue
            adjacency = net.outgoing if side == OUTGOING else net.incoming
            for at in range(adjacency.starts[vertex], adjacency.starts[vertex] + adjacency.sizes[vertex]):
                entry = adjacency.pool[at]
                if net.bits[entry & LOW] & wanted == wanted:
                    _count(net, shape, need, entry >> 32, change)


# Changes.


@kernel(inline="always", allocates=False)
def _set_edge(net, shape, edge, source, target, comes):
    """Let an edge be seen from now on, or not any more."""
    if source == target:
        return
    if comes:
        net.sources[edge], net.targets[edge], net.live[edge] = source, target, True
        attach(net.outgoing, source, edge, target << 32 | edge)
        attach(net.incoming, target, edge, source << 32 | edge)
        _count_edge(net, shape, edge, 1, 0)
        return
    _count_edge(net, shape, edge, -1, 0)
    net.live[edge] = False
    unlink(net.outgoing, source, edge)
    unlink(net.incoming, target, edge)


@kernel(allocates=False)
def _set_vertex_class(net, shape, vertex, bit, comes):
    if comes:
        net.words[vertex] |= bit
        _count_vertex(net, shape, vertex, bit, 1)
    else:
        _count_vertex(net, shape, vertex, bit, -1)
        net.words[vertex] &= ~bit


@kernel(allocates=False)
def _set_edge_class(net, shape, edge, bit, comes):
    if comes:
        net.bits[edge] |= bit
    if net.live[edge]:
        _count_edge(net, shape, edge, 1 if comes else -1, bit)
    if not comes:
        net.bits[edge] &= ~bit


@kernel(inline="always", allocates=False)
def _effect(net, shape, kind, element, source, target):
    """Return whether matches are lost, whether some are gained, and whether the element can be bound."""
    if kind <= EDGE_ON:
        return kind == EDGE_OFF, kind == EDGE_ON, source != target
    if kind < shape.first_value:
        comes, place = kind & 1 == 1, (kind - EDGE_ON - 1) >> 1
        of_edge = place >= shape.vertex_classes
        held = (net.bits[element] >> (place - shape.vertex_classes) if of_edge else net.words[element] >> place) & 1
        changes = (held == 1) != comes
        return changes and not comes, changes and comes, not of_edge or net.live[element]
    place = kind - shape.first_value
    of_edge = place >= net.of_vertices.kinds.shape[0]
    values = net.of_edges if of_edge else net.of_vertices
    name = place - net.of_vertices.kinds.shape[0] if of_edge else place
    changes = values.kinds[name, element] != source or (source != NONE and values.bits[name, element] != target)
    return changes, changes, not of_edge or net.live[element]


@kernel(inline="always", allocates=False)
def _apply(net, shape, kind, element, source, target):
    """Make a change; of a value, `source` and `target` are the kind and the bits."""
    if kind <= EDGE_ON:
        _set_edge(net, shape, element, source, target, kind == EDGE_ON)
    elif kind < shape.first_value:
        place = (kind - EDGE_ON - 1) >> 1
        if place < shape.vertex_classes:
            _set_vertex_class(net, shape, element, 1 << place, kind & 1 == 1)
        else:
            _set_edge_class(net, shape, element, 1 << (place - shape.vertex_classes), kind & 1 == 1)
    else:
        place = kind - shape.first_value
        if place < net.of_vertices.kinds.shape[0]:
            net.of_vertices.kinds[place, element], net.of_vertices.bits[place, element] = source, target
        else:
            place -= net.of_vertices.kinds.shape[0]
            net.of_edges.kinds[place, element], net.of_edges.bits[place, element] = source, target


# Observations.


@kernel(allocates=False)
def _settle(work, rows, signs, observations, table):
    """End an observation: keep the rows that remain when gains and losses of a match cancel each other."""
    cursor = work.cursor
    begin, end = cursor[MARK], cursor[COUNT]
    total = 0
    for at in range(begin, end):
        total += signs[at]
    if abs(total) == end - begin:  # all are gained, or all are lost
        observations[begin:end] = cursor[OBSERVATION]
        cursor[MARK] = end
        return True
    size = 1
    while size < 2 * (end - begin):
        size *= 2
    if size > table.size:
        return False
    table[:size] = 0
    for at in range(begin, end):
        found = 0
        for i in range(rows.shape[1]):
            found = (found ^ rows[at, i]) * _HASH
            found ^= found >> 29
        while True:
            found &= size - 1
            other = table[found] - 1
            if other < 0:
                table[found] = at - begin + 1
                break
            same = True
            for i in range(rows.shape[1]):
                same &= rows[begin + other, i] == rows[at, i]
            if same:
                signs[begin + other] += signs[at]
                signs[at] = 0
                break
            found += 1
    kept = begin
    for at in range(begin, end):
        if signs[at]:
            for i in range(rows.shape[1]):
                rows[kept, i] = rows[at, i]
            signs[kept], observations[kept] = signs[at], cursor[OBSERVATION]
            kept += 1
    cursor[COUNT] = cursor[MARK] = kept
    return True


@kernel(allocates=False)
def motifs(deltas, net, shape, plan, work, out, tables, whole):
    """Follow changes from where work was left; return `DONE`, or what there is not enough of."""
    rows, signs, observations, table = out
    cursor = work.cursor
    matches = rows, signs
    while cursor[DELTA] < deltas.kinds.size:
        i = cursor[DELTA]
        kind, element = deltas.kinds[i], deltas.elements[i]
        source, target = deltas.sources[i], deltas.targets[i]
        if cursor[STAGE] == _START:
            if deltas.begins[i]:
                if cursor[COUNT] > cursor[MARK] and not _settle(work, rows, signs, observations, table):
                    return TABLE
                cursor[OBSERVATION] += 1
            cursor[STAGE], cursor[LOOKED] = _BEFORE, 0
        reason = shape.reasons[kind]
        if cursor[STAGE] == _BEFORE:
            loses, gains, is_bound = _effect(net, shape, kind, element, source, target)
            cursor[GAINS] = gains and is_bound
            if loses and is_bound:
                state = _search_all(net, shape, plan, work, reason, element, matches, -1, tables)
                if state != DONE:
                    return state
            cursor[STAGE] = _APPLY if loses or gains else _AFTER
        if cursor[STAGE] == _APPLY:
            _apply(net, shape, kind, element, source, target)
            cursor[STAGE] = _AFTER
        if cursor[GAINS]:
            state = _search_all(net, shape, plan, work, reason, element, matches, 1, tables)
            if state != DONE:
                return state
        cursor[STAGE] = _START
        cursor[DELTA] = i + 1
    if whole and not _settle(work, rows, signs, observations, table):
        return TABLE
    return DONE


@kernel(allocates=False)
def all_matches(net, shape, plan, work, out, tables):
    """Find all matches, from where work was left; return `DONE`, or what there is not enough of."""
    rows, signs, _, _ = out
    start = plan.edges.size - 1
    while work.cursor[DELTA] < net.words.size:
        work.cursor[LOOKED] = 0
        if _fits(net, shape, plan, work, start, work.cursor[DELTA]):
            state = _search(net, shape, plan, work, start, work.cursor[DELTA], (rows, signs), 1, tables)
            if state != DONE:
                return state
        work.cursor[DELTA] += 1
    return DONE

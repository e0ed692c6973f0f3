"""Whether predicates hold for vertices and edges."""

from __future__ import annotations

import math

from goffish.kernels.compile import kernel
from goffish.streaming.batches import FIRST
from goffish.streaming.graphs.updates import BOOLEAN, FLOAT, INTEGER, LIST, NONE, TEXT, TIME

#: Instructions.
TRUE, COMPARE, HAS, NOT, ALL, ANY = range(6)
#: Comparisons.
EQUAL, DIFFERENT, LESS, AT_MOST, MORE, AT_LEAST = range(6)
#: In place of the number of an attribute: the id of an element, and when an edge was last seen.
ID, SEEN = -2, -1
#: In place of an attribute: that an element is new and has none, and everything.
NEW, EVERYTHING = ID - 1, ID - 2
#: What has become of an element for a predicate.
OFF, ON, RENEWED = range(3)


@kernel(allocates=False, inner=True)
def less(kinds, numbers, bounds, stored, a, b):
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


@kernel(allocates=False)
def _sign_of_keys(keys, a, b):
    if a == b:
        return 0
    return -1 if less(*keys, a, b) else 1


@kernel(allocates=False, inner=True)
def accepts(operator, sign):
    if operator == EQUAL:
        return sign == 0
    if operator == DIFFERENT:
        return sign != 0
    if operator == LESS:
        return sign < 0
    if operator == AT_MOST:
        return sign <= 0
    if operator == MORE:
        return sign > 0
    return sign >= 0


@kernel(allocates=False)
def sign_of_numbers(integer, real):
    """Compare an integer with a real number, also where its float would be rounded."""
    if real >= 9223372036854775808.0:
        return -1
    if real < -9223372036854775808.0:
        return 1
    whole = math.floor(real)
    if integer != whole:
        return 1 if integer > whole else -1
    return -1 if real > whole else 0


@kernel(allocates=False)
def _compares(programs, at, kind, bits, number, tables):
    """Whether a value that is no list compares with that of an instruction; values of other types do not."""
    given, operator = programs.kinds[at], programs.operators[at]
    if kind == INTEGER and given == INTEGER:
        other = programs.bits[at]
        sign = (bits > other) - (bits < other)
    elif kind == INTEGER and given == FLOAT:
        sign = sign_of_numbers(bits, programs.floats[at])
    elif kind == FLOAT and given == INTEGER:
        sign = -sign_of_numbers(programs.bits[at], number)
    elif kind == FLOAT and given == FLOAT:
        sign = (number > programs.floats[at]) - (number < programs.floats[at])
    elif kind == TEXT and given == TEXT:
        if operator in (EQUAL, DIFFERENT):
            return (bits == programs.bits[at]) == (operator == EQUAL)
        sign = _sign_of_keys(tables.texts, bits, programs.bits[at])
    elif kind == BOOLEAN and given == BOOLEAN and operator in (EQUAL, DIFFERENT):
        sign = bits - programs.bits[at]
    elif kind == TIME and programs.moments[at] != FIRST:
        sign = (bits > programs.moments[at]) - (bits < programs.moments[at])
    else:
        return False
    return accepts(operator, sign)


@kernel(allocates=False)
def _attribute_compares(programs, at, kind, bits, number, tables):
    """Whether an attribute compares: a list if any element does, or all of them for ``!=``."""
    if kind == NONE:
        return False
    if kind != LIST:
        return _compares(programs, at, kind, bits, number, tables)
    lists = tables.lists
    every = programs.operators[at] == DIFFERENT
    for i in range(lists.firsts[bits], lists.firsts[bits + 1]):
        if _compares(programs, at, lists.kinds[i], lists.bits[i], lists.floats[i], tables) != every:
            return not every
    return every


@kernel(allocates=False)
def _id_compares(programs, at, keys, element):
    given = programs.bits[at]
    kinds = keys[0]
    if programs.kinds[at] == NONE or kinds[element] != kinds[given]:
        return False
    return accepts(programs.operators[at], _sign_of_keys(keys, element, given))


@kernel(allocates=False, inner=True)
def holds(programs, program, attributes, keys, element, seen, tables, stack):
    """Whether a predicate holds for an element that exists."""
    size = 0
    for at in range(programs.firsts[program], programs.firsts[program + 1]):
        code, name = programs.codes[at], programs.names[at]
        if code == TRUE:
            found = True
        elif code == COMPARE:
            if name == ID:
                found = _id_compares(programs, at, keys, element)
            elif name == SEEN:
                sign = (seen > programs.moments[at]) - (seen < programs.moments[at])
                found = accepts(programs.operators[at], sign)
            else:
                found = _attribute_compares(
                    programs, at, attributes.kinds[name, element], attributes.bits[name, element],
                    attributes.floats[name, element], tables,
                )  # fmt: skip
        elif code == HAS:
            found = name < 0 or attributes.kinds[name, element] != NONE
        elif code == NOT:
            size -= 1
            found = not stack[size]
        else:
            found = code == ALL
            for _ in range(programs.bits[at]):
                size -= 1
                if stack[size] != (code == ALL):
                    found = code != ALL
        stack[size] = found
        size += 1
    return stack[0]


@kernel(allocates=False)
def _write(flips, at, record, program, element, state, source, target, seen):
    flips.records[at], flips.programs[at], flips.elements[at], flips.states[at] = record, program, element, state
    flips.sources[at], flips.targets[at], flips.seen[at] = source, target, seen
    return at + 1


@kernel(allocates=False)
def _set_vertex(graph, watches, program, vertex, found, record, flips, at):
    """Note whether a predicate holds for a vertex, and for its edges those that need it at both ends."""
    vertices, edges = watches.vertices, watches.edges
    if vertices.truth[program, vertex] == found:
        return at
    vertices.truth[program, vertex] = found
    vertices.counts[vertex] += 1 if found else -1
    at = _write(flips, at, record, program, vertex, found, -1, -1, 0)
    for other in range(edges.ends.size):
        if edges.ends[other] != program:
            continue
        for adjacency in (graph.outgoing, graph.incoming):
            for i in range(adjacency.sizes[vertex]):
                edge = adjacency.pool[adjacency.starts[vertex] + i]
                at = _follow_edge(graph, watches, other, edge, record, flips, at)
    return at


@kernel(allocates=False)
def _follow_edge(graph, watches, program, edge, record, flips, at):
    """Evaluate a predicate for an edge that exists."""
    watch, edges, ends = watches.edges, graph.edges, watches.edges.ends[program]
    source, target = edges.sources[edge], edges.targets[edge]
    found = ends < 0 or (watches.vertices.truth[ends, source] and watches.vertices.truth[ends, target])
    found = found and holds(
        watch.programs, program, graph.of_edges, watches.tables.edges, edge, edges.seen[edge], watches.tables,
        watches.stack,
    )  # fmt: skip
    if watch.truth[program, edge] == found:
        return at
    watch.truth[program, edge] = found
    watch.counts[edge] += 1 if found else -1
    return _write(
        flips, at, record, watches.vertices.ends.size + program, edge, found, source, target, edges.seen[edge]
    )


@kernel(allocates=False)
def _count(watch, name):
    """Return how many predicates are to be evaluated as an attribute has changed."""
    if name < ID:
        return watch.births.size if name == NEW else watch.ends.size
    at = name - ID
    return watch.firsts[at + 1] - watch.firsts[at] if at + 1 < watch.firsts.size else 0


@kernel(allocates=False)
def _program(watch, name, i):
    """Return one of these predicates."""
    if name < ID:
        return watch.births[i] if name == NEW else i
    return watch.mentions[watch.firsts[name - ID] + i]


@kernel(allocates=False, inner=True)
def follow_vertex(graph, watches, vertex, name, record, flips, at):
    """Evaluate the predicates for a vertex that mention an attribute, or those for `NEW` or `EVERYTHING`."""
    watch = watches.vertices
    for i in range(_count(watch, name)):
        program = _program(watch, name, i)
        found = holds(
            watch.programs, program, graph.of_vertices, watches.tables.vertices, vertex, 0, watches.tables,
            watches.stack,
        )  # fmt: skip
        at = _set_vertex(graph, watches, program, vertex, found, record, flips, at)
    return at


@kernel(allocates=False, inner=True)
def begin_vertex(graph, watches, vertex, flips, at):
    """Evaluate all predicates for a vertex whose edges are still to follow."""
    watch = watches.vertices
    for program in range(watch.ends.size):
        watch.truth[program, vertex] = holds(
            watch.programs, program, graph.of_vertices, watches.tables.vertices, vertex, 0, watches.tables,
            watches.stack,
        )  # fmt: skip
        if watch.truth[program, vertex]:
            watch.counts[vertex] += 1
            at = _write(flips, at, 0, program, vertex, ON, -1, -1, 0)
    return at


@kernel(allocates=False, inner=True)
def follow_edge(graph, watches, edge, name, record, flips, at):
    """Evaluate the predicates for an edge that mention an attribute, or those for `NEW` or `EVERYTHING`."""
    watch = watches.edges
    for i in range(_count(watch, name)):
        program = _program(watch, name, i)
        at = _follow_edge(graph, watches, program, edge, record, flips, at)
    return at


@kernel(allocates=False, inner=True)
def lose_vertex(graph, watches, vertex, record, flips, at):
    """Note that no predicate holds for a vertex that is gone."""
    program = 0
    while watches.vertices.counts[vertex]:
        at = _set_vertex(graph, watches, program, vertex, False, record, flips, at)
        program += 1
    return at


@kernel(allocates=False, inner=True)
def lose_edge(watches, edge, source, target, record, flips, at):
    """Note that no predicate holds for an edge that is gone."""
    watch, program = watches.edges, 0
    while watch.counts[edge]:
        if watch.truth[program, edge]:
            watch.truth[program, edge] = False
            watch.counts[edge] -= 1
            at = _write(flips, at, record, watches.vertices.ends.size + program, edge, OFF, source, target, 0)
        program += 1
    return at


@kernel(allocates=False, inner=True)
def renew_edge(graph, watches, edge, record, flips, at):
    """Report that an edge for which predicates hold was seen again."""
    watch, edges = watches.edges, graph.edges
    for program in range(watch.ends.size if watch.counts[edge] else 0):
        if watch.renewed[program] and watch.truth[program, edge]:
            at = _write(
                flips, at, record, watches.vertices.ends.size + program, edge, RENEWED, edges.sources[edge],
                edges.targets[edge], edges.seen[edge],
            )  # fmt: skip
    return follow_edge(graph, watches, edge, SEEN, record, flips, at)

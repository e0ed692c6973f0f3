"""Connected components that follow changes, and clusters whose ids follow the components.

Edges of a spanning forest come first among the edges of each vertex. When one of them goes, the smaller half looks for
another edge to the rest.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.arrays import copy_values
from goffish.kernels.compile import kernel
from goffish.streaming.graphs.kernels import link, unlink
from goffish.streaming.graphs.pattern_kernels import EDGE_OFF, EDGE_ON, VALUE
from goffish.streaming.graphs.predicate_kernels import less
from goffish.streaming.graphs.row_kernels import ABSENT

#: What vertices have of a measured attribute: nothing, a number that is added exactly, another number, something else.
NOTHING, EXACT, INEXACT, OTHER = range(4)
#: Measures of a condition: of the members, the edges, an attribute, or the shape.
SIZE, EDGES, DENSITY, DIAMETER, COUNT_ALL, SUM, COUNT, AVERAGE, LEAST, MOST = range(10)
#: Statuses by their rank.
DISAPPEARED, MERGED, SPLIT, CREATED, GROWN, JOINED, PARTED = range(7)
#: Exact numbers are multiples of a millionth.
SCALE = 1_000_000
#: Of a vertex that has left: whether it is back.
_LEAVES, _STAYS = 1, 2
#: Rows of scratch space by component, all -1 between observations: of a cluster, the component that has its id now; of
#: a component, the cluster; the clusters with the largest overlaps, both ways; the member whose label comes first; how
#: many members came; and the id before.
_HEIR, _INHERITS, _PARENT, _INTO, _LABEL, _CAME, _ID = range(7)
#: Hops to vertices that are not met yet, and to those that are not looked for.
_MEMBER, _OUTSIDE = -1, -2
#: Vertices of a component up to which the diameter is exact.
_MOST_EXACT = 2000


# Components.


@kernel(allocates=False)
def _swap(adjacency, vertex, a, b):
    start = adjacency.starts[vertex]
    one, other = adjacency.pool[start + a], adjacency.pool[start + b]
    adjacency.pool[start + a], adjacency.pool[start + b] = other, one
    adjacency.places[one], adjacency.places[other] = b, a


@kernel(allocates=False)
def _promote(forest, edge, u, v):
    """Make an edge part of the forest."""
    _swap(forest.outgoing, u, forest.outgoing.places[edge], forest.trees_out[u])
    forest.trees_out[u] += 1
    _swap(forest.incoming, v, forest.incoming.places[edge], forest.trees_in[v])
    forest.trees_in[v] += 1
    forest.is_tree[edge] = True


@kernel(allocates=False)
def _demote(forest, edge, u, v):
    forest.trees_out[u] -= 1
    _swap(forest.outgoing, u, forest.outgoing.places[edge], forest.trees_out[u])
    forest.trees_in[v] -= 1
    _swap(forest.incoming, v, forest.incoming.places[edge], forest.trees_in[v])
    forest.is_tree[edge] = False


@kernel(allocates=False)
def _touch(forest, component):
    if not forest.is_touched[component]:
        forest.is_touched[component] = True
        forest.touched[forest.counts[1]] = component
        forest.counts[1] += 1


@kernel(allocates=False)
def _new_component(forest):
    forest.counts[2] -= 1
    component = forest.free[forest.counts[2]]
    forest.size[component], forest.edges[component], forest.contained[component] = 0, 0, 0
    forest.reported[component] = -1
    forest.sums[:, component] = 0
    forest.tallies[:, :, component] = 0
    _touch(forest, component)
    return component


@kernel(allocates=False)
def _lose_component(forest, component):
    """Note that a component is gone; its number is used again, after the next observation if it had it at the last."""
    forest.size[component] = 0
    _touch(forest, component)
    if not forest.is_old[component]:
        forest.free[forest.counts[2]] = component
        forest.counts[2] += 1


@kernel(allocates=False)
def _move(forest, vertex, component):
    """Note in which component a vertex was at the last observation, and that it is in another one now."""
    if not forest.is_moved[vertex]:
        forest.is_moved[vertex] = True
        forest.before[vertex] = forest.component[vertex]
        forest.moved[forest.counts[0]] = vertex
        forest.counts[0] += 1
    forest.component[vertex] = component


@kernel(allocates=False)
def _tally(forest, component, vertex, sign):
    """Add the values of a vertex to those of a component, or subtract them."""
    forest.contained[component] += sign * forest.is_contained[vertex]
    for k in range(forest.kinds.shape[0]):
        kind = forest.kinds[k, vertex]
        forest.tallies[k, kind, component] += sign
        if kind == EXACT:
            forest.sums[k, component] += sign * forest.numbers[k, vertex]


@kernel(allocates=False)
def _begin(forest, vertex):
    """Make a vertex a component."""
    if forest.component[vertex] >= 0:  # it left and is back within one observation
        forest.leaves[vertex] = _STAYS
        return
    component = _new_component(forest)
    _move(forest, vertex, component)
    forest.following[vertex] = forest.preceding[vertex] = forest.first[component] = vertex
    forest.size[component] = 1
    _tally(forest, component, vertex, 1)


@kernel(allocates=False)
def _leave(forest, vertex):
    """Note that a vertex goes, once its edges are gone."""
    if not forest.leaves[vertex]:
        forest.leaving[forest.counts[3]] = vertex
        forest.counts[3] += 1
    forest.leaves[vertex] = _LEAVES
    _touch(forest, forest.component[vertex])


@kernel(allocates=False)
def _end(forest):
    """Remove the vertices that have gone."""
    for i in range(forest.counts[3]):
        vertex = forest.leaving[i]
        if forest.leaves[vertex] == _LEAVES:
            _lose_component(forest, forest.component[vertex])
            _move(forest, vertex, -1)
        forest.leaves[vertex] = 0
    forest.counts[3] = 0


@kernel(allocates=False)
def _join(forest, a, b):
    """Merge two components; the smaller one goes."""
    if forest.size[a] < forest.size[b]:
        a, b = b, a
    vertex = forest.first[b]
    for _ in range(forest.size[b]):
        _move(forest, vertex, a)
        vertex = forest.following[vertex]
    x, y = forest.first[a], forest.first[b]
    after, last = forest.following[x], forest.preceding[y]
    forest.following[x], forest.preceding[y] = y, x
    forest.following[last], forest.preceding[after] = after, last
    forest.size[a] += forest.size[b]
    forest.edges[a] += forest.edges[b]
    forest.contained[a] += forest.contained[b]
    for k in range(forest.kinds.shape[0]):
        forest.sums[k, a] += forest.sums[k, b]
        for kind in range(4):
            forest.tallies[k, kind, a] += forest.tallies[k, kind, b]
    _touch(forest, a)
    _lose_component(forest, b)


@kernel(allocates=False)
def _walk(forest, vertex, mark, queue, last):
    """Add the vertices to a queue that a vertex reaches by edges of the forest; return where it ends."""
    for side in range(2):
        adjacency = (forest.outgoing, forest.incoming)[side]
        trees = (forest.trees_out, forest.trees_in)[side]
        for i in range(trees[vertex]):
            edge = adjacency.pool[adjacency.starts[vertex] + i]
            other = forest.sources[edge] + forest.targets[edge] - vertex
            if forest.marks[other] != mark:
                forest.marks[other] = mark
                queue[last] = other
                last += 1
    return last


@kernel(allocates=False)
def _replacement(forest, queue, size, mark):
    """Return an edge from some vertices to others, or -1, and how many were looked at."""
    count = 0
    for i in range(size):
        vertex = queue[i]
        for side in range(2):
            adjacency = (forest.outgoing, forest.incoming)[side]
            trees = (forest.trees_out, forest.trees_in)[side]
            for j in range(trees[vertex], adjacency.sizes[vertex]):
                edge = adjacency.pool[adjacency.starts[vertex] + j]
                count += 1
                if forest.marks[forest.sources[edge] + forest.targets[edge] - vertex] != mark:
                    return edge, count
    return -1, count


@kernel(allocates=False)
def _part(forest, queue, size):
    """Make some vertices of a component another one."""
    old = forest.component[queue[0]]
    new = _new_component(forest)
    forest.size[new] = size
    for i in range(size):
        vertex = queue[i]
        _move(forest, vertex, new)
        _tally(forest, old, vertex, -1)
        _tally(forest, new, vertex, 1)
        forest.edges[new] += forest.outgoing.sizes[vertex]
        before, after = forest.preceding[vertex], forest.following[vertex]
        forest.following[before], forest.preceding[after] = after, before
        if forest.first[old] == vertex:
            forest.first[old] = after
    for i in range(size):
        vertex, after = queue[i], queue[(i + 1) % size]
        forest.following[vertex], forest.preceding[after] = after, vertex
    forest.first[new] = queue[0]
    forest.size[old] -= size
    forest.edges[old] -= forest.edges[new]
    _touch(forest, old)


@kernel(allocates=False)
def _add_edge(forest, edge, u, v):
    forest.sources[edge], forest.targets[edge] = u, v
    link(forest.outgoing, u, edge)
    link(forest.incoming, v, edge)
    forest.is_tree[edge] = False
    a, b = forest.component[u], forest.component[v]
    forest.edges[a] += 1
    _touch(forest, a)
    if a != b:
        _join(forest, a, b)
        _promote(forest, edge, u, v)


@kernel(allocates=False)
def _remove_edge(forest, edge, u, v):
    """Remove an edge; return how many edges were looked at."""
    component, tree = forest.component[u], forest.is_tree[edge]
    forest.edges[component] -= 1
    _touch(forest, component)
    if tree:
        _demote(forest, edge, u, v)
    # The last edge takes its place, which is behind those of the forest.
    unlink(forest.outgoing, u, edge)
    unlink(forest.incoming, v, edge)
    if not tree:
        return 0
    one, other = forest.queues
    forest.marks[u], forest.marks[v] = 1, 2
    one[0], other[0] = u, v
    first, second, last, end = 0, 0, 1, 1
    cost, price = forest.trees_out[u] + forest.trees_in[u], forest.trees_out[v] + forest.trees_in[v]
    while True:  # both halves in turn, at equal cost, until one is complete
        if cost <= price:
            last = _walk(forest, one[first], 1, one, last)
            first += 1
            if first == last:
                break
            cost += forest.trees_out[one[first]] + forest.trees_in[one[first]]
        else:
            end = _walk(forest, other[second], 2, other, end)
            second += 1
            if second == end:
                break
            price += forest.trees_out[other[second]] + forest.trees_in[other[second]]
    half, size, mark = (one, last, 1) if first == last else (other, end, 2)
    found, others = _replacement(forest, half, size, mark)
    if found >= 0:
        _promote(forest, found, forest.sources[found], forest.targets[found])
    else:
        _part(forest, half, size)
    for i in range(last):
        forest.marks[one[i]] = 0
    for i in range(end):
        forest.marks[other[i]] = 0
    return cost + price + others


@kernel(allocates=False)
def _set_value(forest, k, vertex, kind, number):
    component = forest.component[vertex]
    if component >= 0:
        _tally(forest, component, vertex, -1)
    forest.kinds[k, vertex], forest.numbers[k, vertex] = kind, number
    if component >= 0:
        _tally(forest, component, vertex, 1)
        _touch(forest, component)


@kernel(allocates=False)
def _set_contained(forest, vertex, comes):
    component = forest.component[vertex]
    if component >= 0:
        forest.contained[component] += np.int64(comes) - forest.is_contained[vertex]
        _touch(forest, component)
    forest.is_contained[vertex] = comes


@kernel(allocates=False)
def change_components(forest, net, difference, limit):
    """Follow changes of pairs and vertices until the work exceeds a limit; return the work."""
    work = 0
    for vertex in difference.come:
        _begin(forest, vertex)
    for i in range(difference.pairs.size):
        pair = difference.pairs[i]
        u, v, new = net.sources[pair], net.targets[pair], difference.weights[pair]
        work += 1
        if difference.before[i] == ABSENT:
            _add_edge(forest, pair, u, v)
        elif new == ABSENT:
            work += _remove_edge(forest, pair, u, v)
        if work > limit:
            return work
    for vertex in difference.gone:
        _leave(forest, vertex)
    _end(forest)
    _settle(forest)
    return work


@kernel(allocates=False)
def begin_components(forest, net, difference):
    """Follow a whole graph, whose trees are those of shortest paths: most of their edges have few vertices below."""
    for vertex in difference.come:
        _begin(forest, vertex)
    for i in range(difference.pairs.size):
        pair = difference.pairs[i]
        u, v = net.sources[pair], net.targets[pair]
        forest.sources[pair], forest.targets[pair], forest.is_tree[pair] = u, v, False
        link(forest.outgoing, u, pair)
        link(forest.incoming, v, pair)
    queue = forest.queues[0]
    for root in difference.come:
        if forest.marks[root]:
            continue
        forest.marks[root], queue[0] = 1, root
        component, first, last = forest.component[root], 0, 1
        while first < last:
            vertex = queue[first]
            first += 1
            forest.edges[component] += forest.outgoing.sizes[vertex]
            for side in range(2):
                adjacency = (forest.outgoing, forest.incoming)[side]
                for i in range(adjacency.sizes[vertex]):
                    # Edges of the tree take the places of those before it, which were looked at.
                    edge = adjacency.pool[adjacency.starts[vertex] + i]
                    other = forest.sources[edge] + forest.targets[edge] - vertex
                    if not forest.marks[other]:
                        forest.marks[other], queue[last] = 1, other
                        last += 1
                        _join(forest, component, forest.component[other])
                        _promote(forest, edge, forest.sources[edge], forest.targets[edge])
    for vertex in difference.come:
        forest.marks[vertex] = 0
    _settle(forest)


@kernel(allocates=False)
def last_members(component, vertices, last, found):
    """Write the place of the last vertex of the component of each vertex; `last` has -1 for each component."""
    for i in range(vertices.size):
        last[component[vertices[i]]] = i
    for i in range(vertices.size):
        found[i] = last[component[vertices[i]]]


# Measures.


@kernel(allocates=False, inner=True)
def quick_measure(groups, group, code, k):
    """Return a measure that is known without a look at the members; NaN otherwise."""
    if code in (SIZE, COUNT_ALL):
        return float(groups.size[group])
    if code == EDGES:
        return float(groups.edges[group])
    if code not in (SUM, COUNT, AVERAGE):
        return np.nan
    numbers = groups.tallies[k, EXACT, group] + groups.tallies[k, INEXACT, group]
    if code == COUNT:
        return float(numbers + groups.tallies[k, OTHER, group])
    if groups.tallies[k, INEXACT, group]:
        return np.nan
    total = groups.sums[k, group] / SCALE
    return total if code == SUM else total / numbers if numbers else np.nan


@kernel
def _values(groups, k, members):
    """Return the numbers that members have as an attribute, in their order."""
    found, count = np.empty(members.size, np.float64), 0
    for vertex in members:
        kind = groups.kinds[k, vertex]
        if kind in (EXACT, INEXACT):
            found[count] = groups.numbers[k, vertex] / SCALE if kind == EXACT else groups.floats[k, vertex]
            count += 1
    return np.sort(found[:count])


@kernel(allocates=False)
def _total(values):
    """Return a sum (Neumaier's), which does not depend on history as the values are in order."""
    total, lost = 0.0, 0.0
    for value in values:
        more = total + value
        lost += (total - more) + value if abs(total) >= abs(value) else (value - more) + total
        total = more
    return total + lost


@kernel
def _density(groups, members):
    """Return the share of the pairs of members that are adjacent."""
    pairs = 0
    for vertex in members:
        found = np.empty(groups.outgoing.sizes[vertex] + groups.incoming.sizes[vertex], np.int64)
        count = 0
        for side in range(2):
            adjacency = (groups.outgoing, groups.incoming)[side]
            for i in range(adjacency.sizes[vertex]):
                edge = adjacency.pool[adjacency.starts[vertex] + i]
                other = groups.sources[edge] + groups.targets[edge] - vertex
                if other > vertex and groups.hops[other] == _MEMBER:
                    found[count] = other
                    count += 1
        found = np.sort(found[:count])
        for i in range(count):
            pairs += i == 0 or found[i] != found[i - 1]
    return 2 * pairs / (members.size * (members.size - 1))


@kernel(allocates=False)
def _farthest(groups, vertex, queue):
    """Return the last member that a breadth-first search meets, its distance, and how many were met."""
    hops = groups.hops
    queue[0], hops[vertex] = vertex, 0
    first, last = 0, 1
    while first < last:
        one = queue[first]
        first += 1
        for side in range(2):
            adjacency = (groups.outgoing, groups.incoming)[side]
            for i in range(adjacency.sizes[one]):
                edge = adjacency.pool[adjacency.starts[one] + i]
                other = groups.sources[edge] + groups.targets[edge] - one
                if hops[other] == _MEMBER:
                    hops[other] = hops[one] + 1
                    queue[last] = other
                    last += 1
    found, distance = queue[last - 1], hops[queue[last - 1]]
    for i in range(last):
        hops[queue[i]] = _MEMBER
    return found, distance, last


@kernel
def _diameter(groups, members):
    """Return the largest distance; of many members, the one between two that are far from each other."""
    queue = np.empty(members.size, np.int64)
    vertex, found, met = _farthest(groups, members[0], queue)
    if met < members.size:
        return np.nan
    if members.size > _MOST_EXACT:
        return float(_farthest(groups, vertex, queue)[1])
    for one in members:
        found = max(found, _farthest(groups, one, queue)[1])
    return float(found)


@kernel(inner=True)
def slow_measure(groups, code, k, members, seen):
    """Return a measure of some vertices, of which those count for attributes that are seen; NaN if it has none."""
    if code in (DENSITY, DIAMETER):
        if code == DENSITY and members.size < 2:
            return np.nan
        groups.hops[members] = _MEMBER
        found = _density(groups, members) if code == DENSITY else _diameter(groups, members)
        groups.hops[members] = _OUTSIDE
        return found
    values = _values(groups, k, seen)
    if code == SUM:
        return _total(values)
    if not values.size:
        return np.nan
    if code == AVERAGE:
        return _total(values) / values.size
    return values[0] if code == LEAST else values[-1]


@kernel
def _members(forest, component):
    found = np.empty(forest.size[component], np.int64)
    vertex = forest.first[component]
    for i in range(found.size):
        found[i] = vertex
        vertex = forest.following[vertex]
    return found


@kernel
def _measure(forest, component, code, k):
    """Return a measure of a component; NaN if it has none."""
    found = quick_measure(forest, component, code, k)
    if np.isnan(found):
        members = _members(forest, component)
        return slow_measure(forest, code, k, members, members)
    return found


@kernel(allocates=False, inner=True)
def accepts(conditions, i, value):
    """Whether a measure satisfies a condition."""
    sign = (value > conditions.bounds[i]) - (value < conditions.bounds[i])
    return (sign < 0 and conditions.less[i]) or (sign == 0 and conditions.equal[i]) or (sign > 0 and conditions.more[i])


@kernel
def _is_cluster(forest, rules, component):
    """Whether a component satisfies all conditions, of which the first ones are quickly evaluated."""
    if forest.size[component] < rules.min_size or (rules.contains and not forest.contained[component]):
        return False
    for i in range(rules.conditions.codes.size):
        value = _measure(forest, component, rules.conditions.codes[i], rules.conditions.attributes[i])
        if np.isnan(value) or not accepts(rules.conditions, i, value):
            return False
    return True


# Identity.


@kernel
def _longer(column, size):
    if size <= column.size:
        return column
    found = np.empty(max(16, 2 * column.size, size), column.dtype)
    copy_values(found, column)
    return found


@kernel(inner=True)
def emit(made, observation, status, cluster, other, size):
    """Add an event; its vertices follow, and then those that it is about if they are others."""
    rows, measures, vertices, count, used = made
    if count == rows.shape[0]:
        space = max(16, 2 * count)
        more, others = np.empty((space, rows.shape[1]), np.int64), np.full((space, measures.shape[1]), np.nan)
        copy_values(more.ravel(), rows.ravel())
        copy_values(others.ravel(), measures.ravel())
        rows, measures = more, others
    rows[count, 0], rows[count, 1], rows[count, 2], rows[count, 3] = observation, status, cluster, other
    rows[count, 4], rows[count, 5], rows[count, 6], rows[count, 7] = size, used, used, used
    return rows, measures, vertices, count + 1, used


@kernel(inner=True)
def add_vertex(made, vertex, shown=True):
    """Add a vertex to the last event; one that is not shown is of those that it is about."""
    rows, measures, vertices, count, used = made
    vertices = _longer(vertices, used + 1)
    vertices[used] = vertex
    rows[count - 1, 7] = used + 1
    if shown:
        rows[count - 1, 6] = used + 1
    return rows, measures, vertices, count, used + 1


@kernel
def _add_members(forest, rules, made, component, shown=True):
    vertex = forest.first[component]
    for _ in range(forest.size[component] if forest.size[component] <= rules.most_members or not shown else 0):
        made = add_vertex(made, vertex, shown)
        vertex = forest.following[vertex]
    return made


@kernel
def _first_label(forest, component, keys):
    """Return the member of a component whose label comes first."""
    found = vertex = forest.first[component]
    for _ in range(forest.size[component]):
        if less(*keys, vertex, found):
            found = vertex
        vertex = forest.following[vertex]
    return found


@kernel
def _overlaps(forest):
    """Return clusters of the last observation, components that are clusters now, and how many vertices are in both."""
    count, moved = 0, forest.counts[0]
    pairs = np.empty((moved + forest.counts[1], 3), np.int64)
    keys = np.empty(moved, np.int64)
    for i in range(moved):
        vertex = forest.moved[i]
        old, new = forest.before[vertex], forest.component[vertex]
        if old >= 0 and new >= 0 and old != new and forest.ids[old] and forest.is_good[new]:
            keys[count] = old << 32 | new
            count += 1
    keys = np.sort(keys[:count])
    size = 0
    for i in range(count):
        if i == 0 or keys[i] != keys[i - 1]:
            pairs[size, 0], pairs[size, 1], pairs[size, 2] = keys[i] >> 32, keys[i] & 0xFFFFFFFF, 0
            size += 1
        pairs[size - 1, 2] += 1
    came = forest.scratch[_CAME]  # less one
    for i in range(moved):
        vertex = forest.moved[i]
        new = forest.component[vertex]
        if new >= 0 and forest.before[vertex] != new:
            came[new] += 1
    for i in range(forest.counts[1]):
        component = forest.touched[i]
        if forest.ids[component] and forest.is_good[component]:
            stayed = forest.size[component] - came[component] - 1
            if stayed:
                pairs[size, 0], pairs[size, 1], pairs[size, 2] = component, component, stayed
                size += 1
    return pairs[:size]


@kernel
def _comes_first(forest, pairs, labels, keys, a, b):
    """Whether a pair is looked at before another one: by overlap, cluster, and first label."""
    if pairs[a, 2] != pairs[b, 2]:
        return pairs[a, 2] > pairs[b, 2]
    if forest.ids[pairs[a, 0]] != forest.ids[pairs[b, 0]]:
        return forest.ids[pairs[a, 0]] < forest.ids[pairs[b, 0]]
    for one in (pairs[a, 1], pairs[b, 1]):
        if labels[one] < 0:
            labels[one] = _first_label(forest, one, keys)
    return less(*keys, labels[pairs[a, 1]], labels[pairs[b, 1]])


@kernel
def _changed_members(forest, made, old, new, joined, shown=True):
    """Add the vertices that have joined a cluster, or have left it: all of them if the new component is -1."""
    if joined:
        vertex = forest.first[new]
        if old != new:
            for _ in range(forest.size[new]):
                before = forest.before[vertex] if forest.is_moved[vertex] else new
                if before != old:
                    made = add_vertex(made, vertex)
                vertex = forest.following[vertex]
            return made
        for i in range(forest.counts[0]):
            vertex = forest.moved[i]
            if forest.component[vertex] == new and forest.before[vertex] != old:
                made = add_vertex(made, vertex)
        return made
    for i in range(forest.counts[0]):
        vertex = forest.moved[i]
        if forest.before[vertex] == old and (new < 0 or forest.component[vertex] != new):
            made = add_vertex(made, vertex, shown)
    if old != new:
        vertex = forest.first[old]
        for _ in range(forest.size[old]):
            if not forest.is_moved[vertex]:
                made = add_vertex(made, vertex, shown)
            vertex = forest.following[vertex]
    return made


@kernel(allocates=False)
def _is_quiet(forest, rules):
    """Whether it is known at once that clusters are those of the last observation, and nothing is to be reported."""
    clusters = 0
    for at in range(forest.counts[1]):
        component = forest.touched[at]
        good = forest.size[component] >= max(1, rules.min_size)
        good = good and (not rules.contains or forest.contained[component] > 0)
        for i in range(rules.conditions.codes.size if good else 0):
            value = quick_measure(forest, component, rules.conditions.codes[i], rules.conditions.attributes[i])
            if np.isnan(value):
                return False
            good = good and accepts(rules.conditions, i, value)
        if good != (forest.ids[component] > 0):
            return False
        clusters += good
        if good and forest.last_size[component] < rules.grow <= forest.size[component]:
            return False
    return forest.counts[0] == 0 or (clusters <= 1 and not rules.members)


@kernel
def _report(forest, vertex, moves, observation):
    """Note in which cluster a vertex is now."""
    component = forest.component[vertex]
    cluster = forest.ids[component] if component >= 0 else 0
    if forest.shown[vertex] == cluster:
        return moves
    rows, count = moves
    if count == rows.shape[0]:
        more = np.empty((max(16, 2 * count), rows.shape[1]), np.int64)
        copy_values(more.ravel(), rows.ravel())
        rows = more
    rows[count, 0], rows[count, 1], rows[count, 2], rows[count, 3] = observation, vertex, forest.shown[vertex], cluster
    forest.shown[vertex] = cluster
    return rows, count + 1


@kernel
def _report_moves(forest, moves, observation):
    """Report which vertices have come into clusters, or have left them, since the last observation."""
    for at in range(forest.counts[1]):
        component = forest.touched[at]
        if forest.size[component] and forest.reported[component] != forest.ids[component]:
            forest.reported[component] = forest.ids[component]
            vertex = forest.first[component]
            for _ in range(forest.size[component]):
                moves = _report(forest, vertex, moves, observation)
                vertex = forest.following[vertex]
    for i in range(forest.counts[0]):
        moves = _report(forest, forest.moved[i], moves, observation)
    return moves


@kernel(allocates=False)
def _settle(forest):
    """Begin the next observation."""
    for at in range(forest.counts[1]):
        component = forest.touched[at]
        if forest.size[component] == 0 and forest.is_old[component]:
            forest.free[forest.counts[2]] = component
            forest.counts[2] += 1
        forest.is_old[component] = forest.size[component] > 0
        forest.is_touched[component] = False
        forest.last_size[component] = forest.size[component]
    for i in range(forest.counts[0]):
        forest.is_moved[forest.moved[i]] = False
    forest.counts[0] = forest.counts[1] = 0


@kernel
def _observe(forest, rules, keys, made, observation):
    """Give ids to the clusters, and report what has become of those before."""
    touched = forest.touched[: forest.counts[1]]
    some = False
    for component in touched:
        forest.is_good[component] = forest.size[component] > 0 and _is_cluster(forest, rules, component)
        some |= forest.is_good[component] or forest.ids[component] > 0
    if some:
        made = _identify(forest, rules, keys, made, observation)
    return made


@kernel
def _identify(forest, rules, keys, made, observation):
    """Compare clusters with those of the last observation, and report what is different."""
    touched = forest.touched[: forest.counts[1]]
    pairs = _overlaps(forest)
    labels, ids = forest.scratch[_LABEL], forest.scratch[_ID]
    heir, inherits = forest.scratch[_HEIR], forest.scratch[_INHERITS]
    parent, into = forest.scratch[_PARENT], forest.scratch[_INTO]
    for component in touched:
        ids[component] = forest.ids[component]
    order = np.arange(len(pairs))
    for i in range(1, len(pairs)):  # few
        at = i
        while at and _comes_first(forest, pairs, labels, keys, order[at], order[at - 1]):
            order[at], order[at - 1] = order[at - 1], order[at]
            at -= 1
    for at in order:
        old, new = pairs[at, 0], pairs[at, 1]
        if heir[old] < 0 and inherits[new] < 0:
            heir[old], inherits[new] = new, old
        if parent[new] < 0:
            parent[new] = old
        if into[old] < 0:
            into[old] = new
    rest = np.empty(len(touched), np.int64)
    count = 0
    for component in touched:
        if forest.is_good[component] and inherits[component] < 0:
            if labels[component] < 0:
                labels[component] = _first_label(forest, component, keys) if len(touched) > 1 else component
            at = count
            while at and less(*keys, labels[component], labels[rest[at - 1]]):
                rest[at] = rest[at - 1]
                at -= 1
            rest[at] = component
            count += 1
    for component in touched:
        forest.ids[component] = (
            ids[inherits[component]] if forest.is_good[component] and inherits[component] >= 0 else 0
        )
    for component in rest[:count]:
        forest.counts[4] += 1
        forest.ids[component] = forest.counts[4]
        other = parent[component]
        made = emit(
            made, observation, CREATED if other < 0 else SPLIT, forest.counts[4], 0 if other < 0 else ids[other],
            forest.size[component],
        )  # fmt: skip
        made = _add_members(forest, rules, made, component)
        conditions = rules.conditions
        for i in range(conditions.codes.size):
            made[1][made[3] - 1, i] = _measure(forest, component, conditions.codes[i], conditions.attributes[i])
    for component in touched:
        cluster = ids[component]
        if cluster and heir[component] < 0:
            new = into[component]
            other = 0 if new < 0 else forest.ids[new]
            made = emit(made, observation, DISAPPEARED if new < 0 else MERGED, cluster, other, 0)
            if new >= 0:
                made = _add_members(forest, rules, made, new)
            if rules.lists:
                made = _changed_members(forest, made, component, -1, False, False)
        if not (forest.is_good[component] and inherits[component] >= 0):
            continue
        old, size = inherits[component], forest.size[component]
        if rules.grow and forest.last_size[old] < rules.grow <= size:
            made = emit(made, observation, GROWN, ids[old], 0, size)
            if rules.lists:
                made = _add_members(forest, rules, made, component, False)
        if rules.members:
            for status in (JOINED, PARTED):
                made = emit(made, observation, status, ids[old], 0, size)
                made = _changed_members(forest, made, old, component, status == JOINED)
                if made[0][made[3] - 1, 5] == made[0][made[3] - 1, 6]:
                    made = made[0], made[1], made[2], made[3] - 1, made[4]
                elif rules.lists:
                    made = _add_members(forest, rules, made, component, False)
    for component in touched:
        forest.scratch[:, component] = -1
    return made


@kernel(allocates=False, inline="compiled")
def _change(deltas, forest, at):
    """Follow a change."""
    kind, element = deltas.kinds[at], deltas.elements[at]
    if kind == EDGE_ON:
        _add_edge(forest, element, deltas.sources[at], deltas.targets[at])
    elif kind == EDGE_OFF:
        _remove_edge(forest, element, deltas.sources[at], deltas.targets[at])
    elif kind == EDGE_ON + 2:
        _begin(forest, element)
    elif kind == EDGE_ON + 1:
        _leave(forest, element)
    elif kind < VALUE:
        _set_contained(forest, element, kind == EDGE_ON + 4)
    else:
        _set_value(forest, kind - VALUE, element, deltas.sources[at], deltas.targets[at])


@kernel(allocates=False)
def _pass_over(deltas, forest, rules, at, observation, whole):
    """Follow changes until something is to be reported; return where, and the observation.

    Only allocating kernels count references to arrays, which takes longer than all of this.
    """
    for i in range(at, deltas.kinds.size + whole):
        over = i == deltas.kinds.size
        if i > at and (over or deltas.begins[i]):
            _end(forest)
            if rules.follows or not _is_quiet(forest, rules):
                return i, observation
            _settle(forest)
            observation += 1
        if not over:
            _change(deltas, forest, i)
    return deltas.kinds.size + 1, observation


@kernel
def clusters(deltas, forest, rules, keys, made, moves, observation, whole):
    """Follow clusters of vertices (the first role), of which some contain certain vertices (the second one)."""
    at = 0
    while at < deltas.kinds.size + whole:
        over = at == deltas.kinds.size
        if over or deltas.begins[at]:
            _end(forest)
            if not _is_quiet(forest, rules):
                made = _observe(forest, rules, keys, made, observation)
            if rules.follows:
                moves = _report_moves(forest, moves, observation)
            _settle(forest)
            observation += 1
        if over:
            break
        at, observation = _pass_over(deltas, forest, rules, at, observation, whole)
    return made, moves

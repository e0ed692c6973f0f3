"""Communities that follow changes: vertices near a change move to the neighboring community of the highest gain.

The ends of edges that have changed are looked at, then the neighbors of vertices that have moved (a dynamic frontier,
Sahu, arXiv:2404.19634).
"""

from __future__ import annotations

from goffish.kernels.compile import kernel
from goffish.streaming.graphs.row_kernels import ABSENT, put

#: Numbers that are kept: of free communities, the next id, the first and the last place of the queue, and moves.
FREE, NEXT, _FIRST, _LAST, MOVES = range(5)
#: Sums that are kept: of the weights inside communities, and of all. An edge without direction counts at both ends.
INSIDE, TOTAL = range(2)


@kernel(allocates=False)
def _enqueue(division, v):
    if not division.is_queued[v] and division.community[v] >= 0:
        division.is_queued[v] = True
        last = division.numbers[_LAST]
        division.queue[last] = v
        division.numbers[_LAST] = last + 1 if last + 1 < division.queue.size else 0


@kernel(allocates=False)
def _new_community(division):
    numbers = division.numbers
    numbers[FREE] -= 1
    community = division.free[numbers[FREE]]
    division.ids[community] = numbers[NEXT]
    numbers[NEXT] += 1
    division.size[community] = 0
    division.out_total[community] = division.in_total[community] = 0.0
    return community


@kernel(allocates=False)
def _leave(division, v):
    community = division.community[v]
    division.size[community] -= 1
    division.out_total[community] -= division.out_strength[v]
    division.in_total[community] -= division.in_strength[v]
    if division.size[community] == 0:
        division.free[division.numbers[FREE]] = community
        division.numbers[FREE] += 1


@kernel(allocates=False)
def _enter(division, v, community):
    division.community[v] = community
    division.size[community] += 1
    division.out_total[community] += division.out_strength[v]
    division.in_total[community] += division.in_strength[v]


@kernel(allocates=False)
def _link(net, division, v, count):
    """Add the weights of the edges of a vertex up by community; return how many communities there are."""
    links, found, community = division.links, division.found, division.community
    for side in range(2 if net.directed else 1):
        rows = (net.out, net.into)[side]
        start = rows.adjacency.starts[v]
        for j in range(start, start + rows.adjacency.sizes[v]):
            weight = rows.weights[j] if rows.weights.size else 1.0
            if weight > 0.0:
                other = community[rows.others[j]]
                if links[other] == 0.0:
                    found[count] = other
                    count += 1
                links[other] += weight
    return count


@kernel(allocates=False)
def _spread(net, division, queue, last, mark, v):
    """Add the neighbors of a vertex in its community to a queue; return where it ends."""
    for side in range(2 if net.directed else 1):
        rows = (net.out, net.into)[side]
        start = rows.adjacency.starts[v]
        for j in range(start, start + rows.adjacency.sizes[v]):
            other = rows.others[j]
            if division.community[other] == division.community[v] and division.marks[other] != mark:
                if division.marks[other]:
                    return -1
                division.marks[other] = mark
                queue[last] = other
                last += 1
    return last


@kernel(allocates=False)
def _separate(net, division, u, v):
    """Make a part of a community another one if no path inside leads from one vertex to another; return the work."""
    if division.community[u] != division.community[v] or u == v:
        return 0
    one, other = division.queues
    one[0], other[0] = u, v
    division.marks[u], division.marks[v] = 1, 2
    first, second, last, end, work = 0, 0, 1, 1, 0
    met = False
    while not met and first < last and second < end:
        if last <= end:
            more = _spread(net, division, one, last, 1, one[first])
            work += net.out.adjacency.sizes[one[first]]
            first += 1
            met, last = more < 0, max(more, last)
        else:
            more = _spread(net, division, other, end, 2, other[second])
            work += net.out.adjacency.sizes[other[second]]
            second += 1
            met, end = more < 0, max(more, end)
    # Those that were marked right before both sides met are not in a queue.
    for side in range(2):
        for i in range((last, end)[side]):
            w = division.queues[side][i]
            division.marks[w] = 0
            if met:
                for way in range(2 if net.directed else 1):
                    rows = (net.out, net.into)[way]
                    start = rows.adjacency.starts[w]
                    for j in range(start, start + rows.adjacency.sizes[w]):
                        division.marks[rows.others[j]] = 0
    if not met:
        part, size = (one, last) if first == last else (other, end)
        community = _new_community(division)
        for i in range(size):
            _leave(division, part[i])
            _enter(division, part[i], community)
    return work


@kernel(allocates=False)
def _move(net, division, v, community, connected):
    """Move a vertex; return the work of finding out whether the community that it leaves falls apart."""
    before, work = division.community[v], 0
    _leave(division, v)
    _enter(division, v, community)
    division.numbers[MOVES] += 1
    last = -1
    for side in range(2 if net.directed else 1):
        rows = (net.out, net.into)[side]
        start = rows.adjacency.starts[v]
        for j in range(start, start + rows.adjacency.sizes[v]):
            other = rows.others[j]
            if division.community[other] != community:
                _enqueue(division, other)
            if connected and division.community[other] == before:
                if last >= 0:
                    work += _separate(net, division, last, other)
                if division.community[other] == before:
                    last = other
    return work


@kernel(allocates=False)
def _improve(net, division, v, rule):
    """Move a vertex to the community of the highest modularity; return the work."""
    count, own = _link(net, division, v, 0), division.community[v]
    links, total = division.links, max(division.sums[TOTAL], 1e-300)
    out, into = division.out_strength[v], division.in_strength[v]
    share = rule.resolution * (1.0 if net.directed else 0.5) / total
    stay = links[own] - share * (out * (division.in_total[own] - into) + into * (division.out_total[own] - out))
    best, chosen, work = 0.0, -1, net.out.adjacency.sizes[v] + 1
    for i in range(count):
        other = division.found[i]
        if other == own:
            continue
        gain = links[other] - share * (out * division.in_total[other] + into * division.out_total[other])
        if gain > best or (gain == best and chosen >= 0 and other < chosen):
            best, chosen = gain, other
    least = rule.least_gain * (out + (into if net.directed else 0.0))
    inside = (0.0 if chosen < 0 else links[chosen]) - links[own]
    for i in range(count):
        links[division.found[i]] = 0.0
    if best - stay <= least or (chosen < 0 and division.size[own] == 1):
        return work
    if chosen < 0:
        chosen = _new_community(division)
    division.sums[INSIDE] += inside * (1.0 if net.directed else 2.0)
    return work + _move(net, division, v, chosen, rule.connected)


@kernel(allocates=False)
def change_division(net, division, difference, rule, limit):
    """Follow changes of pairs and vertices until the work exceeds a limit; return the work."""
    work, both = 0, 1.0 if net.directed else 2.0
    for v in difference.come:
        division.out_strength[v] = division.in_strength[v] = 0.0
        _enter(division, v, _new_community(division))
    for i in range(difference.pairs.size):
        pair, old = difference.pairs[i], difference.before[i]
        new = difference.weights[pair]
        put(net, pair, old, new)
        u, v, change = net.sources[pair], net.targets[pair], max(new, 0.0) - max(old, 0.0)
        for side in range(1 if net.directed else 2):
            a, b = (u, v) if side == 0 else (v, u)
            division.out_strength[a] += change
            division.in_strength[b] += change
            division.out_total[division.community[a]] += change
            division.in_total[division.community[b]] += change
        division.sums[TOTAL] += both * change
        if division.community[u] == division.community[v]:
            division.sums[INSIDE] += both * change
            if new == ABSENT and rule.connected:
                work += _separate(net, division, u, v)
        _enqueue(division, u)
        _enqueue(division, v)
    for v in difference.gone:
        _leave(division, v)
        division.community[v] = -1
    numbers = division.numbers
    while numbers[_FIRST] != numbers[_LAST]:
        v = division.queue[numbers[_FIRST]]
        numbers[_FIRST] = numbers[_FIRST] + 1 if numbers[_FIRST] + 1 < division.queue.size else 0
        division.is_queued[v] = False
        if division.community[v] >= 0 and work <= limit:
            work += _improve(net, division, v, rule)
    return work


@kernel(allocates=False)
def measure_division(net, division, vertices):
    """Compute all sums anew."""
    division.out_total[:], division.in_total[:], division.size[:], division.sums[:] = 0.0, 0.0, 0, 0.0
    division.out_strength[:], division.in_strength[:] = 0.0, 0.0
    for v in vertices:
        start = net.out.adjacency.starts[v]
        for j in range(start, start + net.out.adjacency.sizes[v]):
            other, weight = net.out.others[j], net.out.weights[j] if net.out.weights.size else 1.0
            division.out_strength[v] += weight
            division.in_strength[other] += weight
            division.sums[TOTAL] += weight
            if division.community[v] == division.community[other]:
                division.sums[INSIDE] += weight
    for v in vertices:
        _enter(division, v, division.community[v])


@kernel(allocates=False)
def list_free(division):
    """List the communities without members."""
    count = 0
    for community in range(division.size.size - 1, -1, -1):
        if division.size[community] == 0:
            division.free[count] = community
            count += 1
    division.numbers[FREE] = count


@kernel(allocates=False)
def modularity(division, resolution):
    """Return the modularity, and the number of communities."""
    total, expected, count = division.sums[TOTAL], 0.0, 0
    for community in range(division.size.size):
        if division.size[community]:
            count += 1
            if total > 0.0:
                expected += division.out_total[community] / total * (division.in_total[community] / total)
    return (division.sums[INSIDE] / total - resolution * expected if total > 0.0 else 0.0), count

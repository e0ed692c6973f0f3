"""Events through operators on shared hosts, one after the other in time, in numba."""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.partition.kernels import splitmix64

#: What `run` tells of every operator (rows of its first answer).
ARRIVED, PROCESSED, BUSY_S = range(3)
#: What it tells of the whole run (its second answer).
LEFT, LATENCY_S, NETWORK_S, LONGEST_S, ENDED_S = range(5)
_OUTSIDE = -1


@kernel
def uniform(state):
    """A number in [0, 1); `state` of one entry moves on."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return float(splitmix64(state[0]) >> np.uint64(11)) * 2.0**-53


@kernel
def drawn(mean, varied, state):
    """An exponential time of this mean, or the mean itself."""
    return -mean * np.log(1.0 - uniform(state)) if varied else mean


@kernel
def push(times, tags, size, time, tag):
    """Put an entry into a heap of `size` entries, the earliest on top."""
    at = size
    while at > 0 and times[(at - 1) // 2] > time:
        times[at], tags[at] = times[(at - 1) // 2], tags[(at - 1) // 2]
        at = (at - 1) // 2
    times[at], tags[at] = time, tag


@kernel
def pop(times, tags, size):
    """Take the top of a heap of `size` entries away."""
    time, tag = times[size - 1], tags[size - 1]
    last, at = size - 1, 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        if child + 1 < last and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[at], tags[at] = times[child], tags[child]
        at = child
    times[at], tags[at] = time, tag


@kernel
def run(g, place, cores, delay_s, rates, horizon_s, warm_s, varied_arrivals, varied_service, seed, room):
    """Simulate one placement.

    Every operator is one server with a queue in the order of arrival. The operators of a host that are busy share its
    cores equally, and none gets more than one. What it takes to send and to receive events over the network is added
    to the service of their sender and receiver.

    Parameters
    ----------
    g : EventGraph
    place : int64, shape (operators,)
    cores : float64, shape (hosts,)
    delay_s : float64, shape (hosts, hosts)
    rates : float64, shape (operators,)
        External input.
    warm_s : float
        Nothing is counted before.
    room : int
        Events that may be on their way at once; the run ends when there are more.

    Returns
    -------
    float64, shape (3, operators)
        Arrived, processed, seconds of being served at any speed.
    float64, shape (5,)
        Events that left, the sums of their latency and of the part of it in the network, the longest latency, and when
        the run ended.
    """
    operators, hosts = place.size, cores.size
    state = np.array([splitmix64(np.uint64(seed))], np.uint64)
    counted, total = np.zeros((3, operators)), np.zeros(5)
    # Events on their way: when they began, their time in the network, their operator, whether over the network, next.
    born, spent, goal = np.zeros(room), np.zeros(room), np.zeros(room, np.int64)
    remote, follow = np.zeros(room, np.bool_), np.arange(1, room + 1)
    free = 0
    times, tags, waiting = np.empty(room + operators), np.empty(room + operators, np.int64), 0
    first, last = np.full(operators, -1, np.int64), np.full(operators, -1, np.int64)
    # An operator is done when the clock of its host, which goes as fast as each of its servers, is there.
    done, began = np.full(operators, np.inf), np.zeros(operators)
    clock, since, busy = np.zeros(hosts), np.zeros(hosts), np.zeros(hosts, np.int64)
    upcoming, soonest = np.full(hosts, np.inf), np.full(hosts, -1, np.int64)
    sends, offsets = np.zeros(operators, np.int64), np.zeros(operators + 1, np.int64)
    for o in range(operators):
        branches = g.branch_offsets[o + 1] - g.branch_offsets[o]
        offsets[o + 1] = offsets[o] + branches * (int(g.selectivity[o]) + 1)
        if rates[o] > 0:
            push(times, tags, waiting, drawn(1.0 / rates[o], varied_arrivals, state), _OUTSIDE - o)
            waiting += 1
    targets = np.zeros(offsets[operators], np.int64)
    # The instances behind a branch take turns, as in Storm's shuffle grouping; nobody begins at the same one.
    turn = np.array([int(uniform(state) * 1e6) for _ in range(g.share.size)], np.int64)
    members = np.argsort(place, kind="mergesort")
    inside = np.searchsorted(place[members], np.arange(hosts + 1))

    while True:
        host = int(np.argmin(upcoming))
        now = upcoming[host]
        arrival = waiting > 0 and times[0] <= now
        if arrival:
            now = times[0]
        if now > horizon_s:
            total[ENDED_S] = horizon_s
            break
        if arrival:
            tag = tags[0]
            pop(times, tags, waiting)
            waiting -= 1
            event = tag
            if tag <= _OUTSIDE:
                o = _OUTSIDE - tag
                if free == room:
                    total[ENDED_S] = now
                    break
                event, free = free, follow[free]
                born[event], spent[event], goal[event], remote[event] = now, 0.0, o, False
                push(times, tags, waiting, now + drawn(1.0 / rates[o], varied_arrivals, state), tag)
                waiting += 1
            o = goal[event]
            host = place[o]
            if now >= warm_s:
                counted[ARRIVED, o] += 1
            follow[event] = -1
            if last[o] >= 0:
                follow[last[o]] = event
            else:
                first[o] = event
            last[o] = event
            if done[o] < np.inf:
                continue
            starts = o
            speed = 1.0 if busy[host] == 0 else min(1.0, cores[host] / busy[host])
            clock[host] += speed * (now - since[host])
            since[host] = now
        else:
            o = soonest[host]
            clock[host], since[host] = done[o], now
            done[o] = np.inf
            busy[host] -= 1
            event = first[o]
            first[o] = follow[event]
            if first[o] < 0:
                last[o] = -1
            if now >= warm_s:
                counted[PROCESSED, o] += 1
                counted[BUSY_S, o] += now - max(warm_s, began[o])
                if g.branch_offsets[o + 1] == g.branch_offsets[o]:
                    total[LEFT] += 1
                    total[LATENCY_S] += now - born[event]
                    total[NETWORK_S] += spent[event]
                    total[LONGEST_S] = max(total[LONGEST_S], now - born[event])
            full = False
            for at in range(offsets[o], offsets[o] + sends[o]):
                if free == room:
                    full = True
                    break
                new, free = free, follow[free]
                target = targets[at]
                away = delay_s[host, place[target]]
                born[new], spent[new], goal[new] = born[event], spent[event] + away, target
                remote[new] = place[target] != host
                push(times, tags, waiting, now + away, new)
                waiting += 1
            follow[event], free = free, event
            if full:
                total[ENDED_S] = now
                break
            starts = o if first[o] >= 0 else -1
        if starts >= 0:
            o = starts
            emitted = int(g.selectivity[o])
            if uniform(state) < g.selectivity[o] - emitted:
                emitted += 1
            count, far = 0, 1 if remote[first[o]] else 0
            for _ in range(emitted):
                for branch in range(g.branch_offsets[o], g.branch_offsets[o + 1]):
                    if g.share[branch] < 1.0 and uniform(state) >= g.share[branch]:
                        continue
                    begin, end = g.target_offsets[branch], g.target_offsets[branch + 1]
                    target = g.targets[begin + turn[branch] % (end - begin)]
                    turn[branch] += 1
                    targets[offsets[o] + count] = target
                    count += 1
                    if place[target] != host:
                        far += 1
            sends[o] = count
            done[o] = clock[host] + drawn(g.work_s[o], varied_service, state) + far * g.network_s
            began[o] = now
            busy[host] += 1
        soonest[host], least = -1, np.inf
        for at in range(inside[host], inside[host + 1]):
            if done[members[at]] < least:
                soonest[host], least = members[at], done[members[at]]
        upcoming[host] = np.inf
        if busy[host] > 0:
            upcoming[host] = now + max(0.0, least - clock[host]) / min(1.0, cores[host] / busy[host])
    return counted, total

"""Steps of the reactive heuristics over arrays, in numba: one more core, one core less, another alternate.

After each step only the elements are computed again whose input changed.
"""

from __future__ import annotations

import numba
import numpy as np

from goffish.scheduling.dataflow.kernels import SLACK, ideal_rates


@numba.njit(cache=True, nogil=True)
def flow_on(graph, first, cost, selectivity, external, power, dirty, out, local):
    """Compute element `first`, and all behind it whose input changes; `dirty` marks more that have to be computed."""
    dirty[first] = True
    at = last = graph.position[first]
    while at <= last:
        i = graph.order[at]
        at += 1
        if not dirty[i]:
            continue
        dirty[i] = False
        rate = external[i]
        for e in range(graph.pred_offsets[i], graph.pred_offsets[i + 1]):
            rate += out[graph.pred[e]]
        done = min(rate, power[i] / cost[i])
        local[i] = done / rate if rate > 0 else 1.0
        sent = done * selectivity[i]
        if sent != out[i]:
            out[i] = sent
            for e in range(graph.succ_offsets[i], graph.succ_offsets[i + 1]):
                j = graph.succ[e]
                dirty[j] = True
                last = max(last, graph.position[j])


@numba.njit(cache=True, nogil=True)
def flow_all(graph, cost, selectivity, external, power, dirty, out, local):
    """Compute all elements."""
    for i in graph.order:
        dirty[i] = True
    out[:] = -1.0
    for i in graph.order:
        if dirty[i]:
            flow_on(graph, i, cost, selectivity, external, power, dirty, out, local)


@numba.njit(cache=True, nogil=True)
def throughput(graph, out, ideal_out):
    """Relative throughput: mean over outputs, each at most 1."""
    mean = 0.0
    for i in graph.outputs:
        mean += min(1.0, out[i] / ideal_out[i]) if ideal_out[i] > 0 else 1.0
    return mean / graph.outputs.size


@numba.njit(cache=True, nogil=True)
def choose_alternates(graph, offsets, cost, value, selectivity, central, costs, active):
    """Alternates of the greatest value for their cost; fills the costs of all, and those chosen."""
    chosen = np.zeros(graph.order.size)
    for at in range(graph.order.size - 1, -1, -1):
        i = graph.order[at]
        behind = 0.0
        if central:
            for e in range(graph.succ_offsets[i], graph.succ_offsets[i + 1]):
                behind += chosen[graph.succ[e]]
        best = -1.0
        for a in range(offsets[i], offsets[i + 1]):
            costs[a] = cost[a] + selectivity[a] * behind
            ratio = value[a] / costs[a]
            if ratio > best + SLACK:
                best = ratio
                active[i] = a - offsets[i]
        chosen[i] = costs[offsets[i] + active[i]]


@numba.njit(cache=True, nogil=True)
def switch_alternates(
    graph, visit, offsets, cost, value, selectivity, external, power, active, under, target, fit, central
):  # fmt: skip
    """Other alternates on the same cores: cheaper ones if the dataflow is `under` its target, better ones else.

    Changes `active`; returns the throughput that is expected then.
    """
    n = graph.order.size
    c, s = np.empty(n), np.empty(n)
    for i in range(n):
        c[i], s[i] = cost[offsets[i] + active[i]], selectivity[offsets[i] + active[i]]
    ideal_in, ideal_out = np.empty(n), np.empty(n)
    out, local, dirty = np.empty(n), np.empty(n), np.zeros(n, np.bool_)
    ideal_rates(graph.order, graph.pred_offsets, graph.pred, s, external, ideal_in, ideal_out)
    flow_all(graph, c, s, external, power, dirty, out, local)
    omega = throughput(graph, out, ideal_out)
    available, needed = np.zeros(n), np.zeros(n)
    tried = np.zeros(cost.size, np.bool_)
    for i in visit:
        if under and omega >= target - SLACK:
            break
        available[i] = power[i]
        behind = 0.0
        if central:
            for e in range(graph.succ_offsets[i], graph.succ_offsets[i + 1]):
                available[i] += available[graph.succ[e]]
                behind += needed[graph.succ[e]]
        old = offsets[i] + active[i]
        present = cost[old] * ideal_in[i] + behind
        needed[i] = present
        while True:
            pick, best, wanted = -1, -1.0, 0.0
            for a in range(offsets[i], offsets[i + 1]):
                if a == old or tried[a]:
                    continue
                need = cost[a] * ideal_in[i] + selectivity[a] / selectivity[old] * behind
                cheaper = need < present - SLACK
                better = need > present + SLACK and value[a] > value[old] + SLACK
                if (cheaper if under else better) and (pick < 0 or value[a] / need > best + SLACK):
                    pick, best, wanted = a, value[a] / need, need
            if pick < 0:
                break
            tried[pick] = True
            if fit * wanted > available[i] + SLACK:
                continue
            _activate(graph, i, pick, cost, selectivity, external, power, c, s, ideal_in, ideal_out, dirty, out, local)
            found = throughput(graph, out, ideal_out)
            if not under and found < target - SLACK:
                _activate(
                    graph, i, old, cost, selectivity, external, power, c, s, ideal_in, ideal_out, dirty, out, local
                )
                continue
            active[i], omega, needed[i] = pick - offsets[i], found, wanted
            break
    return omega


@numba.njit(cache=True, nogil=True)
def _activate(graph, i, alternate, cost, selectivity, external, power, c, s, ideal_in, ideal_out, dirty, out, local):
    other = s[i] != selectivity[alternate]
    c[i], s[i] = cost[alternate], selectivity[alternate]
    if other:
        ideal_rates(graph.order, graph.pred_offsets, graph.pred, s, external, ideal_in, ideal_out)
    flow_on(graph, i, c, s, external, power, dirty, out, local)


@numba.njit(cache=True, nogil=True)
def add_cores(
    graph, forward, cost, selectivity, external, ideal_out, target, power, counts,
    free, speed, start, owner, new_cores, new_speed, most_new,
):  # fmt: skip
    """Give cores to the worst element until the relative throughput is `target`.

    Elements without a core come first, in `forward` order. A core is taken from a machine with a free one that runs the
    element or a neighbour, else from any with a free one (the fastest, then the first), else from a new machine.

    Parameters
    ----------
    power, counts : arrays, shape (elements,)
        Changed in place.
    free, speed, start : arrays, shape (machines,)
        Free cores, speed of one, and where the elements on the used ones begin in `owner`.

    Returns
    -------
    elements, machines : what each core was given to, and its machine; new machines are numbered after the others
    int, float : how many new machines, and the throughput; less than `target` if no element is short of power or
    machines ran out
    """
    n, known = graph.order.size, free.size
    out, local, dirty = np.empty(n), np.empty(n), np.zeros(n, np.bool_)
    flow_all(graph, cost, selectivity, external, power, dirty, out, local)
    omega = throughput(graph, out, ideal_out)
    elements, machines = np.empty(64, np.int64), np.empty(64, np.int64)
    given, bare, machine_count = 0, 0, known
    used = np.zeros(known, np.int64)
    for m in range(known):
        used[m] = (start[m + 1] - start[m]) - free[m]
    open_machines = np.empty(known + 1, np.int64)
    opened = 0
    for m in range(known):
        if free[m] > 0:
            open_machines[opened] = m
            opened += 1
    # Of the new machines at most one has free cores.
    newest, newest_free, newest_from = -1, 0, 0
    near = np.full(n, -1, np.int64)
    while True:
        while bare < n and counts[forward[bare]] > 0:
            bare += 1
        if bare == n and omega >= target - SLACK:
            break
        if bare < n:
            worst = forward[bare]
        else:
            worst = 0
            for i in range(1, n):
                if local[i] < local[worst] - SLACK:
                    worst = i
            if local[worst] >= 1.0 - SLACK:
                break
        near[worst] = given
        for e in range(graph.succ_offsets[worst], graph.succ_offsets[worst + 1]):
            near[graph.succ[e]] = given
        for e in range(graph.pred_offsets[worst], graph.pred_offsets[worst + 1]):
            near[graph.pred[e]] = given
        place, place_at, beside = -1, -1, False
        for at in range(opened):
            m = open_machines[at]
            close = False
            for k in range(start[m], start[m] + used[m]):
                if near[owner[k]] == given:
                    close = True
                    break
            if place < 0 or (close and not beside) or (close == beside and speed[m] > speed[place] + SLACK):
                place, place_at, beside = m, at, close
        if newest_free > 0:
            close = False
            for k in range(newest_from, given):
                if machines[k] == newest and near[elements[k]] == given:
                    close = True
                    break
            if place < 0 or (close and not beside) or (close == beside and new_speed > speed[place] + SLACK):
                place, place_at = newest, -1
        if place < 0:
            if machine_count - known == most_new:
                break
            newest, newest_free, newest_from = machine_count, new_cores, given
            machine_count += 1
            place = newest
        if given == elements.size:
            elements = np.concatenate((elements, np.empty(given, np.int64)))
            machines = np.concatenate((machines, np.empty(given, np.int64)))
        elements[given], machines[given] = worst, place
        given += 1
        counts[worst] += 1
        if place < known:
            owner[start[place] + used[place]] = worst
            used[place] += 1
            free[place] -= 1
            power[worst] += speed[place]
            if free[place] == 0:
                for at in range(place_at, opened - 1):
                    open_machines[at] = open_machines[at + 1]
                opened -= 1
        else:
            newest_free -= 1
            power[worst] += new_speed
        flow_on(graph, worst, cost, selectivity, external, power, dirty, out, local)
        omega = throughput(graph, out, ideal_out)
    return elements[:given], machines[:given], machine_count - known, omega


@numba.njit(cache=True, nogil=True)
def remove_cores(
    graph, cost, selectivity, external, ideal_out, target, power, counts,
    host_offsets, host_machine, host_count, used, speed, factor, weighed,
):  # fmt: skip
    """Take cores from the element with the greatest surplus until the relative throughput would fall below `target`.

    Hosts of element i are ``host_machine[host_offsets[i]:host_offsets[i + 1]]``, ascending. The core goes from the
    host of the least weight, used x (1 - share of the element's instances) x `factor`; unless `weighed` from the first
    one. Changes `power`, `counts`, `host_count` and `used`; returns elements, machines and the throughput.
    """
    n = graph.order.size
    ideal_in, ideal = np.empty(n), np.empty(n)
    ideal_rates(graph.order, graph.pred_offsets, graph.pred, selectivity, external, ideal_in, ideal)
    out, local, dirty = np.empty(n), np.empty(n), np.zeros(n, np.bool_)
    flow_all(graph, cost, selectivity, external, power, dirty, out, local)
    omega = throughput(graph, out, ideal_out)
    most = counts.sum()
    elements, machines = np.empty(most, np.int64), np.empty(most, np.int64)
    taken = 0
    done = np.zeros(n, np.bool_)
    surplus = np.empty(n)
    for i in range(n):
        surplus[i] = _surplus(power[i], ideal_in[i] * cost[i])
    while omega > target + SLACK:
        pick = -1
        for i in range(n):
            if done[i] or counts[i] < 2:
                continue
            equal = pick >= 0 and local[i] >= local[pick] - SLACK
            if pick < 0 or local[i] > local[pick] + SLACK or (equal and surplus[i] > surplus[pick] + SLACK):
                pick = i
        if pick < 0:
            break
        place, least = -1, np.inf
        for h in range(host_offsets[pick], host_offsets[pick + 1]):
            if host_count[h] == 0:
                continue
            if not weighed:
                place = h
                break
            m = host_machine[h]
            weight = used[m] * max(1.0 - host_count[h] / counts[pick], SLACK) * factor[m]
            if place < 0 or weight < least * (1.0 - SLACK):
                place, least = h, weight
        m = host_machine[place]
        before = power[pick]
        power[pick] -= speed[m]
        flow_on(graph, pick, cost, selectivity, external, power, dirty, out, local)
        found = throughput(graph, out, ideal_out)
        if found < target - SLACK:
            power[pick] = before
            flow_on(graph, pick, cost, selectivity, external, power, dirty, out, local)
            done[pick] = True
            continue
        omega = found
        counts[pick] -= 1
        host_count[place] -= 1
        used[m] -= 1
        surplus[pick] = _surplus(power[pick], ideal_in[pick] * cost[pick])
        elements[taken], machines[taken] = pick, m
        taken += 1
    return elements[:taken], machines[:taken], omega


@numba.njit(cache=True, nogil=True)
def _surplus(power, need):
    return power / need if need > 0 else np.inf


@numba.njit(cache=True, nogil=True)
def retype_machines(
    graph, cost, selectivity, external, ideal_out, target, power, kinds, offsets, owner, cores, speeds, prices, cheapest
):  # fmt: skip
    """Move every machine to the cheapest class that has the cores and leaves the relative throughput at `target`.

    Elements on machine m are ``owner[offsets[m]:offsets[m + 1]]``; changes `kinds` and `power`.
    """
    n = graph.order.size
    out, local, dirty = np.empty(n), np.empty(n), np.zeros(n, np.bool_)
    flow_all(graph, cost, selectivity, external, power, dirty, out, local)
    for m in range(kinds.size):
        old = kinds[m]
        for kind in cheapest:
            if prices[kind] >= prices[old] - SLACK:
                break
            if cores[kind] < offsets[m + 1] - offsets[m]:
                continue
            _shift_power(graph, owner[offsets[m] : offsets[m + 1]], speeds[kind] - speeds[old], power, dirty)
            _flow_dirty(graph, cost, selectivity, external, power, dirty, out, local)
            if throughput(graph, out, ideal_out) >= target - SLACK:
                kinds[m] = kind
                break
            _shift_power(graph, owner[offsets[m] : offsets[m + 1]], speeds[old] - speeds[kind], power, dirty)
            _flow_dirty(graph, cost, selectivity, external, power, dirty, out, local)


@numba.njit(cache=True, nogil=True)
def _shift_power(graph, elements, change, power, dirty):
    for i in elements:
        power[i] += change
        dirty[i] = True


@numba.njit(cache=True, nogil=True)
def _flow_dirty(graph, cost, selectivity, external, power, dirty, out, local):
    for i in graph.order:
        if dirty[i]:
            flow_on(graph, i, cost, selectivity, external, power, dirty, out, local)

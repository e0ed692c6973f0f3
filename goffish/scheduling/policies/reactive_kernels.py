"""Numba kernels of the reactive heuristics: add a core, remove a core, switch an alternate.

After each step, only PEs whose input changed are computed again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK, ActiveFlow, empty_rates, ideal_rates, relative


class Cores(NamedTuple):
    """The cores of running machines.

    Attributes
    ----------
    free : int64, shape (machines,)
        Free cores of each machine.
    speed : float64, shape (machines,)
        Speed of one core.
    start : int64, shape (machines + 1,)
        Position of the cores of each machine in `owner`, used cores first.
    owner : int64, shape (cores,)
        PE on each core, -1 for none.
    """

    free: NDArray[np.int64]
    speed: NDArray[np.float64]
    start: NDArray[np.int64]
    owner: NDArray[np.int64]


class Instances(NamedTuple):
    """Instances by PE.

    Attributes
    ----------
    offsets : int64, shape (elements + 1,)
        Places of PE i are ``offsets[i]`` to ``offsets[i + 1]``.
    machine, count : int64, shape (places,)
        Machine of each place, ascending within a PE, and its number of instances.
    """

    offsets: NDArray[np.int64]
    machine: NDArray[np.int64]
    count: NDArray[np.int64]


@kernel(inner=True)
def flow_on(flow, external, first, power, dirty, rates):
    """Compute PE `first` and all PEs after it whose input changes; `dirty` marks further PEs to compute.

    Changes only `local` and `out` of `rates`.
    """
    graph = flow.graph
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
            rate += rates.out[graph.pred[e]]
        done = min(rate, power[i] / flow.cost[i])
        rates.local[i] = done / rate if rate > 0 else 1.0
        sent = done * flow.selectivity[i]
        if sent != rates.out[i]:
            rates.out[i] = sent
            for e in range(graph.succ_offsets[i], graph.succ_offsets[i + 1]):
                j = graph.succ[e]
                dirty[j] = True
                last = max(last, graph.position[j])


@kernel(inner=True)
def flow_dirty(flow, external, power, dirty, rates):
    """Compute all marked PEs; return the mean relative throughput of the outputs."""
    for i in flow.graph.order:
        if dirty[i]:
            flow_on(flow, external, i, power, dirty, rates)
    return relative(flow.graph, rates)[0]


@kernel(inner=True)
def flow_all(flow, external, power):
    """Compute all PEs; return the rates, marks for `flow_on`, and the mean relative throughput of the outputs."""
    n = power.size
    rates, dirty = empty_rates(n), np.ones(n, np.bool_)
    ideal_rates(flow, external, rates.ideal_in, rates.ideal_out)
    rates.out[:] = -1.0
    return rates, dirty, flow_dirty(flow, external, power, dirty, rates)


@kernel
def choose_alternates(graph, alternates, central, costs, active):
    """Choose the alternates with the best value for their cost; fill the costs of all, and the chosen ones."""
    chosen = np.zeros(graph.order.size)
    for at in range(graph.order.size - 1, -1, -1):
        i = graph.order[at]
        behind = 0.0
        if central:
            for e in range(graph.succ_offsets[i], graph.succ_offsets[i + 1]):
                behind += chosen[graph.succ[e]]
        best = -1.0
        first = alternates.offsets[i]
        for a in range(first, alternates.offsets[i + 1]):
            costs[a] = alternates.cost[a] + alternates.selectivity[a] * behind
            ratio = alternates.value[a] / costs[a]
            if ratio > best + SLACK:
                best = ratio
                active[i] = a - first
        chosen[i] = costs[first + active[i]]


@kernel
def most_profitable(graph, alternates, external, price, active):
    """Change alternates to those with the greatest value minus the price of the power that they require downstream.

    `price` is the value of a unit of power. An alternate's input depends on the alternates upstream, so passes are
    repeated until nothing changes, at most eight times. Changes `active`.
    """
    n = graph.order.size
    first, cost, value, selectivity = alternates
    ideal_in, ideal_out, chosen = np.empty(n), np.empty(n), np.zeros(n)
    for _ in range(8):
        changed = False
        rows = first[:-1] + active
        ideal_rates(ActiveFlow(graph, cost[rows], selectivity[rows]), external, ideal_in, ideal_out)
        for at in range(n - 1, -1, -1):
            i = graph.order[at]
            behind, best, row = 0.0, -np.inf, first[i] + active[i]
            for e in range(graph.succ_offsets[i], graph.succ_offsets[i + 1]):
                behind += chosen[graph.succ[e]]
            for a in range(first[i], first[i + 1]):
                gain = value[a] / n - price * ideal_in[i] * (cost[a] + selectivity[a] * behind)
                if gain > best + SLACK:
                    best, row = gain, a
            changed |= active[i] != row - first[i]
            active[i] = row - first[i]
            chosen[i] = cost[row] + selectivity[row] * behind
        if not changed:
            return


@kernel
def switch_alternates(graph, alternates, visit, external, power, active, under, target, fit, central):
    """Switch alternates on the same cores: to cheaper ones if the dataflow is `under` its target, else to better ones.

    Changes `active`; returns the expected throughput.
    """
    n = graph.order.size
    first, cost, value, selectivity = alternates
    rows = first[:-1] + active
    flow = ActiveFlow(graph, cost[rows], selectivity[rows])
    rates, dirty, omega = flow_all(flow, external, power)
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
        old = first[i] + active[i]
        present = cost[old] * rates.ideal_in[i] + behind
        needed[i] = present
        while True:
            # Initially the old alternate: -1 would make numba compile the callees once more, for a literal.
            pick, best, wanted = old, -1.0, 0.0
            for a in range(first[i], first[i + 1]):
                if a == old or tried[a]:
                    continue
                need = cost[a] * rates.ideal_in[i] + selectivity[a] / selectivity[old] * behind
                cheaper = need < present - SLACK
                better = need > present + SLACK and value[a] > value[old] + SLACK
                if (cheaper if under else better) and (pick == old or value[a] / need > best + SLACK):
                    pick, best, wanted = a, value[a] / need, need
            if pick == old:
                break
            tried[pick] = True
            if fit * wanted > available[i] + SLACK:
                continue
            found = _activate(flow, alternates, i, pick, external, power, dirty, rates)
            if not under and found < target - SLACK:
                _activate(flow, alternates, i, old, external, power, dirty, rates)
                continue
            active[i], omega, needed[i] = pick - first[i], found, wanted
            break
    return omega


@kernel
def _activate(flow, alternates, i, alternate, external, power, dirty, rates):
    other = flow.selectivity[i] != alternates.selectivity[alternate]
    flow.cost[i], flow.selectivity[i] = alternates.cost[alternate], alternates.selectivity[alternate]
    if other:
        ideal_rates(flow, external, rates.ideal_in, rates.ideal_out)
    flow_on(flow, external, i, power, dirty, rates)
    return relative(flow.graph, rates)[0]


@kernel
def add_cores(flow, external, forward, target, power, counts, machines, new_cores, new_speed, most_new):
    """Add cores to the worst PE until the relative throughput is `target`.

    PEs without a core come first, in `forward` order. A core is taken from a machine with a free core that runs the PE
    or a neighbor, else from any machine with a free core (the fastest, then the first), else from a new machine.

    Parameters
    ----------
    power, counts : arrays, shape (elements,)
        Changed in place.
    machines : Cores
        Changed in place.

    Returns
    -------
    elements, places : PE and machine of each added core; new machines are numbered after the others
    int, float : number of new machines, and the throughput; less than `target` if no PE lacks power or the limit of
    machines is reached
    """
    free, speed, start, owner = machines
    graph, n, known = flow.graph, power.size, free.size
    rates, dirty, omega = flow_all(flow, external, power)
    elements, places = np.empty(64, np.int64), np.empty(64, np.int64)
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
    # At most one of the new machines has free cores.
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
                if rates.local[i] < rates.local[worst] - SLACK:
                    worst = i
            if rates.local[worst] >= 1.0 - SLACK:
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
                if places[k] == newest and near[elements[k]] == given:
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
            places = np.concatenate((places, np.empty(given, np.int64)))
        elements[given], places[given] = worst, place
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
        flow_on(flow, external, worst, power, dirty, rates)
        omega = relative(graph, rates)[0]
    return elements[:given], places[:given], machine_count - known, omega


@kernel
def remove_cores(flow, external, target, power, counts, instances, used, speed, factor, weighed):
    """Remove cores from the PE with the highest surplus until the relative throughput would fall below `target`.

    The core is taken from the machine with the least weight, used x (1 - share of the PE's instances) x `factor`, or,
    unless `weighed`, from the first machine. Changes `power`, `counts`, ``instances.count`` and `used`; returns PEs,
    machines and the throughput.
    """
    n = power.size
    rates, dirty, omega = flow_all(flow, external, power)
    most = counts.sum()
    elements, machines = np.empty(most, np.int64), np.empty(most, np.int64)
    taken = 0
    done = np.zeros(n, np.bool_)
    surplus = np.empty(n)
    for i in range(n):
        surplus[i] = _surplus(power[i], rates.ideal_in[i] * flow.cost[i])
    while omega > target + SLACK:
        pick = n
        for i in range(n):
            if done[i] or counts[i] < 2:
                continue
            equal = pick < n and rates.local[i] >= rates.local[pick] - SLACK
            more = pick == n or rates.local[i] > rates.local[pick] + SLACK
            if more or (equal and surplus[i] > surplus[pick] + SLACK):
                pick = i
        if pick == n:
            break
        place, least = -1, np.inf
        for h in range(instances.offsets[pick], instances.offsets[pick + 1]):
            if instances.count[h] == 0:
                continue
            if not weighed:
                place = h
                break
            m = instances.machine[h]
            weight = used[m] * max(1.0 - instances.count[h] / counts[pick], SLACK) * factor[m]
            if place < 0 or weight < least * (1.0 - SLACK):
                place, least = h, weight
        m = instances.machine[place]
        before = power[pick]
        power[pick] -= speed[m]
        flow_on(flow, external, pick, power, dirty, rates)
        found = relative(flow.graph, rates)[0]
        if found < target - SLACK:
            power[pick] = before
            flow_on(flow, external, pick, power, dirty, rates)
            done[pick] = True
            continue
        omega = found
        counts[pick] -= 1
        instances.count[place] -= 1
        used[m] -= 1
        surplus[pick] = _surplus(power[pick], rates.ideal_in[pick] * flow.cost[pick])
        elements[taken], machines[taken] = pick, m
        taken += 1
    return elements[:taken], machines[:taken], omega


@kernel
def _surplus(power, need):
    return power / need if need > 0 else np.inf


@kernel
def retype_machines(flow, external, target, power, kinds, offsets, owner, types, cheapest):
    """Move every machine to the cheapest type that has the cores and keeps the relative throughput at `target`.

    PEs on machine m are ``owner[offsets[m]:offsets[m + 1]]``; changes `kinds` and `power`.
    """
    rates, dirty, _ = flow_all(flow, external, power)
    for m in range(kinds.size):
        old, mine = kinds[m], owner[offsets[m] : offsets[m + 1]]
        for kind in cheapest:
            if types.prices[kind] >= types.prices[old] - SLACK:
                break
            if types.cores[kind] < mine.size:
                continue
            _shift_power(mine, types.speeds[kind] - types.speeds[old], power, dirty)
            if flow_dirty(flow, external, power, dirty, rates) >= target - SLACK:
                kinds[m] = kind
                break
            _shift_power(mine, types.speeds[old] - types.speeds[kind], power, dirty)
            flow_dirty(flow, external, power, dirty, rates)


@kernel
def _shift_power(elements, change, power, dirty):
    for i in elements:
        power[i] += change
        dirty[i] = True

"""Numba kernels of the genetic algorithm: profit, violation and changes of a population, and its mutation.

A row of a population holds the alternate of each PE, the machine type of each machine slot (-1: empty), and for each
slot the PEs on its cores (-1: free), used cores first.
"""

from __future__ import annotations

import numpy as np

from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import ActiveFlow, empty_rates, throughput


@kernel
def evaluate(graph, alternates, external, types, rows, coefficient, running, target, worth, fixed):
    """Profit, violation and number of changes of each row.

    `coefficient` is the observed speed of each machine slot, `worth` the loss of profit per hourly price of 1, and
    `fixed` the loss by the cost so far. Changes are counted against the row `running`: switches of alternates,
    instances added or removed, machines started or stopped.
    """
    n, slots = graph.order.size, coefficient.size
    width = (rows.shape[1] - n) // slots - 1
    flow, rates = ActiveFlow(graph, np.empty(n), np.empty(n)), empty_rates(n)
    power, none = np.empty(n), np.zeros(n)
    difference = np.zeros(n, np.int64)
    profit, violation, changes = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows))
    for p in range(len(rows)):
        row = rows[p]
        total, price, changed = 0.0, 0.0, 0
        for i in range(n):
            at = alternates.offsets[i] + row[i]
            flow.cost[i], flow.selectivity[i] = alternates.cost[at], alternates.selectivity[at]
            total += alternates.value[at]
            power[i] = 0.0
            changed += row[i] != running[i]
        for slot in range(slots):
            kind, first = row[n + slot], n + slots + slot * width
            changed += (kind >= 0) != (running[n + slot] >= 0)
            if kind >= 0:
                price += types.prices[kind]
                for k in range(first, first + width):
                    if row[k] < 0:
                        break
                    power[row[k]] += types.speeds[kind] * coefficient[slot]
            for k in range(first, first + width):
                if row[k] >= 0:
                    difference[row[k]] += 1
                if running[k] >= 0:
                    difference[running[k]] -= 1
            for k in range(first, first + width):
                for other in (row[k], running[k]):
                    if other >= 0:
                        changed += abs(difference[other])
                        difference[other] = 0
        profit[p] = total / n - fixed - worth * price
        violation[p] = max(0.0, target - throughput(flow, external, power, none, rates))
        changes[p] = changed
    return profit, violation, changes


@kernel
def mutate(rows, counts, cores, slot_kind, width, switch, slot_change, draws_element, draws_slot):
    """Switch alternates, or add or remove an instance, where the first draw is below the probability.

    Parameters
    ----------
    counts : int64, shape (elements,)
        Number of alternates of each PE.
    slot_kind : int64, shape (slots,)
        Machine type of a slot that represents a running machine; -1 for any type.
    draws_element : float64, shape (rows, elements, 2)
    draws_slot : float64, shape (rows, slots, 4)
    """
    n, slots = counts.size, slot_kind.size
    for p in range(rows.shape[0]):
        row = rows[p]
        for i in range(n):
            if counts[i] > 1 and draws_element[p, i, 0] < switch:
                other = int(draws_element[p, i, 1] * (counts[i] - 1))
                row[i] = other + (other >= row[i])
        for slot in range(slots):
            if draws_slot[p, slot, 0] >= slot_change:
                continue
            at, first = n + slot, n + slots + slot * width
            used = 0
            while used < width and row[first + used] >= 0:
                used += 1
            if draws_slot[p, slot, 1] < 0.5:
                if row[at] < 0:
                    row[at] = slot_kind[slot] if slot_kind[slot] >= 0 else int(draws_slot[p, slot, 2] * cores.size)
                if used < cores[row[at]]:
                    row[first + used] = int(draws_slot[p, slot, 3] * n)
            elif used:
                gone = int(draws_slot[p, slot, 3] * used)
                row[first + gone] = row[first + used - 1]
                row[first + used - 1] = -1
                if used == 1:
                    row[at] = -1


@kernel
def sample(rows, counts, cores, slot_kind, width, draws):
    """Fill random rows: uniform alternates; slots empty with probability 1/2, else any machine type with any PEs.

    `draws` is of shape (rows, elements + slots * (3 + width)).
    """
    n, slots = counts.size, slot_kind.size
    for p in range(rows.shape[0]):
        row, draw = rows[p], draws[p]
        row[n:] = -1
        for i in range(n):
            row[i] = int(draw[i] * counts[i])
        for slot in range(slots):
            at, first = n + slot * (3 + width), n + slots + slot * width
            if draw[at] < 0.5:
                continue
            kind = slot_kind[slot] if slot_kind[slot] >= 0 else int(draw[at + 1] * cores.size)
            used = int(draw[at + 2] * (cores[kind] + 1))
            if used:
                row[n + slot] = kind
            for k in range(used):
                row[first + k] = int(draw[at + 3 + k] * n)

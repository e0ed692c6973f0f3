"""Numba kernels of plans for the whole period: mean throughput of timesteps, and cores moved between PEs.

Machines are rows of a count matrix. `power` is the total speed of the cores of each PE and always matches the matrix.
`need` is the power that a PE requires for its ideal input. Cores are fungible: an instance may start on any free core.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.kernels.compile import kernel
from goffish.scheduling.dataflow.kernels import SLACK, empty_rates, throughput

#: Search steps for a scale, and its upper limit.
_STEPS, _LARGEST = 40, 1e6
#: Share of the price of a machine below which others replace it.
_WORTH = 0.9


class Cores(NamedTuple):
    """The machines of a plan and their instances; the last rows are for machines that the plan adds.

    Attributes
    ----------
    counts : int64, shape (machines, elements)
    free : int64, shape (machines,)
        Cores without an instance.
    speeds : float64, shape (machines,)
        Speed of a core.
    power, need : float64, shape (elements,)
    totals : int64, shape (elements,)
        Instances of each PE.
    """

    counts: NDArray[np.int64]
    free: NDArray[np.int64]
    speeds: NDArray[np.float64]
    power: NDArray[np.float64]
    need: NDArray[np.float64]
    totals: NDArray[np.int64]


@kernel(inner=True)
def mean_throughput(flow, rates, power):
    """Mean relative throughput of timesteps with these external rates, shape (timesteps, elements)."""
    nothing, found, total = np.zeros(power.size), empty_rates(power.size), 0.0
    for step in range(rates.shape[0]):
        total += throughput(flow, rates[step], power, nothing, found)
    return total / rates.shape[0]


@kernel(inner=True)
def scale_for(flow, rates, need, target):
    """The least multiple of `need` whose mean throughput reaches the target."""
    low, high = 0.0, 1.0
    while high < _LARGEST and mean_throughput(flow, rates, high * need + SLACK) < target - SLACK:
        low, high = high, 2.0 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if mean_throughput(flow, rates, middle * need + SLACK) >= target - SLACK:
            high = middle
        else:
            low = middle
    return high


@kernel
def _share(power, need):
    """Share of the need of a PE that its power covers; below 0 without power."""
    if power <= SLACK:
        return -1.0
    return power / need if need > 0 else np.inf


@kernel(inner=True)
def scarcest(cores):
    """The PE with the lowest share of its need, the first among equals."""
    chosen, least = 0, np.inf
    for i in range(cores.power.size):
        share = _share(cores.power[i], cores.need[i])
        if share < least - SLACK:
            chosen, least = i, share
    return chosen


@kernel
def _change(cores, m, i, count):
    """Add or remove instances of a PE on a machine; free cores do not change."""
    cores.counts[m, i] += count
    cores.totals[i] += count
    cores.power[i] += count * cores.speeds[m]


@kernel(inner=True)
def occupy(cores):
    """Assign every free core to the scarcest PE."""
    for m in range(cores.free.size):
        while cores.free[m] > 0:
            cores.free[m] -= 1
            _change(cores, m, scarcest(cores), 1)


@kernel(inner=True)
def balance(cores, moves):
    """Move the slowest cores of the PEs with the highest share to the scarcest, as long as the lowest share rises.

    Appends machine, former and new PE of each moved core to `moves`.
    """
    counts, speeds, power, need, totals = cores.counts, cores.speeds, cores.power, cores.need, cores.totals
    for _ in range(int(totals.sum())):
        poor = scarcest(cores)
        low = _share(power[poor], need[poor])
        rich, high = -1, low
        for i in range(power.size):
            share = _share(power[i], need[i])
            if i != poor and totals[i] > 1 and share > high + SLACK:
                rich, high = i, share
        if rich < 0:
            return
        slowest = -1
        for m in range(speeds.size):
            if counts[m, rich] > 0 and (slowest < 0 or speeds[m] < speeds[slowest]):
                slowest = m
        if _share(power[rich] - speeds[slowest], need[rich]) <= low + SLACK:
            return
        _change(cores, slowest, rich, -1)
        _change(cores, slowest, poor, 1)
        moves.append((slowest, rich, poor))


@kernel
def _empty(cores, m):
    """Remove all instances of a machine and return them."""
    held = cores.counts[m].copy()
    for i in range(held.size):
        _change(cores, m, i, -held[i])
    return held


@kernel
def _restore(cores, m, held, moves, power):
    """Undo moves, and the removal of the instances of a machine; `power` is the former one, without rounding errors."""
    for at in range(len(moves) - 1, -1, -1):
        machine, rich, poor = moves[at]
        _change(cores, machine, poor, -1)
        _change(cores, machine, rich, 1)
    for i in range(held.size):
        _change(cores, m, i, held[i])
    cores.power[:] = power


@kernel(inner=True)
def no_moves():
    """An empty list of moves."""
    moves = [(0, 0, 0)]
    moves.pop()
    return moves


@kernel(inner=True)
def retire(flow, rates, target, cores, ending):
    """Stop machines, in the order of `ending`, as long as the mean throughput of the others reaches the target.

    Returns whether each machine stops.
    """
    gone = np.zeros(cores.free.size, np.bool_)
    for m in ending:
        moves, power = no_moves(), cores.power.copy()
        held = _empty(cores, m)
        if cores.totals.min() > 0:
            balance(cores, moves)
            gone[m] = mean_throughput(flow, rates, cores.power) >= target - SLACK
        if not gone[m]:
            _restore(cores, m, held, moves, power)
    return gone


class Types(NamedTuple):
    """The machine types; arrays of shape (types,).

    Attributes
    ----------
    cores : int64
    speeds, prices : float64
        Expected speed of a core, and price of an hour; infinite if the type is not available.
    """

    cores: NDArray[np.int64]
    speeds: NDArray[np.float64]
    prices: NDArray[np.float64]


@kernel(inner=True)
def reached(flow, rates, target, cores):
    """Whether every PE has an instance, and the mean throughput reaches the target."""
    return cores.totals.min() > 0 and mean_throughput(flow, rates, cores.power) >= target - SLACK


@kernel(inner=True)
def expand(flow, rates, target, scale, cores, kinds, first, types, moves):
    """Add machines from row `first` on until the target is reached; return the row after the last one.

    Each is of the type with the lowest price for the power that is still missing of `scale` times the need. Fills their
    rows, also in `kinds`.
    """
    for row in range(first, cores.free.size):
        if reached(flow, rates, target, cores):
            return row
        missing = max(scale * cores.need.sum() - cores.power.sum(), SLACK)
        chosen, least, most = -1, np.inf, 0.0
        for kind in range(types.cores.size):
            power = types.cores[kind] * types.speeds[kind]
            if power > 0 and np.isfinite(types.prices[kind]):
                price = types.prices[kind] / min(power, missing)
                if chosen < 0 or price < least * (1 - SLACK) or (price <= least * (1 + SLACK) and power > most):
                    chosen, least, most = kind, price, power
        if chosen < 0:
            return row
        kinds[row], cores.free[row], cores.speeds[row] = chosen, types.cores[chosen], types.speeds[chosen]
        occupy(cores)
        balance(cores, moves)
    return cores.free.size


@kernel(inner=True)
def exchange(flow, rates, target, scale, cores, kinds, first, types, ending, gone):
    """Replace machines of `ending` that are not `gone` by cheaper ones, from row `first` on; return the row after them.

    Changes `gone`.
    """
    for m in ending:
        if gone[m]:
            continue
        moves, power = no_moves(), cores.power.copy()
        held = _empty(cores, m)
        balance(cores, moves)
        end = expand(flow, rates, target, scale, cores, kinds, first, types, moves)
        cost = 0.0
        for row in range(first, end):
            cost += types.prices[kinds[row]]
        if cost < _WORTH * types.prices[kinds[m]] - SLACK and reached(flow, rates, target, cores):
            gone[m], first = True, end
            continue
        # New machines go with the instances that they got; those that were moved there return first.
        _restore(cores, m, held, moves, power)
        for row in range(first, end):
            _empty(cores, row)
        cores.power[:] = power
    return first


@kernel
def plan_machines(flow, rates, target, hysteresis, cores, kinds, first, types, ending):
    """Retire and exchange machines of `ending`, and add machines if the throughput is below the target by more than the
    hysteresis.

    Rows from `first` on are for new machines. Returns whether each machine stops, and the row after the new machines.
    """
    moves = no_moves()
    occupy(cores)
    balance(cores, moves)
    gone = retire(flow, rates, target, cores, ending)
    scale = scale_for(flow, rates, cores.need, target)
    end = exchange(flow, rates, target, scale, cores, kinds, first, types, ending, gone)
    if not reached(flow, rates, target - hysteresis, cores):
        end = expand(flow, rates, target, scale, cores, kinds, end, types, moves)
    return gone, end

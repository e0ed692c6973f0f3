"""How Storm itself places a topology: round robin over slots, and its resource-aware scheduler.

See docs/specs/latency-aware.md, section 3.7. Both run once, when a topology is submitted.
"""

from __future__ import annotations

import numpy as np

from experiments.latency_aware.generators import Topology
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import Floats, Ints, PlacementProblem

#: Comparisons of what is free forgive so much.
_SLACK = 1e-9


def round_robin(operators: int, slots: list[int] | Ints, workers: int | None = None) -> Ints:
    """Storm's default scheduler: operators go round the workers, workers round the hosts.

    Parameters
    ----------
    operators : int
    slots : int, shape (hosts,)
        Free worker slots of each host. Hosts with more of them come first.
    workers : int, optional
        That are asked for; default: as many as there are slots.

    Returns
    -------
    int64, shape (operators,)

    Raises
    ------
    InputError
        If there is no slot, or no worker is asked for.
    """
    free = np.asarray(slots, np.int64)
    if workers is not None and workers < 1:
        raise InputError(f"workers = {workers}: at least 1 is needed")
    if not (free > 0).any():
        raise InputError("no host has a free slot")
    by_slots = np.argsort(-free, kind="stable")
    use = [host for turn in range(int(free.max())) for host in by_slots.tolist() if free[host] > turn]
    use = use[: len(use) if workers is None else workers]
    return np.array([use[operator % len(use)] for operator in range(operators)], np.int64)


def resource_aware(
    topology: Topology,
    problem: PlacementProblem,
    *,
    cpu: Floats | None = None,
    memory: Floats | None = None,
    slots: list[int] | Ints | None = None,
    racks: list[str] | None = None,
) -> Ints | None:
    """Storm's resource-aware scheduler, R-Storm's descendant: operators that talk share a host until it is full.

    It looks neither at latency nor at events, and fills hosts to their whole capacity.

    Parameters
    ----------
    topology : Topology
        Tells which operators are instances of the same operation.
    problem : PlacementProblem
    cpu, memory : float64, shape (operators,), optional
        Declared demands; default: those of the problem.
    slots : int, shape (hosts,), optional
        Free worker slots; default: one on each host.
    racks : list of str, optional
        Of each host; default: all in one.

    Returns
    -------
    int64, shape (operators,), optional
        ``None`` if an operator fits nowhere: Storm then places nothing.
    """
    hosts = problem.size
    names = ["all"] * hosts if racks is None else racks
    rooms = np.ones(hosts) if slots is None else np.array(slots, np.float64)
    if rooms.shape != (hosts,) or len(names) != hosts:
        raise InputError(f"slots and racks: one for each of {hosts} hosts is needed")
    free = np.array([problem.cpu_capacity, problem.memory_capacity, rooms])
    for name, given in (("cpu", cpu), ("memory", memory)):
        if given is not None and np.shape(given) != (problem.operators,):
            raise InputError(
                f"{name} of shape {np.shape(given)}: one for each of {problem.operators} operators is needed"
            )
    needs = np.array([problem.cpu if cpu is None else cpu, problem.memory if memory is None else memory])
    kinds = sorted(set(names), key=names.index)
    of_rack = np.array([kinds.index(name) for name in names])
    place = np.full(problem.operators, -1, np.int64)
    there = np.zeros(hosts, np.int64)
    for operator in placing_order(topology):
        in_racks = np.array([[row[of_rack == r].sum() for r in range(len(kinds))] for row in free])
        on_racks = np.bincount(of_rack, there, len(kinds))
        chosen = -1
        for rack in _sorted(on_racks, in_racks, in_racks.sum(axis=1), np.arange(len(kinds))):
            inside = np.flatnonzero(of_rack == rack)
            for host in _sorted(there[inside], free[:, inside], in_racks[:, rack], inside):
                fits = (needs[:, operator] <= free[:2, host] + _SLACK).all() and problem.may[operator, host]
                if fits and (there[host] or free[2, host] >= 1):
                    chosen = host
                    break
            if chosen >= 0:
                break
        if chosen < 0:
            return None
        place[operator] = chosen
        free[:2, chosen] -= needs[:, operator]
        free[2, chosen] -= there[chosen] == 0
        there[chosen] += 1
    return place


def placing_order(topology: Topology) -> list[int]:
    """Operators as the resource-aware scheduler takes them: operations with many connections first, each with its
    neighbours.
    """
    count = topology.instances
    near: list[set[int]] = [set() for _ in count]
    for a, b in topology.edges:
        if a != b:
            near[a].add(b)
            near[b].add(a)
    first = np.concatenate(([0], np.cumsum(count))).tolist()
    left = [list(range(first[c], first[c + 1])) for c in range(topology.operations)]
    found: list[int] = []
    for c in sorted(range(topology.operations), key=lambda c: (-sum(count[n] * count[c] for n in near[c]), c)):
        around = sorted(near[c], key=lambda n: (count[n] * count[c], n))
        while left[c] or any(left[n] for n in around):
            found += [left[n].pop(0) for n in (c, *around) if left[n]]
    return found


def _sorted(there: Floats | Ints, free: Floats, total: Floats, ids: Ints) -> list[int]:
    """Racks or hosts, the one to be tried first in front."""
    # Without a limit on a resource, or with none of it left, every share of it is the same.
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.nan_to_num(free / total[:, None], nan=0.0)
    order = np.lexsort((ids, -shares.mean(axis=0), -shares.min(axis=0), -there))
    found: list[int] = ids[order].tolist()
    return found

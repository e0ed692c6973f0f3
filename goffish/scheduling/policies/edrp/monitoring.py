"""Inputs of the controller: offered rates over a period, and a placement before rates are observed.

See docs/specs/edrp.md, section 3.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import SLACK, Floats
from goffish.scheduling.policies.edrp.problem import Ints, Problem


def offered_rates(rates: ArrayLike, queue: ArrayLike | None = None, drain_s: float | None = None) -> Floats:
    """Rates to plan for: the mean of the arrivals (not of the processed messages), plus the queue drained in time.

    Parameters
    ----------
    rates : float, shape (samples, elements)
        External input in each part of the period, messages per second.
    queue : float, shape (elements,), optional
        Queued messages; default: none.
    drain_s : float, optional
        Seconds in which the queue is processed in addition to arrivals; default: queues are ignored.

    Returns
    -------
    float64, shape (elements,)
    """
    seen = np.asarray(rates, np.float64)
    if seen.ndim != 2 or not len(seen) or not (seen >= 0).all():
        raise InputError(f"rates: shape {seen.shape}; expected at least one row of rates of 0 or more")
    if drain_s is not None and not drain_s > 0:
        raise InputError(f"drain_s = {drain_s:g}: must be greater than 0")
    found = seen.mean(axis=0)
    if queue is None or drain_s is None:
        return np.asarray(found)
    waiting = np.asarray(queue, np.float64)
    if waiting.shape != found.shape or not (waiting >= 0).all():
        raise InputError(f"queue: shape {waiting.shape}; expected {found.size} numbers of 0 or more")
    return np.asarray(found + waiting / drain_s)


def early_assignment(problem: Problem) -> Ints:
    """Placement without known rates: one replica of each PE, on the nearest host to those placed before it.

    PEs with few hosts are placed first, then the others from sources to sinks. Among equally near hosts, the first with
    free capacity is chosen.

    Returns
    -------
    int64, shape (elements, hosts)

    Raises
    ------
    InputError
        If no host has enough free capacity for a PE.
    """
    flow, hosts = problem.flow, problem.hosts
    delays, needs = hosts.latencies_s, flow.needs
    at = np.empty(problem.size, np.int64)
    at[flow.order] = np.arange(problem.size)
    place = np.full(problem.size, -1, np.int64)
    cores, memory = hosts.cores.copy(), hosts.memory_mb.copy()
    for i in np.lexsort((at, problem.allowed.sum(axis=1))).tolist():
        before = place[flow.pred[slice(*flow.pred_offsets[i : i + 2])]]
        after = place[flow.succ[slice(*flow.succ_offsets[i : i + 2])]]
        far = delays[before[before >= 0]].sum(axis=0) + delays[:, after[after >= 0]].sum(axis=1)
        room = (cores >= needs.cores[i] * (1 - SLACK)) & (memory >= needs.memory_mb[i] * (1 - SLACK))
        far[~(room & problem.allowed[i])] = np.inf
        place[i] = int(np.argmin(far))
        if not np.isfinite(far[place[i]]):
            raise InputError(
                f"processing element {flow.names[i]}: none of its permitted hosts has enough free capacity"
            )
        cores[place[i]] -= needs.cores[i]
        memory[place[i]] -= needs.memory_mb[i]
    counts = np.zeros((problem.size, hosts.size), np.int64)
    counts[np.arange(problem.size), place] = 1
    return counts

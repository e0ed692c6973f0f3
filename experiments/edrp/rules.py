"""Rules to compare with: thresholds of utilisation, and round-robin places; and slots of a Storm-like engine.

See docs/specs/edrp.md, sections 3.7 and 3.8.
"""

from __future__ import annotations

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies.edrp.problem import Ints, Problem, fits


def utilisation(problem: Problem, counts: Ints) -> np.ndarray:
    """Load of each element over the least that it cannot keep up with, by the rates that its latency allows."""
    stable = _highest_rates(problem)
    return np.asarray(problem.input_rates / (counts.sum(axis=1) * stable))


def threshold(problem: Problem, *, high: float = 0.8, low: float = 0.3) -> Ints:
    """One replica more above a utilisation, one less below another; each where it is nearest, if there is room."""
    if problem.current is None:
        raise InputError("thresholds need a current deployment")
    if not 0 <= low < high:
        raise InputError(f"thresholds {low:g} and {high:g}: the low one must be 0 or more and below the high one")
    found, load = np.array(problem.current, np.int64), utilisation(problem, problem.current)
    delays = problem.hosts.latencies_s
    for i in problem.flow.order.tolist():
        size = int(found[i].sum())
        if load[i] > high and size < problem.most[i]:
            held = np.flatnonzero(found[i])
            far = (delays[held].max(axis=0) + delays[:, held].max(axis=1)) if held.size else np.zeros(len(delays))
            for host in np.argsort(far, kind="stable").tolist():
                found[i, host] += 1
                if fits(problem, found):
                    break
                found[i, host] -= 1
        elif load[i] < low and size > 1:
            found[i, np.flatnonzero(found[i])[-1]] -= 1
    return found


def round_robin(problem: Problem) -> Ints:
    """As few replicas as keep up, on one host after the other.

    Raises
    ------
    InputError
        The hosts have no room for them.
    """
    count = problem.hosts.size
    found, host = np.zeros((problem.size, count), np.int64), 0
    stable = np.asarray(np.isfinite(problem.table).all(axis=2), np.bool_)
    for i in problem.flow.order.tolist():
        need = int(stable[i].argmax()) if stable[i].any() else int(problem.most[i])
        for _ in range(max(1, min(need, int(problem.most[i])))):
            for tried in range(count):
                at = (host + tried) % count
                found[i, at] += 1
                if fits(problem, found):
                    host = at + 1
                    break
                found[i, at] -= 1
            else:
                raise InputError(f"element {problem.flow.names[i]}: no host has room for another replica")
    return found


def slots(flow: Flow, counts: Ints, host: int, per_slot: int) -> list[list[int]]:
    """Replicas of a host in as few slots as they need, each filled before the next, neighbours together.

    Parameters
    ----------
    counts : int64, shape (elements, hosts)
    host : int
    per_slot : int
        Replicas that a slot takes.

    Returns
    -------
    list of list of int
        Elements in each slot, each as often as it has replicas there.
    """
    if per_slot < 1:
        raise InputError(f"per_slot = {per_slot}: at least 1")
    left = {i: int(counts[i, host]) for i in flow.order.tolist() if counts[i, host]}
    line: list[int] = []
    while left:
        near = [i for i in left if line and (i == line[-1] or _adjacent(flow, i, line[-1]))]
        chosen = near[0] if near else next(iter(left))
        line += [chosen] * left.pop(chosen)
    return [line[at : at + per_slot] for at in range(0, len(line), per_slot)]


def _adjacent(flow: Flow, i: int, j: int) -> bool:
    return j in flow.succ[slice(*flow.succ_offsets[i : i + 2])] or j in flow.pred[slice(*flow.pred_offsets[i : i + 2])]


def _highest_rates(problem: Problem) -> np.ndarray:
    """The rate that one instance of each element keeps up with on the reference processor."""
    found = np.empty(problem.size)
    for i, latency in enumerate(problem.latencies):
        low, high = 0.0, 1.0
        while np.isfinite(latency.seconds(np.array([high]))).all() and high < 1e12:
            low, high = high, high * 2
        for _ in range(60):
            middle = (low + high) / 2
            if np.isfinite(latency.seconds(np.array([middle]))).all():
                low = middle
            else:
                high = middle
        found[i] = low
    return found

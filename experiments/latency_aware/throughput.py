"""How much a placement can process, without a cluster: every host's CPU against what comes to it.

See docs/specs/latency-aware.md, section 7.5 (3), and the paper's way to compare schedulers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import Floats, PlacementProblem


def most_throughput(problem: PlacementProblem, placement: ArrayLike, rate: float, per_event: float = 0.0) -> float:
    """The highest input that no host is too slow for.

    Parameters
    ----------
    rate : float
        Input at which `problem.cpu` and `problem.events` were counted; both grow with the input.
    per_event : float
        CPU points for sending or receiving one event a second over the network.

    Returns
    -------
    float
        In the unit of `rate`.
    """
    if not rate > 0 or not per_event >= 0:
        raise InputError(f"rate = {rate:g}, per_event = {per_event:g}: above 0, and at least 0, are needed")
    place = problem.placement(placement)
    source, target = place[problem.edges[:, 0]], place[problem.edges[:, 1]]
    remote = np.where(source != target, problem.events, 0.0)
    handled = sum(np.bincount(end, remote, problem.size) for end in (source, target))
    used = np.bincount(place, problem.cpu, problem.size) + per_event * handled
    busy = used > 0
    return float((rate * problem.cpu_capacity[busy] / used[busy]).min(initial=np.inf))


def reserved_cpu(problem: PlacementProblem, placement: ArrayLike) -> float:
    """CPU points of all hosts in use."""
    return float(problem.cpu_capacity[np.unique(problem.placement(placement))].sum())


def throughput_factor(
    reserved: Sequence[float] | Floats,
    throughput: Sequence[float] | Floats,
    base_reserved: Sequence[float] | Floats,
    base_throughput: Sequence[float] | Floats,
) -> float:
    """Mean factor over another scheduler at equal reserved CPU (§4.4).

    The other one's throughput is interpolated between its reference points; outside of them the nearest counts.
    """
    if not len(base_reserved) or not len(reserved):
        raise InputError("a throughput factor needs at least one point of each scheduler")
    order = np.argsort(base_reserved, kind="stable")
    base = np.interp(reserved, np.asarray(base_reserved)[order], np.asarray(base_throughput)[order])
    return float(np.mean(np.asarray(throughput) / base))

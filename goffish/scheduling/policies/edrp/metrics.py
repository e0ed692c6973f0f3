"""Response time, price, downtime and availability of places (EDRP, §2.4 to §2.7), always from the places themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import SLACK, Floats
from goffish.scheduling.policies.edrp import kernels
from goffish.scheduling.policies.edrp.problem import Ints, Problem


@dataclass(frozen=True)
class Metrics:
    """Of a deployment.

    Attributes
    ----------
    response_s : float
        Delay of the critical path; infinite if an element cannot keep up.
    price : float
        Of an hour.
    downtime_s : float
        Of the change from the current deployment.
    availability : float
        Probability that all used hosts and links work.
    objective : float
        Eq. 12.
    feasible : bool
        Whether all bounds and limits are kept.
    """

    response_s: float
    price: float
    downtime_s: float
    availability: float
    objective: float
    feasible: bool


def metrics(problem: Problem, counts: Ints) -> Metrics:
    """Metrics of replicas on hosts.

    Parameters
    ----------
    counts : int64, shape (elements, hosts)
        At least one replica of each element.
    """
    counts = np.ascontiguousarray(counts, np.int64)
    if counts.shape != (problem.size, problem.infrastructure.size) or (counts.sum(axis=1) < 1).any():
        raise InputError(f"counts of shape {counts.shape}: a row with at least one replica for each element")
    model = problem.model
    (response, price, downtime, log, missing), _, _, _ = kernels.all_figures(model, counts)
    if missing > 0:
        response = math.inf
    value = math.inf if missing > 0 else kernels.objective(model, response, price, downtime, log)
    over = missing > 0 or kernels.excess(model, response, price, downtime, log) > 1e-6
    return Metrics(response, price, downtime, math.exp(log), value, not over and fits(problem, counts))


def fits(problem: Problem, counts: Ints) -> bool:
    """Whether elements run where they may, in numbers that they may have, and hosts have room (Eq. 18)."""
    found, needs = problem.infrastructure, problem.flow.needs
    if (counts.sum(axis=1) > problem.most).any() or ((counts > 0) & ~problem.allowed).any():
        return False
    return all(
        bool((need @ counts <= room * (1 + SLACK) + SLACK).all())
        for need, room in ((needs.cores, found.cores), (needs.memory_mb, found.memory_mb))
    )


def downtimes(problem: Problem, counts: Ints) -> Floats:
    """Downtime of each element's own change, seconds (Eq. 25 or 34)."""
    model = problem.model
    return np.array([kernels.element_downtime(model, i, row) for i, row in enumerate(counts)])


def restarts(problem: Problem) -> Floats:
    """Of each element, to be restarted where it is, seconds (Eq. 39); 0 in the general variant."""
    return np.asarray(problem.model.elements[kernels.RESTART], np.float64)


def transferred(before: Ints, after: Ints, *, literal: bool = False) -> tuple[float, float]:
    """Shares of an element's state that go to the store, and come from it (Eq. 31 and 32).

    Parameters
    ----------
    before, after : int64, shape (hosts,)
    literal : bool
        As printed: growing elements upload too much where they leave a host as well.
    """
    old, new = int(before.sum()), int(after.sum())
    pairs = list(zip(before.tolist(), after.tolist(), strict=True))
    up = math.fsum(kernels.upload_share(u, v, old, new, literal) for u, v in pairs)
    return up, math.fsum(kernels.download_share(u, v, old, new) for u, v in pairs)

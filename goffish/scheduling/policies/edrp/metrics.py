"""Response time, price, downtime and availability of places (EDRP, §2.4 to §2.7), always from the places themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import SLACK
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
    if counts.shape != (problem.size, problem.hosts.size) or (counts.sum(axis=1) < 1).any():
        raise InputError(f"counts of shape {counts.shape}: a row with at least one replica for each element")
    model = problem.model
    (response, price, downtime, log, missing), _, _ = kernels.all_figures(model, counts)
    if missing > 0:
        response = math.inf
    value = math.inf if missing > 0 else kernels.objective(model.scale, response, price, downtime, log)
    over = missing > 0 or kernels.excess(model.bounds, response, price, downtime, log) > 1e-6
    return Metrics(response, price, downtime, math.exp(log), value, not over and fits(problem, counts))


def fits(problem: Problem, counts: Ints) -> bool:
    """Whether elements run where they may, in numbers that they may have, and hosts have room (Eq. 18)."""
    found, needs = problem.hosts, problem.flow.needs
    if (counts.sum(axis=1) > problem.most).any() or ((counts > 0) & ~problem.allowed).any():
        return False
    return all(
        bool((need @ counts <= room * (1 + SLACK) + SLACK).all())
        for need, room in ((needs.cores, found.cores), (needs.memory_mb, found.memory_mb))
    )

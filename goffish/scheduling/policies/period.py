"""Plans for the mean throughput of the period: alternates, machines and instances chosen together.

See docs/specs/plasticc.md, section 3.8.
"""

from __future__ import annotations

import math

import numpy as np

from goffish.cloud.billing import paid_left_s
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies import period_kernels as kernels
from goffish.scheduling.policies.alternates import profitable_alternates
from goffish.scheduling.policies.initial import machines_left
from goffish.scheduling.policies.windows import Outlook

#: Machines are added if the expected throughput is lower than the target by more than this, and alternates are switched
#: if the profit rises by more: plans that follow every fluctuation pay for it.
HYSTERESIS, LEAST_GAIN = 0.02, 0.002
#: Maximum number of machines that a plan adds; the next plan may add more.
MOST_ADDED = 2_000
#: Ratio of the golden section, for an order of quantiles whose every part is spread evenly.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def quantile_path(seen: Floats, horizon: int) -> Floats:
    """Return equally likely values of the next timesteps: quantiles of past values.

    A mean over the path is an expectation over the distribution, which a point forecast does not provide. The quantiles
    are not in order, so that also the first values of the path represent the distribution.

    Parameters
    ----------
    seen : float64, shape (timesteps, ...)
    horizon : int

    Returns
    -------
    float64, shape (horizon, ...)
    """
    order = np.argsort(np.argsort(np.arange(1, horizon + 1) * _GOLDEN % 1.0))
    return np.asarray(np.quantile(seen, (order + 0.5) / horizon, axis=0), np.float64)


def plan_period(flow: Flow, live: Deployment, outlook: Outlook, target: float, interval_s: float) -> Deployment:
    """Change a deployment so that the mean throughput of the next timesteps reaches a target at the least cost.

    Alternates are the most profitable ones at the mean rates. Machines whose paid time ends now stop if the others
    suffice, those with the highest price for their speed first, or are replaced by cheaper ones. If the throughput is
    too low, machines are added. All paid cores are in use: instances move to the PE with the lowest share of its
    required power.

    Parameters
    ----------
    flow : Flow
    live : Deployment
        The running deployment; not changed.
    outlook : Outlook
        Predictions of equally likely or successive timesteps.
    target : float
        Least mean relative throughput of these timesteps.
    interval_s : float
        Length of a timestep.
    """
    catalogue, mean = live.catalogue, outlook.rates.mean(axis=0)
    active = _alternates(flow, live, mean, outlook.typical)
    running = flow.activated(active)
    need = flow.ideal(active, mean)[0] * running.cost
    ids = sorted(live.machines)
    machines = [live.machines[number] for number in ids]
    coefficients = [float(np.mean(outlook.speeds.get(number, outlook.typical))) for number in ids]
    old = np.array([machine.kind for machine in machines], np.int64)
    least = float(np.min(catalogue.powers, initial=np.inf, where=catalogue.powers > 0)) * outlook.typical
    most = min(MOST_ADDED, flow.size + 4.0 * float(need.sum()) / max(least, SLACK))
    rows = len(ids) + min(machines_left(catalogue, len(ids)), int(most))
    kinds, free, speeds = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows)
    kinds[: len(ids)], free[: len(ids)] = old, [live.free(number) for number in ids]
    speeds[: len(ids)] = catalogue.speeds[old] * coefficients
    counts = np.zeros((rows, flow.size), np.int64)
    for at, machine in enumerate(machines):
        counts[at, list(machine.instances)] = list(machine.instances.values())
    before = counts.copy()
    cores = kernels.Cores(counts, free, speeds, speeds @ counts, need, counts.sum(axis=0))

    # Paid time may be used up to its very end if that is the moment of a decision.
    elapsed = np.array([machine.elapsed_s for machine in machines])
    left, quantum = paid_left_s(elapsed, catalogue.billing), catalogue.billing.quantum_s
    worth = catalogue.prices[old] / np.maximum(catalogue.cores[old] * speeds[: len(ids)], SLACK)
    ending = np.flatnonzero((left < interval_s - SLACK) | ((left >= quantum - SLACK) & (elapsed > 0)))
    ending = ending[np.argsort(-worth[ending], kind="stable")]
    types = kernels.Types(
        catalogue.cores.astype(np.int64),
        catalogue.speeds * outlook.typical,
        np.where(catalogue.available, catalogue.prices, np.inf),
    )
    gone, end = kernels.plan_machines(
        running, outlook.rates, target, HYSTERESIS, cores, kinds, len(ids), types, ending
    )  # fmt: skip

    plan = live.copy()
    plan.active[:] = active
    for at in np.flatnonzero(gone).tolist():
        plan.drop_machine(ids[at])
    ids += [plan.plan_machine(int(kind)) for kind in kinds[len(ids) : end]]
    change = counts - before
    change[np.flatnonzero(gone)] = 0
    for at, element in zip(*np.nonzero(change < 0), strict=True):
        plan.take(int(element), ids[at], -int(change[at, element]))
    for at, element in zip(*np.nonzero(change > 0), strict=True):
        plan.put(int(element), ids[at], int(change[at, element]))
    plan.settle()
    return plan


def _alternates(flow: Flow, live: Deployment, rates: Floats, speed: float) -> np.ndarray:
    """The most profitable alternates, or the active ones if the gain is small."""
    best = profitable_alternates(flow, live.catalogue, rates, speed)
    if np.array_equal(best, live.active):
        return best
    catalogue, goal = live.catalogue, flow.goal
    per_power = float((catalogue.prices / catalogue.powers)[catalogue.available].min(initial=np.inf))

    def profit(active: np.ndarray) -> float:
        power = float((flow.ideal(active, rates)[0] * flow.cost[flow.rows(active)]).sum()) * goal.throughput / speed
        return flow.profit(flow.value_of(active), power * per_power * goal.period_h)

    return best if profit(best) > profit(live.active) + LEAST_GAIN else live.active

"""Optimal provisioning of small dataflows by mixed-integer programming, with the actual rates of the future.

Time is in intervals. A machine is a chain of paid hours; each begins in any interval, and a new one costs as much as a
renewed one. Alternates, instances and machines may change in every interval, and machines start at once, so that the
program over the whole period is an upper bound of the profit of every policy at rated speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.policies.observation import Observation, Policy

#: Profit lost for each unit of mean throughput that a plan over a horizon misses.
_SHORTFALL = 10.0


class Optimum(NamedTuple):
    """Result of the program; `bound` is the least upper bound of the solver.

    Attributes
    ----------
    bound : float
        Profit.
    blocks : float64, shape (types, intervals)
        Paid hours that begin.
    cores : float64, shape (types, elements, intervals)
    active : int64, shape (elements, intervals)
    """

    bound: float
    blocks: Floats
    cores: Floats
    active: Any


def check_selectivities(flow: Flow) -> None:
    """Refuse dataflows whose ideal output depends on the alternates: the program would not be linear."""
    for low, high in zip(flow.alternate_offsets[:-1], flow.alternate_offsets[1:], strict=True):
        if np.ptp(flow.selectivity[low:high]) > 0:
            raise ValueError("all alternates of a processing element must have the same selectivity")


def solve(
    flow: Flow,
    catalogue: Catalogue,
    rates: Floats,
    interval_s: float,
    target: float,
    *,
    steps: int | None = None,
    paid: Floats | None = None,
    queue: Floats | None = None,
    soft: bool = False,
    whole_cores: int = 0,
    seconds: float = 60.0,
    gap: float = 1e-3,
) -> Optimum:
    """Maximize value minus the value of the cost, with a mean throughput of at least `target`.

    Parameters
    ----------
    rates : float64, shape (intervals, elements)
        External input, messages per second.
    steps : int, optional
        Intervals of the whole period, which the value is a mean over; default: those of `rates`.
    paid : float64, shape (types, intervals), optional
        Machines that are paid already.
    queue : float64, shape (elements,), optional
        Messages queued at the beginning.
    soft : bool
        Accept a lower throughput at a loss of profit.
    whole_cores : int
        Number of intervals in which PEs use whole cores.
    seconds, gap : float
        Limits of the solver.
    """
    check_selectivities(flow)
    count, size, kinds, n_alt = len(rates), flow.size, len(catalogue.classes), flow.cost.size
    steps = count if steps is None else steps
    hour = round(catalogue.billing.quantum_s / interval_s)
    owner = np.repeat(np.arange(size), flow.alternate_counts)
    outputs = {int(o): at for at, o in enumerate(flow.outputs)}
    shapes = {
        "block": (kinds, count), "core": (kinds, size, count), "chosen": (n_alt, count), "done": (n_alt, count),
        "queue": (size, count), "share": (len(outputs), count), "short": (1,),
    }  # fmt: skip
    at, total = {}, 0
    for name, shape in shapes.items():
        at[name] = total + np.arange(int(np.prod(shape))).reshape(shape)
        total += at[name].size
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []

    def row(terms: list[tuple[Any, float]], least: float, most: float) -> None:
        for column, value in terms:
            rows.append(len(low))
            columns.append(int(column))
            values.append(float(value))
        low.append(least)
        high.append(most)

    ideal = np.array([flow.ideal(flow.best, external)[0] for external in rates])
    most_done = ideal.sum(axis=0) + 1.0 + (np.zeros(size) if queue is None else queue.sum() / interval_s)
    for k in range(count):
        for c in range(kinds):
            begun = at["block"][c, max(0, k - hour + 1) : k + 1]
            free = 0.0 if paid is None else float(paid[c, k]) * float(catalogue.cores[c])
            row([(v, 1) for v in at["core"][c, :, k]] + [(v, -catalogue.cores[c]) for v in begun], -np.inf, free)
        for i in range(size):
            own = np.flatnonzero(owner == i)
            row([(at["core"][c, i, k], 1) for c in range(kinds)], 1, np.inf)
            row([(v, 1) for v in at["chosen"][own, k]], 1, 1)
            row([(at["done"][a, k], flow.cost[a]) for a in own]
                + [(at["core"][c, i, k], -catalogue.speeds[c]) for c in range(kinds)], -np.inf, 0)  # fmt: skip
            for a in own:
                row([(at["done"][a, k], 1), (at["chosen"][a, k], -most_done[i])], -np.inf, 0)
            # The queue grows by the input and shrinks by the processed messages.
            before = 0.0 if queue is None or k else float(queue[i])
            came: list[tuple[Any, float]] = []
            for p in flow.pred[flow.pred_offsets[i] : flow.pred_offsets[i + 1]]:
                came += [(at["done"][a, k], -interval_s * flow.selectivity[a]) for a in np.flatnonzero(owner == p)]
            row([(at["queue"][i, k], 1), *(((at["queue"][i, k - 1], -1),) if k else ()), *came,
                 *((at["done"][a, k], interval_s) for a in own)],
                *(2 * [before + float(rates[k, i]) * interval_s]))  # fmt: skip
            if i in outputs:
                wanted = float(ideal[k, i]) * float(flow.selectivity[own[0]])
                sent = [(at["done"][a, k], -flow.selectivity[a]) for a in own] if wanted > 0 else []
                row([(at["share"][outputs[i], k], wanted if wanted > 0 else 0.0), *sent], -np.inf, 0)
    row([(v, 1.0 / at["share"].size) for v in at["share"].ravel()] + [(at["short"][0], 1)], target, np.inf)

    gain = np.zeros(total)
    gain[at["chosen"]] = (flow.value / size / steps)[:, None]
    gain[at["block"]] = -(flow.sigma * catalogue.prices * catalogue.billing.quantum_s / 3600.0)[:, None]
    if steps > count:
        # Beyond the horizon an hour may still be of use: only its part within the horizon counts.
        gain[at["block"]] *= np.minimum(1.0, (count - np.arange(count)) / hour)[None, :]
    gain[at["short"]] = -_SHORTFALL * count / steps
    upper = np.full(total, np.inf)
    upper[at["chosen"]], upper[at["share"]] = 1.0, 1.0
    upper[at["short"]] = 1.0 if soft else 0.0
    whole = np.zeros(total)
    whole[at["block"]], whole[at["chosen"]] = 1, 1
    whole[at["core"][:, :, :whole_cores]] = 1
    matrix = coo_array((values, (rows, columns)), (len(low), total)).tocsr()
    found = milp(
        -gain, integrality=whole, bounds=Bounds(np.zeros(total), upper),
        constraints=LinearConstraint(matrix, low, high), options={"time_limit": seconds, "mip_rel_gap": gap},
    )  # fmt: skip
    if found.x is None:
        raise ValueError(f"no solution: {found.message}")
    chosen = found.x[at["chosen"]]
    active = np.array([np.argmax(chosen[owner == i], axis=0) for i in range(size)])
    bound = found.mip_dual_bound if found.mip_dual_bound is not None else found.fun
    return Optimum(-float(bound), found.x[at["block"]], found.x[at["core"]], active)


@dataclass(frozen=True)
class Receding:
    """Solves the program for the next intervals in every interval, with the actual rates of the future.

    Not available in reality; for machines at rated speed.

    Attributes
    ----------
    start : Policy
        Policy of the first deployment.
    rates : float64, shape (intervals, elements)
    horizon : int
        Intervals to plan.
    """

    start: Policy
    rates: Any
    horizon: int = 24

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the first deployment of `start`."""
        return self.start.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """See `Policy`."""
        flow, catalogue, step = observation.flow, observation.catalogue, observation.step
        ahead = self.rates[step : step + self.horizon]
        goal, left = flow.goal.throughput, observation.steps - step
        target = min(0.95, max(0.0, (goal * observation.steps - float(observation.omegas.sum())) / left))
        quantum, length = catalogue.billing.quantum_s, observation.interval_s
        paid = np.zeros((len(catalogue.classes), len(ahead)))
        ending: dict[int, list[int]] = {kind: [] for kind in range(len(catalogue.classes))}
        plan = Deployment(catalogue, observation.live.active)
        for number, machine in sorted(observation.live.machines.items()):
            rest = round((-machine.elapsed_s % quantum) / length)
            if rest:
                paid[machine.kind, :rest] += 1
                plan.add_machine(Machine(number, machine.kind, machine.coefficient, machine.elapsed_s))
            else:
                ending[machine.kind].append(number)
        best = solve(
            flow, catalogue, ahead, length, target, steps=observation.steps, paid=paid, queue=observation.queue,
            soft=True, whole_cores=1, seconds=10.0, gap=5e-3,
        )  # fmt: skip
        for kind, wanted in enumerate(np.round(best.blocks[:, 0]).astype(int).tolist()):
            for number in ending[kind][:wanted]:
                old = observation.live.machines[number]
                plan.add_machine(Machine(number, kind, old.coefficient, old.elapsed_s))
            for _ in range(wanted - len(ending[kind])):
                plan.plan_machine(kind)
        plan.active[:] = best.active[:, 0]
        wanted_cores = np.round(best.cores[:, :, 0]).astype(int)
        for number, machine in plan.machines.items():
            for element in range(flow.size):
                some = min(plan.free(number), int(wanted_cores[machine.kind, element]))
                if some:
                    plan.put(element, number, some)
                    wanted_cores[machine.kind, element] -= some
        plan.settle()
        return plan, None

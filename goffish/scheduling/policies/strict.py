"""The strictly sharded heuristic SH_STRICT: PEs decide locally. See docs/specs/provisioning.md, section 3.5.

Every PE keeps up with a share of its input such that all PEs along a longest path reach the goal together: the goal's
throughput to the power 1 / (PEs on that path). Machines are not shared between PEs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies.alternates import alternate_costs
from goffish.scheduling.policies.initial import machines_left
from goffish.scheduling.policies.repacking import Packing, place


def own_target(flow: Flow) -> float:
    """Share of its input that every PE must keep up with."""
    depth = np.ones(flow.size, np.int64)
    for element in flow.order.tolist():
        before = flow.pred[flow.pred_offsets[element] : flow.pred_offsets[element + 1]]
        if before.size:
            depth[element] = depth[before].max() + 1
    return float(flow.goal.throughput ** (1.0 / depth.max()))


def strict_deployment(flow: Flow, catalogue: Catalogue) -> Deployment:
    """Machines of the largest type for each PE separately, for its share of the expected input.

    Raises
    ------
    InputError
        If the catalogue does not allow enough machines.
    """
    _, active = alternate_costs(flow, "sharded")
    into, _ = flow.ideal(active, flow.rates)
    kind = catalogue.largest
    need = own_target(flow) * into * flow.cost[flow.rows(active)]
    counts = np.maximum(1, np.ceil(need / catalogue.speeds[kind] - SLACK)).clip(max=1e12).astype(np.int64)
    cores = int(catalogue.cores[kind])
    machines = -(-counts // cores)
    most = machines_left(catalogue, 0)
    if machines.sum() > most:
        name = catalogue.classes[kind].name
        raise InputError(f"limit: more than {most:,} machines of type {name} are required")
    first = np.cumsum(machines) - machines
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    plan = Deployment(catalogue, active)
    place(
        plan,
        Packing(
            np.full(int(machines.sum()), kind, np.int64),
            np.repeat(first, counts) + within // cores,
            np.repeat(np.arange(flow.size), counts),
        ),
    )
    return plan


def _surplus(live: Deployment, flow: Flow, external: Floats) -> tuple[Floats, Floats]:
    """Messages that reach each PE, and its power over the required power."""
    into = flow.estimate(live.active, live.power, external).inflow
    need = into * flow.cost[flow.rows(live.active)]
    return into, np.divide(live.power, need, out=np.full(flow.size, np.inf), where=need > 0)


def strict_alternates(live: Deployment, flow: Flow, external: Floats, fit: float | None = None) -> Deployment:
    """Each PE below its band switches to a cheaper alternate, each PE above it to a better feasible one."""
    target, tolerance = own_target(flow), flow.goal.tolerance
    into, surplus = _surplus(live, flow, external)
    share = target if fit is None else fit
    active: NDArray[np.int64] = live.active.copy()
    for element in np.flatnonzero(abs(surplus - target) > tolerance + SLACK).tolist():
        low, high = int(flow.alternate_offsets[element]), int(flow.alternate_offsets[element + 1])
        old, under = low + int(live.active[element]), surplus[element] < target
        need = flow.cost[low:high] * into[element]
        if under:
            wanted = need < need[old - low] - SLACK
        else:
            wanted = (need > need[old - low] + SLACK) & (flow.value[low:high] > flow.value[old] + SLACK)
        wanted &= share * need <= live.power[element] + SLACK
        if wanted.any():
            active[element] = int(np.argmax(np.where(wanted, flow.value[low:high] / np.maximum(need, SLACK), -1.0)))
    if np.array_equal(active, live.active):
        return live
    plan = live.copy()
    plan.active[:] = active
    return plan


def strict_resources(live: Deployment, flow: Flow, external: Floats, *, give_back: bool = True) -> Deployment:
    """Each PE below its band gets cores of its machines, then new machines; each PE above it releases cores.

    Without `give_back`, no cores are released: PEs downstream of a PE that lost its machines have a surplus only until
    the machines are replaced.
    """
    target, tolerance = own_target(flow), flow.goal.tolerance
    into, surplus = _surplus(live, flow, external)
    need = target * into * flow.cost[flow.rows(live.active)]
    outside = (abs(surplus - target) > tolerance + SLACK) | (live.counts == 0)
    if not outside.any():
        return live
    plan, own = live.copy(), _own_machines(live)
    for element in np.flatnonzero(outside).tolist():
        if surplus[element] < target or live.counts[element] == 0:
            _grow(plan, element, float(need[element]), own.get(element, []))
        elif give_back:
            _shrink(plan, element, float(need[element]), own.get(element, []))
    return plan


def _own_machines(live: Deployment) -> dict[int, list[int]]:
    own: dict[int, list[int]] = {}
    for number, machine in live.machines.items():
        for element in machine.instances:
            own.setdefault(element, []).append(number)
    return own


def _grow(plan: Deployment, element: int, need: float, own: list[int]) -> None:
    kind = plan.catalogue.largest
    for number in sorted(own, key=plan.speed, reverse=True):
        missing = math.ceil((need - plan.power[element]) / plan.speed(number) - SLACK)
        count = min(plan.free(number), missing)
        if count > 0:
            plan.put(element, number, count)
    speed, cores = float(plan.catalogue.speeds[kind]), int(plan.catalogue.cores[kind])
    missing = max(math.ceil((need - plan.power[element]) / speed - SLACK), int(plan.counts[element] == 0))
    while missing > 0 and machines_left(plan.catalogue, len(plan.machines)):
        count = min(cores, missing)
        plan.put(element, plan.plan_machine(kind), count)
        missing -= count


def _shrink(plan: Deployment, element: int, need: float, own: list[int]) -> None:
    for number in own:
        spare = math.floor((plan.power[element] - need) / plan.speed(number) + SLACK)
        count = min(plan.machines[number].instances[element], spare, int(plan.counts[element]) - 1)
        if count > 0:
            plan.take(element, number, count)

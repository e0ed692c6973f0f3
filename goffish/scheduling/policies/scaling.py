"""Scaling: add and remove cores for the active alternates, and release idle machines.

See docs/specs/provisioning.md, section 3.4: RESOURCE_REDEPLOY, VMWEIGHT (Eq. 10) and SHUTDOWN_IDLE.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import paid_left_s
from goffish.cloud.catalogue import Billing
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies import reactive_kernels as kernels
from goffish.scheduling.policies.alternates import Variant
from goffish.scheduling.policies.initial import machines_left, placed
from goffish.scheduling.policies.network import Bandwidths, reaching_plan
from goffish.scheduling.policies.repacking import Packing, repack_machines

Ints = NDArray[np.int64]


class _Columns(NamedTuple):
    """The machines of a deployment in order, with their instances (`machine`, `element`, `instances`)."""

    ids: list[int]
    kinds: Ints
    speed: Floats
    machine: Ints
    element: Ints
    instances: Ints


def _columns(deployment: Deployment) -> _Columns:
    machines = list(deployment.machines.values())
    kinds = np.array([machine.kind for machine in machines], np.int64)
    return _Columns(
        list(deployment.machines),
        kinds,
        deployment.catalogue.speeds[kinds] * np.array([machine.coefficient for machine in machines]),
        np.repeat(np.arange(kinds.size), np.array([len(machine.instances) for machine in machines], np.int64)),
        np.array([element for machine in machines for element in machine.instances], np.int64),
        np.array([count for machine in machines for count in machine.instances.values()], np.int64),
    )


def _factors(deployment: Deployment, speed: Floats, billing: Billing) -> Floats:
    """The part of a machine's weight that does not depend on its PEs, per used core."""
    machines = list(deployment.machines.values())
    left = paid_left_s(np.array([machine.elapsed_s for machine in machines]), billing) / 3600.0
    prices = deployment.catalogue.prices[[machine.kind for machine in machines]]
    found: Floats = np.divide(left * speed, prices, out=np.full(speed.size, np.inf), where=prices > 0)
    return found


def scale_out(
    live: Deployment,
    flow: Flow,
    external: Floats,
    variant: Variant = "central",
    bandwidths: Bandwidths | None = None,
) -> tuple[Deployment, float]:
    """Add cores to the worst PE until the goal is reached; free cores near it first, then new machines.

    With ``"central"`` the new machines are then changed to cheaper types and repacked, as far as the goal stays
    reached. If links between machines prevent the goal, instances are added next to their neighbors (§6.10).

    Parameters
    ----------
    bandwidths : mapping from machine id to float, optional
        Observed over rated bandwidth.

    Returns
    -------
    Deployment
    float
        Its expected throughput; less than the goal if the catalogue allows no more machines, or if links are too slow
        for more machines to help.
    """
    plan, catalogue, goal = live.copy(), live.catalogue, flow.goal.throughput
    columns = _columns(live)
    cores = catalogue.cores[columns.kinds]
    start = np.concatenate(([0], np.cumsum(cores))).astype(np.int64)
    used = np.bincount(columns.machine, columns.instances, columns.kinds.size).astype(np.int64)
    owner = np.full(int(start[-1]), -1, np.int64)
    owner[_runs(start[:-1], used)] = np.repeat(columns.element, columns.instances)
    kind, forward = catalogue.largest, flow.forward
    elements, machines, new, omega = kernels.add_cores(
        flow.activated(live.active), external, forward, goal, live.power.copy(), live.counts.copy(),
        kernels.Cores(cores - used, columns.speed, start, owner), int(catalogue.cores[kind]),
        float(catalogue.speeds[kind]), machines_left(catalogue, len(columns.ids)),
    )  # fmt: skip
    here = machines < columns.kinds.size
    for element, at in zip(elements[here].tolist(), machines[here].tolist(), strict=True):
        plan.put(element, columns.ids[at])
    packings = [Packing(np.full(new, kind, np.int64), machines[~here] - columns.kinds.size, elements[~here])]
    if variant == "central" and new and omega >= goal - SLACK:
        base = plan.power.copy()
        smaller = _retyped(packings[0], flow, live, external, base)
        packings.insert(0, repack_machines(smaller, flow, catalogue, live.active, external, forward, base))
    return reaching_plan((placed(plan, packing) for packing in packings), flow, external, bandwidths)


def _runs(start: Ints, length: Ints) -> Ints:
    """Concatenate the ranges ``start[i] ... start[i] + length[i] - 1`` of all i."""
    before = np.cumsum(length) - length
    found: Ints = np.arange(int(length.sum())) + np.repeat(start - before, length)
    return found


def _retyped(packing: Packing, flow: Flow, live: Deployment, external: Floats, base: Floats) -> Packing:
    catalogue = live.catalogue
    cut, kinds = np.argsort(packing.machine, kind="stable"), packing.kinds.copy()
    used: Ints = np.bincount(packing.machine, minlength=kinds.size)
    kernels.retype_machines(
        flow.activated(live.active), external, flow.goal.throughput, base + packing.power(catalogue, flow.size), kinds,
        np.concatenate(([0], np.cumsum(used))), packing.element[cut], catalogue.columns,
        np.lexsort((-catalogue.powers, catalogue.prices)),
    )  # fmt: skip
    return packing._replace(kinds=kinds)


def scale_in(
    live: Deployment, flow: Flow, external: Floats, interval_s: float, variant: Variant = "central"
) -> tuple[Deployment, float]:
    """Remove cores from the PEs with the highest surplus, as long as the goal stays reached.

    With ``"central"`` cores are taken from the machine with the least weight, and machines whose paid time ends within
    the interval are emptied if free cores elsewhere suffice for their instances; otherwise cores are taken from the
    first machine of a PE.
    """
    plan, goal = live.copy(), flow.goal.throughput
    columns = _columns(live)
    by_element = np.argsort(columns.element, kind="stable")
    offsets = np.searchsorted(columns.element[by_element], np.arange(flow.size + 1))
    elements, machines, _ = kernels.remove_cores(
        flow.activated(live.active), external, goal, live.power.copy(), live.counts.copy(),
        kernels.Instances(offsets, columns.machine[by_element], columns.instances[by_element]),
        np.bincount(columns.machine, columns.instances, columns.kinds.size).astype(np.int64), columns.speed,
        _factors(live, columns.speed, live.catalogue.billing), variant == "central",
    )  # fmt: skip
    for element, at in zip(elements.tolist(), machines.tolist(), strict=True):
        plan.take(element, columns.ids[at])
    if variant == "central":
        _vacate(plan, flow, external, interval_s)
    return plan, flow.estimate(plan.active, plan.power, external).omega


def _ending(plan: Deployment, interval_s: float) -> list[int]:
    """Machines whose paid time ends within the interval."""
    ids = list(plan.machines)
    left = paid_left_s(np.array([plan.machines[number].elapsed_s for number in ids]), plan.catalogue.billing)
    return [number for number, rest in zip(ids, left.tolist(), strict=True) if rest <= interval_s + SLACK]


def _vacate(plan: Deployment, flow: Flow, external: Floats, interval_s: float) -> None:
    """Empty machines whose paid time ends, if the goal stays reached; those with the fewest instances
    first.
    """
    ending = _ending(plan, interval_s)
    leaving = {number for number in ending if plan.used(number) == 0}
    hosts = [number for number in plan.machines if number not in leaving and plan.free(number) > 0]
    hosts.sort(key=plan.speed, reverse=True)
    room = sum(plan.free(number) for number in hosts)
    for number in sorted((number for number in ending if plan.used(number) > 0), key=plan.used):
        needed, own = plan.used(number), plan.free(number)
        if room - own < needed:
            continue
        moves = _moves(plan, number, hosts)
        _move(plan, number, moves, 1)
        if flow.estimate(plan.active, plan.power, external).omega < flow.goal.throughput - SLACK:
            _move(plan, number, moves, -1)
            continue
        hosts = [host for host in hosts if host != number and plan.free(host) > 0]
        room -= needed + own


def _moves(plan: Deployment, number: int, hosts: list[int]) -> list[tuple[int, int, int]]:
    """PE, host and number of instances of a machine, on the first hosts with free cores."""
    found, at, room = [], -1, 0
    for element, count in sorted(plan.machines[number].instances.items()):
        left = count
        while left:
            while room == 0:
                at += 1
                room = 0 if hosts[at] == number else plan.free(hosts[at])
            some = min(left, room)
            found.append((element, hosts[at], some))
            left, room = left - some, room - some
    return found


def _move(plan: Deployment, number: int, moves: list[tuple[int, int, int]], direction: int) -> None:
    for element, host, count in moves:
        plan.take(element, number if direction > 0 else host, count)
        plan.put(element, host if direction > 0 else number, count)


def release_idle(plan: Deployment, interval_s: float) -> None:
    """Release machines without instances whose paid time ends within the interval (SHUTDOWN_IDLE).

    The others remain as a pool without further cost until then. Planned machines without instances are not requested.
    """
    ending = set(_ending(plan, interval_s))
    for number in list(plan.machines):
        if plan.used(number) == 0 and (number in ending or number < 0):
            plan.drop_machine(number)


def redeploy_resources(
    live: Deployment,
    flow: Flow,
    external: Floats,
    omega: float,
    interval_s: float,
    variant: Variant = "central",
    bandwidths: Bandwidths | None = None,
) -> tuple[Deployment, float]:
    """Scale out below the goal's band, scale in above it (RESOURCE_REDEPLOY, §3.4); alternates do not change.

    Parameters
    ----------
    live : Deployment
        The running deployment with observed coefficients; starting machines count as running.
    external : float64, shape (elements,)
        External input, messages per second.
    omega : float
        Observed relative throughput.
    bandwidths : mapping from machine id to float, optional
        Observed over rated bandwidth.

    Returns
    -------
    Deployment
    float
        Its expected throughput, including links between machines if it scales out.
    """
    goal = flow.goal
    if omega < goal.throughput - goal.tolerance - SLACK:
        return scale_out(live, flow, external, variant, bandwidths)
    if omega > goal.throughput + goal.tolerance + SLACK:
        return scale_in(live, flow, external, interval_s, variant)
    return live, flow.estimate(live.active, live.power, external).omega

"""The first deployment of a dataflow (INITIAL_DEPLOYMENT); docs/specs/provisioning.md, section 3.3."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import MOST_MACHINES, Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies import reactive_kernels as kernels
from goffish.scheduling.policies.alternates import Variant, alternate_costs
from goffish.scheduling.policies.network import reaching_plan
from goffish.scheduling.policies.repacking import Packing, place, repack_instances, repack_machines


def machines_left(catalogue: Catalogue, running: int) -> int:
    """Number of further machines that may be requested."""
    most = MOST_MACHINES if catalogue.limit is None else min(catalogue.limit, MOST_MACHINES)
    return max(0, most - running)


def initial_deployment(
    flow: Flow,
    catalogue: Catalogue,
    variant: Variant = "central",
    external: Floats | None = None,
    active: NDArray[np.int64] | None = None,
) -> Deployment:
    """Choose alternates, then add cores of the largest machine type to the worst PE until the goal is reached.

    With ``"central"`` the machines are then repacked, which is kept only if it is cheaper and still reaches the goal.
    If links between machines prevent the goal, neighbors are collocated as far as that helps (§6.10).

    Parameters
    ----------
    external : float64, shape (elements,), optional
        External input, messages per second; default: the expected rates.
    active : int64, shape (elements,), optional
        Alternates; default: those with the best value for their cost.

    Raises
    ------
    InputError
        If the catalogue does not allow enough machines, or more than `MOST_MACHINES` are required.
    """
    external = flow.rates if external is None else external
    active = alternate_costs(flow, variant)[1] if active is None else active
    packing, forward = _grow(flow, catalogue, active, external), flow.forward
    packings = [packing]
    if variant == "central":
        nothing = np.zeros(flow.size)
        found = flow.estimate(active, packing.power(catalogue, flow.size), external)
        moved = repack_instances(packing, catalogue, found.processed * flow.cost[flow.rows(active)])
        # Smaller cores for single instances leave capacity on large machines. If large machines are cheaper for their
        # speed, that capacity is worth more than the saving by small machines. Both are tried.
        packings += [
            repack_machines(start, flow, catalogue, active, external, forward, nothing) for start in (packing, moved)
        ]
        packings.sort(key=lambda found: round(found.price_per_hour(catalogue) / SLACK))
    empty = Deployment(catalogue, active)
    return reaching_plan((placed(empty, packing) for packing in packings), flow, external)[0]


def placed(deployment: Deployment, packing: Packing) -> Deployment:
    """Return a deployment with the machines of a packing."""
    plan = deployment.copy()
    place(plan, packing)
    return plan


def _grow(flow: Flow, catalogue: Catalogue, active: NDArray[np.int64], external: Floats) -> Packing:
    running, kind = flow.activated(active), catalogue.largest
    ideal_in, _ = flow.ideal(active, external)
    needed = flow.goal.throughput * float((ideal_in * running.cost).sum()) / float(catalogue.powers[kind])
    if needed > MOST_MACHINES:
        raise InputError(
            f"about {needed:.2g} machines of type {catalogue.classes[kind].name} are required; at most "
            f"{MOST_MACHINES:,}: processing element {flow.names[int(ideal_in.argmax())]} receives "
            f"{ideal_in.max():.2g} messages per second; check the selectivities upstream"
        )
    none = np.zeros(0, np.int64)
    elements, machines, new, omega = kernels.add_cores(
        running, external, flow.forward, flow.goal.throughput, np.zeros(flow.size),
        np.zeros(flow.size, np.int64), kernels.Cores(none, np.zeros(0), np.zeros(1, np.int64), none),
        int(catalogue.cores[kind]), float(catalogue.speeds[kind]), machines_left(catalogue, 0),
    )  # fmt: skip
    if omega < flow.goal.throughput - SLACK or np.unique(elements).size < flow.size:
        raise InputError(
            f"limit: the {new} machines of type {catalogue.classes[kind].name} that the catalogue allows reach a "
            f"relative throughput of {omega:.3f}; the goal is {flow.goal.throughput:g}"
        )
    return Packing(np.full(new, kind, np.int64), machines, elements)

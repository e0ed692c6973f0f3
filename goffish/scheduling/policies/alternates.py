"""Which alternate of each element is worth its cost, and when to change it on the cores that are there.

See docs/specs/provisioning.md, sections 3.2, 3.3 (stage 1) and 3.4 (ALTERNATE_REDEPLOY).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies import reactive_kernels as kernels

#: Whether an alternate's cost counts what it causes downstream (CE), or only its own (SH).
Variant = Literal["central", "sharded"]


def alternate_costs(flow: Flow, variant: Variant = "central") -> tuple[Floats, NDArray[np.int64]]:
    """What a message costs with each alternate, and the alternates of the greatest value for their cost (§3.2).

    With ``"central"`` the cost includes that of all messages which it causes behind the element, one share for each
    edge.

    Returns
    -------
    costs : float64, shape (alternates,)
        Core-seconds of a reference core.
    active : int64, shape (elements,)
        Of equal ones the first.
    """
    costs, active = np.empty(flow.cost.size), np.zeros(flow.size, np.int64)
    kernels.choose_alternates(flow.graph, flow.alternates, variant == "central", costs, active)
    return costs, active


def redeploy_alternates(
    live: Deployment, flow: Flow, external: Floats, omega: float, variant: Variant = "central", fit: float | None = None
) -> tuple[Deployment, float]:
    """Switch alternates on the cores that are there (ALTERNATE_REDEPLOY, §3.4).

    Below the goal's band cheaper alternates are taken until its throughput is reached, above it better ones as long as
    it stays reached; inside of the band nothing changes. Machines and instances stay as they are.

    Parameters
    ----------
    live : Deployment
        With the coefficients observed.
    external : float64, shape (elements,)
        External input, messages per second.
    omega : float
        Relative throughput observed.
    variant : {"central", "sharded"}
        Whether needs and cores count along the way to the outputs, or of the element alone.
    fit : float, optional
        Share of an alternate's need that the cores have to cover; default: the goal's throughput (§6.5).

    Returns
    -------
    Deployment
    float
        The throughput that is expected of it.
    """
    goal = flow.goal
    expected = flow.estimate(live.active, live.power, external).omega
    under = omega < goal.throughput - goal.tolerance - SLACK
    if not under and omega <= goal.throughput + goal.tolerance + SLACK:
        return live, expected
    plan = live.copy()
    central = variant == "central"
    found = kernels.switch_alternates(
        flow.graph, flow.alternates, flow.order[::-1].copy() if central else np.arange(flow.size), external,
        plan.power, plan.active, under, goal.throughput, goal.throughput if fit is None else fit, central,
    )  # fmt: skip
    return plan, float(found) if (plan.power > 0).all() else 0.0

"""Choice of the alternate of each PE by value and cost, at deployment and on the existing cores.

See docs/specs/provisioning.md, sections 3.2, 3.3 (stage 1) and 3.4 (ALTERNATE_REDEPLOY).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies import reactive_kernels as kernels

#: Whether the cost of an alternate includes its effects downstream (CE) or only its own cost (SH).
Variant = Literal["central", "sharded"]


def alternate_costs(flow: Flow, variant: Variant = "central") -> tuple[Floats, NDArray[np.int64]]:
    """Return the cost of a message with each alternate, and the alternates with the best value for their cost (§3.2).

    With ``"central"`` the cost includes all messages that it causes downstream, one share for each edge.

    Returns
    -------
    costs : float64, shape (alternates,)
        Core-seconds of a reference core.
    active : int64, shape (elements,)
        Chosen alternates; ties are broken by the first.
    """
    costs, active = np.empty(flow.cost.size), np.zeros(flow.size, np.int64)
    kernels.choose_alternates(flow.graph, flow.alternates, variant == "central", costs, active)
    return costs, active


def profitable_alternates(flow: Flow, catalogue: Catalogue, external: Floats, speed: float = 1.0) -> NDArray[np.int64]:
    """Return the alternates with the highest profit at an input: value minus the value of the cost over the period.

    The cost is that of the power for the goal's throughput, at the lowest price per speed. Without costs in the goal,
    money has no value, and the alternates are those with the best value for their cost (`alternate_costs`).

    Parameters
    ----------
    external : float64, shape (elements,)
        External input, messages per second.
    speed : float
        Coefficient of the machines: speed over rated speed.

    Returns
    -------
    int64, shape (elements,)
    """
    if flow.sigma <= 0:
        return alternate_costs(flow)[1]
    goal, active = flow.goal, flow.best.copy()
    per_power = float((catalogue.prices / catalogue.powers)[catalogue.available].min(initial=np.inf))
    if np.isfinite(per_power):
        price = flow.sigma * per_power * goal.period_h * goal.throughput / speed
        kernels.most_profitable(flow.graph, flow.alternates, external, price, active)
    return active


def redeploy_alternates(
    live: Deployment, flow: Flow, external: Floats, omega: float, variant: Variant = "central", fit: float | None = None
) -> tuple[Deployment, float]:
    """Switch alternates on the existing cores (ALTERNATE_REDEPLOY, §3.4).

    Below the goal's band, cheaper alternates are chosen until the throughput is reached; above it, better ones as long
    as the throughput stays reached. Within the band nothing changes. Machines and instances do not change.

    Parameters
    ----------
    live : Deployment
        The running deployment with observed coefficients.
    external : float64, shape (elements,)
        External input, messages per second.
    omega : float
        Observed relative throughput.
    variant : {"central", "sharded"}
        Whether costs and cores count along the path to the outputs, or for the PE only.
    fit : float, optional
        Share of an alternate's required speed that the cores must provide; default: the goal's throughput (§6.5).

    Returns
    -------
    Deployment
    float
        Its expected throughput.
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

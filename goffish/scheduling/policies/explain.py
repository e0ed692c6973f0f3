"""Reasons of a plan, and the cost of alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.policies.feasible import feasible
from goffish.scheduling.policies.network import network_throughput
from goffish.scheduling.policies.observation import Policy
from goffish.scheduling.policies.report import backlog_growth


class Alternative(NamedTuple):
    """An alternative plan.

    Attributes
    ----------
    what : str
    throughput, value, cost_per_hour, profit : float
        As of `describe_plan`.
    valid : bool
        Whether it reaches the goal, minus the tolerance.
    """

    what: str
    throughput: float
    value: float
    cost_per_hour: float
    profit: float
    valid: bool


def measured(what: str, flow: Flow, plan: Deployment, external: Floats) -> Alternative:
    """Summarize a plan."""
    throughput, value = network_throughput(plan, flow, external), flow.value_of(plan.active)
    price = plan.price_per_hour
    profit = flow.profit(value, price * flow.goal.period_h)
    goal = flow.goal
    return Alternative(what, throughput, value, price, profit, throughput >= goal.throughput - goal.tolerance)


def reasons(flow: Flow, plan: Deployment, external: Floats) -> list[str]:
    """Explain a plan in sentences: throughput, bottleneck, alternates and cost."""
    catalogue, goal = plan.catalogue, flow.goal
    found = flow.estimate(plan.active, plan.power, external)
    throughput = network_throughput(plan, flow, external)
    slack = throughput - goal.throughput
    reached = "reaches" if slack >= -goal.tolerance else "misses"
    sentences = [f"The relative throughput of {throughput:.3f} {reached} the goal of {goal.throughput:g}."]
    share = np.divide(found.processed, found.ideal_in, out=np.ones(flow.size), where=found.ideal_in > 0)
    tight = int(share.argmin())
    if share[tight] < 1.0 - 1e-9:
        sentences.append(f"{flow.names[tight]} is the bottleneck: it processes {share[tight]:.1%} of its input.")
    else:
        sentences.append("Every processing element keeps up with its input.")
    growth = backlog_growth(flow, plan, external)
    if growth > 1e-9:
        sentences.append(f"The backlog grows by {growth:.3g} messages per second.")
    load = found.ideal_in * flow.cost[flow.rows(plan.active)]
    heavy = int(load.argmax())
    sentences.append(
        f"{flow.names[heavy]} has the highest load: {load[heavy]:.3g} of {load.sum():.3g} reference cores, "
        f"on {int(plan.counts[heavy])} instances."
    )
    sentences += _alternates(flow, plan)
    kinds = Counter(machine.kind for machine in plan.machines.values())
    parts = [
        f"{count} {catalogue.classes[kind].name} for {count * float(catalogue.prices[kind]):.4g}"
        for kind, count in sorted(kinds.items())
    ]
    used = sum(machine.used for machine in plan.machines.values())
    cores = sum(int(catalogue.cores[machine.kind]) for machine in plan.machines.values())
    sentences.append(
        f"Rented machines: {', '.join(parts)} {catalogue.currency} per hour; {used} of {cores} cores are in use."
    )
    return sentences


def _alternates(flow: Flow, plan: Deployment) -> list[str]:
    """PEs that do not run their best alternate."""
    sentences = []
    chosen, best = flow.rows(plan.active), flow.rows(flow.best)
    for element in np.flatnonzero(chosen != best).tolist():
        now, top = int(chosen[element]), int(best[element])
        sentences.append(
            f"{flow.names[element]} runs {flow.alternate_names[now]} instead of {flow.alternate_names[top]}: "
            f"{float(flow.cost[now] / flow.cost[top]):.0%} of the work for a value of "
            f"{float(flow.value[now]):.2f} instead of {float(flow.value[top]):.2f}."
        )
    return sentences


def alternatives(
    flow: Flow, catalogue: Catalogue, plan: Deployment, policies: Sequence[tuple[str, Policy]]
) -> list[Alternative]:
    """Return the plan, the plan without one machine of each type, and the plans of other policies, the dearest last."""
    external = flow.rates
    found = [measured("this plan", flow, plan, external)]
    dropped = set()
    for number, machine in plan.machines.items():
        key = (machine.kind, tuple(sorted(machine.instances.items())))
        if key in dropped:
            continue
        dropped.add(key)
        fewer = plan.copy()
        fewer.drop_machine(number)
        running = ", ".join(f"{count} {flow.names[element]}" for element, count in sorted(machine.instances.items()))
        name = catalogue.classes[machine.kind].name
        found.append(measured(f"without the {name} that runs {running or 'no instances'}", flow, fewer, external))
    for name, policy in policies:
        found.append(measured(f"policy {name}", flow, feasible(policy.deploy(flow, catalogue), flow), external))
    return [found[0], *sorted(found[1:], key=lambda one: (not one.valid, one.cost_per_hour))]

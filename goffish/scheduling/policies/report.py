"""A deployment as plain data, for people and programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.policies.network import network_throughput


def describe_plan(flow: Flow, plan: Deployment, external: Floats) -> dict[str, Any]:
    """Describe a deployment: its machines and instances, its cost, and its expected throughput.

    Parameters
    ----------
    flow : Flow
    plan : Deployment
    external : float64, shape (elements,)
        Expected external input, messages per second.

    Returns
    -------
    dict
        ``throughput`` (relative, 0 to 1), ``value``, ``cost_per_hour``, ``cost`` and ``profit`` over the goal's period,
        ``processing_elements`` and ``machines``; for a catalogue with sites also ``links_s``, the seconds that a
        message spends between machines along the slowest path, and the ``site`` of each machine.
    """
    catalogue, hours = plan.catalogue, flow.goal.period_h
    found = flow.estimate(plan.active, plan.power, external)
    value, price = flow.value_of(plan.active), plan.price_per_hour
    quantum_h = catalogue.billing.quantum_s / 3600.0
    cost = price * max(quantum_h * -(-hours // quantum_h), catalogue.billing.minimum_s / 3600.0)
    rows = flow.rows(plan.active)
    # Planned machines have negative ids, which are meaningless to readers.
    machines = [machine | {"id": at} for at, machine in enumerate(plan.described(flow)["machines"])]
    hosts: dict[str, dict[int, int]] = {name: {} for name in flow.names}
    for machine in machines:
        for name, count in machine["instances"].items():
            hosts[name][machine["id"]] = count
    return {
        "throughput": network_throughput(plan, flow, external),
        "goal": flow.goal.throughput,
        "value": value,
        "cost_per_hour": price,
        "period_h": hours,
        "cost": cost,
        "profit": flow.profit(value, cost),
        "currency": catalogue.currency,
        **({"links_s": _links_s(flow, plan)} if catalogue.sites else {}),
        "processing_elements": [
            {
                "processing_element": name,
                "alternate": flow.alternate_names[rows[at]],
                "value": float(flow.value[rows[at]]),
                "instances": int(plan.counts[at]),
                "power": float(plan.power[at]),
                "input": float(found.ideal_in[at]),
                "processed": float(found.processed[at]),
                "machines": hosts[name],
            }
            for at, name in enumerate(flow.names)
        ],
        "machines": [
            machine
            | {
                "cores": int(catalogue.cores[found_machine.kind]),
                "used": found_machine.used,
                "price_per_hour": float(catalogue.prices[found_machine.kind]),
                **({"site": catalogue.classes[found_machine.kind].site} if catalogue.sites else {}),
            }
            for machine, found_machine in zip(machines, plan.machines.values(), strict=True)
        ],
    }


def backlog_growth(flow: Flow, plan: Deployment, external: Floats) -> float:
    """Return the messages per second that are left in the queues of a deployment, at these external rates."""
    found = flow.estimate(plan.active, plan.power, external)
    return float((found.inflow - found.processed).clip(min=0.0).sum())


def _links_s(flow: Flow, plan: Deployment) -> float:
    delays = flow.link_delays(plan.hosts(), plan.catalogue.network.delay_ms / 1000.0)
    return flow.critical_path(np.zeros(flow.size), delays)

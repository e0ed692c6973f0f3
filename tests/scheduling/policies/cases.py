"""Dataflows, deployments and observations for the tests of provisioning."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.observation import Observation

S = compile_flow(read_dataflow("sc13-diamond"))
L = compile_flow(read_dataflow("linear-road"))
M1 = read_catalogue("ec2-2013-m1")
SIX = read_catalogue("ec2-2013")


def layered(elements: int, width: int, seed: int, *, rate: float = 5.0, alternates: int = 3) -> Flow:
    """A random layered dataflow: elements behind the first layer have one or two predecessors in the one before."""
    rng = np.random.default_rng(seed)
    names = [f"e{at}" for at in range(elements)]
    layers = [list(range(at, min(at + width, elements))) for at in range(0, elements, width)]
    edges = [
        [names[u], names[v]]
        for before, layer in pairwise(layers)
        for v in layer
        for u in sorted(rng.choice(before, min(len(before), int(rng.integers(1, 3))), replace=False).tolist())
    ]
    described = []
    for name in names:
        some = [
            {
                "id": f"a{k}",
                "cost": round(float(rng.uniform(0.1, 0.6)), 3),
                "value": round(float(rng.uniform(0.4, 1.0)), 3),
                "selectivity": float(rng.choice([0.5, 0.75, 1.0])),
            }
            for k in range(int(rng.integers(1, alternates + 1)))
        ]
        described.append({"id": name, "alternates": some})
    hours = 12
    total = 0.06 * hours * elements * max(rate, 1.0)
    return compile_flow(
        read_dataflow(
            {
                "elements": described,
                "edges": edges,
                "inputs": {names[at]: rate for at in layers[0]},
                "goal": {"cost_at_best_value": total, "cost_at_worst_value": total / 2, "period_h": hours},
            }
        )
    )


@st.composite
def flows(draw: st.DrawFn, most: int = 12) -> Flow:
    """Random dataflows with 1 to `most` elements, each with 1 to 3 alternates."""
    elements = draw(st.integers(1, most))
    return layered(
        elements,
        draw(st.integers(1, elements)),
        draw(st.integers(0, 10_000)),
        rate=draw(st.sampled_from([0.0, 0.5, 3.0, 11.0])),
    )


def machines(
    catalogue: Catalogue, active: list[int], rows: list[tuple[str, dict[int, int], float, float]]
) -> Deployment:
    """A live deployment: class, instances, coefficient and elapsed seconds of each machine."""
    found = Deployment(catalogue, np.array(active, np.int64))
    for number, (kind, instances, coefficient, elapsed) in enumerate(rows):
        found.add_machine(Machine(number, catalogue.number(kind), coefficient, elapsed, dict(instances)))
    return found


def started(plan: Deployment, elapsed_s: float = 600.0) -> Deployment:
    """A plan whose machines run since `elapsed_s`."""
    found = Deployment(plan.catalogue, plan.active)
    for number, machine in enumerate(plan.machines.values()):
        found.add_machine(Machine(number, machine.kind, machine.coefficient, elapsed_s, dict(machine.instances)))
    return found


def observation(
    flow: Flow, live: Deployment, rates: np.ndarray, omega: float, *, step: int = 3, failed: int = 0
) -> Observation:
    """What is known after intervals that all were alike."""
    return Observation(
        flow, live.catalogue, step, 100, 300.0, live, np.full(step, omega), np.tile(rates, (step, 1)), failed=failed
    )


def ideal_by_hand(flow: Flow, active: np.ndarray, power: np.ndarray, external: np.ndarray) -> tuple[float, list[float]]:
    """Eq. 4-7 element by element in plain Python: throughput, and the messages that each element processes."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(flow.size))
    for v in range(flow.size):
        graph.add_edges_from((int(u), v) for u in flow.pred[flow.pred_offsets[v] : flow.pred_offsets[v + 1]])
    rows = [int(flow.alternate_offsets[i] + active[i]) for i in range(flow.size)]
    out, ideal, done = [0.0] * flow.size, [0.0] * flow.size, [0.0] * flow.size
    for i in nx.topological_sort(graph):
        into = external[i] + sum(out[p] for p in graph.predecessors(i))
        done[i] = min(into, power[i] / flow.cost[rows[i]])
        out[i] = done[i] * flow.selectivity[rows[i]]
        ideal[i] = (external[i] + sum(ideal[p] for p in graph.predecessors(i))) * flow.selectivity[rows[i]]
    terms = [min(1.0, out[o] / ideal[o]) if ideal[o] > 0 else 1.0 for o in flow.outputs]
    return sum(terms) / len(terms), done

"""Small policies and dataflows for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.observation import Observation

Instances = Sequence[dict[int, int]]


class Fixed:
    """One machine of class `kind` for each entry of `machines`, with so many instances of each element; never adapted.

    `changes` are called with the live deployment at the beginning of their intervals; `seen` keeps the observations.
    """

    def __init__(
        self,
        machines: Instances,
        kind: int = 0,
        active: Sequence[int] | None = None,
        changes: dict[int, Callable[[Deployment], None]] | None = None,
    ) -> None:
        self.machines, self.kind, self.active, self.changes = machines, kind, active, changes or {}
        self.seen: list[Observation] = []

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        plan = Deployment(catalogue, flow.best if self.active is None else np.array(self.active, np.int64))
        for instances in self.machines:
            number = plan.plan_machine(self.kind)
            for element, count in instances.items():
                plan.put(element, number, count)
        return plan

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        self.seen.append(observation)
        plan = observation.live.copy()
        if observation.step in self.changes:
            self.changes[observation.step](plan)
        return plan, memory


def catalogue(cores: int = 1, speed: float = 1.0, mbit_s: float | None = None, **fields: Any) -> Catalogue:
    """One class at 0.06 an hour; another one, twice as fast, at 0.12."""
    classes = [
        {"name": "one", "cores": cores, "speed": speed, "price_per_hour": 0.06, "bandwidth_mbit_s": mbit_s},
        {"name": "two", "cores": cores, "speed": 2 * speed, "price_per_hour": 0.12, "bandwidth_mbit_s": mbit_s},
    ]
    return read_catalogue({"classes": classes, **fields})


def chain(*costs: float, rate: float = 1.0, selectivity: float = 1.0, **fields: Any) -> Flow:
    """Elements in a row, each with its cost."""
    names = [f"e{at}" for at in range(len(costs))]
    return compile_flow(
        read_dataflow(
            {
                "elements": [
                    {"id": n, "cost": c, "selectivity": selectivity} for n, c in zip(names, costs, strict=True)
                ],
                "edges": [[a, b] for a, b in pairwise(names)],
                "inputs": {"e0": rate},
                **fields,
            }
        )
    )


def per_element(table: pa.Table, name: str, elements: int) -> Any:
    """A column of the table of elements, shape (steps, elements)."""
    return table[name].to_numpy().reshape(-1, elements)


def assert_conserved(flow: Flow, elements: pa.Table, interval_s: float) -> None:
    """I3: what came in was processed, waits, or was lost."""
    into, done, queue, lost = (
        per_element(elements, name, flow.size) for name in ("inflow", "processed", "queue", "lost")
    )
    before = np.vstack([np.zeros(flow.size), queue[:-1]])
    scale = 1.0 + np.abs(queue).max()
    assert np.abs(before + (into - done) * interval_s - lost - queue).max() < 1e-7 * scale
    assert (queue > -1e-7).all()

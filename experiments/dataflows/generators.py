"""Random dataflows: layered ones of any size, and those of the papers' evaluations.

See docs/specs/provisioning.md, sections 4.4 and 7 (E8); docs/specs/plasticc.md, section 4.4.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.dataflow.model import Dataflow, Goal

#: Shares of elements with one, two and three alternates (docs/specs/plasticc.md, section 4.4).
ALTERNATES = (0.6, 0.3, 0.1)


def staged_dataflow(
    rng: np.random.Generator, *, stages: int = 10, lanes: int = 3, rate: float = 38.5, goal: Goal | None = None
) -> Dataflow:
    """PLAStiCC's dataflow: stages of a few lanes, each element sends to its lane's next one and sometimes to another's.

    Parameters
    ----------
    rng : numpy.random.Generator
    stages, lanes : int
    rate : float
        Expected of each stream; default: the middle of 2 and 75 messages a second.
    goal : Goal, optional
    """
    _refuse_few(stages=stages, lanes=lanes)
    names = [[f"s{stage}l{lane}" for lane in range(lanes)] for stage in range(stages)]
    edges = []
    for stage in range(stages - 1):
        for lane in range(lanes):
            edges.append((names[stage][lane], names[stage + 1][lane]))
            if lanes > 1 and rng.random() < 0.3:
                other = (lane + int(rng.integers(1, lanes))) % lanes
                edges.append((names[stage][lane], names[stage + 1][other]))
    return _dataflow(f"{stages} stages of {lanes} lanes", names, edges, rate, goal, rng)


def layered_dataflow(
    elements: int, rng: np.random.Generator, *, width: int | None = None, rate: float = 5.0, goal: Goal | None = None
) -> Dataflow:
    """A random layered graph of any size: all but the first layer have one or two inputs from the layer before.

    Selectivities are divided by the out-degree, so that rates stay bounded however deep the graph is.

    Parameters
    ----------
    elements : int
    rng : numpy.random.Generator
    width : int, optional
        Elements in a layer; default: the rounded root of `elements`.
    rate : float
        Expected of each stream.
    goal : Goal, optional
    """
    _refuse_few(elements=elements, width=1 if width is None else width)
    names, edges = _layers(elements, width or max(1, round(elements**0.5)), 0.3, rng)
    return _dataflow(f"{elements} elements in layers", names, edges, rate, goal, rng)


def mixed_dataflow(
    rng: np.random.Generator, *, elements: int = 100, rate: float = 5.0, goal: Goal | None = None
) -> Dataflow:
    """A random graph with figures as in the largest one of the SC 2013 release: 1 to 3 alternates on each element.

    Costs are 0.1 to 0.6, values 0.6 to 1, selectivities 0.5, 1 or 2. There are five layers: messages multiply with
    every one.
    """
    _refuse_few(elements=elements)
    names, edges = _layers(elements, -(-elements // 5), 0.2, rng)
    found = [{"id": name, "alternates": _mixed(rng)} for layer in names for name in layer]
    return _checked(f"{elements} mixed elements", found, edges, dict.fromkeys(names[0], rate), goal)


def _mixed(rng: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {
            "id": f"a{at + 1}",
            "cost": float(rng.choice([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])),
            "value": round(float(rng.uniform(0.6, 1.0)), 2),
            "selectivity": float(rng.choice([0.5, 1.0, 2.0])),
        }
        for at in range(int(rng.integers(1, 4)))
    ]


def _layers(
    elements: int, width: int, second: float, rng: np.random.Generator
) -> tuple[list[list[str]], list[tuple[str, str]]]:
    names = [[f"e{at}" for at in range(low, min(low + width, elements))] for low in range(0, elements, width)]
    edges: list[tuple[str, str]] = []
    for before, layer in pairwise(names):
        for name in layer:
            count = min(len(before), 1 + int(rng.random() < second))
            sources = sorted(rng.choice(len(before), count, replace=False).tolist())
            edges.extend((before[at], name) for at in sources)
    return names, edges


def _dataflow(
    name: str,
    names: list[list[str]],
    edges: list[tuple[str, str]],
    rate: float,
    goal: Goal | None,
    rng: np.random.Generator,
) -> Dataflow:
    """Elements with the figures of docs/specs/plasticc.md, section 4.4."""
    sent: dict[str, int] = {}
    for source, _ in edges:
        sent[source] = sent.get(source, 0) + 1
    found = []
    for element in (element for layer in names for element in layer):
        cost, selectivity = rng.uniform(0.05, 0.25), rng.uniform(0.9, 1.1) / max(1, sent.get(element, 0))
        alternates = [{"id": "best", "cost": float(cost), "value": 1.0, "selectivity": float(selectivity)}]
        for at in range(int(rng.choice(3, p=ALTERNATES))):
            value = rng.uniform(0.6, 0.95)
            alternates.append(
                {"id": f"lesser{at + 1}", "cost": float(cost * rng.uniform(0.4, 0.9) * value), "value": float(value),
                 "selectivity": float(selectivity * rng.choice([0.8, 1.0, 1.2]))}
            )  # fmt: skip
        found.append({"id": element, "alternates": alternates})
    return _checked(name, found, edges, dict.fromkeys(names[0], rate), goal)


def _checked(
    name: str, elements: list[dict[str, Any]], edges: list[tuple[str, str]], inputs: dict[str, float], goal: Goal | None
) -> Dataflow:
    return Dataflow.model_validate(
        {"name": name, "elements": elements, "edges": edges, "inputs": inputs, "goal": goal or Goal()}
    )


def _refuse_few(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} = {count}: at least 1 is needed")

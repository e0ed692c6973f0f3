"""Definitions of dynamic dataflows: processing elements with alternates, edges, streams, and the goal.

See docs/specs/provisioning.md, sections 2.1 and 2.7.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import networkx as nx
from pydantic import Field, model_validator

from goffish.cloud.catalogue import Name, NotNegative, Positive
from goffish.definitions import Definition, read_shipped, shipped_definitions
from goffish.scheduling.dataflow.needs import Needs

Text = Annotated[str, Field(max_length=1000)]
_LIBRARY = resources.files("goffish.scheduling.dataflow") / "library"


class Alternate(Definition):
    """One implementation of a processing element.

    Attributes
    ----------
    id : str
        Unique among the alternates of the PE.
    cost : float
        Core-seconds of a reference core for one message.
    value : float
        Quality of its results on any scale; only the ratio to the best alternate of the PE counts.
    selectivity : float
        Messages sent on each outgoing edge per processed message.
    """

    id: Name
    cost: Positive
    value: Positive = 1.0
    selectivity: Positive = 1.0


class Element(Definition):
    """A processing element (PE). Give either `alternates`, or one `cost` and `selectivity`.

    Attributes
    ----------
    id : str
        Unique in the dataflow.
    alternates : tuple of Alternate
    cost, selectivity : float, optional
        As of an alternate, for a PE with a single implementation.
    needs : Needs
    """

    id: Name
    alternates: tuple[Alternate, ...] = ()
    cost: Positive | None = None
    selectivity: Positive | None = None
    needs: Needs = Needs()

    @model_validator(mode="after")
    def _one_way(self) -> Element:
        if self.alternates and (self.cost is not None or self.selectivity is not None):
            raise ValueError(f"processing element {self.id}: give either alternates, or cost and selectivity")
        if not self.alternates and self.cost is None:
            raise ValueError(f"processing element {self.id}: give alternates, or a cost")
        _refuse_twice([a.id for a in self.alternates], f"processing element {self.id}: alternate")
        return self

    @property
    def choices(self) -> tuple[Alternate, ...]:
        """The alternates; the PE itself if it lists none."""
        if self.alternates:
            return self.alternates
        assert self.cost is not None
        return (
            Alternate(id="only", cost=self.cost, selectivity=1.0 if self.selectivity is None else self.selectivity),
        )


class Goal(Definition):
    """The goal of a deployment, and the cost that is acceptable for it.

    Attributes
    ----------
    throughput : float
        Least relative throughput of the dataflow, on average (the papers' Omega hat).
    tolerance : float
        Accepted deviation before the policy adapts the deployment (epsilon).
    cost_at_best_value, cost_at_worst_value : float
        The highest acceptable cost of a whole `period_h` with every PE on its best, or worst, alternate.
    period_h : float
        Hours over which profit counts.
    interval_s : float
        Seconds between two decisions.
    """

    throughput: Annotated[float, Field(ge=0, le=1)] = 0.8
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.05
    cost_at_best_value: Positive | None = None
    cost_at_worst_value: NotNegative | None = None
    period_h: Positive = 12.0
    interval_s: Positive = 300.0

    def for_hours(self, hours: float) -> Goal:
        """Return the goal for another period, with acceptable costs in proportion."""
        factor = hours / self.period_h
        costs = {"cost_at_best_value": self.cost_at_best_value, "cost_at_worst_value": self.cost_at_worst_value}
        scaled = {name: cost * factor for name, cost in costs.items() if cost is not None}
        return self.model_copy(update=scaled | {"period_h": hours})

    @model_validator(mode="after")
    def _ordered(self) -> Goal:
        best, worst = self.cost_at_best_value, self.cost_at_worst_value
        if (best is None) != (worst is None):
            raise ValueError("give both cost_at_best_value and cost_at_worst_value, or neither")
        if best is not None and worst is not None and best <= worst:
            raise ValueError("cost_at_best_value must be more than cost_at_worst_value")
        return self


class Dataflow(Definition):
    """A dataflow: processing elements, the edges between them, and external streams.

    Attributes
    ----------
    elements : tuple of Element
        The processing elements (PEs), numbered in this order in every deployment.
    edges : tuple of (str, str)
        Every outgoing edge of a PE carries all of its messages; streams that meet are added up.
    inputs : mapping
        Expected rate of the external stream of each PE, messages per second. Other PEs receive messages from edges
        only.
    outputs : tuple of str, optional
        PEs whose messages leave the dataflow; default: those without an outgoing edge.
    message_bytes : float
        Mean size of a message.
    goal : Goal
    name, source : str
        Name of the dataflow, and where it was published; not used.
    """

    name: Text = ""
    elements: Annotated[tuple[Element, ...], Field(min_length=1, alias="processing_elements")]
    edges: tuple[tuple[Name, Name], ...] = ()
    inputs: Annotated[dict[Name, NotNegative], Field(min_length=1)]
    outputs: tuple[Name, ...] = ()
    message_bytes: Positive = 1000.0
    goal: Goal = Goal()
    source: Text = ""

    @model_validator(mode="after")
    def _sound(self) -> Dataflow:
        known = [element.id for element in self.elements]
        _refuse_twice(known, "processing element")
        _refuse_twice([f"{u} -> {v}" for u, v in self.edges], "edge")
        names = set(known)
        for place, ends in (
            ("edges", [e for edge in self.edges for e in edge]),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
        ):
            for name in ends:
                if name not in names:
                    raise ValueError(f"{place}: unknown processing element {name!r}; accepted: {', '.join(known[:20])}")
        graph = nx.DiGraph()
        graph.add_nodes_from(known)
        graph.add_edges_from(self.edges)
        try:
            cycle = nx.find_cycle(graph)
        except nx.NetworkXNoCycle:
            cycle = []
        if cycle:
            raise ValueError(
                f"edges: cycle {' -> '.join([cycle[0][0], *(edge[1] for edge in cycle)])}; dataflows must be acyclic"
            )
        fed = {name for layer in nx.bfs_layers(graph, self.inputs) for name in layer}
        dry = [name for name in known if name not in fed]
        if dry:
            raise ValueError(f"no stream reaches {dry[0]!r}: add it to inputs, or add an edge to it")
        return self

    @property
    def output_elements(self) -> tuple[str, ...]:
        """`outputs`, or the PEs without an outgoing edge."""
        sending = {u for u, _ in self.edges}
        return self.outputs or tuple(e.id for e in self.elements if e.id not in sending)


def _refuse_twice(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} is given twice")
        seen.add(name)


def known_dataflows() -> list[str]:
    """Return the names of the bundled dataflows."""
    return shipped_definitions(_LIBRARY)


def read_dataflow(given: str | Path | dict[str, Any] | Dataflow) -> Dataflow:
    """Read a dataflow by its bundled name (`known_dataflows`), from a YAML or JSON file, or from a mapping.

    Raises
    ------
    InputError
        The definition is invalid; the message names the file, the field, the problem and what is accepted.
    """
    return read_shipped(Dataflow, given, _LIBRARY, "dataflow", "processing_elements and inputs")

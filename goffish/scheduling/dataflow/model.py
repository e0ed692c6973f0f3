"""The definition of a dynamic dataflow: processing elements with alternates, edges, streams, and what it has to reach.

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
    cost : float
        Core-seconds of a reference core for one message.
    value : float
        How good its answers are, on a scale of the user's; only the share of the element's best one counts.
    selectivity : float
        Messages sent on each outgoing edge for one that was processed.
    """

    id: Name
    cost: Positive
    value: Positive = 1.0
    selectivity: Positive = 1.0


class Element(Definition):
    """A processing element. One without `alternates` is given its `cost` and `selectivity` itself."""

    id: Name
    alternates: tuple[Alternate, ...] = ()
    cost: Positive | None = None
    selectivity: Positive | None = None
    needs: Needs = Needs()

    @model_validator(mode="after")
    def _one_way(self) -> Element:
        if self.alternates and (self.cost is not None or self.selectivity is not None):
            raise ValueError(f"element {self.id}: give either alternates, or cost and selectivity")
        if not self.alternates and self.cost is None:
            raise ValueError(f"element {self.id}: give alternates, or a cost")
        _refuse_twice([a.id for a in self.alternates], f"element {self.id}: alternate")
        return self

    @property
    def choices(self) -> tuple[Alternate, ...]:
        """The alternates; of an element without any, itself."""
        if self.alternates:
            return self.alternates
        assert self.cost is not None
        return (
            Alternate(id="only", cost=self.cost, selectivity=1.0 if self.selectivity is None else self.selectivity),
        )


class Goal(Definition):
    """What a deployment has to reach, and what is worth paying for it.

    Attributes
    ----------
    throughput : float
        Least relative throughput of the dataflow, on average (the papers' Omega hat).
    tolerance : float
        By which it may be missed before somebody acts (epsilon).
    cost_at_best_value, cost_at_worst_value : float
        Of a whole `period_h`, that a user would just accept with every element on its best, or worst, alternate.
    period_h : float
        Hours over which profit counts.
    interval_s : float
        Between two decisions.
    """

    throughput: Annotated[float, Field(ge=0, le=1)] = 0.8
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.05
    cost_at_best_value: Positive | None = None
    cost_at_worst_value: NotNegative | None = None
    period_h: Positive = 12.0
    interval_s: Positive = 300.0

    @model_validator(mode="after")
    def _ordered(self) -> Goal:
        best, worst = self.cost_at_best_value, self.cost_at_worst_value
        if (best is None) != (worst is None):
            raise ValueError("give both cost_at_best_value and cost_at_worst_value, or neither")
        if best is not None and worst is not None and best <= worst:
            raise ValueError("cost_at_best_value must be more than cost_at_worst_value")
        return self


class Dataflow(Definition):
    """A dataflow: elements, edges between them, and streams that come in.

    Attributes
    ----------
    elements : tuple of Element
        Their places are the element numbers in every plan.
    edges : tuple of (str, str)
        A message that an element sends goes along all its edges; streams that meet are added up.
    inputs : mapping
        Element to the rate of its external stream that is expected (messages per second). Elements without one are fed
        by edges alone.
    outputs : tuple of str, optional
        Elements whose messages leave the dataflow; default: those without an outgoing edge.
    message_bytes : float
        Mean size of a message.
    goal : Goal
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
        _refuse_twice(known, "element")
        _refuse_twice([f"{u} -> {v}" for u, v in self.edges], "edge")
        names = set(known)
        for place, ends in (
            ("edges", [e for edge in self.edges for e in edge]),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
        ):
            for name in ends:
                if name not in names:
                    raise ValueError(f"{place}: no element {name!r}; there are: {', '.join(known[:20])}")
        graph = nx.DiGraph()
        graph.add_nodes_from(known)
        graph.add_edges_from(self.edges)
        try:
            cycle = nx.find_cycle(graph)
        except nx.NetworkXNoCycle:
            cycle = []
        if cycle:
            raise ValueError(
                f"edges: a cycle {' -> '.join([cycle[0][0], *(edge[1] for edge in cycle)])}; a dataflow has none"
            )
        fed = {name for layer in nx.bfs_layers(graph, self.inputs) for name in layer}
        dry = [name for name in known if name not in fed]
        if dry:
            raise ValueError(f"no stream reaches {dry[0]!r}: give it a rate in inputs, or an edge to it")
        return self

    @property
    def output_elements(self) -> tuple[str, ...]:
        """`outputs`, or the elements without an outgoing edge."""
        sending = {u for u, _ in self.edges}
        return self.outputs or tuple(e.id for e in self.elements if e.id not in sending)


def _refuse_twice(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} is given twice")
        seen.add(name)


def known_dataflows() -> list[str]:
    """Names of the dataflows that come with GoFFish."""
    return shipped_definitions(_LIBRARY)


def read_dataflow(given: str | Path | dict[str, Any] | Dataflow) -> Dataflow:
    """A dataflow by its name (`known_dataflows`), from a YAML or JSON file, or from what such a file would hold.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    return read_shipped(Dataflow, given, _LIBRARY, "dataflow", "processing_elements and inputs")

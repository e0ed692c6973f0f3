"""A flow as scheduling policies see it: elements with costs, and what a run has measured of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.streaming.metrics import Metrics
from goffish.streaming.topology import DEFAULT_COST, MAIN, Alternate, Operator, SinkOptions, SourceOptions, Topology

if TYPE_CHECKING:
    from goffish.scheduling.dataflow.flow import Flow
    from goffish.scheduling.dataflow.model import Dataflow, Goal

Floats = NDArray[np.float64]
#: Share of the last interval in costs, selectivities and ratios that are measured again and again.
_NEWEST = 0.5
#: Sources that wait for the flow are expected to send at most so many times as fast if they need not.
_MOST_HURRY = 4.0
#: Least cost and selectivity of a model, which accepts no zeros.
_LEAST = 1e-9


@dataclass(frozen=True)
class Element:
    """A processing element of a flow: operators that run together.

    Attributes
    ----------
    first : str
        Operator that it begins with, and its name.
    switched : str
        Operator whose alternates are those of the element.
    alternates : mapping of str to Alternate
    """

    first: str
    switched: str
    alternates: Mapping[str, Alternate]


def costly(topology: Topology) -> list[str]:
    """Return the operators of which a cost or several alternates are given.

    Parameters
    ----------
    topology : Topology

    Returns
    -------
    list of str
    """
    return [
        one.name for one in topology.operators
        if len(one.alternates) > 1 or any(a.cost != DEFAULT_COST for a in one.alternates.values())
    ]  # fmt: skip


def elements_of(topology: Topology) -> list[Element]:
    """Return the elements of a flow: the stages with workers of their own, or else every operator but for loops.

    Parameters
    ----------
    topology : Topology

    Returns
    -------
    list of Element

    Raises
    ------
    InputError
        A stage has several operators with alternates, so that it is not clear which ones a policy switches.
    """
    groups: dict[str, list[Operator]] = {}
    for one in topology.operators:
        if not topology.stages:
            if one.kind != "loop":
                groups[one.name] = [one]
        elif stage := topology.stages[one.name]:
            groups.setdefault(f"{stage:03}", []).append(one)
    found = []
    for _, group in sorted(groups.items()) if topology.stages else groups.items():
        choices = [one for one in group if len(one.alternates) > 1]
        if len(choices) > 1:
            names = " and ".join(one.name for one in choices)
            raise InputError(f"operators {names}: have alternates and the same workers; name both as elements")
        switched = choices[0] if choices else group[0]
        alternates = switched.alternates or {MAIN: Alternate(_nothing)}
        others = sum(one.alternates[MAIN].cost for one in group if one is not switched and one.alternates)
        alternates = {name: replace(one, cost=one.cost + others) for name, one in alternates.items()}
        found.append(Element(group[0].name, switched.name, alternates))
    return found


def dataflow_of(topology: Topology, rates: Mapping[str, float] | None = None, goal: Goal | None = None) -> Dataflow:
    """Return a flow as scheduling policies need it.

    Parameters
    ----------
    topology : Topology
        With stages, each is an element, and records of the sources come from outside.
    rates : mapping, optional
        Records per second of every source; by default the rate of the source, or 1.
    goal : Goal, optional

    Returns
    -------
    Dataflow

    Raises
    ------
    InputError
        A rate is given for an operator that is no source, an extra is missing, or elements form a cycle.
    """
    with needed_for("dataflow models", "simulate"):
        from goffish.scheduling.dataflow.model import Alternate as Choice
        from goffish.scheduling.dataflow.model import Dataflow
        from goffish.scheduling.dataflow.model import Element as Modeled
        from goffish.scheduling.dataflow.model import Goal as Aim

    sources = {one.name: one.options.source for one in topology.operators if isinstance(one.options, SourceOptions)}
    for name in rates or ():
        if name not in sources:
            raise InputError(f"rates: {name!r} is not a source; sources: {', '.join(sources)}")
    given = {
        name: float((rates or {}).get(name) or getattr(source, "rate", None) or 1.0) for name, source in sources.items()
    }
    elements = elements_of(topology)
    place = _places(topology, elements)
    inputs = {name: rate for name, rate in given.items() if place[name] is not None}
    edges: dict[tuple[str, str], None] = {}
    for one in topology.operators:
        for channel in one.inputs:
            source, target = place[channel.source], place[one.name]
            if (
                channel.feedback
                or target is None
                or source == target
                or topology.operator(channel.source).kind == "loop"
            ):
                continue
            if source is None:
                inputs[target] = inputs.get(target, 0.0) + given.get(channel.source, 0.0)
            else:
                edges[source, target] = None
        if place[one.name] is None:  # what leaves it comes from the sources before it
            given.setdefault(one.name, sum(given.get(channel.source, 0.0) for channel in one.inputs))
    made = tuple(
        Modeled(
            id=one.first,
            alternates=tuple(
                Choice(id=name, cost=a.cost, value=a.value, selectivity=a.selectivity)
                for name, a in one.alternates.items()
            ),
        )
        for one in elements
    )
    body = {"name": topology.name, "processing_elements": made, "edges": tuple(edges), "inputs": inputs}
    try:
        return Dataflow.model_validate(body | {"goal": Aim() if goal is None else goal})
    except ValueError as error:
        raise InputError(f"flow {topology.name}: {error}") from None


def _places(topology: Topology, elements: list[Element]) -> dict[str, str | None]:
    """Return the element of every operator; None for those before the first one."""
    if not topology.stages:
        return {one.name: one.name for one in topology.operators}
    names = {topology.stages[one.first]: one.first for one in elements}
    return {name: names.get(stage) for name, stage in topology.stages.items()}


def _nothing() -> None:
    """Stand in for the function of an operator that has none."""


@dataclass(frozen=True)
class Counted:
    """What the elements of a flow have done; every array has one number for each element.

    Attributes
    ----------
    received : float64, shape (elements,)
        Records.
    moved : float64, shape (elements + 1, elements)
        Records sent from one element to another one; the first row is what comes from the sources.
    left : float64, shape (elements,)
        Records sent to sinks.
    queue : float64, shape (elements,)
        Records that wait.
    """

    received: Floats
    moved: Floats
    left: Floats
    queue: Floats

    def since(self, before: Counted) -> Counted:
        """Return what was done since an earlier moment; the queue is that of the later one."""
        pairs = ((self.received, before.received), (self.moved, before.moved), (self.left, before.left))
        received, moved, left = (np.maximum(0.0, new - old) for new, old in pairs)
        return Counted(received, moved, left, self.queue)


def counter(topology: Topology, elements: list[Element]) -> Callable[[Metrics], Counted]:
    """Return a function that counts what the elements of a flow have done from its metrics.

    Parameters
    ----------
    topology : Topology
        With stages.
    elements : list of Element

    Returns
    -------
    callable
    """
    size = len(elements)
    row = {one.first: number for number, one in enumerate(elements)}
    place = {name: -1 if one is None else row[one] for name, one in _places(topology, elements).items()}
    sinks = {one.name for one in topology.operators if isinstance(one.options, SinkOptions)}

    def count(metrics: Metrics) -> Counted:
        moved, left = np.zeros((size + 1, size)), np.zeros(size)
        for one in metrics.channels:
            source, target = place.get(one.source, -1), place.get(one.target, -1)
            if source != target and target >= 0:
                moved[source + 1, target] += one.sent
            elif one.target in sinks and source >= 0:
                left[source] += one.sent
        firsts = [metrics[one.first] for one in elements]
        return Counted(
            np.array([float(one.received) for one in firsts]),
            moved,
            left,
            np.array([float(one.queue) for one in firsts]),
        )

    return count


@dataclass(frozen=True)
class Estimates:
    """What was learned of the elements of a flow from its run.

    A dataflow sends the same messages on all edges that leave an element, which branches of a flow do not: the records
    of an element are `ratio` times the messages of the model.

    Attributes
    ----------
    shares : float64, shape (elements,)
        The ratios; NaN where there were no records yet.
    cost, selectivity : float64, shape (alternates,)
        Of a record, in core-seconds of a reference core, and in records; NaN for alternates that were never active.
    """

    shares: Floats
    cost: Floats
    selectivity: Floats

    @classmethod
    def none(cls, flow: Flow) -> Estimates:
        """Return what is known of a flow before it runs."""
        unknown = np.full(flow.cost.size, np.nan)
        return cls(np.full(flow.size, np.nan), unknown, unknown)

    @property
    def ratio(self) -> Floats:
        """Records of an element for each message of the model, shape (elements,)."""
        return np.where(np.isnan(self.shares), 1.0, self.shares)

    def learned(self, flow: Flow, active: NDArray[np.int64], done: Counted, busy: Floats) -> Estimates:
        """Return the estimates after another interval.

        Parameters
        ----------
        flow : Flow
        active : int64, shape (elements,)
        done : Counted
            What the elements have done in the interval.
        busy : float64, shape (elements,)
            Core-seconds of reference cores.

        Returns
        -------
        Estimates
        """
        rows, some = flow.rows(active), done.received > 0
        sent = sent_of(flow, done)
        expected = done.moved[0].copy()
        np.add.at(expected, np.repeat(np.arange(flow.size), np.diff(flow.pred_offsets)), sent[flow.pred])
        arrived = done.moved.sum(axis=0)
        known = (arrived > 0) & (expected > 0)
        shares = _mixed(self.shares, np.divide(arrived, expected, out=np.ones(flow.size), where=known), known)
        found = {}
        for name, total in (("cost", busy), ("selectivity", sent)):
            column = getattr(self, name).copy()
            newest = np.divide(total, done.received, out=np.zeros(flow.size), where=some)
            column[rows] = _mixed(column[rows], np.maximum(newest, _LEAST), some)
            found[name] = column
        return Estimates(shares, **found)

    def model(self, flow: Flow, active: NDArray[np.int64]) -> Flow:
        """Return a dataflow with what was learned; figures of alternates that were never active change in proportion.

        Parameters
        ----------
        flow : Flow
            As it was described.
        active : int64, shape (elements,)

        Returns
        -------
        Flow
        """
        element = np.repeat(np.arange(flow.size), flow.alternate_counts)
        rows, found = flow.rows(active), dict[str, Any]()
        for name in ("cost", "selectivity"):
            described, learned = getattr(flow, name), getattr(self, name)
            factor = np.where(np.isnan(learned[rows]), 1.0, learned[rows] / described[rows])[element]
            known = np.where(np.isnan(learned), described * factor, learned)
            found[name] = np.maximum(known * self.ratio[element], _LEAST)
        return replace(flow, **found)


def demanded(flow: Flow, active: NDArray[np.int64], came: Floats, waited: float, waiting: Floats) -> Floats:
    """Return the external rates that a flow is to keep up with.

    Parameters
    ----------
    flow : Flow
    active : int64, shape (elements,)
    came : float64, shape (elements,)
        Messages per second that came from the sources.
    waited : float
        Share of the time in which sources had to wait, without which they would have sent more.
    waiting : float64, shape (elements,)
        Messages per second by which what waits should decrease.

    Returns
    -------
    float64, shape (elements,)
    """
    rates = came / max(1.0 - waited, 1.0 / _MOST_HURRY)
    rates[flow.inputs] += waiting[flow.inputs]
    expected, _ = flow.ideal(active, rates)
    within = np.where(np.isin(np.arange(flow.size), flow.inputs), 0.0, waiting)
    more = np.divide(within, expected, out=np.zeros(flow.size), where=expected > 0)
    return np.asarray(rates * (1.0 + more.max()))


def sent_of(flow: Flow, done: Counted) -> Floats:
    """Return the records that elements have sent on each of their edges, or else to sinks.

    Parameters
    ----------
    flow : Flow
    done : Counted

    Returns
    -------
    float64, shape (elements,)
    """
    edges = np.diff(flow.succ_offsets)
    return np.where(edges > 0, done.moved[1:].sum(axis=1) / np.maximum(edges, 1), done.left)


def _mixed(old: Floats, new: Floats, known: NDArray[np.bool_]) -> Floats:
    """Return old values moved towards new ones where these are known, and new ones where there are no old ones."""
    return np.where(known, np.where(np.isnan(old), new, old + _NEWEST * (new - old)), old)

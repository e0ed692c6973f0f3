"""Dataflows and updates of the evaluation, and updates that are drawn at random.

See docs/specs/updates.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from experiments.updates.coordinator import Request
from experiments.updates.simulation import Simulation, Work
from goffish.errors import InputError
from goffish.streaming.updates.bounds import DeployTimes
from goffish.streaming.updates.versions import Channel, Element, Strategy, Version, difference

#: Deployment of the whole dataflow, and of changed elements, in seconds.
GOLDEN_TIMES = DeployTimes(15.0, 0.5)
RATES = (5.0, 10.0, 20.0)

Pairs = Iterable[tuple[str, str]]


class Case(NamedTuple):
    """An update of a dataflow."""

    old: Version
    new: Version
    work: Work
    times: DeployTimes = GOLDEN_TIMES


def chain(ids: str) -> list[tuple[str, str]]:
    """Return the channels of a chain of elements with names of one letter."""
    return list(pairwise(ids))


def golden(rate: float, changed: str = "P") -> Case:
    """S(20 ms) -> P(10) -> {A(15), B(15), C(30)} -> L(5); `changed` elements get new logic."""
    ways = [("S", "P"), *(pair for id in "ABC" for pair in (("P", id), (id, "L")))]
    latency = {"S": 0.020, "P": 0.010, "A": 0.015, "B": 0.015, "C": 0.030, "L": 0.005}
    return _changed(ways, changed, Work(latency, {"S": rate}))


def parallel(rate: float) -> Case:
    """F -> A (changed) -> J, and F -> X(30 ms) -> B (changed) -> J, which joins the messages of one input."""
    ways = [("S", "F"), ("F", "A"), ("F", "X"), ("X", "B"), ("A", "J"), ("B", "J")]
    latency = {"S": 0.002, "F": 0.002, "A": 0.005, "X": 0.030, "B": 0.005, "J": 0.002}
    return _changed(ways, "AB", Work(latency, {"S": rate}, batches={"J": 0}), joins="J")


def cycle(rate: float, iterations: int = 3) -> Case:
    """S -> P -> Q -> L with feedback from Q to P; P and Q change."""
    latency = dict.fromkeys("SPQL", 0.005)
    work = Work(latency, {"S": rate}, iterations={Channel("Q", "P"): iterations})
    return _changed([*chain("SPQL"), ("Q", "P")], "PQ", work)


def windows(rate: float) -> Case:
    """S -> P (changed) -> W -> L, where W makes 2 messages of 3."""
    latency = dict.fromkeys("SPWL", 0.005)
    work = Work(latency, {"S": rate}, batches={"W": 3}, outputs={"W": 2})
    return _changed(chain("SPWL"), "P", work, joins="W")


def _changed(ways: Pairs, changed: str, work: Work, joins: str = "") -> Case:
    logic = dict.fromkeys(work.latency, 1)
    old = Version.of(1, logic, ways, joins)
    return Case(old, Version.of(2, logic | dict.fromkeys(changed, 2), ways, joins), work)


def simulate(case: Case, strategy: Strategy, requested: float, *, after: float = 1.0, **options: Any) -> Simulation:
    """Run a case: one update, requested at a time, until it is complete, and some seconds more.

    Parameters
    ----------
    case : Case
    strategy : Strategy
    requested : float
    after : float
        Seconds to simulate after the update is complete.
    **options
        Of `Simulation`; `ordered`, `partial_window` and `migrated` of the request.

    Returns
    -------
    Simulation
    """
    choices = {name: options.pop(name) for name in ("ordered", "partial_window", "migrated") if name in options}
    made = Simulation(case.old, case.work, case.times, **options)
    made.request(Request(strategy, case.new, **choices), requested)
    made.run(requested)
    made.settle()
    made.run(made.now + after)
    return made


def missing(simulation: Simulation, outputs: int, spare: float = 0.5) -> int:
    """Return how many outputs of the inputs that left the buffer long ago are missing."""
    found = {root: 0 for root, time in simulation.entered.items() if time < simulation.now - spare}
    for one in simulation.outputs:
        for root in one.roots:
            if root in found:
                found[root] += 1
    return sum(outputs - number for number in found.values())


# Random updates


def drawn(rng: Random, *, joined: bool) -> Case | None:
    """Draw a dataflow with one source and an update of it.

    Parameters
    ----------
    rng : random.Random
    joined : bool
        Whether all elements with several inputs join messages of one origin, and no others take batches; otherwise
        batches, joins and merges are mixed.

    Returns
    -------
    Case or None
        ``None`` where what was drawn is no valid update.
    """
    ids = [f"n{number}" for number in range(rng.randint(3, 8))]
    ways = {(ids[i], ids[j]) for j in range(1, len(ids)) for i in rng.sample(range(j), rng.randint(1, min(j, 3)))}
    logic, after = _drawn_change(rng, ids, ways)
    several = {id for id in {*ids, *logic} if len(_into(ways, id)) > 1 or len(_into(after, id)) > 1}
    for id in several & logic.keys() & set(ids):
        if _into(ways, id) != _into(after, id):  # a join of other inputs is other logic
            logic[id] = 2
    if joined:
        batches = dict.fromkeys(several, 0)
    else:
        chosen = [id for id in sorted({*ids, *logic}) if id != ids[0] and rng.random() < 0.4]
        batches = {id: rng.choice([0, 2, 3] if id in several else [2, 3]) for id in chosen}
    try:
        old = Version.of(1, ids, ways, batches.keys() & set(ids))
        new = Version.of(2, logic, after, batches.keys() & logic.keys())
        difference(old, new)
    except InputError:
        return None
    latency = {id: rng.choice([0.002, 0.005, 0.01, 0.02, 0.03]) for id in {*ids, *logic}}
    return Case(old, new, Work(latency, {ids[0]: rng.choice(RATES)}, batches), DeployTimes(0.5, 0.3))


def _into(ways: Pairs, id: str) -> set[str]:
    return {source for source, target in ways if target == id}


def _drawn_change(
    rng: Random, ids: list[str], ways: set[tuple[str, str]]
) -> tuple[dict[str, int], set[tuple[str, str]]]:
    """Return the logic of all elements and the channels after a change of a random kind."""
    logic, after = dict.fromkeys(ids, 1), set(ways)
    kind = rng.choice(["elements", "channels", "both", "subgraph"])
    if kind in ("elements", "both"):
        logic |= dict.fromkeys(rng.sample(ids, rng.randint(1, len(ids))), 2)
    if kind != "elements":
        for _ in range(rng.randint(1, 3)):
            first, second = sorted(rng.sample(range(len(ids)), 2))
            way = (ids[first], ids[second])
            if way not in after:
                after.add(way)
            elif len(_into(after, way[1])) > 1:
                after.remove(way)
    if kind == "subgraph":
        for added in ("x0", "x1")[: rng.randint(1, 2)]:
            first, second = sorted(rng.sample(range(len(ids)), 2))
            logic[added] = 2
            after |= {(ids[first], added), (added, ids[second])}
        if rng.random() < 0.5:  # remove an element, and connect its neighbors
            gone = rng.choice(ids[1:])
            behind = {target for source, target in after if source == gone}
            bridges = {(source, target) for source in _into(after, gone) for target in behind}
            after = {way for way in after if gone not in way} | bridges
            del logic[gone]
    return logic, after


def sides_of(simulation: Simulation, version: Version, other: Version) -> list[bool]:
    """Return for each output whether its trace is a subset of one of two versions, from the sets themselves: C1."""
    numbering = simulation.updates[-1][1].numbering
    allowed = [set(version.parts), set(other.parts)]
    known: dict[int, bool] = {}
    for output in simulation.outputs:
        trace = output.header.trace
        if trace not in known:
            parts = {part for part, bit in numbering.bits.items() if trace & bit}
            known[trace] = any(parts <= one for one in allowed)
    return [known[output.header.trace] for output in simulation.outputs]


def outputs_of_sinks(simulation: Simulation, ids: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return the number of outputs of each input at each of these sinks."""
    bits = simulation.updates[-1][1].numbering.bits
    found: dict[str, dict[int, int]] = {}
    for id in ids:
        mask = sum(bit for part, bit in bits.items() if isinstance(part, Element) and part.id == id)
        counts = found.setdefault(id, {})
        for output in simulation.outputs:
            if output.header.trace & mask:
                for root in output.roots:
                    counts[root] = counts.get(root, 0) + 1
    return found

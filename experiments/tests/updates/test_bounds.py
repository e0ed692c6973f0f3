"""Wave times against all paths, and bounds against the published formulas worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.updates.cases import GOLDEN_TIMES, Case, chain, drawn, golden
from experiments.updates.routing import Update
from experiments.updates.simulation import Work
from goffish.errors import InputError
from goffish.streaming.updates.bounds import (
    Bounds,
    DeployTimes,
    Model,
    Requirement,
    predict,
    recommend,
    sibling_waits,
)
from goffish.streaming.updates.versions import Channel, Numbering, Strategy, UpdateType, Version


def bounds(case: Case, strategy: Strategy, **options: Any) -> Bounds:
    numbering = Numbering({}).extended(case.old).extended(case.new)
    update = Update(strategy, case.old, case.new, numbering, **options)
    return predict(update, case.work.model(case.old), case.work.model(case.new), case.times)


def milliseconds(found: Bounds) -> tuple[float, float]:
    assert found.refresh is not None
    return round(1000 * found.refresh, 6), round(1000 * found.lag, 6)


@pytest.mark.parametrize(
    ("strategy", "refresh", "lag"),
    [
        (Strategy.NCL, (15050, 15050, 15050), 0),
        (Strategy.NCH, (15115, 15115, 15115), 65),
        (Strategy.HTI, (730, 630, 580), 545),
        (Strategy.MVC, (750, 650, 600), 565),
        (Strategy.PVC, (730, 630, 580), 545),
    ],
)
def test_golden_bounds(strategy: Strategy, refresh: tuple[int, int, int], lag: int) -> None:
    """Breaks when a bound of the golden dataflow differs in any digit (docs/specs/updates.md, section 6.1)."""
    found = [bounds(golden(rate), strategy) for rate in (5.0, 10.0, 20.0)]
    assert [milliseconds(one) for one in found] == [(time, lag) for time in refresh]
    assert {one.kind for one in found} == {UpdateType.ELEMENT}


def test_golden_wave_times() -> None:
    model = golden(5.0).work.model(golden(5.0).old)
    assert model.out("S", "L") == pytest.approx((0.050, 0.065))
    assert model.out("P", "L") == pytest.approx((0.030, 0.045))
    assert model.arrivals == pytest.approx({"S": 5, "P": 5, "A": 5, "B": 5, "C": 5, "L": 15})
    assert model.fan_out("S") == 3


def test_golden_loss_ttl_and_outage() -> None:
    """Breaks when NCL counts fewer than a full wave for each input in flight, or TTLs ignore the way to the element."""
    lossy = bounds(golden(20.0), Strategy.NCL)
    assert lossy.loss == math.ceil(20 * 0.065) * 3
    assert lossy.outage == pytest.approx(15.050)
    assert bounds(golden(20.0), Strategy.NCH).outage == pytest.approx(15.050)
    assert bounds(golden(20.0), Strategy.NCH).ttl == pytest.approx(0.065)
    assert bounds(golden(20.0), Strategy.MVC).ttl == pytest.approx(0.020)  # (13): S works 20 ms
    assert bounds(golden(20.0), Strategy.PVC).ttl == 0  # (18): it is its own frontier
    assert bounds(golden(20.0, changed="PC"), Strategy.PVC).ttl == pytest.approx(0.010)
    assert bounds(golden(20.0), Strategy.MVC).drain_alarm == pytest.approx(0.65 + 0.5)


@given(st.randoms(use_true_random=False))
def test_wave_times_are_those_of_the_shortest_and_longest_paths(rng: Random) -> None:
    """Breaks when (3) or (4) differ from a search of all paths."""
    case = drawn(rng, joined=True)
    if case is None:
        return
    version, ids = replace(case.old, joins=frozenset()), list(case.old.logic)
    transport = {channel: rng.choice([0.0, 0.001, 0.004]) for channel in version.channels}
    wait = {id: rng.choice([0.0, 0.002]) for id in ids}
    selectivity = {id: (rng.choice([1, 2]), 1) for id in ids}
    model = Model(version, case.work.latency, {"n0": 1.0}, selectivity, transport, wait)
    graph = nx.DiGraph(list(version.channels))
    graph.add_nodes_from(ids)
    for source in ids:
        for target in ids:
            paths = list(nx.all_simple_paths(graph, source, target)) if source != target else [[source]]
            if not paths:
                assert model.head(source, target) == math.inf
                assert model.tail(source, target) == -math.inf
                continue
            crossed = [
                sum(model.latency[id] + model.batch_wait(id) for id in path[:-1])
                + sum(transport[Channel(*pair)] for pair in pairwise(path))
                for path in paths
            ]
            queued = [sum(wait[id] for id in path) for path in paths]
            assert model.head(source, target) == pytest.approx(min(crossed))
            assert model.tail(source, target) == pytest.approx(max(map(sum, zip(crossed, queued, strict=True))))


def test_cycles_add_their_iterations() -> None:
    """S(1) -> P(2) -> Q(3) -> L(4) ms, three times back from Q to P: 3 x (2 + 3) ms more, and 4 times the rate."""
    version = Version.of(1, "SPQL", [*chain("SPQL"), ("Q", "P")])
    latency = {"S": 0.001, "P": 0.002, "Q": 0.003, "L": 0.004}
    with pytest.raises(InputError, match="cycle before or among L, P, Q: give the iterations of its feedback channel"):
        Model(version, latency, {"S": 10.0})
    model = Model(version, latency, {"S": 10.0}, iterations={Channel("Q", "P"): 3})
    assert model.out("S", "L") == pytest.approx((0.010 + 3 * 0.005, 0.010 + 3 * 0.005))
    assert model.tail("Q", "P") == pytest.approx(0.003 + 3 * 0.005)
    assert model.arrivals == {"S": 10, "P": 40, "Q": 40, "L": 10}


def test_batches_wait_for_their_messages() -> None:
    """Three messages at 10/s: the third is 200 ms behind the first; 2 outputs of 3 inputs are 6.7 messages/s."""
    version = Version.of(1, "SWL", chain("SWL"), joins="W")
    model = Model(version, dict.fromkeys("SWL", 0.001), {"S": 10.0}, {"W": (3, 2)})
    assert model.tail("W", "L") == pytest.approx(0.001 + 0.2)
    assert model.arrivals["L"] == pytest.approx(20 / 3)
    assert model.gaps["L"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("strategy", "refresh", "lag"),
    [
        # S(10) -> A(20) -> T(5), and A -> B(30) -> T is added: (9) and (19) go through the new channel.
        (Strategy.HTI, 500 + 100 + 20 + 30 + 5, 0),
        (Strategy.PVC, 500 + 100 + 20 + 30 + 5, 0),
        (Strategy.MVC, 500 + 100 + 10 + 20 + 5, 500 + 10 + 20 + 5),
    ],
)
def test_bounds_of_an_added_branch(strategy: Strategy, refresh: float, lag: float) -> None:
    latency = {"S": 0.010, "A": 0.020, "B": 0.030, "T": 0.005}
    old = Version.of(1, "SAT", chain("SAT"))
    new = Version.of(2, "SABT", [*chain("SAT"), ("A", "B"), ("B", "T")])
    found = bounds(Case(old, new, Work(latency, {"S": 10.0})), strategy)
    assert found.kind == UpdateType.CONNECTED_SUBGRAPH
    assert milliseconds(found) == (refresh, lag)


@pytest.mark.parametrize("strategy", [Strategy.HTI, Strategy.PVC])
def test_bounds_of_a_removed_channel(strategy: Strategy) -> None:
    """S(10) -> T(5) beside S -> A(20) -> T is removed: nothing refreshes; (10), (20) go through the old channel."""
    latency = {"S": 0.010, "A": 0.020, "T": 0.005}
    old = Version.of(1, "SAT", [*chain("SAT"), ("S", "T")])
    new = Version.of(2, "SAT", chain("SAT"))
    found = bounds(Case(old, new, Work(latency, {"S": 10.0})), strategy)
    assert found.refresh is None
    assert 1000 * found.lag == pytest.approx(500 + 10 + 5)


def test_changes_near_the_sinks_refresh_sooner_under_pvc() -> None:
    """Breaks when the frontier is not the first changed element: only its messages need no other new element."""
    latency = dict.fromkeys("SABT", 0.010)
    old = Version.of(1, "SABT", chain("SABT"))
    times = {}
    for changed in ("A", "B", "AB"):
        new = Version.of(2, {"S": 1, "A": 1, "B": 1, "T": 1} | dict.fromkeys(changed, 2), chain("SABT"))
        times[changed] = milliseconds(bounds(Case(old, new, Work(latency, {"S": 10.0})), Strategy.PVC))
    assert times == {"A": (630, 530), "B": (620, 520), "AB": (630, 530)}


def test_pins_move_the_bounds_to_the_fork() -> None:
    """Breaks when messages that the fork held back for the old version are expected to refresh."""
    ways = [("S", "F"), ("F", "A"), ("F", "B"), ("A", "J"), ("B", "J")]
    latency = {"S": 0.001, "F": 0.002, "A": 0.003, "B": 0.004, "J": 0.005}
    old = Version.of(1, "SFABJ", ways, "J")
    new = Version.of(2, {"S": 1, "F": 1, "A": 2, "B": 2, "J": 1}, ways, "J")
    found = bounds(Case(old, new, Work(latency, {"S": 10.0}, {"J": 0})), Strategy.PVC)
    # What passes A waits for what passes B: the wave of a new input.
    assert milliseconds(found) == (500 + 100 + 1 + 2 + 4 + 5, 500 + 2 + 4 + 5)


def test_pins_of_moved_channels() -> None:
    """F -> A -> J becomes F -> B -> J, and A and B stay: F decides for both."""
    ways = [("S", "F"), ("F", "A"), ("F", "B")]
    latency = {"S": 0.001, "F": 0.002, "A": 0.003, "B": 0.004, "J": 0.005}
    old, new = Version.of(1, "SFABJ", [*ways, ("A", "J")]), Version.of(2, "SFABJ", [*ways, ("B", "J")])
    found = bounds(Case(old, new, Work(latency, {"S": 10.0})), Strategy.PVC)
    assert milliseconds(found) == (500 + 100 + 2 + 4 + 5, 500 + 2 + 3 + 5)


def test_joins_wait_for_the_last_input() -> None:
    ways = [("S", "A"), ("S", "B"), ("A", "J"), ("B", "J")]
    latency = {"S": 0.001, "A": 0.003, "B": 0.004, "J": 0.005}
    assert Model(Version.of(1, "SABJ", ways, "J"), latency, {"S": 1.0}).head("S", "J") == pytest.approx(0.005)
    assert Model(Version.of(1, "SABJ", ways), latency, {"S": 1.0}).head("S", "J") == pytest.approx(0.004)


def test_ordered_output_refreshes_after_the_lag() -> None:
    found = bounds(golden(20.0), Strategy.MVC, ordered=True)
    assert found.delineated
    assert found.refresh is not None
    assert found.refresh >= found.lag


def test_overload_is_refused() -> None:
    """C works 30 ms of every 1 / 27 s: 81 %."""
    with pytest.raises(InputError, match="processing element 'C' is used to 81%; bounds hold up to 80%"):
        golden(27.0).work.model(golden(27.0).old)
    model = golden(20.0).work.model(golden(20.0).old)
    assert replace(model, rates={"S": 30.0}, instances=dict.fromkeys("SPABCL", 2)).utilisation("C") == pytest.approx(
        0.45
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"latency": {"S": 0.02}}, "'P' needs a latency"),
        ({"rates": {}}, "source 'S' needs a rate"),
        ({"selectivity": {"P": (0, 1)}}, "'P': selectivity needs integers of at least 1"),
    ],
)
def test_invalid_models(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        replace(golden(5.0).work.model(golden(5.0).old), **options)


def test_models_of_other_versions() -> None:
    case = golden(5.0)
    update = Update(Strategy.MVC, case.old, case.new, Numbering({}).extended(case.old).extended(case.new))
    with pytest.raises(InputError, match="the models are of other versions"):
        predict(update, case.work.model(case.new), case.work.model(case.new), DeployTimes(1.0, 1.0))


def test_siblings_wait_for_each_other() -> None:
    waits = sibling_waits(golden(5.0).work.model(golden(5.0).old))
    assert waits == pytest.approx({"S": 0, "P": 0, "A": 0, "B": 0, "C": 0, "L": 0.010})


@pytest.mark.parametrize(
    ("requirements", "strategy", "ordered"),
    [
        ([], Strategy.MVC, False),
        (["no-loss"], Strategy.MVC, False),
        (["no-mixing", "no-loss"], Strategy.MVC, False),
        (["lowest-latency"], Strategy.PVC, False),
        (["lowest-latency", "no-mixing"], Strategy.PVC, False),
        ([], Strategy.MVC, True),
        (["lowest-latency", "no-loss"], Strategy.MVC, True),
    ],
)
def test_recommendations(requirements: list[str], strategy: Strategy, ordered: bool) -> None:
    found = recommend(
        [Requirement(one) for one in requirements],
        {one: bounds(golden(10.0, "PC"), one) for one in Strategy},
        ordered=ordered,
    )
    assert (found.strategy, found.ordered) == (strategy, ordered)
    assert found.reason.startswith(strategy.value)
    assert found.reason.count(". ") == 0


def test_recommendation_among_what_is_offered() -> None:
    rows = {Strategy.HTI: bounds(golden(10.0, "PC"), Strategy.HTI), Strategy.NCL: bounds(golden(10.0), Strategy.NCL)}
    assert recommend([Requirement.NO_MIXING], rows).strategy == Strategy.NCL
    with pytest.raises(InputError, match="none of hti, ncl meets: no-loss, no-mixing"):
        recommend([Requirement.NO_MIXING, Requirement.NO_LOSS], rows)
    assert rows[Strategy.HTI].to_dict()["kind"] == "element"
    assert GOLDEN_TIMES.dataflow == 15.0


@pytest.mark.parametrize(
    ("changed", "consistent"), [("P", True), ("A", True), ("ABC", True), ("PA", False), ("SL", False)]
)
def test_hti_mixes_only_with_two_changes_on_a_path(changed: str, consistent: bool) -> None:
    assert bounds(golden(10.0, changed), Strategy.HTI).consistent == consistent

"""Updates of running dataflows in virtual time: coordinator, routers, bounds and report together.

The sweeps over many phases are in `experiments/tests/updates`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.updates.cases import (
    RATES,
    Case,
    chain,
    cycle,
    drawn,
    golden,
    missing,
    outputs_of_sinks,
    parallel,
    sides_of,
    simulate,
    windows,
)
from experiments.updates.coordinator import Limits, Request, State
from experiments.updates.routing import Side
from experiments.updates.simulation import Simulation, Work, in_flight
from goffish.streaming.updates.bounds import Bounds, DeployTimes, predict, sibling_waits
from goffish.streaming.updates.versions import Element, PartialWindow, Strategy, Version

SAFE = (Strategy.MVC, Strategy.PVC)


def bounds(case: Case, simulation: Simulation, index: int = -1) -> Bounds:
    update = simulation.updates[index][1]
    old, new = case.work.model(update.old), case.work.model(update.new)
    waits = [sibling_waits(one) for one in (old, new)]
    return predict(update, replace(old, wait=waits[0]), replace(new, wait=waits[1]), case.times)


def assert_sound(simulation: Simulation, old: Version, new: Version) -> None:
    """C1, C2, C4 to C7."""
    assert all(sides_of(simulation, old, new))
    assert simulation.cost().mixed == 0
    assert simulation.violations == []
    assert not [key for key, times in simulation.handled.items() if times > 1]
    assert simulation.alarms == []
    assert simulation.ends[-1][1] == State.COMPLETE
    assert all(list(shell.instances) == [new.logic[id]] for id, shell in simulation.shells.items())
    assert simulation.shells.keys() == new.logic.keys()


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("strategy", list(Strategy))
def test_golden_dataflow(strategy: Strategy, rate: float) -> None:
    """U1: breaks when a latency leaves (bound - 1/I, bound], or a strategy loses or mixes what it must not."""
    case = golden(rate)
    for phase in (0.001, 0.26, 0.51, 0.77, 0.999):
        full = 0.065 if strategy == Strategy.NCH else 0.0
        found = simulate(case, strategy, 1.0 + phase / rate, full_ttl=full)
        limits = predict(found.updates[-1][1], case.work.model(case.old), case.work.model(case.new), case.times)
        cost = found.cost()
        assert cost.refresh is not None
        assert limits.refresh is not None
        low = 0.0 if strategy in (Strategy.NCL, Strategy.NCH) else 1 / rate
        assert limits.refresh - low - 1e-9 <= cost.refresh <= limits.refresh + 1e-9
        assert max(0.0, limits.lag - 1 / rate) - 1e-9 <= cost.lag <= limits.lag + 1e-9
        assert_sound(found, case.old, case.new)
        lost = missing(found, 3)
        assert 0 <= lost <= limits.loss
        if strategy in (Strategy.NCL, Strategy.NCH):  # C3
            assert cost.refresh > cost.lag


def test_running_messages_are_lost_under_ncl_only() -> None:
    """Breaks when the loss of NCL cannot be seen: a request 21 ms after an input kills its wave of 3 outputs."""
    case = golden(5.0)
    lost = {strategy: missing(simulate(case, strategy, 1.021), 3) for strategy in Strategy}
    assert lost == {Strategy.NCL: 3, Strategy.NCH: 0, Strategy.HTI: 0, Strategy.MVC: 0, Strategy.PVC: 0}


def test_order_of_the_strategies() -> None:
    """U11, in every run with the same phase and times."""
    for phase in (0.1, 0.45, 0.8):
        costs = {one: simulate(golden(10.0), one, 1.0 + phase / 10).cost() for one in Strategy}
        refresh = {one: cost.refresh or 0.0 for one, cost in costs.items()}
        assert refresh[Strategy.PVC] <= refresh[Strategy.MVC] < refresh[Strategy.NCL] / 10
        assert refresh[Strategy.NCL] <= refresh[Strategy.NCH]
        assert costs[Strategy.NCL].lag == 0.0 <= costs[Strategy.NCH].lag


@pytest.mark.parametrize("rate", [5.0, 10.0])
def test_measured_experiment_of_the_paper(rate: float) -> None:
    """U2: breaks when MVC dips by 5 % in any second, or NCL does not stop for the deployment and a wave head."""
    case = golden(rate)
    lossy = simulate(case, Strategy.NCL, 5.03).cost()
    stamped = simulate(case, Strategy.MVC, 5.03, after=20.0).cost()
    assert lossy.outage == pytest.approx(15.050)
    assert lossy.lowest_throughput == 0.0
    assert lossy.dip >= 15.0
    assert stamped.lowest_throughput >= 0.95
    assert stamped.dip == 0.0
    assert lossy.refresh is not None
    assert stamped.refresh is not None
    assert lossy.refresh / stamped.refresh >= 10


def test_changes_in_series_mix_under_hti_only() -> None:
    """U3: breaks when a violation of C1 would not be found. P and C change; a request hits messages between them."""
    case = golden(20.0, "PAC")
    mixed = Counter[Strategy]()
    for strategy in (Strategy.HTI, *SAFE):
        for phase in range(10):
            found = simulate(case, strategy, 1.0 + phase / 200)
            mixed[strategy] += found.cost().mixed
            assert not found.violations
            wrong = len(found.outputs) - sum(sides_of(found, case.old, case.new))
            assert wrong == found.cost().mixed  # from the sets, and from the masks
    assert mixed[Strategy.HTI] > 0
    assert mixed[Strategy.MVC] == mixed[Strategy.PVC] == 0


def test_parallel_changes_need_pins() -> None:
    """U4: breaks when PVC as published does not mix, or pins do not prevent it."""
    case = parallel(20.0)
    plain, pinned, stamped = (
        [
            simulate(case, strategy, 1.0 + phase / 200, after=0.3, plain=strategy == Strategy.PVC and plain)
            for phase in range(10)
        ]
        for strategy, plain in ((Strategy.PVC, True), (Strategy.PVC, False), (Strategy.MVC, False))
    )
    assert sum(one.cost().mixed > 0 for one in plain) == 6  # 30 ms of every 50
    for found in (*pinned, *stamped):
        assert_sound(found, case.old, case.new)
        assert missing(found, 1, spare=0.2) == found.flushed == 0


def test_activation_at_different_times() -> None:
    """Breaks when messages meet an active router, then one that is not: consistent for any order of notices."""
    rng = Random(1)
    for case in (golden(20.0, "PAC"), parallel(20.0)):
        for strategy in SAFE:
            delays = {id: rng.choice([0.0, 0.02, 0.2]) for id in case.old.logic}
            found = simulate(case, strategy, 1.0 + rng.random() / 20, delay=delays.__getitem__)
            assert_sound(found, case.old, case.new)
            assert missing(found, len(found.outputs[-1].roots) and (3 if "L" in case.old.logic else 1)) == 0


def test_distance_to_the_sink() -> None:
    """U5: breaks when PVC does not refresh sooner near the sinks, or MVC depends on the place."""
    latency, version = dict.fromkeys("SABCT", 0.020), Version.of(1, "SABCT", chain("SABCT"))
    refresh: dict[Strategy, list[float]] = {Strategy.PVC: [], Strategy.MVC: []}
    for changed in "ABCT":
        new = Version.of(2, version.logic | {changed: 2}, chain("SABCT"))
        case = Case(version, new, Work(latency, {"S": 10.0}))
        for strategy, found in refresh.items():
            simulation = simulate(case, strategy, 1.0333)
            found.append(simulation.cost().refresh or 0.0)
            assert all(row["holds"] for row in simulation.cost().against(bounds(case, simulation)))
    assert refresh[Strategy.MVC] == pytest.approx([refresh[Strategy.MVC][0]] * 4)
    limits = [0.5 + 0.1 + 0.02 * (4 - place) for place in range(4)]
    assert all(limit - 0.1 < found <= limit + 1e-9 for limit, found in zip(limits, refresh[Strategy.PVC], strict=True))
    assert refresh[Strategy.PVC][-1] < refresh[Strategy.PVC][0] <= min(refresh[Strategy.MVC])


BASE = [("S", "A"), ("S", "B"), ("A", "T"), ("B", "T")]
CHANGES = {
    "channel added": ({"S": 1, "A": 1, "B": 1, "T": 1}, [*BASE, ("A", "B")]),
    "channel removed": ({"S": 1, "A": 1, "B": 1, "T": 1}, [*BASE[:2], BASE[3]]),
    "channel moved": ({"S": 1, "A": 1, "B": 1, "T": 1}, [*BASE[:2], BASE[3], ("A", "B")]),
    "independent": ({"S": 1, "A": 2, "B": 1, "T": 2}, [*BASE[:3], ("A", "B"), ("B", "T")]),
    "connected": ({"S": 1, "A": 1, "B": 1, "T": 1, "X": 1, "Y": 1}, [*BASE, ("S", "X"), ("X", "Y"), ("Y", "T")]),
    "replaced": ({"S": 1, "A": 1, "T": 1, "X": 1}, [("S", "A"), ("A", "T"), ("S", "X"), ("X", "T")]),
    "source changed": ({"S": 2, "A": 1, "B": 1, "T": 1}, BASE),
    "source added": ({"S": 1, "A": 1, "B": 1, "T": 1, "R": 1}, [*BASE, ("R", "A")]),
    "sink added": ({"S": 1, "A": 1, "B": 1, "T": 1, "U": 1}, [*BASE, ("B", "U")]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_channels_and_subgraphs(name: str) -> None:
    """U6: breaks when a change of the graph loses, mixes or outlasts its bounds."""
    logic, ways = CHANGES[name]
    latency = {"S": 0.004, "R": 0.003, "A": 0.006, "B": 0.011, "X": 0.008, "Y": 0.005, "T": 0.003, "U": 0.003}
    old, new = Version.of(1, "SABT", BASE), Version.of(2, logic, ways)
    rates = {"S": 10.0, "R": 10.0} if "R" in logic else {"S": 10.0}
    case = Case(old, new, Work(latency, rates), DeployTimes(2.0, 0.5))
    for strategy in Strategy:
        for phase in (0.05, 0.15, 0.5, 0.95):
            found = simulate(case, strategy, 1.0 + phase / 10)
            rows = {row["metric"]: row for row in found.cost().against(bounds(case, found))}
            if strategy == Strategy.NCH:  # the drain is seen by polling every 10 ms
                rows = {name: rows[name] for name in ("lag", "loss")}
            assert all(row["holds"] for row in rows.values()), (strategy, phase, rows)
            if strategy in SAFE:
                assert_sound(found, old, new)
                assert in_flight(found) <= 4


def test_cycles_retire_after_the_last_loop() -> None:
    """U7: breaks when an old element is retired while a message still loops, or an output is lost."""
    case = cycle(10.0)
    for strategy in SAFE:
        for phase in range(8):
            found = simulate(case, strategy, 1.0 + phase / 80)
            assert_sound(found, case.old, case.new)
            assert missing(found, 1) == 0
            update = found.updates[-1][1]
            last = max(one.time for one in found.outputs if update.side(one.header) == Side.OLD)
            assert found.ends[-1][0] >= last
            rows = {row["metric"]: row for row in found.cost().against(bounds(case, found))}
            assert rows["refresh"]["holds"]
            assert rows["lag"]["holds"]


@pytest.mark.parametrize("strategy", SAFE)
def test_windows_across_an_update(strategy: Strategy) -> None:
    """U8: breaks when a window mixes versions, or `emit` loses a message, `drop` none, or `merge` is not counted."""
    case, seen = windows(20.0), Counter[str]()
    for phase in range(12):
        requested = 1.0 + phase / 40
        for policy in PartialWindow:
            found = simulate(case, strategy, requested, partial_window=policy)
            assert not found.violations
            assert all(sides_of(found, case.old, case.new))
            outputs = Counter(root for one in found.outputs for root in one.roots)
            done = range(len(found.entered) - 8)
            absent = [root for root in done if not outputs[root]]
            seen[f"{policy} lost"] += found.lost
            seen[f"{policy} absent"] += len(absent)
            seen[f"{policy} merged"] += found.merged
            assert {outputs[root] for root in done} <= {0, 2}
            assert found.lost == len(absent)
    assert seen["emit lost"] == seen["merge lost"] == 0
    assert seen["drop lost"] == seen["drop absent"] > 0
    assert seen["merge merged"] > 0
    assert seen["emit merged"] == seen["drop merged"] == 0


def test_back_to_back_updates() -> None:
    """U9: breaks when a second update starts before the first is complete, or outputs mix versions."""
    case = golden(20.0, "PA")
    third = Version.of(3, case.new.logic | {"P": 3, "C": 3}, case.new.channels)
    for strategy in SAFE:
        simulation = Simulation(case.old, case.work, case.times)
        simulation.request(Request(strategy, case.new), 1.01)
        simulation.request(Request(strategy, third), 1.02)
        simulation.run(1.1)
        simulation.settle()
        simulation.run(simulation.now + 1.0)
        (_, first), (again, second) = simulation.updates
        completed = simulation.ends[0][0]
        assert again >= completed
        assert (first.new, second.old, second.new) == (case.new, case.new, third)
        for output in simulation.outputs:
            update = first if output.time <= completed else second
            assert not update.mixes(output.header.trace)
        assert missing(simulation, 3) == 0
        assert simulation.shells["P"].instances.keys() == {3}
        assert simulation.shells["C"].instances.keys() == {3}


@pytest.mark.parametrize("silent", [False, True])
def test_abort_changes_nothing(silent: bool) -> None:
    """U10: breaks when outputs differ in number or time from a run without an update."""
    case = golden(20.0, "PA")
    quiet = Simulation(case.old, case.work, case.times)
    quiet.run(6.0)
    expected = [(one.time, one.roots) for one in quiet.outputs]
    for strategy in (Strategy.HTI, *SAFE):
        found = Simulation(
            case.old, case.work, case.times, fails=frozenset({Element("A", 2)}), silent=silent, limits=Limits(ready=2.0)
        )
        found.request(Request(strategy, case.new), 1.01)
        found.run(6.0)
        assert [(one.time, one.roots) for one in found.outputs] == expected
        assert found.ends[-1][1] == State.ABORTED
        assert len(found.alarms) == 1
        assert all(list(shell.instances) == [1] for shell in found.shells.values())


def test_stopped_dataflows_continue_after_a_failure() -> None:
    case = golden(20.0)
    for strategy in (Strategy.NCL, Strategy.NCH):
        found = simulate(case, strategy, 1.01, fails=frozenset({Element("P", 2)}))
        assert found.ends[-1][1] == State.ABORTED
        assert found.coordinator.version == case.old
        assert max(one.time for one in found.outputs) > found.ends[-1][0]
        assert all(sides_of(found, case.old, case.old))


def test_ordered_output_is_delineated() -> None:
    """Breaks when an output of the new version precedes one of the old; without the gate some do."""
    version = Version.of(1, "SABT", BASE)
    new = Version.of(2, version.logic | {"A": 2}, BASE)
    case = Case(version, new, Work({"S": 0.001, "A": 0.001, "B": 0.07, "T": 0.001}, {"S": 10.0}))
    for strategy in SAFE:
        for ordered in (False, True):
            found = simulate(case, strategy, 1.05, ordered=ordered)
            cost = found.cost()
            assert cost.refresh is not None
            times = [one.time for one in found.outputs]
            assert times == sorted(times)
            if ordered:
                assert cost.refresh > cost.lag
                assert missing(found, 2) == 0
                limit = bounds(case, found).refresh
                assert limit is not None
                assert cost.refresh <= limit + 0.01  # the drain is seen by polling every 10 ms


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.sampled_from(SAFE), st.booleans())
def test_random_updates(rng: Random, strategy: Strategy, joined: bool) -> None:
    """C1 to C7 for random dataflows and changes, with notices at random times.

    Breaks also when an input of a dataflow whose merges are joins yields no output, or two, at a sink of both versions:
    then messages of one input took different versions, and did not meet.
    """
    case = drawn(rng, joined=joined)
    if case is None:
        return
    delays = {id: rng.choice([0.0, 0.01, 0.1]) for id in {*case.old.logic, *case.new.logic}}
    found = simulate(case, strategy, 1.0 + rng.random() / case.work.rates["n0"], delay=delays.__getitem__)
    assert_sound(found, case.old, case.new)
    if joined:
        assert found.flushed == 0  # no join waits in vain
        done = range(len(found.entered) - int(0.7 * case.work.rates["n0"]) - 2)
        for outputs in outputs_of_sinks(found, {*case.old.sinks} & {*case.new.sinks}).values():
            assert all(outputs.get(root) == 1 for root in done)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.sampled_from(SAFE))
def test_random_updates_stay_within_their_bounds(rng: Random, strategy: Strategy) -> None:
    """Breaks when refresh or lag of a lightly loaded dataflow with joins exceeds its bound."""
    case = drawn(rng, joined=True)
    if case is None:
        return
    case = case._replace(work=replace(case.work, rates={"n0": 2.0}))
    found = simulate(case, strategy, 1.0 + rng.random() / 2, after=2.0)
    rows = {row["metric"]: row for row in found.cost().against(bounds(case, found))}
    assert rows["refresh"]["holds"], rows
    assert rows["lag"]["holds"], rows


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.sampled_from(SAFE))
def test_random_updates_and_back(rng: Random, strategy: Strategy) -> None:
    """Breaks when stamps, pins or bits of one update count in the next one, which returns to the old version."""
    case = drawn(rng, joined=True)
    if case is None:
        return
    back = replace(case.old, number=3)
    delays = {id: rng.choice([0.0, 0.01, 0.1]) for id in {*case.old.logic, *case.new.logic}}
    found = Simulation(case.old, case.work, case.times, delay=delays.__getitem__)
    found.request(Request(strategy, case.new), 1.0 + rng.random() / case.work.rates["n0"])
    found.request(Request(strategy, back), 1.2)
    found.run(1.2)
    found.settle()
    found.run(found.now + 1.0)
    (_, first), (_, second) = found.updates
    assert [state for _, state in found.ends] == [State.COMPLETE] * 2
    for output in found.outputs:
        assert not (first if output.time <= found.ends[0][0] else second).mixes(output.header.trace)
    assert found.violations == []
    assert found.flushed == 0
    assert found.coordinator.version == back
    assert {id: list(shell.instances) for id, shell in found.shells.items()} == {
        id: [version] for id, version in back.logic.items()
    }

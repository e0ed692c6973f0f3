"""The simulation of single events, by queues whose means are known, and by the analytic model where it is saturated."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.latency_aware.baselines import round_robin
from experiments.latency_aware.events import (
    Observed,
    event_graph,
    simulate_events,
    sustained_throughput,
)
from experiments.latency_aware.generators import Topology, paper_problem, paper_topology
from experiments.latency_aware.throughput import most_throughput
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.hybrid import hill_climbing
from goffish.scheduling.policies.latency_aware.score import PlacementProblem

PAIR = Topology("pair", ((0, 1),), (1, 1), (1.0, 1.0))


def pair(
    cpu: tuple[float, float], cores: tuple[float, float] = (1.0, 1.0), latency_ms: float = 0.0
) -> PlacementProblem:
    """A source and a sink; demands in points at one event a second, so cpu / 100 is the service time in seconds."""
    return PlacementProblem(
        edges=[(0, 1)], events=[1.0], cpu=cpu, memory=[1.0] * 2, cpu_capacity=100 * np.array(cores),
        memory_capacity=[1e3] * 2, latency_ms=[[0.0, latency_ms], [latency_ms, 0.0]],
    )  # fmt: skip


def seen(problem: PlacementProblem, rate: float, *, per_event: float = 0.0, place: tuple[int, int] = (0, 1),
         **options: object) -> Observed:  # fmt: skip
    graph = event_graph(PAIR, problem, 1.0, per_event)
    return simulate_events(PAIR, problem, place, graph, rate, 5, **options)  # type: ignore[arg-type]


def test_queues_one_after_the_other() -> None:
    """Exponential times: both are M/M/1 (Burke), 1 / (mu - lambda) each; the network comes on top, and no queue."""
    problem = pair((2.0, 5.0), latency_ms=30.0)
    found = seen(problem, 12.0, events=300_000, varied_service=True)
    assert found.latency_ms == pytest.approx(1e3 * (1 / (50 - 12) + 1 / (20 - 12)) + 30.0, rel=0.02)
    assert found.network_ms == pytest.approx(30.0)
    assert found.busy == pytest.approx([12 / 50, 12 / 20], rel=0.02)
    assert found.outputs_per_s == pytest.approx(12.0, rel=0.01) and found.keeps_up
    assert found.longest_ms > 3 * found.latency_ms


def test_slow_host_and_constant_times() -> None:
    """M/D/1 on half a core (Pollaczek and Khinchine), with the sending over the network as a part of the service."""
    problem, rate = pair((2.0, 0.0), (0.5, 1.0)), 15.0
    found = seen(problem, rate, per_event=0.5, events=300_000)
    mu = 0.5 / 0.025
    sending = 1 / mu + rate / (2 * mu * (mu - rate))
    # What the source lets go is apart by its service time at least, so the receiver's 5 ms meet no queue.
    assert found.latency_ms == pytest.approx(1e3 * (sending + 0.005), rel=0.02)
    assert found.busy == pytest.approx([rate / mu, rate * 0.005], rel=0.01)


def test_regular_input_waits_for_nothing() -> None:
    """D/D/1: below saturation an event takes its service times, above it as many are processed as can be."""
    problem = pair((2.0, 4.0))
    calm = seen(problem, 24.0, varied_arrivals=False, events=500)
    assert calm.latency_ms == pytest.approx(60.0) and calm.longest_ms == pytest.approx(60.0)
    late = seen(problem, 30.0, varied_arrivals=False, events=3000)
    assert not late.keeps_up and late.finished
    assert late.outputs_per_s == pytest.approx(25.0, rel=0.01) and late.busy[1] == pytest.approx(1.0, rel=1e-3)
    stopped = seen(problem, 300.0, varied_arrivals=False, events=3000, room=50)
    assert not stopped.finished and not stopped.keeps_up


def test_servers_share_a_host_and_use_one_core_each() -> None:
    """On one core both in turn: 1 / (w1 + w2). On four, the slower one alone limits, though the analytic model says
    twice that.
    """
    shared = pair((4.0, 4.0))
    assert sustained_throughput(PAIR, shared, (0, 0), 1.0, 2, events=20_000) == pytest.approx(12.5, rel=0.05)
    wide = pair((1.0, 4.0), (4.0, 1.0))
    assert sustained_throughput(PAIR, wide, (0, 0), 1.0, 2, events=20_000) == pytest.approx(25.0, rel=0.05)
    assert most_throughput(wide, (0, 0), 1.0) == pytest.approx(80.0)
    # Equal shares: two events that come at the same time to two servers of one core end together, at the sum.
    apart = Topology("apart", (), (1, 1), (1.0, 1.0))
    two = PlacementProblem(
        edges=[], events=[], cpu=[10.0, 10.0], memory=[1.0] * 2, cpu_capacity=[100.0], memory_capacity=[1e3],
        latency_ms=[[0.0]],
    )  # fmt: skip
    graph = event_graph(apart, two, 1.0)
    found = simulate_events(apart, two, (0, 0), graph, 1.0, 1, events=20, varied_arrivals=False)
    assert found.latency_ms == pytest.approx(200.0) and found.busy == pytest.approx([0.2, 0.2], rel=0.1)


@pytest.mark.parametrize("name", ["M2", "R2", "R4", "R9"])
def test_saturated_where_the_analytic_model_is(name: str) -> None:
    """And the rates of all operators are those of the topology, its cycle included."""
    problem, topology = paper_problem(name, cycle=True)
    for place in (hill_climbing(problem).placement, round_robin(problem.operators, [1] * 11)):
        top = most_throughput(problem, place, 100.0, 0.2)
        found = sustained_throughput(topology, problem, place, 100.0, 4, per_event=0.2, events=4000)
        assert 0.9 * top <= found <= 1.06 * top
        calm = simulate_events(
            topology, problem, place, event_graph(topology, problem, 100.0), 0.4 * top, 1, events=9000
        )
        expected = (topology.inputs(0.4 * top) / topology.instances)[topology.operation]
        assert calm.arrived / calm.arrived[0] == pytest.approx(expected / expected[0], rel=0.1)
        assert calm.keeps_up


def test_repeatable_and_refused() -> None:
    problem = pair((2.0, 4.0))
    one, two = seen(problem, 9.0), seen(problem, 9.0)
    assert one.latency_ms == two.latency_ms
    other = simulate_events(PAIR, problem, (0, 1), event_graph(PAIR, problem, 1.0), 9.0, 6)
    assert other.latency_ms != one.latency_ms
    with pytest.raises(InputError, match="rate = 0"):
        seen(problem, 0.0)
    with pytest.raises(InputError, match="rate = 0"):
        event_graph(PAIR, problem, 0.0)
    with pytest.raises(InputError, match="2 operators in the problem, 3 in the topology"):
        event_graph(paper_topology("M3"), problem, 1.0)
    with pytest.raises(InputError, match="no highest throughput"):
        sustained_throughput(PAIR, pair((0.0, 0.0)), (0, 1), 1.0, 1)

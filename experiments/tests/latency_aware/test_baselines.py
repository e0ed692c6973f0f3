"""Storm's schedulers by hand (docs/specs/latency-aware.md, section 3.7)."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.latency_aware.baselines import placing_order, resource_aware, round_robin
from experiments.latency_aware.generators import Topology
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import PlacementProblem


def hosts_for(topology: Topology, cpu: list[float], memory: list[float] | None = None) -> PlacementProblem:
    return PlacementProblem(
        edges=topology.operator_edges(), events=topology.events(1.0), cpu=[40.0] * topology.operators,
        memory=[100.0] * topology.operators, cpu_capacity=cpu,
        memory_capacity=[1000.0] * len(cpu) if memory is None else memory, latency_ms=np.zeros((len(cpu), len(cpu))),
    )  # fmt: skip


CHAIN = Topology("chain", ((0, 2), (2, 1)), (1, 1, 3), (1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("slots", "workers", "placed"),
    [
        ([1, 1, 1], None, [0, 1, 2, 0, 1]),
        ([1, 3, 2], None, [1, 2, 0, 1, 2]),
        ([1, 3, 2], 2, [1, 2, 1, 2, 1]),
        ([0, 2, 0], 5, [1, 1, 1, 1, 1]),
    ],
)
def test_round_robin(slots: list[int], workers: int | None, placed: list[int]) -> None:
    """First slots of all hosts, those with more slots in front, then second slots."""
    assert round_robin(5, slots, workers).tolist() == placed


def test_round_robin_interleaves() -> None:
    assert round_robin(7, [1, 3, 2]).tolist() == [1, 2, 0, 1, 2, 1, 1]


def test_operations_with_many_connections_come_first() -> None:
    """The middle has 2 neighbours of 1 * 3 connections; each turn takes one of it and one of each neighbour."""
    assert placing_order(CHAIN) == [2, 0, 1, 3, 4]


def test_hosts_are_filled_in_turn() -> None:
    """170 points hold four operators of 40; the largest smallest share comes first, then the lowest host."""
    found = resource_aware(CHAIN, hosts_for(CHAIN, [100.0, 100.0, 170.0]))
    assert found is not None
    assert found.tolist() == [2, 2, 2, 2, 0]


def test_the_smallest_share_counts() -> None:
    """Much CPU with little memory comes after a balanced host."""
    found = resource_aware(CHAIN, hosts_for(CHAIN, [300.0, 240.0], [500.0, 1000.0]))
    assert found is not None
    assert found.tolist() == [1] * 5


def test_racks_come_before_hosts() -> None:
    """The rack with more free is filled first, though the largest host is in the other one."""
    found = resource_aware(CHAIN, hosts_for(CHAIN, [110.0, 100.0, 100.0]), racks=["a", "b", "b"])
    assert found is not None
    assert sorted(found.tolist()) == [0, 1, 1, 2, 2]
    assert found[2] == 1


def test_slots_and_room_are_needed() -> None:
    """An operator that fits nowhere: nothing is placed; hosts without a slot are passed over; the limit is 100 %."""
    assert resource_aware(CHAIN, hosts_for(CHAIN, [100.0, 100.0])) is None
    assert resource_aware(CHAIN, hosts_for(CHAIN, [200.0, 200.0]), slots=[0, 1]).tolist() == [1] * 5  # type: ignore[union-attr]
    assert resource_aware(CHAIN, hosts_for(CHAIN, [200.0])).tolist() == [0] * 5  # type: ignore[union-attr]
    declared = np.full(5, 50.0)
    assert resource_aware(CHAIN, hosts_for(CHAIN, [200.0]), cpu=declared) is None


def test_refused() -> None:
    problem = hosts_for(CHAIN, [100.0])
    for call in (
        lambda: round_robin(3, [0, 0]),
        lambda: round_robin(3, [1], 0),
        lambda: resource_aware(CHAIN, problem, slots=[1, 1]),
        lambda: resource_aware(CHAIN, problem, cpu=np.ones(2)),
    ):
        with pytest.raises(InputError):
            call()

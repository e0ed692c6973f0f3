"""Scores against their definitions with enumerated paths, and docs/specs/latency-aware.md, section 7."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.latency_aware.online import edge_events
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import (
    RELATIVE,
    PlacementProblem,
    ScoreWeights,
    evaluate,
    greedy_placement,
)
from tests.scheduling.policies.latency_aware.cases import chain_of_three, placements, problems, slow_score


def problem_with(**changed: object) -> PlacementProblem:
    fields = {
        "edges": [(0, 1)],
        "events": [1.0],
        "cpu": [10.0, 10.0],
        "memory": [1.0, 1.0],
        "cpu_capacity": [100.0, 100.0],
        "memory_capacity": [100.0, 100.0],
        "latency_ms": [[0.0, 1.0], [1.0, 0.0]],
    }
    return PlacementProblem(**(fields | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "value"), [([0, 0, 1], 1.8333373), ([0, 1, 1], 2.1666707), ([0, 1, 0], 3.000008), ([0, 0, 0], 0.5)]
)
def test_chain_of_three(place: list[int], value: float) -> None:
    """Unit check 1: breaks when a part of the score, or a weight, is wrong."""
    assert evaluate(chain_of_three(130.0), place).value == pytest.approx(value, abs=5e-8)


@given(problems(), st.data())
def test_against_definitions(problem: PlacementProblem, data: st.DataObject) -> None:
    """Unit check 6, and all other parts."""
    place = data.draw(placements(problem))
    found = evaluate(problem, place)
    value, violations, overload = slow_score(problem, place)
    assert found.value == pytest.approx(value, abs=1e-12)
    assert found.violations == violations
    assert found.overload == pytest.approx(overload, abs=1e-12)
    parts = 1e-6 * found.latency_ms + found.hosts + found.cuts + found.events
    assert found.value == pytest.approx(parts, abs=1e-12)


@given(problems())
def test_no_edge_points_backwards_in_the_order(problem: PlacementProblem) -> None:
    order = problem.order.tolist()
    assert sorted(order) == list(range(problem.operators))
    assert all(order.index(a) < order.index(b) for a, b in problem.edges.tolist())


def test_cycles_are_refused() -> None:
    with pytest.raises(InputError, match="edges: contain a cycle; dataflows must be acyclic"):
        evaluate(problem_with(edges=[(0, 1), (1, 0)], events=[1.0, 1.0]), [0, 1])


def test_shared_latency_mode() -> None:
    """§6.3: latency over operators times the longest one, with weight 1."""
    found = evaluate(replace(chain_of_three(), weights=RELATIVE), [0, 1, 0])
    assert found.value == pytest.approx(3.0 + 8.0 / (3 * 4.0))


def test_a_limit_that_is_reached_is_kept() -> None:
    """95 of 100 points are fine, a little more is not."""
    exact = problem_with(cpu=[47.5, 47.5])
    assert evaluate(exact, [0, 0]).violations == 0
    assert evaluate(problem_with(cpu=[47.5, 47.6]), [0, 0]).violations == 1


def test_events_over_edges() -> None:
    """§2.2: what an operator emits, in equal parts over its edges."""
    assert edge_events([(0, 1), (0, 2), (1, 2)], [10.0, 6.0, 3.0]).tolist() == [5.0, 5.0, 6.0]


def test_greedy_takes_the_freest_memory() -> None:
    """§3.2; operators with a host keep it and use its memory."""
    assert greedy_placement(chain_of_three()).tolist() == [0, 1, 0]
    tied = problem_with(memory=[1.0, 60.0], allowed=np.array([[True, True], [True, False]]))
    assert greedy_placement(tied, np.array([-1, 0])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cpu": [10.0]}, "shape"),
        ({"events": [-1.0]}, "events: numbers must be finite and 0 or more"),
        ({"latency_ms": [[0.0, 1.0], [1.0, np.inf]]}, "latency_ms: numbers must be finite and 0 or more"),
        ({"latency_ms": [[1.0, 1.0], [1.0, 0.0]]}, "itself"),
        ({"cpu_capacity": [0.0, 1.0]}, "cpu_capacity and memory_capacity must be greater than 0 for every host"),
        ({"edges": [(0, 2)]}, "edges: operators must be 0 to 1"),
        ({"allowed": np.array([[True, False], [False, False]])}, "allowed: operator 1 is not permitted on any host"),
        ({"weights": ScoreWeights(hosts=0.0)}, "weights"),
        ({"limit": 1.5}, "limit"),
    ],
)
def test_refused(changed: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        problem_with(**changed)


def test_refused_placement() -> None:
    for wrong in ([0], [0, 2], [-1, 0]):
        with pytest.raises(InputError, match="placement: expected 2 hosts, each 0 to 1"):
            evaluate(problem_with(), wrong)

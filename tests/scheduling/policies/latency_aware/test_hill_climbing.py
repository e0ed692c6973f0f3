"""Hill climbing against a plain one that evaluates every neighbour in full."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.hybrid import hill_climbing
from goffish.scheduling.policies.latency_aware.score import PlacementProblem, evaluate
from tests.scheduling.policies.latency_aware.cases import chain_of_three, placements, problems, tiny_problem


def neighbours(place: list[int], hosts: int) -> list[list[list[int]]]:
    """Moves, swaps and evacuations, in the order of docs/specs/latency-aware.md, section 3.2."""
    moves = [[*place[:o], k, *place[o + 1 :]] for o in range(len(place)) for k in range(hosts) if k != place[o]]
    swaps = []
    for a, b in itertools.combinations(range(len(place)), 2):
        if place[a] != place[b]:
            other = list(place)
            other[a], other[b] = place[b], place[a]
            swaps.append(other)
    used = sorted(set(place))
    evacuations = [[k if p == j else p for p in place] for j in used for k in range(hosts) if k != j]
    return [moves, swaps, evacuations]


def plain(problem: PlacementProblem, place: list[int], by_count: bool) -> tuple[list[int], list[int]]:
    """Steepest descent; also how many neighbours of each kind were looked at."""

    def key(one: list[int]) -> tuple[float, float]:
        score = evaluate(problem, one)
        return (score.violations if by_count else round(score.overload * 1e9) / 1e9), score.value

    tried = [0, 0, 0]
    while True:
        best, found = key(place), None
        for kind, some in enumerate(neighbours(place, problem.size)):
            tried[kind] += len(some)
            for one in some:
                new = key(one)
                if new[0] < best[0] or (new[0] == best[0] and new[1] < best[1] - 1e-15):
                    best, found = new, one
        if found is None:
            return place, tried
        place = found


@given(problems(), st.booleans(), st.data())
def test_same_path_as_the_plain_one(problem: PlacementProblem, by_count: bool, data: st.DataObject) -> None:
    """Breaks when a difference that is added up is wrong; unit check 9 with the numbers of neighbours."""
    start = data.draw(placements(problem))
    found = hill_climbing(problem, start, overload="count" if by_count else "amount")
    place, tried = plain(problem, start, by_count)
    assert found.placement.tolist() == place
    assert list(found.tried) == tried
    assert found.settled
    again = hill_climbing(problem, found.placement)
    if not by_count:
        assert again.placement.tolist() == place
        assert again.sweeps == 1


@pytest.mark.parametrize(("capacity", "place", "value"), [(100.0, [0, 0, 1], 1.8333373), (130.0, [0, 0, 0], 0.5)])
def test_chain_of_three_from_greedy(capacity: float, place: list[int], value: float) -> None:
    """Unit check 1."""
    found = hill_climbing(chain_of_three(capacity))
    assert found.score.value == pytest.approx(value, abs=5e-8)
    assert len(set(found.placement[:2].tolist())) == 1
    assert found.placement.tolist() in (place, [1 - host for host in place])


def test_neighbours_are_counted() -> None:
    """Unit check 9: M(N - 1); pairs that are not together; used (N - 1)."""
    problem = tiny_problem(1)
    place = [0, 1] + [2] * (problem.operators - 2)
    found = hill_climbing(problem, place, sweeps=1)
    m, n = problem.operators, problem.size
    assert found.tried == (m * (n - 1), 1 + 2 * (m - 2), 3 * (n - 1))


def test_an_evacuated_host_is_left() -> None:
    """§7.4: no single move or swap helps out of two pairs on two hosts, but moving all of a host does."""
    problem = PlacementProblem(
        edges=[(0, 1), (2, 3), (1, 2)], events=[1000.0, 1000.0, 1.0], cpu=[10.0] * 4, memory=[1.0] * 4,
        cpu_capacity=[100.0] * 2, memory_capacity=[100.0] * 2, latency_ms=[[0.0, 1.0], [1.0, 0.0]],
    )  # fmt: skip
    start = [0, 0, 1, 1]
    now = evaluate(problem, start).value
    moves, swaps, _ = neighbours(start, 2)
    assert all(evaluate(problem, one).value > now for one in (*moves, *swaps))
    assert hill_climbing(problem, start).score.value == pytest.approx(1 / 2)


def test_amount_goes_where_the_count_stalls() -> None:
    """§3.2: a move that only lessens an overload; three operators of 60 on one host of three with 60 points."""
    problem = PlacementProblem(
        edges=[(0, 1), (1, 2)], events=[1.0, 1.0], cpu=[50.0] * 3, memory=[1.0] * 3, cpu_capacity=[60.0] * 3,
        memory_capacity=[100.0] * 3, latency_ms=np.zeros((3, 3)),
    )  # fmt: skip
    assert hill_climbing(problem, [0, 0, 0], overload="count").score.violations == 1
    assert hill_climbing(problem, [0, 0, 0]).score.violations == 0


def test_limits() -> None:
    """No sweep within no time or number; a given start is not changed."""
    start = np.array([0, 1, 0])
    for limit in ({"sweeps": 0}, {"seconds": 0.0}):
        found = hill_climbing(chain_of_three(), start, **limit)  # type: ignore[arg-type]
        assert found.sweeps == 0
        assert not found.settled
        assert found.placement.tolist() == [0, 1, 0]
    hill_climbing(chain_of_three(), start)
    assert start.tolist() == [0, 1, 0]
    for wrong in ({"sweeps": -1}, {"seconds": -1.0}, {"overload": "much"}):
        with pytest.raises(InputError):
            hill_climbing(chain_of_three(), **wrong)  # type: ignore[arg-type]

"""Positions, owners and replicas: the ring of the specification, and sets of small integers as oracle."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.streaming.ring.ranges import CIRCLE, EVERYTHING, NOTHING, Ranges
from goffish.streaming.ring.view import Member, Move, View, middle

A, B, C, D = range(4)


def at(fraction: float) -> int:
    return round(fraction * CIRCLE)


@pytest.fixture
def view() -> View:
    tokens = (0.10, 0.40, 0.60, 0.85)
    return View(1, tuple(Member(node, at(token)) for node, token in enumerate(tokens)), replication=2)


@pytest.mark.parametrize(
    ("position", "owner"),
    [(0.05, D), (0.10, A), (0.3999, A), (0.40, B), (0.95, D)],
)
def test_owner(view: View, position: float, owner: int) -> None:
    assert view.owners(np.array([at(position)], dtype=np.uint64)).tolist() == [owner]


@pytest.mark.parametrize(("position", "nodes"), [(0.20, [A, B, C]), (0.70, [C, D, A]), (0.90, [D, A, B])])
def test_replicas(view: View, position: float, nodes: list[int]) -> None:
    assert view.replicas(at(position)) == nodes


def test_middles(view: View) -> None:
    assert middle(view.token(A), view.token(B)) == pytest.approx(at(0.25), abs=4096)
    assert middle(view.token(D), view.token(A)) == pytest.approx(at(0.975), abs=4096)
    assert middle(7, 8) is None
    assert middle(7, 7) == 7 + CIRCLE // 2


def changed_owner(old: View, new: View) -> Ranges:
    """The positions whose owner differs, from a sweep over all tokens."""
    tokens = sorted({0, *(member.token for member in (*old.members, *new.members))})
    arcs = zip(tokens, [*tokens[1:], CIRCLE], strict=True)
    return Ranges.union(Ranges(((a, b),)) for a, b in arcs if old.replicas(a)[0] != new.replicas(a)[0])


@pytest.mark.parametrize(
    ("node", "token", "removed", "moved"),
    [
        (B, 0.25, (), [(0.25, 0.40)]),
        (A, 0.975, (), [(0, 0.10), (0.975, 1)]),
        (9, 0.25, (), [(0.25, 0.40)]),
        (B, 0.10, (A,), [(0.10, 0.40)]),
        (C, 0.10, (A, B), [(0.10, 0.60)]),
        (D, 0.10, (A, B, C), [(0.10, 0.85)]),
    ],
)
def test_changes_move_exactly_these_positions(
    view: View, node: int, token: float, removed: tuple[int, ...], moved: list[tuple[float, float]]
) -> None:
    after = view.taken_over(node, at(token), removed)
    assert changed_owner(view, after).parts == tuple((at(start), at(stop)) for start, stop in moved)
    assert after.epoch == 2
    assert Ranges.union(after.interval(n) for n in after.nodes.tolist()) == EVERYTHING


@pytest.mark.parametrize(("replication", "failures"), [(1, 6), (2, 8), (3, 9)])
def test_tolerated_failures(replication: int, failures: int) -> None:
    view = View(1, tuple(Member(node, at(node / 12)) for node in range(12)), replication)
    assert view.tolerated == failures


@pytest.mark.parametrize("count", [2, 5, 8])
@pytest.mark.parametrize("replication", [1, 2, 3])
def test_tolerated_failures_by_enumeration(count: int, replication: int) -> None:
    view = View(1, tuple(Member(node, at(node / count)) for node in range(count)), min(replication, count - 1))
    positions = [member.token for member in view.members]
    survives = lambda dead: all(set(view.replicas(p)) - set(dead) for p in positions)  # noqa: E731
    sizes = [k for k in range(count) if any(map(survives, itertools.combinations(range(count), k)))]
    assert max(sizes) == view.tolerated


def test_few_nodes_hold_fewer_copies() -> None:
    view = View(1, (Member(5, 100),), replication=2)
    assert view.secondaries(5) == []
    assert view.covered(5) == view.interval(5) == EVERYTHING


def test_shadows_receive_messages(view: View) -> None:
    moved = Ranges.arc(at(0.25), at(0.40))
    move = Move(A, B, at(0.25), at(0.40), shadows=((D, moved),))
    assert move.ranges == moved
    assert view.changed(moves=(move,)).covered(D) == view.covered(D) | moved


def test_moves_end_with_their_nodes(view: View) -> None:
    move = Move(A, B, at(0.25), at(0.40), shadows=((D, Ranges.arc(at(0.25), at(0.40))),))
    moving = view.changed(moves=(move,))
    for node, removed in ((B, (A,)), (C, (B,)), (A, (D,)), (A, ())):
        assert moving.taken_over(node, at(0.5), removed).moves == ()
    assert moving.taken_over(D, at(0.6), (C,)).moves == (move,)


def test_zones() -> None:
    def violations(zones: str) -> int:
        return View(1, tuple(Member(n, at(n / len(zones)), zone) for n, zone in enumerate(zones))).zone_violations

    assert violations("abab") == 0
    assert violations("abba") == 2
    assert View(1, (Member(1, 0), Member(2, 5))).zone_violations == 0


# Ranges, against sets of the integers below 20, beside one part that reaches the end of the circle.

SMALL = 20
parts = st.lists(st.integers(0, SMALL), min_size=2, max_size=8, unique=True).map(sorted)
sets = parts.map(lambda edges: Ranges.union(Ranges(((a, b),)) for a, b in zip(edges[::2], edges[1::2], strict=False)))


def numbers(ranges: Ranges) -> set[int]:
    return {number for start, stop in ranges for number in range(start, min(stop, SMALL))}


@given(sets, sets)
def test_set_operations(one: Ranges, other: Ranges) -> None:
    assert numbers(one | other) == numbers(one) | numbers(other)
    assert numbers(one & other) == numbers(one) & numbers(other)
    assert numbers(one - other) == numbers(one) - numbers(other)
    for result in (one | other, one & other, one - other):
        assert all(b < c for (_, b), (c, _) in itertools.pairwise(result.parts))
        assert result.size == len(numbers(result))
    candidates = np.arange(SMALL, dtype=np.uint64)
    assert set(candidates[one.contains(candidates)].tolist()) == numbers(one)


def test_end_of_the_circle() -> None:
    last = np.array([0, CIRCLE - 1], dtype=np.uint64)
    assert Ranges.arc(CIRCLE - 5, 3).contains(last).all()
    assert EVERYTHING.contains(last).all()
    assert not NOTHING.contains(last).any()
    assert Ranges.arc(5, 0) == Ranges(((5, CIRCLE),))
    assert Ranges.arc(9, 9) == EVERYTHING
    assert EVERYTHING - Ranges.arc(CIRCLE - 5, 3) == Ranges(((3, CIRCLE - 5),))

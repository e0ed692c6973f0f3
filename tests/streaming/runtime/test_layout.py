"""Layouts of workers on the ring, and the moves between them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.streaming.ring.ranges import CIRCLE, Ranges
from goffish.streaming.ring.view import Member, Move, View
from goffish.streaming.runtime.layout import Step, divide, next_step
from goffish.streaming.runtime.stages import Arc


def view_of(layout: dict[int, int]) -> View:
    members = sorted((Member(worker, token) for worker, token in layout.items()), key=lambda one: one.token)
    return View(1, tuple(members))


def moved(view: View, step: Step) -> View:
    """Carry a step out, as the nodes do: the part must be the first or the last positions of the owner."""
    start, stop = view.token(step.owner), view.token(view.clockwise(step.owner))
    part = step.part or (start, stop)
    assert (part[0] == start) or (part[1] % CIRCLE == stop)
    own = view.interval(step.owner)
    assert not Ranges.arc(part[0], part[1] % CIRCLE) - own
    if step.target in view:
        beside = view.clockwise(step.owner, 1 if part[0] != start else -1)
        assert step.target == beside or (step.part is None and step.target == view.clockwise(step.owner))
    move = Move(step.owner, step.target, part[0], part[1] % CIRCLE, leaves=step.part is None)
    return view.moved(move)


@given(st.data())
def test_every_layout_is_reached(data: st.DataObject) -> None:
    """Several stages; workers stay in order, others come and go."""
    stages = data.draw(st.integers(1, 3))
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for stage in range(stages):
        arc = Arc(stage, 2) if stages > 1 else Arc()
        old = [10 * stage + n for n in range(data.draw(st.integers(1, 4)))]
        kept = [one for one in old if data.draw(st.booleans())]
        places = sorted(data.draw(st.lists(st.integers(0, len(kept)), min_size=not kept, max_size=3)), reverse=True)
        new = list(kept)
        for count, place in enumerate(places):
            new.insert(place, 100 + 10 * stage + count)
        weights = [data.draw(st.floats(0.5, 2)) for _ in new]
        before |= divide(arc, old)
        after |= divide(arc, new, weights)
    view = view_of(before)
    for _ in range(50):
        step = next_step(view, after, after.keys())
        if step is None:
            break
        view = moved(view, step)
    found = {member.node: member.token for member in view.members}
    assert found.keys() == after.keys()
    assert found == after or len(found) == 1  # which owns everything


def test_workers_that_have_not_started_are_waited_for() -> None:
    view = view_of({0: 0, 1: CIRCLE // 2})
    assert next_step(view, {0: 0, 2: CIRCLE // 2}, {0}) is None
    assert next_step(view, {0: 0, 2: CIRCLE // 2}, {0, 2}) == Step(1, 2)


def test_a_worker_that_was_replaced_gets_its_positions_back() -> None:
    layout = divide(Arc(), [0, 1, 2])
    for lost in layout:
        view = view_of(layout)
        after = view.clockwise(lost)
        view = view.taken_over(after, layout[lost], (lost,))
        wanted = {9 if worker == lost else worker: token for worker, token in layout.items()}
        step = next_step(view, wanted, {9})
        assert step == Step(after, 9, (layout[lost], wanted[after]))
        view = moved(view, step)
        assert {member.node: member.token for member in view.members} == wanted


@pytest.mark.parametrize("weights", [None, [1, 2, 1]])
def test_divide(weights: list[float] | None) -> None:
    arc = Arc(3, 6)
    tokens = list(divide(arc, [4, 5, 6], weights).values())
    sizes = [b - a for a, b in pairwise([*tokens, arc.stop])]
    assert tokens[0] == arc.start == 3 << 58
    shares = [one / sum(sizes) for one in sizes]
    assert shares == pytest.approx([1 / 3] * 3 if weights is None else [0.25, 0.5, 0.25])

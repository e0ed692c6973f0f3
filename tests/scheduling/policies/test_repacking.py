"""Repacking of instances and machines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.policies.repacking import Packing, place, repack_instances, repack_machines
from tests.scheduling.policies.cases import M1, L, S

SMALL, MEDIUM, LARGE, XLARGE = range(4)


def _packing(kinds: list[int], rows: list[tuple[int, int]]) -> Packing:
    machine, element = np.array(rows, np.int64).T.copy()
    return Packing(np.array(kinds, np.int64), machine, element)


def test_the_last_instance_moves_to_the_smallest_core_that_is_enough() -> None:
    """A need of 0.7 fits a small core, one of 1.2 does not, 1.9 of 2 x 2.0 leaves the second instance without work."""
    packing = _packing([XLARGE], [(0, 0), (0, 1), (0, 2), (0, 2)])
    found = repack_instances(packing, M1, np.array([0.7, 1.2, 1.9, 0.0]))
    power = found.power(M1, 4)
    assert power.tolist() == [1.0, 2.0, 2.0, 0.0]
    assert sorted(found.kinds.tolist()) == [SMALL, XLARGE]


def test_moved_instances_share_a_machine_of_their_class() -> None:
    """With classes of several slow cores the free cores of a machine must be filled before another one is planned."""
    slow = Catalogue(classes=(M1.classes[0].model_copy(update={"cores": 2}), M1.classes[3]))
    packing = _packing([1], [(0, 0), (0, 1), (0, 2), (0, 3)])
    found = repack_instances(packing, slow, np.array([0.5, 0.6, 0.7, 1.9]))
    assert sorted(found.kinds.tolist()) == [0, 0, 1]
    assert np.bincount(found.machine, minlength=3).max() <= 2


@given(st.lists(st.tuples(st.integers(1, 4), st.floats(0.01, 1.0)), min_size=1, max_size=8))
@settings(deadline=None)
def test_nobody_is_left_short(elements: list[tuple[int, float]]) -> None:
    """Power in use must still be there after every move, and no element may lose its only instance."""
    count = np.array([count for count, _ in elements])
    need = count * 2.0 * np.array([share for _, share in elements])
    element = np.repeat(np.arange(count.size), count)
    packing = Packing(np.full(-(-element.size // 4), XLARGE), np.arange(element.size) // 4, element)
    found = repack_instances(packing, M1, need)
    assert (found.power(M1, count.size) >= need - 1e-6).all()
    assert (np.bincount(found.element, minlength=count.size) >= 1).all()
    assert (M1.cores[found.kinds] >= np.bincount(found.machine, minlength=found.kinds.size)).all()


def test_poorly_filled_machines_become_smaller() -> None:
    """Three instances on an xlarge: a large and a medium are a quarter cheaper, and the power is the same."""
    packing = _packing([XLARGE], [(0, 3), (0, 0), (0, 1)])
    flow, active = S.with_rates(np.array([0.5, 0.0, 0.0, 0.0])), np.array([1, 1, 0, 0])
    base = np.array([0.0, 0.0, 2.0, 0.0])
    found = repack_machines(packing, flow, M1, active, flow.rates, flow.forward, base)
    assert found.price_per_hour(M1) == pytest.approx(0.36)
    assert sorted(found.kinds.tolist()) == [MEDIUM, LARGE]
    # Depth-first 0, 1, 3: the first two are neighbours and meet on the large one.
    assert found.element[found.machine == np.flatnonzero(found.kinds == LARGE)[0]].tolist() == [0, 1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.integers(0, 3))
def test_never_below_the_cheapest_packing_nor_dearer_than_before(elements: list[int], spread: int) -> None:
    """The oracle: with m1 prices an instance of speed 2 costs 0.12 at least; a figure below that has lost instances."""
    active = np.array([1, 1, 0, 0])
    machine = np.arange(len(elements)) // (1 + spread)
    packing = Packing(np.full(int(machine.max()) + 1, XLARGE), machine, np.array(elements, np.int64))
    flow = S.with_rates(np.full(4, 0.0))
    found = repack_machines(packing, flow, M1, active, flow.rates, flow.forward, np.ones(4))
    assert found.price_per_hour(M1) <= packing.price_per_hour(M1) + 1e-9
    assert found.price_per_hour(M1) >= 0.12 * len(elements) - 1e-9
    assert np.allclose(found.power(M1, 4), packing.power(M1, 4))


def test_a_packing_becomes_planned_machines() -> None:
    """Instances that are lost, doubled or on another machine would show here."""
    plan = Deployment(M1, np.zeros(8, np.int64))
    packing = _packing([XLARGE, SMALL, LARGE], [(0, 0), (2, 5), (0, 0), (1, 7), (0, 3), (2, 1)])
    place(plan, packing)
    plan.check()
    assert [m.instances for m in plan.machines.values()] == [{0: 2, 3: 1}, {7: 1}, {5: 1, 1: 1}]
    assert np.allclose(plan.power, packing.power(M1, L.size))


def test_full_machines_hold_neighbours() -> None:
    """Five instances on two xlarge: the first four in depth-first order fill one, whatever was placed where."""
    packing = _packing([XLARGE, XLARGE], [(0, 3), (0, 2), (0, 1), (1, 0), (1, 3)])
    flow, active = S.with_rates(np.array([0.1, 0.0, 0.0, 0.0])), np.array([1, 1, 0, 0])
    found = repack_machines(packing, flow, M1, active, flow.rates, flow.forward, np.zeros(4))
    assert found.price_per_hour(M1) == pytest.approx(0.60)
    assert found.element[found.machine == np.flatnonzero(found.kinds == XLARGE)[0]].tolist() == [0, 1, 3, 3]


def test_a_type_that_is_far_too_slow_is_not_tried() -> None:
    """Breaks when cores of a millionth of the speed are counted out one by one: 5e8 of them for this load."""
    big = M1.classes[0].model_copy(update={"name": "big", "cores": 1000})
    tiny = big.model_copy(update={"name": "tiny", "cores": 1, "speed": 1e-9})
    plan = make_policy("reactive-global").deploy(S, Catalogue(classes=(big, tiny)))
    assert {plan.catalogue.classes[one.kind].name for one in plan.machines.values()} == {"big"}

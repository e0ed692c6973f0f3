"""Machines at the end of their paid time: which are emptied, where their instances go, when they stop."""

from __future__ import annotations

import numpy as np
import pytest

from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.policies.retirement import retire_machines
from goffish.scheduling.policies.windows import Outlook, Window
from tests.scheduling.policies.planning import chain, chain_rates, machine_classes


def window_of(*machines: Machine, rate: float = 4.0, steps: int = 4, speeds: dict[int, float] | None = None) -> Window:
    live = Deployment(machine_classes(), np.zeros(2, np.int64))
    for machine in machines:
        live.add_machine(machine)
    series = {number: np.full(steps, speed) for number, speed in (speeds or {}).items()}
    return Window(chain(), live, Outlook(chain_rates(*[rate] * steps), series), 300.0)


def steady(elapsed_s: float = 0.0) -> list[Machine]:
    """Two machines that are just enough for 4 messages a second and not due."""
    return [Machine(0, 1, elapsed_s=elapsed_s, instances={0: 1}), Machine(1, 3, elapsed_s=elapsed_s, instances={1: 2})]


def actions(window: Window, within: int = 2, target: float = 0.8) -> list[tuple[int, str, int, int]]:
    retire_machines(window, target, within)
    return [(action.step, action.what, action.machine, action.element) for action in window.actions]


@pytest.mark.parametrize(
    ("elapsed_s", "step"),
    [(3599.0, 0), (3300.0, 0), (3299.0, 1), (3000.0, 1), (2999.0, None), (0.0, None), (6900.0, 0), (3600.0, None)],
)
def test_empty_machines_stop_in_the_interval_in_which_their_hour_ends(elapsed_s: float, step: int | None) -> None:
    """Else an hour is paid that nobody uses, or one is given away that was paid."""
    found = actions(window_of(*steady(), Machine(2, 0, elapsed_s=elapsed_s)))
    assert found == ([] if step is None else [(step, "retire", 2, -1)])


def test_only_what_ends_before_the_next_plan_is_looked_at() -> None:
    """Else a machine is emptied long before its hour ends, or half of all machines are never stopped."""
    late = Machine(2, 0, elapsed_s=3600 - 900)
    assert actions(window_of(*steady(), late), within=2) == []
    assert actions(window_of(*steady(), late), within=3) == [(2, "retire", 2, -1)]


def test_instances_move_near_their_neighbours_and_then_to_the_fastest() -> None:
    """Else messages cross machines for nothing, or capacity is lost in the move."""
    machines = [Machine(0, 2, instances={1: 1}), Machine(1, 3, instances={0: 1, 1: 2}), Machine(3, 2)]
    leaving = Machine(2, 0, elapsed_s=3300, instances={1: 1})
    found = actions(window_of(*machines, leaving, speeds={0: 0.9, 1: 0.5, 2: 1.0, 3: 1.0}, rate=2.0))
    assert found == [(0, "remove", 2, 1), (0, "add", 0, 1), (0, "retire", 2, -1)]


def test_machines_are_emptied_from_a_later_timestep_on() -> None:
    """Else repacking after the other changes undoes what was planned for the timesteps before them."""
    machines = [Machine(0, 2, instances={1: 1}), Machine(1, 3, instances={0: 1, 1: 2}), Machine(3, 2)]
    leaving = Machine(2, 0, elapsed_s=3000, instances={1: 1})
    window = window_of(*machines, leaving, rate=2.0)
    before = window.powers.copy()
    retire_machines(window, 0.8, 4, since=1)
    assert [(a.step, a.what, a.machine) for a in window.actions] == [(1, "remove", 2), (1, "add", 0), (1, "retire", 2)]
    assert np.array_equal(window.powers[0], before[0])
    # One whose time is over before then is paid for again: nothing is to be saved.
    late = window_of(*machines, leaving, rate=2.0)
    retire_machines(late, 0.8, 4, since=3)
    assert late.actions == []


def test_what_finds_no_core_is_given_up_only_if_it_is_not_the_last() -> None:
    """Else an element is left without any instance, and the dataflow stands still."""
    spare = Machine(2, 0, elapsed_s=3300, instances={1: 1})
    full = [Machine(0, 1, instances={0: 1}), Machine(1, 2, instances={1: 2})]
    assert actions(window_of(*full, spare)) == [(0, "remove", 2, 1), (0, "retire", 2, -1)]
    last = Machine(1, 1, elapsed_s=3300, instances={1: 1})
    assert actions(window_of(Machine(0, 1, instances={0: 1}), last, rate=1.0)) == []


def test_a_machine_stays_if_the_throughput_would_fall_short() -> None:
    """Else stopping a machine breaks the plan that is made next."""
    needed = Machine(2, 1, elapsed_s=3300, instances={1: 1})
    full = [Machine(0, 1, instances={0: 1}), Machine(1, 1, instances={1: 1})]
    window = window_of(*full, needed)
    before = window.powers.copy()
    assert actions(window) == []
    assert np.array_equal(window.powers, before)
    assert window.fastest_free([1], 0) == -1
    assert actions(window_of(*full, needed), target=0.5) == [(0, "remove", 2, 1), (0, "retire", 2, -1)]


def test_the_emptiest_goes_first_and_takes_nothing_in_any_more() -> None:
    """Else instances move onto machines that are about to stop, and vanish with them."""
    due = [
        Machine(0, 2, elapsed_s=3300, instances={0: 2}),
        Machine(1, 3, elapsed_s=3300, instances={1: 1}),
        Machine(2, 3, elapsed_s=3300, instances={1: 1}),
    ]
    window = window_of(*due)
    assert actions(window) == [
        (0, "remove", 1, 1), (0, "add", 2, 1), (0, "retire", 1, -1),
        (0, "remove", 0, 0), (0, "add", 2, 0), (0, "remove", 0, 0), (0, "add", 2, 0), (0, "retire", 0, -1),
    ]  # fmt: skip
    assert window.instances_on(2) == {0: 2, 1: 2}
    assert window.counts.tolist() == [2, 2]
    assert not window.usable[:2].any()


def test_a_floor_for_every_timestep_keeps_a_machine() -> None:
    """Else retirement breaks the floor that the plan then cannot repair."""
    live = [Machine(0, 1, instances={0: 1}), Machine(1, 2, instances={1: 2})]
    spare = Machine(2, 1, elapsed_s=3300, instances={1: 1})
    rates = chain_rates(8, 2, 2, 2)
    for floor, kept in ((0.0, False), (0.6, True)):
        deployment = Deployment(machine_classes(), np.zeros(2, np.int64))
        for machine in [*live, spare]:
            deployment.add_machine(machine.copy())
        deployment.drop_machine(0)
        deployment.add_machine(Machine(0, 2, instances={0: 2}))
        window = Window(chain(), deployment, Outlook(rates, {}), 300.0)
        retire_machines(window, 0.8, 2, floor)
        assert (not window.actions) == kept

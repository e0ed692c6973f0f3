"""Cumulative throughput of windows: the golden figures, and sums that are added up one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud.catalogue import Catalogue, MachineType
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies import window_kernels as kernels
from goffish.scheduling.policies.lookahead import Aims, look_ahead
from goffish.scheduling.policies.windows import Outlook, Window
from tests.scheduling.policies.planning import (
    chain,
    chain_deployment,
    chain_rates,
    machine_classes,
    machine_weights,
    random_deployment,
    random_flow,
    random_outlook,
)

CASES = given(seed=st.integers(0, 10**9), size=st.integers(1, 8), steps=st.integers(1, 7))


def window_of(seed: int, size: int, steps: int) -> tuple[np.random.Generator, Flow, Deployment, Outlook, Window]:
    rng = np.random.default_rng(seed)
    flow = random_flow(rng, size)
    live = random_deployment(rng, flow, machine_classes())
    outlook = random_outlook(rng, flow, live, steps)
    return rng, flow, live, outlook, Window(flow, live, outlook, 300.0)


def test_the_windows_of_the_golden_chain() -> None:
    """G1: else cumulative throughput is not that of docs/specs/plasticc.md, section 7.1, and every plan differs."""
    window = Window(chain(), chain_deployment(2, 3), Outlook(chain_rates(4, 4, 6, 6), {}), 300.0)
    omegas = [window.evaluate(0, end).omega for end in (1, 2, 3, 4)]
    assert omegas == pytest.approx([0.75, 0.75, 0.642857142857, 0.6], abs=1e-12)
    assert window.end_within(0, 4, 0.75, 0.85) == 2
    assert window.evaluate(2, 4).local == pytest.approx([2 / 3, 0.75], abs=1e-12)


@CASES
def test_windows_are_the_sums_of_their_timesteps(seed: int, size: int, steps: int) -> None:
    """Else prefix sums, or changes from a timestep on, lose or invent power, messages or switches."""
    rng, flow, live, outlook, window = window_of(seed, size, steps)
    powers = np.zeros((steps, size))
    for number, machine in live.machines.items():
        series = outlook.speeds.get(number, np.full(steps, outlook.typical)) * live.catalogue.speeds[machine.kind]
        for element, count in machine.instances.items():
            powers[:, element] += count * series
    active, at = np.tile(live.active, (steps, 1)), 0
    for _ in range(int(rng.integers(0, 12))):
        at = int(rng.integers(at, steps))
        element = int(rng.integers(size))
        match int(rng.integers(3)):
            case 0:
                place = window.fastest_free([element], at)
                if place < 0:
                    place = window.start(int(rng.integers(4)), max(0, at - 1))
                window.put(element, place, at)
                powers[at:, element] += window.speeds[place, at:]
            case 1:
                places = [p for p in range(len(live.machines)) if element in live.machines[window.ids[p]].instances]
                place = places[int(rng.integers(len(places)))]
                if window.instances_on(place).get(element):
                    window.take(element, place, at)
                    powers[at:, element] -= window.speeds[place, at:]
            case _:
                choice = int(rng.integers(flow.alternate_counts[element]))
                window.switch(element, choice, at)
                active[at:, element] = choice
    powers = np.where(powers < 1e-12, 0.0, powers)
    for first in range(at, steps):
        rows = {}
        for last in range(first + 1, steps + 1):
            wanted = flow.estimate(
                active[first], powers[first:last].mean(axis=0), outlook.rates[first:last].mean(axis=0)
            )
            found = window.evaluate(first, last)
            if (window.mean_power(first, last) > 1e-12).all():
                assert found.omega == pytest.approx(wanted.omega, abs=1e-9)
                assert found.local == pytest.approx(wanted.local, abs=1e-9)
            rows[last] = found.omega
        inside = [last for last, omega in rows.items() if 0.6 - 1e-9 <= omega <= 0.9 + 1e-9]
        assert window.end_within(first, steps, 0.6, 0.9) == max(inside, default=first)
        below = [k for k in range(first, steps) if window.evaluate(k, k + 1).omega < 0.7 - 1e-9]
        assert window.first_below(0.7, first) == min(below, default=steps)


@CASES
def test_what_is_undone_leaves_no_trace(seed: int, size: int, steps: int) -> None:
    """Else a retirement that was refused changes the plan."""
    rng, _, live, _, window = window_of(seed, size, steps)
    before = (window.powers.copy(), window.power_sums.copy(), window.counts.copy(), window.free.copy())
    on = [window.instances_on(place) for place in range(len(live.machines))]
    for _ in range(6):
        place = int(rng.integers(len(live.machines)))
        here = window.instances_on(place)
        if here:
            element = min(here)
            window.take(element, place, 0)
            target = window.fastest_free([element], 0)
            window.put(element, target, 0)
    window.rollback(0)
    for then, now in zip(before, (window.powers, window.power_sums, window.counts, window.free), strict=True):
        assert now == pytest.approx(then, abs=1e-9)
    assert [window.instances_on(place) for place in range(len(live.machines))] == on
    assert window.actions == []


@CASES
def test_the_least_weight_is_that_of_the_reactive_heuristics(seed: int, size: int, steps: int) -> None:
    """Equation 10: else scaling in takes cores from machines that are worth keeping."""
    _, flow, live, _, _ = window_of(seed, size, steps)
    seen = {number: np.full(steps, machine.coefficient) for number, machine in live.machines.items()}
    window = Window(flow, live, Outlook(np.tile(flow.rates, (steps, 1)), seen), 300.0)
    for element in range(size):
        weights = machine_weights(live, element, live.catalogue.billing)
        place = kernels.lighter(window.entries, window.weights(0), element)
        assert weights[window.ids[place]] == pytest.approx(min(weights.values()), rel=1e-9)


@given(seed=st.integers(0, 10**9), size=st.integers(1, 8), steps=st.integers(1, 6), first=st.integers(0, 5))
def test_free_cores_near_an_element_come_first(seed: int, size: int, steps: int, first: int) -> None:
    """Else neighbours are spread over machines, or slow machines are filled first."""
    rng, _, live, outlook, window = window_of(seed, size, steps)
    first = min(first, steps - 1)
    near = [int(e) for e in rng.integers(0, size, 2)]
    ranked = []
    for number, machine in sorted(live.machines.items()):
        series = outlook.speeds.get(number, np.full(steps, outlook.typical))[first:]
        if live.free(number):
            hosts = any(element in machine.instances for element in near)
            ranked.append((not hosts, -live.catalogue.speeds[machine.kind] * series.mean(), number))
    place = window.fastest_free(near, first)
    assert (window.ids[place] if place >= 0 else None) == (min(ranked)[2] if ranked else None)


def test_messages_that_wait_count_in_windows_that_begin_now() -> None:
    """Else a backlog is forgotten, or worked off in every window once more."""
    flow, live = chain(), chain_deployment(2, 3)
    queue = np.array([600.0, 300.0])
    window = Window(flow, live, Outlook(chain_rates(4, 4, 4), {}), 300.0, queue=queue)
    found = window.evaluate(0, 2)
    wanted = flow.estimate(live.active, live.power, np.array([4.0, 0.0]), queue=queue, interval_s=600.0)
    assert found.local == pytest.approx(wanted.local, abs=1e-12)
    assert found.local[0] == pytest.approx(4 / 5, abs=1e-12)
    assert window.evaluate(1, 3).local[0] == 1.0
    assert window.load(0, 2).backlog == pytest.approx(queue / 600)
    assert not window.load(1, 3).backlog.any()


def test_a_window_without_timesteps_is_refused() -> None:
    """Else an empty prediction ends in a division by zero."""
    with pytest.raises(InputError, match="at least one timestep"):
        Window(chain(), chain_deployment(1, 1), Outlook(np.zeros((0, 2)), {}), 300.0)


#: Messages of 0.8 Mbit.
LINKED = chain(message_bytes=100_000)


def linked_chain(*links: float, rate: float = 4.0) -> Window:
    """A and B on machines of their own whose links carry 4 messages of 100 kB a second, over as many timesteps."""
    classes = (MachineType(name="m", cores=2, speed=4.0, price_per_hour=1, bandwidth_mbit_s=3.2),)
    live = Deployment(Catalogue(classes=classes), np.zeros(2, np.int64))
    live.add_machine(Machine(0, 0, instances={0: 1}))
    live.add_machine(Machine(1, 0, instances={1: 1}))
    outlook = Outlook(chain_rates(*[rate] * len(links)), {}, bandwidths={0: np.array(links)})
    return Window(LINKED, live, outlook, 300.0)


def test_predicted_links_count_in_windows() -> None:
    """6.14: else a plan holds on paper while its messages wait for a link; the sums are done by hand."""
    window = linked_chain(1.0, 0.5, 0.5, 0.5)
    # The receiver's link has its rated bandwidth; that of the sender decides: 4 or 2 of 4 messages a second.
    assert [window.evaluate(k, k + 1).omega for k in range(4)] == pytest.approx([1.0, 0.5, 0.5, 0.5])
    assert [window.evaluate(0, end).omega for end in (1, 2, 3, 4)] == pytest.approx([1.0, 0.75, 2 / 3, 0.625])
    assert window.end_within(0, 4, 0.7, 1.0) == 2 and window.end_within(1, 4, 0.7, 1.0) == 1
    assert window.first_below(0.9, 0) == 1 and window.first_below(0.4, 0) == 4
    window.put(1, 0, 2)
    window.take(1, 1, 2)
    assert window.evaluate(2, 4).omega == pytest.approx(1.0)  # both on one machine: nothing crosses a link
    assert Window(LINKED, window.live, Outlook(chain_rates(4, 4), {}), 300.0).evaluate(0, 2).omega == 1.0


def test_plans_do_not_save_what_the_links_need() -> None:
    """Else scaling in takes a core that keeps messages off a link; without predictions of links it is taken."""
    classes = (MachineType(name="m", cores=4, speed=4.0, price_per_hour=1, bandwidth_mbit_s=0.8),)
    live = Deployment(Catalogue(classes=classes), np.zeros(2, np.int64))
    live.add_machine(Machine(0, 0, instances={0: 1, 1: 1}))
    live.add_machine(Machine(1, 0, instances={0: 1, 1: 1}))
    aims = Aims(0.8, 0.0, 0, 12, 300.0)
    rates = chain_rates(4, 4, 4, 4)
    cores = look_ahead(LINKED, live, Outlook(rates, {}), aims).deployment(3)
    assert cores.counts.tolist() == [1, 1]
    links = look_ahead(LINKED, live, Outlook(rates, {}, bandwidths={}), aims).deployment(3)
    reached = LINKED.estimate(links.active, links.power, rates[0], hosts=links.hosts()).omega
    assert reached >= 0.8 - 1e-9

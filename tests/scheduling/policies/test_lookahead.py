"""Planning ahead: the golden plans, the procedure as it is written, and what holds for every plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import Dataflow
from goffish.scheduling.policies.lookahead import Aims, Schedule, look_ahead
from goffish.scheduling.policies.windows import Outlook, ScheduledAction, Window
from tests.scheduling.policies.planning import (
    Reference,
    chain,
    chain_deployment,
    chain_rates,
    described,
    machine_classes,
    random_deployment,
    random_flow,
    random_outlook,
)

GROWING = chain_rates(4, 4, 6, 6)


def chain_plan(
    flow: Flow, live: Deployment, rates: np.ndarray = GROWING, sigma: float = 0.01, **aims: float
) -> Schedule:
    given = {"target": 0.8, "tolerance": 0.05, "step": 0, "steps": 4, "interval_s": 300.0, **aims}
    return look_ahead(flow, live, Outlook(rates, {}), Aims(sigma=sigma, **given))


def omegas(flow: Flow, plan: Schedule, rates: np.ndarray = GROWING) -> list[float]:
    found = []
    for step in range(plan.steps):
        deployment = plan.deployment(step)
        found.append(flow.estimate(deployment.active, deployment.power, rates[step]).omega)
    return found


def started(step: int, place: int, at: int, element: int) -> list[ScheduledAction]:
    return [ScheduledAction(step, "start", -place, choice=0), ScheduledAction(at, "add", -place, element)]


def test_the_golden_plan_without_alternates() -> None:
    """G2: else bottlenecks, cross-overs or machines are not those of docs/specs/plasticc.md, section 7.1."""
    flow = chain()
    plan = chain_plan(flow, chain_deployment(2, 3))
    assert list(plan.actions) == started(2, 1, 2, 0) + started(2, 2, 2, 1) + started(2, 3, 2, 1)
    assert (plan.crossovers, plan.reason) == ((2,), "holds")
    assert omegas(flow, plan) == pytest.approx([0.75, 0.75, 5 / 6, 5 / 6], abs=1e-12)
    assert [plan.deployment(k).power.tolist() for k in range(4)] == [[2, 3], [2, 3], [3, 5], [3, 5]]


def test_money_of_little_worth_buys_machines() -> None:
    """G3: else a value loss of 0.05 is taken for a cost of 0.0006."""
    plan = chain_plan(chain(cheap=True), chain_deployment(2, 3))
    assert list(plan.actions) == started(2, 1, 2, 0) + started(2, 2, 2, 1) + started(2, 3, 2, 1)


def test_dear_money_takes_the_cheaper_alternate() -> None:
    """G4: else the planner pays 0.12 of profit for a machine where 0.05 of value would do, or goes to and fro."""
    flow = chain(cheap=True)
    plan = chain_plan(flow, chain_deployment(2, 3), sigma=2.0)
    wanted = [*started(2, 1, 2, 0), ScheduledAction(2, "switch", element=1, choice=1), *started(2, 2, 2, 1)]
    assert list(plan.actions) == wanted
    assert plan.reason == "direction flip"
    assert plan.deployment(3).power.tolist() == [3, 4]
    assert omegas(flow, plan)[2:] == pytest.approx([4 / 0.7 / 6] * 2, abs=1e-12)


@pytest.mark.parametrize(("startup_s", "start"), [(0.0, 2), (1.0, 1), (300.0, 1), (301.0, 0), (5000.0, 0)])
def test_machines_are_asked_for_as_early_as_they_need(startup_s: float, start: int) -> None:
    """G5: else capacity comes late by the time a machine takes to start, or is paid for too early."""
    plan = chain_plan(chain(), chain_deployment(2, 3, startup_s))
    assert {(a.what, a.step) for a in plan.actions} == {("start", start), ("add", 2)}
    assert len(plan.deployment(1).machines) == (8 if start <= 1 else 5)
    assert plan.deployment(1).power.tolist() == [2, 3]


def test_nothing_is_planned_where_nothing_deviates() -> None:
    """G6 and J2: else a deployment in the band is changed for nothing."""
    plan = chain_plan(chain(), chain_deployment(2, 3), chain_rates(4, 4, 4, 4))
    assert (plan.actions, plan.crossovers, plan.reason) == ((), (), "holds")


def test_too_much_is_given_up_until_one_less_would_fall_short() -> None:
    """G7: else what is not needed is paid for, or too much is taken."""
    flow = chain()
    rates = chain_rates(4, 4, 4, 4)
    plan = chain_plan(flow, chain_deployment(4, 6), rates)
    assert {a.what for a in plan.actions} == {"remove"}
    assert plan.deployment(0).power.tolist() == [2, 4]
    assert omegas(flow, plan, rates) == [1.0] * 4
    assert plan.reason == "no action possible"


@given(
    seed=st.integers(0, 10**9),
    size=st.integers(1, 7),
    steps=st.integers(1, 6),
    fill=st.sampled_from([0.4, 0.8, 1.0, 1.6]),
    startup_s=st.sampled_from([0.0, 60.0, 700.0]),
    alternates=st.booleans(),
)
def test_plans_follow_the_procedure_as_it_is_written(
    seed: int, size: int, steps: int, fill: float, startup_s: float, alternates: bool
) -> None:
    """Else the fast planner (prefix sums, what it remembers as impossible) decides otherwise than the paper's."""
    rng = np.random.default_rng(seed)
    flow = random_flow(rng, size, alternates)
    live = random_deployment(rng, flow, machine_classes(startup_s), fill)
    outlook = random_outlook(rng, flow, live, steps)
    aims = Aims(0.8, 0.05, 3, 40, 300.0, sigma=flow.sigma, cadence=min(2, steps), most_actions=60)
    untouched = described(live)
    plan = look_ahead(flow, live, outlook, aims)
    reference = Reference(flow, live, outlook, aims)
    assert plan.reason == reference.plan()
    for step in range(steps):
        deployment = plan.deployment(step)
        deployment.check()
        assert described(deployment) == reference.described(step)
        assert (deployment.counts >= 1).all()
    assert described(live) == untouched
    assert all(0 <= action.step < steps for action in plan.actions)
    assert list(plan.crossovers) == sorted(set(plan.crossovers))
    again = look_ahead(flow, live, outlook, aims)
    assert again.actions == plan.actions
    if plan.reason == "holds":
        last = plan.crossovers[-1] if plan.crossovers else 0
        assert abs(reference.cumulative(last, steps).omega - aims.target) <= aims.tolerance + 1e-9


def test_the_guard_ends_a_plan() -> None:
    """Else a plan without end blocks the service."""
    plan = chain_plan(chain(), chain_deployment(2, 3), most_actions=2)
    assert plan.reason == "guard"
    assert sum(action.what == "add" for action in plan.actions) == 2


def test_the_limit_of_machines_holds() -> None:
    """Else a plan asks for machines that the provider refuses."""
    live = chain_deployment(2, 3)
    live.catalogue = live.catalogue.model_copy(update={"limit": 6})
    plan = chain_plan(chain(), live)
    assert sum(action.what == "start" for action in plan.actions) == 1
    assert plan.reason == "no action possible"
    cheap = chain_plan(chain(cheap=True), live)
    assert ScheduledAction(2, "switch", element=1, choice=1) in cheap.actions


def test_an_element_that_lost_all_instances_gets_one() -> None:
    """Else a failure that leaves an element without a core is taken for a slow network, and nothing is done."""
    live = chain_deployment(2, 3)
    for number in (0, 1):
        live.drop_machine(number)
    plan = chain_plan(chain(), live, chain_rates(4, 4, 4, 4))
    assert plan.deployment(0).power.tolist() == [2, 3]
    silent = chain_plan(chain(), live, chain_rates(0, 0, 0, 0))
    assert (silent.deployment(0).counts >= 1).all()


def test_a_new_machine_has_the_speed_that_all_elements_miss() -> None:
    """Of their ideal input: else those behind a bottleneck seem to need none, and many small machines are started."""
    catalogue = machine_classes()
    live = Deployment(catalogue, np.zeros(2, np.int64))
    live.add_machine(Machine(0, 0, instances={0: 1}))
    live.add_machine(Machine(1, 0, instances={1: 1}))
    kinds = {}
    for rate in (2.0, 4.0, 7.0, 50.0):
        plan = look_ahead(
            chain(), live, Outlook(chain_rates(rate), {}), Aims(0.8, 0.0, 0, 4, 300.0, sigma=0.0, most_actions=1)
        )
        missing = max(0.0, 0.8 * rate * 0.5 - 1) + max(0.0, 0.8 * rate - 1)
        kinds[rate] = plan.actions[0].choice
        assert catalogue.powers[kinds[rate]] >= min(missing, catalogue.powers.max())
    assert kinds == {2.0: 0, 4.0: 2, 7.0: 3, 50.0: 3}


def test_a_floor_for_every_timestep_repairs_a_short_dip() -> None:
    """Else a deep violation that the rest of the window makes up for stays, although it was excluded."""
    flow = chain()
    rates = chain_rates(4, 4, 4, 10, 3, 3, 3, 3)
    live = chain_deployment(2, 3)
    aims = {"target": 0.75, "tolerance": 0.2, "steps": 8}
    assert chain_plan(flow, live, rates, **aims).actions == ()
    floored = chain_plan(flow, live, rates, least_step=0.5, **aims)
    assert min(omegas(flow, floored, rates)) >= 0.5
    assert floored.crossovers[0] == 3


def test_the_value_of_a_window_in_the_period_and_so_far() -> None:
    """Else profit is normalised by other timesteps than docs/specs/plasticc.md says (section 6.3)."""
    assert Aims(0.8, 0.05, 10, 100, 300.0).share(2, 6) == pytest.approx(4 / 100)
    assert Aims(0.8, 0.05, 10, 100, 300.0, value_over="so far").share(2, 6) == pytest.approx(4 / 16)


def test_windows_do_not_count_machines_twice() -> None:
    """Else a machine started for one element is not used for the next before another one is asked for."""
    catalogue = machine_classes()
    live = Deployment(catalogue, np.zeros(2, np.int64))
    live.add_machine(Machine(0, 1, instances={0: 1}))
    live.add_machine(Machine(1, 1, instances={1: 1}))
    plan = look_ahead(chain(), live, Outlook(chain_rates(20.0), {}), Aims(0.8, 0.05, 0, 4, 300.0))
    used = plan.deployment(0)
    used.check()
    last = max(used.machines, key=abs)
    assert all(used.free(number) == 0 for number in used.machines if number != last)
    assert Window(chain(), used, Outlook(chain_rates(20.0), {}), 300.0).evaluate(0, 1).omega >= 0.75


def two_alternates(first_value: float, second_value: float) -> Flow:
    """One element with an alternate of cost 1 and one of cost 0.5."""
    alternates = [
        {"id": "dear", "cost": 1.0, "value": first_value},
        {"id": "cheap", "cost": 0.5, "value": second_value},
    ]
    elements = [{"id": "A", "alternates": alternates}]
    return compile_flow(Dataflow.model_validate({"elements": elements, "inputs": {"A": 4}}))


def test_a_free_core_comes_before_an_alternate_that_costs_nothing() -> None:
    """Else ties are broken the other way than docs/specs/plasticc.md has it."""
    live = Deployment(machine_classes(), np.zeros(1, np.int64))
    live.add_machine(Machine(0, 2, instances={0: 1}))
    rates = np.array([[4.0]])
    plan = look_ahead(two_alternates(1.0, 1.0), live, Outlook(rates, {}), Aims(0.8, 0.05, 0, 4, 300.0, most_actions=1))
    assert plan.actions == (ScheduledAction(0, "add", 0, 0),)
    worse = look_ahead(two_alternates(0.9, 1.0), live, Outlook(rates, {}), Aims(0.8, 0.05, 0, 4, 300.0, most_actions=1))
    assert worse.actions == (ScheduledAction(0, "switch", element=0, choice=1),)


@pytest.mark.parametrize(
    ("kind", "elapsed_s", "sigma", "what"),
    [
        (0, 900.0, 3.0, "remove"),  # an hour of 0.06 that would begin after the change, worth 0.18, is avoided
        (0, 900.0, 0.1, "switch"),
        (0, 0.0, 3.0, "switch"),  # the hour is paid to the end of the window
        (0, 2100.0, 3.0, "switch"),  # the next hour begins before the change
        (2, 900.0, 3.0, "switch"),  # the machine stays in use
    ],
)
def test_scaling_down_takes_what_gains_more(kind: int, elapsed_s: float, sigma: float, what: str) -> None:
    """Else money that is spent already counts as saved, or value is given away for none."""
    live = Deployment(machine_classes(), np.array([1]))
    live.add_machine(Machine(0, kind, elapsed_s=elapsed_s, instances={0: kind or 1}))
    for number in (1, 2):
        live.add_machine(Machine(number, 0, elapsed_s=1800.0, instances={0: 1}))
    rates = np.array([[live.power[0] / 0.5 / 0.8]] * 6 + [[0.1]] * 6)
    aims = Aims(0.8, 0.001, 0, 40, 300.0, sigma=sigma, most_actions=1)
    plan = look_ahead(two_alternates(1.0, 0.5), live, Outlook(rates, {}), aims)
    assert plan.crossovers == (6,)
    assert [(action.step, action.what, action.machine) for action in plan.actions] == [(6, what, 0)]


def test_the_band_forgives_rounding() -> None:
    """6.5: else a throughput of exactly the lower end of the band is acted on."""
    window = Window(chain(), chain_deployment(2, 3), Outlook(chain_rates(4, 4), {}), 300.0)
    assert window.end_within(0, 2, 0.75 + 5e-10, 0.85) == 2
    assert window.end_within(0, 2, 0.65, 0.75 - 5e-10) == 2
    assert window.end_within(0, 2, 0.75 + 5e-9, 0.85) == 0

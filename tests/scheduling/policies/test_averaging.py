"""Policies that act on one representative value: which value, when they act, and how far they aim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies.averaging import Averaging, effective_target, representative
from goffish.scheduling.policies.observation import Forecast, Observation
from goffish.scheduling.policies.plasticc import Plasticc
from tests.scheduling.policies.planning import (
    chain,
    chain_deployment,
    chain_rates,
    described,
    machine_classes,
    random_deployment,
    random_flow,
)


class Given:
    """A first deployment that is known beforehand."""

    def __init__(self, live: Deployment) -> None:
        self.live = live

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        return self.live.copy()

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        return observation.live, memory


START = Given(chain_deployment(2, 3))


def observation(live: Deployment, omegas: list[float], rates: np.ndarray, **more: Any) -> Observation:
    known = {"flow": chain(), "catalogue": live.catalogue, "step": len(omegas), "steps": 20, "interval_s": 300.0}
    return Observation(live=live, omegas=np.array(omegas), rates=rates, **(known | more))


def golden() -> Observation:
    """G9: three timesteps seen, three predicted, one machine."""
    live = Deployment(machine_classes(), np.zeros(2, np.int64))
    live.add_machine(Machine(5, 2, 0.7, instances={0: 1, 1: 1}))
    speeds = {5: np.array([0.5, 0.6, 0.7])}
    forecast = Forecast(3, chain_rates(4, 6, 8), {5: np.array([0.9, 0.6, 0.9])})
    return observation(live, [1.0, 1.0, 0.5], chain_rates(3, 5, 7), speeds=speeds, forecast=forecast)


@pytest.mark.parametrize(
    ("kind", "rate", "speed"),
    [("WPA", 6.0, 0.8), ("WPO", 4.0, 0.9), ("WPP", 8.0, 0.6), ("CAF", 7.0, 0.7), ("WAAF", 5.0, 0.6)],
)
def test_representative_values(kind: Any, rate: float, speed: float) -> None:
    """G9: else a heuristic is another one."""
    found = representative(kind, golden(), 3, 3)
    assert found.rates.tolist() == [[pytest.approx(rate), 0.0]]
    assert found.speeds[5].tolist() == [pytest.approx(speed)]
    assert found.typical == pytest.approx(0.7)


def test_windows_of_the_past_are_as_long_as_what_was_seen() -> None:
    """Else young machines, or the first timesteps, are averaged with values that never were."""
    known = golden()
    young = replace(known, speeds={5: np.array([0.5])})
    assert representative("WAAF", young, 3, 6).speeds[5].tolist() == [0.5]
    assert representative("WAAF", known, 3, 2).rates[0, 0] == pytest.approx(6.0)
    assert representative("WAAF", known, 3, 99).rates[0, 0] == pytest.approx(5.0)
    unseen = replace(known, speeds={4: np.array([0.5])})
    assert representative("CAF", unseen, 3, 6).speeds == {}
    assert representative("CAF", unseen, 3, 6).typical == 1.0


def test_old_predictions_count_as_far_as_they_lie_ahead() -> None:
    """Else a heuristic averages over timesteps that are past, or goes on with predictions that are used up."""
    known = golden()
    later = replace(known, step=4, omegas=np.ones(4), rates=chain_rates(3, 5, 7, 9))
    assert representative("WPA", later, 3, 3).rates[0, 0] == pytest.approx(7.0)
    over = replace(later, step=6, omegas=np.ones(6), rates=chain_rates(3, 5, 7, 9, 9, 2))
    assert representative("WPA", over, 3, 3).rates[0, 0] == pytest.approx(2.0)
    assert representative("WPP", replace(known, forecast=None), 3, 3).rates[0, 0] == pytest.approx(7.0)
    ending = replace(known, steps=5)
    assert representative("WPA", ending, 3, 3).rates[0, 0] == pytest.approx(5.0)


@pytest.mark.parametrize(("omega", "acts"), [(0.85, False), (0.75, False), (0.74, True), (0.86, True)])
def test_nothing_is_done_inside_the_band(omega: float, acts: bool) -> None:
    """Else a heuristic changes a deployment that does what it should, or leaves one that does not."""
    known = observation(chain_deployment(2, 3), [omega], chain_rates(8.0 if omega < 0.8 else 2.0))
    found, _ = Averaging("CAF", START, carry_over=False).adapt(known, None)
    assert (described(found) != described(known.live)) == acts


def test_machines_without_work_stop_also_inside_the_band() -> None:
    """Else an hour is paid for a machine that nothing runs on, as long as the throughput is right."""
    live = chain_deployment(2, 3)
    live.add_machine(Machine(7, 0, elapsed_s=3300.0))
    live.add_machine(Machine(8, 0, elapsed_s=3000.0))
    found, _ = Averaging("CAF", START).adapt(observation(live, [0.8], chain_rates(4)), None)
    assert set(found.machines) == {0, 1, 2, 3, 4, 8}
    assert set(live.machines) == {0, 1, 2, 3, 4, 7, 8}


def test_a_failure_is_acted_on_at_once() -> None:
    """Else a dataflow goes on without the machine that it lost until a bad throughput was measured."""
    live = chain_deployment(2, 3)
    live.drop_machine(0)
    known = observation(live, [0.8], chain_rates(5), failed=1)
    found, _ = Averaging("CAF", START).adapt(known, None)
    assert found.counts[0] >= 2


def test_a_shortfall_is_spread_over_twelve_timesteps() -> None:
    """Else the mean throughput ends below the goal."""
    live = chain_deployment(2, 3)
    for omegas, wanted in (
        ([], 0.8),
        ([0.8, 0.8], 0.8),
        ([0.9, 0.9], 0.8),
        ([0.5, 0.7], 0.8 + 0.4 / 12),
        ([0.0] * 6, 0.95),
    ):
        known = observation(live, omegas, chain_rates(*[4.0] * len(omegas)))
        assert effective_target(known) == pytest.approx(wanted)
    demanding = observation(live, [0.0], chain_rates(4), flow=chain(throughput=0.99))
    assert effective_target(demanding) == 0.99


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 7), omega=st.sampled_from([0.3, 0.6, 1.0]))
def test_the_last_timestep_as_a_prediction_makes_the_same_plan(seed: int, size: int, omega: float) -> None:
    """J1: else looking one timestep ahead is not the reactive scheduler."""
    rng = np.random.default_rng(seed)
    flow = random_flow(rng, size)
    live = random_deployment(rng, flow, machine_classes(60.0), rng.uniform(0.5, 1.5))
    rates = flow.rates[None, :] * rng.uniform(0.5, 1.5)
    speeds = {number: np.array([machine.coefficient]) for number, machine in live.machines.items()}
    known = observation(live, [omega], rates, flow=flow, speeds=speeds, forecast=Forecast(1, rates, speeds))
    ahead, _ = Plasticc(Given(live), "interval", horizon=1).adapt(known, None)
    reactive, _ = Averaging("CAF", Given(live)).adapt(known, None)
    assert described(ahead) == described(reactive)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 7), kind=st.sampled_from(["CAF", "WAAF"]))
def test_heuristics_after_the_fact_do_not_look_at_predictions(seed: int, size: int, kind: Any) -> None:
    """J7: else errors of a prediction change what does not use it."""
    rng = np.random.default_rng(seed)
    flow = random_flow(rng, size)
    live = random_deployment(rng, flow, machine_classes(60.0))
    known = observation(live, [0.5], flow.rates[None, :], flow=flow)
    forecast = Forecast(1, rng.uniform(0, 50, (4, size)), {0: rng.uniform(0.1, 1, 4)})
    policy = Averaging(kind, Given(live))
    assert described(policy.adapt(known, None)[0]) == described(
        policy.adapt(replace(known, forecast=forecast), None)[0]
    )


@given(seed=st.integers(0, 10**9), size=st.integers(1, 7), omega=st.sampled_from([0.3, 1.0]))
def test_who_expects_worse_provisions_more(seed: int, size: int, omega: float) -> None:
    """J8: else optimistic and pessimistic values are exchanged somewhere."""
    rng = np.random.default_rng(seed)
    flow = random_flow(rng, size, alternates=False)
    live = random_deployment(rng, flow, machine_classes(only=1), rng.uniform(0.5, 1.5))
    for machine in live.machines.values():
        machine.elapsed_s = 0.0
    rates = flow.rates * rng.uniform(0.6, 1.4, (4, 1))
    speeds = {number: rng.uniform(0.5, 1.0, 4) for number in live.machines}
    known = observation(live, [omega], flow.rates[None, :], flow=flow, forecast=Forecast(1, rates, speeds))
    low, mean, high = (
        Averaging(kind, Given(live), carry_over=False).adapt(known, None)[0].counts.sum()
        for kind in ("WPO", "WPA", "WPP")
    )
    assert low <= mean + size
    assert mean <= high + size
    assert low <= high


def test_unknown_heuristics_and_lengths_are_refused() -> None:
    """Else a slip of the pen runs some other heuristic."""
    with pytest.raises(InputError, match="CAF, WAAF, WPA, WPO, WPP"):
        Averaging("WPX", START)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1"):
        Averaging("WPA", START, horizon=0)


def test_the_first_deployment_is_that_of_another_policy() -> None:
    """Else the heuristics do not start from where they are compared."""
    assert described(Averaging("CAF", START).deploy(chain(), START.live.catalogue)) == described(START.live)

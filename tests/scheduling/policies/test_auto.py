"""The policy that follows the better of two by their regret: it switches when that pays, and not before."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies import auto
from goffish.scheduling.policies.auto import Auto, Shadow
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.plasticc import Plasticc
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.policies.reactive import Reactive, Static
from goffish.scheduling.simulate.run import simulate
from goffish.scheduling.simulate.scenario import make_forecaster, make_rates, make_variability

M1 = read_catalogue("ec2-2013-m1")
FLOW = compile_flow(read_dataflow("linear-road"))


@dataclass(frozen=True)
class Wasteful:
    """Starts a machine that it does not use in every interval, and releases it in the next one."""

    start: Policy

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        return self.start.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        plan = observation.live.copy()
        for number in [n for n in plan.machines if not plan.used(n)]:
            plan.drop_machine(number)
        plan.plan_machine(plan.catalogue.largest)
        return plan, None


class Recorded(Auto):
    """Records the interval of every switch."""

    def adapt(self, observation: Observation, memory: Any) -> Any:
        plan, after = super().adapt(observation, memory)
        names.append(after.name)
        return plan, after


names: list[str] = []


@pytest.mark.parametrize("followed", ["plasticc", "reactive-global"])
def test_the_wasteful_policy_is_left_and_not_taken(followed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it stays with the policy that pays 12 unused machine-hours an hour, or moves to it. The first one is
    followed for `patience_h`, as regret requires a history.
    """
    bad, good = Wasteful(Reactive()), Static(Reactive())
    made = {"plasticc": bad, "reactive-global": good} if followed == "plasticc" else {"plasticc": good, "x": bad}
    monkeypatch.setattr(auto.Auto, "policies", property(lambda self: made))
    names.clear()
    simulate(FLOW, M1, Recorded(Reactive(), patience_h=10 / 12), np.tile(FLOW.rates, (60, 1)))
    if followed == "plasticc":
        assert names[:9] == ["plasticc"] * 9
        assert names[-1] == "reactive-global"
        assert sum(a != b for a, b in itertools.pairwise(names)) == 1
    else:
        assert set(names) == {"plasticc"}


def test_no_switch_for_a_gain_that_the_rest_of_the_period_does_not_repay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it changes machines in the last intervals for a regret that can no longer be avoided."""
    made = {"plasticc": Wasteful(Reactive()), "reactive-global": Static(Reactive())}
    monkeypatch.setattr(auto.Auto, "policies", property(lambda self: made))
    for patience, followed in ((57 / 12, {"plasticc"}), (20 / 12, {"plasticc", "reactive-global"})):
        names.clear()
        simulate(FLOW, M1, Recorded(Reactive(), patience_h=patience), np.tile(FLOW.rates, (60, 1)))
        assert set(names) == followed


@pytest.mark.parametrize("policy", [Reactive(), Plasticc(Reactive())])
@pytest.mark.slow
def test_a_shadow_is_the_run_of_its_policy(policy: Policy) -> None:
    """Else regrets compare runs that never happen. Oracle: the simulator, on machines at rated speed."""
    rates = make_rates("spikes", FLOW, 60, 300.0, 3)
    forecaster = make_forecaster("quantiles", FLOW, rates, make_variability("none"), interval_s=300.0, horizon=12)
    ours = simulate(FLOW, M1, policy, rates, forecaster=forecaster, network=False)
    last: list[dict[str, Shadow]] = []

    class Kept(Auto):
        def adapt(self, observation: Observation, memory: Any) -> Any:
            plan, after = super().adapt(observation, memory)
            last.append(after.shadows)
            return plan, after

    simulate(FLOW, M1, Kept(Reactive()), rates, forecaster=forecaster, network=False)
    shadow = last[-1]["plasticc" if isinstance(policy, Plasticc) else "reactive-global"]
    assert shadow.omegas == pytest.approx(ours.intervals["omega"].to_numpy()[:-1])
    assert np.cumsum(shadow.costs) == pytest.approx(ours.intervals["cost"].to_numpy()[:-1])
    assert shadow.values == pytest.approx(ours.intervals["value"].to_numpy()[:-1])


@pytest.mark.slow
def test_the_future_does_not_matter() -> None:
    """Else decisions use rates that are not observed yet: two runs that differ later are the same until then."""
    rates = make_rates("free-walk", FLOW, 48, 300.0, 1)
    other = rates.copy()
    other[24:] *= 3.0
    runs = []
    for given in (rates, rates, other):
        forecaster = make_forecaster("quantiles", FLOW, given, make_variability("ec2", 1), interval_s=300.0, horizon=12)
        runs.append(simulate(FLOW, M1, make_policy("auto"), given, make_variability("ec2", 1), forecaster))
    assert runs[0].intervals.equals(runs[1].intervals)
    assert runs[0].intervals.slice(0, 24).equals(runs[2].intervals.slice(0, 24))
    assert not runs[0].intervals.equals(runs[2].intervals)

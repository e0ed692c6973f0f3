"""Policies by their names."""

from __future__ import annotations

import pytest

from goffish.errors import InputError
from goffish.services.cloud.catalogue import read_catalogue
from goffish.services.dataflows.flow import compile_flow
from goffish.services.dataflows.model import read_dataflow
from goffish.services.provisioning.policies import looks_ahead, make_policy, policy_names
from goffish.services.provisioning.report import describe_plan

FAST = {"ga": {"generations": "5", "population": "20"}}


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_plans(name: str) -> None:
    """Breaks when a name leads to no policy, or one makes a deployment that misses the goal."""
    flow = compile_flow(read_dataflow("sc13-diamond"))
    policy = make_policy(name, FAST.get(name.removeprefix("static-").replace("hybrid", "ga")))
    plan = policy.deploy(flow, read_catalogue("ec2-2013-m1"))
    plan.check()
    described = describe_plan(flow, plan, flow.rates)
    assert described["throughput"] >= flow.goal.throughput - 1e-9
    assert sum(e["instances"] for e in described["elements"]) == sum(m["used"] for m in described["machines"])
    assert described["cost"] == pytest.approx(described["cost_per_hour"] * 10)


def test_options_are_taken_for_what_they_are() -> None:
    """Breaks when a text of the command line does not become the number, truth value or policy that is needed."""
    made = make_policy("plasticc", {"horizon": "6", "carry_over": "false", "start": "reactive-local"})
    assert (made.horizon, made.carry_over, made.start.variant) == (6, False, "sharded")  # type: ignore[attr-defined]
    ga = make_policy("ga", {"population": "30", "seed": "4"})
    assert (ga.search.population, ga.seed) == (30, 4)  # type: ignore[attr-defined]
    assert looks_ahead("wpa") and not looks_ahead("caf") and not looks_ahead("static-ga")


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("best", {}, "no policy 'best': choose one of reactive-global"),
        ("plasticc", {"tau": 3}, "no option 'tau'; there are: .*horizon"),
        ("plasticc", {"horizon": "many"}, "horizon = 'many'"),
        ("plasticc", {"horizon": 0}, "at least 1"),
        ("plasticc", {"start": "nobody"}, "no policy 'nobody'"),
        ("caf", {"kind": "WPA"}, "no option 'kind'"),
        ("ga", {"population": "x"}, "population = 'x'"),
        ("reactive-global", {"trigger": "never"}, "trigger = 'never'"),
    ],
)
def test_what_is_no_policy(name: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        make_policy(name, options)

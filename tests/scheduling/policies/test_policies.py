"""Policies by their names."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow, external_rates
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.policies import looks_ahead, make_policy, policy_names, policy_schema
from goffish.scheduling.policies.report import describe_plan
from goffish.scheduling.simulate.run import simulate

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
    assert sum(e["instances"] for e in described["processing_elements"]) == sum(
        m["used"] for m in described["machines"]
    )
    assert described["cost"] == pytest.approx(described["cost_per_hour"] * 10)


@pytest.mark.parametrize("name", ["reactive-global", "reactive-strict", "ds2", "btu", "edrp"])
@pytest.mark.slow
def test_types_that_are_far_too_slow(name: str) -> None:
    """Breaks when a policy plans millions of machines, or tables for as many instances."""
    types = [
        {"name": "tiny", "cores": 1, "speed": 1e-6, "price_per_hour": 0.01},
        {"name": "big", "cores": 8, "speed": 1e-5, "price_per_hour": 1.0},
    ]
    flow, slow = compile_flow(read_dataflow("linear-road")), read_catalogue({"classes": types})
    flow = flow.with_rates(external_rates(flow, {"reports": 50.0}))
    if name == "edrp":
        assert len(make_policy(name).deploy(flow, slow).machines) == 40
        large = read_catalogue({"classes": [types[0] | {"cores": 100_000}, types[1]]})
        with pytest.raises(
            InputError, match="8 processing elements of up to 4,000,000 instances on 40 hosts: too many; set"
        ):
            make_policy(name).deploy(flow, large)
        return
    with pytest.raises(InputError, match="machines of"):
        make_policy(name).deploy(flow, slow)


def numbers_of(policy: str) -> list[str]:
    """The options of a policy that are numbers."""
    found = []
    for name, one in policy_schema(policy)["properties"].items():
        kinds = {kind.get("type") for kind in (one, *one.get("anyOf", ()))}
        if kinds & {"integer", "number"} and "string" not in kinds:
            found.append(name)
    return found


@pytest.mark.parametrize("policy", [name for name in policy_names() if not name.startswith("static-")])
def test_numbers_that_no_option_can_be(policy: str) -> None:
    """Breaks when an option of a policy accepts a number that it can do nothing with."""
    for option in numbers_of(policy):
        for value in ("-1", "nan", "inf", "-inf", "1e308"):
            with pytest.raises(InputError, match=option):
                make_policy(policy, {option: value})


@pytest.mark.slow
@pytest.mark.parametrize("policy", [name for name in policy_names() if not name.startswith("static-")])
def test_numbers_at_the_edge(policy: str) -> None:
    """Breaks when a number that an option accepts is a fault of the policy."""
    flow, catalogue = compile_flow(read_dataflow("sc13-diamond")), read_catalogue("ec2-2013-m1")
    for option in numbers_of(policy):
        for value in ("0", "1e9", "1e-300"):
            with suppress(InputError):  # a whole number, or more than 0
                made = make_policy(policy, {option: value})
                result = simulate(flow, catalogue, made, np.tile(flow.rates, (3, 1)))
                assert np.isfinite([result.summary.omega, result.summary.cost]).all(), (option, value)


def test_options_are_taken_for_what_they_are() -> None:
    """Breaks when a text of the command line does not become the number, truth value or policy that is needed."""
    given = {"constraint": "interval", "horizon": "6", "carry_over": "false", "start": "reactive-local"}
    made = make_policy("plasticc", given)
    assert (made.horizon, made.carry_over, made.start.variant) == (6, False, "sharded")  # type: ignore[attr-defined]
    ga = make_policy("ga", {"population": "30", "seed": "4"})
    assert (ga.search.population, ga.seed) == (30, 4)  # type: ignore[attr-defined]
    assert looks_ahead("wpa") and not looks_ahead("caf") and not looks_ahead("static-ga")


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("best", {}, "unknown policy 'best': choose one of reactive-global"),
        ("plasticc", {"tau": 3}, "unknown option 'tau'; accepted: .*horizon"),
        ("plasticc", {"horizon": "many"}, "horizon = 'many'"),
        ("plasticc", {"horizon": 0}, "at least 1"),
        ("plasticc", {"start": "nobody"}, "unknown policy 'nobody': choose one of reactive-global, reactive-local,"),
        ("caf", {"kind": "WPA"}, "policy caf: unknown option 'kind'; accepted: carry_over, horizon, start,"),
        ("ga", {"population": "x"}, "population = 'x'"),
        ("reactive-global", {"trigger": "never"}, "trigger = 'never'"),
    ],
)
def test_what_is_no_policy(name: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        make_policy(name, options)


_MARKED = """
from dataclasses import dataclass
from pathlib import Path

Path({mark!r}).touch()


@dataclass(frozen=True)
class Own:
    def deploy(self, flow, catalogue): ...
    def adapt(self, observation, memory): ...
"""


@pytest.mark.parametrize("name", policy_names())
def test_no_policy_loads_code_unless_allowed(name: str, tmp_path: Path) -> None:
    """Breaks when the name of a policy, or any option of it, runs a file without ``own=True``."""
    mark, file = tmp_path / "ran", tmp_path / "own.py"
    file.write_text(_MARKED.format(mark=str(mark)))
    place = f"{file}:Own"
    nested = [option for option in policy_schema(name)["properties"] if option != "start"]
    with pytest.raises(InputError, match="unknown policy"):
        make_policy(f"static-{place}")
    for option in (*nested, "start", "ga", "adapt", "inner", "search"):
        for given in (place, {"start": place}):
            with pytest.raises(InputError):
                make_policy(name, {option: given})
    with pytest.raises(InputError, match="unknown policy"):
        make_policy(place, {"start": name})
    assert not mark.exists()


def test_own_policies_also_nested(tmp_path: Path) -> None:
    """Breaks when the command line cannot load a file, alone or as the start of another policy."""
    file = tmp_path / "own.py"
    file.write_text(_MARKED.format(mark=str(tmp_path / "ran")))
    place = f"{file}:Own"
    made = make_policy(place, own=True)
    assert type(made).__name__ == "Own"
    for name in ("plasticc", "latency-aware", "replicate"):
        started = make_policy(name, {"start": place}, own=True)
        assert type(started.start).__name__ == "Own"  # type: ignore[attr-defined]
    assert (tmp_path / "ran").exists()

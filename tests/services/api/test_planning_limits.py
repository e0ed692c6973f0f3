"""How much of a plan may be asked for, what is planned elsewhere, and what is remembered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.messages import dataflow_message
from goffish.scheduling.policies.policies import make_policy
from goffish.services.api import observations, plans
from goffish.services.api.admission import check_spec
from goffish.services.api.cache import _ENTRY, OwnerCache
from goffish.services.api.clients import Client
from goffish.services.api.guard import caller
from goffish.services.api.inputs import Inputs
from goffish.services.api.planning_service import PlanningService
from goffish.services.api.spot_advice import Markets
from goffish.services.store.spec import JobSpec
from goffish.v1 import dataflows_pb2, planning_pb2

QUICK = ["reactive-global", "reactive-local", "ds2"]


class Here:
    """Instead of other processes: writes down what would go there."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def share(self, key: Any, call: Callable[..., Any], *given: Any) -> Any:
        return await self.call(call, *given)

    async def call(self, call: Callable[..., Any], *given: Any) -> Any:
        self.calls.append(call.__name__)
        return call(*given)


def served() -> tuple[PlanningService, Here]:
    here = Here()
    return PlanningService(Markets(None), here, 10**7), here  # type: ignore[arg-type]


def answer(service: PlanningService, method: str, request: Any, client: str = "ann") -> Any:
    async def ask() -> Any:
        caller.set(Client(name=client, role="read"))
        return await getattr(service, method)(request, None)

    return asyncio.run(ask())


def setting(policy: str = "reactive-global", name: str = "sc13-diamond", **options: str) -> planning_pb2.Setting:
    return planning_pb2.Setting(dataflow_name=name, policy=policy, options=options)


def one_element(cores: int = 1, **given: Any) -> planning_pb2.Setting:
    """An element that takes a core for each message a second."""
    flow = dataflows_pb2.Dataflow(name="one", inputs={"a": 1.0}, goal={"throughput": 1.0})
    flow.elements.add(id="a", cost=1.0)
    cloud = dataflows_pb2.Catalogue(currency="USD")
    cloud.classes.add(name="c", cores=cores, speed=1.0, price_per_hour=1.0)
    return planning_pb2.Setting(dataflow_definition=flow, cloud_definition=cloud, **given)


@pytest.mark.parametrize("policy", QUICK)
@given(rate=st.floats(0.0, 200.0), name=st.sampled_from(["sc13-diamond", "linear-road"]))
@settings(max_examples=15, deadline=None)
@pytest.mark.slow
def test_plans_in_the_event_loop_are_small(policy: str, name: str, rate: float) -> None:
    """Breaks when a plan of many machines holds up all other calls: each took 20 microseconds."""
    flow = compile_flow(read_dataflow(name))
    entry = flow.names[int(flow.inputs[0])]
    request = planning_pb2.PlanRequest(setting=setting(policy, name), rates={entry: rate})
    service, here = served()
    found = answer(service, "Plan", request).plan
    assert here.calls or sum(element.instances for element in found.elements) <= 200 + flow.size
    # What is planned elsewhere is the same plan.
    assert plans.plan(None, request).plan == found


def test_what_goes_elsewhere() -> None:
    """Breaks when the event loop plans, or reads, what takes long; or when nothing is planned there any more."""
    service, here = served()

    def goes(method: str, request: Any) -> bool:
        here.calls.clear()
        answer(service, method, request)
        return bool(here.calls)

    plan = planning_pb2.PlanRequest
    assert not goes("Plan", plan(setting=setting(), rates={"P1": 5.0}))
    assert goes("Plan", plan(setting=setting(), rates={"P1": 500.0}))
    assert goes("Plan", plan(setting=setting("btu")))
    assert goes("Plan", plan(setting=setting("ds2", target="3")))
    assert goes("Plan", plan(setting=setting(name="mixed-100")))
    many = one_element()
    many.cloud_definition.classes.extend(
        dataflows_pb2.MachineClass(name=f"c{at}", cores=1, price_per_hour=2.0) for at in range(50)
    )
    assert goes("Plan", plan(setting=many))

    def adapt(**observed: Any) -> planning_pb2.AdaptRequest:
        return planning_pb2.AdaptRequest(setting=setting("ds2"), observations=planning_pb2.Observations(**observed))

    assert not goes("Adapt", adapt(intervals=[{"throughput": 0.5}] * 1000))
    assert goes("Adapt", adapt(intervals=[{"throughput": 0.5}] * 1001))
    assert goes("Adapt", adapt(intervals=[{"rates": {"P1": 500.0}, "throughput": 1.0}, {"throughput": 1.0}]))
    machine = {"id": 0, "class": "m1.small", "instances": {"P1": 1}}
    assert not goes("Adapt", adapt(intervals=[{"rates": {"P1": 3.0}}], machines=[machine]))
    # A machine that is observed to be slow lets ds2 ask for very many.
    assert goes("Adapt", adapt(intervals=[{"rates": {"P1": 3.0}}], machines=[machine | {"coefficient": 0.001}]))
    assert goes("Adapt", adapt(machines=[machine | {"id": at} for at in range(201)]))
    assert goes("Explain", planning_pb2.ExplainRequest(setting=setting()))


@pytest.mark.parametrize(
    ("method", "change", "told"),
    [
        ("Plan", {"rates": {"P1": 1e9}}, "rates: requires about"),
        ("Explain", {"rates": {"P1": 1e9}}, "rates: requires about"),
        ("Plan", {"rates": {"P1": 1e308}}, "rates: requires about"),
        ("Adapt", {"observations": {"intervals": [{}] * 50_001}}, "observations.intervals: 50,001; at most 50,000"),
        ("Adapt", {"observations": {"intervals": [{}] * 40_001}, "setting": setting(name="mixed-100")},
         "observations.intervals: 40,001; at most 40,000"),
        ("Adapt", {"observations": {"intervals": [{}, {}, {"rates": {"P1": 1e9}}, {}]}},
         r"observations.intervals\[2\].rates: requires about"),
        ("Adapt", {"observations": {"machines": [{"id": at, "class": "m1.small"} for at in range(20_001)]}},
         "observations.machines: 20,001; at most 20,000"),
        ("PlanAhead", {"forecast": [{}] * 1001}, "forecast: 1,001; at most 1,000"),
        ("PlanAhead", {"forecast": [{}, {"rates": {"P1": 1e9}}]}, r"forecast\[1\].rates: requires about"),
        ("PlanAhead", {"forecast": [{}, {"rates": {"x": 1}}]}, r"forecast\[1\].rates: unknown processing element 'x'"),
        ("Adapt", {"session": "x" * 201}, "session: 201 characters"),
    ],
)  # fmt: skip
def test_what_is_too_large(method: str, change: dict[str, Any], told: str) -> None:
    """Breaks when a small request can have the server work for long, or the answer does not name the field."""
    service, _ = served()
    kind = {"PlanAhead": planning_pb2.PlanAheadRequest, "Adapt": planning_pb2.AdaptRequest,
            "Explain": planning_pb2.ExplainRequest, "Plan": planning_pb2.PlanRequest}[method]  # fmt: skip
    request = kind(**({"setting": setting("plasticc" if method == "PlanAhead" else "reactive-global")} | change))
    began = time.monotonic()
    with pytest.raises(InputError, match=f"^{told}"):
        answer(service, method, request)
    assert time.monotonic() - began < 3


def test_machines_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when plans within the limit are refused, or those above it are answered."""

    def machines(rate: float, **given: Any) -> int:
        request = planning_pb2.PlanRequest(setting=one_element(**given), rates={"a": rate})
        return len(plans.plan(None, request).plan.machines)

    for module in (plans, observations):
        monkeypatch.setattr(module, "MOST_MACHINES", 20)
    assert machines(20.0) == 20 and machines(80.0, cores=4) == 20
    for rate, cores in ((20.1, 1), (80.1, 4)):
        with pytest.raises(InputError, match=r"^rates: requires about"):
            machines(rate, cores=cores)
    # This policy plans more than the goal needs.
    assert machines(10.0, policy="ds2", options={"target": "2"}) == 20
    with pytest.raises(InputError, match=r"^rates: requires 30 machines; at most 20"):
        machines(10.0, policy="ds2", options={"target": "3"})
    # A catalogue's own limit is another matter: the policy says what it makes of it.
    few = one_element(policy="ds2")
    few.cloud_definition.limit = 3
    request = planning_pb2.PlanRequest(setting=few, rates={"a": 100.0})
    assert len(plans.plan(None, request).plan.machines) == 3


def test_large_settings_are_planned_as_they_are() -> None:
    """Breaks when a setting that is too large to be remembered is planned as another one."""
    message = dataflow_message(read_dataflow("sc13-diamond"))
    cloud = dataflows_pb2.Catalogue(currency="USD")
    for at in range(3000):
        cloud.classes.add(name=f"class-number-{at}", cores=1 + at % 4, price_per_hour=1.0 + at % 7)
    request = planning_pb2.PlanRequest(
        setting=planning_pb2.Setting(dataflow_definition=message, cloud_definition=cloud, policy="ds2")
    )
    service, here = served()
    found = answer(service, "Plan", request).plan
    flow = compile_flow(read_dataflow("sc13-diamond"))
    ready = plans.read(request.setting)[0]
    expected = make_policy("ds2").deploy(flow, ready.catalogue)
    assert found.cost_per_hour == pytest.approx(expected.price_per_hour) and here.calls == ["plan"]
    kept: Any = service._settings
    assert kept._all == 0  # too large to be remembered
    answer(service, "Plan", planning_pb2.PlanRequest(setting=setting()))
    assert 0 < kept._all < 100_000


def test_sessions_of_clients() -> None:
    """Breaks when what a policy remembers is another client's or session's, or is not what it remembered."""
    service, here = served()
    catalogue = read_catalogue("ec2-2013-m1")
    flow = compile_flow(read_dataflow("sc13-diamond"))
    policy = make_policy("ds2", {"warmup": 5})

    def asked(session: str, steps: int, here_too: bool) -> planning_pb2.AdaptRequest:
        intervals = [planning_pb2.Interval(rates={"P1": 4.0}, throughput=0.5)] * steps
        options = {"warmup": "5"} if here_too else {}
        observed = planning_pb2.Observations(intervals=intervals)
        return planning_pb2.AdaptRequest(
            setting=setting("ds2", **options), observations=observed, session=session
        )  # fmt: skip

    # It decided in the first interval and is to wait then: without its memory it would decide again.
    first = answer(service, "Adapt", asked("s", 1, True))
    assert first.plan.machines and not answer(service, "Adapt", asked("s", 2, True)).plan.machines
    assert answer(service, "Adapt", asked("t", 2, True)).plan.machines
    assert answer(service, "Adapt", asked("s", 2, True), client="bob").plan.machines
    observation = observations.observation_of(asked("", 1, True).observations, flow, catalogue)
    expected = policy.adapt(observation, None)[0]
    assert first.plan.cost_per_hour == pytest.approx(expected.price_per_hour) and here.calls
    # Another policy begins anew, as it cannot go on from what this one remembers.
    for name in ("threshold", "latency-aware", "ds2"):
        other = asked("s", 1, False)
        other.setting.policy = name
        assert answer(service, "Adapt", other).plan.elements
    # The same in the event loop.
    here.calls.clear()
    assert answer(service, "Adapt", asked("u", 1, False)).plan.machines
    assert not answer(service, "Adapt", asked("u", 2, False)).plan.machines and not here.calls


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 700), st.integers(0, 4), st.booleans()),
        max_size=40,
    )
)
def test_what_is_kept(steps: list[tuple[str, int, int, int, bool]]) -> None:
    """Breaks when more than so many bytes are kept, something newer is forgotten before something older, or what is
    kept is lost: against a list that is searched through."""
    now = 0.0
    each, most, keep_s = 3 * _ENTRY, 5 * _ENTRY, 9.0
    kept: OwnerCache[int] = OwnerCache(each, most, keep_s, lambda: now)
    plain: list[tuple[str, int, int, int, float]] = []  # owner, key, value, bytes, when; the newest last
    for number, (owner, key, size, waited, puts) in enumerate(steps):
        now += waited
        held = [one for one in plain if one[:2] == (owner, key)]
        fresh = [one for one in held if now - one[4] <= keep_s]
        if puts:
            kept.put(owner, key, number, size)
            entry = (owner, key, number, size + _ENTRY, now)
        else:
            assert kept.get(owner, key) == (fresh[0][2] if fresh else None)
            if not fresh:
                continue
            entry = (*fresh[0][:4], now)
        plain = [one for one in plain if one[:2] != (owner, key)] + [entry]
        while sum(one[3] for one in plain if one[0] == owner) > each:
            plain.remove(next(one for one in plain if one[0] == owner))
        plain = [one for one in plain if one[0] != owner or now - one[4] <= keep_s]
        while sum(one[3] for one in plain) > most:
            # Of the owner that was not here for the longest time.
            last = min({one[0] for one in plain}, key=lambda name: max(i for i, o in enumerate(plain) if o[0] == name))
            plain.remove(next(one for one in plain if one[0] == last))
        assert kept._all == sum(one[3] for one in plain)
    for owner, key, value, _, used in plain:
        assert kept.get(owner, key) == (value if now - used <= keep_s else None)


def test_intervals_without_rates() -> None:
    """Breaks when what was observed comes to the wrong interval or element."""
    flow, catalogue = compile_flow(read_dataflow("sc13-diamond")), read_catalogue("ec2-2013-m1")
    intervals = [{"rates": {name: 1.0 + at}} if at % 2 else {} for at, name in enumerate(flow.names)]
    found = observations.observation_of(planning_pb2.Observations(intervals=intervals), flow, catalogue).rates
    expected = np.diag([1.0 + at if at % 2 else 0.0 for at in range(flow.size)])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policy": "mine.py:Mine"}, "policy"),
        ({"policy": "ds2", "options": {"nothing": "1"}}, "options"),
        ({"policy": "latency-aware", "options": {"start": "mine.py:Mine"}}, "options"),
    ],
)
def test_options_of_dataflows_that_are_submitted(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    """Breaks when a wrong option is told as a wrong policy, or the other way round."""
    spec = JobSpec.model_validate({"dataflow": {"dataflow": "sc13-diamond"} | change})
    with pytest.raises(InputError, match=rf"^spec\.dataflow\.{field}: "):
        check_spec(spec, Inputs([], tmp_path, 100, 1000), ["local"])

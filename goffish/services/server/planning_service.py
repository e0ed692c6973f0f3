"""Plans by gRPC: `goffish.v1.PlanningService`. Nothing is run, and nothing but a session's memory is kept."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.services.cloud.catalogue import Catalogue
from goffish.services.dataflows.deployment import Deployment
from goffish.services.dataflows.flow import Flow, compile_flow
from goffish.services.provisioning.explain import alternatives, reasons
from goffish.services.provisioning.policies import looks_ahead, make_policy
from goffish.services.provisioning.report import describe_plan
from goffish.services.provisioning.situation import Policy, Situation
from goffish.services.server import wire
from goffish.services.server.calls import Processes, elsewhere
from goffish.services.server.guard import caller
from goffish.services.server.situations import rates_of, situation_of
from goffish.services.server.spot_advice import Markets
from goffish.v1 import planning_pb2, planning_pb2_grpc

DEFAULT_POLICY = "reactive-global"
#: With what plans are compared when nobody says it, by the elements that they are still quick for.
_COMPARED = {"reactive-global": 10_000, "reactive-local": 10_000, "ds2": 10_000, "btu": 1000, "ga": 30, "edrp": 20}
#: Settings and sessions that are remembered.
_SETTINGS, _SESSIONS, _SESSION_S = 256, 10_000, 3600.0
#: Dataflows up to this size are planned at once by quick policies, others in another process.
_SMALL, _QUICK = 50, ("reactive-global", "reactive-local", "ds2")


class _Ready(NamedTuple):
    """A setting that was read and checked."""

    flow: Flow
    catalogue: Catalogue
    policy: Policy
    name: str

    @property
    def quick(self) -> bool:
        return self.flow.size <= _SMALL and self.name in _QUICK


class PlanningService(planning_pb2_grpc.PlanningServiceServicer):  # type: ignore[misc, unused-ignore]
    """Plans, adapts, advises and explains.

    Parameters
    ----------
    markets : Markets
    processes : Processes
        For plans that are not made in a moment.
    """

    def __init__(self, markets: Markets, processes: Processes) -> None:
        self._markets, self._processes = markets, processes
        self._ready: OrderedDict[bytes, _Ready] = OrderedDict()
        self._sessions: OrderedDict[tuple[str, str], tuple[float, Any]] = OrderedDict()

    async def Plan(self, request: planning_pb2.PlanRequest, context: Any) -> planning_pb2.PlanResponse:
        """The first deployment."""
        ready = await self._setting(request.setting)
        if ready.quick:
            return _planned(ready, request.rates)
        return await self._processes.call(_planned, ready, dict(request.rates))

    async def Adapt(self, request: planning_pb2.AdaptRequest, context: Any) -> planning_pb2.AdaptResponse:
        """The deployment of the interval that begins."""
        ready = await self._setting(request.setting)
        situation, plan = await self._adapted(ready, request)
        return planning_pb2.AdaptResponse(**_answer(situation, plan))

    async def PlanAhead(self, request: planning_pb2.PlanAheadRequest, context: Any) -> planning_pb2.PlanAheadResponse:
        """The same with forecasts."""
        ready = await self._setting(request.setting)
        if not looks_ahead(ready.name):
            raise InputError(
                f"setting.policy: {ready.name} makes no use of forecasts; choose plasticc, wpa, wpo or wpp"
            )
        if not request.forecast:
            raise InputError("forecast: give the rates that are expected of the next interval at least")
        situation, plan = await self._adapted(ready, request, request.forecast)
        answer = planning_pb2.PlanAheadResponse(**_answer(situation, plan))
        assert situation.forecast is not None
        hours = situation.interval_s / 3600.0
        for rates in situation.forecast.rates:
            found = ready.flow.estimate(plan.active, plan.power, rates)
            answer.outlook.add(throughput=float(found.omega), cost=plan.price_per_hour * hours)
        return answer

    async def AdviseSpot(
        self, request: planning_pb2.AdviseSpotRequest, context: Any
    ) -> planning_pb2.AdviseSpotResponse:
        """What a job on spot machines should do now."""
        return await elsewhere(self._markets.advise, request)

    async def Explain(self, request: planning_pb2.ExplainRequest, context: Any) -> planning_pb2.ExplainResponse:
        """Why a plan is as it is."""
        ready = await self._setting(request.setting)
        return await self._processes.call(_explained, ready, request)

    async def _setting(self, setting: planning_pb2.Setting) -> _Ready:
        key = setting.SerializeToString(deterministic=True)
        found = self._ready.get(key)
        if found is None:
            found = await elsewhere(_read, setting)
            self._ready[key] = found
            if len(self._ready) > _SETTINGS:
                self._ready.popitem(last=False)
        return found

    async def _adapted(self, ready: _Ready, request: Any, forecast: Any = ()) -> tuple[Situation, Deployment]:
        situation = situation_of(request.observations, ready.flow, ready.catalogue, forecast)
        key = (caller.get().name, request.session)
        memory = self._memory(key) if request.session else None
        if ready.quick:
            plan, memory = ready.policy.adapt(situation, memory)
        else:
            plan, memory = await self._processes.call(ready.policy.adapt, situation, memory)
        if request.session:
            self._sessions[key] = time.monotonic(), memory
            self._sessions.move_to_end(key)
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)
        return situation, plan

    def _memory(self, key: tuple[str, str]) -> Any:
        now = time.monotonic()
        while self._sessions and now - next(iter(self._sessions.values()))[0] > _SESSION_S:
            self._sessions.popitem(last=False)
        return self._sessions.get(key, (now, None))[1]


def _read(setting: planning_pb2.Setting) -> _Ready:
    flow = compile_flow(wire.dataflow_of(setting, "setting"))
    name = setting.policy or DEFAULT_POLICY
    try:
        policy = make_policy(name, dict(setting.options), own=False)
    except InputError as error:
        raise InputError(f"setting.policy: {error}") from None
    return _Ready(flow, wire.cloud_of(setting, "setting"), policy, name)


def _planned(ready: _Ready, rates: Mapping[str, float]) -> planning_pb2.PlanResponse:
    flow = _with(ready.flow, rates)
    plan = ready.policy.deploy(flow, ready.catalogue)
    return planning_pb2.PlanResponse(plan=wire.plan_message(describe_plan(flow, plan, flow.rates)))


def _with(flow: Flow, rates: Mapping[str, float]) -> Flow:
    return flow.with_rates(rates_of(rates, flow, "rates")) if rates else flow


def _answer(situation: Situation, plan: Deployment) -> dict[str, Any]:
    described = describe_plan(situation.flow, plan, situation.observed)
    live = situation.live
    same = plan.machines.keys() == live.machines.keys() and np.array_equal(plan.active, live.active)
    same = same and all(one.instances == live.machines[number].instances for number, one in plan.machines.items())
    return {
        "plan": wire.plan_message(described, list(plan.machines)), "changed": not same,
        "released": sorted(live.machines.keys() - plan.machines.keys()),
    }  # fmt: skip


def _explained(ready: _Ready, request: planning_pb2.ExplainRequest) -> planning_pb2.ExplainResponse:
    flow = _with(ready.flow, request.rates)
    plan = ready.policy.deploy(flow, ready.catalogue)
    names = list(request.policies) or [
        name for name, most in _COMPARED.items() if flow.size <= most and name != ready.name
    ]
    try:
        others = [(name, make_policy(name, own=False)) for name in names]
    except InputError as error:
        raise InputError(f"policies: {error}") from None
    answer = planning_pb2.ExplainResponse(
        plan=wire.plan_message(describe_plan(flow, plan, flow.rates)), reasons=reasons(flow, plan, flow.rates)
    )
    for one in alternatives(flow, ready.catalogue, plan, others):
        answer.alternatives.add(**one._asdict())
    return answer

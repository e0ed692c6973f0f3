"""Planning calls: cheap ones run in the event loop, expensive ones in a worker process.

The event loop inspects small requests only; workers check the same limits.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats, Flow, compile_flow
from goffish.scheduling.policies.explain import alternatives, reasons
from goffish.scheduling.policies.feasible import check_places, feasible
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.policies import looks_ahead, make_policy, policy_names
from goffish.scheduling.policies.report import describe_plan
from goffish.services.api import wire
from goffish.services.api.observations import MOST_MACHINES, observation_of, rates_of
from goffish.v1 import planning_pb2

DEFAULT_POLICY = "reactive-global"
#: Policies compared by default, with the number of processing elements up to which they are fast.
_COMPARED = {"reactive-global": 10_000, "reactive-local": 10_000, "ds2": 10_000, "btu": 1000, "ga": 30, "edrp": 20}
_MOST_COMPARED = 20
#: Policies that plan within milliseconds, and the limits of dataflow, catalogue and cores for which they do.
_QUICK, _ELEMENTS, _ALTERNATES, _CLASSES, _CORES = ("reactive-global", "reactive-local", "ds2"), 50, 250, 50, 200
#: Limits of observations that are parsed within milliseconds.
_INTERVALS, _OBSERVED_BYTES = 1000, 64 << 10


class Ready(NamedTuple):
    """Parsed and validated setting.

    Attributes
    ----------
    flow, catalogue, policy, name
    dearest : Flow, optional
        The dataflow with its most expensive alternates; ``None`` if it is never planned in the event loop.
    """

    flow: Flow
    catalogue: Catalogue
    policy: Policy
    name: str
    dearest: Flow | None

    def quick(self, external: Floats, coefficient: float = 1.0) -> bool:
        """Return whether planning for an input rate is fast; `coefficient` is that of the slowest machine."""
        if self.dearest is None:
            return False
        return _need(self.dearest, external) <= _CORES * float(self.catalogue.speeds.min()) * coefficient


def read(setting: planning_pb2.Setting) -> tuple[Ready, int]:
    """Parse a setting; return it with its size in bytes.

    Raises
    ------
    InputError
    """
    flow = compile_flow(wire.dataflow_of(setting, "setting"))
    name = setting.policy or DEFAULT_POLICY
    try:
        policy = make_policy(name, dict(setting.options))
    except InputError as error:
        field = "options" if name in policy_names() else "policy"
        raise InputError(f"setting.{field}: {error}") from None
    catalogue = wire.cloud_of(setting, "setting")
    try:
        check_places(flow.names, flow.needs, catalogue)
    except InputError as error:
        raise InputError(f"setting.dataflow: {error}") from None
    # An option of ds2 scales the required resources.
    small = flow.size <= _ELEMENTS and flow.cost.size <= _ALTERNATES and len(catalogue.classes) <= _CLASSES
    small = small and name in _QUICK and not (name == "ds2" and setting.options)
    ready = Ready(flow, catalogue, policy, name, _extreme(flow, np.maximum) if small else None)
    return ready, len(pickle.dumps(ready))


def with_rates(flow: Flow, rates: Mapping[str, float]) -> Flow:
    """Return the dataflow with the rates of a request."""
    return flow.with_rates(rates_of(rates, flow, "rates")) if rates else flow


def planned(ready: Ready, flow: Flow) -> planning_pb2.PlanResponse:
    """Compute the initial deployment of a dataflow."""
    plan = feasible(ready.policy.deploy(flow, ready.catalogue), flow)
    _check_plan(plan, "rates")
    return planning_pb2.PlanResponse(plan=wire.plan_message(describe_plan(flow, plan, flow.rates)))


def plan(ready: Ready | None, request: planning_pb2.PlanRequest) -> planning_pb2.PlanResponse:
    """Answer a planning request; parse its setting if `ready` is ``None``.

    Raises
    ------
    InputError
    """
    ready = ready or read(request.setting)[0]
    return planned(ready, _checked(ready, request.rates))


def easily_read(request: planning_pb2.AdaptRequest | planning_pb2.PlanAheadRequest) -> bool:
    """Return whether observations are small enough for the event loop."""
    given = request.observations
    return (
        len(given.intervals) <= _INTERVALS and len(given.machines) <= _CORES and request.ByteSize() <= _OBSERVED_BYTES
    )  # fmt: skip


def quickly_adapted(ready: Ready, observation: Observation) -> bool:
    """Return whether adaptation to an observation is fast."""
    rates = observation.rates.max(axis=0) if len(observation.rates) else observation.observed
    slowest = min((one.coefficient for one in observation.live.machines.values() if one.coefficient > 0), default=1.0)
    return ready.quick(rates, slowest)


def adapted(
    ready: Ready, request: planning_pb2.AdaptRequest | planning_pb2.PlanAheadRequest, observation: Observation,
    memory: bytes | None,
) -> tuple[Any, bytes]:  # fmt: skip
    """Compute the deployment of the next interval; return the response and the pickled state of the session."""
    # Pickled below by this server; clients have no access to it.
    plan, kept = ready.policy.adapt(observation, None if memory is None else pickle.loads(memory))
    plan = feasible(plan, ready.flow, observation.live)
    _check_plan(plan, "observations")
    body = _adaptation(observation, plan)
    if observation.forecast is None:
        return planning_pb2.AdaptResponse(**body), pickle.dumps(kept)
    answer = planning_pb2.PlanAheadResponse(**body)
    hours = observation.interval_s / 3600.0
    for rates in observation.forecast.rates:
        found = ready.flow.estimate(plan.active, plan.power, rates)
        answer.outlook.add(throughput=float(found.omega), cost=plan.price_per_hour * hours)
    return answer, pickle.dumps(kept)


def adapt(
    ready: Ready | None, request: planning_pb2.AdaptRequest | planning_pb2.PlanAheadRequest, memory: bytes | None
) -> tuple[Any, bytes]:
    """Answer an adaptation request with the state of its session.

    Raises
    ------
    InputError
    """
    ready = ready or read(request.setting)[0]
    observation = observation_of(request.observations, ready.flow, ready.catalogue, getattr(request, "forecast", ()))
    _check_intervals(ready, observation.rates, "observations.intervals")
    if observation.forecast is not None:
        _check_intervals(ready, observation.forecast.rates, "forecast")
    return adapted(ready, request, observation, memory)


def check_forecast(request: planning_pb2.PlanAheadRequest) -> None:
    """Reject forecasts that are empty or that the policy ignores.

    Raises
    ------
    InputError
    """
    name = request.setting.policy or DEFAULT_POLICY
    if name in policy_names() and not looks_ahead(name):
        raise InputError(f"setting.policy: {name} does not use forecasts; choose plasticc, auto, wpa, wpo or wpp")
    if not request.forecast:
        raise InputError("forecast: give the expected rates of at least one interval")


def explain(ready: Ready | None, request: planning_pb2.ExplainRequest) -> planning_pb2.ExplainResponse:
    """Answer a request to explain a plan.

    Raises
    ------
    InputError
    """
    if len(request.policies) > _MOST_COMPARED or len(set(request.policies)) < len(request.policies):
        raise InputError(f"policies: {len(request.policies)}; at most {_MOST_COMPARED} different ones are accepted")
    ready = ready or read(request.setting)[0]
    flow = _checked(ready, request.rates)
    plan = feasible(ready.policy.deploy(flow, ready.catalogue), flow)
    _check_plan(plan, "rates")
    names = list(request.policies) or [
        name for name, most in _COMPARED.items() if flow.size <= most and name != ready.name
    ]
    try:
        others = [(name, make_policy(name)) for name in names]
    except InputError as error:
        raise InputError(f"policies: {error}") from None
    answer = planning_pb2.ExplainResponse(
        plan=wire.plan_message(describe_plan(flow, plan, flow.rates)), reasons=reasons(flow, plan, flow.rates)
    )
    for one in alternatives(flow, ready.catalogue, plan, others):
        answer.alternatives.add(**one._asdict())
    return answer


def _adaptation(observation: Observation, plan: Deployment) -> dict[str, Any]:
    described = describe_plan(observation.flow, plan, observation.observed)
    live = observation.live
    same = plan.machines.keys() == live.machines.keys() and np.array_equal(plan.active, live.active)
    same = same and all(one.instances == live.machines[number].instances for number, one in plan.machines.items())
    return {
        "plan": wire.plan_message(described, list(plan.machines)), "changed": not same,
        "released": sorted(live.machines.keys() - plan.machines.keys()),
    }  # fmt: skip


def _extreme(flow: Flow, pick: np.ufunc) -> Flow:
    """Return the dataflow with one alternate per processing element, of minimal or maximal cost and selectivity."""
    cost, value, selectivity = (
        pick.reduceat(column, flow.alternate_offsets[:-1]) for column in (flow.cost, flow.value, flow.selectivity)
    )
    return replace(
        flow, alternate_names=flow.names, alternate_offsets=np.arange(flow.size + 1), cost=cost, value=value,
        selectivity=selectivity,
    )  # fmt: skip


def _need(flow: Flow, external: Floats) -> float:
    """Return the reference cores required by a dataflow without alternates."""
    into, _ = flow.ideal(np.zeros(flow.size, np.int64), external)
    return float((into * flow.cost).sum())


def _checked(ready: Ready, rates: Mapping[str, float]) -> Flow:
    flow = with_rates(ready.flow, rates)
    _check_need(_extreme(flow, np.minimum), ready.catalogue, flow.rates, "rates" if rates else "setting")
    return flow


def _check_need(cheapest: Flow, catalogue: Catalogue, external: Floats, field: str) -> None:
    """Reject requests that require too many machines under any plan."""
    if catalogue.limit is not None and catalogue.limit <= MOST_MACHINES:
        return
    machines = cheapest.goal.throughput * _need(cheapest, external) / float(catalogue.powers.max())
    if not machines <= MOST_MACHINES:  # also rejects NaN
        raise InputError(f"{field}: requires about {machines:.2g} machines; at most {MOST_MACHINES:,} are supported")


def _check_intervals(ready: Ready, rates: Floats, field: str) -> None:
    cheapest = _extreme(ready.flow, np.minimum)
    if len(rates):
        try:
            _check_need(cheapest, ready.catalogue, rates.max(axis=0), field)
        except InputError:  # the maximum over all intervals: find the interval, if any
            for at, one in enumerate(rates):
                _check_need(cheapest, ready.catalogue, one, f"{field}[{at}].rates")


def _check_plan(plan: Deployment, field: str) -> None:
    if len(plan.machines) > MOST_MACHINES:
        problem = f"requires {len(plan.machines):,} machines; at most {MOST_MACHINES:,} are supported"
        raise InputError(f"{field}: {problem}")

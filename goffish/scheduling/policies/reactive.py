"""The reactive heuristics as policies: centralized (CE), sharded (SH), strictly sharded (SH_STRICT), and their
references.

See docs/specs/provisioning.md, sections 3.4 (Algorithm 2), 3.5 and 3.8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Flow
from goffish.scheduling.policies.alternates import Variant, profitable_alternates, redeploy_alternates
from goffish.scheduling.policies.initial import initial_deployment
from goffish.scheduling.policies.network import network_throughput
from goffish.scheduling.policies.observation import Observation, Policy
from goffish.scheduling.policies.scaling import redeploy_resources, release_idle, scale_out
from goffish.scheduling.policies.strict import strict_alternates, strict_deployment, strict_resources


class Adaptation(NamedTuple):
    """The last action of a reactive policy.

    Attributes
    ----------
    stage : {"none", "alternates", "resources", "both"}
    omega : float
        Expected relative throughput of the deployment, including links between machines.
    reached : bool
        Whether it reaches the goal. If not after adding machines, no more machines help or are allowed.
    """

    stage: str
    omega: float
    reached: bool


@dataclass(frozen=True)
class Reactive:
    """Deploys for the expected rates, and adapts to the observed ones.

    Attributes
    ----------
    variant : {"central", "sharded", "strict"}
        CE, SH or SH_STRICT.
    alternate_every, resource_every : int
        Intervals between two adaptations of the alternates, and of the machines; 0: never.
    together : bool
        Whether both are adapted if both are due; otherwise only the alternates.
    fit : float, optional
        Share of an alternate's required speed that the cores must provide; default: the goal's throughput (§6.5).
    trigger : {"last", "average"}
        Throughput that triggers an adaptation: of the last interval, or the mean so far (§6.7).
    alternates : {"profit", "ratio"}
        Choice of alternates with "central": by profit, that is value minus the value of the cost
        (`profitable_alternates`); or by the ratio of value and cost, as published, which chooses the cheapest alternate
        also if a better one costs a small part of the budget. The other variants always use the ratio.
    """

    variant: Literal["central", "sharded", "strict"] = "central"
    alternate_every: int = 4
    resource_every: int = 3
    together: bool = False
    fit: float | None = None
    trigger: Literal["last", "average"] = "last"
    alternates: Literal["profit", "ratio"] = "profit"

    def __post_init__(self) -> None:
        for name, given, known in (
            ("variant", self.variant, ("central", "sharded", "strict")),
            ("trigger", self.trigger, ("last", "average")),
            ("alternates", self.alternates, ("profit", "ratio")),
        ):
            if given not in known:
                raise InputError(f"{name} = {given!r}: must be one of {', '.join(known)}")
        if min(self.alternate_every, self.resource_every) < 0:
            raise InputError("alternate_every and resource_every: must be a number of intervals, or 0 for never")

    @property
    def _shared(self) -> Variant:
        return "central" if self.variant == "central" else "sharded"

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the first deployment, for rated speeds and expected rates (§3.3)."""
        if self.variant == "strict":
            return strict_deployment(flow, catalogue)
        active = profitable_alternates(flow, catalogue, flow.rates) if self._by_profit else None
        return initial_deployment(flow, catalogue, self._shared, active=active)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Adaptation]:
        """Return the deployment of the interval that begins (§3.4); failed machines trigger scaling out at once
        (§6.12).
        """
        plan = observation.live
        if observation.step == 0:
            return plan, self._adaptation("none", plan, observation)
        alternates = self._due(observation.step, self.alternate_every)
        resources = self._due(observation.step, self.resource_every) and (self.together or not alternates)
        omega = float(observation.omegas.mean()) if self.trigger == "average" else observation.omega
        if observation.failed:
            plan = self._replaced(plan, observation)
            alternates, resources = False, True
        elif alternates:
            plan = self._alternates(plan, observation, omega)
        if resources and not observation.failed:
            plan = self._resources(plan, observation, omega)
        plan = plan.copy()
        release_idle(plan, observation.interval_s)
        stage = {(True, True): "both", (True, False): "alternates", (False, True): "resources"}
        return plan, self._adaptation(stage.get((alternates, resources), "none"), plan, observation)

    @property
    def _by_profit(self) -> bool:
        return self.variant == "central" and self.alternates == "profit"

    @staticmethod
    def _due(step: int, every: int) -> bool:
        return every > 0 and step % every == 0

    def _replaced(self, live: Deployment, seen: Observation) -> Deployment:
        if self.variant == "strict":
            return strict_resources(live, seen.flow, seen.observed, give_back=False)
        return scale_out(live, seen.flow, seen.observed, self._shared, seen.bandwidths)[0]

    def _alternates(self, live: Deployment, seen: Observation, omega: float) -> Deployment:
        if self.variant == "strict":
            return strict_alternates(live, seen.flow, seen.observed, self.fit)
        goal = seen.flow.goal
        if self._by_profit and omega < goal.throughput - goal.tolerance - SLACK:
            return _cheaper(live, seen)
        plan, _ = redeploy_alternates(live, seen.flow, seen.observed, omega, self._shared, self.fit)
        return _kept(plan, live, seen, omega)

    def _resources(self, live: Deployment, seen: Observation, omega: float) -> Deployment:
        flow, external = seen.flow, seen.observed
        if self.variant == "strict":
            return strict_resources(live, flow, external)
        plan, _ = redeploy_resources(live, flow, external, omega, seen.interval_s, self._shared, seen.bandwidths)
        return _kept(plan, live, seen, omega)

    @staticmethod
    def _adaptation(stage: str, plan: Deployment, seen: Observation) -> Adaptation:
        omega = network_throughput(plan, seen.flow, seen.observed, seen.bandwidths)
        return Adaptation(stage, omega, omega >= seen.flow.goal.throughput - SLACK)


def _cheaper(live: Deployment, seen: Observation) -> Deployment:
    """Return the deployment with the most profitable alternates if they raise its throughput.

    Otherwise the cores are missing, and more of them cost less than the value of a better alternate.
    """
    plan, flow = live.copy(), seen.flow
    plan.active[:] = profitable_alternates(flow, seen.catalogue, seen.observed)
    reached, before = (flow.estimate(one.active, one.power, seen.observed).omega for one in (plan, live))
    return plan if reached > before + SLACK else live


def _kept(plan: Deployment, live: Deployment, seen: Observation, omega: float) -> Deployment:
    """Return a cheaper plan, unless the links between its machines would miss the goal."""
    goal = seen.flow.goal.throughput
    if omega > goal and network_throughput(plan, seen.flow, seen.observed, seen.bandwidths) < goal - SLACK:
        return live
    return plan


@dataclass(frozen=True)
class Static:
    """The first deployment of another policy, never adapted (§3.8)."""

    policy: Policy

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the deployment of the other policy."""
        return self.policy.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, None]:
        """Return the running deployment."""
        return observation.live, None


@dataclass(frozen=True)
class Hybrid:
    """One policy for the first deployment, another one afterwards; the papers suggest `Genetic` and `Reactive`
    (§3.8).
    """

    first: Policy
    then: Policy

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the deployment of the first policy."""
        return self.first.deploy(flow, catalogue)

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """Adapt by the second policy."""
        return self.then.adapt(observation, memory)


def without_alternates(flow: Flow, active: NDArray[np.int64] | None = None) -> Flow:
    """Return the dataflow with every PE fixed to one alternate, by default the one with the highest value (§3.8).

    Values and the value of money remain those of the whole dataflow, so that profits are comparable.
    """
    rows = flow.rows(flow.best if active is None else active)
    fixed = replace(
        flow,
        alternate_names=tuple(flow.alternate_names[row] for row in rows.tolist()),
        alternate_offsets=np.arange(flow.size + 1),
        cost=flow.cost[rows],
        value=flow.value[rows],
        selectivity=flow.selectivity[rows],
    )
    # A dataflow without alternates has no value of money.
    vars(fixed)["sigma"] = flow.sigma
    return fixed

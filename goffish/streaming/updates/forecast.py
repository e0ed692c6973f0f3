"""What an update of a running flow will cost with each strategy, from what was measured while it runs.

See docs/specs/updates.md, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from goffish.errors import InputError
from goffish.streaming.metrics import Metrics, OperatorMetrics
from goffish.streaming.topology import Operator, SourceOptions, TimeOptions, Topology
from goffish.streaming.updates.analysis import Change
from goffish.streaming.updates.bounds import (
    MOST_UTILISATION,
    Bounds,
    DeployTimes,
    Model,
    Requirement,
    meets,
    predict,
    recommend,
)
from goffish.streaming.updates.plan import UpdatePlan, has_windows, returning, versions_of
from goffish.streaming.updates.versions import Channel, PartialWindow, Strategy, Version

#: Seconds where nothing was measured: a batch in an operator; and where workers do not wait for a processor: a message
#: between them, the confirmation of a checkpoint by others, a signal of progress, a command until it is carried out.
_BATCH_S, _MESSAGE_S, _CONFIRM_S, _SIGNAL_S, _COMMAND_S = 0.001, 0.04, 0.1, 0.04, 0.09
#: Seconds between two reports of a worker that does not wait.
_REPORTS_S = 0.1


class Setup(NamedTuple):
    """How a flow runs.

    Attributes
    ----------
    workers : int
        Number of worker processes; 0 if the flow runs in one process.
    checkpoint_s : float
        Seconds between checkpoints.
    saving_s : float
        Longest recent time that a checkpoint took.
    operators_s : float
        Longest time in which a worker has made its operators.
    report_s : float
        Longest recent time between two reports of a worker.
    """

    workers: int
    checkpoint_s: float
    saving_s: float
    operators_s: float
    report_s: float


class Quantity(NamedTuple):
    """A number that bounds depend on, and whether it was ``measured``, is ``set`` or a ``default``."""

    name: str
    value: float
    unit: str
    origin: str


@dataclass(frozen=True)
class Forecast:
    """Bounds of an update with each strategy.

    Attributes
    ----------
    bounds : mapping of Strategy to Bounds
        Empty if there are none.
    quantities : tuple of Quantity
    note : str
        Why there are no bounds.
    """

    bounds: Mapping[Strategy, Bounds]
    quantities: tuple[Quantity, ...]
    note: str = ""

    def to_dict(self, requirements: Collection[Requirement] = ()) -> dict[str, Any]:
        """Return the forecast as a mapping for JSON, with the strategy for some requirements.

        Parameters
        ----------
        requirements : collection of Requirement

        Returns
        -------
        dict

        Raises
        ------
        InputError
            There are requirements, but no bounds, or no strategy meets all of them.
        """
        recommended, reason = "", ""
        if requirements:
            if not self.bounds:
                raise InputError(f"no strategy can be recommended: {self.note}; choose one with --strategy")
            found = recommend(requirements, self.bounds)
            recommended, reason = str(found.strategy), found.reason
        return {
            "predictions": [
                {"strategy": str(one.strategy), "consistent": one.consistent, "delineated": one.delineated}
                | measurable(one)
                | {"meets": [str(what) for what in requirements if meets(what, one)]}
                for one in self.bounds.values()
            ],
            "quantities": [one._asdict() for one in self.quantities],
            "recommended": recommended, "reason": reason, "note": self.note,
        }  # fmt: skip


def measurable(bounds: Bounds) -> dict[str, Any]:
    """Return what is measured of an update, too: refresh and lag latency, time without output, and loss."""
    times = {"refresh_s": bounds.refresh, "lag_s": bounds.lag, "outage_s": bounds.outage}
    finite = {name: one if one is not None and math.isfinite(one) else None for name, one in times.items()}
    return finite | {"lost": bounds.loss}


def forecast(plans: Mapping[Strategy, UpdatePlan], metrics: Metrics, setup: Setup) -> Forecast:
    """Predict what an update costs.

    Parameters
    ----------
    plans : mapping of Strategy to UpdatePlan
    metrics : Metrics
        Of the running version.
    setup : Setup

    Returns
    -------
    Forecast
    """
    work = _Work(metrics, setup)
    busy = sum(one.load for one in metrics.operators)
    note = ""
    if busy > MOST_UTILISATION:
        note = f"workers are busy {busy:.0%} of the time; bounds hold up to {MOST_UTILISATION:.0%}"
    for one in metrics.operators:
        if one.kind == "source" and not one.recent_batches:
            note = f"source {one.operator} has sent nothing in the last 5 s"
    bounds = {} if note else {strategy: work.bounds(plan) for strategy, plan in plans.items()}
    return Forecast(bounds, tuple(work.quantities.values()), note)


class Running(Protocol):
    """A flow that runs."""

    @property
    def setup(self) -> Setup:
        """How it runs."""

    def plan(self, new: Topology, strategy: Strategy, partial_windows: PartialWindow) -> UpdatePlan:
        """Compare it with another version."""

    def metrics(self) -> Metrics:
        """Return the metrics so far."""


def forecast_of(flow: Running, new: Topology, partial_windows: PartialWindow) -> Forecast:
    """Predict what an update of a flow costs; see `forecast`."""
    plans = {strategy: flow.plan(new, strategy, partial_windows) for strategy in Strategy}
    return forecast(plans, flow.metrics(), flow.setup)


class _Work:
    """Performance of the running version, with the quantities that were used."""

    def __init__(self, metrics: Metrics, setup: Setup) -> None:
        self._metrics = {one.operator: one for one in metrics.operators}
        self._setup = setup
        self.quantities: dict[str, Quantity] = {}
        for name, one in self._metrics.items():
            if one.kind == "source":
                self._note(f"rate of {name}", one.recent_rate, "records/s", "measured")
            if one.queue:
                self._note(f"queue of {name}", one.queue, "records", "measured")
        self._note("time to make the operators", setup.operators_s, "s", "measured")
        self._note("time of a checkpoint", setup.saving_s, "s", "measured")
        if setup.workers:
            self._note("time between checkpoints", setup.checkpoint_s, "s", "set")
            self._note("time between reports", setup.report_s, "s", "measured")
            self._delay_s = self._note("delay of a worker", max(0.0, setup.report_s - _REPORTS_S), "s", "measured")

    def _note(self, name: str, value: float, unit: str, origin: str) -> float:
        self.quantities[name] = Quantity(name, value, unit, origin)
        return value

    def _default(self, name: str, seconds: float) -> float:
        """Return a time that is not measured, with the delay that was."""
        return self._note(name, seconds, "s", "default") + self._delay_s

    @property
    def _checkpointed_s(self) -> float:
        """Longest time until what an operator with a key sends is in a checkpoint, and leaves the worker."""
        if not self._setup.workers:
            return 0.0
        return self._setup.checkpoint_s + self._confirmed_s

    @property
    def _confirmed_s(self) -> float:
        """Time from the begin of a checkpoint until all workers with copies have it."""
        return self._setup.saving_s + self._default("confirmation of a checkpoint", _CONFIRM_S)

    @property
    def _deploy_s(self) -> float:
        """DT: from the request until all workers have activated the new version."""
        setup = self._setup
        if not setup.workers:  # between two batches, with a checkpoint of either version
            return setup.operators_s + 2 * setup.saving_s + self._note("current batch", 0.05, "s", "default")
        command = self._default("command to a worker", _COMMAND_S)
        return command + setup.operators_s + setup.report_s + command

    def bounds(self, plan: UpdatePlan) -> Bounds:
        """Return the bounds of a strategy."""
        old_version, new_version = versions_of(plan)
        ended = {
            name: self._past_s(plan.old, name) for name in plan.to_dict()["ends_windows"]
            if plan.partial_windows == PartialWindow.EMIT and self._setup.workers
        }  # fmt: skip
        old = self._model(plan.old, old_version, ended)
        waits = {one.name: self._window_wait(one, plan) for one in plan.new.operators if has_windows(one)}
        new = self._model(plan.new, new_version, waits, plan)
        change = Change(plan.strategy, old_version, new_version)
        deploy, stages = self._deploy_s, max(_stages(plan.old), _stages(plan.new))
        if not self._setup.workers:
            found = replace(predict(change, old, new, DeployTimes(deploy, deploy)), loss=0, outage=deploy)
            if plan.strategy in (Strategy.NCL, Strategy.NCH):  # nothing is in flight, as with all others
                same = replace(change, strategy=Strategy.MVC)
                found = replace(found, refresh=predict(same, old, new, DeployTimes(deploy, deploy)).refresh)
            found = replace(found, lag=deploy, delineated=True)
        else:
            drain = 0.0
            if plan.strategy == Strategy.NCH:  # the old version is empty in checkpoints, which workers report
                command = self._default("command to a worker", _COMMAND_S)
                drain = stages * self._checkpointed_s + self._signal_s + self._setup.report_s + command
            found = predict(change, old, new, DeployTimes(drain, deploy))
            if plan.strategy in (Strategy.NCL, Strategy.NCH):  # workers make the new operators beside the old ones
                refresh = None if found.refresh is None else found.refresh + deploy
                found = replace(found, refresh=refresh, lag=found.lag + deploy)
            if plan.strategy == Strategy.NCL:
                found = replace(found, loss=self._in_flight(plan.old, old))
        shown = plan.to_dict()
        drops = plan.partial_windows == PartialWindow.DROP and shown["ends_windows"]
        loses = shown["loses"] if self._setup.workers else bool(drops)
        return replace(found, consistent=not shown["mixes"], loss=max(found.loss, int(loses)))

    @property
    def _signal_s(self) -> float:
        return self._default("signal between workers", _SIGNAL_S)

    def _past_s(self, topology: Topology, operator: str) -> float:
        """Return how long a worker waits until it is sure that nothing of the old version comes to an operator.

        All workers make a checkpoint when they activate the new version. Operators with a key before this one end
        first, and what they have sent leaves their worker with the next checkpoint.
        """
        return self._signal_s + self._confirmed_s + (_stages(topology, operator) - 1) * self._checkpointed_s

    def _model(
        self, topology: Topology, version: Version, windows: Mapping[str, float], plan: UpdatePlan | None = None
    ) -> Model:
        """Return the performance of a version; messages are batches."""
        latency = {one.name: self._batch_s(one.name) for one in topology.operators}
        rates = {name: self._metrics[name].recent_batches for name in version.sources}
        returns = returning(topology)
        loops = {Channel(returns[c.source], c.target): 1 for c in topology.channels if c.source in returns}
        transport: dict[Channel, float] = {}
        for one in (one for one in topology.operators if one.kind != "loop"):
            inputs = [Channel(returns.get(c.source, c.source), c.target) for c in one.inputs]
            model = Model(version, latency, rates, transport=dict(transport), iterations=loops, most=math.inf)
            known = self._metrics.get(one.name)
            age = None if known is None or known.recent_age is None else known.recent_age.quantile(1.0)
            keyed = one.key is not None
            wait = 0.0
            if age is not None:
                self._note(f"longest time from reading to {one.name}", age, "s", "measured")
                reached = max(model.tail(source, one.name) for source in version.sources)
                wait = max(0.0, age - max(0.0, reached))
            elif keyed and self._setup.workers:
                wait = self._default("message between workers", _MESSAGE_S)
                wait += self._checkpointed_s if _stages(topology, one.name) > 1 else 0.0
            if plan is not None and one.name in plan.migrated and self._setup.workers:
                wait += self._past_s(topology, one.name)
            for channel in inputs:
                transport[channel] = wait + windows.get(channel.source, 0.0)
        return Model(version, latency, rates, transport=transport, iterations=loops, most=math.inf)

    def _batch_s(self, name: str) -> float:
        """Return the mean time of a batch in an operator."""
        known = self._metrics.get(name)
        if known is None or not known.recent_batches:
            return self._note(f"batch in {name}", _BATCH_S, "s", "default")
        seconds = known.load * max(1, self._setup.workers) / known.recent_batches
        return self._note(f"batch in {name}", seconds, "s", "measured")

    def _window_wait(self, operator: Operator, plan: UpdatePlan) -> float:
        """Return how long results of windows wait for their end, if event time passes like time."""
        window = getattr(operator.options, "window", None)
        if window is None:
            return 0.0
        fresh = operator.name in plan.own_state or operator.name not in plan.old.names
        wait = window.gap or (window.size if fresh else window.slide)
        late = [
            one.options.lateness for one in plan.new.operators if isinstance(one.options, SourceOptions | TimeOptions)
        ]
        return self._note(f"windows of {operator.name}", (wait + max(late, default=0)) / 1e6, "s", "set")

    def _in_flight(self, topology: Topology, model: Model) -> int:
        """Return how many records may be on their way to operators with a key."""
        found = 0
        for one in topology.operators:
            known: OperatorMetrics | None = self._metrics.get(one.name)
            if one.key is not None and known is not None:
                latest = max(model.tail(source, one.name) for source in model.version.sources)
                found += math.ceil(known.recent_rate * max(0.0, latest)) + known.queue
        return found


def _stages(topology: Topology, operator: str | None = None) -> int:
    """Return the largest number of operators with a key on a path, up to an operator."""
    found: dict[str, int] = {}
    for one in topology.operators:
        before = max((found.get(channel.source, 0) for channel in one.inputs if not channel.feedback), default=0)
        found[one.name] = before + (one.key is not None)
    return max(found.values()) if operator is None else found[operator]

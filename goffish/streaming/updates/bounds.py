"""What an update will cost, before it starts: wave times, bounds and time-to-live per strategy.

All times are in seconds, all rates in messages per second. See docs/specs/updates.md, sections 2.5 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from goffish.errors import InputError
from goffish.streaming.updates.analysis import Change, can_mix
from goffish.streaming.updates.versions import Channel, Element, Part, Strategy, UpdateType, Version

#: Queues above this utilisation wait too long for the bounds to hold.
MOST_UTILISATION = 0.8
#: The old version should have drained long before this many times its time-to-live.
ALARM_FACTOR = 10.0


@dataclass(frozen=True)
class Model:
    """Performance of one version of a dataflow.

    Attributes
    ----------
    version : Version
        Those of its `joins` that consume one message at once need one from each input.
    latency : mapping
        Processing time of each element, for one batch of `m` messages.
    rates : mapping
        Input rate of each source.
    selectivity : mapping
        Pairs (m, n): n outputs on each outgoing channel for m inputs [default: (1, 1)].
    transport : mapping
        Time on each channel [default: 0].
    wait : mapping
        Longest time in the queue of each element, such as measured, or from `sibling_waits` [default: 0].
    instances : mapping
        Number of instances of each element [default: 1].
    iterations : mapping
        Feedback channels and how often a message passes each at most. Without these the dataflow must be acyclic.
    most : float
        Utilization above which the model is rejected.

    Raises
    ------
    InputError
        A value is missing or out of range, a cycle has no feedback channel, or an element is used more than 80 %.

    Examples
    --------
    >>> version = Version.of(1, ["read", "write"], [("read", "write")])
    >>> model = Model(version, {"read": 0.02, "write": 0.01}, {"read": 10.0})
    >>> model.head("read", "write"), model.tail("read", "write")
    (0.02, 0.02)
    """

    version: Version
    latency: Mapping[str, float]
    rates: Mapping[str, float]
    selectivity: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    transport: Mapping[Channel, float] = field(default_factory=dict)
    wait: Mapping[str, float] = field(default_factory=dict)
    instances: Mapping[str, int] = field(default_factory=dict)
    iterations: Mapping[Channel, int] = field(default_factory=dict)
    most: float = MOST_UTILISATION

    def __post_init__(self) -> None:
        where = f"model of dataflow version {self.version.number}"
        for id in self.version.logic:
            if not self.latency.get(id, -1.0) >= 0:
                raise InputError(f"{where}: processing element {id!r} needs a latency of at least 0 seconds")
            if min(self.batch(id), self.selectivity.get(id, (1, 1))[1]) < 1:
                raise InputError(f"{where}: processing element {id!r}: selectivity needs integers of at least 1")
        for id in self.version.sources:
            if not self.rates.get(id, 0.0) > 0:
                raise InputError(f"{where}: source {id!r} needs a rate above 0 messages per second")
        for id in self.version.logic:
            if self.utilisation(id) > self.most:
                raise InputError(
                    f"{where}: processing element {id!r} is used to {self.utilisation(id):.0%}; "
                    f"bounds hold up to {self.most:.0%}"
                )

    def batch(self, id: str) -> int:
        """Return the number of messages that an element consumes at once, m."""
        return self.selectivity.get(id, (1, 1))[0]

    def joins(self, id: str) -> bool:
        """Return whether an element needs a message from each of its inputs."""
        return id in self.version.joins and self.batch(id) == 1

    def utilisation(self, id: str) -> float:
        """Return the share of time that the instances of an element work."""
        return self.arrivals[id] / self.batch(id) * self.latency[id] / self.instances.get(id, 1)

    @cached_property
    def _order(self) -> list[str]:
        """Elements in topological order of the channels that are not feedback."""
        degree = {id: len(self._origins[id]) for id in self.version.logic}
        found = [id for id, channels in degree.items() if not channels]
        for id in found:
            for target in self._targets[id]:
                degree[target] -= 1
                if not degree[target]:
                    found.append(target)
        if len(found) < len(degree):
            rest = ", ".join(sorted(degree.keys() - set(found)))
            raise InputError(
                f"model of dataflow version {self.version.number}: cycle before or among {rest}: "
                "give the iterations of its feedback channel"
            )
        return found

    @cached_property
    def _targets(self) -> dict[str, list[str]]:
        return {
            id: [target for target in targets if Channel(id, target) not in self.iterations]
            for id, targets in self.version.targets.items()
        }

    @cached_property
    def _origins(self) -> dict[str, list[str]]:
        return {
            id: [origin for origin in origins if Channel(origin, id) not in self.iterations]
            for id, origins in self.version.origins.items()
        }

    def _flow(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Equation (2): rates of arrival for these rates of the sources."""
        found = dict.fromkeys(self.version.logic, 0.0) | dict(rates)
        for id in self._order:
            m, n = self.selectivity.get(id, (1, 1))
            for target in self._targets[id]:
                found[target] += found[id] * n / m
        return found

    @cached_property
    def arrivals(self) -> dict[str, float]:
        """Aggregate input rates I (2); elements of a cycle also get the messages of all iterations."""
        found = self._flow({id: self.rates[id] for id in self.version.sources})
        for (last, first), times in self.iterations.items():
            for id in found:
                if self.reaches(first, id) and self.reaches(id, last):
                    found[id] *= 1 + times
        return found

    def fan_out(self, source: str) -> float:
        """Return the number of outputs of all sinks for one input of a source."""
        flow = self._flow({id: float(id == source) for id in self.version.sources})
        return sum(flow[id] * self.selectivity.get(id, (1, 1))[1] / self.batch(id) for id in self.version.sinks)

    @cached_property
    def gaps(self) -> dict[str, float]:
        """Longest times between two arrivals at each element.

        This is 1/I for a source. Behind it 1/I is too short where the messages of one wave arrive close to each other.
        """
        found = {id: 1.0 / self.rates[id] for id in self.version.sources}
        for id in self._order:
            if id not in found:
                found[id] = min(self.batch(origin) * found[origin] for origin in self._origins[id])
        return found

    def batch_wait(self, id: str) -> float:
        """Return β: the longest time until a batch that begins with one message is complete."""
        return (self.batch(id) - 1) * self.gaps[id]

    @cached_property
    def _heads(self) -> dict[str, dict[str, float]]:
        return {}

    @cached_property
    def _tails(self) -> dict[str, dict[str, float]]:
        return {}

    def _from(self, start: str, longest: bool) -> dict[str, float]:
        """Return the times until a wave from `start` reaches each element."""
        known = self._tails if longest else self._heads
        if start not in known:
            found = {start: 0.0}
            for id in self._order:
                if id not in found:
                    continue
                spent = found[id] + self.latency[id] + self.batch_wait(id)
                spent += self.wait.get(id, 0.0) if longest else self._iterated[id]
                for target in self._targets[id]:
                    reached = spent + self.transport.get(Channel(id, target), 0.0)
                    last = longest or self.joins(target)  # a join waits for the last of its inputs
                    found[target] = (max if last else min)(found.get(target, reached), reached)
            known[start] = found
        return known[start]

    @cached_property
    def _iterated(self) -> dict[str, float]:
        """Time of all iterations of a message that leaves a cycle at its last element."""
        found = dict.fromkeys(self.version.logic, 0.0)
        for (last, first), times in self.iterations.items():
            found[last] += times * self._round(first, last, first, first)
        return found

    def reaches(self, source: str, target: str) -> bool:
        """Return whether a message can get from one element to another without a feedback channel."""
        return target in self._from(source, True)

    def head(self, source: str, target: str) -> float:
        """Return the wave head time Wh (3); batches begin empty, and messages take all iterations of a cycle."""
        return self._from(source, False).get(target, math.inf)

    def tail(self, source: str, target: str) -> float:
        """Return a bound of the wave tail time Wt (4), with all iterations of the cycles on the way."""
        straight = self._from(source, True).get(target)
        loops = 0.0
        for (last, first), times in self.iterations.items():
            if self.reaches(source, last) and self.reaches(first, target):
                straight = straight if straight is not None else self._round(source, last, first, target)
                loops += times * self._round(first, last, first, first)
        return -math.inf if straight is None else straight + loops + self.wait.get(target, 0.0)

    def _round(self, source: str, last: str, first: str, target: str) -> float:
        """Return the longest time from `source` over the feedback channel (last, first) to `target`."""
        work = self.latency[last] + self.batch_wait(last) + self.wait.get(last, 0.0)
        back = self._from(source, True)[last] + work + self.transport.get(Channel(last, first), 0.0)
        return back + self._from(first, True)[target]

    def out(self, source: str, sink: str) -> tuple[float, float]:
        """Return head and tail times until a sink emits: Wh' and Wt' (§2.5)."""
        work = self.latency[sink] + self.batch_wait(sink)  # a sink is on no cycle
        return self.head(source, sink) + work, self.tail(source, sink) + work

    def soonest(self, source: str) -> float:
        """Return the shortest Wh' from an element to any sink."""
        return min(self.out(source, sink)[0] for sink in self.version.sinks)

    def latest(self, source: str) -> float:
        """Return the longest Wt' from an element to any sink."""
        return max(self.out(source, sink)[1] for sink in self.version.sinks)

    def through(self, channel: Channel) -> tuple[float, float]:
        """Return the shortest Wh' and the longest Wt' from the producer of a channel, through the channel."""
        source, target = channel
        spent = self.latency[source] + self.batch_wait(source) + self.transport.get(channel, 0.0)
        first, last = spent + self._iterated[source], spent + self.wait.get(source, 0.0)
        return first + self.soonest(target), last + self.latest(target)


def sibling_waits(model: Model) -> dict[str, float]:
    """Return how long a message may wait at each element for others of the same wave, at most.

    Parameters
    ----------
    model : Model

    Returns
    -------
    dict
        For `Model.wait`, where queues were not measured.

    Examples
    --------
    >>> version = Version.of(1, ["s", "a", "b", "t"], [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")])
    >>> sibling_waits(Model(version, dict.fromkeys("sabt", 0.01), {"s": 10.0}))["t"]
    0.01
    """
    waits = dict.fromkeys(model.version.logic, 0.0)
    for source in model.version.sources:
        flow = model._flow({id: float(id == source) for id in model.version.sources})
        for id, messages in flow.items():
            waits[id] = max(waits[id], (math.ceil(messages) - 1) * model.latency[id])
    return waits


class DeployTimes(NamedTuple):
    """Times to deploy, DT.

    Attributes
    ----------
    dataflow : float
        The whole new version, from scratch.
    update : float
        All new elements and channels beside the old ones, and to notify the sources or to activate the routers.
    """

    dataflow: float
    update: float


@dataclass(frozen=True)
class Bounds:
    """Limits of what an update costs, in seconds after its request.

    Attributes
    ----------
    strategy : Strategy
    kind : UpdateType
    refresh : float or None
        Until the first output of the new version; ``None`` if none can be attributed to it.
    lag : float
        Until the last output of the old version.
    outage : float
        Time without any output.
    loss : int
        Messages that sinks never emit.
    ttl : float or None
        How long after the activation old elements may get messages; ``None`` where they stop at once.
    drain_alarm : float
        A time after which an old version that has not drained should raise an alarm.
    consistent : bool
        Whether every output comes from one version only (C1).
    delineated : bool
        Whether all outputs of the old version precede those of the new one.
    """

    strategy: Strategy
    kind: UpdateType
    refresh: float | None
    lag: float
    outage: float
    loss: int
    ttl: float | None
    drain_alarm: float
    consistent: bool
    delineated: bool

    def to_dict(self) -> dict[str, Any]:
        """Return one row of a table."""
        return asdict(self) | {"strategy": self.strategy.value, "kind": self.kind.name.lower()}


def predict(update: Change, old: Model, new: Model, times: DeployTimes) -> Bounds:
    """Return the bounds of an update, by the formulas of its strategy and type.

    Incomplete batches of the old version that are flushed after the drain are not part of the lag.

    Parameters
    ----------
    update : Change
    old, new : Model
        Of the versions of the update.
    times : DeployTimes

    Returns
    -------
    Bounds

    Raises
    ------
    InputError
        A model belongs to another version.

    Examples
    --------
    >>> versions = [Version.of(n, {"read": 1, "write": n}, [("read", "write")]) for n in (1, 2)]
    >>> update = Change(Strategy.MVC, *versions)
    >>> models = [Model(one, {"read": 0.02, "write": 0.01}, {"read": 10.0}) for one in versions]
    >>> bounds = predict(update, *models, DeployTimes(15.0, 0.5))
    >>> round(bounds.refresh, 3), round(bounds.lag, 3), bounds.loss
    (0.63, 0.53, 0)
    """
    if (old.version, new.version) != (update.old, update.new):
        raise InputError(f"update to dataflow version {update.new.number}: the models are of other versions")
    strategy = update.strategy
    whole = max(map(old.latest, update.old.sources))  # MAX Wt' of the old version
    stopped = strategy in (Strategy.NCL, Strategy.NCH)
    outage, loss, ttl = 0.0, 0, None
    refresh: float | None
    if strategy == Strategy.NCL:
        # (5); an input waits unless the gap is longer than the deployment
        refresh = min(max(times.dataflow, new.gaps[id]) + new.soonest(id) for id in update.new.sources)
        lag, outage = 0.0, refresh
        # C8: inputs whose wave is unfinished, each with all its outputs
        waves = ((id, math.ceil(old.rates[id] * old.latest(id))) for id in update.old.sources)
        loss = sum(math.ceil(waiting * old.fan_out(id)) for id, waiting in waves)
    elif strategy == Strategy.NCH:
        ttl = lag = whole
        outage = min(max(times.dataflow, new.gaps[id] - whole) + new.soonest(id) for id in update.new.sources)
        refresh = lag + outage  # (6)
    elif strategy == Strategy.MVC:
        refresh = times.update + min(new.gaps[id] + new.soonest(id) for id in update.new.sources)  # (16)
        lag = times.update + whole  # (17)
        ttl = max((_reach(old, update.old.sources, part) for part in update.parts.old_only), default=0.0)  # (13)-(15)
    else:
        refresh = min((times.update + time for time in _refreshes(update, old, new)), default=None)
        lag = max((times.update + time for time in _lags(update, old)), default=0.0)
        if strategy == Strategy.PVC:  # (18)
            starts = {_producer(part) for part in _frontier(update.old, update.parts.old_only)} | update.pins
            ttl = max((_reach(old, starts, part) for part in update.parts.old_only), default=0.0)
    if update.ordered and refresh is not None:  # held at the sinks until the old version has drained
        refresh = max(refresh, times.update + whole)
    consistent = strategy != Strategy.HTI or not can_mix(update.old, update.new)
    alarm = ALARM_FACTOR * whole + (times.dataflow if stopped else times.update)
    return Bounds(
        strategy, update.kind, refresh, lag, outage, loss, ttl, alarm, consistent, stopped or update.ordered
    )  # fmt: skip


def _producer(part: Part) -> str:
    return part.id if isinstance(part, Element) else part.source


def _reach(model: Model, starts: Iterable[str], part: Part) -> float:
    """Return the latest time at which a wave from any of `starts` gets to an element, or into a channel."""
    return max((model.tail(start, _producer(part)) for start in starts), default=0.0)


def _frontier(version: Version, changed: Collection[Part]) -> list[Part]:
    """Return the changed parts that no other changed part precedes on any path; those of one cycle do not."""
    below: dict[Part, set[str]] = {}
    for part in changed:
        near = list(version.targets[part.id]) if isinstance(part, Element) else [part.target]
        for id in near:
            near += [target for target in version.targets[id] if target not in near]
        below[part] = set(near)

    def follows(part: Part, other: Part) -> bool:
        if isinstance(part, Channel) and isinstance(other, Element) and part.source == other.id:
            return True
        return _producer(part) in below[other] and _producer(other) not in below[part]

    return [part for part in changed if not any(follows(part, other) for other in changed)]


def _refreshes(update: Change, old: Model, new: Model) -> Iterator[float]:
    """Yield bounds of the time from the activation to the first output that passed a new part, under HTI or PVC.

    (7), (9), (11) and (19). Only parts that get messages from parts of the old version count: others wait for these.
    """
    inside = update.strategy == Strategy.HTI and update.kind != UpdateType.CONNECTED_SUBGRAPH
    parts = update.parts.new_only if inside else _frontier(update.new, update.parts.new_only)
    for part in parts:
        start = _producer(part)
        if start not in update.old.logic:
            continue
        gap = max(old.gaps[start], new.gaps[start])
        rest = new.soonest(start) if isinstance(part, Element) else new.through(part)[0]
        below = {id for id in update.new.logic if new.reaches(start, id)}
        if any(new.joins(id) and not below.issuperset(update.new.origins[id]) for id in below - {start}):
            # It waits for messages that do not pass here: the whole wave of a new input bounds them.
            yield min(new.gaps[id] + new.latest(id) for id in update.new.sources if new.reaches(id, start))
            continue
        pins = [id for id in update.pins if new.reaches(id, start)]
        yield max((new.gaps[id] + new.head(id, start) + rest for id in pins), default=gap + rest)


def _lags(update: Change, old: Model) -> Iterator[float]:
    """Yield bounds of the time from the activation to the last output that passed an old part, under HTI or PVC.

    (8'), (10), (12) with the time to deploy, and (20).
    """
    parts = update.parts.old_only
    for part in parts if update.strategy == Strategy.HTI else _frontier(update.old, parts):
        yield old.latest(part.id) if isinstance(part, Element) else old.through(part)[1]
    yield from (old.latest(id) for id in update.pins)


class Requirement(StrEnum):
    """What an update must keep."""

    NO_LOSS = "no-loss"
    NO_MIXING = "no-mixing"
    LOWEST_LATENCY = "lowest-latency"


def requirement_of(text: str) -> Requirement:
    """Return a requirement by name.

    Raises
    ------
    InputError
        There is none of this name.
    """
    if text not in list(Requirement):
        raise InputError(f"require = {text!r}: choose one of {', '.join(Requirement)}")
    return Requirement(text)


class Recommendation(NamedTuple):
    """A strategy, whether sinks must hold new outputs, and why, in one sentence."""

    strategy: Strategy
    ordered: bool
    reason: str


def meets(requirement: Requirement, bounds: Bounds) -> bool | None:
    """Return whether a strategy meets a requirement; ``None`` if that depends on the others."""
    match requirement:
        case Requirement.NO_LOSS:
            return not bounds.loss
        case Requirement.NO_MIXING:
            return bounds.consistent
    return None


def recommend(
    requirements: Collection[Requirement], bounds: Mapping[Strategy, Bounds], *, ordered: bool = False
) -> Recommendation:
    """Choose a strategy for an update.

    Parameters
    ----------
    requirements : collection of Requirement
        All of them are met.
    bounds : mapping
        What `predict` returned for each strategy without `ordered`.
    ordered : bool
        Whether outputs of the old version must precede those of the new one.

    Returns
    -------
    Recommendation

    Raises
    ------
    InputError
        No bounds are given for a strategy that meets the requirements.
    """
    unordered = (Strategy.HTI, Strategy.PVC) if ordered else ()
    fits = [
        one for one in bounds.values()
        if one.strategy not in unordered and all(meets(what, one) is not False for what in requirements)
    ]  # fmt: skip
    if not fits:
        raise InputError(f"update: none of {', '.join(bounds)} meets: {', '.join(sorted(requirements))}")

    def refresh(one: Bounds) -> float:
        found = math.inf if one.refresh is None else one.refresh
        return max(found, one.lag) if ordered else found

    if Requirement.LOWEST_LATENCY in requirements:
        # Equal ones: without loss, and the consistent one. A removal has no refresh, and its lag counts.
        best = min(fits, key=lambda one: (refresh(one), one.loss > 0, one.lag, not one.consistent))
        why = "has the lowest refresh latency"
    else:
        # MVC has an exact drain and needs no analysis of paths; the others are listed by what they give up.
        preferred = [Strategy.MVC, Strategy.PVC, Strategy.NCH, Strategy.HTI, Strategy.NCL]
        best = min(fits, key=lambda one: preferred.index(one.strategy))
        why = "is the simplest"
    gate = ordered and not best.delineated
    among = f" of those with {' and '.join(sorted(requirements))}" if requirements else ""
    first = "no output to attribute" if best.refresh is None else f"first output within {refresh(best):.3g} s"
    held = ", with new outputs held until the old version has drained" if gate else ""
    reason = f"{best.strategy} {why}{among}{held}: {first}, last old output within {best.lag:.3g} s."
    return Recommendation(best.strategy, gate, reason)

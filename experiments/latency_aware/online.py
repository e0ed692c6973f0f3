"""When to place again, and when to act on it: the rule of the online scheduler, without a clock.

See docs/specs/latency-aware.md, sections 2.3, 3.1 and 6.8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments.latency_aware.ants import ant_system
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.ant_system import Ants
from goffish.scheduling.policies.latency_aware.hybrid import hill_climbing, hybrid
from goffish.scheduling.policies.latency_aware.policy import worth_it
from goffish.scheduling.policies.latency_aware.score import (
    CORE,
    UNKNOWN_CPU,
    Floats,
    Ints,
    PlacementProblem,
    Score,
    evaluate,
    greedy_placement,
)

Heuristic = Literal["hill-climbing", "ant-system", "hybrid"]
#: Above this share of its time an operator may have more to do than it shows (§6.10).
SATURATED = 0.95


def cpu_demand(
    capacity: ArrayLike,
    host_cpu: ArrayLike,
    *,
    one_thread: bool = True,
    arriving: ArrayLike | None = None,
    processed: ArrayLike | None = None,
) -> Floats:
    """CPU points that operators need, from the share of time they are busy (§2.3).

    Parameters
    ----------
    capacity : float, shape (operators,)
        Storm's capacity: 1 is busy all the time.
    host_cpu : float, shape (operators,)
        CPU points of the host of each.
    one_thread : bool
        An operator uses no more than a core; else the whole host, as the paper prints it.
    arriving, processed : float, shape (operators,), optional
        Events per second. Of an operator that is busy for more than `SATURATED` of its time the need is scaled up by
        their quotient.
    """
    points = np.asarray(host_cpu, np.float64)
    found = np.asarray(capacity, np.float64) * (np.minimum(CORE, points) if one_thread else points)
    if arriving is not None and processed is not None:
        given, done = np.asarray(arriving, np.float64), np.asarray(processed, np.float64)
        behind = (np.asarray(capacity) > SATURATED) & (given > done) & (done > 0)
        found = found * np.divide(given, done, out=np.ones_like(found), where=behind)
    return np.asarray(found)


def smoothed(before: Floats | None, measured: ArrayLike, weight: float = 0.5) -> Floats:
    """Exponential average of demands; ``nan`` is not measured yet, and counts as `UNKNOWN_CPU` if it never was."""
    new = np.asarray(measured, np.float64)
    old = np.full(new.shape, np.nan) if before is None else before
    mixed = np.where(np.isnan(old), new, weight * new + (1 - weight) * old)
    found = np.where(np.isnan(new), old, mixed)
    return np.asarray(np.where(np.isnan(found), UNKNOWN_CPU, found))


@dataclass(frozen=True)
class SchedulerSettings:
    """Of the online scheduler.

    Attributes
    ----------
    heuristic : {"hybrid", "hill-climbing", "ant-system"}
    least_age_s : float
        A younger placement is left alone.
    metrics_s : float
        Metrics that were taken less than this after a new placement are stale.
    demand, latency : float
        Relative changes that count.
    gain : float
        By which the score must fall for a new placement with as many violations.
    seconds : float, optional
        For one placement; default: `ants` and local optima alone limit it, and the outcome is the same everywhere.
    """

    heuristic: Heuristic = "hybrid"
    least_age_s: float = 30.0
    metrics_s: float = 10.0
    demand: float = 0.1
    latency: float = 0.2
    gain: float = 0.01
    seconds: float | None = None
    ants: Ants = field(default_factory=Ants)

    def __post_init__(self) -> None:
        if self.heuristic not in ("hill-climbing", "ant-system", "hybrid"):
            raise InputError(f"heuristic = {self.heuristic!r}: one of hybrid, hill-climbing, ant-system is needed")
        for name in ("least_age_s", "metrics_s", "demand", "latency", "gain"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} = {getattr(self, name):g}: at least 0 is needed")


class Running(NamedTuple):
    """A placement that runs.

    Attributes
    ----------
    hosts : tuple of str
        Of every operator.
    since_s : float
    problem : PlacementProblem
        What was known when it was looked at last.
    """

    hosts: tuple[str, ...]
    since_s: float
    problem: PlacementProblem


class Decision(NamedTuple):
    """What the scheduler does.

    Attributes
    ----------
    running : Running
    reason : {"first", "young", "unchanged", "no gain", "placed"}
    score : Score, optional
        Of what runs now; ``None`` if nothing was looked at.
    """

    running: Running
    reason: str
    score: Score | None


def schedule(
    problem: PlacementProblem,
    running: Running | None,
    now_s: float,
    rng: np.random.Generator,
    rules: SchedulerSettings | None = None,
) -> Decision:
    """One turn of the scheduler (§3.1): place anew if enough has changed, and act if that is worth the restarts.

    Parameters
    ----------
    problem : PlacementProblem
        With the demands, events, hosts and latencies of now; hosts are known by their names.
    running : Running, optional
        Default: nothing runs.
    now_s : float
    rng : numpy.random.Generator
    rules : SchedulerSettings, optional
    """
    rules = SchedulerSettings() if rules is None else rules
    if running is None:
        place = _place(problem, None, rng, rules)
        return Decision(_runs(problem, place, now_s), "first", evaluate(problem, place))
    number = {name: at for at, name in enumerate(problem.hosts)}
    current = np.array([number.get(host, -1) for host in running.hosts], np.int64)
    lost = bool((current < 0).any())
    age = now_s - running.since_s
    if not lost and age < max(rules.least_age_s, rules.metrics_s):
        return Decision(running, "young", None)
    start = greedy_placement(problem, current) if lost else problem.placement(current)
    score = evaluate(problem, start)
    if not lost and not score.violations and not changed(running.problem, problem, rules):
        return Decision(running, "unchanged", score)
    place = _place(problem, start, rng, rules)
    found = evaluate(problem, place)
    if not lost and not worth_it(score, found, rules.gain):
        return Decision(running._replace(problem=problem), "no gain", score)
    if not worth_it(score, found, rules.gain):
        place, found = start, score
    return Decision(_runs(problem, place, now_s), "placed", found)


def changed(before: PlacementProblem, now: PlacementProblem, rules: SchedulerSettings) -> bool:
    """Whether hosts joined or left, or demands or latencies are no longer what they were."""
    if set(before.hosts) != set(now.hosts) or before.operators != now.operators:
        return True
    at = [before.hosts.index(name) for name in now.hosts]
    return _differs(before.cpu, now.cpu, rules.demand) or _differs(
        before.latency_ms[np.ix_(at, at)], now.latency_ms, rules.latency
    )


def _differs(before: Floats, now: Floats, share: float) -> bool:
    return bool((np.abs(now - before) > share * before * (1 + 1e-9)).any())


def _place(problem: PlacementProblem, start: Ints | None, rng: np.random.Generator, rules: SchedulerSettings) -> Ints:
    if rules.heuristic == "hill-climbing":
        return hill_climbing(problem, start, seconds=rules.seconds).placement
    search = ant_system if rules.heuristic == "ant-system" else hybrid
    return search(problem, rng, start, ants=rules.ants, seconds=rules.seconds).placement


def _runs(problem: PlacementProblem, place: Ints, now_s: float) -> Running:
    return Running(tuple(problem.hosts[host] for host in place.tolist()), now_s, problem)


def edge_events(edges: ArrayLike, emitted: ArrayLike) -> Floats:
    """Events over each edge, from what engines count: emitted by an operator, divided by its outgoing edges (§2.2).

    Parameters
    ----------
    edges : int, shape (edges, 2)
    emitted : float, shape (operators,)
        Events that each operator sent, one for every operation that received it.
    """
    source = np.asarray(edges, np.int64).reshape(-1, 2)[:, 0]
    counted = np.asarray(emitted, np.float64)
    return np.asarray(counted[source] / np.bincount(source, minlength=counted.size)[source])

"""The machines of a run: requests, lifetimes, instances and costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.spot_market import SpotMarket
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Floats

#: Seconds by which two equal moments may differ.
SLACK_S = 1e-6


@dataclass
class Rented:
    """Lifetime of a machine, in seconds since the start of the run; infinite for events that do not happen.

    `taken`: its failure is a spot interruption.
    """

    kind: int
    start_s: float
    ready_s: float
    stop_s: float = np.inf
    fail_s: float = np.inf
    taken: bool = False


class Placement(NamedTuple):
    """Instances of a deployment as arrays, sorted by PE, then by machine.

    Attributes
    ----------
    ids : int64, shape (machines,)
        Ids of the live machines, ascending.
    kinds : int64, shape (machines,)
    offsets : int64, shape (elements + 1,)
        Places of PE i are ``offsets[i]`` to ``offsets[i + 1]``.
    element, machine, instances : int64, shape (places,)
        `machine` is an index into `ids`.
    stands_for : int64, shape (places,)
        Id of the machine whose instances are replicated here, -1 for instances. A replica works once that machine
        fails.
    """

    ids: NDArray[np.int64]
    kinds: NDArray[np.int64]
    offsets: NDArray[np.int64]
    element: NDArray[np.int64]
    machine: NDArray[np.int64]
    instances: NDArray[np.int64]
    stands_for: NDArray[np.int64]


@dataclass
class Changes:
    """Changes of an adaptation.

    Attributes
    ----------
    switched : list of (element, alternate)
    started, stopped : list of int
        Ids of machines.
    moved : int
        Instances added to or removed from running PEs; a moved instance counts once.
    """

    switched: list[tuple[int, int]] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    moved: int = 0

    @property
    def any(self) -> bool:
        return bool(self.switched or self.started or self.stopped or self.moved)


class Cluster:
    """The machines of a run, from the first request to the last release.

    Attributes
    ----------
    log : dict from machine id to Rented
        All requested machines, in the order of the requests.
    live : Deployment
        Machines and instances that run or start.
    catalogue : Catalogue
        The catalogue with the current prices.
    """

    def __init__(self, market: SpotMarket, elements: int) -> None:
        self.catalogue = market.priced(0.0)
        self.log: dict[int, Rented] = {}
        self.live = Deployment(self.catalogue, np.zeros(elements, np.int64))
        self._market = market
        self._placement: Placement | None = None

    def price(self, now: float) -> None:
        """Set the prices of a moment."""
        self.catalogue = self.live.catalogue = self._market.priced(now)

    def take_until(self, until: float) -> None:
        """Set the interruption times of spot machines before `until`."""
        for life in (self.log[number] for number in self.live.machines):
            moment = self._market.taken_s(life.kind, life.start_s)
            if moment < until - SLACK_S and moment < life.fail_s:
                life.fail_s, life.taken = moment, True

    def enact(self, plan: Deployment, now: float, *, first: bool = False) -> Changes:
        """Enact a deployment: release machines that it does not contain, and request those that it plans.

        Machines of the first deployment are ready at once, others after the catalogue's start-up time.

        Raises
        ------
        InputError
            If the plan names machines that do not run, overloads a machine, or exceeds the catalogue's limit.
        """
        plan.check()
        old, limit = self.live, self.catalogue.limit
        unknown = sorted(number for number in plan.machines if number >= 0 and number not in old.machines)
        if unknown:
            raise InputError(f"the policy names machine {unknown[0]}, which does not run")
        if limit is not None and len(plan.machines) > limit:
            raise InputError(f"the policy plans {len(plan.machines)} machines; the catalogue allows {limit} at a time")
        changes = Changes(stopped=[number for number in old.machines if number not in plan.machines])
        for number in changes.stopped:
            self.log[number].stop_s = now
        new = Deployment(self.catalogue, plan.active)
        coming = (number for number in plan.machines if number < 0)
        ids = {number: len(self.log) + at for at, number in enumerate(coming)}
        for number, machine in plan.machines.items():
            # Drop replicas whose original instances are not part of the plan.
            replicas = {(e, ids.get(of, of)): n for (e, of), n in machine.replicas.items() if of in plan.machines}
            if number >= 0:
                kept = old.machines[number]
                new.add_machine(
                    Machine(number, kept.kind, kept.coefficient, kept.elapsed_s, dict(machine.instances), replicas)
                )
                continue
            given = len(self.log)
            self.log[given] = Rented(machine.kind, now, now if first else now + self.catalogue.startup_s)
            new.add_machine(Machine(given, machine.kind, 1.0, 0.0, dict(machine.instances), replicas))
            changes.started.append(given)
        if not first:
            changes.switched = [(int(i), int(new.active[i])) for i in np.flatnonzero(new.active != old.active)]
            changes.moved = _moved(old, new)
        self.live, self._placement = new, None
        return changes

    def fail_until(self, now: float) -> list[int]:
        """Remove failed machines; their cost remains."""
        gone = [number for number in self.live.machines if self.log[number].fail_s <= now + SLACK_S]
        for number in gone:
            self.log[number].stop_s = self.log[number].fail_s
        lost = [self.live.machines[number] for number in gone]
        for number in gone:
            self.live.drop_machine(number)
        for machine in lost:
            self.live.promote(machine)
        if gone:
            self.live.settle()
            self._placement = None
        return gone

    def observe(self, coefficients: dict[int, float], now: float) -> None:
        """Update the coefficients and ages of the live machines."""
        for number, machine in self.live.machines.items():
            machine.coefficient = coefficients.get(number, machine.coefficient)
            machine.elapsed_s = now - self.log[number].start_s
        self.live.settle()

    def rents(self, now: float) -> Floats:
        """Cost of every requested machine up to a moment."""
        lives = list(self.log.values())
        return self._market.rents(
            np.array([life.kind for life in lives], np.int64),
            np.array([life.start_s for life in lives]),
            np.array([min(life.stop_s, life.fail_s, now) for life in lives]),
            np.array([life.taken and life.fail_s <= min(life.stop_s, now) for life in lives], np.bool_),
        )

    def cost(self, now: float) -> float:
        """Total cost up to a moment."""
        return float(self.rents(now).sum())

    def up_s(self, since: float, until: float) -> tuple[Floats, Floats]:
        """Working time of each live machine within a period, as start and end; equal if it does not work."""
        lives = [self.log[int(number)] for number in self.placement.ids]
        low = np.array([max(since, r.ready_s) for r in lives])
        high = np.array([min(until, r.fail_s) for r in lives])
        return np.minimum(low, until), np.maximum(np.minimum(low, until), high)

    def at_work(self, low: Floats, high: Floats, now: float | None = None) -> Floats:
        """Share of its machine's time in which each place works: instances always, replicas after a failure.

        Parameters
        ----------
        low, high : float64, shape (machines,)
            Start and end of the working time of the live machines.
        now : float, optional
            Only failures up to this moment count; they apply to the whole period.

        Returns
        -------
        float64, shape (places,)
        """
        placed = self.placement
        shares = np.ones(placed.element.size)
        missing: dict[tuple[int, int], int] = {}
        for at in np.flatnonzero(placed.stands_for >= 0).tolist():
            element, of, row = int(placed.element[at]), int(placed.stands_for[at]), int(placed.machine[at])
            moment = self.log[of].fail_s
            if now is not None:
                moment = -np.inf if moment <= now + SLACK_S else np.inf
            # One of several replicas of an instance takes over.
            left = missing.setdefault((element, of), self.live.machines[of].instances.get(element, 0))
            working = max(0.0, float(high[row]) - max(float(low[row]), moment))
            taken = min(left, int(placed.instances[at])) if working > 0 else 0
            missing[element, of] = left - taken
            shares[at] = taken / placed.instances[at] * (working / float(high[row] - low[row])) if taken else 0.0
        return shares

    @property
    def placement(self) -> Placement:
        """Return the live instances as arrays."""
        if self._placement is None:
            ids = sorted(self.live.machines)
            machines = [self.live.machines[number] for number in ids]
            places = [(e, row, -1, n) for row, one in enumerate(machines) for e, n in one.instances.items()]
            places += [(e, row, of, n) for row, one in enumerate(machines) for (e, of), n in one.replicas.items()]
            element, machine, of, count = np.array(sorted(places), np.int64).reshape(-1, 4).T.copy()
            self._placement = Placement(
                np.array(ids, np.int64),
                np.array([self.live.machines[number].kind for number in ids], np.int64),
                np.searchsorted(element, np.arange(self.live.active.size + 1)),
                element,
                machine,
                count,
                of,
            )
        return self._placement


def _moved(old: Deployment, new: Deployment) -> int:
    """Sum over PEs of the larger of the numbers of added and removed instances."""
    difference: dict[int, list[int]] = {}
    for number in {*old.machines, *new.machines}:
        before = old.machines[number].instances if number in old.machines else {}
        after = new.machines[number].instances if number in new.machines else {}
        for element in {*before, *after}:
            change = after.get(element, 0) - before.get(element, 0)
            difference.setdefault(element, [0, 0])[change < 0] += abs(change)
    return sum(max(both) for both in difference.values())

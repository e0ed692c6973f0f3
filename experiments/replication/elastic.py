"""A cluster whose queries and hosts come and go, with replicas planned anew each time.

See docs/specs/selective-replication.md, section 3.9. Queries and hosts are known by numbers that are never used twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from experiments.replication.dynamic import (
    CALM,
    host_lost,
    relieved,
    replanned,
    without_host,
)
from experiments.replication.queries import Operator, SharedQueries
from goffish.errors import InputError
from goffish.scheduling.policies.replication.model import SLACK, Network, Places, System, primaries, remaining, system
from goffish.scheduling.policies.replication.optimiser import Planned


@dataclass(frozen=True)
class Goals:
    """What replicas are for.

    Attributes
    ----------
    target : float, optional
        Mean availability of the queries, with as little load as possible. Default: what all slack gives.
    share : float
        Of its cores that a host uses at most.
    """

    target: float | None = None
    share: float = 0.9

    def __post_init__(self) -> None:
        if self.target is not None and not 0 <= self.target <= 1:
            raise InputError(f"target = {self.target:g}: a number from 0 to 1 is needed")
        if not 0 < self.share <= 1:
            raise InputError(f"share = {self.share:g}: above 0 and at most 1 is needed")


class View(NamedTuple):
    """A cluster as a system and a plan, with what their rows and columns are.

    Attributes
    ----------
    system : System
        Capacities are the shares of them that may be used.
    places : bool, shape (operators, hosts)
    hosts, queries : tuple of int
        Numbers of hosts and queries, in their order.
    """

    system: System
    places: Places
    hosts: tuple[int, ...]
    queries: tuple[int, ...]


class ElasticCluster:
    """Queries on hosts, with replicas.

    Service levels of queries outweigh the target: with any, each query is kept at its level, those without one at the
    target.

    Parameters
    ----------
    goals : Goals, optional
    """

    def __init__(self, goals: Goals | None = None) -> None:
        self.goals = Goals() if goals is None else goals
        self._shared = SharedQueries()
        self._hosts: dict[int, tuple[float, float]] = {}
        self._levels: dict[int, float] = {}
        self._primary: dict[int, int] = {}
        self._copies: set[tuple[int, int]] = set()
        self._next_host = 0
        self._calm_since: float | None = None

    @property
    def hosts(self) -> tuple[int, ...]:
        """Numbers of the hosts."""
        return tuple(self._hosts)

    @property
    def queries(self) -> tuple[int, ...]:
        """Numbers of the queries that run."""
        return self._shared.running

    def view(self) -> View:
        """All of it as arrays."""
        column = {host: at for at, host in enumerate(self._hosts)}
        row = {node: at for at, node in enumerate(self._shared.nodes)}
        found = system(
            self._shared.loads(),
            [column[self._primary[node]] for node in row],
            self._shared.query_operators(),
            [failure for _, failure in self._hosts.values()],
            [self.goals.share * cores for cores, _ in self._hosts.values()],
            network=Network(self._shared.traffic()),
        )
        places = primaries(found)
        for node, host in self._copies:
            places[row[node], column[host]] = True
        return View(found, places, tuple(column), self._shared.running)

    def add_host(self, cores: float, failure: float) -> int:
        """Take a host in; gives its number.

        Parameters
        ----------
        cores : float
            Of the reference host, so that a faster one has more.
        failure : float
            Probability that it fails within the period.
        """
        if not cores > 0 or not 0 <= failure < 1:
            raise InputError(f"cores = {cores:g}, failure = {failure:g}: above 0, and from 0 to below 1, are needed")
        number, self._next_host = self._next_host, self._next_host + 1
        self._hosts[number] = (cores, failure)
        return number

    def add_query(self, query: Sequence[Operator], level: float | None = None) -> int:
        """Start a query; gives its number. Replicas make room for it.

        Its operators that do not run yet go next to their neighbours, onto hosts that are in use first.

        Parameters
        ----------
        level : float, optional
            Availability that it needs.

        Raises
        ------
        InputError
            An operator has no room even without any replica; nothing is changed.
        """
        if level is not None and not 0 <= level <= 1:
            raise InputError(f"level = {level:g}: a number from 0 to 1 is needed")
        number = self._shared.add(query)
        nodes, loads = self._shared.nodes, self._shared.loads()
        near: dict[int, list[int]] = {at: [] for at in range(len(nodes))}
        for u, v in self._shared.edges():
            near[u].append(nodes[v])
            near[v].append(nodes[u])
        used = dict.fromkeys(self._hosts, 0.0)
        for node, load in zip(nodes, loads.tolist(), strict=True):
            if node in self._primary:
                used[self._primary[node]] += load
        fresh = [at for at, node in enumerate(nodes) if node not in self._primary]
        for at in fresh:
            room = [
                h for h, (cores, _) in self._hosts.items() if used[h] + loads[at] <= self.goals.share * cores + SLACK
            ]
            if not room:
                self._shared.remove(number)
                for other in fresh:
                    self._primary.pop(nodes[other], None)
                raise InputError(f"no host has {loads[at]:g} cores left for an operator of the query: add a host")
            beside = [self._primary.get(node) for node in near[at]]
            best = min(room, key=lambda h: (-beside.count(h), used[h] == 0, h))
            self._primary[nodes[at]] = best
            used[best] += float(loads[at])
        if level is not None:
            self._levels[number] = level
        found, places, hosts, _ = self.view()
        self._take(relieved(found, places, 1.0), found, hosts)
        return number

    def remove_query(self, number: int) -> None:
        """Stop a query, and the operators that no other one needs, with their replicas."""
        self._shared.remove(number)
        self._levels.pop(number, None)
        left = set(self._shared.nodes)
        self._primary = {node: host for node, host in self._primary.items() if node in left}
        self._copies = {(node, host) for node, host in self._copies if node in left}

    def lose_host(self, number: int) -> tuple[int, ...]:
        """Go on without a host that crashed; gives the queries that had to stop, as nothing had room for them.

        A live copy becomes the primary at once. What has none starts anew, and replicas make room for it.
        """
        found, places, hosts, queries = self.view()
        column = self._column(number, hosts)
        smaller, moved, _ = host_lost(found, places, column)
        if moved[:, column].any():
            # One copy of each operator that lives, so that all other room is for those that do not.
            single = places & (places.sum(axis=1) == 1)[:, None]
            for operator in np.flatnonzero(places.sum(axis=1) > 1).tolist():
                alive = [h for h in np.flatnonzero(places[operator]).tolist() if h != column]
                single[operator, found.primary[operator] if found.primary[operator] in alive else alive[0]] = True
            smaller, moved, _ = host_lost(found, single, column)
        broken = set(np.flatnonzero(moved[:, column]).tolist())
        stopped = tuple(
            query for query, some in zip(queries, found.queries, strict=True) if broken & set(some.tolist())
        )
        self._take(moved, smaller, hosts)
        for query in stopped:
            self.remove_query(query)
        del self._hosts[number]
        return stopped

    def replan(self) -> Planned:
        """Plan the replicas anew, and change to it."""
        found, places, hosts, queries = self.view()
        target = self.goals.target
        if self._levels:
            levels = np.array([self._levels.get(query, target or 0.0) for query in queries])
            plan = replanned(found, places, levels=levels)
        elif target is not None:
            plan = replanned(found, places, target=target)
        else:
            plan = replanned(found, places, limit=max(0.0, remaining(found, primaries(found))))
        self._take(plan.places, found, hosts)
        return plan

    def observe(self, now_s: float) -> None:
        """Note how much of the cores primaries use, for `release`."""
        used, cores = float(self._shared.loads().sum()), sum(cores for cores, _ in self._hosts.values())
        if used >= CALM * cores:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now_s

    def release(self, now_s: float) -> int | None:
        """Give a host back if it is not needed; gives its number, or ``None``.

        With a target it is not needed if the target is reached without it. Without one, primaries must have used less
        than 60 % of all cores for ten minutes, as far as `observe` was told. The host with the least on it is tried
        first. With service levels none is released.
        """
        self.observe(now_s)
        if self._levels or len(self._hosts) < 2:
            return None
        found, places, hosts, _ = self.view()
        calm = 0.0 if self._calm_since is None else now_s - self._calm_since
        loads = np.bincount(found.primary, found.loads, found.hosts)
        for column in np.lexsort((np.arange(found.hosts), places.sum(axis=0), loads)).tolist():
            plan = without_host(found, places, column, self.goals.target, calm)
            if plan is None:
                continue
            # Where a primary was, another copy is the primary now: whichever the plan has.
            home = [
                at if plan.places[operator, at] else int(plan.places[operator].argmax())
                for operator, at in enumerate(found.primary.tolist())
            ]
            self._take(plan.places, replace(found, primary=np.array(home, np.int64)), hosts)
            number = hosts[int(column)]
            del self._hosts[number]
            self._calm_since = None
            return number
        return None

    def _take(self, places: Places, found: System, hosts: tuple[int, ...]) -> None:
        """Change to a plan."""
        nodes = self._shared.nodes
        self._primary = {node: hosts[at] for node, at in zip(nodes, found.primary.tolist(), strict=True)}
        self._copies = {(nodes[o], hosts[h]) for o, h in np.argwhere(places).tolist() if h != found.primary[o]}

    @staticmethod
    def _column(number: int, hosts: tuple[int, ...]) -> int:
        if number not in hosts:
            raise InputError(f"no host {number} is there")
        return hosts.index(number)

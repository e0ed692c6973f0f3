"""Deployments by a genetic algorithm (GA): near-optimal, but slow. See docs/specs/provisioning.md, section 3.6."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow
from goffish.scheduling.policies.initial import initial_deployment
from goffish.scheduling.policies.observation import Observation
from goffish.scheduling.policies.reactive import Reactive
from goffish.scheduling.policies.scaling import release_idle

if TYPE_CHECKING:
    from goffish.scheduling.policies.evolution import Search

Ints = NDArray[np.int64]


def genetic_deployment(
    flow: Flow, catalogue: Catalogue, rng: np.random.Generator, search: Search | None = None
) -> tuple[Deployment, list[float]]:
    """Return a first deployment of (almost) the highest profit over the goal's period; CE's plan if none reaches
    the goal.

    Returns
    -------
    Deployment
    list of float
        The best profit after each generation.
    """
    search = _search(search)
    greedy = initial_deployment(flow, catalogue, "central")
    seeds = [greedy, initial_deployment(flow, catalogue, "sharded")] if search.seeded else []
    most = max([len(greedy.machines), *(len(seed.machines) for seed in seeds)])
    slots = max(12, int(1.5 * len(greedy.machines)) + 4, most)
    empty = Deployment(catalogue, greedy.active)
    best, history = _evolved(flow, empty, seeds, slots, flow.rates, 0.0, flow.goal.period_h, 0.0, rng, search)
    return best or greedy, history


def genetic_adaptation(
    observation: Observation, rng: np.random.Generator, search: Search | None = None
) -> tuple[Deployment, list[float]]:
    """Return the deployment of (almost) the highest profit over the rest of the period, with few changes; CE's plan if
    none was found.

    Running machines keep their slot, machine type and observed speed.
    """
    search = _search(search)
    flow, live = observation.flow, observation.live
    central = Reactive("central", alternate_every=0, resource_every=1)
    greedy, _ = central.adapt(observation, None)
    new = len(greedy.machines) - sum(number in live.machines for number in greedy.machines)
    slots = len(live.machines) + max(int(0.5 * len(live.machines)) + 4, new)
    hours = max(0.0, (observation.steps - observation.step) * observation.interval_s / 3600.0)
    seeds = [live, greedy] if search.seeded else []
    best, history = _evolved(
        flow, live, seeds, slots, observation.observed, observation.spent, hours, search.change_weight, rng, search
    )
    return best or greedy, history


def _search(given: Search | None) -> Search:
    from goffish.scheduling.policies.evolution import Search

    return given or Search()


def _evolved(
    flow: Flow, live: Deployment, seeds: list[Deployment], slots: int, external: Floats, spent: float, hours: float,
    change_weight: float, rng: np.random.Generator, search: Search,
) -> tuple[Deployment | None, list[float]]:  # fmt: skip
    from goffish.scheduling.policies.evolution import Question, evolve

    catalogue, ids = live.catalogue, list(live.machines)
    limit = catalogue.limit
    slots = slots if limit is None else min(slots, max(limit, len(ids)))
    open_slots = slots - len(ids)
    question = Question(
        flow, external, catalogue.columns,
        np.array([*(live.machines[number].kind for number in ids), *[-1] * open_slots], np.int64),
        np.array([*(live.machines[number].coefficient for number in ids), *[1.0] * open_slots]),
        _encoded(live, ids, slots), flow.sigma * hours, flow.sigma * spent, change_weight,
    )  # fmt: skip
    best, history = evolve(question, [_encoded(seed, ids, slots) for seed in seeds], search, rng)
    return (None if best is None else _decoded(best, live, ids, slots)), history


def _encoded(plan: Deployment, ids: list[int], slots: int) -> Ints:
    """Convert a deployment to a row; machines of `ids` at their positions, others after them."""
    size, width = plan.active.size, int(plan.catalogue.cores.max())
    row = np.full(size + slots * (1 + width), -1, np.int64)
    row[:size] = plan.active
    known = set(ids)
    places = [*ids, *(number for number in plan.machines if number not in known)]
    for slot, number in enumerate(places[:slots]):
        machine = plan.machines.get(number)
        if machine is None or not machine.used:
            continue
        row[size + slot] = machine.kind
        elements = [element for element, count in sorted(machine.instances.items()) for _ in range(count)]
        first = size + slots + slot * width
        row[first : first + len(elements)] = elements
    return row


def _decoded(row: Ints, live: Deployment, ids: list[int], slots: int) -> Deployment:
    """Convert a row to a deployment; running machines without instances remain, idle."""
    size, width = live.active.size, int(live.catalogue.cores.max())
    found = Deployment(live.catalogue, row[:size])
    planned = min(0, min(ids, default=0))
    for slot in range(slots):
        kind, first = int(row[size + slot]), size + slots + slot * width
        elements = [e for e in row[first : first + width].tolist() if e >= 0] if kind >= 0 else []
        instances = {element: elements.count(element) for element in sorted(set(elements))}
        if slot < len(ids):
            old = live.machines[ids[slot]]
            found.add_machine(Machine(old.id, old.kind, old.coefficient, old.elapsed_s, instances))
        elif instances:
            planned -= 1
            found.add_machine(Machine(planned, kind, instances=instances))
    return found


@dataclass(frozen=True)
class Genetic:
    """The genetic algorithm as a policy.

    Attributes
    ----------
    seed : int
        Every decision uses a generator of this seed and the number of its interval.
    every : int
        Intervals between two decisions; 0: only the first deployment.
    search : Search, optional
    """

    seed: int = 0
    every: int = 3
    search: Search | None = field(default=None)

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the first deployment."""
        return genetic_deployment(flow, catalogue, np.random.default_rng([self.seed, 0]), self.search)[0]

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, None]:
        """Search again if the throughput left the goal's band, or a machine failed."""
        plan, goal = observation.live.copy(), observation.flow.goal
        due = observation.step > 0 and self.every > 0 and observation.step % self.every == 0
        outside = abs(observation.omega - goal.throughput) > goal.tolerance + SLACK
        if (due and outside) or observation.failed:
            rng = np.random.default_rng([self.seed, observation.step])
            plan, _ = genetic_adaptation(observation, rng, self.search)
        if observation.step > 0:
            release_idle(plan, observation.interval_s)
        return plan, None

"""Dataflows and deployments for the tests of planners, and a planner that follows docs/specs/plasticc.md word by word.

The reference keeps a whole deployment for every timestep and adds everything up anew for every window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from goffish.cloud.billing import billed_quanta, paid_left_s, rent
from goffish.cloud.catalogue import Billing, Catalogue, MachineType
from goffish.scheduling.dataflow.deployment import Deployment, Machine
from goffish.scheduling.dataflow.flow import Estimate, Flow, compile_flow
from goffish.scheduling.dataflow.model import Dataflow
from goffish.scheduling.policies.lookahead import Aims
from goffish.scheduling.policies.windows import Outlook

SLACK = 1e-9
M1 = (("small", 1, 1.0, 0.06), ("medium", 1, 2.0, 0.12), ("large", 2, 2.0, 0.24), ("xlarge", 4, 2.0, 0.48))


def machine_weights(deployment: Deployment, element: int, billing: Billing) -> dict[int, float]:
    """How much is lost by taking an instance of an element from each of its machines (VMWEIGHT, Eq. 10).

    Hours of paid time left x share of its cores in use x share of the element's instances that are elsewhere x speed
    for the price of an hour; where all instances are on one machine a tiny share.
    """
    found = {}
    for number, machine in deployment.machines.items():
        here = machine.instances.get(element, 0)
        price = float(deployment.catalogue.prices[machine.kind])
        hours = float(paid_left_s(machine.elapsed_s, billing)) / 3600.0
        if here:
            elsewhere = max(1.0 - here / int(deployment.counts[element]), SLACK)
            factor = hours * deployment.speed(number) / price if price > 0 else math.inf
            found[number] = deployment.used(number) * elsewhere * factor
    return found


def machine_classes(startup_s: float = 0.0, limit: int | None = None, only: int = len(M1)) -> Catalogue:
    """The first `only` of four classes at the same price for speed."""
    classes = tuple(MachineType(name=n, cores=c, speed=s, price_per_hour=p) for n, c, s, p in M1[:only])
    return Catalogue(classes=classes, startup_s=startup_s, limit=limit)


def chain(cheap: bool = False, message_bytes: int = 1000, **goal: float) -> Flow:
    """A -> B of the golden vectors; `cheap` gives B an alternate of cost 0.7 and value 0.8."""
    alternates = [{"id": "exact", "cost": 1.0, "value": 1.0}, {"id": "cheap", "cost": 0.7, "value": 0.8}]
    second = {"id": "B", "alternates": alternates} if cheap else {"id": "B", "cost": 1.0}
    elements = [{"id": "A", "cost": 0.5}, second]
    given = {"elements": elements, "edges": [["A", "B"]], "inputs": {"A": 4}, "goal": goal}
    given["message_bytes"] = message_bytes
    return compile_flow(Dataflow.model_validate(given))


def chain_deployment(first: int, second: int, startup_s: float = 0.0, elapsed_s: float = 0.0) -> Deployment:
    """So many machines of one core for A and for B."""
    live = Deployment(machine_classes(startup_s, only=1), np.zeros(2, np.int64))
    for number in range(first + second):
        live.add_machine(Machine(number, 0, elapsed_s=elapsed_s, instances={int(number >= first): 1}))
    return live


def chain_rates(*rates: float) -> np.ndarray:
    """External input of A for each timestep."""
    found = np.zeros((len(rates), 2))
    found[:, 0] = rates
    return found


def random_flow(rng: np.random.Generator, size: int, alternates: bool = True) -> Flow:
    """A dataflow with one to three alternates for each element, of which none are equal."""
    elements = []
    for at in range(size):
        count = int(rng.integers(1, 4)) if alternates else 1
        choices = [
            {
                "id": f"a{j}",
                "cost": rng.uniform(0.1, 0.6),
                "value": rng.uniform(0.4, 1.0),
                "selectivity": rng.uniform(0.5, 1.1),
            }
            for j in range(count)
        ]
        elements.append({"id": f"e{at}", "alternates": choices})
    edges = [[f"e{u}", f"e{v}"] for v in range(1, size) for u in range(v) if rng.random() < 1.5 / v]
    fed = {v for _, v in edges}
    inputs = {f"e{at}": rng.uniform(2, 10) for at in range(size) if f"e{at}" not in fed or rng.random() < 0.2}
    goal = {"cost_at_best_value": rng.uniform(2, 40), "cost_at_worst_value": 1.0}
    given = {"elements": elements, "edges": edges, "inputs": inputs, "goal": goal}
    return compile_flow(Dataflow.model_validate(given))


def random_deployment(rng: np.random.Generator, flow: Flow, catalogue: Catalogue, fill: float = 1.0) -> Deployment:
    """Enough instances for about `fill` of the expected input, on machines of all classes and ages, some cores free."""
    live = Deployment(catalogue, rng.integers(0, flow.alternate_counts))
    into, _ = flow.ideal(live.active, flow.rates)
    wanted = np.maximum(1, np.round(into * flow.cost[flow.rows(live.active)] * fill / 1.5)).astype(int)
    todo = np.repeat(np.arange(flow.size), wanted)
    rng.shuffle(todo)
    number = -1
    for element in todo.tolist():
        if number < 0 or live.free(number) == 0 or rng.random() < 0.15:
            number += 1
            age = float(rng.integers(0, 24)) * 300.0
            live.add_machine(Machine(number, int(rng.integers(len(catalogue.classes))), rng.uniform(0.6, 1.0), age))
        live.put(element, number)
    return live


def random_outlook(rng: np.random.Generator, flow: Flow, live: Deployment, steps: int) -> Outlook:
    """Rates that wander, speeds of all machines but a few."""
    rates = flow.rates * np.clip(1 + np.cumsum(rng.normal(0, 0.25, (steps, 1)), axis=0), 0.2, 3)
    speeds = {number: rng.uniform(0.5, 1.0, steps) for number in live.machines if rng.random() < 0.9}
    return Outlook(rates, speeds, rng.uniform(0.7, 1.0))


class Reference:
    """The planning procedure as it is written: §3.1 to §3.3, on deployments, without any short cut."""

    def __init__(self, flow: Flow, live: Deployment, outlook: Outlook, aims: Aims) -> None:
        self.flow, self.outlook, self.aims, self.steps = flow, outlook, aims, len(outlook.rates)
        self.catalogue = live.catalogue
        self.deployments = [live.copy() for _ in range(self.steps)]
        self.born = {number: -machine.elapsed_s for number, machine in live.machines.items()}
        self.retired: dict[int, int] = {}

    def coefficient(self, number: int, step: int) -> float:
        series = self.outlook.speeds.get(number)
        return self.outlook.typical if series is None else float(series[step])

    def mean_speed(self, number: int, kind: int, first: int) -> float:
        speeds = [self.coefficient(number, step) for step in range(first, self.steps)]
        return float(self.catalogue.speeds[kind]) * sum(speeds) / len(speeds)

    def cumulative(self, first: int, last: int) -> Estimate:
        power, length = np.zeros(self.flow.size), last - first
        for step in range(first, last):
            for number, machine in self.deployments[step].machines.items():
                speed = float(self.catalogue.speeds[machine.kind]) * self.coefficient(number, step)
                for element, count in machine.instances.items():
                    power[element] += count * speed / length
        messages = self.outlook.rates[first:last].sum(axis=0)
        return self.flow.estimate(self.deployments[first].active, power, messages / length)

    def plan(self) -> str:
        self.retire()
        at, direction, aims, changes, seen = 0, "", self.aims, 0, False
        while True:
            end = self.steps
            while end > at:
                omega = self.cumulative(at, end).omega
                if aims.target - aims.tolerance - SLACK <= omega <= aims.target + aims.tolerance + SLACK:
                    break
                end -= 1
            if end == self.steps:
                return "holds"
            if end > at or not seen:
                at, direction, seen = end, "", True
            if changes == aims.most_actions:
                return "guard"
            found = self.cumulative(at, self.steps)
            wanted = "up" if found.omega < aims.target - SLACK else "down"
            if direction not in {"", wanted}:
                return "direction flip"
            direction = wanted
            if not (self.up(at, found) if wanted == "up" else self.down(at, found)):
                return "no action possible"
            changes += 1

    def up(self, at: int, found: Estimate) -> bool:
        now, flow, aims = self.deployments[at], self.flow, self.aims
        element = min(range(flow.size), key=lambda i: (round(float(found.local[i]), 9), i))
        if found.local[element] >= 1 - SLACK:
            return False
        free = [number for number in self.ordered(now) if now.free(number) > 0 and number not in self.retired]
        kind, number, loss = -1, None, 0.0
        if free:
            number = min(
                free,
                key=lambda r: (
                    element not in now.machines[r].instances,
                    -round(self.mean_speed(r, now.machines[r].kind, at), 9),
                    self.ordered(now).index(r),
                ),
            )
        else:
            power = np.zeros(flow.size)
            for step in range(at, self.steps):
                for r, machine in self.deployments[step].machines.items():
                    speed = float(self.catalogue.speeds[machine.kind]) * self.coefficient(r, step)
                    for e, count in machine.instances.items():
                        power[e] += count * speed / (self.steps - at)
            cost = flow.cost[flow.rows(now.active)]
            missing = sum(
                max(0.0, aims.target * i * c - p) for i, c, p in zip(found.ideal_in, cost, power, strict=True)
            )
            missing /= self.outlook.typical
            classes = self.catalogue.classes
            enough = [k for k in range(len(classes)) if classes[k].power >= missing - SLACK]
            kind = min(enough or [self.catalogue.largest], key=lambda k: (classes[k].price_per_hour, k))
            left_s = (self.steps - at) * aims.interval_s
            loss = -aims.sigma * float(rent(left_s, classes[kind].price_per_hour, self.catalogue.billing))
        cheaper = self.alternate(now, element, flow.cost, below=True)
        if cheaper is not None and self.gain(now, element, cheaper, at) > loss + SLACK:
            self.switch(element, cheaper, at)
            return True
        if number is None:
            number = min(0, *now.machines) - 1
            early = math.ceil(self.catalogue.startup_s / aims.interval_s)
            for step in range(max(0, at - early), self.steps):
                self.deployments[step].add_machine(Machine(number, kind))
            self.born[number] = max(0, at - early) * aims.interval_s
        for step in range(at, self.steps):
            self.deployments[step].put(element, number)
        return True

    def down(self, at: int, found: Estimate) -> bool:
        now, flow, aims = self.deployments[at], self.flow, self.aims
        cost = flow.cost[flow.rows(now.active)]
        power = np.zeros(flow.size)
        for step in range(at, self.steps):
            for r, machine in self.deployments[step].machines.items():
                speed = float(self.catalogue.speeds[machine.kind]) * self.coefficient(r, step)
                for e, count in machine.instances.items():
                    power[e] += count * speed / (self.steps - at)
        ratio = [p / (i * c) if i > 0 else math.inf for p, i, c in zip(power, found.inflow, cost, strict=True)]
        for element in sorted(range(flow.size), key=lambda e: (-round(ratio[e], 9), e)):
            options = []
            better = self.alternate(now, element, flow.value, below=False)
            if better is not None:
                options.append((self.gain(now, element, better, at), 0, better))
            if now.counts[element] > 1:
                number = self.least_weight(at, element)
                saved = aims.sigma * self.avoided(number, now.machines[number].kind, at) if now.used(number) == 1 else 0
                options.append((saved, 1, number))
            for _, what, choice in sorted(options, key=lambda option: (-round(option[0], 9), option[1])):
                before = [deployment.copy() for deployment in self.deployments]
                if what == 0:
                    self.switch(element, choice, at)
                else:
                    for step in range(at, self.steps):
                        self.deployments[step].take(element, choice)
                if self.cumulative(at, self.steps).omega >= aims.target - SLACK:
                    return True
                self.deployments = before
        return False

    def least_weight(self, at: int, element: int) -> int:
        """On the deployment as it is predicted to be from `at` on."""
        seen = Deployment(self.catalogue, self.deployments[at].active)
        for number in self.ordered(self.deployments[at]):
            machine = self.deployments[at].machines[number]
            speed = self.mean_speed(number, machine.kind, at) / float(self.catalogue.speeds[machine.kind])
            age = at * self.aims.interval_s - self.born[number]
            seen.add_machine(Machine(number, machine.kind, speed, age, dict(machine.instances)))
        weights = machine_weights(seen, element, self.catalogue.billing)
        order = self.ordered(seen)
        return min(weights, key=lambda number: (float(f"{weights[number]:.8e}"), order.index(number)))

    def avoided(self, number: int, kind: int, at: int) -> float:
        billing = self.catalogue.billing
        kept = max(1.0, float(billed_quanta(self.steps * self.aims.interval_s - self.born[number], billing)))
        left = max(1.0, float(billed_quanta(at * self.aims.interval_s - self.born[number], billing)))
        return (kept - left) * float(self.catalogue.prices[kind])

    def alternate(self, now: Deployment, element: int, key: np.ndarray, below: bool) -> int | None:
        low, high = self.flow.alternate_offsets[element : element + 2]
        own = list(key[low:high])
        active = own[now.active[element]]
        found = [j for j, v in enumerate(own) if (v < active - SLACK if below else v > active + SLACK)]
        return min(found, key=lambda j: (-own[j] if below else own[j], j), default=None)

    def gain(self, now: Deployment, element: int, alternate: int, at: int) -> float:
        low = self.flow.alternate_offsets[element]
        gained = float(self.flow.value[low + alternate] - self.flow.value[low + now.active[element]])
        return gained / self.flow.size * (self.steps - at) / self.aims.steps

    def switch(self, element: int, alternate: int, at: int) -> None:
        for step in range(at, self.steps):
            self.deployments[step].active[element] = alternate

    def retire(self) -> None:
        first, aims, billing = self.deployments[0], self.aims, self.catalogue.billing
        end_s = min(aims.cadence, self.steps) * aims.interval_s
        left = {r: float(paid_left_s(machine.elapsed_s, billing)) for r, machine in first.machines.items()}
        due = [r for r in first.machines if left[r] <= end_s + SLACK]
        for number in sorted(due, key=lambda r: (first.used(r), r)):
            before = self.deployments
            work = before[0].copy()
            moved = self.emptied(work, number)
            if moved is None:
                continue
            self.deployments = [work.copy() for _ in range(self.steps)]
            if moved and self.cumulative(0, self.steps).omega < aims.target - SLACK:
                self.deployments = before
                continue
            self.retired[number] = math.ceil(left[number] / aims.interval_s - SLACK) - 1

    def emptied(self, work: Deployment, number: int) -> bool | None:
        flow, moved = self.flow, False
        for element, count in sorted(work.machines[number].instances.items()):
            near = {element, *flow.pred[slice(*flow.pred_offsets[element : element + 2])]}
            near |= set(flow.succ[slice(*flow.succ_offsets[element : element + 2])])
            for _ in range(count):
                free = [r for r in work.machines if r != number and r not in self.retired and work.free(r) > 0]
                if not free and work.counts[element] == 1:
                    return None
                work.take(element, number)
                moved = True
                if free:
                    work.put(
                        element,
                        min(
                            free,
                            key=lambda r: (
                                not near & work.machines[r].instances.keys(),
                                -round(self.mean_speed(r, work.machines[r].kind, 0), 9),
                                r,
                            ),
                        ),
                    )
        return moved

    @staticmethod
    def ordered(deployment: Deployment) -> list[int]:
        """Live machines by id, then planned ones as they came."""
        return sorted(deployment.machines, key=lambda r: (r < 0, abs(r)))

    def described(self, step: int) -> tuple[list[int], dict[int, tuple[int, dict[int, int]]]]:
        """Alternates and machines of a timestep."""
        return described(self.deployments[step], [r for r, when in self.retired.items() if when <= step])


def described(
    deployment: Deployment, without: Sequence[int] = ()
) -> tuple[list[int], dict[int, tuple[int, dict[int, int]]]]:
    """Alternates, and class and instances of each machine."""
    machines = {
        number: (machine.kind, dict(sorted(machine.instances.items())))
        for number, machine in sorted(deployment.machines.items())
        if number not in without
    }
    return deployment.active.tolist(), machines

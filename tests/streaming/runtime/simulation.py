"""Workers of a flow in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from goffish.streaming.flow import Flow
from goffish.streaming.ring.messages import Marker, Signal, Tuples
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.view import Member, MemoryRegistry, View
from goffish.streaming.runtime.layout import divide, next_step
from goffish.streaming.runtime.plan import Delivery, Plan
from goffish.streaming.runtime.stages import STAGE_BITS, Arc, divided
from goffish.streaming.runtime.worker import Begin, Worker
from goffish.streaming.updates.plan import plan_update
from goffish.streaming.updates.rollout import Progress, Rollout
from goffish.streaming.updates.versions import PartialWindow, Strategy

DATA = Tuples | Marker | Signal


class Cluster:
    """Workers that run a flow.

    Parameters
    ----------
    flow : Flow
    workers : int or mapping
        Of the flow, or of operators.
    replication, seed : int
    limit : int
        Records that a worker reads at a time.
    varies : bool
        Whether it sometimes reads less.
    here : set of int, optional
        Workers that can read the sources of one machine [default: all].
    old : sequence of int
        Workers of the run that is resumed.
    """

    def __init__(
        self,
        flow: Flow,
        workers: int | Mapping[str, int],
        *,
        replication: int = 1,
        seed: int = 0,
        limit: int = 20,
        checkpoint_s: float = 0.3,
        folder: Path | None = None,
        varies: bool = False,
        delivery: Delivery = Delivery.EXACTLY_ONCE,
        here: set[int] | None = None,
        old: Sequence[int] = (),
    ) -> None:
        self.here, self.old = here, old
        self.varies = varies
        self.random = random.Random(seed)
        self.options = Options(checkpoint_s=checkpoint_s)
        self.limit = limit
        self.now = 0.0
        self.folder = folder
        sizes = {0: workers} if isinstance(workers, int) else {0: 1} | dict(enumerate(workers.values(), 1))
        topology = divided(flow.check(), () if isinstance(workers, int) else workers)
        self.plan, self.delivery = Plan(topology), delivery
        self.loops_empty, self._received = False, dict[str, dict[int, float]]()
        self._reports: dict[int, tuple[int, str]] = {}  # of workers: the view, and the state
        self._sent = 0  # commands that have not arrived
        numbers = itertools.count()
        self.staff = {stage: [next(numbers) for _ in range(size)] for stage, size in sizes.items()}
        workers = sum(sizes.values())
        self.version, self.origins = 0, dict[str, int]()
        self.rollout: Rollout | None = None
        members = tuple(Member(number, token) for number, token in self.layout.items())
        self.registry = MemoryRegistry(View(1, members, min(replication, workers - 1)))
        readers = [one for one in self.staff[0] if self.is_here(one)]
        for number, lane in enumerate(self.plan.lanes):
            self.registry.claim(lane, readers[number % len(readers)])
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last: dict[tuple[int, int, bool], float] = {}
        self.dead: dict[int, float] = {}
        self.workers: dict[int, Worker] = {}
        for number in range(workers):
            self.add(number)
        if here is not None:
            self._bring_back()

    def is_here(self, number: int) -> bool:
        """Whether a worker can read the sources of one machine."""
        return self.here is None or number in self.here

    def _bring_back(self) -> None:
        """Let workers hand on what they cannot read, as the controller does."""
        readers = [one.number for one in self.alive if self.is_here(one.number)]
        for worker in self.alive if readers else ():
            for source, count in worker.partitions.items():
                if count and not self.is_here(worker.number):
                    worker.give_partitions(source, self.random.choice(readers), count, self.now)
                    self._post(worker.number)
        self._at(self.now + self.random.uniform(0.05, 0.15), self._bring_back)

    def add(self, number: int) -> None:
        """Start a worker."""
        begin = Begin(
            self.folder, old=self.old, version=self.version, origins=self.origins, delivery=self.delivery,
            here=self.is_here(number),
        )  # fmt: skip
        self.workers[number] = Worker(self.plan, number, self.registry, self.options, self.now, begin)
        if self.loops_empty:
            self.workers[number].end_loops(self.now)
        self._at(self.now + self.random.random() * 0.01, partial(self._turn, number))

    @property
    def layout(self) -> dict[int, int]:
        """First positions that the workers should have."""
        stages = self.plan.topology.stages
        parts = [divide(Arc(stage, STAGE_BITS) if stages else Arc(), workers) for stage, workers in self.staff.items()]
        return {worker: token for part in parts for worker, token in part.items()}

    def arrange(self, limit: float = 30.0) -> None:
        """Move positions until all workers have those that they should have."""
        end = self.now + limit
        while True:
            view = self.registry.read()
            dead = any(number in self.dead for number in view.nodes.tolist())
            step = None if dead or view.moves else next_step(view, self.layout, self.workers.keys() - self.dead.keys())
            if step is not None:
                self.workers[step.owner].node.give(step.target, self.now, leaves=step.part is None, part=step.part)
                self._post(step.owner)
            elif not dead and not view.moves:
                return
            assert self.now < end, "the layout is not reached"
            self.run(self.now + 0.02)

    def update(self, flow: Flow, strategy: Strategy, partial_windows: PartialWindow = PartialWindow.EMIT) -> None:
        """Begin to update the flow."""
        number = max(worker.newest for worker in self.workers.values()) + 1
        plan = plan_update(number, self.plan.topology, divided(flow.check()), strategy, partial_windows)
        plan.check_sinks()
        self.rollout = Rollout(plan, self.now)
        self._advance()

    def _advance(self) -> None:
        assert self.rollout is not None
        reports = {
            number: Progress(worker.newest, worker.version, worker.drained)
            for number, worker in self.workers.items() if number not in self.dead
        }  # fmt: skip
        for number, command in self.rollout.advance(reports, self.registry.read().nodes.tolist(), self.now):
            self._sent += 1
            self._at(self.now + self.random.uniform(0, 0.03), partial(self._obey, number, self.rollout, command))
        if not self.rollout.ending:
            self._at(self.now + 0.02, self._advance)
        elif self.rollout.state == "complete":
            self.plan, self.version = Plan(self.rollout.plan.new), self.rollout.plan.number
            self.origins |= dict.fromkeys(self.rollout.plan.own_state, self.version)

    def _obey(self, number: int, rollout: Rollout, command: dict[str, Any]) -> None:
        self._sent -= 1
        self._reports.pop(number, None)
        if number in self.dead:
            return
        worker = self.workers[number]
        match command["command"]:
            case "prepare":
                worker.prepare_update(rollout.plan)
            case "activate":
                worker.activate_update(command["version"], self.now, paused=command["paused"])
            case "complete":
                worker.complete_update(command["version"])
            case "abort":
                worker.abort_update()
        self._post(number)

    def hand_over(self) -> None:
        """Let workers hand all partitions to others that are drawn at random."""
        numbers = [worker.number for worker in self.alive]
        for number in numbers:
            target = self.random.choice([one for one in numbers if one != number])
            for source in self.plan.sources:
                self.workers[number].give_partitions(source, target, len(self.plan.lanes), self.now)

    def kill(self, number: int) -> None:
        """Kill a worker: what it has sent arrives or not, in order."""
        self.dead[number] = self.now + self.random.choice((0.0, 0.002))

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    @property
    def alive(self) -> list[Worker]:
        """Workers on the ring that live."""
        return [self.workers[n] for n in self.registry.read().nodes.tolist() if n not in self.dead]

    def finish(self, limit: float = 60.0, step: float = 0.1) -> None:
        """Run until all workers have finished."""
        end = self.now + limit
        while not self._all("finished"):
            assert self.now < end, "the flow does not finish"
            self.run(self.now + step)
            if self.plan.loops and not self.loops_empty and self._all("quiet"):
                self.loops_empty = True
                for worker in self.alive:
                    worker.end_loops(self.now)

    def _all(self, state: str) -> bool:
        """Whether all workers report a state with the same ring; with loops, since the last call."""
        if self._sent or not (self.rollout is None or self.rollout.ending):
            return False
        alive, before, epoch = self.alive, self._received.get(state), self.registry.read().epoch
        reached = len(alive) == len(self.registry.read().members) and all(
            self._reports.get(one.number) in ((epoch, state), (epoch, "finished")) for one in alive
        )
        received = {one.number: sum(counts.received for counts in one.counts.values()) for one in alive}
        self._received[state] = received if reached else {}
        return reached and (not self.plan.loops or received == before)

    def _turn(self, number: int) -> None:
        if number in self.dead:
            return
        worker = self.workers[number]
        worker.tick(self.now)
        state = "finished" if worker.finished else "quiet" if worker.quiet else ""
        self._reports[number] = worker.node.view.epoch, state
        worker.read(self.random.randrange(1, self.limit + 1) if self.varies else self.limit, self.now)
        for _ in range(self.random.randrange(6)):
            worker.work(self.now, self.random.choice((None, 1, 3)))
        self._post(number)
        self._at(self.now + self.random.uniform(0.001, 0.01), partial(self._turn, number))

    def _post(self, number: int) -> None:
        worker = self.workers[number]
        out, worker.outbox = worker.outbox, []
        for receiver, message in out:
            channel = (number, receiver, isinstance(message, DATA))
            arrival = max(self.now + self.random.uniform(1e-4, 3e-3), self._last.get(channel, 0.0) + 1e-9)
            self._last[channel] = arrival
            self._at(arrival, partial(self._arrive, number, receiver, message))

    def _arrive(self, sender: int, receiver: int, message: Any) -> None:
        if receiver in self.dead or receiver not in self.workers or self.now > self.dead.get(sender, np.inf):
            return
        self.workers[receiver].receive(sender, message, self.now)
        self._post(receiver)

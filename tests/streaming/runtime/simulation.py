"""Workers of a flow in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from goffish.streaming.flow import Flow
from goffish.streaming.ring.messages import Marker, Signal, Tuples
from goffish.streaming.ring.node import Options
from goffish.streaming.ring.ranges import CIRCLE
from goffish.streaming.ring.view import Member, MemoryRegistry, View
from goffish.streaming.runtime.worker import Plan, Worker

DATA = Tuples | Marker | Signal


class Cluster:
    """Workers that run a flow.

    Parameters
    ----------
    flow : Flow
    workers, replication, seed : int
    limit : int
        Records that a worker reads at a time.
    """

    def __init__(
        self,
        flow: Flow,
        workers: int,
        *,
        replication: int = 1,
        seed: int = 0,
        limit: int = 20,
        checkpoint_s: float = 0.3,
        folder: Path | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.options = Options(checkpoint_s=checkpoint_s)
        self.limit = limit
        self.now = 0.0
        self.folder = folder
        self.plan = Plan(flow.check())
        members = tuple(Member(n, n * CIRCLE // workers) for n in range(workers))
        self.registry = MemoryRegistry(View(1, members, min(replication, workers - 1)))
        for number, lane in enumerate(self.plan.lanes):
            self.registry.claim(lane, number % workers)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last: dict[tuple[int, int, bool], float] = {}
        self.dead: dict[int, float] = {}
        self.workers: dict[int, Worker] = {}
        for number in range(workers):
            self.add(number)

    def add(self, number: int) -> None:
        """Start a worker."""
        self.workers[number] = Worker(self.plan, number, self.registry, self.options, self.now, self.folder)
        self._at(self.now + self.random.random() * 0.01, partial(self._turn, number))

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

    def finish(self, limit: float = 60.0) -> None:
        """Run until all workers have finished."""
        end = self.now + limit
        while not (len(self.alive) == len(self.registry.read().members) and all(w.finished for w in self.alive)):
            assert self.now < end, "the flow does not finish"
            self.run(self.now + 0.1)

    def _turn(self, number: int) -> None:
        if number in self.dead:
            return
        worker = self.workers[number]
        worker.tick(self.now)
        worker.read(self.limit, self.now)
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

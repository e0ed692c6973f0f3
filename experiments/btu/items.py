"""A dataflow message by message on leased hosts, under a controller of billing time units.

See docs/specs/btu.md, section 4.1.

Every operator has one queue, served by its instances one message each. Instances and hosts take time to start, and
instances finish what they serve. The controller is that of `goffish.scheduling.policies.btu`; here are only time,
noise and bills.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.btu.item_results import ItemResult, Life, Minute
from experiments.btu.item_world import Trace, World, make_trace, make_world, unfinished
from experiments.btu.patterns import MESSAGES, STEP_S
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Flow
from goffish.scheduling.policies.btu.controller import Autoscaler
from goffish.scheduling.policies.btu.model import SLACK, Action, ClusterState, OperatorNeeds, Size
from goffish.scheduling.policies.btu.ranking import feasibility, needs_of

__all__ = ["Instance", "ItemRun", "ItemSetting", "Trace", "machine_trace", "run_items"]
#: Events of one moment happen in this order.
_READY, _STOPPED, _MONITOR, _HOST_END, _UNIT_END, _CYCLE = range(6)


class ItemSetting(NamedTuple):
    """Times in seconds; ranges are uniform. Defaults: §2.5, §3.9 and §4.1.

    Attributes
    ----------
    unit_s : float
        Billing time unit.
    service_share : float
        Part of an operator's objective in which an instance is busy (kappa); the rest is the messaging layer's.
    noise : float
        Sigma of the log-normal factor, with mean 1, of both parts.
    size : Size
        Of a host.
    host_start_s, instance_start_s, image_s : (float, float)
    monitor_s, cycle_s : float
    sample_every : int
        Of so many messages of an operator, the duration of one is known to the controller.
    price_per_minute : float
        Of a host.
    """

    unit_s: float = 3600.0
    service_share: float = 0.1
    noise: float = 0.3
    size: Size = Size(4.0, 7168.0)
    host_start_s: tuple[float, float] = (30.0, 60.0)
    instance_start_s: tuple[float, float] = (5.0, 10.0)
    image_s: tuple[float, float] = (10.0, 20.0)
    monitor_s: float = 15.0
    cycle_s: float = 60.0
    sample_every: int = 10
    price_per_minute: float = 0.1


@dataclass
class Instance:
    """A container; `status` is ``waiting`` (for room), ``starting``, ``ready`` or ``draining``.

    `moved_from` is the host that it replaces an instance of.
    """

    number: int
    operator: int
    host: int
    status: str
    slot: int = -1
    moved_from: int | None = None


def machine_trace(flow: Flow, machines: NDArray[np.int64]) -> Trace:
    """Messages of so many machines in each minute: those of each step of 480 ms are spread evenly over it."""
    return make_trace(flow, machines, MESSAGES, STEP_S)


def run_items(
    flow: Flow,
    trace: Trace,
    controller: Autoscaler,
    setting: ItemSetting | None = None,
    seed: int = 0,
    *,
    start: Sequence[int] | None = None,
    observer: Callable[[ItemRun, str], None] | None = None,
) -> ItemResult:
    """Run a controller on a load.

    Parameters
    ----------
    flow : Flow
        Whose elements have cores, memory and objectives; selectivities of one message for so many.
    trace : Trace
        What comes in (`machine_trace`).
    controller : Autoscaler
    setting : ItemSetting, optional
    seed : int
        Of start-up times, noise, and the order in which operators are looked at.
    start : sequence of int, optional
        Instances of each operator at the beginning; default: one. They go first-fit onto as many hosts as they need.
    observer
        Called with the run and the kind of event after each.

    Returns
    -------
    ItemResult

    Raises
    ------
    InputError
        An element without an objective, or whose selectivity is not one message for so many.
    """
    run = ItemRun(flow, trace, controller, setting or ItemSetting(), seed)
    run.begin([1] * flow.size if start is None else start)
    return run.run(observer)


@dataclass(eq=False)
class ItemRun:
    """A run while it runs.

    Attributes
    ----------
    state : ClusterState
        What the controller sees.
    world : World
        What is true of the messages.
    instances : dict from number to Instance
    ready_s : dict from host to float
        When hosts work.
    actions : list of (float, Action)
        Everything that was done, with its moment.
    failed_plans : int
        Ends of units at which no plan to empty the host was feasible, and hosts that were to be empty by the end of
        their unit and were not (§3.6). A host that is kept without a plan, as the last one is, does not count.
    """

    flow: Flow
    trace: Trace
    controller: Autoscaler
    setting: ItemSetting
    seed: int
    now: float = 0.0
    instances: dict[int, Instance] = field(default_factory=dict)
    ready_s: dict[int, float] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)
    actions: list[tuple[float, Action]] = field(default_factory=list)
    migrations: int = 0
    failed_plans: int = 0
    prolongings: int = 0
    early_releases: int = 0

    def __post_init__(self) -> None:
        self.state = ClusterState(operators_of(self.flow), self.setting.size)
        self.world: World = make_world(
            self.flow, self.trace, self.setting, self.controller.settings.window, np.random.default_rng([self.seed, 1])
        )
        self._times = np.random.default_rng([self.seed, 2])
        self._order = np.random.default_rng([self.seed, 3])
        self._leased_s: dict[int, float] = {}
        self._images_s: dict[tuple[int, int], float] = {}
        self._waiting: list[int] = []
        self._events: list[tuple[float, int, int, int]] = []
        self._minutes: list[Minute] = []
        self._missed = 0
        self._next = 0

    def begin(self, counts: Sequence[int]) -> None:
        """Instances that work from the beginning, and their hosts."""
        end = self.trace.end_s
        for operator, count in enumerate(counts):
            need = needs_of(self.state, operator)
            for _ in range(count):
                fitting = (
                    h for h in self.state.hosts.values() if feasibility(h.free(self.state.operators), need) >= 1 - SLACK
                )
                host = next(fitting, None) or self.state.lease()
                assert host is not None
                if host.number not in self.ready_s:
                    self._leased(host.number, 0.0)
                self.state.start(operator, host.number)
                self._images_s[host.number, operator] = 0.0
                instance = self._instance(operator, host.number, "ready")
                instance.slot = self.world.add(operator, 0.0)
        for kind, every in ((_MONITOR, self.setting.monitor_s), (_CYCLE, self.setting.cycle_s)):
            for at in range(1, int(end / every) + 1):
                self._at(at * every, kind, -1)

    def run(self, observer: Callable[[ItemRun, str], None] | None) -> ItemResult:
        """All events up to the end."""
        end = self.trace.end_s
        while self._events and self._events[0][0] < end:
            self.now = self.state.now_s = self._events[0][0]
            self.world.advance(self.now)
            kind = self._events[0][1]
            due = []
            while self._events and self._events[0][:2] == (self.now, kind):
                due.append(heapq.heappop(self._events)[3])
            if kind == _HOST_END:
                due.sort(key=lambda host: (self.state.hosts[host].instances if host in self.state.hosts else 0, host))
            for number in due:
                self._happen(kind, number)
            if observer is not None:
                observer(self, ("ready", "stopped", "monitor", "host_end", "unit_end", "cycle")[kind])
        self.now = end
        self.world.advance(end)
        for host in self.state.hosts:
            self.lives.append(Life(self._leased_s[host], self.ready_s[host], end))
        adapted_s, times = float(self.world.adapting_s[0]), int(self.world.adapted[0])
        acted = [action.kind for _, action in self.actions]
        return ItemResult(
            unfinished=unfinished(self.world, end), seen=self.world.seen, lives=tuple(self.lives),
            unit_s=self.setting.unit_s, penalty=self.controller.settings.penalty,
            price_per_minute=self.setting.price_per_minute, leases=len(self._leased_s), prolongings=self.prolongings,
            early_releases=self.early_releases, failed_plans=self.failed_plans, ups=acted.count("start"),
            downs=acted.count("drain"), migrations=self.migrations,
            adapting_s=adapted_s / times if times else float("nan"), minutes=tuple(self._minutes),
        )  # fmt: skip

    def _happen(self, kind: int, number: int) -> None:
        if kind == _READY:
            self._instance_ready(number)
        elif kind == _STOPPED:
            self._gone(self.instances.pop(number))
        elif kind == _MONITOR:
            self._measure()
        elif kind == _HOST_END:
            # A host that is gone, or was prolonged already, has no end here.
            if number in self.state.hosts:
                planned = self._may_leave()
                done = self.controller.host_end(self.state, number, self.setting.unit_s)
                self.failed_plans += planned and any(action.kind == "prolong" for action in done)
                self._enact(done)
        elif kind == _UNIT_END:
            empty = not any(i.host == number for i in self.instances.values())
            self.failed_plans += not empty
            self._enact(self.controller.unit_end(self.state, number, self.setting.unit_s, empty))
        else:
            self._enact(self.controller.cycle(self.state, self._order))
            self._note()

    def _may_leave(self) -> bool:
        """Whether hosts are planned to be emptied at all: neither the last one nor, where so set, after a lease."""
        rested = self.now - self.state.leased_s >= self.controller.settings.rest_s
        return len(self.state.usable) > 1 and rested

    def _enact(self, done: Sequence[Action]) -> None:
        for action in done:
            self.actions.append((self.now, action))
            kind, host = action.kind, action.host
            if kind == "lease":
                self._leased(host, self.now + self._drawn(self.setting.host_start_s))
            elif kind == "start":
                self._place(self._instance(action.operator, host, "waiting"))
            elif kind == "migrate":
                instance = self._instance(action.operator, action.target, "waiting")
                instance.moved_from = host
                self._place(instance)
            elif kind == "drain":
                self._drain(action.operator, host)
            elif kind == "prolong":
                until = self.state.hosts[host].paid_until_s
                # A unit that would begin when all is over is not paid.
                self.prolongings += until - self.setting.unit_s < self.trace.end_s - SLACK
                self._host_end(host)
            elif kind == "close":
                self._at(self.state.hosts[host].paid_until_s, _UNIT_END, host)
            elif kind == "release":
                self.lives.append(Life(self._leased_s[host], self.ready_s[host], self.now))

    def _leased(self, host: int, ready: float) -> None:
        self._leased_s[host], self.ready_s[host] = self.now, ready
        self.state.hosts[host].paid_until_s = ready + self.setting.unit_s
        if self.controller.by_units:
            self._host_end(host)

    def _host_end(self, host: int) -> None:
        before = self.controller.settings.end_share * self.setting.unit_s
        self._at(self.state.hosts[host].paid_until_s - before, _HOST_END, host)

    def _instance(self, operator: int, host: int, status: str) -> Instance:
        made = Instance(self._next, operator, host, status)
        self.instances[self._next] = made
        self._next += 1
        return made

    def held(self, host: int) -> Size:
        """What starting, running and draining instances hold of a host."""
        here = [needs_of(self.state, i.operator) for i in self.instances.values() if i.host == host]
        waiting = [needs_of(self.state, self.instances[n].operator) for n in self._waiting
                   if self.instances[n].host == host]  # fmt: skip
        return Size(
            sum(n.cores for n in here) - sum(n.cores for n in waiting),
            sum(n.memory_mb for n in here) - sum(n.memory_mb for n in waiting),
        )

    def _place(self, instance: Instance) -> None:
        """Start an instance, or let it wait until others have left."""
        self._waiting.append(instance.number)
        self._start_waiting(instance.host)

    def _start_waiting(self, host: int) -> None:
        for number in [n for n in self._waiting if self.instances[n].host == host]:
            instance, held = self.instances[number], self.held(host)
            free = Size(self.setting.size.cores - held.cores, self.setting.size.memory_mb - held.memory_mb)
            if feasibility(free, needs_of(self.state, instance.operator)) < 1 - SLACK:
                return
            self._waiting.remove(number)
            instance.status = "starting"
            begun = max(self.now, self.ready_s[host])
            key = (host, instance.operator)
            if key not in self._images_s:
                self._images_s[key] = begun + self._drawn(self.setting.image_s)
            ready = max(begun, self._images_s[key]) + self._drawn(self.setting.instance_start_s)
            self._at(ready, _READY, number)

    def _instance_ready(self, number: int) -> None:
        instance = self.instances.get(number)
        if instance is None:
            return
        instance.status = "ready"
        instance.slot = self.world.add(instance.operator, self.now)
        source = self.state.hosts.get(-1 if instance.moved_from is None else instance.moved_from)
        if source is not None and source.placed[instance.operator]:
            self.state.drain(instance.operator, source.number)
            self._drain(instance.operator, source.number)
            self.migrations += 1
        instance.moved_from = None

    def _drain(self, operator: int, host: int) -> None:
        """Let an instance go: one that does not work yet, else one that has nothing to do, else the oldest."""
        order = {"waiting": 0, "starting": 1, "ready": 2}
        found = min(
            (i for i in self.instances.values() if (i.operator, i.host) == (operator, host) and i.status in order),
            key=lambda i: (i.moved_from is not None, order[i.status], self.world.serves(i.slot), i.number),
        )
        if found.status == "ready":
            found.status = "draining"
            self._at(max(self.now, self.world.drain(found.slot, self.now)), _STOPPED, found.number)
            return
        if found.status == "waiting":
            self._waiting.remove(found.number)
        self._gone(self.instances.pop(found.number))

    def _gone(self, instance: Instance) -> None:
        """An instance has left: others may start, and on demand its host goes with the last one."""
        host = instance.host
        self._start_waiting(host)
        alone = not any(i.host == host for i in self.instances.values())
        if not self.controller.by_units and alone and len(self.state.hosts) > 1:
            self.early_releases += abs((self.now - self.ready_s[host]) % self.setting.unit_s) > 1e-6
            del self.state.hosts[host]
            self.lives.append(Life(self._leased_s[host], self.ready_s[host], self.now))

    def _measure(self) -> None:
        w = self.world
        self.state.queues = w.length.astype(float).tolist()
        for operator in range(self.flow.size):
            count = min(int(w.sampled[operator]), w.recent.shape[1])
            if count:
                self.state.measure(operator, w.recent[operator, -count:].tolist(), float(w.sampled_s[operator]))

    def _note(self) -> None:
        """What runs now, with the source's objective."""
        machines = int(self.trace.machines[min(int(self.now / 60.0), self.trace.machines.size) - 1])
        hosts, counts = len(self.state.hosts), self.state.counts
        cores = sum(c * n for c, n in zip(counts, self.state.operators.cores, strict=True))
        memory = sum(c * n for c, n in zip(counts, self.state.operators.memory_mb, strict=True))
        missed = int(self.world.seen[:, :, 1].sum())
        price = self.setting.unit_s / 60.0 * self.setting.price_per_minute
        objective = (
            hosts * price + 2.0 - cores / (hosts * self.setting.size.cores)
            - memory / (hosts * self.setting.size.memory_mb)
            + (missed - self._missed) * self.controller.settings.penalty
        )  # fmt: skip
        self._missed = missed
        self._minutes.append(Minute(machines, sum(counts), hosts, int(self.world.length.sum()), objective))

    def _drawn(self, limits: tuple[float, float]) -> float:
        return float(self._times.uniform(*limits))

    def _at(self, moment: float, kind: int, number: int) -> None:
        heapq.heappush(self._events, (moment, kind, len(self._events), number))


def operators_of(flow: Flow) -> OperatorNeeds:
    """The operators of a dataflow whose elements have cores, memory and an objective.

    Raises
    ------
    InputError
        An element without an objective (`duration_s`).
    """
    for name, duration in zip(flow.names, flow.needs.duration_s.tolist(), strict=True):
        if math.isinf(duration):
            raise InputError(f"element {name}: needs.duration_s is needed")
    needs = flow.needs
    return OperatorNeeds(
        flow.names, tuple(needs.cores.tolist()), tuple(needs.memory_mb.tolist()), tuple(needs.duration_s.tolist())
    )

"""Policies that drive a running flow: machines of a provider, workers as instances, decisions every interval."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.providers import LocalProvider, Provider, Task
from goffish.cloud.variability import Variability, steady
from goffish.errors import InputError, JobError
from goffish.scheduling.control.cluster import Changes
from goffish.scheduling.control.loop import Control, Setting, carry_out
from goffish.scheduling.control.records import Measured, Result
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats
from goffish.streaming.metrics import Metrics
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.runtime.launch import Handle, start_here
from goffish.streaming.runtime.plan import Delivery
from goffish.streaming.synthetic import Element, alternate_name, model_flow

_STARTS_S = 120.0
#: Workers of a machine that is released have this long to hand over what they have.
_LEAVES_S = 20.0
#: Part of a processor for the worker that reads the sources: when all machines fail, it must not do their work.
_READER_SHARE = 0.02
#: Messages that take less of a processor than this cannot be distinguished from the cost of passing them on.
_SHORTEST_S = 2e-4


def run_live(
    setting: Setting, *, reference_share: float | None = None, progress: Callable[[int], None] | None = None
) -> Result:
    """Run a policy on a running flow with real processes of this computer, in real time.

    Parameters
    ----------
    setting : Setting
        Its variability does not count: machines are as fast as they are found to be. Its failures kill machines.
    reference_share : float, optional
        Part of a processor that a reference core is; default: so that all cores of the first deployment together take
        half of the processors there are.
    progress
        Called with the number of intervals that are over.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        The dataflow needs so many cores that a reference core would be too small a part of a processor to be measured.
    """
    found = _Found(steady().speed)
    control = Control(replace(setting, variability=found))
    share = reference_share or _default_share(setting)
    with FlowController(control, found, share).running() as controller:
        return carry_out(control, controller, lambda step, *_: None if progress is None else progress(step + 1))


@dataclass(frozen=True)
class _Found(Variability):
    """Coefficients as they were measured; 1 where a machine had nothing to do."""

    measured: dict[int, float] = field(default_factory=dict)

    def speeds(self, machines: NDArray[np.int64], since_s: Floats | float, until_s: Floats | float) -> Floats:
        return np.array([self.measured.get(int(number), 1.0) for number in machines])


@dataclass
class _OnMachine:
    """Handle of a worker that runs on a machine of a provider."""

    provider: Provider
    task: Task
    pid: int = 0

    def poll(self) -> int | None:
        if self.provider.states().get(self.task.machine) in ("failed", "stopped"):
            return -signal.SIGKILL
        return self.provider.exit_code(self.task)

    def kill(self) -> None:
        """Workers end with their connection, and the machine with its provider."""

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None and time.monotonic() < end:
            time.sleep(0.02)
        return -signal.SIGKILL if code is None else code


@dataclass
class _Instance:
    element: int
    machine: int
    stands_for: int = -1  # machine whose instance this is a replica of


class FlowController:
    """A running flow, as a policy's runtime of a dataflow.

    Every core in use of a machine is a worker process; instances of an element share its records. Replicas are workers
    that have started, and that get records when the machine of their original fails.

    Parameters
    ----------
    control : Control
    found : _Found
        Receives the speeds of machines.
    share : float
        Part of a processor that a reference core is.
    """

    def __init__(self, control: Control, found: _Found, share: float) -> None:
        self._control, self._found, self._share = control, found, share
        self._provider: LocalProvider
        self._cluster: Cluster
        self._elements: list[Element] = []
        self._instances: dict[int, _Instance] = {}
        self._places: dict[int, int] = {}  # machine of each worker, while it starts
        self._released: dict[int, float] = {}  # machines that end when their workers have left, or then
        self._step, self._began = 0, 0.0
        self._active: NDArray[np.int64] = np.zeros(control.setting.flow.size, np.int64)
        self._before: tuple[Floats, Floats] = self._zeros(), self._zeros()
        self._occupied: dict[int, tuple[float, float]] = {}

    def _zeros(self) -> Floats:
        return np.zeros(self._control.setting.flow.size)

    @contextmanager
    def running(self) -> Iterator[FlowController]:
        """Start the machines of the first deployment; all end when this does."""
        setting = self._control.setting
        with (
            tempfile.TemporaryDirectory(prefix="goffish-") as folder,
            LocalProvider(setting.catalogue, folder=folder) as self._provider,
        ):
            try:
                yield self
            finally:
                if hasattr(self, "_cluster"):
                    self._cluster.close()

    # What the policy decides.

    def apply(self, step: int, plan: Deployment, changes: Changes) -> None:
        """Start machines and workers of a plan, switch alternates, and let others hand over what they have."""
        self._step = step
        if step == 0:
            self._began = time.monotonic()
        for number in changes.started:
            given = self._provider.start(plan.machines[number].kind)
            if given != number:
                raise JobError(f"the provider calls machine {number} {given}")
        self._released |= dict.fromkeys(changes.stopped, time.monotonic() + _LEAVES_S)
        if step == 0:
            self._begin(plan)
        self._switch(plan)
        self._place(plan)

    def _begin(self, plan: Deployment) -> None:
        """Start the flow on the machines of the first deployment."""
        setting, end = self._control.setting, time.monotonic() + _STARTS_S
        while "starting" in self._provider.states().values():
            if time.monotonic() > end:
                raise JobError(f"machines did not start within {_STARTS_S:g} s")
            time.sleep(0.05)
        topology, self._elements = model_flow(setting.flow, setting.rates, setting.interval_s, self._share)
        places = {
            element: [number for number, one in plan.machines.items() for _ in range(one.instances.get(element, 0))]
            for element in range(setting.flow.size)
        }
        # Worker 0 is for the sources; the others have the order of the stages.
        order = [(element, machine) for element, machines in places.items() for machine in machines]
        self._places = dict(enumerate((machine for _, machine in order), 1))
        self._instances = {number: _Instance(*place) for number, place in enumerate(order, 1)}
        self._cluster = Cluster(
            topology, {one.first: len(places[element]) for element, one in enumerate(self._elements)},
            delivery=Delivery.AT_LEAST_ONCE, launch=self._launch, replaces=False,
        )  # fmt: skip
        self._began = time.monotonic()

    def _launch(self, number: int, command: Sequence[str]) -> Handle:
        machine = self._places.get(number)
        if machine is None:  # the worker of the sources is not part of the dataflow
            return start_here(number, [*command, str(_READER_SHARE)])
        speed = float(self._control.setting.catalogue.speeds[self._kind(machine)])
        return _OnMachine(self._provider, self._provider.submit(machine, [*command, str(speed * self._share)]))

    def _kind(self, machine: int) -> int:
        return self._control.cluster.log[machine].kind

    def _switch(self, plan: Deployment) -> None:
        for element in np.flatnonzero(plan.active != self._active).tolist():
            self._cluster.switch(self._elements[element].work, alternate_name(int(plan.active[element])))
        self._active = plan.active.copy()

    def _place(self, plan: Deployment) -> None:
        """Start and end workers so that they are the instances and replicas of a plan, on the machines that run."""
        states = self._provider.states()
        wanted: Counter[tuple[int, int, int]] = Counter()
        for number, machine in plan.machines.items():
            if states.get(number) == "running":
                wanted.update({(element, number, -1): count for element, count in machine.instances.items()})
                wanted.update({(element, number, of): count for (element, of), count in machine.replicas.items()})
        gone = []
        for worker, one in self._instances.items():
            kind = (one.element, one.machine, one.stands_for)
            if wanted[kind] > 0 and worker in self._cluster.workers:
                wanted[kind] -= 1
            else:
                gone.append(worker)
        for (element, place, of), count in wanted.items():
            for _ in range(count):
                weight = float(self._control.setting.catalogue.speeds[self._kind(place)])
                self._places[self._cluster.next_worker] = place
                self._instances[self._cluster.add_worker(weight)] = _Instance(element, place, of)
        for worker in gone:
            del self._instances[worker]
        self._arrange()

    def _arrange(self) -> None:
        """Divide the records of each element among its instances; those of the last one stay if there is no other."""
        staff = dict(self._cluster.staff)
        for element in range(self._control.setting.flow.size):
            workers = [number for number, one in self._instances.items() if one.element == element and self._works(one)]
            kept = [number for number in staff.get(element + 1, ()) if number in workers]
            workers = kept + [number for number in workers if number not in kept]
            if workers or element + 1 in staff:
                staff[element + 1] = workers or [one for one in staff[element + 1] if one in self._cluster.workers][:1]
        working = {number for workers in staff.values() for number in workers}
        spare = {number for number, one in self._instances.items() if not self._works(one)}
        self._cluster.arrange({stage: workers for stage, workers in staff.items() if workers}, spare - working)

    def _works(self, one: _Instance) -> bool:
        """Whether a worker is to get records: a replica only after the machine of its original has failed."""
        return one.stands_for < 0 or self._provider.states().get(one.stands_for) == "failed"

    # What the flow does.

    def observe(self) -> Measured:
        """Let the flow work until the interval is over."""
        setting = self._control.setting
        end = self._began + (self._step + 1) * setting.interval_s
        since, queues, running = time.monotonic(), [], self._running()
        while time.monotonic() < end:
            self._fail(time.monotonic() - self._began)
            self._note()
            self._cluster.poll()
            if (now_running := self._running()) != running:
                running = now_running
                self._place(self._control.cluster.live)
            self._release()
            queues.append(self._queue(self._cluster.metrics()))
        seconds = max(time.monotonic() - since, 1e-9)
        return self._measured(self._cluster.metrics(), seconds, np.mean(queues, axis=0) if queues else self._zeros())

    def _measured(self, metrics: Metrics, seconds: float, queue_mean: Floats) -> Measured:
        setting, flow = self._control.setting, self._control.setting.flow
        received, sent = self._counts(metrics)
        queue = self._queue(metrics)
        done, out = (received - self._before[0]) / seconds, (sent - self._before[1]) / seconds
        inflow = np.maximum(0.0, done + (queue - self._control.queue) / seconds)
        self._before = received, sent
        self._note_speeds()
        _, ideal = flow.ideal(self._active, setting.rates[self._step])
        outputs = flow.outputs
        wanted = ideal[outputs]
        omega = np.minimum(1.0, np.divide(out[outputs], wanted, out=np.ones(len(outputs)), where=wanted > 0)).mean()
        power = self._control.cluster.live.power.copy()
        return Measured(float(omega), inflow, done, out, queue, queue_mean, power, self._zeros())

    def _counts(self, metrics: Metrics) -> tuple[Floats, Floats]:
        """Return the messages that each element has processed and sent."""
        found = [metrics[one.work] for one in self._elements]
        return np.array([float(one.received) for one in found]), np.array([float(one.sent) for one in found])

    def _queue(self, metrics: Metrics) -> Floats:
        return np.array([float(metrics[one.first].queue) for one in self._elements])

    def _note_speeds(self) -> None:
        """Compare what machines have done with what their rated cores could have done in the time they were busy."""
        flow, catalogue = self._control.setting.flow, self._control.setting.catalogue
        costs = flow.cost[flow.rows(self._active)]
        work, could = defaultdict[int, float](float), defaultdict[int, float](float)
        for worker, one in self._instances.items():
            report = self._cluster.reported(worker)
            if report is None:
                continue
            occupied, received = report
            total = float(received.get(self._elements[one.element].work, 0))
            before = self._occupied.get(worker, (0.0, 0.0))
            self._occupied[worker] = occupied, total
            work[one.machine] += (total - before[1]) * float(costs[one.element])
            could[one.machine] += (occupied - before[0]) * float(catalogue.speeds[self._kind(one.machine)])
        self._found.measured.clear()
        self._found.measured.update({one: min(1.0, work[one] / could[one]) for one in could if could[one] > 0})

    # Machines.

    def _running(self) -> set[int]:
        return {number for number, state in self._provider.states().items() if state == "running"}

    def _fail(self, now: float) -> None:
        """Kill the machines that are to fail now."""
        cluster = self._control.cluster
        for number in cluster.live.machines:
            if cluster.log[number].fail_s <= now:
                self._provider.fail(number)

    def _note(self) -> None:
        """Take note of machines that are gone, or have come."""
        now, states, cluster = time.monotonic() - self._began, self._provider.states(), self._control.cluster
        for number in cluster.live.machines:
            life = cluster.log[number]
            if states.get(number) == "failed":
                life.fail_s = min(life.fail_s, now)
            elif states.get(number) == "running":
                life.ready_s = min(life.ready_s, max(now, life.start_s))

    def _release(self) -> None:
        """Stop machines whose workers have handed over what they had."""
        used = {self._places.get(number) for number in self._cluster.workers}
        for number, until in list(self._released.items()):
            if number not in used or time.monotonic() > until:
                self._provider.stop(number)
                del self._released[number]


def _default_share(setting: Setting) -> float:
    power = float(setting.policy.deploy(setting.flow, setting.catalogue).power.sum())
    share = min(1.0, 0.5 * len(os.sched_getaffinity(0)) / power)
    cheapest = float(setting.flow.cost.min()) * share
    if cheapest < _SHORTEST_S:
        text = f"a message would take {cheapest * 1e3:.3f} ms of a processor"
        advice = "which cannot be measured; simulate it"
        raise InputError(f"the dataflow needs cores of speed {power:,.0f}: {text}, {advice}")
    return share

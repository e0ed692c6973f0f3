"""Policies that drive a running flow: machines of a provider, workers as instances, decisions every interval."""

from __future__ import annotations

import signal
import tempfile
import time
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.providers import LocalMachines, Task
from goffish.cloud.providers.processes import ProcessState
from goffish.cloud.variability import Variability
from goffish.errors import GoffishWarning, JobError
from goffish.scheduling.control.cluster import Changes
from goffish.scheduling.control.loop import Control
from goffish.scheduling.control.records import Measured
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats
from goffish.streaming.metrics import Metrics
from goffish.streaming.modeled import Counted, Estimates, counter, demanded, elements_of, sent_of
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.runtime.launch import Handle, Machines, start_here
from goffish.streaming.runtime.stages import divided
from goffish.streaming.topology import Topology

#: Time in which the machines of the first deployment start.
_STARTS_S = 120.0
#: The same for machines of a provider, which may install GoFFish first.
_JOINS_S = 900.0
#: Workers of a machine that is released have this long to hand over what they have.
_LEAVES_S = 20.0
#: Part of a processor for the worker that reads the sources: when all machines fail, it must not do their work.
_READER_SHARE = 0.02
#: Records that wait are to be processed within so many intervals.
_DRAINS = 4
#: Number of decisions of a policy, of which arrays are made.
MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class MeasuredSpeeds(Variability):
    """Coefficients as they were measured; 1 where a machine had nothing to do."""

    measured: dict[int, float] = field(default_factory=dict)

    def speeds(self, machines: NDArray[np.int64], since_s: Floats | float, until_s: Floats | float) -> Floats:
        return np.array([self.measured.get(int(number), 1.0) for number in machines])


class PlannedMachines(Machines, Protocol):
    """Hosts of a provider, each of which is rented and released on request, like `LocalMachines`."""

    @property
    def catalogue(self) -> Catalogue:
        """The machine types, of which as many run as the limits allow."""

    def start(self, kind: int) -> int:
        """Begin to rent a machine of a type of the catalogue, and return its number; they count from 0."""

    def stop(self, machine: int) -> None:
        """Release a machine; its workers hand over what they have."""

    def fail(self, machine: int) -> None:
        """Do nothing: machines of providers fail by themselves."""

    def states(self) -> Mapping[int, ProcessState]:
        """State of every machine."""

    def launch(self, machine: int | None, number: int, command: Sequence[str]) -> Handle:
        """Start a worker on a machine, or here."""


@dataclass
class _OnMachine:
    """Handle of a worker that runs on a machine."""

    machines: LocalMachines
    task: Task
    pid: int = 0

    def poll(self) -> int | None:
        if self.machines.states().get(self.task.machine) in ("failed", "stopped"):
            return -signal.SIGKILL
        return self.machines.exit_code(self.task)

    def kill(self) -> None:
        """Workers end with their connection, and the machine with the controller."""

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
    topology : Topology
    firsts : sequence of str
        Operators that the elements begin with.
    share : float
        Part of a processor that a reference core is.
    found : MeasuredSpeeds, optional
        Receives the speeds of machines. Without it, the control learns rates, costs and selectivities.
    rented : PlannedMachines, optional
        Machines of a provider [default: processes of this computer].
    **running
        Options of `Cluster`.
    """

    def __init__(
        self,
        control: Control,
        topology: Topology,
        firsts: Sequence[str],
        share: float = 1.0,
        found: MeasuredSpeeds | None = None,
        rented: PlannedMachines | None = None,
        **running: Any,
    ) -> None:
        self._control, self._found, self._share, self._rented = control, found, share, rented
        self._topology, self._firsts, self._options = topology, firsts, running
        self._elements = elements_of(divided(topology, firsts))
        self._described, self._estimates = control.setting.flow, Estimates.none(control.setting.flow)
        self._machines: LocalMachines | PlannedMachines
        self._resources: ExitStack
        self._cluster: Cluster
        self._coming: deque[int | None] = deque()  # machines of the workers that start next
        self._instances: dict[int, _Instance] = {}
        self._places: dict[int, int] = {}  # machine of each worker
        self._released: dict[int, float] = {}  # machines that end when their workers have left, or then
        self._step, self._began = 0, 0.0
        self._active: NDArray[np.int64] = np.zeros(control.setting.flow.size, np.int64)
        self._before: Counted
        self._occupied: dict[int, tuple[float, float]] = {}
        self._since, self._queues, self._waits = 0.0, list[Floats](), list[bool]()
        self._live, self._spares = set[int](), set[int]()
        self._count: Callable[[Metrics], Counted]

    def __enter__(self) -> FlowController:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="goffish-"))
            self._machines = self._rented or stack.enter_context(
                LocalMachines(self._control.setting.catalogue, folder=folder)
            )
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with self._resources:
            if hasattr(self, "_cluster"):
                self._cluster.close()

    # What the policy decides.

    def apply(self, step: int, plan: Deployment, changes: Changes) -> None:
        """Start machines and workers of a plan, switch alternates, and let others hand over what they have."""
        self._step = step
        if step == 0:
            self._began = time.monotonic()
        for number in changes.started:
            given = self._machines.start(plan.machines[number].kind)
            if given != number:
                raise JobError(f"machine {number} has number {given}")
        self._released |= dict.fromkeys(changes.stopped, time.monotonic() + _LEAVES_S)
        if step == 0:
            self._begin(plan)
        self._switch(plan)
        self._place(plan)

    def _begin(self, plan: Deployment) -> None:
        """Start the flow on the machines of the first deployment."""
        starts_s, size = _STARTS_S if self._rented is None else _JOINS_S, len(self._elements)
        end = time.monotonic() + starts_s
        while "starting" in self._machines.states().values():
            if time.monotonic() > end:
                raise JobError(f"machines did not start within {starts_s:g} s")
            time.sleep(0.05)
        places = [
            [number for number, one in plan.machines.items() for _ in range(one.instances.get(element, 0))]
            for element in range(size)
        ]
        # The first worker is for the sources; the others have the order of the stages.
        self._coming = deque([None, *(machine for machines in places for machine in machines)])
        sizes = {first: len(machines) for first, machines in zip(self._firsts, places, strict=True)}
        self._cluster = Cluster(
            self._topology, sizes, launch=self._launch, machines=self._rented, replaces=False, **self._options
        )
        self._instances = {
            number: _Instance(element, self._places[number])
            for element in range(size) for number in self._cluster.staff[element + 1]
        }  # fmt: skip
        self._topology = self._cluster.topology
        self._count = counter(self._topology, self._elements)
        self._before = self._count(self._cluster.metrics())
        self._began = self._since = time.monotonic()

    def _launch(self, number: int, command: Sequence[str]) -> Handle:
        machine = self._coming.popleft()
        if self._rented is not None:
            if machine is not None:
                self._places[number] = machine
            return self._rented.launch(machine, number, command)
        if machine is None:  # the worker of the sources is not part of the dataflow
            return start_here(number, command if self._found is None else [*command, str(_READER_SHARE)])
        self._places[number] = machine
        speed = float(self._control.setting.catalogue.speeds[self._kind(machine)])
        assert isinstance(self._machines, LocalMachines)
        return _OnMachine(self._machines, self._machines.submit(machine, [*command, str(speed * self._share)]))

    def _kind(self, machine: int) -> int:
        return self._control.cluster.log[machine].kind

    def _switch(self, plan: Deployment) -> None:
        for element in np.flatnonzero(plan.active != self._active).tolist():
            one = self._elements[element]
            self._cluster.switch(one.switched, list(one.alternates)[int(plan.active[element])])
        self._active = plan.active.copy()

    def _place(self, plan: Deployment) -> None:
        """Start and end workers so that they are the instances and replicas of a plan, on the machines that run."""
        states, present = self._machines.states(), self._present()
        wanted: Counter[tuple[int, int, int]] = Counter()
        for number, machine in plan.machines.items():
            if states.get(number) == "running":
                wanted.update({(element, number, -1): count for element, count in machine.instances.items()})
                wanted.update({(element, number, of): count for (element, of), count in machine.replicas.items()})
        gone = []
        for worker, one in self._instances.items():
            kind = (one.element, one.machine, one.stands_for)
            if wanted[kind] > 0 and worker in present:
                wanted[kind] -= 1
            else:
                gone.append(worker)
        for (element, place, of), count in wanted.items():
            for _ in range(count):
                weight = float(self._control.setting.catalogue.speeds[self._kind(place)])
                self._coming.append(place)
                self._instances[self._cluster.add_worker(weight)] = _Instance(element, place, of)
        for worker in gone:
            del self._instances[worker]
        self._arrange()

    def _present(self) -> set[int]:
        """Return the workers that have not ended, and have not been asked to."""
        placed = {number for workers in self._cluster.staff.values() for number in workers} | self._spares
        return placed & set(self._cluster.workers)

    def _arrange(self) -> None:
        """Divide the records of each element among its instances; those of the last one stay if there is no other."""
        staff = dict(self._cluster.staff)
        for element in range(len(self._elements)):
            workers = [number for number, one in self._instances.items() if one.element == element and self._works(one)]
            kept = [number for number in staff.get(element + 1, ()) if number in workers]
            workers = kept + [number for number in workers if number not in kept]
            if workers or element + 1 in staff:
                staff[element + 1] = workers or [one for one in staff[element + 1] if one in self._cluster.workers][:1]
        working = {number for workers in staff.values() for number in workers}
        self._spares = {number for number, one in self._instances.items() if not self._works(one)} - working
        self._cluster.arrange({stage: workers for stage, workers in staff.items() if workers}, self._spares)

    def _works(self, one: _Instance) -> bool:
        """Whether a worker is to get records: a replica only after the machine of its original has failed."""
        return one.stands_for < 0 or self._machines.states().get(one.stands_for) == "failed"

    # What the flow does.

    def observe(self) -> Measured:
        """Let the flow work until the interval is over."""
        self._open()
        while not self._over:
            self._cluster.poll()
            self._look()
        return self._measured()

    def run(self, until_s: float | None, report: Callable[[str], None] | None) -> Metrics:
        """Deploy the flow, and adapt it until it ends.

        Parameters
        ----------
        until_s : float, optional
        report : callable, optional

        Returns
        -------
        Metrics
        """
        control = self._control
        control.steps = 0
        changes = control.begin(0)
        self.apply(0, control.cluster.live, changes)
        self._open()

        def look() -> None:
            self._look()
            if not self._over or self._step + 1 == control.setting.steps:
                return
            control.end(self._step, self._measured())
            control.steps = step = self._step + 1
            if step + 1 == MOST_STEPS:
                warnings.warn(f"after {step:,} decisions, the deployment stays as it is", GoffishWarning, stacklevel=2)
            changes = control.begin(step)
            self.apply(step, control.cluster.live, changes)
            self._open()

        metrics = self._cluster.run(until_s, report, look)
        seconds = time.monotonic() - self._since
        control.end(self._step, self._measured(), seconds)
        control.steps = self._step + 1
        return metrics

    def _open(self) -> None:
        """Begin an interval."""
        self._queues, self._waits, self._live = [], [], self._running()

    @property
    def _over(self) -> bool:
        return time.monotonic() >= self._began + (self._step + 1) * self._control.setting.interval_s

    def _look(self) -> None:
        """Take note of what has happened to machines and workers, and of what waits."""
        self._fail(time.monotonic() - self._began)
        self._note()
        running = self._running()
        if running != self._live or not self._instances.keys() <= self._present():
            self._live = running
            self._place(self._control.cluster.live)
        self._release()
        metrics = self._cluster.metrics()
        self._queues.append(np.array([float(metrics[one.first].queue) for one in self._elements]))
        self._waits.append(any(one.blocked and one.stage is None for one in metrics.workers))

    def _measured(self) -> Measured:
        """Return what the flow has done in the interval, in messages of the model."""
        control, flow, metrics = self._control, self._described, self._cluster.metrics()
        if self._cluster.topology is not self._topology:  # it was updated
            self._topology = self._cluster.topology
            self._count = counter(self._topology, self._elements)
        ended = time.monotonic()
        seconds, self._since = max(ended - self._since, 1e-9), ended  # also that in which machines were started
        now = self._count(metrics)
        done = now.since(self._before)
        self._before = now
        busy = self._note_busy()
        rates = control.setting.rates[self._step]
        if self._found is None:
            self._estimates = self._estimates.learned(flow, self._active, done, busy)
            flow = self._estimates.model(flow, self._active)
            waited = float(np.mean(self._waits)) if self._waits else 0.0
            waiting = now.queue / self._estimates.ratio / (_DRAINS * control.setting.interval_s)
            rates[:] = demanded(flow, self._active, done.moved[0] / seconds, waited, waiting)
            control.setting = replace(control.setting, flow=flow.with_rates(rates.copy()))
        ratio, zeros = self._estimates.ratio, np.zeros(flow.size)
        processed, sent = done.received / ratio / seconds, sent_of(flow, done) / seconds
        expected, _ = flow.ideal(self._active, rates)
        wanted = expected[flow.outputs]
        shares = np.divide(processed[flow.outputs], wanted, out=np.ones(len(wanted)), where=wanted > 0)
        queue = now.queue / ratio
        means = np.mean(self._queues, axis=0) / ratio if self._queues else zeros
        power = control.cluster.live.power.copy()
        inflow = done.moved.sum(axis=0) / ratio / seconds
        return Measured(float(np.minimum(1.0, shares).mean()), inflow, processed, sent, queue, means, power, zeros)

    def _note_busy(self) -> Floats:
        """Return the core-seconds of reference cores that elements were busy for, and note the speeds of machines.

        A speed is what a machine has done relative to what its rated cores could have done in the time they were busy.
        """
        flow, catalogue = self._described, self._control.setting.catalogue
        costs, total = flow.cost[flow.rows(self._active)], np.zeros(flow.size)
        work, could = defaultdict[int, float](float), defaultdict[int, float](float)
        for worker, one in self._instances.items():
            report = self._cluster.reported(worker)
            if report is None:
                continue
            occupied, received = report
            records = float(received.get(self._elements[one.element].first, 0))
            before = self._occupied.get(worker, (0.0, 0.0))
            self._occupied[worker] = occupied, records
            busy = (occupied - before[0]) * float(catalogue.speeds[self._kind(one.machine)])
            total[one.element] += busy
            work[one.machine] += (records - before[1]) * float(costs[one.element])
            could[one.machine] += busy
        if self._found is not None:
            self._found.measured.clear()
            self._found.measured.update({one: min(1.0, work[one] / could[one]) for one in could if could[one] > 0})
        return total

    # Machines.

    def _running(self) -> set[int]:
        return {number for number, state in self._machines.states().items() if state == "running"}

    def _fail(self, now: float) -> None:
        """Kill the machines that are to fail now."""
        cluster = self._control.cluster
        for number in cluster.live.machines:
            if cluster.log[number].fail_s <= now:
                self._machines.fail(number)

    def _note(self) -> None:
        """Take note of machines that are gone, or have come."""
        now, states, cluster = time.monotonic() - self._began, self._machines.states(), self._control.cluster
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
                self._machines.stop(number)
                del self._released[number]

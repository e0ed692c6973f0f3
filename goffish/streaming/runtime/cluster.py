"""Run a flow in several worker processes of this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from goffish.errors import InputError, JobError
from goffish.gofs.times import Duration, microseconds
from goffish.streaming.checkpoints import SINKS
from goffish.streaming.embedded import Until
from goffish.streaming.live.watch import Watch
from goffish.streaming.metrics import Counts, Meter, Metrics, WorkerMetrics
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import CIRCLE
from goffish.streaming.ring.registry import FileRegistry
from goffish.streaming.ring.view import Member, View
from goffish.streaming.runtime.folder import WorkerFolder
from goffish.streaming.runtime.launch import (
    REPORTS_S,
    Controls,
    Launcher,
    Machines,
    WorkerProcess,
    command_of,
    start_here,
)
from goffish.streaming.runtime.layout import divide, even_out, next_step, staffed
from goffish.streaming.runtime.plan import Delivery, Plan
from goffish.streaming.runtime.stages import STAGE_BITS, Arc, divided
from goffish.streaming.runtime.waiting import Waiting
from goffish.streaming.runtime.worker import Begin
from goffish.streaming.sinks import Collect
from goffish.streaming.topology import MAIN, Topology
from goffish.streaming.updates.forecast import Setup, forecast
from goffish.streaming.updates.plan import UpdatePlan, channel_name, has_windows, plan_update
from goffish.streaming.updates.rollout import Progress, Rollout, RolloutState, UpdateReport
from goffish.streaming.updates.versions import PartialWindow, Strategy

_STARTS_S = 60.0
_WAITS_S = 0.05
#: Between two requests to admit a new worker, or to let one leave.
_ASKS_S = 2.0
#: Time in which reports of workers include what has become of a request to hand partitions to others.
_REPORTED_S = 0.5
#: Largest number of workers of a flow.
MOST_WORKERS = 256
#: Silence of a worker after which the flow fails: before others take over what makes it hang.
_HANGS_S = 50.0
#: A process that ends closes its connections, which the others see at once; one that is silent is busy in a function.
_SILENT_S, _ANSWERS_S = 60.0, 5.0
#: Workers that do not end within this time are killed, which loses nothing that a checkpoint contains.
_ENDS_S = 0.3
#: Time that the others have to catch up with a worker that has failed, before a new one takes processors from them.
_CATCH_UP_S = 5.0
#: Workers in a row that may end before they have started.
_MOST_STARTS = 3


class Cluster:
    """Worker processes that run a flow; failed ones are replaced.

    Parameters
    ----------
    topology : Topology
    workers : int or mapping
        Number of workers of the flow, or of the stages that begin with operators.
    replication : int
        Number of failures at once, of any workers, that lose nothing.
    checkpoint_s : float
        Seconds between checkpoints.
    checkpoint : str or Path, optional
        Folder for durable checkpoints; an earlier run is resumed.
    watch : Watch, optional
        How other processes see and control the flow [default: by its socket].
    delivery : Delivery
    launch : Launcher, optional
        Starts workers [default: on this machine].
    machines : Machines, optional
        Starts workers on several hosts; with `launch`, that one chooses the hosts.
    replaces : bool
        Whether a worker that fails is replaced at once. Otherwise its neighbors keep its positions until `arrange`,
        and nothing else changes the numbers of workers. Where nothing is replaced and records can count again, state
        may be lost; otherwise the run fails.

    Raises
    ------
    InputError
        The flow cannot run on several workers, or the folder is not accepted.
    JobError
        A worker does not start.
    """

    def __init__(
        self,
        topology: Topology,
        workers: int | Mapping[str, int],
        *,
        replication: int = 1,
        checkpoint_s: float = 2.0,
        checkpoint: str | Path | None = None,
        watch: Watch | None = None,
        delivery: Delivery = Delivery.EXACTLY_ONCE,
        launch: Launcher | None = None,
        machines: Machines | None = None,
        replaces: bool = True,
    ) -> None:
        check_workers(workers)
        topology.check_access()
        self._firsts = () if isinstance(workers, int) else tuple(workers)
        for name in self._firsts:
            topology.operator(name)
        self.topology = topology = divided(topology, self._firsts)
        for name, sink in topology.sinks.items():
            if isinstance(sink, Collect):
                raise InputError(
                    f"operator {name}: collect() keeps records in memory; run with one worker, or write files"
                )
        plan = Plan(topology)
        self._loops = plan.loops
        # Idle workers must not leave the ring on their own: each would be replaced by a new one.
        options = Options(checkpoint_s=checkpoint_s, detect_s=_SILENT_S, ping_s=_ANSWERS_S, minimum=MOST_WORKERS)
        self._checkpoints = None if checkpoint is None else WorkerFolder(checkpoint, topology)
        update = None if self._checkpoints is None else self._checkpoints.update
        if update is not None:
            self.topology = topology = update.old
        old = [] if self._checkpoints is None else self._checkpoints.workers
        if not old:
            for sink in topology.sinks.values():
                sink.check_unused()
        outputs = [] if self._checkpoints is None else self._checkpoints.outputs
        first = 0 if self._checkpoints is None else self._checkpoints.first
        saved, folder = self._checkpoints, Path(tempfile.mkdtemp(prefix="goffish-"))
        self._folder, self._options = folder, options
        self._begin = Begin(spool=folder / SINKS, delivery=delivery)
        if saved is not None:
            self._begin = Begin(
                saved.path, tuple(old), saved.version, saved.origins, update, saved.path / SINKS, delivery
            )
        self._rollout = None if update is None else Rollout(update, time.monotonic())
        self._writes: dict[int, tuple[float, float]] = {}
        self._watch = Watch() if watch is None else watch
        self._meter = Meter(topology)
        self._processes: dict[int, WorkerProcess] = {}
        self._launch, self._replaces = launch or machines or start_here, replaces
        self._machines, self._replication = machines, replication
        self._read_here = {} if machines is None else plan.here  # stages of sources that no other machine can read
        self._members: frozenset[int] = frozenset()
        self._controls = Controls(folder)
        self._gone: dict[str, Counts] = {}
        self._active = {one.name: MAIN for one in topology.operators if one.alternates}
        self._commands: deque[dict[str, Any]] = deque()  # of other threads, too
        self._postponed: dict[int, int] = {}  # numbers of workers for which hosts have no places yet
        self._spreads = 0.0  # when it is looked again whether workers should move to other hosts
        self._stopping = self._loops_empty = False
        self._failure: BaseException | None = None
        self._settled: tuple[float, dict[int, int]] = 0.0, {}
        self._next = first
        self._staff: dict[int, list[int]] = {}
        self._weights: dict[int, float] = {}
        self._stages: dict[int, int] = {}  # of workers, also while they leave
        self._wanted: dict[int, int] = {}
        self._arranged = True
        self._uneven, self._evened = False, 0.0  # whether partitions may have to move, and when that was asked for
        self._spares: set[int] = set()
        self._failed: dict[int, float] = {}  # workers that are still to be replaced, and when they failed
        self._old = old
        self._started = self._closed = False
        self._stopped = "running"
        self.failures = self._starts = 0
        #: Updates that have ended.
        self.updates: list[UpdateReport] = []
        self._attempts = self._lost_before = 0
        self.load: Callable[[str], Topology] | None = None
        self._forgets: dict[int, int] = {}  # checkpoints of workers after which the last update needs not be kept
        self._asked = 0.0
        try:
            self._write_flow(topology)
            self._write("path", json.dumps([sys.path, str(Path.cwd())]).encode())
            if machines is not None:
                machines.begin(self._folder, self._options, self._begin, self._firsts)
            sizes = self._sizes(workers)
            numbers = [self.add_worker() for _ in range(sum(sizes.values()))]
            if machines is not None:
                numbers = machines.alternate(numbers, replication)
            here = [one for one in numbers if self._is_here(one)]
            self._staff = staffed(numbers, sizes, here, {*self._read_here.values()})
            self._wanted = self._layout()
            members = sorted((Member(one, token) for one, token in self._wanted.items()), key=lambda one: one.token)
            self._registry = FileRegistry(self._folder / "ring", View(1, tuple(members), replication))
            for number, lane in enumerate(plan.lanes):
                readers = self._readers(lane.split("\n")[0])
                self._registry.claim(lane, readers[number % len(readers)])
            for number, lane in enumerate(outputs):
                self._registry.claim(lane, first + number % len(members))
            if update is not None:
                self._write(f"update-{update.number}", pickled(topology, update))
            if machines is not None:
                machines.follow()
            self._await_ready()
            self._watch.attach(self)
        except BaseException as error:
            self._failure = error
            self.close()
            raise

    def _sizes(self, workers: int | Mapping[str, int]) -> dict[int, int]:
        """Return the number of workers of every stage."""
        if isinstance(workers, int):
            if self.topology.stages:
                known = ", ".join(self._firsts)
                raise InputError(f"workers = {workers}: operators have separate workers; give numbers for {known}")
            return {0: workers}
        for name in workers:
            if name not in self._firsts:
                known = ", ".join(self._firsts) or "none; give one number"
                raise InputError(f"workers: {name!r} has no separate workers; operators that have some: {known}")
        sizes = {stage: 1 for stage in self.topology.stages.values() if stage == 0}
        return sizes | {stage: workers[name] for stage, name in enumerate(self._firsts, 1) if name in workers}

    def _write_flow(self, topology: Topology) -> None:
        """Write what workers that start read."""
        self._write("flow", pickled(topology, (topology, self._options, self._begin)))

    def _write(self, name: str, data: bytes) -> None:
        """Write a file for the workers."""
        try:
            (self._folder / name).write_bytes(data)
        except OSError as error:
            reason = error.strerror or error
            raise JobError(f"{self._folder}: cannot be written ({reason}); free space, or set TMPDIR") from None

    def _spawn(self, number: int) -> None:
        self._processes[number] = WorkerProcess(self._launch(number, command_of(self._folder, number)))

    def _await_ready(self) -> None:
        end = time.monotonic() + _STARTS_S
        while not all(one.ready for one in self._processes.values()):
            if time.monotonic() > end:
                raise JobError(f"workers did not start within {_STARTS_S:g} s")
            self.poll()
        self._started = True
        for one in self._processes.values():
            one.send(command="start")
        self._meter.start()

    def poll(self) -> None:
        """Take the reports of workers, and replace those that have failed.

        Raises
        ------
        JobError
            A record cannot be processed, or state was lost.
        """
        for number, control in self._controls.wait(_WAITS_S):
            self._processes[number].control = control
        if self._postponed:
            self._obey({"command": "scale", "sizes": {}})
        while self._commands:
            self._obey(self._commands.popleft())
        for number, one in list(self._processes.items()):
            for report in one.receive():
                if "error" in report:
                    raise JobError(report["error"])
                if report.get("ready"):
                    one.ready = True
                    one.process.pid = one.process.pid or report["pid"]  # machines of providers do not say it
                    if self._started:
                        one.send(command="start")
                        self._catch_up(one)
                if "counts" in report:
                    if report["serial"] != one.report.get("serial", 0):
                        one.saved = report["time"]
                    now = time.monotonic()
                    if one.reported:
                        one.gaps.append(now - one.reported)
                    one.report, one.reported = report, now
                    one.counts = {name: Counts.read(counts) for name, counts in report["counts"].items()}
                    self._note(report["events"])
                    self._note_writes(report["writes"])
                    if report["noticed"]:
                        self._replace(number)
            code = one.process.poll()
            if code is not None:
                self._lost(number, code)
            elif one.reported and time.monotonic() > one.reported + _HANGS_S:
                raise JobError(f"worker {number}: no report for {_HANGS_S:g} s, as a function does not return")
        self._replace_failed()
        self._check_errors()
        self._members = frozenset(self._registry.read().nodes.tolist())
        if self._members.isdisjoint(self._processes):
            raise JobError(
                f"flow {self.topology.name}: all workers failed at once, so that no copy of the state is left"
            )
        waits = self._bring_back()
        if self._rollout is not None:
            self._advance(self._rollout)
            if waits:  # other changes wait for the end of the update, which waits for what is to be read
                self._take_step()
        else:
            self._bring_up()
            self._end_loops()
            self._spread()
            self._take_step()
            self._even_out()
        if self._forgets and self._checkpoints is not None and self._rollout is None:
            # The checkpoints of all workers are of the new version.
            serials = {number: one.report.get("serial", 0) for number, one in self._processes.items()}
            if all(serials.get(number, serial + 1) > serial for number, serial in self._forgets.items()):
                self._checkpoints.remove_others(self._processes)  # have checkpoints of the old version
                self._checkpoints.keep(None)
                self._forgets = {}
        if self._old and self._checkpoints is not None and self._saved:
            self._checkpoints.remove(self._old)
            self._old = []

    def _bring_up(self) -> None:
        """Bring workers to the version that runs, which have begun before an update was complete."""
        version = self._begin.version
        for one in self._processes.values():
            if one.ready and "update" in one.report and one.report["update"][1] < version:
                one.send(command="prepare", version=version)
                one.send(command="activate", version=version, paused=False)
                one.send(command="complete", version=version)

    def _check_errors(self) -> None:
        most = self.topology.max_errors
        counts = [counts for one in self._processes.values() for counts in one.counts.values()]
        errors = sum(part.errors for part in [*counts, *self._gone.values()])
        if most is not None and errors > most:
            raise JobError(f"flow {self.topology.name}: {errors:,.0f} errors, max_errors = {most:,}")

    def _note(self, events: list[list[Any]]) -> None:
        for kind, _, size in events:
            if kind == "data loss" and (self._replaces or self._begin.delivery is Delivery.EXACTLY_ONCE):
                raise JobError(
                    f"flow {self.topology.name}: {size / CIRCLE:.1%} of the keyed state is lost: more workers failed "
                    "at once than copies exist; raise --replication"
                )

    def _note_writes(self, writes: dict[str, list[float]]) -> None:
        for version, (first, last) in writes.items():
            known = self._writes.get(int(version), (first, last))
            self._writes[int(version)] = (min(first, known[0]), max(last, known[1]))
        if self.updates and self.updates[-1].refresh_s is None and self.updates[-1].version in self._writes:
            first = self._writes[self.updates[-1].version][0]
            self.updates[-1] = replace(self.updates[-1], refresh_s=first - self._asked)

    def _lost(self, number: int, code: int) -> None:
        one = self._processes.pop(number)
        self._controls.forget(one.control)
        one.close()
        if not self._started or not self._processes:
            where = "" if self._machines is None else f" on machine {self._machines.where(number)}"
            when = "" if self._started else " before the flow began"
            raise JobError(f"worker {number}{where} ended with code {code}{when}")
        for name, counts in one.counts.items():
            self._gone[name] = self._gone.get(name, Counts()) + replace(counts, queue=0)
        for other in self._processes.values():
            other.send(command="lose", worker=number)
        if all(number not in workers for workers in self._staff.values()):  # it has left
            return
        self.failures += 1
        self._starts = 0 if one.ready else self._starts + 1
        if self._starts >= _MOST_STARTS:
            raise JobError(f"worker {number} ended with code {code}; {_MOST_STARTS} in a row did not start")
        self._failed[number] = time.monotonic()

    def _replace_failed(self) -> None:
        """Replace workers that have failed, once others have their positions and have caught up."""
        if not self._failed:
            return
        view, now = self._registry.read(), time.monotonic()
        reports = [self._processes[n].report for n in view.nodes.tolist() if n in self._processes]
        caught_up = all(one and one["epoch"] >= view.epoch and not one["behind"] for one in reports)
        for number, since in list(self._failed.items()):
            if (caught_up and number not in view) or not self._replaces or now > since + _CATCH_UP_S:
                del self._failed[number]
                self._replace(number)

    def _replace(self, number: int) -> None:
        """Give the positions of a worker to a new one, or to its neighbors."""
        workers = next((workers for workers in self._staff.values() if number in workers), None)
        if workers is None:
            return
        at = workers.index(number)
        del workers[at]
        if self._replaces:
            self._insert(workers, at, self._weights[number], number)
        self.arrange({stage: others for stage, others in self._staff.items() if others}, self._spares)

    def _insert(self, workers: list[int], at: int, weight: float = 1.0, replaced: int | None = None) -> None:
        """Start a worker of a stage, perhaps instead of another one, so that copies are on other machines."""
        if self._machines is not None:
            ring, among = self._ring(workers)
            stage = next(stage for stage, others in self._staff.items() if others is workers)
            # One that could read is replaced by one that can, so that there are as many when the next one fails.
            could_read = replaced is not None and self._is_here(replaced)
            places, here = range(among.start, among.stop + 1), self._lacks_reader(stage, () if could_read else workers)
            at = self._machines.choose(ring, places, among.start + at, self._replication, here=here) - among.start
        workers.insert(at, self.add_worker(weight))

    def _spread(self) -> None:
        """Move a worker to a host with a free slot that has joined, from one that has too many."""
        now = time.monotonic()
        if self._machines is None or not self.arranged or self._stopping or not self._replaces or now < self._spreads:
            return
        self._spreads = now + _REPORTED_S
        ring = [one for stage in sorted(self._staff) for one in self._staff[stage]]
        if not self._members.issuperset(ring):
            return
        moved = self._machines.crowded(ring, self._replication)
        if moved is not None and not (self._read_here and self._is_here(moved)):
            self._replace(moved)

    def _is_here(self, worker: int) -> bool:
        return self._machines is None or self._machines.is_here(worker)

    def _lacks_reader(self, stage: int, workers: Iterable[int]) -> bool:
        """Whether a stage with these workers would have sources that none of them can read."""
        alive = (one for one in workers if one in self._processes)
        return stage in self._read_here.values() and not any(map(self._is_here, alive))

    def _readers(self, source: str) -> list[int]:
        """Return the workers that can read a source."""
        workers = self._staff.get(self.topology.stages.get(source, 0), [])
        return [one for one in workers if source not in self._read_here or self._is_here(one)]

    def _ring(self, workers: list[int]) -> tuple[list[int], range]:
        """Return all workers in the order of the ring, and where among them those of a stage are."""
        stages = [self._staff[stage] for stage in sorted(self._staff)]
        at = next(at for at, others in enumerate(stages) if others is workers)
        first = sum(map(len, stages[:at]))
        return [one for others in stages for one in others], range(first, first + len(workers))

    def add_worker(self, weight: float = 1.0) -> int:
        """Start a worker that `arrange` can give positions to, and return its number.

        Parameters
        ----------
        weight : float
            Its share of the positions of a stage, relative to others.

        Returns
        -------
        int
        """
        number, self._next = self._next, self._next + 1
        self._weights[number] = weight
        self._spawn(number)
        return number

    def arrange(self, staff: Mapping[int, Sequence[int]], spares: Collection[int] = ()) -> None:
        """Begin to divide the positions of stages among workers; others leave.

        Parameters
        ----------
        staff : mapping of int to sequence of int
            Workers of every stage; those that stay must be in the same order.
        spares : collection of int
            Workers that stay without positions.
        """
        self._staff = {stage: list(workers) for stage, workers in staff.items()}
        self._spares = set(spares)
        self._wanted = self._layout()
        self._arranged, self._uneven = False, True

    @property
    def workers(self) -> Collection[int]:
        """Numbers of the workers that have not ended."""
        return self._processes.keys()

    @property
    def next_worker(self) -> int:
        """Number of the worker that `add_worker` starts next."""
        return self._next

    @property
    def staff(self) -> Mapping[int, Sequence[int]]:
        """Workers of every stage."""
        return self._staff

    def reported(self, worker: int) -> tuple[float, dict[str, int]] | None:
        """Return the seconds that a worker was busy, and the records that its operators have received."""
        one = self._processes.get(worker)
        if one is None or not one.report:
            return None
        return one.report["occupied"], {name: counts.received for name, counts in one.counts.items()}

    @property
    def arranged(self) -> bool:
        """Whether all workers have the positions that they should have."""
        return self._arranged and not self._failed

    def _layout(self) -> dict[int, int]:
        layout: dict[int, int] = {}
        for stage, workers in self._staff.items():
            arc = Arc(stage, STAGE_BITS) if self.topology.stages else Arc()
            layout |= divide(arc, workers, [self._weights[one] for one in workers])
            self._stages |= dict.fromkeys(workers, stage)
        return layout

    def _take_step(self) -> None:
        """Ask for the next move towards the layout that is wanted."""
        if self._arranged:
            return
        view, now = self._registry.read(), time.monotonic()
        if view.moves or not all(number in self._processes for number in view.nodes.tolist()):
            return
        # During an update, it is enough that the state of the new version can be received.
        version, part = (self._begin.version, 1) if self._rollout is None else (self._rollout.plan.number, 0)
        ready = [
            n for n, one in self._processes.items() if one.ready and one.report.get("update", [0, 0])[part] >= version
        ]
        step = next_step(view, self._wanted, ready)
        if step is None:
            for number, one in self._processes.items():
                if number not in view and number not in self._wanted and number not in self._spares:
                    self._controls.forget(one.control)
                    one.close()  # it has never had positions
            self._arranged = self._wanted.keys() == set(view.nodes.tolist())
            return
        owner = self._processes[step.owner]
        since, epoch = owner.asked
        if epoch != view.epoch or now > since + _ASKS_S:
            owner.asked = now, view.epoch
            owner.send(command="give", target=step.target, part=step.part, leaves=step.part is None)

    def _bring_back(self) -> bool:
        """Let workers hand on the partitions that they took over but cannot read.

        They cannot be passed over when they take over, as their copies have the places where reading goes on.

        Returns
        -------
        bool
            Whether a partition waits for a worker that can read it.
        """
        waits = False
        for source in () if self._stopping else self._read_here:
            held = {n: one.report.get("partitions", {}).get(source, 0) for n, one in self._processes.items()}
            away = [n for n, count in held.items() if count and not self._is_here(n)]
            readers = [n for n in self._readers(source) if n in self._processes and n in self._members]
            for number in away if readers else ():
                target = min(readers, key=held.__getitem__)
                self._processes[number].send(
                    command="give partitions", source=source, target=target, count=held[number]
                )
            waits |= bool(away) and not readers
        return waits

    def _even_out(self) -> None:
        """Divide the partitions of sources evenly among the workers of their stages, after the layout is reached."""
        now = time.monotonic()
        if not self._arranged or not self._uneven or self._stopping or now < self._evened + _REPORTED_S:
            return
        members = {n: one for n, one in self._processes.items() if n in self._members}
        if any(one.reported <= self._evened + _REPORTED_S for one in members.values()):
            return
        reports = {n: one.report for n, one in members.items()}
        if any(report["handing_over"] for report in reports.values()):
            return
        self._uneven = False
        for source in {name for report in reports.values() for name in report["partitions"]}:
            counts = {n: report["partitions"].get(source, 0) for n, report in reports.items()}
            workers = [n for n in self._readers(source) if n in reports]
            for giver, target, count in even_out(counts, workers) if workers else ():
                self._processes[giver].send(command="give partitions", source=source, target=target, count=count)
                self._uneven, self._evened = True, now

    @property
    def finished(self) -> bool:
        """Whether all workers have finished with the same ring, or have nothing left after `stop`."""
        if self._forgets and self._checkpoints is not None:
            return False  # otherwise the next run would update the flow again
        return self._all_report("finished", again=self._stopping or self._loops)

    def _end_loops(self) -> None:
        """Let windows end when all sources have ended, and no record is in a loop."""
        if self._loops and not self._loops_empty and self._all_report("quiet", again=True):
            self._loops_empty = True
            self._commands.append({"command": "end loops"})

    def _all_report(self, state: str, *, again: bool) -> bool:
        """Whether all workers report a state with the same ring; with `again`, twice in a row."""
        if self._rollout is not None:
            return False
        epoch = self._registry.read().epoch
        members = self._registry.read().nodes.tolist()
        reports = [self._processes[number].report for number in members if number in self._processes]
        reached = len(reports) == len(members) and all(
            report.get(state) and report["epoch"] == epoch for report in reports
        )
        if not reached or not again:
            return reached
        # One may have received something after its report: none must have processed anything before the next ones.
        since, before = self._settled
        received = {n: sum(one.received for one in process.counts.values()) for n, process in self._processes.items()}
        if received != before:
            self._settled = time.monotonic(), received
            return False
        return all(report["time"] > since for report in reports)

    @property
    def _saved(self) -> bool:
        """Whether all workers have made a checkpoint."""
        members = self._registry.read().nodes.tolist()
        return all(n in self._processes and self._processes[n].report.get("serial", 0) > 0 for n in members)

    def update(
        self, new: Topology, strategy: Strategy = Strategy.MVC, partial_windows: PartialWindow = PartialWindow.EMIT
    ) -> None:
        """Begin to update the flow to a new version; `poll` goes on, and `updated` has the result.

        Raises
        ------
        InputError
            The flow cannot be updated in this way, or an update is in progress.
        """
        if self._rollout is not None:
            raise InputError(f"flow {self.topology.name}: an update is in progress; wait until it is complete")
        plan = self.plan(new, strategy, partial_windows)
        plan.check_sinks()
        self._write(f"update-{plan.number}", pickled(plan.new, plan))
        if self._machines is not None:
            self._machines.deploy(plan)
        self._attempts += 1
        bounds = forecast({strategy: plan}, self.metrics(), self.setup).bounds.get(strategy)
        self._writes, self._asked = {}, time.monotonic()
        self._rollout = Rollout(plan, self._asked, bounds=bounds)

    def plan(self, new: Topology, strategy: Strategy, partial_windows: PartialWindow) -> UpdatePlan:
        """Compare the flow with another version of it."""
        new = divided(new, self._firsts)
        if _returns(new) != _returns(self.topology):
            raise InputError(
                f"flow {new.name}: another operator closes a loop; stop the flow with a checkpoint, and start the new "
                "version from it"
            )
        Plan(new)
        if self._machines is not None:
            self._machines.check(new)
        number: int = self._begin.version + self._attempts + 1
        if not self._replaces and _choices(new) != _choices(self.topology):
            raise InputError(
                f"flow {new.name}: a policy chooses workers and alternates; an update must keep operators that have any"
            )
        plan = plan_update(number, self.topology, new, strategy, partial_windows)
        for name in sorted(plan.migrated):
            if has_windows(new.operator(name)):
                raise InputError(
                    f"operator {name}: migrate: windows with records of both versions need one worker; choose emit or "
                    "drop for partial windows"
                )
        return plan

    @property
    def setup(self) -> Setup:
        """How the flow runs, for the bounds of updates."""
        processes = list(self._processes.values())
        made, saving = (
            max((one.report.get(name, 0.0) for one in processes), default=0.0) for name in ("operators_s", "saving_s")
        )
        gap = max((max(one.gaps) for one in processes), default=REPORTS_S)
        return Setup(len(processes), self._options.checkpoint_s, saving, made, gap)

    @property
    def updating(self) -> bool:
        """Whether an update is in progress."""
        return self._rollout is not None

    def _advance(self, rollout: Rollout) -> None:
        """Take the next steps of an update."""
        workers = {n: one for n, one in self._processes.items() if one.ready and "update" in one.report}
        progress, view = {}, self._registry.read()
        for number, one in workers.items():
            newest, active, drained = one.report["update"]
            drained &= one.report["epoch"] >= view.epoch  # and not before it took over from another worker
            progress[number] = Progress(newest, active, drained, one.report["failed"].get(f"{rollout.plan.number}"))
        now = time.monotonic()
        hosts = () if self._machines is None else self._machines.progress
        commands = rollout.advance(progress, view.nodes.tolist(), now, list(hosts))
        if rollout.activated == now and self._checkpoints is not None:  # before the first worker activates it
            self._checkpoints.keep(pickled(rollout.plan.new, rollout.plan))
        for number, command in commands:
            self._processes[number].send(**command)
        if not rollout.ending:
            return
        plan = rollout.plan
        if rollout.state == RolloutState.COMPLETE:
            self.topology = plan.new
            self._meter.follow(plan.new)
            known = self._active
            self._active = {one.name: known.get(one.name, MAIN) for one in plan.new.operators if one.alternates}
            self._attempts = 0
            origins = {**self._begin.origins, **dict.fromkeys(plan.own_state, plan.number)}
            self._begin = replace(self._begin, version=plan.number, origins=origins, update=None)
            self._write_flow(plan.new)
            self._forgets = {number: one.report["serial"] + 1 for number, one in workers.items()}
        if self._machines is not None:
            self._machines.complete(self._begin if rollout.state == RolloutState.COMPLETE else None)
        lost = sum(one.report.get("lost", 0) for one in self._processes.values())
        self.updates.append(rollout.report(self._writes, lost - self._lost_before))
        self._lost_before = lost
        self._rollout = None

    def switch(self, operator: str, alternate: str) -> None:
        """Switch an operator to another implementation on all workers.

        Raises
        ------
        InputError
            The operator or the alternate does not exist.
        """
        self.topology.check_alternate(operator, alternate)
        self._commands.append({"command": "switch", "operator": operator, "alternate": alternate})

    def stop(self) -> None:
        """Read no more records; `finished` holds when those that were read are in checkpoints of all workers."""
        self._commands.append({"command": "stop"})

    def scale(self, workers: int | Mapping[str, int]) -> None:
        """Begin to run the flow on another number of workers, without stopping it.

        Workers join and leave one after the other; state moves with the keys. Then partitions of sources move, so that
        workers read equally many.

        Parameters
        ----------
        workers : int or mapping
            Of the flow, or of operators that have workers of their own; others keep theirs.

        Raises
        ------
        InputError
            The number is not accepted.
        """
        if not self._replaces:
            raise InputError(f"flow {self.topology.name}: a policy chooses the numbers of workers")
        check_workers(workers)
        sizes = self._sizes(workers)
        if not isinstance(workers, int):
            sizes.pop(0, None)
        if self._machines is not None:
            self._machines.check_workers(self._total(self._postponed | sizes))
        self._commands.append({"command": "scale", "sizes": sizes})

    def _total(self, sizes: dict[int, int]) -> int:
        """Return the number of all workers once stages have new numbers of them."""
        return sum(({stage: len(workers) for stage, workers in self._staff.items()} | sizes).values())

    def _obey(self, command: dict[str, Any]) -> None:
        if command["command"] == "scale":
            sizes = self._postponed | command["sizes"]
            if self._machines is not None and not self._machines.reserve(self._total(sizes)):
                self._postponed = sizes
                return
            self._postponed = {}
            for stage, size in sizes.items():
                workers = self._staff[stage]
                while len(workers) < size:
                    self._insert(workers, len(workers))
                while len(workers) > size:
                    ring, among = self._ring(workers)
                    last = among.stop - 1
                    if self._machines is not None:
                        places = [
                            at for at in among
                            if not self._lacks_reader(stage, [one for one in workers if one != ring[at]])
                        ]  # fmt: skip
                        last = self._machines.dismiss(ring, places, self._replication)
                    del workers[last - among.start]
            self.arrange(self._staff)
            return
        if command["command"] == "stop":
            self._stopping = True
        elif command["command"] == "switch":
            self._active[command["operator"]] = command["alternate"]
        for one in self._processes.values():
            one.send(**command)

    def _catch_up(self, one: WorkerProcess) -> None:
        """Send a worker that joins the commands that the others have had."""
        for operator, alternate in self._active.items():
            if alternate != MAIN:
                one.send(command="switch", operator=operator, alternate=alternate)
        if self._stopping:
            one.send(command="stop")
        if self._loops_empty:
            one.send(command="end loops")

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the workers that have started, by number."""
        return {number: one.process.pid for number, one in self._processes.items() if one.process.pid}

    def metrics(self) -> Metrics:
        """Return the metrics of all workers together."""
        now, processes, workers = time.monotonic(), dict(self._processes), []
        for number, one in processes.items():
            report, stage = one.report, self._stages.get(number, 0)
            serial = report.get("serial", 0) or None
            queues = {name: part.queue for name, part in one.counts.items() if part.queue}
            workers.append(
                WorkerMetrics(
                    number, one.process.pid, queues, report.get("unsent", 0),
                    report.get("blocked", False), serial, None if serial is None else max(0.0, now - one.saved),
                    number in self._members, self._firsts[stage - 1] if stage else None,
                )
            )  # fmt: skip
        counts = {one.name: self._gone.get(one.name, Counts()) for one in self.topology.operators}
        for process in processes.values():
            for name in process.counts.keys() & counts.keys():
                counts[name] += process.counts[name]
        saved = None
        if self._checkpoints is not None:
            saved = min((one.checkpoint or 0 for one in workers), default=0) or None
        return self._meter.metrics(counts, self._active, workers, self._stopped, saved)

    def run(
        self,
        until: float | None = None,
        report: Callable[[str], None] | None = None,
        each: Callable[[], None] | None = None,
    ) -> Metrics:
        """Run until the sources end, for some seconds, or until Ctrl-C; return the metrics.

        Parameters
        ----------
        until : float, optional
            Seconds.
        report : callable, optional
            Takes the text of a status line.
        each : callable, optional
            Called after every `poll`.

        Returns
        -------
        Metrics
        """
        try:
            while not self.finished:
                self.poll()
                if each is not None:
                    each()
                if report is not None:
                    metrics = self.metrics()
                    rate = metrics.records / max(metrics.seconds, 1e-9)
                    report(f": {metrics.records:,} records, {rate:,.0f}/s, {len(self._processes)} workers")
                if until is not None and time.monotonic() > self._meter.begun + until:
                    self._stopped = "until"
                    break
            else:
                self._stopped = "stopped" if self._stopping else "finished"
        except KeyboardInterrupt:
            self._stopped = "interrupted"
        except BaseException as error:
            self._failure = error
            raise
        finally:
            metrics = self.metrics()
            try:
                self.close()
            except KeyboardInterrupt:
                self.close()
        return metrics

    def close(self) -> None:
        """End all workers."""
        if self._closed:
            return
        for one in self._processes.values():
            one.close()
        end = time.monotonic() + _ENDS_S
        for one in self._processes.values():
            try:
                one.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
        self._controls.close()
        if self._checkpoints is not None:
            self._checkpoints.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._watch.close(self._failure)
        self._closed = True


def _returns(topology: Topology) -> set[str]:
    return {channel_name(channel) for channel in topology.channels if channel.feedback}


def _choices(topology: Topology) -> tuple[dict[int, str], dict[str, list[str]]]:
    """Return what a policy decides about: stages by their first operators, and alternates."""
    firsts: dict[int, str] = {}
    for one in topology.operators:
        firsts.setdefault(topology.stages.get(one.name, 0), one.name)
    firsts.pop(0, None)
    return firsts, {one.name: list(one.alternates) for one in topology.operators if len(one.alternates) > 1}


def pickled(topology: Topology, value: Any) -> bytes:
    """Return a value for worker processes.

    Raises
    ------
    InputError
        It cannot be pickled.
    """
    from cloudpickle import dumps

    try:
        sent: bytes = dumps(value)
    except Exception as error:
        raise InputError(f"flow {topology.name}: cannot be sent to worker processes ({error})") from None
    return sent


def check_workers(workers: int | Mapping[str, int]) -> None:
    """Reject a number of workers that is not accepted.

    Parameters
    ----------
    workers : int or mapping
        Of a flow, or of its operators.

    Raises
    ------
    InputError
    """
    if isinstance(workers, int):
        if not 1 <= workers <= MOST_WORKERS:
            raise InputError(f"workers = {workers}: must be 1 to {MOST_WORKERS}")
        return
    for name, count in workers.items():
        if not 1 <= count <= MOST_WORKERS:
            raise InputError(f"workers: {name} = {count}: must be 1 to {MOST_WORKERS}")
    if not workers or sum(workers.values()) > MOST_WORKERS:
        raise InputError(f"workers: {sum(workers.values())} in all; 1 to {MOST_WORKERS} are accepted")


def _needed(topology: Topology, workers: int | Mapping[str, int]) -> tuple[int, int]:
    """Return the number of workers of all stages, and how many of them must be on this machine to read sources.

    The first stage has one worker if no operator names it.
    """
    firsts = () if isinstance(workers, int) else tuple(workers)
    for name in firsts:
        topology.operator(name)
    plan = Plan(divided(topology, firsts))
    total = workers if isinstance(workers, int) else sum(workers.values()) + (0 in plan.topology.stages.values())
    return total, len({*plan.here.values()})


def run_workers(
    topology: Topology,
    workers: int | Mapping[str, int],
    replication: int,
    checkpoint: str | Path | None,
    every: Duration,
    until: Until | None,
    report: Callable[[str], None] | None = None,
    watch: Watch | None = None,
    delivery: Delivery | str = Delivery.EXACTLY_ONCE,
    machines: Machines | None = None,
) -> Metrics:
    """Run a flow on several workers, of several machines if some are given; see `Flow.run`."""
    check_workers(workers)
    options, limit = options_of(replication, checkpoint, every, until, delivery)
    with watch or Watch() as held:
        if machines is not None:
            waiting = Waiting(topology)
            held.announce(waiting)
            total, here = _needed(topology, workers)
            machines.wait(total, report, lambda: waiting.stopped, here)
            if waiting.stopped:
                return waiting.metrics()
        return Cluster(topology, workers, watch=held, machines=machines, **options).run(limit, report)


def options_of(
    replication: int, checkpoint: str | Path | None, every: Duration, until: Until | None, delivery: Delivery | str
) -> tuple[dict[str, Any], float | None]:
    """Return options of `Cluster`, and the seconds that the run may take, from arguments of `Flow.run`.

    Parameters
    ----------
    replication, checkpoint, every, until, delivery
        As in `Flow.run`.

    Returns
    -------
    dict, float or None

    Raises
    ------
    InputError
        An argument is not accepted.
    """
    if replication < 0:
        raise InputError(f"replication = {replication}: must be at least 0")
    if callable(until):
        raise InputError("until: with several workers, accepted is a duration")
    if delivery not in list(Delivery):
        raise InputError(f"delivery = {delivery!r}: accepted are {', '.join(Delivery)}")
    limit = None if until is None else microseconds(until, "until") / 1e6
    options = {
        "replication": replication, "checkpoint": checkpoint, "checkpoint_s": microseconds(every, "every") / 1e6,
        "delivery": Delivery(delivery),
    }  # fmt: skip
    return options, limit

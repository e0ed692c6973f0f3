"""Run a flow in this process, with durable checkpoints."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from goffish.errors import InputError, JobError
from goffish.gofs.times import Duration, microseconds
from goffish.notebook import bar, in_notebook
from goffish.partial import local_path
from goffish.streaming.batches import FIRST, LAST, Batch
from goffish.streaming.checkpoints import SINKS, WORKERS, CheckpointFolder
from goffish.streaming.live.watch import Watch
from goffish.streaming.metrics import Counts, Meter, Metrics, WorkerMetrics
from goffish.streaming.operators import Clock, Failure, described
from goffish.streaming.pipeline import Pipeline, named
from goffish.streaming.sources import Pace, Reader
from goffish.streaming.state import ALL, State, ValueState
from goffish.streaming.topology import MAIN, Operator, SourceOptions, Topology
from goffish.streaming.updates.bounds import Bounds
from goffish.streaming.updates.forecast import Setup, forecast
from goffish.streaming.updates.migration import forms_of, migrated_state, take_over, to_migrate
from goffish.streaming.updates.plan import UpdatePlan, plan_update
from goffish.streaming.updates.rollout import Rollout, UpdateReport
from goffish.streaming.updates.versions import PartialWindow, Strategy, partial_window_of, strategy_of

Until = Duration | Callable[[Metrics], bool]
Report = Callable[[str], None]
#: Records that are read at once, adapted so that a batch takes about a hundredth of a second.
_FIRST, _LEAST, _MOST, _SHORT_S, _LONG_S = 1024, 1, 1 << 16, 0.01, 0.05
#: Seconds between two looks at a source that has nothing, at `until` and the display, and at new files.
_IDLE_S, _LOOK_S, _LISTING_S = 0.005, 0.1, 1.0
#: Seconds that a batch has after Ctrl-C before it is abandoned together with the last checkpoint.
_GRACE_S = 0.4
_FEEDBACK = "feedback"


class _Partitions:
    """The partitions of one source: readers, positions and watermarks."""

    def __init__(self, operator: Operator, saved: Mapping[str, Any]) -> None:
        assert isinstance(operator.options, SourceOptions)
        self.name, self.options = operator.name, operator.options
        self._source = self.options.source.begin(resumed=bool(saved))
        self._saved = {name: dict(one) for name, one in saved.items()}
        self._readers: dict[str, Reader] = {}
        self._clocks: dict[str, Clock] = {}
        self._seen: dict[str, float] = {}
        self._pace = Pace(self.options.source.rate)
        self._listed = float("-inf")
        self._turn: deque[str] = deque()
        self.discover()
        missing = [name for name, one in self._saved.items() if not one["done"] and name not in self._clocks]
        if missing and not self.options.source.follows:
            raise InputError(f"{missing[0]}: is missing, but was not read to its end before the checkpoint; restore it")

    def discover(self) -> None:
        """Open partitions that are new."""
        self._listed = time.monotonic()
        for name in self._source.partitions():
            if name in self._clocks:
                continue
            saved = self._saved.get(name, {})
            clock = Clock(self.options.time or "", self.options.lateness)
            clock.watermark = saved.get("watermark", FIRST)
            self._clocks[name], self._seen[name] = clock, time.monotonic()
            if not saved.get("done"):
                self._readers[name] = self._source.open(name, saved.get("position"))
                self._turn.append(name)

    @property
    def done(self) -> bool:
        """Whether no record can follow."""
        return not self._turn and not self.options.source.follows

    def read(self, limit: int) -> tuple[Batch | None, list[Failure]]:
        """Return records of the next partition that has some, and lines that are none."""
        if self.options.source.follows and time.monotonic() > self._listed + _LISTING_S:
            self.discover()
        limit = self._pace.allowed(limit)
        if not limit:
            return None, []
        for _ in range(len(self._turn)):
            name = self._turn[0]
            reader = self._readers[name]
            found = reader.read(limit)
            if reader.done:
                self._turn.popleft()
                self._saved[name] = self._position(name) | {"done": True}
                self._readers.pop(name).close()
            else:
                self._turn.rotate(-1)
            if found is None:
                continue
            self._pace.took(len(found.values))
            self._seen[name] = time.monotonic()
            batch, failures = Batch(found.values), [Failure(self.name, one.text, one.error) for one in found.bad]
            if self.options.time is not None:
                batch, more = self._clocks[name].timed(batch, self.name)
                failures += more
            return batch, failures
        return None, []

    def _position(self, name: str) -> dict[str, Any]:
        return {"position": self._readers[name].position, "watermark": self._clocks[name].watermark, "done": False}

    def positions(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of every partition."""
        return self._saved | {name: self._position(name) for name in self._readers}

    def saved(self) -> None:
        """Let readers drop what is before their positions, which a checkpoint holds now."""
        for reader in self._readers.values():
            reader.saved(reader.position)

    def watermark(self) -> int | None:
        """Return the watermark of the partitions that are not idle; ``None`` if all are."""
        if self.done:
            return LAST
        if self.options.time is None:
            return FIRST
        idle, now = self.options.idle, time.monotonic()
        active = [
            self._clocks[name].watermark for name in self._turn
            if idle is None or now <= self._seen[name] + idle / 1e6
        ]  # fmt: skip
        if not active:
            return None if self._turn else FIRST
        return min(active)

    def close(self) -> None:
        """Close files."""
        for reader in self._readers.values():
            reader.close()


class Executor:
    """Drives the instances of a flow: reads sources in turn, and sends each batch through all operators.

    Between two batches nothing is in flight but the records of loops, which are queued, so that a checkpoint is
    consistent without stopping anything.
    """

    def __init__(self, topology: Topology, checkpoint: str | Path | None, every: Duration, until: Until | None) -> None:
        self.topology = topology
        self._every = microseconds(every, "every") / 1e6
        limited = until is not None and not callable(until)
        self._limit = microseconds(until, "until") / 1e6 if limited else None  # type: ignore[arg-type]
        self._until = until if callable(until) else None
        topology.check_access()
        spool = None if checkpoint is None else local_path(checkpoint) / SINKS
        begun = time.monotonic()
        self._pipeline = Pipeline(topology, spool=spool)
        self._operators_s, self._saving_s = time.monotonic() - begun, 0.0
        self._loops = any(channel.feedback for channel in topology.channels)
        self._pending = ValueState()
        self._switches: deque[tuple[str, str]] = deque()
        self._updates: deque[UpdatePlan] = deque()
        self._bounds: Bounds | None = None  # of the update that is in progress
        self.load: Callable[[str], Topology] | None = None
        #: Updates that have ended.
        self.updates: list[UpdateReport] = []
        self._stop: str | None = None
        #: Whether a batch is being processed: a state that no checkpoint may capture.
        self.busy = False
        self._stopped = "running"
        self._number = 0
        self._processed = self._saved_at = 0
        self._saved_s = time.monotonic()
        self._ended: float | None = None
        self._folder = None
        self._complete = False
        self._sources: dict[str, _Partitions] = {}
        try:
            if checkpoint is not None:
                if (local_path(checkpoint) / WORKERS).is_dir():
                    raise InputError(
                        f"{checkpoint}: checkpoint of a run with several workers; resume it with --workers 2"
                    )
                self._folder = CheckpointFolder(checkpoint, topology.name, topology.fingerprint)
            self._restore()
        except BaseException:
            self._close()
            raise

    def _restore(self) -> None:
        latest = None if self._folder is None else self._folder.latest
        body = {} if latest is None else latest.body
        if self._folder is not None:
            states = self._states()
            for operator, delta in self._folder.state():
                states[operator].install(delta)
            if latest is not None:
                for name in to_migrate(self.topology, body.get("forms")):
                    instance = self._pipeline.instances[name]
                    take_over(instance, instance)
                    self._processed += 1  # to be saved
        for target, port, batch in self._pending.values.get(0, ()):
            self._pipeline.feedback.append((target, port, batch, time.monotonic()))
        for name, progress in body.get("progress", {}).items():
            self._pipeline.instances[name].resume(progress)
        for name, alternate in body.get("active", {}).items():
            if alternate in self.topology.operator(name).alternates:
                self._pipeline.switch(name, alternate)
        for name, (received, sent, errors) in body.get("counts", {}).items():
            counts = self._pipeline.counts[name]
            counts.received, counts.sent, counts.errors, counts.before = received, sent, errors, received
        self._pipeline.errors = sum(one.errors for one in self._pipeline.counts.values())
        self._complete = body.get("complete", False)
        for writer in self._pipeline.all_writers:
            writer.recover(None if latest is None else latest.number)
        self._number = 0 if latest is None else latest.number
        self._meter = Meter(self.topology, self._counts())
        for one in self.topology.operators:
            if one.kind == "source" and not self._complete:
                with named(one.name):
                    self._sources[one.name] = _Partitions(one, body.get("sources", {}).get(one.name, {}))

    def _states(self) -> dict[str, State]:
        return self._pipeline.states | ({_FEEDBACK: self._pending} if self._loops else {})

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop is not None

    def stop(self, reason: str = "stopped") -> None:
        """Stop after the current batch."""
        self._stop = self._stop or reason

    def scale(self, workers: int | Mapping[str, int]) -> None:
        """Reject another number of workers.

        Raises
        ------
        InputError
        """
        flow = f"flow {self.topology.name}"
        raise InputError(f"{flow}: runs in one process; only runs with --workers 2 or more change that number")

    def switch(self, operator: str, alternate: str) -> None:
        """Switch to an alternate before the next batch.

        Raises
        ------
        InputError
            The operator or the alternate does not exist.
        """
        self.topology.check_alternate(operator, alternate)
        self._switches.append((operator, alternate))

    def update(
        self, new: Topology, strategy: Strategy = Strategy.MVC, partial_windows: PartialWindow = PartialWindow.EMIT
    ) -> None:
        """Use a new version of the flow before the next batch; `updates` has the result.

        Raises
        ------
        InputError
            The flow cannot be updated in this way, or an update is in progress.
        """
        if self._updates:
            raise InputError(f"flow {self.topology.name}: an update is in progress; wait until it is complete")
        plan = self.plan(new, strategy, partial_windows)
        plan.check_sinks()
        self._bounds = forecast({strategy: plan}, self.metrics(), self.setup).bounds.get(strategy)
        self._updates.append(plan)

    def plan(self, new: Topology, strategy: Strategy, partial_windows: PartialWindow) -> UpdatePlan:
        """Compare the flow with another version of it."""
        return plan_update(len(self.updates) + 1, self.topology, new, strategy, partial_windows)

    @property
    def setup(self) -> Setup:
        """How the flow runs, for the bounds of updates."""
        return Setup(0, self._every, self._saving_s, self._operators_s, 0.0)

    @property
    def updating(self) -> bool:
        """Whether an update is in progress."""
        return bool(self._updates)

    def _update(self, plan: UpdatePlan) -> None:
        """Exchange the operators. Nothing is in flight between two batches, so that all strategies are one."""
        rollout = Rollout(plan, time.monotonic(), bounds=self._bounds)
        old, lost = self._pipeline, 0
        try:
            new = old.updated(plan)
            migrated = {name: migrated_state(old.instances[name], plan.new.operator(name)) for name in plan.migrated}
        except Exception as error:  # of functions of the user: the flow goes on without the update
            rollout.abort(described(error), time.monotonic())
        else:
            rollout.activated = time.monotonic()
            lost = old.end_windows(plan, self.topology.names)
            if plan.to_dict()["ends_windows"]:  # their results may have changed state
                migrated = {}
            self._checkpoint()
            for name in plan.migrated:
                take_over(old.instances[name], new.instances[name], migrated.get(name))
            kept = {id(writer) for writer in new.all_writers}
            for writer in old.all_writers:
                if id(writer) not in kept:
                    writer.close()
            known = {id(writer) for writer in old.all_writers}
            for writer in new.all_writers:
                if id(writer) not in known:
                    writer.recover(None)
            new.feedback, new.origins = old.feedback, {}
            self._pipeline, self.topology = new, plan.new
            self._meter.follow(plan.new)
            if self._folder is not None:
                self._folder.fingerprint = plan.new.fingerprint
            self._checkpoint(whole=True)
            rollout.complete(time.monotonic())
        self.updates.append(rollout.report({}, lost))

    def run(self, report: Report | None = None) -> Metrics:
        """Run until the sources end or the flow is stopped."""
        self._meter.start()
        self._ended = None
        try:
            self._stopped = "finished" if self._complete else self._loop(report)
            if not self._complete and self._processed == self._saved_at and self._stopped != "finished":
                return self.metrics()
            if not self._complete:
                self._complete = self._stopped == "finished"
                self._checkpoint()
        finally:
            self._ended = time.monotonic()
            self._close()
        return self.metrics()

    def _loop(self, report: Report | None) -> str:
        limit, saved, looked = _FIRST, self._meter.begun, self._meter.begun
        turn = deque(self._sources.values())
        while True:
            if self._stop is not None:
                return self._stop
            begun = time.monotonic()
            self.busy = True
            while self._switches:
                self._pipeline.switch(*self._switches.popleft())
            while self._updates:
                self._update(self._updates[0])
                self._updates.popleft()
            worked = self._one_batch(turn, limit)
            self._propagate()
            self.busy = False
            now = time.monotonic()
            if worked:
                self._processed += 1
                if now - begun < _SHORT_S:
                    limit = min(2 * limit, _MOST)
                elif now - begun > _LONG_S:
                    limit = max(limit // 2, _LEAST)
            elif not self._pipeline.feedback and all(one.done for one in turn):
                return "finished"
            else:
                time.sleep(_IDLE_S)
            if now > saved + self._every:
                if self._processed > self._saved_at:
                    self._checkpoint()
                saved = time.monotonic()
            if now > looked + _LOOK_S:
                looked = now
                if report is not None:
                    report(self._line(now - self._meter.begun))
                if self._until is not None and self._until(self.metrics()):
                    return "until"
            if self._limit is not None and now - self._meter.begun > self._limit:
                return "until"

    def _one_batch(self, turn: deque[_Partitions], limit: int) -> bool:
        """Process one batch, first of loops; return whether there was one."""
        if self._pipeline.feedback:
            target, port, batch, self._pipeline.read_at = self._pipeline.feedback.popleft()
            self._pipeline.deliver(target, port, batch)
            return True
        for _ in range(len(turn)):
            source = turn[0]
            turn.rotate(-1)
            begun = time.monotonic()
            with named(source.name):
                found, failures = source.read(limit)
            if found is not None:
                self._pipeline.read_at = begun
                counts = self._pipeline.counts[source.name]
                counts.busy, counts.batches = counts.busy + time.monotonic() - begun, counts.batches + 1
                self._pipeline.failed(failures)
                if len(found):
                    self._pipeline.counts[source.name].received += len(found)
                    self._pipeline.send(source.name, found)
                return True
        return False

    def _propagate(self) -> None:
        """Send watermarks through all operators, in order."""
        finished = not self._pipeline.feedback and all(one.done for one in self._sources.values())
        marks = {name: one.watermark() for name, one in self._sources.items()}
        if self._loops and not finished:  # the records of sources that have ended may still be in a loop
            marks = {name: None if mark == LAST else mark for name, mark in marks.items()}
        self._processed += self._pipeline.propagate(marks)

    def _checkpoint(self, *, whole: bool = False) -> None:
        """Save a checkpoint and publish the records of sinks."""
        number, begun = self._number + 1, time.monotonic()
        self._pipeline.prepare(number)
        if self._folder is not None:
            self._pending.values[0] = [entry[:3] for entry in self._pipeline.feedback]
            self._pending.changed.add(0)
            whole |= self._folder.whole_is_due
            states = self._states()
            deltas = {}
            for name, state in states.items():
                with named(name):
                    changes = state.collect()
                    deltas[name] = state.extract(ALL) if whole else changes
            body = {
                "sources": {name: one.positions() for name, one in self._sources.items()},
                "progress": {name: one.progress() for name, one in self._pipeline.instances.items()},
                "active": {name: one for name, one in self._pipeline.active.items() if one != MAIN},
                "counts": {name: [one.received, one.sent, one.errors] for name, one in self._pipeline.counts.items()},
                "complete": self._complete,
                "forms": forms_of(self.topology),
            }
            self._folder.save(number, deltas, body, whole=whole, operators=self.topology.names)
        self._pipeline.commit(number)
        for one in self._sources.values():
            one.saved()
        self._number, self._saved_at, self._saved_s = number, self._processed, time.monotonic()
        self._saving_s = max(self._saved_s - begun, 0.9 * self._saving_s)  # the longest of the last ones

    def metrics(self) -> Metrics:
        """Return the metrics so far."""
        number, age = self._number or None, (self._ended or time.monotonic()) - self._saved_s
        counts = self._counts()
        waiting = {name: one.queue for name, one in counts.items() if one.queue}
        worker = WorkerMetrics(0, os.getpid(), waiting, 0, False, number, None if number is None else age)
        saved = None if self._folder is None else number
        return self._meter.metrics(counts, self._pipeline.active, [worker], self._stopped, saved, self._ended)

    def _counts(self) -> dict[str, Counts]:
        """Return a copy of the counters of all operators."""
        waiting: dict[str, int] = {}
        for target, _, batch, _ in tuple(self._pipeline.feedback):
            waiting[target] = waiting.get(target, 0) + len(batch)
        instances = self._pipeline.instances
        return {
            name: one.copy(queue=waiting.get(name, 0), late=instances[name].late)
            for name, one in self._pipeline.counts.items()
        }

    def _line(self, seconds: float) -> str:
        read = sum(one.received - one.before for name, one in self._pipeline.counts.items() if name in self._sources)
        saved = f", checkpoint {self._number}" if self._folder is not None and self._number else ""
        return f": {read:,} records, {read / max(seconds, 1e-9):,.0f}/s{saved}"

    def _close(self) -> None:
        for one in self._sources.values():
            one.close()
        for writer in self._pipeline.all_writers:
            writer.close()
        if self._folder is not None:
            self._folder.close()


@contextmanager
def _interruptible(executor: Executor) -> Iterator[None]:
    """Stop the flow on Ctrl-C and SIGTERM after the current batch; abandon a batch that takes too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before: dict[int, Any] = {}
    timer: list[tuple[float, float]] = []  # the one of the program, while ours runs

    def stop(number: int, frame: FrameType | None) -> None:
        if executor.stopping:
            raise KeyboardInterrupt  # the second time
        executor.stop("terminated" if number == signal.SIGTERM else "interrupted")
        if executor.busy:
            before[signal.SIGALRM] = signal.signal(signal.SIGALRM, abandon)
            timer.append(signal.setitimer(signal.ITIMER_REAL, _GRACE_S))

    def abandon(number: int, frame: FrameType | None) -> None:
        if executor.busy:
            raise KeyboardInterrupt

    before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if timer:
            signal.setitimer(signal.ITIMER_REAL, *timer[0])
        for number, handler in before.items():
            signal.signal(number, handler)


def run(
    topology: Topology, checkpoint: str | Path | None = None, every: Duration = 2.0, until: Until | None = None, *,
    progress: bool = True, report: Report | None = None, watch: Watch | None = None,
) -> Metrics:  # fmt: skip
    """Run a flow in this thread; see `Flow.run`.

    Parameters
    ----------
    topology : Topology
    checkpoint, every, until, progress
        As in `Flow.run`.
    report : callable, optional
        Called with a line of text about ten times a second.
    watch : Watch, optional
        How other processes see and control the flow [default: by its socket].
    """
    with ExitStack() as held:
        watch = held.enter_context(watch or Watch())
        executor = Executor(topology, checkpoint, every, until)
        watch.attach(executor)
        held.enter_context(_interruptible(executor))
        if report is None and progress and in_notebook():
            update = held.enter_context(bar(f"flow {topology.name}"))
            report = lambda text: update(text, None)  # noqa: E731 (a bar has no share to show)
        return executor.run(report)


class Run:
    """A flow that runs on a thread of this process; made by `Flow.start`."""

    def __init__(self, executor: Executor, watch: Watch) -> None:
        self._executor, self._watch = executor, watch
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="goffish flow", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with self._watch:
                self._executor.run()
        except BaseException as error:
            self._error = error

    @property
    def url(self) -> str | None:
        """Address of the live page."""
        return self._watch.url

    @property
    def running(self) -> bool:
        """Whether the flow runs."""
        return self._thread.is_alive()

    @property
    def metrics(self) -> Metrics:
        """Metrics so far."""
        return self._executor.metrics()

    def switch(self, operator: str, alternate: str) -> None:
        """Switch an operator to another implementation before its next batch.

        Parameters
        ----------
        operator, alternate : str
            ``"main"`` is the function itself.

        Raises
        ------
        InputError
            The operator or the alternate does not exist.
        """
        self._executor.switch(operator, alternate)

    def update(self, new: Topology, strategy: str = "mvc", partial_windows: str = "emit") -> UpdateReport:
        """Replace the flow by another version of it, without stopping it; see `Flow.check` for its topology.

        Parameters
        ----------
        new : Topology
            Its sources, event times and loops are those of the running version.
        strategy : {"mvc", "pvc", "hti", "nch", "ncl"}
            They differ with several workers only: in one process, no record is in flight between two batches.
        partial_windows : {"emit", "drop", "merge"}
            What becomes of windows and joins that depend on the change: they end now, are dropped, or go on with the
            records of both versions.

        Returns
        -------
        UpdateReport

        Raises
        ------
        InputError
            The flow cannot be updated in this way.
        JobError
            The flow failed, or has ended.

        Examples
        --------
        >>> import goffish as gf
        >>> def make(factor):
        ...     flow = gf.stream.Flow("numbers")
        ...     read = flow.source(gf.stream.generate(rate=1000))
        ...     read.map(lambda n: n * factor, name="scale").sink(gf.stream.call(lambda n: None))
        ...     return flow
        >>> run = make(1).start()
        >>> run.update(make(2).check()).changes
        'changed scale'
        >>> run.stop().stopped
        'stopped'
        """
        count = len(self._executor.updates)
        self._executor.update(new, strategy_of(strategy), partial_window_of(partial_windows))
        while len(self._executor.updates) == count:
            if not self.running:
                self.wait()
                raise JobError(f"flow {new.name}: has ended before the update")
            time.sleep(_IDLE_S)
        return self._executor.updates[-1]

    def stop(self) -> Metrics:
        """Stop after the current batch, save a checkpoint, and return the metrics.

        Returns
        -------
        Metrics

        Raises
        ------
        JobError
            The flow failed.
        """
        self._executor.stop()
        return self.wait()

    def wait(self, timeout: float | None = None) -> Metrics:
        """Wait until the flow ends.

        Parameters
        ----------
        timeout : float, optional
            Seconds [default: unlimited].

        Returns
        -------
        Metrics

        Raises
        ------
        JobError
            The flow failed.
        """
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self._executor.metrics()


def start(
    topology: Topology, checkpoint: str | Path | None = None, every: Duration = 2.0, until: Until | None = None,
    watch: Watch | None = None,
) -> Run:  # fmt: skip
    """Run a flow on a thread; see `Flow.start`."""
    with ExitStack() as held:
        watch = held.enter_context(watch or Watch())
        executor = Executor(topology, checkpoint, every, until)
        watch.attach(executor)
        held.pop_all()  # the thread closes it
        return Run(executor, watch)

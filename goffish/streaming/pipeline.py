"""The operators of a flow in one process, and the way of batches and watermarks through them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from goffish.errors import GoffishError, InputError, JobError
from goffish.streaming.batches import LAST, Batch
from goffish.streaming.metrics import Counts, Histogram
from goffish.streaming.operators import Failure, Instance, described, make_instance
from goffish.streaming.sinks import Writer
from goffish.streaming.state import State
from goffish.streaming.topology import MAIN, Channel, SinkOptions, Topology
from goffish.streaming.updates.plan import UpdatePlan, has_windows
from goffish.streaming.updates.versions import PartialWindow

#: Batches that a writer keeps apart until it publishes them; more are merged in pairs.
_MOST_UNPUBLISHED = 1024
_Read = tuple[float, int]  # when records were read, and how many


class Pipeline:
    """Instances of all operators of a flow, and writers of its sinks.

    Parameters
    ----------
    topology : Topology
    exchange : callable, optional
        Called with a channel that has a key, and a batch, in place of delivering it.
    part : str, optional
        Distinguishes the files of several processes.
    version : int, optional
        Of the flow, which updates increase.
    origins : mapping, optional
        Versions with which the states of operators began, if it was not the first one.
    spool : Path, optional
        Folder for what sinks have prepared.

    Attributes
    ----------
    muted : bool
        Whether sinks have what is delivered already.
    read_at : float
        When the records were read that are processed now.
    path : str
        Channels that they have passed since then.
    feedback : deque
        Target, port and batch of what loops send back, and when it was read.
    """

    def __init__(
        self,
        topology: Topology,
        exchange: Callable[[Channel, Batch], None] | None = None,
        part: str = "",
        version: int = 0,
        origins: Mapping[str, int] | None = None,
        spool: Path | None = None,
    ) -> None:
        self.topology, self.version, self.part, self.spool = topology, version, part, spool
        self.origins = dict(origins or {})
        self.instances = {one.name: make_instance(one) for one in topology.operators}
        self.writers = {
            one.name: one.options.sink.writer(one.name)
            for one in topology.operators if isinstance(one.options, SinkOptions)
        }  # fmt: skip
        self.dead = None if topology.on_error is None else topology.on_error.writer("on_error")
        self.counts = {
            one.name: Counts(
                latency=Histogram() if one.name in self.writers else None,
                age=Histogram() if one.name in self.writers or one.key is not None else None,
            )
            for one in topology.operators
        }
        self.active = dict.fromkeys(self.instances, MAIN)
        self.errors = 0
        self.muted = False
        #: Times of the first and of the last write to a sink, as of `time.monotonic`.
        self.writes: tuple[float, float] | None = None
        self.read_at = time.monotonic()
        self.path = ""
        self._unpublished: dict[str, list[_Read]] = {n: [] for n, one in self.writers.items() if one.publishes}
        self._prepared: dict[int, dict[str, list[_Read]]] = {}
        self.feedback: deque[tuple[str, int, Batch, float]] = deque()
        #: Watermark that each operator has sent last.
        self.forwarded: dict[str, int | None] = {}
        for writer in self.all_writers:
            writer.part, writer.spool = part, spool
        self._exchange = exchange
        self._routes: dict[tuple[str, str], list[Channel]] = {}
        for channel in topology.channels:
            self._routes.setdefault((channel.source, channel.output), []).append(channel)

    def updated(self, update: UpdatePlan, exchange: Callable[[Channel, Batch], None] | None = None) -> Pipeline:
        """Return the operators of a new version; those that do not differ are the same instances."""
        origins = self.origins | dict.fromkeys(update.own_state, update.number)
        new = Pipeline(update.new, exchange, self.part, update.number, origins, self.spool)
        new.dead, new.errors = self.dead, self.errors
        for name in self.instances.keys() & new.instances.keys():
            new.counts[name] = self.counts[name]
            if name not in update.own:
                new.instances[name] = self.instances[name]
                new.active[name] = self.active[name]
                if name in self.writers:
                    new.writers[name] = self.writers[name]
                continue
            old, instance = self.instances[name], new.instances[name]
            instance.watermark = old.watermark
            if old.state is not None and name not in update.own_state:
                instance.share(old)
            if self.active[name] in update.new.operator(name).alternates:
                new.switch(name, self.active[name])
        return new

    def end_windows(self, update: UpdatePlan, operators: Iterable[str]) -> int:
        """End windows of the old version that the new one does not continue; return how many results are dropped."""
        lost = 0
        for name in operators:
            continues = name in update.new.names and name not in update.own_state - update.migrated
            if continues or not has_windows(self.topology.operator(name)):
                continue
            if update.partial_windows == PartialWindow.EMIT:
                self.advance(name, LAST)
            else:
                lost += sum(len(batch) for batch in self.instances[name].advance(LAST))
        return lost

    @property
    def all_writers(self) -> list[Writer]:
        """Writers of all sinks, and of the one for errors."""
        return [*self.writers.values(), *([] if self.dead is None else [self.dead])]

    @property
    def states(self) -> dict[str, State]:
        """States of the operators that have any, by `state_name`."""
        return {self.state_name(name): one.state for name, one in self.instances.items() if one.state is not None}

    def state_name(self, operator: str) -> str:
        """Return the name of the state of an operator, with a version if it did not begin with the first one."""
        return f"{operator}@{self.origins[operator]}" if operator in self.origins else operator

    def switch(self, operator: str, alternate: str) -> None:
        """Use another implementation of an operator from now on."""
        self.instances[operator].function = self.topology.operator(operator).alternates[alternate].function
        self.active[operator] = alternate

    def send(self, operator: str, batch: Batch) -> None:
        """Deliver what an operator sends to all that receive it."""
        counts, size = self.counts[operator], len(batch)
        counts.sent += size
        counts.outputs[batch.output] = counts.outputs.get(batch.output, 0) + size
        path = self.path
        for channel in self._routes.get((operator, batch.output), ()):
            self.path = f"{path}\n{channel.source} {channel.output} {channel.target} {channel.port}"
            if channel.key is not None and self._exchange is not None:
                self._exchange(channel, batch)
            elif channel.feedback:
                self.feedback.append((channel.target, channel.port, batch, self.read_at))
            else:
                self.deliver(channel.target, channel.port, batch)
        self.path = path

    def deliver(self, operator: str, port: int, batch: Batch) -> None:
        """Let an operator process a batch, and deliver what it sends."""
        counts = self.counts[operator]
        counts.received += len(batch)
        counts.batches += 1
        if batch.output:  # of the sender; an operator that forwards records would send them by the same
            batch = replace(batch, output="")
        writer, begun = self.writers.get(operator), time.monotonic()
        if counts.age is not None:
            counts.age.add(begun - self.read_at)
        if writer is not None:
            if not self.muted:
                with named(operator):
                    writer.write(batch)
                now = time.monotonic()
                self.writes = (now if self.writes is None else self.writes[0], now)
                counts.busy += now - begun
                self._written(operator, len(batch), now)
            return
        instance = self.instances[operator]
        with named(operator):
            sent = instance.process(port, batch)
        counts.busy += time.monotonic() - begun
        self._done(instance, sent)

    def _written(self, operator: str, size: int, now: float) -> None:
        """Count the latency of records that a sink has written, now or when it publishes them."""
        waiting = self._unpublished.get(operator)
        if waiting is None:
            latency = self.counts[operator].latency
            assert latency is not None
            latency.add(now - self.read_at, size)
            return
        waiting.append((self.read_at, size))
        if len(waiting) >= _MOST_UNPUBLISHED:
            pairs = zip(waiting[::2], waiting[1::2], strict=True)
            waiting[:] = [(min(a[0], b[0]), a[1] + b[1]) for a, b in pairs]

    @property
    def unpublished(self) -> bool:
        """Whether sinks have records that they publish with the next checkpoint."""
        return any(self._unpublished.values())

    def prepare(self, number: int, done: Collection[Writer] = ()) -> None:
        """Make what sinks have written durable under the number of a checkpoint, but for writers that are done."""
        for writer in self.all_writers:
            if writer not in done:
                writer.prepare(number)
        self._prepared[number] = {name: waiting for name, waiting in self._unpublished.items() if waiting}
        self._unpublished = {name: [] for name in self._unpublished}

    def commit(self, number: int, done: Collection[Writer] = ()) -> None:
        """Publish what was prepared for a checkpoint, but for writers that are done."""
        for writer in self.all_writers:
            if writer not in done:
                writer.commit(number)
        now = time.monotonic()
        for name, published in self._prepared.pop(number, {}).items():
            latency = self.counts[name].latency
            assert latency is not None
            for read_at, size in published:
                latency.add(now - read_at, size)

    def advance(self, operator: str, watermark: int) -> bool:
        """Send a watermark to an operator, and deliver what it sends; return whether it sent something."""
        instance = self.instances[operator]
        begun = time.monotonic()
        with named(operator):
            sent = instance.advance(watermark)
        self.counts[operator].busy += time.monotonic() - begun
        self._done(instance, sent)
        return bool(sent)

    def _done(self, instance: Instance, sent: list[Batch]) -> None:
        if instance.failures:
            failures, instance.failures = instance.failures, []
            self.failed(failures)
        for batch in sent:
            self.send(instance.name, batch)

    def failed(self, failures: list[Failure]) -> None:
        """Send records that cannot be processed to the sink for them.

        Raises
        ------
        JobError
            There is none, or there are too many.
        """
        if not failures:
            return
        most = self.topology.max_errors
        self.errors += len(failures)
        for one in failures:
            self.counts[one.operator].errors += 1
        if self.dead is None:
            raise JobError(str(failures[0]))
        if most is not None and self.errors > most:
            raise JobError(f"{failures[0]}; {self.errors:,} errors, max_errors = {most:,}")
        if self.muted:
            return
        rows = [{"operator": one.operator, "error": one.error, "record": repr(one.record)} for one in failures]
        self.dead.write(Batch(rows))

    def propagate(self, given: Mapping[str, int | None]) -> bool:
        """Send watermarks through all operators, in order; return whether one of them sent something.

        Parameters
        ----------
        given : mapping of str to int or None
            Watermarks of sources and, between processes, of operators with a key; None where all inputs are idle.
        """
        forwarded = self.forwarded
        sent = False
        for one in self.topology.operators:
            instance = self.instances[one.name]
            if one.name in given:
                mark = given[one.name]
            else:
                mark = least([forwarded[c.source] for c in one.inputs if not c.feedback])
            if mark is not None and mark > instance.watermark:
                sent |= self.advance(one.name, mark)
            forwarded[one.name] = None if mark is None else instance.forwarded(instance.watermark)
        return sent


def least(inputs: Collection[int | None]) -> int | None:
    """Return the watermark that follows from those of several inputs, which are None where the input is idle.

    None also if all others have ended, as those that are idle may have records later.
    """
    active = [mark for mark in inputs if mark is not None and mark < LAST]
    ended = inputs and None not in inputs
    return min(active) if active else LAST if ended else None


@contextmanager
def named(operator: str) -> Iterator[None]:
    """Name the operator in errors that do not."""
    try:
        yield
    except JobError:
        raise
    except GoffishError as error:
        raise type(error)(f"operator {operator}: {error}") if type(error) is InputError else error from None
    except Exception as error:
        raise JobError(f"operator {operator}: {described(error)}") from error

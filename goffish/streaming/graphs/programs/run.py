"""A program that follows a live graph on several workers, as the process of the live graph sees it."""

from __future__ import annotations

import json
import selectors
import shutil
import sys
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.gopher.result import Result
from goffish.streaming.batches import FIRST
from goffish.streaming.graphs.kernels import sort_by_key
from goffish.streaming.graphs.programs.part import Batch, Moves
from goffish.streaming.graphs.programs.placement import MOST_WORKERS, Directory, Partitioner, partitioner_of
from goffish.streaming.graphs.programs.program import LiveProgram
from goffish.streaming.graphs.programs.worker import CONTROLLER, PROGRAM, Done, Epoch, Job, Scaling
from goffish.streaming.graphs.records import Encoder
from goffish.streaming.graphs.rows import labels_of
from goffish.streaming.graphs.state import Changes, State
from goffish.streaming.graphs.updates import ADD_EDGE, ADD_VERTEX, REMOVE_EDGE, REMOVE_VERTEX
from goffish.streaming.key_table import KeyTable, longer
from goffish.streaming.runtime.launch import CONTROL, Handle, Launcher, start_here
from goffish.streaming.runtime.links import Incoming, Outgoing, listen

Numbers = NDArray[np.int64]
#: Epochs that workers may have before more are sent.
_AHEAD = 2
#: Epochs in a row after which a worker is added, as more than `_AHEAD` were not complete; after which one is removed,
#: as workers were busy for less than a share of the time; and this share.
_BEHIND_CHECKS, _IDLE_CHECKS, _LEAST_BUSY = 3, 10, 0.3
#: Snapshots are written when one of these is exceeded: seconds, changes, and bytes since the last one.
_SNAPSHOT_S, _SNAPSHOT_CHANGES, _SNAPSHOT_BYTES = 60.0, 1_000_000, 256 << 20
#: Failures without an epoch that is complete in between, after which a program is given up.
_MOST_FAILURES = 3
#: Seconds between two looks at processes that have not connected yet.
_LOOK_S = 0.1
_NO_MOVES = Moves(np.zeros(0, np.int64), np.zeros(0, np.int32))
_OPS = (ADD_VERTEX, REMOVE_VERTEX, ADD_EDGE, REMOVE_EDGE)


def checked_count(name: str, value: object, most: int = MOST_WORKERS) -> None:
    """Raise an error unless a number is a positive integer that is not too large.

    Raises
    ------
    InputError
        It is not accepted.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"{name} = {value!r:.60}: accepted are 1 to {most:,}")


def workers_of(given: Any, program: LiveProgram) -> tuple[int, int]:
    """Return the number of workers at first, and the largest one, or 0 if it does not change by load.

    Raises
    ------
    InputError
        The numbers are not accepted, or the program cannot be scaled.
    """
    if not isinstance(given, tuple):
        checked_count("workers", given)
        return given, 0
    if len(given) != 2:
        raise InputError(f"workers = {given!r:.60}: accepted are a number, or the smallest and the largest one")
    for one in given:
        checked_count("workers", one)
    if given[0] > given[1]:
        raise InputError(f"workers = {given}: the first number must not exceed the second one")
    if not program.movable:
        raise InputError(f"program {type(program).__name__}: workers must be one number, as it is not movable")
    return given


class Settings(NamedTuple):
    """How a program runs.

    Attributes
    ----------
    workers : int
        Number of workers at first, and the smallest one if it changes by load.
    partitioner : str or Partitioner
    every : int, optional
        Event time of an epoch, in microseconds.
    changes : int
        Changes of an epoch, at most.
    on_events : callable, optional
    events : int
        How many events are kept.
    launcher : Launcher
        Starts the worker processes.
    most : int
        The largest number of workers, if it changes by load.
    """

    workers: int
    partitioner: str | Partitioner
    every: int | None
    changes: int
    on_events: Callable[[pa.Table], None] | None
    events: int = 100_000
    launcher: Launcher = start_here
    most: int = 0


class Load:
    """Decides from the load after each epoch whether a worker is added or removed."""

    def __init__(self) -> None:
        self._behind = self._idle = 0

    def check(self, lag: int, busy: float) -> int:
        """Return how many workers more there should be: 1, 0 or -1.

        Parameters
        ----------
        lag : int
            Epochs that are not complete.
        busy : float
            Share of the time since the last check in which workers were busy.
        """
        is_behind = lag > _AHEAD
        self._behind = self._behind + 1 if is_behind else 0
        self._idle = self._idle + 1 if busy < _LEAST_BUSY and not is_behind else 0
        found = int(self._behind >= _BEHIND_CHECKS) - int(self._idle >= _IDLE_CHECKS)
        if found:
            self._behind = self._idle = 0
        return found


class _Columns(NamedTuple):
    """Changes: their kinds, the names of one or two vertices, event times, and the records that they are of."""

    ops: NDArray[np.int8]
    firsts: Numbers
    seconds: Numbers
    times: Numbers
    records: Numbers

    def cut(self, begin: int, end: int | None = None) -> _Columns:
        return _Columns._make(column[begin:end] for column in self)


class _Sent(NamedTuple):
    """An epoch that may have to be sent again."""

    batches: dict[int, Batch]
    removes: bool
    snapshot: str
    moves: Moves
    most: int
    time: int
    changes: int


class ProgramRun:
    """A program that follows a live graph on several workers; made by `LiveGraph.run`.

    Attributes
    ----------
    value : object
        What the program returned as the value of the last epoch that is complete.
    """

    def __init__(self, state: State, encoder: Encoder, program: LiveProgram, settings: Settings, now: int) -> None:
        self._state, self._encoder, self._program, self._settings = state, encoder, program, settings
        self.value: Any = None
        self._check: Callable[[], None] | None = None
        self._end: Callable[[ProgramRun], None] | None = None
        self._failed = ""
        # Vertices: names are numbers in the order of appearance; numbers are ordered by label within an epoch.
        self._names = KeyTable()
        self._name_of_slot = np.full(0, -1)
        self._number_of, self._name_of = np.full(0, -1), np.zeros(0, np.int64)
        self._directory = Directory(settings.workers, partitioner_of(settings.partitioner))
        self._workers = tuple(range(settings.workers))
        self._open: list[_Columns] = []
        self._waiting, self._until, self._records = 0, FIRST, 0
        # Epochs.
        self._sent: dict[int, _Sent] = {}
        self._last = self._committed = 0
        self._snapshot = ""
        self._since: list[float] = [time.monotonic(), 0, 0]  # the last snapshot: when, changes and bytes after it
        self._moves = _NO_MOVES  # before the next epoch
        self._upward = True
        self._reports: dict[int, dict[int, Done]] = {}
        self._scaling: Scaling | None = None
        self._scaled: set[int] = set()
        self._answers: dict[int, tuple[Numbers, dict[str, Any]]] = {}
        self._request = 0
        self._events: deque[pa.Table] = deque()
        self._first = self._kept = 0  # events that are not kept any more, and those that are
        self._undelivered: list[pa.Table] = []
        self._totals = dict.fromkeys(("changes", "supersteps", "messages", "remote_messages", "recoveries", "moves"), 0)
        self._seconds: dict[int, float] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._failures = 0
        self._load, self._looked = Load(), (time.monotonic(), 0.0)  # at the last check, and seconds of workers
        # Workers.
        self._folder = Path(tempfile.mkdtemp(prefix="goffish-"))
        self._processes: dict[int, Handle] = {}
        self._finalizer = weakref.finalize(self, _end_all, self._processes, self._folder)
        self._generation = 0
        self._links: dict[int, Outgoing] = {}
        self._incoming: list[Incoming] = []
        self._ready: set[int] = set()
        self._gone = False
        try:
            named = {name: self._numbers_of(labels) for name, labels in program.named.items()}
            self._write(named)
            self._start()
            self._begin(now)
        except BaseException:
            self._finalizer()
            raise

    def attach(self, check: Callable[[], None], end: Callable[[ProgramRun], None]) -> None:
        """Note what raises an error when the graph cannot be followed any more, and what ends following it."""
        self._check, self._end = check, end

    # What users call.

    def result(self) -> Result:
        """Return the result for the graph as it is now; the current epoch ends.

        Returns
        -------
        Result
            A row for each vertex, as in ``live.graph()``; the summary has the `value`.

        Raises
        ------
        InputError
            The run is closed.
        JobError
            The program failed, or the live graph was interrupted while it applied records.
        """
        self._require()
        with self._whole():
            self._cut(everything=True)
            self._request, self._answers = self._request + 1, {}
            self._ask()
            self._pump(lambda: len(self._answers) == len(self._workers))
        self._call()
        return self._made()

    def wait(self) -> None:
        """Wait until all epochs that have ended are complete.

        Raises
        ------
        InputError
            The run is closed.
        JobError
            The program failed.
        """
        self._require()
        with self._whole():
            self._pump(lambda: self._committed == self._last)
        self._call()

    def scale(self, workers: int) -> None:
        """Change the number of workers, between two epochs.

        Workers that are added get the vertices that others have above the new mean; those with the fewest vertices are
        removed, and the others get theirs. Epochs that have ended are completed before; the current one goes on.
        Results do not depend on it.

        Parameters
        ----------
        workers : int

        Raises
        ------
        InputError
            The number is not accepted, the vertices of the program stay where they are, or the run is closed.
        JobError
            The program failed.

        Examples
        --------
        >>> import goffish as gf
        >>> live = gf.stream.LiveGraph(lateness=0)
        >>> with live.run("components", workers=1) as components:
        ...     _ = live.feed([{"t": 1, "op": "+e", "src": "ann", "dst": "bob"}])
        ...     components.scale(2)
        ...     components.statistics["workers"]
        2
        """
        checked_count("workers", workers)
        self._require()
        if workers == len(self._workers):
            return
        if not self._program.movable:
            name = type(self._program).__name__
            raise InputError(f"program {name}: has {len(self._workers)} workers until it ends, as it is not movable")
        self._directory.space(workers)
        with self._whole():
            self._scale(workers)
        self._call()

    def events(self, after: int = 0) -> pa.Table:
        """Return the events of the epochs that are complete.

        Parameters
        ----------
        after : int
            Number of the first event to be returned.

        Returns
        -------
        pyarrow.Table
            ``epoch``, ``time`` (the last event time of the epoch), ``status``, and the columns of the program.

        Raises
        ------
        InputError
            The events are not kept any more.
        """
        if after < self._first:
            raise InputError(f"after = {after:,}: events are kept from {self._first:,} on")
        return pa.concat_tables([self._table([]), *self._events]).slice(after - self._first)

    @property
    def statistics(self) -> dict[str, Any]:
        """Figures of the epochs that are complete.

        ``workers``, ``epochs``, ``changes``, ``supersteps``, ``messages`` and those to other workers, ``recoveries``
        from failed workers, ``moves`` of vertices to other workers, ``edges`` (pairs of adjacent vertices), ``cut``
        (share of those between two workers), ``balance`` (the largest number of vertices of a worker over the mean),
        ``seconds`` of processor time by worker, and ``lag``: how many epochs have ended that are not complete.
        """
        crossing = sum(one for _, one in self._sizes.values()) // 2
        edges = sum(one for one, _ in self._sizes.values()) - crossing
        return {
            "workers": len(self._workers), "epochs": self._committed, **self._totals, "edges": edges,
            "cut": crossing / edges if edges else 0.0, "balance": self._directory.balance,
            "seconds": [self._seconds.get(one, 0.0) for one in self._workers], "lag": self._last - self._committed,
        }  # fmt: skip

    def close(self) -> None:
        """End the program and its worker processes. Events remain."""
        if self._end is not None:
            self._end(self)
        self._check = self._end = None
        self._stop()
        self._finalizer()

    def __enter__(self) -> ProgramRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What the live graph calls.

    def take(self, changes: Changes, times: Numbers, until: int) -> None:
        """Take changes of the graph, the times of their records, and the time up to which all are applied."""
        chosen = np.flatnonzero(np.isin(changes.ops, _OPS))
        ops, elements = changes.ops[chosen], changes.elements[chosen]
        self._name(elements[ops == ADD_VERTEX])
        is_edge = ops >= ADD_EDGE
        ends = np.where(is_edge, changes.bits[chosen], elements), np.where(is_edge, changes.old_bits[chosen], elements)
        records = changes.records[chosen]
        self._add(ops, ends, times[records], self._records + records)
        self._records += len(times)
        self._until = until

    def renumber(self) -> None:
        """Note that vertices may have the numbers of others from now on; those are added before."""

    def deliver(self) -> None:
        """Send epochs that have ended to the workers, and publish what these have found."""
        if self._failed or self._check is None:
            return
        with self._whole():
            self._cut(everything=False)
            self._pump(lambda: self._last - self._committed <= _AHEAD)
        self._call()

    # Vertices and epochs.

    def _begin(self, now: int) -> None:
        """Take the graph as it is as the first epoch."""
        graph = self._state.graph
        vertices, edges = np.flatnonzero(graph.vertices), np.flatnonzero(graph.edges.alive)
        self._name(vertices)
        ops = np.repeat(np.array([ADD_VERTEX, ADD_EDGE], np.int8), [len(vertices), len(edges)])
        sources, targets = (one[edges].astype(np.int64) for one in (graph.edges.sources, graph.edges.targets))
        ends = np.concatenate((vertices, sources)), np.concatenate((vertices, targets))
        if len(ops):
            self._add(ops, ends, np.full(len(ops), now), np.zeros(len(ops), np.int64))
            self._records += 1
            with self._whole():
                self._send_epoch(self._open.pop())
                self._waiting = 0

    def _name(self, slots: Numbers) -> None:
        """Name the vertices that are added."""
        size = self._encoder.vertices.capacity
        if size > len(self._name_of_slot):
            self._name_of_slot = longer(self._name_of_slot, len(self._name_of_slot), size)
        if len(slots):
            self._name_of_slot[slots] = self._names.slots(self._encoder.vertices.keys(slots))

    def _add(self, ops: NDArray[np.int8], ends: tuple[Numbers, Numbers], times: Numbers, records: Numbers) -> None:
        kept = np.flatnonzero((ops < ADD_EDGE) | (ends[0] != ends[1]))  # loops are left out
        if len(kept):
            firsts, seconds = (self._name_of_slot[one[kept]] for one in ends)
            self._open.append(_Columns(ops[kept], firsts, seconds, times[kept], records[kept]))
            self._waiting += len(kept)

    def _cut(self, *, everything: bool) -> None:
        """Send the epochs that have ended."""
        every, most = self._settings.every, self._settings.changes
        if not self._open:
            return
        if not everything and self._waiting < most:
            if every is None:
                return
            ends = (int(self._open[0].times[0]) // every + 1) * every
            if self._until < ends - 1 and int(self._open[-1].times[-1]) < ends:
                return
        columns = _Columns._make(np.concatenate(parts) for parts in zip(*self._open, strict=True))
        begin, size = 0, len(columns.ops)
        while begin < size:
            end, complete = size, everything
            if every is not None:
                ends = (int(columns.times[begin]) // every + 1) * every
                end = int(np.searchsorted(columns.times, ends))
                complete |= end < size or self._until >= ends - 1
            if end - begin >= most:  # all changes of a record are in one epoch
                record = columns.records[begin + most - 1]
                end, complete = int(np.searchsorted(columns.records, record, side="right")), True
            if not complete:
                break
            # What is sent is not cut again if this is interrupted: the run is closed then.
            self._send_epoch(columns.cut(begin, end))
            begin = end
            more = self._more_workers()
            self._pump(lambda: self._last - self._committed <= _AHEAD)
            if more:
                self._scale(len(self._workers) + more)
        self._open, self._waiting = [columns.cut(begin)] if begin < size else [], size - begin

    def _number(self, names: Numbers, sources: Numbers, targets: Numbers) -> None:
        """Number and place vertices that are new, by their labels: no order within an epoch matters for the numbers."""
        if not len(names):
            return
        first = self._directory.size
        size = self._names.capacity
        if size > len(self._number_of):
            had = len(self._number_of)
            self._number_of, self._name_of = (longer(one, had, size) for one in (self._number_of, self._name_of))
            self._number_of[had:] = -1
        new = np.unique(names)
        new = new[self._number_of[new] < 0]
        ordered = new.copy()
        sort_by_key(self._names.columns, ordered)
        self._number_of[ordered] = first + np.arange(len(new))
        self._name_of[first : first + len(new)] = ordered
        self._directory.place(
            self._number_of[new] - first, self._names.positions[ordered], self._number_of[sources],
            self._number_of[targets],
        )  # fmt: skip

    def _numbers_of(self, labels: Sequence[int | str]) -> Numbers:
        """Return the numbers of labels, also of vertices that do not exist yet."""
        for label in labels:
            if type(label) not in (int, str):
                raise InputError(f"vertex {label!r:.60}: accepted are integers and texts")
        if not len(labels):
            return np.zeros(0, np.int64)
        names, nothing = self._names.slots(list(labels)), np.zeros(0, np.int64)
        self._number(names, nothing, nothing)
        return self._number_of[names]

    def _send_epoch(self, columns: _Columns) -> None:
        ops, added = columns.ops, columns.ops == ADD_EDGE
        names = np.concatenate((columns.firsts, columns.seconds))
        self._number(names, columns.firsts[added], columns.seconds[added])
        firsts, seconds = self._number_of[columns.firsts], self._number_of[columns.seconds]
        owners = self._directory.owner[firsts], self._directory.owner[seconds]
        edges = ops >= ADD_EDGE
        kinds = np.where(added, 1, -1).astype(np.int8)
        batches = {}
        for worker in self._workers:
            here = owners[0] == worker
            vertices = np.flatnonzero(here & ~edges)
            rows = np.flatnonzero((here | (owners[1] == worker)) & edges)
            batches[worker] = Batch(
                firsts[vertices], ops[vertices] == ADD_VERTEX, firsts[rows], seconds[rows],
                np.stack([one[rows] for one in owners]), kinds[rows], rows.astype(np.int32),
            )  # fmt: skip
        removes = bool(np.any((ops == REMOVE_VERTEX) | (ops == REMOVE_EDGE)))
        self._last += 1
        self._since[1] += len(ops)
        self._since[2] += sum(column.nbytes for batch in batches.values() for column in batch)
        begun, changes, size = self._since
        is_due = (
            time.monotonic() - begun > _SNAPSHOT_S or changes >= _SNAPSHOT_CHANGES or size >= _SNAPSHOT_BYTES
        )  # fmt: skip
        name = f"snapshot-{self._last}" if is_due else ""
        if is_due:
            self._since = [time.monotonic(), 0, 0]
        moves, self._moves = self._moves, _NO_MOVES
        self._totals["moves"] += len(moves.numbers)
        most = self._directory.most if is_due and self._program.movable else 0
        self._sent[self._last] = _Sent(batches, removes, name, moves, most, int(columns.times.max()), len(ops))
        self._dispatch(self._last)

    def _dispatch(self, number: int) -> None:
        """Send an epoch to all workers."""
        sent = self._sent[number]
        self._reports[number] = {}
        for worker, batch in sent.batches.items():
            epoch = Epoch(number, self._workers, batch, sent.removes, sent.snapshot, sent.moves, sent.most)
            self._send(worker, "epoch", epoch)

    def _ask(self) -> None:
        """Ask the workers for the columns of a result, after all epochs."""
        for worker in self._workers:
            self._send(worker, "result", self._request)

    def _commit(self, number: int, found_by: dict[int, Done]) -> None:
        """Publish an epoch that all workers have completed, unless it was published before a failure."""
        sent, reports = self._sent[number], [found_by[worker] for worker in self._workers]
        self._sizes = {worker: (one.edges, one.crossing) for worker, one in found_by.items()}
        if number > self._committed:
            self._failures = 0
            self.value = self._program.aggregate([report.partial for report in reports])
            self._totals["changes"] += sent.changes
            self._totals["supersteps"] += reports[0].supersteps
            for worker, report in found_by.items():
                self._totals["messages"] += report.messages
                self._totals["remote_messages"] += report.remote
                self._seconds[worker] = self._seconds.get(worker, 0.0) + report.seconds
            self._committed = number
            found = [one for report in reports for one in report.events]
            if found:
                self._publish(self._table(found, number, sent.time))
        if sent.most and not len(self._moves.numbers) and self._scaling is None:
            self._choose([report.proposals for report in reports])
        if sent.snapshot:
            self._adopt(sent.snapshot, number)

    def _adopt(self, snapshot: str, number: int) -> None:
        """Begin with another snapshot from now on, which is that of the state after an epoch."""
        old, self._snapshot = self._snapshot, snapshot
        for one in [one for one in self._sent if one <= number]:
            del self._sent[one]
        for worker in self._workers if old else ():
            (self._folder / f"{old}-{worker}").unlink(missing_ok=True)

    def _choose(self, proposals: list[tuple[Any, ...]]) -> None:
        """Choose vertices that get another worker before the next epoch."""
        numbers, owners, gains = (np.concatenate(one) for one in zip(*proposals, strict=True))
        sizes = [len(one[0]) for one in proposals]
        # Those that have been moved since they were proposed stay.
        stayed = self._directory.owner[numbers] == np.repeat(self._workers, sizes)
        self._moves = self._directory.move(numbers[stayed], owners[stayed], gains[stayed], upward=self._upward)
        self._upward = not self._upward

    def _more_workers(self) -> int:
        """Return how many workers are to be added after an epoch was sent; less than 0 if one is to be removed."""
        if not self._settings.most:
            return 0
        self._serve(0.0)
        (before, had), now, worked = self._looked, time.monotonic(), sum(self._seconds.values())
        self._looked = now, worked
        busy = (worked - had) / max((now - before) * len(self._workers), 1e-9)
        more = self._load.check(self._last - self._committed, busy)
        workers = len(self._workers)
        return more if (workers < self._settings.most if more > 0 else workers > self._settings.workers) else 0

    def _scale(self, workers: int) -> None:
        """Add or remove workers when all epochs that were sent are complete.

        The snapshot after them is the first one with the new workers: none of those before is used with them.
        """
        self._pump(lambda: self._committed == self._last)
        edges = self._state.graph.edges
        alive = np.flatnonzero(edges.alive)
        names = np.stack([self._name_of_slot[one[alive]] for one in (edges.sources, edges.targets)])
        ends = self._number_of[names[:, (names < len(self._number_of)).all(axis=0)]]
        ends = ends[:, (ends >= 0).all(axis=0)]  # others are those of the current epoch
        moves, waiting = self._directory.scale(workers, *ends), self._moves.numbers
        if len(waiting):
            moved = np.union1d(moves.numbers, waiting)
            moves = Moves(moved, self._directory.owner[moved])
        self._moves = _NO_MOVES
        before, after = self._workers, tuple(self._directory.workers.tolist())
        self._scaling = Scaling(self._last, before, after, moves, f"snapshot-{self._last}-scaled")
        self._scaled = set()
        try:
            self._launch([one for one in after if one not in before])
            self._send_scaling(self._scaling)
        except JobError:
            self._gone = True  # all begin anew
        self._pump(lambda: self._scaled >= {*before, *after})
        self._adopt(self._scaling.snapshot, self._last)
        self._since = [time.monotonic(), 0, 0]
        self._totals["moves"] += len(moves.numbers)
        self._workers, self._scaling, self._failures = after, None, 0
        self._dismiss({*before} - {*after})
        self._looked = time.monotonic(), sum(self._seconds.values())

    def _send_scaling(self, scaling: Scaling) -> None:
        for worker in sorted({*scaling.before, *scaling.after}):
            self._send(worker, "scale", scaling)

    def _dismiss(self, workers: set[int]) -> None:
        """End workers that are removed; others have all that they had."""
        for link in [one for one in self._incoming if one.sender in workers]:
            self._selector.unregister(link)
            link.close()
            self._incoming.remove(link)
        for worker in workers:
            outgoing = self._links.pop(worker)
            self._selector.unregister(outgoing)
            outgoing.close()
            process = self._processes.pop(worker)
            process.kill()
            process.wait()
            self._ready.discard(worker)
            self._seconds.pop(worker, None)
            self._sizes.pop(worker, None)
            (self._sockets / f"{worker}.socket").unlink(missing_ok=True)

    def _publish(self, events: pa.Table) -> None:
        self._events.append(events)
        self._undelivered.append(events)
        self._kept += len(events)
        while self._kept - len(self._events[0]) >= self._settings.events:
            self._first += len(self._events[0])
            self._kept -= len(self._events.popleft())

    def _table(self, events: list[tuple[str, dict[str, Any]]], epoch: int = 0, moment: int = 0) -> pa.Table:
        """Return events of an epoch in an order that does not depend on workers."""
        kinds = self._program.events
        columns = {}
        for name, kind in kinds.items():
            nothing = np.zeros(0, np.int64 if kind == "vertex" else kind)
            columns[name] = np.concatenate([nothing, *(one[name] for _, one in events)])
        sizes = [len(next(iter(one.values()))) for _, one in events]
        statuses = np.repeat(np.array([one for one, _ in events], str), sizes)
        order = np.lexsort([*reversed(list(columns.values())), statuses])
        found: dict[str, Any] = {
            "epoch": np.full(len(order), epoch),
            "time": pa.array(np.full(len(order), moment)).cast(pa.timestamp("us", "UTC")),
            "status": pa.array(statuses[order].tolist(), pa.string()),
        }
        for name, kind in kinds.items():
            values = columns[name][order]
            found[name] = self._labels(values) if kind == "vertex" else pa.array(values)
        return pa.table(found)

    def _labels(self, numbers: Numbers) -> pa.Array:
        """Return labels as texts, as vertices of later events may have texts."""
        keys = self._names.keys(self._name_of[numbers])
        return keys.cast(pa.string()) if isinstance(keys, pa.Array) else pa.array(map(str, keys), pa.string())

    def _made(self) -> Result:
        """Return the result from the columns of all workers."""
        slots = np.flatnonzero(self._state.graph.vertices)
        numbers = np.concatenate([one for one, _ in self._answers.values()])
        place = np.empty(self._directory.size, np.int64)
        place[numbers] = np.arange(len(numbers))
        order = place[self._number_of[self._name_of_slot[slots]]] if len(slots) else slots
        parts = [columns for _, columns in self._answers.values() if columns]
        labels = labels_of(self._encoder, slots)
        table = {"vertex": labels}
        for name in parts[0] if parts else ():
            values = np.concatenate([one[name] for one in parts])[order]
            if name in self._program.vertex_columns:
                where = np.empty(self._directory.size, np.int64)
                where[numbers[order]] = np.arange(len(order))
                table[name] = labels.take(pa.array(where[values]))
            else:
                table[name] = pa.array(values)
        summary = {} if self.value is None else {"value": self.value}
        return Result(type(self._program).__name__, pa.table(table), summary)

    # Workers.

    def _write(self, named: dict[str, Numbers]) -> None:
        from cloudpickle import dumps

        program = self._program
        try:
            data = dumps(Job(program, named))
        except Exception as error:
            name = type(program).__name__
            raise InputError(f"program {name}: cannot be sent to worker processes ({error})") from None
        (self._folder / PROGRAM).write_bytes(data)
        (self._folder / "path").write_text(json.dumps([sys.path, str(Path.cwd())]))

    @property
    def _sockets(self) -> Path:
        return self._folder / str(self._generation)

    def _start(self) -> None:
        """Start the workers, from the last snapshot if there is one."""
        folder = self._sockets
        folder.mkdir()
        self._selector = selectors.DefaultSelector()
        self._listener = listen(str(folder / CONTROL))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._incoming, self._links, self._ready, self._gone = [], {}, set(), False
        self._launch(self._workers if self._scaling is None else sorted({*self._workers, *self._scaling.after}))

    def _launch(self, numbers: Sequence[int]) -> None:
        """Start workers; those that are not in the last snapshot begin without vertices."""
        module = "goffish.streaming.graphs.programs.process"
        for number in numbers:
            snapshot = self._snapshot if number in self._workers else ""
            command = [sys.executable, "-m", module, str(self._sockets), str(number), snapshot]
            self._processes[number] = self._settings.launcher(number, command)
        while not self._ready.issuperset(numbers):
            self._serve(_LOOK_S)
            if self._gone or any(one.poll() is not None for one in self._processes.values()):
                raise JobError("a worker process ended before it was ready")
        for number in numbers:
            link = Outgoing(str(self._sockets / f"{number}.socket"), CONTROLLER, data=False)
            self._selector.register(link, link.events)
            self._links[number] = link

    def _stop(self) -> None:
        """End the workers."""
        _end_processes(self._processes)
        for one in self._links.values():
            one.close()
        for link in self._incoming:
            link.close()
        self._links, self._incoming = {}, []
        self._listener.close()
        self._selector.close()

    def _recover(self) -> None:
        """Begin anew from the last snapshot; epochs that were published are not published again."""
        self._failures += 1
        if self._failures > _MOST_FAILURES:
            place = "while they were added or removed" if self._scaling else f"in epoch {self._committed + 1}"
            raise JobError(f"worker processes failed {self._failures} times {place}")
        self._totals["recoveries"] += 1
        self._stop()
        self._generation += 1
        self._start()
        self._reports, self._scaled = {}, set()
        for number in sorted(self._sent):
            self._dispatch(number)
        if self._scaling is not None:
            self._send_scaling(self._scaling)
        if self._request:
            self._ask()

    def _pump(self, done: Callable[[], bool]) -> None:
        """Serve the connections until something holds and everything is sent; begin anew after failures."""
        while True:
            self._serve(0.0)
            if self._gone:
                try:
                    self._recover()
                except JobError:
                    if self._failures > _MOST_FAILURES:
                        raise
                    self._gone = True  # a worker failed again while it began
                continue
            if done() and not any(link.unsent for link in self._links.values()):
                return
            self._serve(None)

    def _serve(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            ready = key.fileobj
            if ready is self._listener:
                with suppress(BlockingIOError):
                    while True:
                        link = Incoming(self._listener.accept()[0])
                        self._incoming.append(link)
                        self._selector.register(link, selectors.EVENT_READ)
            elif isinstance(ready, Outgoing):
                ready.flush()
                self._follow(ready)
            elif isinstance(ready, Incoming):
                for message in ready.receive():
                    self._receive(ready.sender or 0, *message)
                if ready.closed:
                    self._selector.unregister(ready)
                    self._gone = True

    def _send(self, worker: int, kind: str, given: Any) -> None:
        link = self._links[worker]
        link.send((kind, given))
        self._follow(link)

    def _follow(self, link: Outgoing) -> None:
        if link.closed:
            self._gone = True
        elif link.events != self._selector.get_key(link).events:
            self._selector.modify(link, link.events)

    def _receive(self, worker: int, kind: str, given: Any = None) -> None:
        if kind == "ready":
            self._ready.add(worker)
        elif kind == "error":
            raise JobError(given)
        elif kind == "result":
            request, numbers, columns = given
            if request == self._request:
                self._answers[worker] = numbers, columns
        elif kind == "scaled":
            self._scaled.add(worker)
            self._sizes[worker] = given
        else:
            reports = self._reports[given.number]
            reports[worker] = given
            if len(reports) == len(self._workers):
                del self._reports[given.number]
                self._commit(given.number, reports)

    # Errors.

    def _require(self) -> None:
        if self._failed:
            raise JobError(self._failed)
        if self._check is None:
            raise InputError("the run is closed: the program does not follow the graph any more")
        self._check()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Close the run if it is interrupted, or fails."""
        try:
            yield
        except BaseException as error:
            text = str(error) if isinstance(error, JobError | InputError) else f"interrupted ({type(error).__name__})"
            self._failed = text
            self.close()
            raise

    def _call(self) -> None:
        """Call the function that takes events; those that are left are passed with the next call."""
        while self._settings.on_events is not None and self._undelivered:
            self._settings.on_events(self._undelivered.pop(0))
        self._undelivered = []


def _end_processes(processes: dict[int, Handle]) -> None:
    for process in processes.values():
        process.kill()
    for process in processes.values():
        process.wait()
    processes.clear()


def _end_all(processes: dict[int, Handle], folder: Path) -> None:
    _end_processes(processes)
    shutil.rmtree(folder, ignore_errors=True)

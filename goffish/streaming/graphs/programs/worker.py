"""What a worker of a program does: epochs of supersteps, on its part of the graph."""

from __future__ import annotations

import pickle
import selectors
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import GoffishError, JobError
from goffish.streaming.graphs.programs.part import Batch, Moves, Part
from goffish.streaming.graphs.programs.program import Context, LiveProgram
from goffish.streaming.operators import described
from goffish.streaming.runtime.launch import CONTROL
from goffish.streaming.runtime.links import Incoming, Outgoing, listen

#: File with the program, in the folder above that of the sockets.
PROGRAM = "program"
#: Bits of a sequence number that are the place of an edge in its epoch.
PLACE_BITS = 32
#: Seconds for which a worker that fails tries to report why.
_REPORT_S = 1.0
#: Superstep of packets with vertices that get another worker.
_MOVES = -1
#: Id of the process that started the workers, where these have their numbers.
CONTROLLER = -1


class Job(NamedTuple):
    """What all workers run.

    Attributes
    ----------
    program : LiveProgram
    named : mapping of str to array
        Numbers of the vertices that options of the program name.
    """

    program: LiveProgram
    named: Mapping[str, NDArray[np.int64]]


class Epoch(NamedTuple):
    """An epoch for one worker.

    Attributes
    ----------
    number : int
    workers : tuple of int
        The workers, in order.
    batch : Batch
    removes : bool
        Whether something is removed, on any worker.
    snapshot : str
        File for the state after the epoch, or nothing.
    moves : Moves
        Vertices that get another worker before the epoch.
    most : int
        Moves that are proposed after the epoch, at most.
    """

    number: int
    workers: tuple[int, ...]
    batch: Batch
    removes: bool
    snapshot: str
    moves: Moves
    most: int


class Scaling(NamedTuple):
    """Workers that are added or removed after an epoch.

    Attributes
    ----------
    number : int
        Of the epoch.
    before, after : tuple of int
        The workers, in order.
    moves : Moves
        Vertices that get another worker.
    snapshot : str
        File for the state after it.
    """

    number: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    moves: Moves
    snapshot: str


class Packet(NamedTuple):
    """What a worker sends to another one in a superstep: always one, which is how the barrier works.

    Attributes
    ----------
    epoch, superstep : int
    targets : int64 array
        Numbers of vertices.
    values : array
        Of moves, the record for the other worker, if there is one, and attributes of the program.
    shared : array
        For all workers.
    sent : int
        Messages of the sender to all workers, and numbers that it shares.
    """

    epoch: int
    superstep: int
    targets: NDArray[np.int64]
    values: Any
    shared: NDArray[Any]
    sent: int


class Done(NamedTuple):
    """Report of a worker about an epoch.

    Attributes
    ----------
    number : int
    partial : object
        What the program returned.
    events : list
    supersteps, messages, remote : int
        Supersteps, messages, and those to other workers.
    edges, crossing : int
        Pairs that are adjacent now, and those of them that are also in another part.
    seconds : float
        Processor time.
    proposals : tuple of arrays
        As of `Part.proposals`.
    """

    number: int
    partial: Any
    events: list[tuple[str, dict[str, NDArray[Any]]]]
    supersteps: int
    messages: int
    remote: int
    edges: int
    crossing: int
    seconds: float
    proposals: tuple[NDArray[Any], ...]


class Worker:
    """One of the workers of a program.

    Parameters
    ----------
    folder : Path
    number : int
    snapshot : str
    """

    def __init__(self, folder: Path, number: int, snapshot: str) -> None:
        self._folder, self._number = folder, number
        job: Job = pickle.loads((folder.parent / PROGRAM).read_bytes())
        self._program = job.program
        self._part = Part(number, job.program.directed)
        self._ctx = Context(self._part, job.program, job.named)
        if snapshot:
            with (folder.parent / f"{snapshot}-{number}").open("rb") as file:
                part, self._ctx.state, members = pickle.load(file)
            self._part.install(part)
            vars(self._program).update(members)
        self._workers: tuple[int, ...] = ()
        self._others: list[int] = []
        self._packets: defaultdict[int, deque[Packet]] = defaultdict(deque)
        self._commands: deque[Any] = deque()
        self._selector = selectors.DefaultSelector()
        self._listener = listen(str(folder / f"{number}.socket"))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._outgoing: dict[int, Outgoing] = {}
        self._control = self._connect(CONTROL)
        self._lost = False
        self._fresh = not snapshot

    def run(self) -> None:
        """Work until the process that started this one closes the connection, or another worker is gone."""
        try:
            self._run()
        except _Lost:
            pass  # workers begin anew from a snapshot
        except Exception as error:
            text = str(error) if isinstance(error, GoffishError) else described(error)
            ctx = self._ctx
            name = type(self._program).__name__
            place = f"program {name}, worker {self._number}, epoch {ctx.epoch}, superstep {ctx.superstep}"
            self._report(("error", f"{place}: {text}"))
        finally:
            self._close()

    def _run(self) -> None:
        self._ctx.fit()
        if self._fresh:
            self._program.start(self._ctx)
        self._report(("ready",))
        while True:
            self._wait(lambda: bool(self._commands))
            kind, given = self._commands.popleft()
            if kind == "epoch":
                self._report(("done", self._epoch(given)))
            elif kind == "scale":
                self._scale(given)
                self._report(("scaled", (self._part.edges, self._part.crossing)))
                if self._number not in given.after:
                    while not self._control.closed:  # others may not have everything yet
                        self._serve(None)
                    return
            else:
                vertices = self._ctx.vertices
                columns = dict(self._program.result(self._ctx)) if len(vertices) else {}
                self._report(("result", (given, self._part.numbers[vertices], columns)))

    # Epochs.

    def _epoch(self, epoch: Epoch) -> Done:
        begun = time.thread_time()
        ctx, program = self._ctx, self._program
        ctx.epoch, ctx.superstep, ctx.settled, ctx.removes = epoch.number, 0, 0, epoch.removes
        self._join(epoch.workers)
        if len(epoch.moves.numbers):
            self._move(epoch.moves, self._others, self._others, {})
        change = self._part.apply(epoch.batch, epoch.number << PLACE_BITS)
        ctx.fit()
        ctx.reset(change.new)
        program.changes(ctx, change)
        messages = remote = 0
        while True:
            targets, values, active, counts = self._exchange()
            messages, remote = messages + counts[0], remote + counts[1]
            if active:
                if len(targets) or len(ctx.shared):
                    program.messages(ctx, targets, values)
            elif ctx.removes and ctx.settled < program.rounds:
                program.settle(ctx, ctx.settled)
                ctx.settled += 1
            else:
                break
        partial = program.finish(ctx)
        if len(change.gone):
            ctx.reset(change.gone)
        if epoch.snapshot:
            self._save(epoch.snapshot)
        proposals = self._part.proposals(self._workers[-1] + 1, epoch.most) if epoch.most else ()
        seconds = time.thread_time() - begun
        edges, crossing = self._part.edges, self._part.crossing
        return Done(
            epoch.number, partial, ctx.events(), ctx.superstep, messages, remote, edges, crossing, seconds, proposals
        )  # fmt: skip

    def _join(self, workers: tuple[int, ...]) -> None:
        """Take note of which workers there are."""
        self._workers, self._others = workers, [one for one in workers if one != self._number]

    def _scale(self, scaling: Scaling) -> None:
        """Move vertices to workers that are added, or from those that are removed; all who stay write a snapshot."""
        _, before, after, moves, snapshot = scaling
        self._ctx.epoch = scaling.number
        program = self._program
        self._join(after)
        attributes: dict[int, dict[str, Any]] = {}
        if self._number == before[0]:
            common = {name: getattr(program, name) for name in program.common}
            attributes = {one: common for one in after if one not in before}
        if self._number not in after:
            attributes = {after[0]: {name: getattr(program, name) for name in program.totals}}
        receivers = self._others if self._number in before else []
        senders = [one for one in before if one != self._number] if self._number in after else []
        for name, value in self._move(moves, receivers, senders, attributes):
            setattr(program, name, getattr(program, name) + value if self._number in before else value)
        if self._number in after:
            self._forget(set(before) - set(after))
            self._save(snapshot)

    def _forget(self, workers: set[int]) -> None:
        """Close connections with workers that are removed, which end then."""
        for key in list(self._selector.get_map().values()):
            link = key.fileobj
            if isinstance(link, Incoming) and link.sender in workers:
                self._selector.unregister(link)
                link.close()
        for worker in workers & self._outgoing.keys():
            outgoing = self._outgoing.pop(worker)
            if not outgoing.closed:
                self._selector.unregister(outgoing)
            outgoing.close()

    def _move(
        self, moves: Moves, receivers: list[int], senders: list[int], attributes: Mapping[int, dict[str, Any]]
    ) -> list[tuple[str, Any]]:  # fmt: skip
        """Hand vertices over to their new workers, and take those of others; return attributes of the program."""
        ctx, part, nothing = self._ctx, self._part, np.zeros(0, np.int64)
        went, records = part.hand_over(moves, ctx.state)
        for one in receivers:
            given = records.get(one), attributes.get(one, {})
            self._send(one, Packet(ctx.epoch, _MOVES, nothing, given, nothing, 0))
        self._wait(lambda: all(self._packets[one] for one in senders))
        packets = [self._packets[one].popleft() for one in senders]
        taken = [packet.values[0] for packet in packets if packet.values[0] is not None]
        came = part.take_over(taken)
        ctx.fit()
        for name, column in ctx.state.items():
            if taken:
                column[came] = np.concatenate([record.state[name] for record in taken])
        part.count_pairs()
        self._program.moved(ctx, came, went)
        return [one for packet in packets for one in packet.values[1].items()]

    def _exchange(self) -> tuple[NDArray[np.int64], NDArray[Any], bool, tuple[int, int]]:
        """End a superstep: return messages for this worker, whether there are any at all, and how many it sent."""
        ctx, part = self._ctx, self._part
        (targets, values), shared = ctx.taken()
        sent = len(targets) + len(shared)
        owners = part.owners[targets]
        numbers = part.numbers[targets]
        for one in self._others:
            rows = np.flatnonzero(owners == one)
            packet = Packet(ctx.epoch, ctx.superstep, numbers[rows], values[rows], shared, sent)
            self._send(one, packet)
        here = np.flatnonzero(owners == self._number)
        self._wait(lambda: all(self._packets[one] for one in self._others))
        total, everything, common = sent, list[Any](), list[Any]()
        for one in self._workers:
            if one == self._number:
                everything.append((targets[here], values[here]))
                common.append(shared)
                continue
            packet = self._packets[one].popleft()
            if (packet.epoch, packet.superstep) != (ctx.epoch, ctx.superstep):
                place = f"epoch {packet.epoch}, superstep {packet.superstep}"
                raise JobError(f"messages of {place} arrived in another superstep")
            total += packet.sent
            if len(packet.targets):
                everything.append((part.names.slots(pa.array(packet.targets)), packet.values))
            common.append(packet.shared)
        ctx.shared = np.concatenate([one for one in common if len(one)] or [np.zeros(0, np.int64)])
        ctx.superstep += 1
        found, values = ctx.combined(everything)
        return found, values, total > 0, (len(targets), len(targets) - len(here))

    def _save(self, name: str) -> None:
        from cloudpickle import dump

        place = self._folder.parent / f"{name}-{self._number}"
        with place.with_suffix(".new").open("wb") as file:
            dump((self._part.saved(), self._ctx.state, vars(self._program)), file, protocol=5)
        place.with_suffix(".new").replace(place)

    # Connections.

    def _connect(self, name: str) -> Outgoing:
        try:
            link = Outgoing(str(self._folder / name), self._number, data=False)
        except JobError:
            raise _Lost from None
        self._selector.register(link, link.events)
        return link

    def _send(self, worker: int, packet: Packet) -> None:
        if worker not in self._outgoing:
            self._outgoing[worker] = self._connect(f"{worker}.socket")
        link = self._outgoing[worker]
        if link.closed:  # it was not noticed, as all packets of the superstep before had arrived
            raise _Lost
        link.send(packet)
        self._follow(link)

    def _report(self, message: Any) -> None:
        self._control.send(message)
        last = time.monotonic() + _REPORT_S
        while self._control.unsent and not self._control.closed and time.monotonic() < last:
            self._serve(0.01)

    def _follow(self, link: Outgoing) -> None:
        if link.closed:
            self._selector.unregister(link)
            self._lost = True
        elif link.events != self._selector.get_key(link).events:
            self._selector.modify(link, link.events)

    def _wait(self, arrived: Any) -> None:
        while not arrived():
            if self._lost:
                raise _Lost
            self._serve(None)

    def _serve(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            ready = key.fileobj
            if ready is self._listener:
                with suppress(BlockingIOError):
                    while True:
                        self._selector.register(Incoming(self._listener.accept()[0]), selectors.EVENT_READ)
            elif isinstance(ready, Outgoing):
                ready.flush()
                self._follow(ready)
            elif isinstance(ready, Incoming):
                for message in ready.receive():
                    queue = self._commands if ready.sender == CONTROLLER else self._packets[ready.sender or 0]
                    queue.append(message)
                if ready.closed:
                    self._selector.unregister(ready)
                    ready.close()
                    self._lost = True

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            with suppress(OSError):
                key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


class _Lost(Exception):
    """The process that started this one, or another worker, is gone."""

"""What happens inside a superstep, for one partition; every engine drives this same code.

An engine calls, per superstep and partition: `Worker.deliver` with the batches addressed to the partition (in order of
source partition), then every task of `Worker.tasks` on whatever threads it has, then `Worker.collect`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.gofs import Slice
from goffish.gopher import kernels
from goffish.gopher.messages import (
    Batch,
    combine,
    concatenate,
    group_by_subgraph,
    message_dtype,
    split_by_partition,
)
from goffish.gopher.program import StateColumn, SubgraphProgram
from goffish.gopher.superstep import BatchStep, Superstep, Totals, reduce_values
from goffish.gopher.views import Subgraph, SubgraphBatch

#: Subgraphs with fewer arcs than this are run several to a task.
_BUNDLE_ARCS = 4096

Task = tuple[int, Callable[[], None]]


@dataclass(frozen=True)
class StepOutput:
    """What one partition hands to the engine after a superstep."""

    outbox: list[Batch]
    contributions: Mapping[str, Any]
    sent: int
    combined: int
    remote: int
    remote_bytes: int


class Worker:
    """One partition of a running program: its state, votes and inbox.

    Parameters
    ----------
    program : SubgraphProgram
    part : Slice
    graph : Totals
    subgraph_starts : int64, shape (partitions + 1,)
        First subgraph of every partition, to find the owner of a message's target.
    threads : int
        See `BatchStep.threads`.
    """

    def __init__(
        self,
        program: SubgraphProgram,
        part: Slice,
        graph: Totals,
        subgraph_starts: NDArray[np.int64],
        threads: int = 1,
    ) -> None:
        self.program, self.part, self.graph = program, part, graph
        self._starts, self._threads = subgraph_starts, threads
        self._dtype = message_dtype(program.message)
        self._attributes: dict[str, Any] = {}
        self.state: dict[str, tuple[str, NDArray[Any]]] = {
            name: (column.level, np.full(self._rows(column), column.fill, column.dtype))
            for name, column in program.state.items()
        }
        self.halted = np.zeros(part.num_subgraphs, np.bool_)
        self.inbox: Batch = np.empty(0, self._dtype)
        self._offsets = np.zeros(part.num_subgraphs + 1, np.int64)
        self.active = np.arange(part.num_subgraphs)
        self._steps: dict[int, Superstep] = {}
        self._batch_step: BatchStep | None = None
        self.started = self.ended = self.busy = 0.0

    def _rows(self, column: StateColumn) -> int:
        part = self.part
        sizes = {
            "vertex": part.num_vertices,
            "subgraph": part.num_subgraphs,
            "remote": part.out_arcs.remote_vertex.size,
            "neighbor": part.neighbor_subgraph.size,
            "free": 0,
        }
        if column.level not in sizes:
            raise InputError(f"state level {column.level!r}: choose one of {', '.join(sizes)}")
        return sizes[column.level]

    def _attribute(self, name: str) -> Any:
        if name not in self.program.attributes:
            declared = ", ".join(self.program.attributes) or "none"
            raise InputError(f"attribute {name!r} was not declared by {self.program.name()} (declared: {declared})")
        if name not in self._attributes:
            values = self.part.column(name)
            values = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
            self._attributes[name] = values[self.part.column("edge_row")] if name.startswith("edge.") else values
        return self._attributes[name]

    def batch(self) -> SubgraphBatch:
        """View of the whole partition."""
        return SubgraphBatch(self.part, self._starts, self.state, self._attribute, 0, self.part.num_subgraphs)

    def subgraph(self, index: int) -> Subgraph:
        """View of one subgraph by its index in the partition."""
        return Subgraph(self.part, self._starts, self.state, self._attribute, index, index + 1)

    def init(self) -> None:
        """Run the program's `init` on every subgraph (or on the batch)."""
        if self.program.is_batched():
            with self._named(0, None):
                self.program.init(self.batch())
            return
        for index in range(self.part.num_subgraphs):
            with self._named(0, index):
                self.program.init(self.subgraph(index))

    def deliver(self, batches: Sequence[Batch]) -> int:
        """Take the messages for the next superstep; returns how many subgraphs will run.

        `batches` come in order of their source partition, each in order of sending: the canonical order.
        """
        part = self.part
        # New also where there is nothing to sort: it is written to, and what was sent may be read-only.
        inbox, self._offsets = group_by_subgraph(batches, part.subgraph_start, part.num_subgraphs, self._dtype)
        self._localise(inbox)
        self.inbox = inbox
        self.active = np.flatnonzero(~self.halted | (np.diff(self._offsets) > 0))
        return int(self.active.size)

    def _localise(self, inbox: Batch) -> None:
        """Turn the job's numbers into the partition's; a vertex must lie in the subgraph that it is addressed in."""
        part = self.part
        row = kernels.localise(
            inbox["subgraph"], inbox["vertex"], self._offsets, part.vertex_start, part.subgraph_offsets
        )
        if row >= 0:
            raise JobError(
                f"{self.program.name()}: message to vertex {int(inbox['vertex'][row])} in subgraph "
                f"{int(inbox['subgraph'][row])}, which does not own it"
            )

    def tasks(self, number: int, aggregates: Mapping[str, Any]) -> list[Task]:
        """The superstep's work as (cost in arcs, callable); tasks may run in any order and on any thread."""
        self._steps, self._batch_step = {}, None
        self.started, self.ended, self.busy = np.inf, 0.0, 0.0
        if not self.active.size:
            return []
        self.halted[self.active] = False
        context = (self.graph, aggregates, self.program.aggregators)
        arcs = np.diff(self.part.out_arcs.offsets[self.part.subgraph_offsets])[self.active]
        if self.program.is_batched():
            return [(int(arcs.sum()), lambda: self._run_batch(number, context))]
        tasks: list[Task] = []
        bundle: list[int] = []
        cost = 0
        for index, size in zip(self.active.tolist(), arcs.tolist(), strict=True):
            bundle.append(index)
            cost += size + 1
            if cost >= _BUNDLE_ARCS:
                tasks.append((cost, self._bundle(number, bundle, context)))
                bundle, cost = [], 0
        if bundle:
            tasks.append((cost, self._bundle(number, bundle, context)))
        return tasks

    def _bundle(self, number: int, bundle: list[int], context: tuple[Any, ...]) -> Callable[[], None]:
        def run() -> None:
            begun = time.perf_counter()
            for index in bundle:
                self._run_one(number, index, context)
            self._clock(begun)

        return run

    def _run_one(self, number: int, index: int, context: tuple[Any, ...]) -> None:
        sg = self.subgraph(index)
        messages = self.inbox[self._offsets[index] : self._offsets[index + 1]]
        if messages.size:
            messages = messages.copy()
            messages["subgraph"] = 0
            messages["vertex"] -= np.where(messages["vertex"] >= 0, self.part.subgraph_offsets[index], 0)
        step = Superstep(sg, number, messages, *context)
        with self._named(number, index):
            self.program.compute(sg, step)
        self._steps[index] = step

    def _run_batch(self, number: int, context: tuple[Any, ...]) -> None:
        begun = time.perf_counter()
        batch = self.batch()
        step = BatchStep(batch, self.active, self._offsets, self._threads, number, self.inbox, *context)
        with self._named(number, None):
            self.program.compute_batch(batch, step)
        self._batch_step = step
        self._clock(begun)

    def _clock(self, begun: float) -> None:
        now = time.perf_counter()
        self.started, self.ended = min(self.started, begun), max(self.ended, now)
        self.busy += now - begun

    def collect(self) -> StepOutput:
        """After all tasks: take votes, fold aggregators in order, combine and sort out the messages."""
        steps: list[Superstep | BatchStep]
        if self._batch_step is not None:
            steps = [self._batch_step]
            self.halted[self.active] = self._batch_step.halted[self.active]
        else:
            steps = [self._steps[index] for index in self.active.tolist()]
            self.halted[self.active] = [step.halted for step in steps]
        sent = [b for step in steps for b in step.outbox]
        count = sum(b.size for b in sent)
        if self.program.combine is not None:
            sent = [combine(concatenate(sent, self._dtype), self.program.combine)]
        outbox = split_by_partition(sent, self._starts, self._dtype)
        contributions: dict[str, Any] = {}
        for name in dict.fromkeys(name for step in steps for name in step.contributions):
            values = [step.contributions[name] for step in steps if name in step.contributions]
            contributions[name] = reduce_values(self.program.aggregators[name], values)
        self.inbox = np.empty(0, self._dtype)
        self._steps, self._batch_step = {}, None
        combined = sum(b.size for b in sent)
        remote = combined - outbox[self.part.partition].size
        return StepOutput(outbox, contributions, count, combined, remote, remote * self._dtype.itemsize)

    def result(self) -> dict[str, NDArray[Any]]:
        """Columns of the answer for this partition."""
        if self.program.is_batched():
            with self._named(-1, None):
                batch = self.batch()
                return self._columns(batch.num_vertices, batch.num_subgraphs, self.program.result(batch), None)
        pieces: list[dict[str, NDArray[Any]]] = []
        for index in range(self.part.num_subgraphs):
            with self._named(-1, index):
                sg = self.subgraph(index)
                first = pieces[0] if pieces else None
                pieces.append(self._columns(sg.num_vertices, 1, self.program.result(sg), first))
        names = pieces[0] if pieces else {}
        return {name: np.concatenate([p[name] for p in pieces]) for name in names}

    def _columns(
        self, vertices: int, subgraphs: int, given: Mapping[str, Any], like: Mapping[str, Any] | None
    ) -> dict[str, NDArray[Any]]:
        """Columns of a result as arrays of the right length; a mismatch names the column."""
        columns = {name: np.atleast_1d(np.asarray(values)) for name, values in given.items()}
        if like is not None and list(columns) != list(like):
            raise InputError(f"result returned the columns {list(columns)}, other subgraphs {list(like)}")
        lengths = {name: array.shape for name, array in columns.items()}
        if self.program.rows == "free":
            rows = len(next(iter(columns.values()))) if columns else 0
        else:
            rows = vertices if self.program.rows == "vertex" else subgraphs
        for name, shape in lengths.items():
            if shape != (rows,):
                raise InputError(f"result column {name!r} has shape {shape}, expected ({rows},): one value per row")
        return columns

    def _named(self, number: int, index: int | None) -> _NameErrors:
        return _NameErrors(self.program.name(), self.part, number, index)


class _NameErrors:
    """Turns an exception of user code into a `JobError` that says where it happened."""

    __slots__ = ("_where",)

    def __init__(self, program: str, part: Slice, number: int, index: int | None) -> None:
        self._where = (program, part, number, index)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # An InputError in init is the user's input, not a fault of the program; a JobError says already where.
        if not isinstance(error, Exception) or isinstance(error, JobError):
            return
        if isinstance(error, InputError) and self._where[2] == 0:
            return
        program, part, number, index = self._where
        unit = "" if index is None else f"subgraph {part.subgraph_start + index}, "
        phase = {0: "init", -1: "result"}.get(number, f"superstep {number}")
        raise JobError(
            f"{program}: {unit}partition {part.partition}, {phase}: {type(error).__name__}: {error}"
        ) from error

"""TI-BSP on every engine: a program over a time series as an ordinary one, with the supersteps of all timesteps.

A timestep of S supersteps takes S + 1 of the engine: in the last one `end_of_timestep` is called, which requires
that all subgraphs of the whole graph have halted. What crosses timesteps waits at its sender until then, as state of
the partition; so messages, checkpoints and lost executors are the engine's business, as in any other program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from goffish.errors import DataError, InputError, JobError
from goffish.gopher import StateColumn, SubgraphBatch, SubgraphProgram, per_partition, per_subgraph
from goffish.gopher.messages import NO_VERTEX, Batch, concatenate, make_batch
from goffish.gopher.superstep import BatchStep, reduce_values
from goffish.temporal.program import Pattern, TimeSeriesProgram
from goffish.temporal.step import BatchTimeStep, Moment, Phase, Sent, TimeStep

COMPUTE, END, MERGE, DONE = range(4)

#: Aggregators that the clock is read from, and how they are reduced.
AGGREGATORS: Mapping[str, Any] = {
    "tibsp.phase": "max",
    "tibsp.index": "max",
    "tibsp.superstep": "max",
    "tibsp.busy": "or",
    "tibsp.dissents": "or",
    "tibsp.halts": "or",
    "tibsp.pending": "or",
}


@dataclass(frozen=True)
class Clock:
    """One superstep of the engine, as a time-series program sees it.

    Attributes
    ----------
    phase : {COMPUTE, END, MERGE, DONE}
    index : int
        Which of the run's timesteps, from 0.
    superstep : int
        Within the timestep or the merge, from 1.
    """

    phase: int
    index: int
    superstep: int

    def contributions(self) -> dict[str, Any]:
        """Contributions of every partition, available to all in the next superstep."""
        return {"tibsp.phase": self.phase, "tibsp.index": self.index, "tibsp.superstep": self.superstep}


def read_clock(aggregated: Any) -> tuple[Clock, dict[str, bool]] | None:
    """The clock of the superstep before, and what was said in it; ``None`` in the first one."""
    if aggregated("tibsp.phase") is None:
        return None
    clock = Clock(*(int(aggregated(f"tibsp.{name}")) for name in ("phase", "index", "superstep")))
    return clock, {name: bool(aggregated(f"tibsp.{name}")) for name in ("busy", "dissents", "halts", "pending")}


def advance(before: Clock, said: Mapping[str, bool], pattern: Pattern, timesteps: int, *, merges: bool) -> Clock:
    """What follows a superstep (docs/specs/time-series.md, section 3.1).

    Parameters
    ----------
    said : mapping
        ``busy``: a subgraph is active or a message in flight; of an end of timestep: ``dissents``, a subgraph has not
        voted to halt timesteps; ``halts``, one ended the application; ``pending``, one sent to the next timestep.
    merges : bool
        Whether a merge follows the last timestep.
    """
    if before.phase == DONE:
        return before
    if before.phase in (COMPUTE, MERGE) and said["busy"]:
        return replace(before, superstep=before.superstep + 1)
    if before.phase == COMPUTE:
        return Clock(END, before.index, 0)
    if before.phase == END and before.index + 1 < timesteps:
        agreed = not said["dissents"] and not said["pending"]
        if pattern != "sequential" or not (agreed or said["halts"]):
            return Clock(COMPUTE, before.index + 1, 1)
    if before.phase == END and merges:
        return Clock(MERGE, before.index, 1)
    return Clock(DONE, before.index, 0)


def first_clock(timesteps: int, *, merges: bool) -> Clock:
    """The first superstep: of the first timestep, or of the merge where there are no timesteps."""
    if timesteps:
        return Clock(COMPUTE, 0, 1)
    return Clock(MERGE, 0, 1) if merges else Clock(DONE, 0, 0)


_PHASES: Mapping[int, Phase] = {COMPUTE: "compute", END: "end of timestep", MERGE: "merge"}


class Values(Protocol):
    """Where the values of the instances come from; it is opened anew in every process."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def bound(self, batch: SubgraphBatch, instance: int, active: NDArray[np.int64]) -> Callable[..., Any]:
        """Attributes of a partition at one instance, by name; those of inactive subgraphs may be missing."""


class Timeline(SubgraphProgram):
    """A program over a time series, and the timesteps that it runs through, as a program of the engine.

    Parameters
    ----------
    program : TimeSeriesProgram
    values : Values
    timesteps : sequence of int
        Instances, in the order in which they are run; sorted for the sequential pattern.
    given : structured array, optional
        The application's input: messages to every subgraph, in superstep 1 (docs/specs/time-series.md, section 3.5).
    merges : bool
        Whether the merge follows; without it, and with `hands_over`, the answer is what was sent to it.
    handed : mapping of str to array, optional
        What other runs, of the timesteps `whole`, handed over to this merge.
    """

    may_change: ClassVar[frozenset[str]] = frozenset({"_program", "_values"})

    def __init__(
        self,
        program: TimeSeriesProgram,
        values: Values,
        timesteps: Sequence[int],
        *,
        given: Mapping[str, Any] | None = None,
        merges: bool = False,
        hands_over: bool = False,
        handed: Mapping[str, NDArray[Any]] | None = None,
        whole: Sequence[int] = (),
    ) -> None:
        self._program, self._values = program, values
        self.options = dict(vars(program))
        self.timesteps, self.merges, self.hands_over = list(timesteps), merges, hands_over
        self.given, self.handed, self.whole = dict(given or {}), dict(handed or {}), list(whole or timesteps)
        self.message, self.combine, self.attributes = program.message, program.combine, program.attributes  # type: ignore[misc]
        reports: dict[str, Any] = {f"{name}@{t}": how for name, how in program.reports.items() for t in self.timesteps}
        supersteps: dict[str, Any] = dict.fromkeys((f"supersteps@{t}" for t in self.timesteps), "max")
        self.aggregators = {**program.aggregators, **AGGREGATORS, **reports, **supersteps, "dropped": "sum"}  # type: ignore[misc]
        self._payload = {name: np.dtype(kind) for name, kind in program.message.items()}
        self.state = {**program.state, **self._own_state()}
        self._shape_answer()

    def _own_state(self) -> dict[str, StateColumn]:
        program = self._program
        rows = {"subgraph": np.dtype(np.int64), "vertex": np.dtype(np.int64), **self._payload}
        emitted = {**program.emits, **_STAMP, **({"vertex": np.dtype(np.int64)} if program.emits_vertices else {})}
        kept: dict[str, Mapping[str, Any]] = {
            "later": rows if program.pattern == "sequential" else {},
            "merge": {**rows, **_STAMP} if program.pattern == "eventual" else {},
            "emit": emitted if program.emits else {},
        }
        own = {"tibsp.halted": per_subgraph(np.bool_), "tibsp.dissents": per_subgraph(np.bool_, True)}
        own["tibsp.halts"] = per_subgraph(np.bool_)
        own |= {f"tibsp.count.{kind}": per_partition(np.int64) for kind in kept}
        return own | {
            f"tibsp.{kind}.{name}": per_partition(dtype)
            for kind, names in kept.items()
            for name, dtype in names.items()
        }

    def _shape_answer(self) -> None:
        program = self._program
        if self.hands_over or program.emits:
            self.rows = "free"  # type: ignore[misc]
            own = ("vertex",) if program.emits_vertices else ()
            self.label_columns = () if self.hands_over else (*own, *program.label_columns)  # type: ignore[misc]
            self.nullable = program.nullable  # type: ignore[misc]
        else:
            self.rows, self.label_columns = program.rows, program.label_columns  # type: ignore[misc]
            self.nullable = program.nullable  # type: ignore[misc]

    def name(self) -> str:  # type: ignore[override]
        """The name of the user's program."""
        return self._program.name()

    # -- the engine's calls

    def init(self, sg: SubgraphBatch) -> None:
        """Prepare the state of the user's program."""
        self._prepare(sg)

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        """One superstep of the engine: of a timestep, of its end, or of the merge."""
        received = read_clock(step.aggregated)
        pattern = self._program.pattern
        if received is None:
            clock = first_clock(len(self.timesteps), merges=self.merges)
        else:
            clock = advance(*received, pattern, len(self.timesteps), merges=self.merges)
        if clock.phase == DONE:
            step.vote_to_halt()
            self._drop(batch, step)
            return
        for name, value in clock.contributions().items():
            step.aggregate(name, value)
        if clock.phase == END:
            self._end(batch, step, clock)
        else:
            self._compute(batch, step, clock)

    def result(self, sg: SubgraphBatch) -> Mapping[str, Any]:
        """What the user's program gives, the rows that it emitted, or what it sent to the merge."""
        program = self._program
        if self.hands_over:
            return self._kept(sg, "merge")
        if program.emits:
            rows = self._kept(sg, "emit")
            order = [name for name in ("timestep", "vertex") if name in rows]
            return {name: rows[name] for name in [*order, *program.emits]}
        if program.is_batched():
            return program.result(sg)
        pieces = [dict(program.result(sg.subgraph(i))) for i in range(sg.num_subgraphs)]
        return {
            name: np.concatenate([np.atleast_1d(p[name]) for p in pieces]) for name in (pieces[0] if pieces else {})
        }

    # -- phases

    def _moment(self, clock: Clock) -> Moment:
        starts, ends = self._values.starts, self._values.ends
        first, last = (min(self.whole), max(self.whole)) if self.whole else (0, -1)
        origin = int(starts[first]) if self.whole else 0
        if clock.phase == MERGE:
            end = int(ends[last]) if self.whole else 0
            return Moment(self._program.pattern, "merge", -1, first, last, origin, end, origin)
        now = self.timesteps[clock.index]
        return Moment(
            self._program.pattern, _PHASES[clock.phase], now, first, last, int(starts[now]), int(ends[now]), origin
        )

    def _compute(self, batch: SubgraphBatch, step: BatchStep, clock: Clock) -> None:
        halted = batch["tibsp.halted"]
        messages, offsets = step.messages, step.message_offsets
        if clock.superstep == 1:
            if clock.phase == COMPUTE and clock.index and self._program.pattern != "sequential":
                self._prepare(batch)
            halted[:] = False
            batch["tibsp.dissents"] = True
            messages, offsets = self._first_inbox(batch, step, clock)
        active = np.flatnonzero(~halted | (np.diff(offsets) > 0))
        halted[active] = False
        moment = self._moment(clock)
        call = self._program.merge if clock.phase == MERGE else self._program.compute
        whole = self._program.merge_batch if clock.phase == MERGE else self._program.compute_batch
        sends = self._call(batch, step, clock, moment, active, messages, offsets, (call, whole))
        busy = sends or not bool(halted.all())
        step.aggregate("tibsp.busy", busy)
        if clock.phase == COMPUTE:
            step.aggregate(f"supersteps@{moment.timestep}", clock.superstep)

    def _end(self, batch: SubgraphBatch, step: BatchStep, clock: Clock) -> None:
        active, empty = np.arange(batch.num_subgraphs), step.messages[:0]
        offsets = np.zeros(batch.num_subgraphs + 1, np.int64)
        moment = self._moment(clock)
        calls = (self._program.end_of_timestep, self._program.end_of_timestep_batch)
        self._call(batch, step, clock, moment, active, empty, offsets, calls)
        for vote in ("dissents", "halts"):
            step.aggregate(f"tibsp.{vote}", bool(batch[f"tibsp.{vote}"].any()))
        later = self._take(batch, "later", step.messages.dtype)
        step.aggregate("tibsp.pending", bool(later.size))
        if clock.index + 1 < len(self.timesteps):
            if later.size:
                step.outbox.append(later)
        elif later.size:
            step.aggregate("dropped", later.size)

    def _drop(self, batch: SubgraphBatch, step: BatchStep) -> None:
        """Messages to a timestep that does not come are counted."""
        if step.messages.size:
            step.aggregate("dropped", step.messages.size)

    def _first_inbox(self, batch: SubgraphBatch, step: BatchStep, clock: Clock) -> tuple[Batch, NDArray[np.int64]]:
        """The inbox of superstep 1, and where that of each subgraph begins."""
        extra: Batch
        if clock.phase == MERGE:
            extra = self._for_merge(batch, step)
        elif self.given and (clock.index == 0 or self._program.pattern != "sequential"):
            extra = make_batch(step.messages.dtype, np.arange(batch.num_subgraphs), NO_VERTEX, self.given)
        else:
            return step.messages, step.message_offsets
        inbox = concatenate([extra, step.messages], step.messages.dtype)
        order = np.argsort(inbox["subgraph"], kind="stable")
        counts = np.bincount(inbox["subgraph"], minlength=batch.num_subgraphs)
        return inbox[order], np.concatenate(([0], np.cumsum(counts)))

    def _for_merge(self, batch: SubgraphBatch, step: BatchStep) -> Batch:
        """Messages to the merge, ordered by timestep, then as they were sent."""
        rows = self._kept(batch, "merge")
        if self.handed:
            mine = (self.handed["subgraph"] >= batch.first_id) & (
                self.handed["subgraph"] < batch.first_id + batch.num_subgraphs
            )
            rows = {name: np.concatenate((values, self.handed[name][mine])) for name, values in rows.items()}
        order = np.argsort(rows["timestep"], kind="stable")
        inbox: Batch = np.zeros(order.size, step.messages.dtype)
        for name in inbox.dtype.names or ():
            inbox[name] = rows[name][order]
        inbox["subgraph"] -= batch.first_id
        return inbox

    # -- calls of user code

    def _call(
        self,
        batch: SubgraphBatch,
        step: BatchStep,
        clock: Clock,
        moment: Moment,
        active: NDArray[np.int64],
        messages: Batch,
        offsets: NDArray[np.int64],
        calls: tuple[Callable[[Any, Any], None], Callable[[Any, Any], None]],
    ) -> bool:
        """Call user code for the active subgraphs; gives whether it sent messages in the same timestep."""
        read = self._reader(batch, moment, active)
        view = batch.with_attributes(read)
        context = (clock.superstep, messages, step.graph, step._aggregates, self.aggregators)
        before = len(step.outbox)
        if self._program.is_batched():
            whole = BatchTimeStep(view, active, offsets, step.threads, clock.superstep, messages, *context[2:])
            whole._bind(self._program, moment)
            whole._read = read
            with _named(self._program, batch, None, moment, clock.superstep):
                calls[1](view, whole)
            self._settle(batch, step, moment, whole, active, whole.halted[active])
        else:
            for index in active.tolist():
                sg = view.subgraph(index)
                inbox = messages[offsets[index] : offsets[index + 1]].copy()
                if inbox.size:
                    inbox["subgraph"] = 0
                    inbox["vertex"] -= np.where(inbox["vertex"] >= 0, batch.subgraph_offsets[index], 0)
                one = TimeStep(sg, clock.superstep, inbox, *context[2:])
                one._bind(self._program, moment)
                with _named(self._program, batch, index, moment, clock.superstep):
                    calls[0](sg, one)
                self._settle(batch, step, moment, one, np.array([index]), np.array([one.halted]))
        return len(step.outbox) > before

    def _reader(self, batch: SubgraphBatch, moment: Moment, active: NDArray[np.int64]) -> Callable[..., Any]:
        """Attributes by name: those of the template, and those of the instance that is bound."""
        if moment.phase == "merge":
            return batch.attribute
        bound = self._values.bound(batch, moment.timestep, active)
        static = self.attributes

        def read(name: str, subgraphs: NDArray[np.int64] | None = None) -> Any:
            if name in static:
                return batch.attribute(name)
            return bound(name) if subgraphs is None else bound(name, subgraphs)

        return read

    def _settle(
        self,
        batch: SubgraphBatch,
        step: BatchStep,
        moment: Moment,
        called: TimeStep | BatchTimeStep,
        active: NDArray[np.int64],
        halted: NDArray[np.bool_],
    ) -> None:
        """Take over what a call of user code left behind."""
        sent: Sent = called.sent
        if moment.phase != "end of timestep":
            batch["tibsp.halted"][active] = halted
        if not sent.dissents:
            batch["tibsp.dissents"][active] = False
        if sent.halts:
            batch["tibsp.halts"][active] = True
        step.outbox.extend(called.outbox)
        for name, value in called.contributions.items():
            step.aggregate(name, value)
        for name, values in sent.reported.items():
            step.aggregate(f"{name}@{moment.timestep}", reduce_values(self._program.reports[name], values))
        for kind, batches in (("later", sent.later), ("merge", sent.merge)):
            for rows in batches:
                columns = {name: rows[name] for name in rows.dtype.names or ()}
                if kind == "merge":
                    columns["timestep"] = np.full(rows.size, moment.timestep)
                self._keep(batch, kind, columns)
        for columns in sent.emitted:
            self._keep(batch, "emit", columns)

    # -- rows that are kept

    def _prepare(self, batch: SubgraphBatch) -> None:
        """The state of the user's program as it is before the first timestep."""
        for name, column in self._program.state.items():
            batch[name] = np.empty(0) if column.level == "free" else column.fill
        if self._program.is_batched():
            self._program.init(batch)
        else:
            for index in range(batch.num_subgraphs):
                self._program.init(batch.subgraph(index))

    def _names(self, kind: str) -> list[str]:
        prefix = f"tibsp.{kind}."
        return [name.removeprefix(prefix) for name in self.state if name.startswith(prefix)]

    def _kept(self, batch: SubgraphBatch, kind: str) -> dict[str, NDArray[Any]]:
        """The rows that were kept, by column."""
        count = int(batch[f"tibsp.count.{kind}"].sum())
        return {name: batch[f"tibsp.{kind}.{name}"][:count] for name in self._names(kind)}

    def _keep(self, batch: SubgraphBatch, kind: str, rows: Mapping[str, NDArray[Any]]) -> None:
        """Append rows; the columns grow by half, so that a long series is not copied in every timestep."""
        before = self._kept(batch, kind)
        count = next(iter(before.values())).size
        total = count + next(iter(rows.values())).size
        for name, values in before.items():
            place = f"tibsp.{kind}.{name}"
            if total > batch[place].size:
                grown = np.zeros(max(total, count + count // 2), values.dtype)
                grown[:count] = values
                batch[place] = grown
            batch[place][count:total] = rows[name]
        batch[f"tibsp.count.{kind}"] = [total]

    def _take(self, batch: SubgraphBatch, kind: str, dtype: np.dtype[np.void]) -> Batch:
        """The rows that were kept, as messages; none is left."""
        columns = self._kept(batch, kind)
        rows: Batch = np.empty(columns["subgraph"].size if columns else 0, dtype)
        for name, values in columns.items():
            rows[name] = values
        batch[f"tibsp.count.{kind}"] = [0]
        return rows


_STAMP: Mapping[str, Any] = {"timestep": np.dtype(np.int64)}


class _named:
    """Turns an exception of user code into one that says where and when it happened."""

    __slots__ = ("_where",)

    def __init__(
        self, program: TimeSeriesProgram, batch: SubgraphBatch, index: int | None, moment: Moment, superstep: int
    ) -> None:
        self._where = (program, batch, index, moment, superstep)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception) or isinstance(error, JobError):
            return
        program, batch, index, moment, superstep = self._where
        unit = "" if index is None else f"subgraph {batch.first_id + index}, "
        when = "" if moment.phase == "merge" else f"timestep {moment.timestep}, "
        phase = moment.phase if moment.phase == "end of timestep" else f"{moment.phase}, superstep {superstep}"
        where = f"{program.name()}: {unit}partition {batch.partition}, {when}{phase}"
        if isinstance(error, InputError):
            raise DataError(f"{where}: {error}") from error
        raise JobError(f"{where}: {type(error).__name__}: {error}") from error

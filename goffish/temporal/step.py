"""What a program over a time series can do in a call: the primitives, and which phase allows which of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.gopher.messages import NO_VERTEX, Batch, make_batch
from goffish.gopher.superstep import BatchStep, Superstep, numbers
from goffish.temporal.program import Pattern, TimeSeriesProgram

Phase = Literal["compute", "end of timestep", "merge"]


@dataclass(frozen=True)
class Moment:
    """Where a run is in time.

    Attributes
    ----------
    pattern, phase
        What is allowed depends on these (docs/specs/time-series.md, section 3.4).
    timestep : int
        Number of the instance in its series; -1 in the merge.
    first, last : int
        Timesteps of the run.
    start, end : int
        Of the instance, half-open, on the axis of the series; in the merge those of the whole run.
    origin : int
        Start of the first instance of the run.
    """

    pattern: Pattern
    phase: Phase
    timestep: int
    first: int
    last: int
    start: int
    end: int
    origin: int


@dataclass
class Sent:
    """What a call of user code leaves behind, apart from messages in the same timestep.

    Attributes
    ----------
    later, merge : list of structured arrays
        Messages to the next timestep and to the merge.
    emitted : list of dict of str to array
    dissents : bool
        Whether the caller did not vote to halt timesteps.
    halts : bool
        Whether it ended the application.
    reported : dict of str to list
    """

    later: list[Batch] = field(default_factory=list)
    merge: list[Batch] = field(default_factory=list)
    emitted: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    dissents: bool = True
    halts: bool = False
    reported: dict[str, list[Any]] = field(default_factory=dict)


class _Temporal:
    """The primitives that cross timesteps, common to `TimeStep` and `BatchTimeStep`."""

    messages: Batch
    graph: Any
    moment: Moment
    sent: Sent
    _program: TimeSeriesProgram

    def _bind(self, program: TimeSeriesProgram, moment: Moment) -> None:
        self._program, self.moment, self.sent = program, moment, Sent()

    @property
    def timestep(self) -> int:
        """Number of the instance in its series."""
        return self.moment.timestep

    def _allow(self, primitive: str, *allowed: tuple[Pattern, Phase]) -> None:
        moment = self.moment
        if (moment.pattern, moment.phase) not in allowed:
            raise InputError(f"{primitive} is not allowed in {moment.phase} of the {moment.pattern} pattern")

    def _send(self, subgraph: ArrayLike, vertex: ArrayLike, payload: Any) -> None:
        if self.moment.phase == "end of timestep":
            raise InputError(
                f"messages in the same timestep are not allowed in end of timestep of the {self.moment.pattern} "
                "pattern: its BSP is over"
            )
        super()._send(subgraph, vertex, payload)  # type: ignore[misc]

    def _later(self, subgraph: ArrayLike, vertex: ArrayLike, payload: Any) -> None:
        self._allow("a message to the next timestep", ("sequential", "compute"), ("sequential", "end of timestep"))
        batch = make_batch(self.messages.dtype, subgraph, vertex, payload)
        if batch.size:
            self.sent.later.append(batch)

    def send_to_subgraph_in_next_timestep(self, subgraph: ArrayLike, **payload: ArrayLike) -> None:
        """Send to subgraphs by number; delivered in superstep 1 of the next timestep."""
        self._later(numbers("subgraph", subgraph, self.graph.num_subgraphs), NO_VERTEX, payload)

    def send_to_vertex_in_next_timestep(self, subgraph: ArrayLike, vertex: ArrayLike, **payload: ArrayLike) -> None:
        """Send to vertices by partitioned number; delivered in superstep 1 of the next timestep."""
        target = numbers("vertex", vertex, self.graph.num_vertices)
        self._later(numbers("subgraph", subgraph, self.graph.num_subgraphs), target, payload)

    def send_to_all_in_next_timestep(self, **payload: ArrayLike) -> None:
        """Send to every subgraph of the graph, in superstep 1 of the next timestep."""
        self._later(~np.arange(self.graph.num_partitions), NO_VERTEX, payload)

    def _to_merge(self, subgraph: ArrayLike, payload: Any) -> None:
        self._allow("a message to the merge", ("eventual", "compute"), ("eventual", "end of timestep"))
        batch = make_batch(self.messages.dtype, subgraph, NO_VERTEX, payload)
        if batch.size:
            self.sent.merge.append(batch)

    def vote_to_halt_timestep(self) -> None:
        """Agree to end the run after this timestep; it does if all subgraphs agree and none has sent to the next."""
        self._allow("a vote to halt timesteps", ("sequential", "compute"), ("sequential", "end of timestep"))
        self.sent.dissents = False

    def halt_application(self) -> None:
        """Make this timestep the last one, whatever others say."""
        self._allow("halting the application", ("sequential", "compute"), ("sequential", "end of timestep"))
        self.sent.halts = True

    def report(self, name: str, value: Any) -> None:
        """Contribute to a figure of this timestep."""
        if name not in self._program.reports:
            declared = ", ".join(self._program.reports) or "none"
            raise InputError(f"no report {name!r}; declared: {declared}")
        if self.moment.phase == "merge":
            raise InputError("reports are not allowed in merge")
        self.sent.reported.setdefault(name, []).extend(np.atleast_1d(np.asarray(value)).tolist())

    def emit(self, vertex: ArrayLike | None = None, **columns: ArrayLike) -> None:
        """Add rows to the answer.

        Parameters
        ----------
        vertex : array of int, optional
            Vertices of the view (local numbers) that the rows stand for; only where the program `emits_vertices`.
        columns
            One value per row, or one for all; exactly the columns that the program declares in `emits`.
        """
        wanted = list(self._program.emits)
        if sorted(columns) != sorted(wanted):
            raise InputError(f"emit received the columns {sorted(columns)}; the program declares {sorted(wanted)}")
        if (vertex is None) == self._program.emits_vertices:
            raise InputError(
                "emit requires vertex"
                if vertex is None
                else "emit: the rows of this program do not represent vertices; omit vertex"
            )
        rows: dict[str, Any] = {name: np.asarray(columns[name], self._program.emits[name]) for name in wanted}
        if vertex is not None:
            rows["vertex"] = self._ids()[np.asarray(vertex)].astype(np.int64)
        rows["timestep"] = np.int64(self.moment.timestep)
        spread = np.broadcast_arrays(*rows.values())
        self.sent.emitted.append({name: np.atleast_1d(a) for name, a in zip(rows, spread, strict=True)})

    def _ids(self) -> NDArray[np.integer[Any]]:
        raise NotImplementedError


class TimeStep(_Temporal, Superstep):
    """One call of user code for one subgraph.

    Attributes
    ----------
    number : int
        Superstep, counted from 1 in every timestep and in the merge.
    messages : structured array
        The inbox. In superstep 1: the application's input and what was sent to this timestep.
    """

    def send_to_next_timestep(self, **payload: ArrayLike) -> None:
        """Send to this same subgraph; delivered in superstep 1 of the next timestep."""
        self._later(self._sg.id, NO_VERTEX, payload)

    def send_to_merge(self, **payload: ArrayLike) -> None:
        """Send to this same subgraph; delivered in superstep 1 of the merge, in order of timesteps."""
        self._to_merge(self._sg.id, payload)

    def vote_to_halt(self) -> None:
        """Become inactive after this call, until a message arrives."""
        if self.moment.phase == "end of timestep":
            raise InputError("a vote to halt is not allowed in end of timestep: its BSP is over")
        super().vote_to_halt()

    def _ids(self) -> NDArray[np.integer[Any]]:
        return self._sg.vertex_ids


class BatchTimeStep(_Temporal, BatchStep):
    """One call of user code for all active subgraphs of a partition."""

    _read: Any = None

    def values(self, name: str, subgraphs: NDArray[np.int64]) -> Any:
        """An attribute of the instance where only some subgraphs (local indices) are looked at.

        Slices of bins that hold none of them are not read; what belongs to other subgraphs may be missing.
        """
        return self._read(name, subgraphs)

    def send_to_next_timestep(self, subgraphs: ArrayLike, **payload: ArrayLike) -> None:
        """Send from listed subgraphs (local indices) to themselves, in superstep 1 of the next timestep."""
        self._later(np.asarray(subgraphs) + self._batch.first_id, NO_VERTEX, payload)

    def send_to_merge(self, subgraphs: ArrayLike, **payload: ArrayLike) -> None:
        """Send from listed subgraphs (local indices) to themselves, in superstep 1 of the merge."""
        self._to_merge(np.asarray(subgraphs) + self._batch.first_id, payload)

    def vote_to_halt(self, subgraphs: NDArray[np.int64] | None = None) -> None:
        """Let the listed subgraphs (default: all) become inactive until a message arrives."""
        if self.moment.phase == "end of timestep":
            raise InputError("a vote to halt is not allowed in end of timestep: its BSP is over")
        super().vote_to_halt(subgraphs)

    def _ids(self) -> NDArray[np.integer[Any]]:
        return self._batch.vertex_ids

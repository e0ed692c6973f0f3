"""What every stage of a superstep works with: the program's options, the state, the inbox and the pieces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.betweenness.subgraph.messages import Kind, Phase, of_kind
from goffish.algorithms.betweenness.subgraph.pieces import Piece, Side, cut_piece
from goffish.gopher import BatchStep, SubgraphBatch

Compression = Literal["exact", "drop", "none"]
PivotsFrom = Literal["all", "core"]


class Options(Protocol):
    """What the stages read of the program's options."""

    pivots: int | None
    sources: tuple[int | str, ...] | None
    targets: tuple[int | str, ...] | None
    endpoints: bool
    seed: int
    top: int | None
    batch: int
    max_change: int
    stable: int
    compression: Compression
    pivots_from: PivotsFrom
    weighted: bool
    max_concurrent: int | None
    slots: int
    time_limit: float | None


def places(labels: pa.Array, listed: tuple[int | str, ...]) -> NDArray[np.int64]:
    """Place of each label in a list, or -1."""
    try:
        wanted = pa.array(listed, labels.type)
    except pa.ArrowException:
        return np.full(len(labels), -1)
    place: NDArray[np.int64] = pc.fill_null(pc.index_in(labels, wanted), -1).to_numpy(zero_copy_only=False)
    return place


@dataclass(eq=False)
class Work:
    """One superstep of one partition.

    Attributes
    ----------
    pieces : dict
        The partition's pieces that were cut before: of the whole graph (False) and of the core (True).
    """

    program: Options
    batch: SubgraphBatch
    step: BatchStep
    pieces: dict[bool, Piece]

    @property
    def compression(self) -> str:
        """What the program does to leaves; nothing in a directed graph."""
        return "none" if self.batch.directed else self.program.compression

    @property
    def phase(self) -> Phase:
        return Phase(self.number("phase"))

    @property
    def slots(self) -> int:
        """Sources of this round."""
        return min(self.width, self.number("sources") - self.number("round") * self.width)

    @property
    def width(self) -> int:
        """Sources of a full round."""
        program = self.program
        return program.slots if program.max_concurrent else min(program.slots, self.step.graph.num_partitions)

    @cached_property
    def whole(self) -> Piece:
        """The partition without loops and parallels."""
        batch = self.batch
        everything = np.ones(batch.num_vertices, np.bool_), np.ones(batch.remote_vertex.size, np.bool_)
        ends = None if self.program.targets is None else self.is_target.astype(np.int64)
        return self._known(False) or self._cut(False, *everything, ends)

    @cached_property
    def core(self) -> Piece:
        """What is left of it after compression."""
        if self.compression == "none":
            return self.whole
        found = self._known(True)
        if found is None:
            alive, ghost_alive = self.batch["alive"], self.batch["child_of"] < 0
            if alive.all() and ghost_alive.all():
                found = self.pieces[True] = self.whole
            else:
                omega = self.batch["omega"] if self.compression == "exact" else None
                found = self._cut(True, alive, ghost_alive, omega)
            self.pieces.pop(False, None)
        return found

    def _known(self, core: bool) -> Piece | None:
        found = self.pieces.get(core)
        return found if found is not None and found.source is self.batch.targets else None

    def _cut(
        self, core: bool, alive: NDArray[np.bool_], ghost_alive: NDArray[np.bool_],
        omega: NDArray[np.int64] | None = None,
    ) -> Piece:  # fmt: skip
        found = self.pieces[core] = cut_piece(
            self.batch, self.batch["ghost_id"], alive, ghost_alive, omega, weighted=self.program.weighted
        )
        return found

    @cached_property
    def is_target(self) -> NDArray[np.bool_]:
        """Whether paths to each vertex count."""
        batch, targets = self.batch, self.program.targets
        return np.ones(batch.num_vertices, np.bool_) if targets is None else places(batch.labels(), targets) >= 0

    def number(self, name: str) -> int:
        """A figure that the partition keeps in a column."""
        return int(self.batch[name][0])

    def add(self, name: str, count: int) -> None:
        """Add to a figure that the partition keeps."""
        self.batch[name][0] += count

    def mail(self, kind: Kind) -> np.ndarray[Any, Any]:
        """Messages of one kind."""
        return of_kind(self.step.messages, kind)

    def to_ghosts(
        self, side: Side, ghosts: NDArray[np.int64], kind: Kind, sender: ArrayLike, value: ArrayLike = 0.0,
        other: ArrayLike = 0.0, slot: ArrayLike = 0,
    ) -> None:  # fmt: skip
        """Send to the owners of ghosts."""
        self.step.send_to_vertex(
            side.ghost_unit[ghosts], side.ghost_vertex[ghosts], kind=kind, slot=slot, sender=sender, value=value,
            other=other,
        )  # fmt: skip

    def to_partitions(
        self, partitions: NDArray[np.integer[Any]], kind: Kind, sender: ArrayLike, value: ArrayLike = 0.0,
        other: ArrayLike = 0.0, slot: ArrayLike = 0,
    ) -> None:  # fmt: skip
        """Send to the first subgraph of partitions."""
        self.step.send_to_subgraph(
            self.batch.subgraph_starts[partitions], kind=kind, slot=slot, sender=sender, value=value, other=other
        )

    def enter(self, phase: Phase) -> None:
        self.batch["phase"] = phase
        self.batch["stage_step"] = 0

    @property
    def is_master(self) -> bool:
        """Whether this partition has the first subgraph of all."""
        return self.batch.first_id == 0

    @property
    def late(self) -> bool:
        """Whether the time was up in the superstep before."""
        return bool(self.step.aggregated("late"))

    @property
    def ended(self) -> bool:
        """Whether no messages of this stage were sent in the previous superstep."""
        return bool(self.step.aggregated("sent") == 0)

    def sent(self, counter: str, count: int) -> None:
        """Count the messages of a stage; with none in any partition the stage is over."""
        self.step.aggregate("sent", count)
        self.add(counter, count)

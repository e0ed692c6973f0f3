"""Following a vehicle by the cameras that see its licence plate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.algorithms.paths.step_kernels import Entries, Tree
from goffish.errors import InputError
from goffish.gopher import SubgraphBatch, per_remote, per_subgraph, per_vertex
from goffish.temporal import front_kernels as kernels
from goffish.temporal.memes import occurrences
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.step import BatchTimeStep

_ALL = np.empty(0, np.bool_)
_ALL.setflags(write=False)


class VehicleTracking(TimeSeriesProgram):
    """Where a vehicle was seen in each instance, within what it can have driven.

    See docs/specs/time-series.md, section 4.4.

    In every instance the cameras within ``max_speed`` times the time since it was last seen are asked, by distance on
    the edges; the nearest one that saw the plate is the new position, of several the first vertex.

    Parameters
    ----------
    plate : str or int
    start : int or str
        Label of the vertex where it was last seen, at the start of the first instance.
    max_speed : float
        In units of distance per unit of time of the series.
    distance : str
        Edge attribute with the length, at least 0.
    plates : str
        Vertex attribute with what the camera saw: one plate, or a list of them.
    """

    pattern = "sequential"
    message = {"far": np.float64, "number": np.int64}
    state = {
        "position": per_subgraph(np.int64, -1),
        "reach": per_subgraph(np.float64),
        "label": per_vertex(np.float64, np.inf),
        "through": per_vertex(np.int64, -1),
        "ghost": per_remote(np.float64, np.inf),
        "via": per_remote(np.int64, -1),
    }
    emits: ClassVar[Mapping[str, Any]] = {"distance": np.float64, "number": np.int64}

    def __init__(
        self, plate: str | int, start: int | str, max_speed: float, distance: str = "distance", plates: str = "plates"
    ) -> None:
        if not max_speed > 0:
            raise InputError(f"max_speed={max_speed}: must be greater than 0")
        self.plate, self.start, self.max_speed = plate, start, max_speed
        self.distance, self.plates = distance, plates
        self.values = (f"edge.{distance}", f"vertex.{plates}")

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        step.vote_to_halt()
        label, messages = batch["label"], step.messages
        if step.number == 1:
            self._look_from(batch, step)
            label[:], batch["ghost"][:] = np.inf, np.inf
            roots = np.flatnonzero(batch.vertex_ids == batch["position"][0])
            label[roots] = 0.0
        else:
            order = np.argsort(messages["far"], kind="stable")
            vertex, first = np.unique(messages["vertex"][order], return_index=True)
            far = messages["far"][order[first]]
            nearer = far < label[vertex]
            roots = vertex[nearer]
            label[roots] = far[nearer]
        if not roots.size:
            return
        units = np.unique(np.searchsorted(batch.subgraph_offsets, roots, side="right") - 1)
        length = np.asarray(step.values(f"edge.{self.distance}", units), np.float64)
        if (length < 0).any():
            raise InputError(
                f"edge.{self.distance} is {length.min():g} in instance {step.timestep}: must be at least 0"
            )
        never, improved = np.zeros(batch.num_vertices, np.bool_), np.empty(batch.remote_vertex.size, np.int64)
        entries = Entries(np.searchsorted(roots, batch.subgraph_offsets), roots, label[roots])
        tree = Tree(label, batch["through"], batch["ghost"], batch["via"])
        count = kernels.advance_front(
            units, batch.rows, length, _ALL, entries, batch["reach"][0], False, batch.vertex_ids, never,
            np.zeros(improved.size, np.bool_), tree, improved,
        )  # fmt: skip
        rows = improved[:count]
        step.send_to_vertex(batch.remote_subgraph[rows], batch.remote_vertex[rows], far=batch["ghost"][rows], number=-1)

    def _look_from(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        """The last position, and how far it can have come: sent to all partitions alike."""
        position, reach = batch["position"], batch["reach"]
        if step.timestep == step.moment.first:
            at = batch.find(self.start)
            position[:] = -1 if at < 0 else batch.vertex_ids[at]
        elif step.messages.size:
            nearest = np.lexsort((step.messages["number"], step.messages["far"]))[0]
            position[:], reach[:] = step.messages["number"][nearest], 0.0
        reach += self.max_speed * (step.moment.end - step.moment.start)

    def end_of_timestep_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        label = batch["label"]
        near = np.flatnonzero(label < np.inf)
        if not near.size:
            return
        saw = near[self._saw(batch, step, near)]
        if saw.size:
            ids = batch.vertex_ids[saw].astype(np.int64)
            best = np.lexsort((ids, label[saw]))[0]
            step.emit(saw[best : best + 1], distance=label[saw[best]], number=ids[best])
            step.send_to_all_in_next_timestep(far=label[saw[best]], number=ids[best])

    def _saw(self, batch: SubgraphBatch, step: BatchTimeStep, near: NDArray[np.int64]) -> NDArray[np.bool_]:
        units = np.unique(np.searchsorted(batch.subgraph_offsets, near, side="right") - 1)
        return np.asarray(occurrences(step.values(f"vertex.{self.plates}", units), self.plate)[near] > 0)

    def finish(self, table: pa.Table) -> pa.Table:
        """The nearest of the sightings that partitions reported, for each instance."""
        ordered = table.sort_by([(name, "ascending") for name in ("timestep", "distance", "number")])
        first = np.unique(ordered["timestep"].to_numpy(), return_index=True)[1]
        return ordered.take(pa.array(first)).drop_columns("number")

"""Time-dependent shortest paths: when each vertex can be reached at the earliest, while latencies change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.paths.step_kernels import Entries, Tree
from goffish.errors import InputError
from goffish.gopher import SubgraphBatch, per_remote, per_subgraph, per_vertex
from goffish.temporal import front_kernels as kernels
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.step import BatchTimeStep

_ALL = np.empty(0, np.bool_)
_ALL.setflags(write=False)


class TimeDependentShortestPath(TimeSeriesProgram):
    """Earliest arrivals from one vertex that is left at the start of the first instance.

    See docs/specs/time-series.md, section 4.1.

    One bounded Dijkstra per instance and subgraph, from the finalised vertices that still have neighbors which are
    not. Supersteps of a timestep: at most two more than the remote edges on an earliest path inside its window.

    Parameters
    ----------
    source : int or str
        Label of the source.
    latency : str
        Edge attribute with the time that an edge takes, in the unit of the series; at least 0.
    exists : str, optional
        Boolean edge attribute; edges are used only in instances where it is true.
    semantics : {"window", "departure"}
        "window": an edge is used only if departure and arrival lie in the same instance, its end included (W).
        "departure": the latency is that of the instance in which the edge is entered, however long it takes (D).

    Notes
    -----
    Times are offsets from the start of the first instance. A vertex that is not reached before the last instance ends
    has the arrival infinity. Reports by timestep: ``finalised`` vertices; ``too_long``, whether an edge was met that
    takes longer than the instance lasts.
    """

    pattern = "sequential"
    message = {"time": np.float64, "parent": np.int64}
    combine = "min"
    state = {
        "arrival": per_vertex(np.float64, np.inf),
        "timestep": per_vertex(np.int64, -1),
        "parent": per_vertex(np.int64, -1),
        "label": per_vertex(np.float64, np.inf),
        "through": per_vertex(np.int64, -1),
        "done": per_vertex(np.bool_),
        "open": per_vertex(np.bool_),
        "ghost": per_remote(np.float64, np.inf),
        "via": per_remote(np.int64, -1),
        "ghost_done": per_remote(np.bool_),
        "too_long": per_subgraph(np.bool_),
    }
    aggregators: ClassVar[Mapping[str, Any]] = {"left": "or"}
    reports: ClassVar[Mapping[str, Any]] = {"finalised": "sum", "too_long": "or"}
    label_columns = ("parent",)
    nullable = ("timestep",)

    def __init__(
        self,
        source: int | str,
        latency: str = "latency",
        exists: str | None = None,
        semantics: Literal["window", "departure"] = "window",
    ) -> None:
        if semantics not in ("window", "departure"):
            raise InputError(f"semantics={semantics!r}: choose window or departure")
        self.source, self.latency, self.exists, self.semantics = source, latency, exists, semantics
        self.values = (f"edge.{latency}", *(() if exists is None else (f"edge.{exists}",)))

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        moment, departure = step.moment, self.semantics == "departure"
        start, horizon = float(moment.start - moment.origin), float(moment.end - moment.origin)
        label, through, done = batch["label"], batch["through"], batch["done"]
        if step.number == 1:
            if step.aggregated("left") is False:  # what is not reached by now never will be
                step.halt_application()
                step.vote_to_halt()
                return
            if not departure:
                label[:], batch["ghost"][:] = np.inf, np.inf
            roots = self._roots(batch, step, start, horizon)
        else:
            messages = step.messages
            vertex = messages["vertex"]
            better = ~done[vertex] & (messages["time"] < label[vertex])
            # Combined by the sender only: of several messages to one vertex, the first of the earliest counts.
            order = np.flatnonzero(better)[np.argsort(messages["time"][better], kind="stable")]
            _, first = np.unique(vertex[order], return_index=True)
            rows = order[first]
            label[vertex[rows]], through[vertex[rows]] = messages["time"][rows], messages["parent"][rows]
            roots = vertex[rows][(messages["time"][rows] < horizon) | (not departure)]
        self._advance(batch, step, roots, np.where(done[roots], start, np.maximum(label[roots], start)), horizon)
        step.vote_to_halt()

    def _roots(self, batch: SubgraphBatch, step: BatchTimeStep, start: float, horizon: float) -> NDArray[np.int64]:
        label = batch["label"]
        if step.timestep == step.moment.first:
            source = batch.find(self.source)
            if source >= 0:
                label[source] = start
            return np.array([source], np.int64) if source >= 0 else np.empty(0, np.int64)
        roots = np.empty(batch.num_vertices, np.int64)
        count = kernels.open_roots(batch.rows, batch["done"], batch["ghost_done"], batch["open"], roots)
        waiting = np.flatnonzero(~batch["done"] & (label < horizon)) if self.semantics == "departure" else roots[:0]
        return np.sort(np.concatenate((roots[:count], waiting)))

    def _advance(
        self, batch: SubgraphBatch, step: BatchTimeStep, roots: NDArray[np.int64], times: NDArray[np.float64],
        horizon: float,
    ) -> None:  # fmt: skip
        """Follow the roots inside the window, and notify the owners of remote vertices."""
        if not roots.size:
            return
        units = np.unique(np.searchsorted(batch.subgraph_offsets, roots, side="right") - 1)
        latency, exists = self._costs(batch, step, units)
        improved = np.empty(batch.remote_vertex.size, np.int64)
        ghost, via = batch["ghost"], batch["via"]
        count = kernels.advance_front(
            units, batch.rows, latency, exists, Entries(np.searchsorted(roots, batch.subgraph_offsets), roots, times),
            horizon, self.semantics == "departure", batch.vertex_ids, batch["done"], batch["ghost_done"],
            Tree(batch["label"], batch["through"], ghost, via), improved,
        )  # fmt: skip
        rows = improved[:count]
        step.send_to_vertex(batch.remote_subgraph[rows], batch.remote_vertex[rows], time=ghost[rows], parent=via[rows])

    def _costs(
        self, batch: SubgraphBatch, step: BatchTimeStep, units: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Latency and presence of every arc, as far as some subgraphs are concerned."""
        latency = np.asarray(step.values(f"edge.{self.latency}", units), np.float64)
        wrong = np.flatnonzero(latency < 0)
        if wrong.size:
            arc = int(wrong[0])
            tail = batch.vertex_ids[np.searchsorted(batch.offsets, arc, side="right") - 1]
            raise InputError(
                f"edge.{self.latency} is {latency[arc]:g} for an edge of vertex number {tail} in instance "
                f"{step.timestep}: must be at least 0"
            )
        if self.semantics == "window":
            batch["too_long"][:] |= bool((latency > step.moment.end - step.moment.start).any())
        if self.exists is None:
            return latency, _ALL
        return latency, np.asarray(step.values(f"edge.{self.exists}", units), np.bool_)

    def end_of_timestep_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        moment, label, done = step.moment, batch["label"], batch["done"]
        horizon = float(moment.end - moment.origin)
        departure = self.semantics == "departure"
        fresh = np.flatnonzero(~done & ((label < horizon) if departure else (label < np.inf)))
        batch["arrival"][fresh], batch["parent"][fresh] = label[fresh], batch["through"][fresh]
        batch["timestep"][fresh] = step.timestep
        done[fresh] = batch["open"][fresh] = True
        ghost = batch["ghost"]
        batch["ghost_done"][:] |= (ghost < horizon) if departure else (ghost < np.inf)
        step.report("finalised", fresh.size)
        step.report("too_long", bool(batch["too_long"].any()))
        batch["too_long"][:] = False
        roots = np.empty(batch.num_vertices, np.int64)
        left = kernels.open_roots(batch.rows, done, batch["ghost_done"], batch["open"], roots)
        step.aggregate("left", bool(left) or (departure and bool((~done & (label < np.inf)).any())))
        if bool(done.all()):
            step.vote_to_halt_timestep()

    def notes(self, timesteps: pa.Table) -> list[str]:
        """A warning about latencies that exceed every window (docs/specs/time-series.md, section 6.3)."""
        when = [t for t, met in zip(*(timesteps[n].to_pylist() for n in ("timestep", "too_long")), strict=True) if met]
        if not when:
            return []
        shown = ", ".join(map(str, when[:5])) + (", …" if len(when) > 5 else "")
        return [
            f"some edges exceed the duration of an instance (edge.{self.latency}, timesteps {shown}): "
            "with semantics=window they are never used"
        ]

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"arrival": sg["arrival"], "timestep": sg["timestep"], "parent": sg["parent"]}

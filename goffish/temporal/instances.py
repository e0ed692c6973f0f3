"""Each instance for itself: its components, and the ranks of its vertices, among what exists in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gopher import SubgraphBatch, per_remote, per_vertex
from goffish.temporal import instance_kernels as kernels
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.step import BatchTimeStep

Flags = NDArray[np.bool_]


class _OfInstance(TimeSeriesProgram):
    """What exists in an instance: an edge does if its flag says so and both its ends exist.

    See docs/specs/time-series.md, section 2.
    """

    pattern = "independent"

    def __init__(self, edge_exists: str | None = "exists", vertex_exists: str | None = None) -> None:
        self.edge_exists, self.vertex_exists = edge_exists, vertex_exists
        flags = (("edge", edge_exists), ("vertex", vertex_exists))
        self.values = tuple(f"{place}.{name}" for place, name in flags if name is not None)

    def _alive(self, batch: SubgraphBatch) -> Flags:
        if self.vertex_exists is None:
            return np.ones(batch.num_vertices, np.bool_)
        return np.asarray(batch.attribute(f"vertex.{self.vertex_exists}"), np.bool_)

    def _flags(self, batch: SubgraphBatch, size: int, place: str = "edge") -> Flags:
        if self.edge_exists is None:
            return np.ones(size, np.bool_)
        return np.asarray(batch.attribute(f"{place}.{self.edge_exists}"), np.bool_)


class InstanceComponents(_OfInstance):
    """Weakly connected components of every instance, each named by its last vertex, as in `connected_components`.

    See docs/specs/time-series.md, section 4.4.

    A subgraph of the template may fall into pieces in an instance, so every local component has a separate label.

    Parameters
    ----------
    edge_exists, vertex_exists : str, optional
        Boolean attributes; ``None`` if all edges, or vertices, exist in every instance.
    """

    message = {"component": np.int64}
    combine = "max"
    state = {"root": per_vertex(np.int64), "label": per_vertex(np.int64)}
    emits: ClassVar[Mapping[str, Any]] = {"component": np.int64}
    label_columns = ("component",)

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        step.vote_to_halt()
        alive, root, label = self._alive(batch), batch["root"], batch["label"]
        keep = self._flags(batch, batch.num_arcs)
        if step.number == 1:
            kernels.local_components(
                batch.subgraph_offsets, batch.offsets, batch.targets, keep, alive, batch.vertex_ids, root, label
            )
            changed = np.ones(batch.num_vertices, np.bool_)
        else:
            changed = np.zeros(batch.num_vertices, np.bool_)
            messages = [np.ascontiguousarray(step.messages[name]) for name in ("vertex", "component")]
            kernels.raise_labels(*messages, alive, root, label, changed)
        ways = [(batch.out_remotes(), keep[batch.targets < 0])]
        if batch.directed:
            incoming = self._flags(batch, batch.in_targets.size, "in_edge")
            ways.append((batch.in_remotes(), incoming[batch.in_targets < 0]))
        for arcs, there in ways:
            rows = np.flatnonzero(there & alive[arcs.source] & changed[root[arcs.source]])
            step.send_to_vertex(arcs.subgraph[rows], arcs.vertex[rows], component=label[root[arcs.source[rows]]])

    def end_of_timestep_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        there = np.flatnonzero(self._alive(batch))
        step.emit(there, component=batch["label"][batch["root"][there]])


class InstancePageRank(_OfInstance):
    """PageRank of every instance among the vertices and edges that exist in it, dangling rank spread over all of them.

    Parameters
    ----------
    damping : float
    iterations : int
        Updates at most.
    tolerance : float
        Stop after an update with a smaller L1 change.
    edge_exists, vertex_exists : str, optional
        Boolean attributes; ``None`` if all edges, or vertices, exist in every instance.
    """

    message = {"value": np.float64}
    state = {
        "rank": per_vertex(np.float64),
        "local_sum": per_vertex(np.float64),
        "ghost_alive": per_remote(np.bool_, True),
    }
    aggregators: ClassVar[Mapping[str, Any]] = {"count": "sum", "change": "sum", "dangling": "sum"}
    emits: ClassVar[Mapping[str, Any]] = {"rank": np.float64}

    def __init__(
        self,
        damping: float = 0.85,
        iterations: int = 100,
        tolerance: float = 1e-9,
        edge_exists: str | None = "exists",
        vertex_exists: str | None = None,
    ) -> None:
        super().__init__(edge_exists, vertex_exists)
        if not 0 <= damping < 1:
            raise InputError(f"damping={damping}: must be at least 0 and less than 1")
        if iterations < 1:
            raise InputError(f"iterations={iterations}: must be at least 1")
        self.damping, self.iterations, self.tolerance = damping, iterations, tolerance

    def compute_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        alive, rank = self._alive(batch), batch["rank"]
        if step.number == 1:
            self._send_existence(batch, step, alive)
            step.aggregate("count", int(alive.sum()))
            return
        if step.number == 2:
            self._hear_who_exists(batch, step)
            rank[:] = alive / max(1, step.aggregated("count"))
        else:
            self._update(batch, step, alive)
            change = step.aggregated("change")
            if step.number - 2 >= self.iterations or (change is not None and change < self.tolerance):
                step.vote_to_halt()
                return
        step.aggregate("count", int(alive.sum()))
        keep, degree = np.empty(batch.num_arcs, np.bool_), np.empty(batch.num_vertices, np.int64)
        places = (batch.subgraph_offsets, batch.remote_offsets, batch.offsets, batch.targets)
        kernels.existing_arcs(*places, self._flags(batch, batch.num_arcs), alive, batch["ghost_alive"], keep, degree)
        batch["local_sum"] = 0.0
        remote_sum = np.zeros(batch.remote_vertex.size)
        dangling = kernels.spread_ranks(*places, keep, degree, alive, rank, batch["local_sum"], remote_sum)
        step.aggregate("dangling", dangling)
        rows = np.flatnonzero(remote_sum)
        step.send_to_vertex(batch.remote_subgraph[rows], batch.remote_vertex[rows], value=remote_sum[rows])

    def _send_existence(self, batch: SubgraphBatch, step: BatchTimeStep, alive: Flags) -> None:
        """Each existing vertex notifies the subgraphs that have arcs to it."""
        batch["ghost_alive"] = self.vertex_exists is None
        if self.vertex_exists is None:
            return
        arcs = batch.in_remotes()
        there = alive[arcs.source]
        pairs = np.unique(np.stack((arcs.subgraph[there], arcs.source[there])), axis=1)
        step.send_to_subgraph(pairs[0], value=(batch.start + pairs[1]).astype(np.float64))

    def _hear_who_exists(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        if self.vertex_exists is None:
            return
        unit = np.repeat(np.arange(batch.num_subgraphs), np.diff(batch.remote_offsets))
        order = np.lexsort((batch.remote_vertex, unit))
        total = step.graph.num_vertices
        known = (unit * total + batch.remote_vertex)[order]
        reached = step.messages["subgraph"] * total + step.messages["value"].astype(np.int64)
        batch["ghost_alive"][order[np.searchsorted(known, reached)]] = True

    def _update(self, batch: SubgraphBatch, step: BatchTimeStep, alive: Flags) -> None:
        total = batch["local_sum"]
        np.add.at(total, step.messages["vertex"], step.messages["value"])
        share = (1.0 - self.damping + self.damping * (step.aggregated("dangling") or 0.0)) / max(
            1, step.aggregated("count")
        )
        after = np.where(alive, share + self.damping * total, 0.0)
        step.aggregate("change", float(np.abs(after - batch["rank"]).sum()))
        batch["rank"] = after

    def end_of_timestep_batch(self, batch: SubgraphBatch, step: BatchTimeStep) -> None:
        there = np.flatnonzero(self._alive(batch))
        step.emit(there, rank=batch["rank"][there])

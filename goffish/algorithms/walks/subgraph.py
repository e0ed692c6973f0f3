"""Random walks against the engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from goffish.algorithms.clustering.subgraph import find_remote, order_arcs
from goffish.algorithms.walks import kernels, step_kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_partition, per_remote
from goffish.kernels.csr import NO_WEIGHTS

#: Rows that the table of visits has at first.
_LEAST_ROWS = 1 << 12
_COLUMNS = ("walk", "step", "vertex")


class RandomWalks(SubgraphProgram):
    """Random walks without biases: those of `goffish.random_walks`.

    Superstep 1 sends neighboring subgraphs the numbers of border vertices, which order the arcs of each vertex. From
    then on, walks continue in their subgraphs, and those that leave are sent on.

    Parameters
    ----------
    length, walks, sources, weighted, seed
        As in `goffish.random_walks`.
    """

    message = {"walk": np.int64, "step": np.int64}
    state = {
        "remote_original": per_remote(np.int64),
        "arcs": per_partition(np.int64),
        "sums": per_partition(np.float64),
        **{name: per_partition(np.int64) for name in ("filled", *_COLUMNS)},
    }
    rows = "free"
    label_columns = ("vertex",)

    def __init__(
        self, length: int, walks: int, sources: tuple[int | str, ...] | None, weighted: bool, seed: int
    ) -> None:
        self.length, self.walks, self.sources, self.weighted, self.seed = length, walks, sources, weighted, seed

    def init(self, sg: SubgraphBatch) -> None:
        if self.weighted and sg.weights is None:
            raise InputError("weighted=True: the graph has no weights")
        if self.weighted:
            check_range(sg.weights)

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        messages = step.messages
        if step.number == 1:
            arcs = batch.in_remotes() if batch.directed else batch.out_remotes()
            border, ends = np.divmod(
                np.unique(arcs.source * step.graph.num_subgraphs + arcs.subgraph), step.graph.num_subgraphs
            )
            step.send_to_subgraph(ends, walk=batch.vertex_ids[border], step=batch.start + border)
            return
        if step.number == 2:
            rows = find_remote(batch, messages["subgraph"], messages["step"])
            batch["remote_original"][rows] = messages["walk"]
            self._order_arcs(batch)
            self._wander(batch, step, self._begin(batch))
        else:
            self._wander(batch, step, step_kernels.Visits(*(messages[n].copy() for n in _COLUMNS)))
        step.vote_to_halt()

    def _order_arcs(self, batch: SubgraphBatch) -> None:
        batch["arcs"] = order_arcs(batch, batch["remote_original"])
        if self.weighted:
            assert batch.weights is not None
            batch["sums"] = np.empty(batch.targets.size)
            weights = batch.weights[batch["arcs"]]
            kernels.accumulate(batch.offsets, weights, 0, batch.num_vertices, batch["sums"])

    def _begin(self, batch: SubgraphBatch) -> step_kernels.Visits:
        """The walks that begin here, by vertex."""
        if self.sources is None:
            at, number = np.arange(batch.num_vertices), batch.vertex_ids.astype(np.int64)
        else:
            found = np.array([batch.find(label) for label in self.sources], np.int64)
            number = np.flatnonzero(found >= 0)
            at = found[number]
        walk = (number[:, None] * self.walks + np.arange(self.walks)).ravel()
        return step_kernels.Visits(walk, np.zeros(walk.size, np.int64), np.repeat(at, self.walks))

    def _wander(self, batch: SubgraphBatch, step: BatchStep, walkers: step_kernels.Visits) -> None:
        units = np.searchsorted(batch.subgraph_offsets, walkers.vertex, side="right") - 1
        leaving, at = np.empty(units.size, np.int64), 0
        filled = int(batch["filled"].sum())
        while at < units.size:
            self._make_place(batch, filled + self.length + 1)
            free = step_kernels.Visits(*(batch[name][filled:] for name in _COLUMNS))
            at, new = step_kernels.wander(
                walkers, units, at, batch.rows, batch["arcs"], batch["sums"] if self.weighted else NO_WEIGHTS,
                np.uint64(self.seed), self.length, free, leaving,
            )  # fmt: skip
            free.vertex[:new] = batch.vertex_ids[free.vertex[:new]]
            filled += new
        batch["filled"] = [filled]
        gone = np.flatnonzero(leaving >= 0)
        rows = leaving[gone]
        step.send_to_vertex(
            batch.remote_subgraph[rows], batch.remote_vertex[rows], walk=walkers.walk[gone], step=walkers.step[gone]
        )

    @staticmethod
    def _make_place(batch: SubgraphBatch, needed: int) -> None:
        """Double the columns of visits until there are enough rows: each is copied about once."""
        size = batch["walk"].size
        if size < needed:
            larger = max(_LEAST_ROWS, 2 * size, needed)
            for name in _COLUMNS:
                column = np.empty(larger, np.int64)
                column[:size] = batch[name]
                batch[name] = column

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        filled = int(sg["filled"].sum())
        return {name: sg[name][:filled] for name in _COLUMNS}

"""Random walks against the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.clustering.subgraph import find_remote, order_arcs
from goffish.algorithms.walks import kernels, step_kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_partition, per_remote
from goffish.kernels.csr import NO_WEIGHTS

#: Rows that the table of visits has at first.
_LEAST_ROWS = 1 << 12
_COLUMNS = ("walk", "step", "vertex")
#: Columns of walks in `step_kernels.Messages` while they are at a vertex.
_WALKER = ("unit", "vertex", "kind", "walk", "step", "before", "home")
#: Messages that a partition may send in a superstep in any case, 80 bytes each; more if there are more walks.
_LEAST_MESSAGES = 1 << 18


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
            unused = dict.fromkeys(self.message, 0)
            step.send_to_subgraph(ends, **unused | {"walk": batch.vertex_ids[border], "step": batch.start + border})
            return
        step.vote_to_halt()
        if step.number == 2:
            rows = find_remote(batch, messages["subgraph"], messages["step"])
            batch["remote_original"][rows] = messages["walk"]
            self._order_arcs(batch)
            self._wander(batch, step, *self._begin(batch))
        else:
            self._continue(batch, step)

    def _continue(self, batch: SubgraphBatch, step: BatchStep) -> None:
        self._wander(batch, step, *(step.messages[name].copy() for name in ("walk", "step", "vertex")))

    def _order_arcs(self, batch: SubgraphBatch) -> None:
        batch["arcs"] = order_arcs(batch, batch["remote_original"])
        if self.weighted:
            assert batch.weights is not None
            batch["sums"] = np.empty(batch.targets.size)
            weights = batch.weights[batch["arcs"]]
            kernels.accumulate(batch.offsets, weights, 0, batch.num_vertices, batch["sums"])

    def _begin(self, batch: SubgraphBatch) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Numbers, steps and vertices of the walks that begin here."""
        if self.sources is None:
            at, number = np.arange(batch.num_vertices), batch.vertex_ids.astype(np.int64)
        else:
            found = np.array([batch.find(label) for label in self.sources], np.int64)
            number = np.flatnonzero(found >= 0)
            at = found[number]
        walk = (number[:, None] * self.walks + np.arange(self.walks)).ravel()
        return walk, np.zeros(walk.size, np.int64), np.repeat(at, self.walks)

    def _sums(self, batch: SubgraphBatch) -> NDArray[np.float64]:
        return batch["sums"] if self.weighted else NO_WEIGHTS

    def _wander(self, batch: SubgraphBatch, step: BatchStep, *columns: NDArray[np.int64]) -> None:
        walkers = step_kernels.Visits(*columns)
        units = _units_of(batch, walkers.vertex)
        leaving, at = np.empty(units.size, np.int64), 0
        while at < units.size:
            free = self._free_visits(batch)
            at, new = step_kernels.wander(
                walkers, units, at, batch.rows, batch["arcs"], self._sums(batch), np.uint64(self.seed), self.length,
                free, leaving,
            )  # fmt: skip
            self._keep(batch, free, new)
        gone = np.flatnonzero(leaving >= 0)
        rows = leaving[gone]
        step.send_to_vertex(
            batch.remote_subgraph[rows], batch.remote_vertex[rows], walk=walkers.walk[gone], step=walkers.step[gone]
        )

    def _free_visits(self, batch: SubgraphBatch) -> step_kernels.Visits:
        """Rows for the visits of at least one walk: columns double, so that each is copied about once."""
        filled, size = int(batch["filled"].sum()), batch["walk"].size
        needed = filled + self.length + 1
        if size < needed:
            larger = max(_LEAST_ROWS, 2 * size, needed)
            for name in _COLUMNS:
                column = np.empty(larger, np.int64)
                column[:size] = batch[name]
                batch[name] = column
        return step_kernels.Visits(*(batch[name][filled:] for name in _COLUMNS))

    @staticmethod
    def _keep(batch: SubgraphBatch, visits: step_kernels.Visits, new: int) -> None:
        """Count rows as filled, with the numbers of vertices in the graph as read."""
        visits.vertex[:new] = batch.vertex_ids[visits.vertex[:new]]
        batch["filled"] = [int(batch["filled"].sum()) + new]

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        filled = int(sg["filled"].sum())
        return {name: sg[name][:filled] for name in _COLUMNS}


class BiasedWalks(RandomWalks):
    """Random walks with the biases of node2vec: those of `goffish.random_walks`.

    A walk that left a subgraph carries the vertex before. Where the next step depends on arcs between vertices of other
    subgraphs, the candidates are sent to the vertex before, which sends the walk on to the first one that suits. If
    none does, the vertex where the walk is sends all of its arcs there, and one of them is drawn.

    Parameters
    ----------
    length, walks, sources, weighted, seed
        As in `goffish.random_walks`.
    biases : tuple of float
        1 / p and 1 / q.
    """

    message = {
        **dict.fromkeys(("kind", "walk", "step", "before", "home", "next", "next_home"), np.int64),
        "weight": np.float64,
    }
    #: Walks that are left to the next superstep, so that messages stay few.
    state = {**RandomWalks.state, **{f"waiting_{name}": per_partition(np.int64) for name in _WALKER}}

    def __init__(self, *given: Any, biases: tuple[float, float]) -> None:
        super().__init__(*given)
        self.biases = biases

    def _continue(self, batch: SubgraphBatch, step: BatchStep) -> None:
        names = "subgraph", "vertex", *self.message
        inbox = step_kernels.Messages(*(step.messages[name] for name in names))
        asked = inbox.kind > step_kernels.RETURNS
        chosen = _empty_messages(int(np.count_nonzero(asked)))
        rows = _take(inbox, asked)
        size = step_kernels.choose(rows, self._links(batch), self.biases, np.uint64(self.seed), chosen)
        chosen = _take(chosen, slice(size))
        # Walks to subgraphs of this partition continue at once.
        units = chosen.unit - batch.first_id
        here = (units >= 0) & (units < batch.num_subgraphs)
        _send(step, _take(chosen, ~here))
        near = _take(chosen, here)._replace(unit=units[here], vertex=chosen.vertex[here] - batch.start)
        waiting = (batch[f"waiting_{name}"] for name in _WALKER)
        walkers = zip(waiting, _take(inbox, ~asked), near, strict=False)
        self._advance(batch, step, [np.concatenate(column) for column in walkers])

    def _wander(self, batch: SubgraphBatch, step: BatchStep, *columns: NDArray[np.int64]) -> None:
        walk, steps, vertex = columns
        none = np.full(walk.size, -1)
        kind = np.full(walk.size, step_kernels.ARRIVES)
        self._advance(batch, step, [_units_of(batch, vertex), vertex, kind, walk, steps, none, none])

    def _advance(self, batch: SubgraphBatch, step: BatchStep, columns: Sequence[NDArray[np.int64]]) -> None:
        """Continue walks, and send not many more messages than there are walks."""
        widest = int(step_kernels.widest_row(batch.offsets))
        out = _empty_messages(max(_LEAST_MESSAGES, columns[0].size) + widest)
        unused = np.empty(0, np.int64)
        walkers = step_kernels.Messages._make((*columns, unused, unused, NO_WEIGHTS))
        at = used = 0
        while at < walkers.walk.size and out.walk.size - used >= widest:
            free = self._free_visits(batch)
            at, new, used = step_kernels.wander_biased(
                walkers, at, self._links(batch), self.biases, np.uint64(self.seed), self.length, widest, free, out, used
            )
            self._keep(batch, free, new)
        _send(step, _take(out, slice(used)))
        for name, column in zip(_WALKER, columns, strict=True):
            batch[f"waiting_{name}"] = column[at:]
        if at < walkers.walk.size:
            step.halted[step.active[:1]] = False

    def _links(self, batch: SubgraphBatch) -> step_kernels.Links:
        return step_kernels.Links(
            batch.rows, batch.in_rows, batch["arcs"], self._sums(batch), batch.remote_vertex,
            batch.remotes(incoming=True)[0], batch.remote_subgraph, batch.vertex_ids, batch["remote_original"],
            batch.start, batch.first_id,
        )  # fmt: skip


def _units_of(batch: SubgraphBatch, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(batch.subgraph_offsets, vertex, side="right") - 1


def _empty_messages(size: int) -> step_kernels.Messages:
    *integers, _ = step_kernels.Messages._fields
    return step_kernels.Messages._make((*(np.empty(size, np.int64) for _ in integers), np.empty(size)))


def _take(messages: step_kernels.Messages, rows: Any) -> step_kernels.Messages:
    return step_kernels.Messages(*(column[rows] for column in messages))


def _send(step: BatchStep, messages: step_kernels.Messages) -> None:
    unit, vertex, *payload = messages
    step.send_to_vertex(unit, vertex, **dict(zip(BiasedWalks.message, payload, strict=True)))

"""Messages along all edges, against the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.aggregation.columns import Combine, Direction, Inbox, Message, as_values
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_vertex

Floats = NDArray[np.float64]


class AggregateMessages(SubgraphProgram):
    """Messages along all edges, combined at their receivers, in two supersteps.

    The first sends the values of vertices along cut edges, with the weights; in the second, receivers compute all
    messages and combine them in the order of the senders, so that sums do not depend on the partitions.

    Parameters
    ----------
    message, combine, direction
        As in `goffish.aggregate_messages`.
    values : float64, shape (n,), or str, optional
        By the number of the vertex in the graph as read, or the name of an attribute; default: 1.
    """

    message = {"sender": np.int64, "value": np.float64, "weight": np.float64, "back": np.bool_}
    state = {"value": per_vertex(np.float64), "total": per_vertex(np.float64), "count": per_vertex(np.int64)}

    def __init__(
        self, function: Message | None, combine: Combine, direction: Direction, values: Floats | str | None
    ) -> None:
        self.function, self.how, self.direction, self.values = function, combine, direction, values
        if isinstance(values, str):
            self.attributes = (f"vertex.{values}",)

    def init(self, sg: SubgraphBatch) -> None:
        if self.values is None:
            sg["value"] = 1.0
        elif isinstance(self.values, str):
            column = np.asarray(sg.attribute(f"vertex.{self.values}"))
            if column.dtype.kind not in "biuf":
                raise InputError(f"values={self.values!r}: the attribute has type {column.dtype}; expected numbers")
            sg["value"] = as_values(column, sg.num_vertices)
        else:
            sg["value"] = self.values[sg.vertex_ids]

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        value = batch["value"]
        if step.number == 1:
            for back, _, targets, weights in self._ways(batch):
                arcs = batch.in_remotes() if back else batch.out_remotes()
                step.send_to_vertex(
                    arcs.subgraph, arcs.vertex, sender=batch.vertex_ids[arcs.source], value=value[arcs.source],
                    weight=1.0 if weights is None else weights[targets < 0], back=back,
                )  # fmt: skip
            return
        inbox = Inbox(batch.num_vertices, self.function, self.how)
        ids, starts = batch.vertex_ids.astype(np.int64, copy=False), batch.subgraph_offsets[:-1]
        for back, offsets, targets, weights in self._ways(batch):
            rows = np.flatnonzero(targets >= 0)
            source = np.searchsorted(offsets, rows, side="right") - 1
            near = targets[rows] + starts[batch.subgraph_of_vertex()[source]]
            mail = step.messages[step.messages["back"] == back]
            receiver = np.concatenate((near, mail["vertex"]))
            sender = np.concatenate((ids[source], mail["sender"]))
            # Stable: parallel edges stay in their order.
            order = np.lexsort((sender, receiver))
            sent = np.concatenate((value[source], mail["value"]))[order]
            weight = np.concatenate((np.ones(rows.size) if weights is None else weights[rows], mail["weight"]))[order]
            receiver = receiver[order]
            inbox.receive(receiver, sent, value[receiver], weight)
        batch["total"], batch["count"] = inbox.total, inbox.count
        step.vote_to_halt()

    def _ways(self, batch: SubgraphBatch) -> Iterator[tuple[bool, Any, Any, Any]]:
        """Against the arcs or along them, and the rows of the senders."""
        if self.direction != "in" or not batch.directed:
            yield False, batch.offsets, batch.targets, batch.weights
        if self.direction != "out" and batch.directed:
            yield True, batch.in_offsets, batch.in_targets, batch.in_weights

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"total": sg["total"], "count": sg["count"]}

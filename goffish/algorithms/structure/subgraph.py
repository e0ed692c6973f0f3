"""Greedy colorings, independent sets, label propagation and spanning forests against the engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.clustering.subgraph import find_remote, news_of, order_arcs, row_middles
from goffish.algorithms.structure import step_kernels as kernels
from goffish.algorithms.structure.in_memory import forest_of_edges
from goffish.algorithms.weights import check_range
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_partition, per_remote, per_vertex
from goffish.kernels.csr import NO_WEIGHTS


class GreedyChoice(SubgraphProgram):
    """A greedy coloring by descending degree, or an independent set by ascending degree, of an undirected graph.

    Superstep 1 sends neighboring subgraphs the degrees of border vertices. From then on, each vertex decides when all
    neighbors with an earlier turn have (M. T. Jones and P. E. Plassmann, "A parallel graph coloring heuristic", SIAM
    Journal on Scientific Computing 14(3), 1993): the result is that of one vertex after the other.

    Parameters
    ----------
    coloring : bool
    """

    message = {"vertex_number": np.int64, "value": np.int64, "original": np.int64}
    state = {
        "value": per_vertex(np.int64, -1),
        "key": per_vertex(np.int64),
        "order": per_vertex(np.int64),
        "remote_value": per_remote(np.int64, -1),
        "remote_key": per_remote(np.int64),
        "remote_original": per_remote(np.int64),
    }

    def __init__(self, coloring: bool) -> None:
        self.coloring = coloring

    def init(self, sg: SubgraphBatch) -> None:
        subgraph = sg.subgraph_of_vertex()
        source = np.repeat(np.arange(sg.num_vertices), sg.degrees)
        loops = sg.targets == source - sg.subgraph_offsets[subgraph[source]]
        degree = sg.degrees + np.bincount(source[loops], minlength=sg.num_vertices)
        sg["key"] = -degree if self.coloring else degree
        sg["order"] = np.lexsort((sg.vertex_ids, sg["key"], subgraph))

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        middle = row_middles(batch)
        if step.number == 1:
            sent, values = np.full(batch.num_vertices, True), batch["key"]
        else:
            rows = find_remote(batch, step.messages["subgraph"], step.messages["vertex_number"])
            batch["remote_key" if step.number == 2 else "remote_value"][rows] = step.messages["value"]
            batch["remote_original"][rows] = step.messages["original"]
            sent, values = np.zeros(batch.num_vertices, np.bool_), batch["value"]
            kernels.decide(
                step.active, batch.rows, batch["order"],
                kernels.Turns(
                    batch["key"], batch.vertex_ids.astype(np.int64), batch["remote_key"], batch["remote_original"]
                ),
                values, batch["remote_value"], self.coloring, sent,
            )  # fmt: skip
            self._end(step, values)
        vertex, target = news_of(batch, middle, sent)
        step.send_to_subgraph(
            target, vertex_number=batch.start + vertex, value=values[vertex], original=batch.vertex_ids[vertex]
        )

    def _end(self, step: BatchStep, values: NDArray[np.int64]) -> None:
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"color": sg["value"]} if self.coloring else {"member": sg["value"] == 1}


#: A turn is a round and a color: the round times this, plus the color.
_ROUND = 1 << 32
_NO_ARCS = np.empty(0, np.int64)


class LabelPropagation(GreedyChoice):
    """Communities by semi-synchronous label propagation in an undirected graph.

    Vertices are colored first. Then those of one color take their turns in a superstep, color after color, round after
    round; turns that no vertex waits for are left out.

    Parameters
    ----------
    weighted : bool
        Use edge weights if the graph has any.
    """

    state = {
        **GreedyChoice.state,
        "label": per_vertex(np.int64),
        "waiting": per_vertex(np.bool_, True),
        "remote_label": per_remote(np.int64),
        "by_color": per_partition(np.int64),
        "arcs": per_partition(np.int64),
    }
    aggregators = {"uncolored": "or", "turn": "min", "rounds": "max"}

    def __init__(self, weighted: bool = True) -> None:
        super().__init__(coloring=True)
        self.weighted = weighted

    def init(self, sg: SubgraphBatch) -> None:
        super().init(sg)
        if self.weighted:
            check_range(sg.weights)

    def _end(self, step: BatchStep, values: NDArray[np.int64]) -> None:
        step.aggregate("uncolored", bool((values < 0).any()))

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        uncolored, turn = step.aggregated("uncolored"), step.aggregated("turn")
        if step.number <= 2 or uncolored:
            super().compute_batch(batch, step)
            return
        if step.messages.size:
            rows = find_remote(batch, step.messages["subgraph"], step.messages["vertex_number"])
            if uncolored is None:
                batch["waiting"][step.messages["vertex"]] = True
            batch["remote_value" if uncolored is not None else "remote_label"][rows] = step.messages["value"]
        if uncolored is not None:
            self._begin(batch)
            turn = 0
        if turn is None:
            step.vote_to_halt()
        else:
            self._turn(batch, step, int(turn))

    def _begin(self, batch: SubgraphBatch) -> None:
        batch["label"], batch["remote_label"] = batch.vertex_ids, batch["remote_original"]
        batch["by_color"] = np.argsort(batch["value"], kind="stable")
        if self.weighted and batch.weights is not None:
            batch["arcs"] = order_arcs(batch, batch["remote_original"])

    def _turn(self, batch: SubgraphBatch, step: BatchStep, turn: int) -> None:
        number, color = divmod(turn, _ROUND)
        colors, waiting, by_color = batch["value"], batch["waiting"], batch["by_color"]
        first, last = np.searchsorted(colors, [color, color + 1], sorter=by_color)
        turns = by_color[first:last]
        turns = turns[waiting[turns]]
        units = np.searchsorted(batch.subgraph_offsets, turns, side="right") - 1
        degrees = batch.offsets[turns + 1] - batch.offsets[turns]
        slots = 1 << (2 * int(degrees.max(initial=0)) + 1).bit_length()
        changed = np.empty(turns.size, np.bool_)
        weights = batch.weights if self.weighted and batch.weights is not None else NO_WEIGHTS
        kernels.vote(
            turns, units, batch.rows, batch["arcs"] if weights.size else _NO_ARCS, weights,
            kernels.Labels(batch["label"], batch["remote_label"]),
            kernels.Votes(np.full(slots, -1, np.int64), np.empty(slots, np.int64), np.empty(slots)), waiting, changed,
        )  # fmt: skip
        later = colors[waiting]
        if changed.any():
            step.aggregate("rounds", number + 1)
            later = np.concatenate((later, self._send(batch, step, turns[changed], units[changed])))
        if later.size:
            step.aggregate("turn", int(((number + (later <= color)) * _ROUND + later).min()))

    def _send(
        self, batch: SubgraphBatch, step: BatchStep, vertex: NDArray[np.int64], unit: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Send labels along the cut edges of some vertices; returns the colors of the vertices that receive them."""
        first, counts = batch.offsets[vertex], batch.offsets[vertex + 1] - batch.offsets[vertex]
        arcs = np.arange(int(counts.sum())) + np.repeat(first - np.cumsum(counts) + counts, counts)
        cut = batch.targets[arcs] < 0
        vertex = np.repeat(vertex, counts)[cut]
        rows = np.repeat(batch.remote_offsets[unit], counts)[cut] + ~batch.targets[arcs[cut]].astype(np.int64)
        step.send_to_vertex(
            batch.remote_subgraph[rows], batch.remote_vertex[rows], vertex_number=batch.start + vertex,
            value=batch["label"][vertex], original=0,
        )  # fmt: skip
        colors: NDArray[np.int64] = batch["remote_value"][rows]
        return colors

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"community": sg["label"]}


class SpanningForest(SubgraphProgram):
    """A minimum spanning forest of an undirected graph.

    Each partition keeps a forest of the edges that it holds: an edge that is left out closes a cycle of edges that come
    before it, and so does it in the whole graph (as in S. Lattanzi et al., "Filtering: a method for solving graph
    problems in MapReduce", SPAA 2011). Then one partition of each pair sends its forest to the other, in as many
    supersteps as the number of partitions has binary digits.

    Parameters
    ----------
    weighted : bool
        Use edge weights if the graph has any.
    """

    message = {"low": np.int64, "high": np.int64, "weight": np.float64}
    state = {"low": per_partition(np.int64), "high": per_partition(np.int64), "weight": per_partition(np.float64)}
    aggregators = {"trees": "sum"}
    rows = "free"
    label_columns = ("source", "target")

    def __init__(self, weighted: bool = True) -> None:
        self.weighted = weighted

    def init(self, sg: SubgraphBatch) -> None:
        if self.weighted:
            check_range(sg.weights)

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        ids = batch.vertex_ids.astype(np.int64, copy=False)
        low, high, weight = (np.ascontiguousarray(step.messages[name]) for name in self.message)
        if step.number == 1:
            self._gather(batch, step, ids)
            return
        if step.number == 2:
            here = ids[step.messages["vertex"]]
            low, high = np.minimum(low, here), np.maximum(low, here)
        if low.size or step.number == 2:
            self._keep(batch, low, high, weight)
        filled = np.flatnonzero(np.diff(batch.subgraph_starts))
        at, bit = int(np.searchsorted(filled, batch.partition)), 1 << (step.number - 2)
        if at & bit:
            other = batch.subgraph_starts[filled[at - bit]]
            step.send_to_subgraph(
                np.full(batch["low"].size, other), low=batch["low"], high=batch["high"], weight=batch["weight"]
            )
            batch["low"] = batch["high"] = batch["weight"] = ()
            step.vote_to_halt()
        elif bit >= filled.size:
            step.aggregate("trees", step.graph.num_vertices - batch["low"].size)
            step.vote_to_halt()

    def _gather(self, batch: SubgraphBatch, step: BatchStep, ids: NDArray[np.int64]) -> None:
        """Take the edges inside subgraphs, and send those between them to one of their ends."""
        weighted = self.weighted and batch.weights is not None
        weights = batch.weights if weighted else np.ones(batch.targets.size)
        assert weights is not None
        source = np.repeat(np.arange(batch.num_vertices), batch.degrees)
        target = batch.targets + batch.subgraph_offsets[batch.subgraph_of_vertex()[source]]
        near = np.flatnonzero((batch.targets >= 0) & (target > source))
        batch["low"], batch["high"], batch["weight"] = ids[source[near]], ids[target[near]], weights[near]
        arcs = batch.out_remotes()
        sent = batch.start + arcs.source < arcs.vertex
        step.send_to_vertex(
            arcs.subgraph[sent], arcs.vertex[sent], low=ids[arcs.source[sent]], high=-1,
            weight=weights[batch.targets < 0][sent],
        )  # fmt: skip

    @staticmethod
    def _keep(
        batch: SubgraphBatch, low: NDArray[np.int64], high: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> None:
        """Add edges, and keep a forest, in the order of the edges of the graph: of equal weights the first count."""
        low, high = np.concatenate((batch["low"], low)), np.concatenate((batch["high"], high))
        weight = np.concatenate((batch["weight"], weight))
        order = np.lexsort((high, low))
        low, high, weight = low[order], high[order], weight[order]
        vertices, numbers = np.unique(np.concatenate((low, high)), return_inverse=True)
        kept = forest_of_edges(numbers[: low.size], numbers[low.size :], weight, vertices.size)
        batch["low"], batch["high"], batch["weight"] = low[kept], high[kept], weight[kept]

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"source": sg["low"], "target": sg["high"], "weight": sg["weight"]}

"""PageRank and BlockRank, against the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from goffish.algorithms.pagerank import step_kernels as kernels
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_neighbor, per_subgraph, per_vertex

Dangling = Literal["leak", "redistribute"]

_STARTING, _BLOCKS, _RANKS = 0, 1, 2
_MAX_LOCAL_SWEEPS = 1000
_UNIT = np.empty(0, np.float64)
_UNIT.setflags(write=False)


class PageRank(SubgraphProgram):
    """PageRank by power iteration, one sweep per superstep (docs/specs/engine.md, section 4.5).

    Parameters
    ----------
    damping : float
    supersteps : int
        Stop after this many supersteps, the first included (so 30 means 29 updates). An upper limit if `tolerance` is
        given.
    tolerance : float, optional
        Stop when the L1 change of a sweep was smaller; known one superstep later through an aggregator.
    dangling : {"leak", "redistribute"}
        Whether the rank of vertices without out-arcs is lost (as published) or goes where the teleport goes (as
        networkx does).
    weighted : bool
        Follow arcs with probabilities proportional to their weights.
    personalization : mapping of label to weight, optional
        Where to teleport; by default all vertices alike.
    """

    message = {"value": np.float64}
    combine = "sum"
    state = {
        "rank": per_vertex(np.float64),
        "local_sum": per_vertex(np.float64),
        "teleport": per_vertex(np.float64),
    }
    aggregators = {"change": "sum", "dangling": "sum"}

    def __init__(
        self,
        damping: float = 0.85,
        supersteps: int = 30,
        tolerance: float | None = None,
        dangling: Dangling = "leak",
        weighted: bool = False,
        personalization: Mapping[int | str, float] | None = None,
    ) -> None:
        self.damping, self.supersteps, self.tolerance, self.dangling = (
            damping,
            supersteps,
            tolerance,
            dangling,
        )
        self.weighted, self.personalization = weighted, personalization

    def init(self, sg: SubgraphBatch) -> None:
        if self.weighted and sg.weights is None:
            raise InputError("weighted=True: the graph has no weights")
        if self.weighted:
            check_range(sg.weights)
        if self.personalization is None:
            return
        total = sum(self.personalization.values())
        if not 0 < total < np.inf or min(self.personalization.values()) < 0:
            raise InputError("personalization: weights must be finite, non-negative and not all zero")
        for label, weight in self.personalization.items():
            at = sg.find(label)
            if at >= 0:
                sg["teleport"][at] = weight / total

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        if step.number == 1:
            if self.personalization is None:
                batch["teleport"] = 1.0 / step.graph.num_vertices
            batch["rank"] = 1.0 / step.graph.num_vertices
        else:
            self._update(batch, step)
        if self._is_last(step, step.number):
            step.vote_to_halt()
        else:
            self._spread(batch, step)

    def _is_last(self, step: BatchStep, sweep: int) -> bool:
        if sweep >= self.supersteps:
            return True
        change = step.aggregated("change")
        return self.tolerance is not None and change is not None and change < self.tolerance

    def _update(self, batch: SubgraphBatch, step: BatchStep) -> None:
        total = batch["local_sum"]
        messages = step.messages
        kernels.add_received(np.ascontiguousarray(messages["vertex"]), np.ascontiguousarray(messages["value"]), total)
        share = 1.0 - self.damping
        if self.dangling == "redistribute":
            share += self.damping * (step.aggregated("dangling") or 0.0)
        change = kernels.update_ranks(total, share, batch["teleport"], self.damping, batch["rank"])
        step.aggregate("change", change)

    def _spread(self, batch: SubgraphBatch, step: BatchStep) -> None:
        batch["local_sum"] = 0.0
        remote_sum = np.zeros(batch.remote_vertex.size)
        weights = batch.weights if self.weighted else None
        mass = kernels.spread_ranks(
            batch.subgraph_offsets, batch.remote_offsets, batch.offsets, batch.targets,
            _UNIT if weights is None else weights, batch["rank"], batch["local_sum"], remote_sum,
        )  # fmt: skip
        step.aggregate("dangling", mass)
        step.send_to_vertex(batch.remote_subgraph, batch.remote_vertex, value=remote_sum)

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"rank": sg["rank"]}


class BlockRank(PageRank):
    """PageRank from a better start: local ranks weighted by the rank of their block.

    See docs/specs/engine.md, section 4.7.

    A block is a subgraph. Superstep 1 computes local ranks and the block matrix, the next ones the ranks of blocks
    on the quotient graph (teleport in proportion to block size), then ordinary PageRank starts from the product.

    Parameters
    ----------
    damping, dangling
        As for `PageRank`.
    supersteps : int
        Upper limit of the block phase, and of the last one.
    tolerance : float
        L1 change at which the last phase stops.
    local_tolerance, block_tolerance : float
        L1 changes at which the local phase and the block phase stop.
    """

    message = {"value": np.float64}
    combine = "sum"
    state = {
        **PageRank.state,
        "local_rank": per_vertex(np.float64),
        "block_rank": per_subgraph(np.float64),
        "own_weight": per_subgraph(np.float64),
        "weight": per_neighbor(np.float64),
        "phase": per_subgraph(np.int8, _STARTING),
        "begun": per_subgraph(np.int64),
    }
    aggregators = {**PageRank.aggregators, "block_change": "sum", "block_mass": "sum"}

    def __init__(
        self,
        damping: float = 0.85,
        supersteps: int = 1000,
        tolerance: float = 1e-6,
        dangling: Dangling = "leak",
        local_tolerance: float = 1e-2,
        block_tolerance: float = 1e-4,
    ) -> None:
        super().__init__(damping, supersteps, tolerance, dangling)
        self.local_tolerance, self.block_tolerance = local_tolerance, block_tolerance

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        phase = batch["phase"][0]
        if phase == _STARTING:
            self._rank_locally(batch, step)
        elif phase == _BLOCKS:
            change = step.aggregated("block_change")
            if (change is not None and change < self.block_tolerance) or step.number > self.supersteps:
                self._start_ranks(batch, step)
            else:
                self._update_blocks(batch, step)
        else:
            self._update(batch, step)
            if self._is_last(step, step.number - int(batch["begun"][0]) + 1):
                step.vote_to_halt()
            else:
                self._spread(batch, step)

    def _rank_locally(self, batch: SubgraphBatch, step: BatchStep) -> None:
        kernels.local_pagerank(
            batch.subgraph_offsets, batch.offsets, batch.targets, self.damping, self.local_tolerance,
            _MAX_LOCAL_SWEEPS, batch["local_rank"],
        )  # fmt: skip
        kernels.block_weights(
            batch.subgraph_offsets, batch.remote_offsets, batch.remote_subgraph, batch.neighbor_offsets,
            batch.neighbors, batch.offsets, batch.targets, batch["local_rank"], batch["own_weight"],
            batch["weight"],
        )  # fmt: skip
        batch["teleport"] = 1.0 / step.graph.num_vertices
        batch["block_rank"] = np.diff(batch.subgraph_offsets) / step.graph.num_vertices
        batch["phase"] = _BLOCKS
        self._send_blocks(batch, step)

    def _update_blocks(self, batch: SubgraphBatch, step: BatchStep) -> None:
        old = batch["block_rank"].copy()
        received = np.bincount(step.messages["subgraph"], step.messages["value"], batch.num_subgraphs)
        size = np.diff(batch.subgraph_offsets) / step.graph.num_vertices
        new = (1.0 - self.damping) * size + self.damping * (batch["own_weight"] * old + received)
        batch["block_rank"] = new
        step.aggregate("block_change", np.abs(new - old))
        step.aggregate("block_mass", new)
        self._send_blocks(batch, step)

    def _send_blocks(self, batch: SubgraphBatch, step: BatchStep) -> None:
        share = batch["weight"] * np.repeat(batch["block_rank"], np.diff(batch.neighbor_offsets))
        step.send_to_subgraph(batch.neighbors, value=share)

    def _start_ranks(self, batch: SubgraphBatch, step: BatchStep) -> None:
        batch["block_rank"] /= step.aggregated("block_mass")
        batch["rank"] = batch["local_rank"] * np.repeat(batch["block_rank"], np.diff(batch.subgraph_offsets))
        batch["phase"] = _RANKS
        batch["begun"] = step.number
        self._spread(batch, step)

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        blocks = np.repeat(sg["block_rank"], np.diff(sg.subgraph_offsets))
        return {"rank": sg["rank"], "local_rank": sg["local_rank"], "block_rank": blocks}

"""Louvain on a partitioned graph: level 1 without communication, rounds over the boundary, the rest on one master."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.louvain import _level_kernels as level_kernels
from goffish.algorithms.louvain.orders import Order
from goffish.algorithms.louvain.partitioned import _piece_kernels as kernels
from goffish.algorithms.louvain.partitioned.exchange import (
    announce,
    first_subgraphs,
    ghost_labels,
    keep_ghosts,
    keep_ranges,
    kept_ranges,
    tell_ghosts,
)
from goffish.algorithms.louvain.partitioned.master import MOST_LEVELS, finish
from goffish.algorithms.louvain.partitioned.messages import MESSAGE, Kind, of_kind, ranges
from goffish.algorithms.louvain.partitioned.phases import Phase, Stage
from goffish.algorithms.louvain.partitioned.pieces import Piece, cut_piece
from goffish.algorithms.louvain.partitioned.rounds import answer, begin_rounds, gather, move, prepare
from goffish.algorithms.louvain.sequential import Rules, run_level, total_weight
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_remote, per_subgraph, per_vertex
from goffish.graph.guards import whole_number

# Pieces are functions of immutable slices. They are kept beside the program and not on it: options alone tell jobs
# apart, and a run that goes on from a checkpoint cuts them anew.
_pieces: WeakKeyDictionary[PartitionedLouvain, dict[int, Piece]] = WeakKeyDictionary()


class PartitionedLouvain(SubgraphProgram):
    """Louvain with a partition-local first level (Wickramaarachchi et al., HPEC 2014; Louvain specification).

    As published (`repair_rounds` and `refinements` 0): every partition runs level 1 on its own vertices as if cut edges
    did not exist, and the partition of the first sub-graph runs the other levels on the merged graph; five supersteps.
    With `repair_rounds`, vertices then first move between the communities of different partitions (section 3.7). Every
    refinement lets all vertices move between the final communities, splits these into parts as a first level
    would, and lets the master move the parts, as the Leiden method does.

    How the partitions are cut into sub-graphs does not change the answer. Directed graphs are analysed as A + Aᵀ.

    Parameters
    ----------
    order, seed, eps, resolution, max_levels
        As for `sequential_louvain`; the random order is drawn from (seed, partition, level). With ``max_levels=1``
        nothing is refined.
    repair_rounds : int
        Most rounds over the boundary after level 1; they end before where a round gains at most `eps`.
    refinements : int
        Most refinements of the final communities; the last one is that which gains less than 1e-4.
    null_model : {"local", "global"}
        Level 1 counts degrees and the total weight without cut edges, as published, or with them, which takes one more
        superstep (section 3.6).
    connected : bool
        Every community is connected: split what is not before every merge and collapse.

    Notes
    -----
    Result columns: ``community`` and ``level_1 … level_L`` (int64, 0 … c-1), of which the last equals ``community``.
    Aggregates: level_1_communities, level_1_passes and level_1_seconds (the largest over partitions), cut_weight and
    total_weight (twice the weight of cut edges, and of all), merged_vertices and merged_modularity (of the last merge;
    as published the modularity of level 1), modularity, communities, levels, refinements, merge_seconds and
    finish_seconds (of the last merge).
    """

    message = MESSAGE
    state = {
        "phase": per_subgraph(np.int8, Phase.LEVEL),
        "stage": per_subgraph(np.int8, Stage.FIRST),
        "half": per_subgraph(np.int64),
        "cycle": per_subgraph(np.int64),
        "levels": per_subgraph(np.int64),
        "undone": per_subgraph(np.bool_),
        "two_m": per_subgraph(np.float64),
        "gain": per_subgraph(np.float64),
        "quality": per_subgraph(np.float64, -np.inf),
        "round_quality": per_subgraph(np.float64, -np.inf),
        "best": per_subgraph(np.float64, -np.inf),
        "label": per_vertex(np.int64),
        "before": per_vertex(np.int64),
        "outer": per_vertex(np.int64),
        "tot": per_vertex(np.float64),
        "inside": per_vertex(np.float64),
        "active": per_vertex(np.bool_),
        "fresh": per_vertex(np.bool_),
        "dirty": per_vertex(np.bool_),
        "ghost": per_remote(np.int64, -1),
        "ghost_outer": per_remote(np.int64, -1),
        **{f"level_{number}": per_vertex(np.int32) for number in range(1, MOST_LEVELS + 1)},
    }
    aggregators = {
        "inside": "sum", "squares": "sum", "active": "sum", "moves": "sum", "level_1_communities": "sum",
        "level_1_passes": "max", "level_1_seconds": "max", "cut_weight": "sum", "total_weight": "sum",
        "merged_vertices": "sum", "merged_modularity": "sum", "modularity": "sum", "communities": "sum",
        "levels": "sum", "refinements": "sum", "merge_seconds": "sum", "finish_seconds": "sum",
    }  # fmt: skip

    def __init__(
        self,
        order: Order = "random",
        seed: int = 0,
        eps: float = 1e-6,
        resolution: float = 1.0,
        max_levels: int | None = None,
        repair_rounds: int = 3,
        refinements: int = 4,
        connected: bool = False,
        null_model: Literal["local", "global"] = "local",
    ) -> None:
        self.order, self.seed, self.eps, self.resolution = order, seed, eps, resolution
        self.max_levels, self.connected, self.null_model = max_levels, connected, null_model
        if null_model not in ("local", "global"):
            raise InputError(f"null_model={null_model!r}: choose one of local, global")
        self.repair_rounds = whole_number(repair_rounds, "repair_rounds", 0)
        self.refinements = whole_number(refinements, "refinements", 0)
        self.rules().check()

    def rules(self) -> Rules:
        """The options of the levels."""
        return Rules(self.order, self.seed, self.eps, self.resolution, self.max_levels, self.connected)

    def init(self, sg: SubgraphBatch) -> None:
        if sg.weights is not None:
            total_weight(np.array([4.0 * total_weight(sg.weights)]))

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        piece = self._piece(batch, step)
        phase = Phase(int(batch["phase"][0]))
        if phase is Phase.LEVEL:
            self._first_level(batch, step, piece)
        elif phase is Phase.NUMBER:
            self._number(batch, step, piece)
        elif phase is Phase.GATHER:
            gather(self, batch, step, piece)
        elif phase is Phase.ANSWER:
            if answer(self, batch, step, piece):
                self._end_rounds(batch, step, piece)
        elif phase is Phase.MOVE:
            move(self, batch, step, piece)
        elif phase is Phase.NUMBER_INNER:
            self._number_inner(batch, step, piece)
        elif phase is Phase.SPLIT:
            self._split(batch, step, piece)
        elif phase is Phase.NUMBER_PIECES:
            self._number_pieces(batch, step, piece)
        elif phase is Phase.MERGE:
            self._send_rows(batch, step, piece)
        elif phase is Phase.WAIT:
            if batch.first_id == 0:
                finish(self, batch, step)
            keep_ghosts(batch, step, piece, ghost_labels(batch, step, piece)[0], None)
            batch["phase"] = Phase.COMPOSE
        else:
            self._compose(batch, step, piece)

    def _piece(self, batch: SubgraphBatch, step: BatchStep) -> Piece:
        found = _pieces.setdefault(self, {})
        piece = found.get(batch.partition)
        if piece is None or piece.source is not batch.targets:
            piece = found[batch.partition] = cut_piece(batch, first_subgraphs(batch), step.graph.num_partitions)
        return piece

    def _first_level(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """S1 to S3, and the count of S4."""
        null_model = None
        if self.null_model == "global":
            if step.number == 1:
                announce(batch, step, 0, float(piece.degree.sum()))
                return
            null_model = piece.degree, total_weight(of_kind(step.messages, Kind.COUNT)["weight"])
        begun = time.perf_counter()
        level = run_level(piece.local, self.rules(), (self.seed, batch.partition, 1), null_model=null_model)
        batch["label"], batch["gain"] = level.label, level.gain
        count = level.graph.size
        batch["tot"][:count] = np.bincount(level.label, piece.degree, count)
        weight = float(piece.degree.sum())
        announce(batch, step, count, weight)
        batch["phase"] = Phase.NUMBER
        step.aggregate("level_1_communities", count)
        step.aggregate("level_1_passes", level.passes)
        step.aggregate("level_1_seconds", time.perf_counter() - begun)
        step.aggregate("total_weight", weight)
        step.aggregate("cut_weight", piece.cut_weight)

    def _number(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """The rest of S4: global numbers, and the exchange of the ghosts' labels."""
        starts = ranges(step.messages, step.graph.num_partitions)
        batch["two_m"] = total_weight(of_kind(step.messages, Kind.COUNT)["weight"])
        batch["label"] += starts[batch.partition]
        tell_ghosts(batch, step, piece)
        if self.repair_rounds and batch["two_m"][0] > 0:
            begin_rounds(batch, piece.pair_position)
            keep_ranges(batch, step, starts)
        else:
            batch["phase"] = Phase.SPLIT if self.connected else Phase.MERGE

    def _end_rounds(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        if batch["stage"][0] != Stage.OUTER and not self.connected and not batch["undone"][0]:
            self._send_rows(batch, step, piece)
            return
        keep_ghosts(batch, step, piece, ghost_labels(batch, step, piece)[0], None)
        if batch["stage"][0] == Stage.OUTER:
            announce(batch, step, piece.size, 0.0)
            batch["phase"] = Phase.NUMBER_INNER
        elif self.connected:
            self._split(batch, step, piece)
        else:
            batch["phase"] = Phase.MERGE
        batch["undone"] = False

    def _number_inner(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """Start again from single vertices, which from now on stay inside the communities that they are in."""
        starts = ranges(step.messages, step.graph.num_partitions)
        ghost, _ = ghost_labels(batch, step, piece)
        keep_ghosts(batch, step, piece, ghost, ghost)
        batch["outer"] = batch["label"]
        batch["label"] = starts[batch.partition] + np.arange(piece.size)
        batch["tot"] = piece.degree
        batch["stage"] = Stage.INNER
        begin_rounds(batch, slice(None))
        tell_ghosts(batch, step, piece)
        keep_ranges(batch, step, starts)

    def _split(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """Give every connected piece of a community in this partition a number of its own."""
        if batch["stage"][0] == Stage.FIRST:
            batch["outer"] = batch["label"]
        pieces = np.empty(piece.size, np.int64)
        count = level_kernels.split_labels(piece.starts, piece.middle, piece.targets, batch["label"], pieces)
        batch["label"] = pieces
        announce(batch, step, count, 0.0)
        batch["phase"] = Phase.NUMBER_PIECES

    def _number_pieces(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        batch["label"] += ranges(step.messages, step.graph.num_partitions)[batch.partition]
        tell_ghosts(batch, step, piece)
        batch["phase"] = Phase.MERGE

    def _send_rows(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """S5: the partition's part of the matrix between communities, cut edges included, to the master."""
        ghost, _ = ghost_labels(batch, step, piece)
        n = piece.size
        names, label = np.unique(np.concatenate((batch["label"], ghost)), return_inverse=True)
        present = np.unique(label[:n])
        number = np.zeros(names.size, np.int64)
        number[present] = np.arange(present.size)
        row, column, weight = kernels.label_rows(
            piece.starts, piece.ends, piece.targets, piece.weights, piece.loops, label, present, number
        )
        step.send_to_subgraph(0, kind=Kind.HEAD, a=batch.partition, b=n, weight=batch["gain"][0])
        step.send_to_subgraph(np.zeros(row.size, np.int64), kind=Kind.ROW, a=names[row], b=names[column], weight=weight)
        if self.connected or batch["stage"][0] == Stage.INNER:
            named, first = np.unique(batch["label"], return_index=True)
            step.send_to_subgraph(
                np.zeros(named.size, np.int64), kind=Kind.OUTER, a=named, b=batch["outer"][first], weight=0.0
            )
        keep_ghosts(batch, step, piece, ghost, None)
        batch["phase"] = Phase.WAIT

    def _compose(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """Take the master's answer: the levels of the hierarchy, or labels for a refinement."""
        starts = kept_ranges(step)
        if starts.size:
            self._refine(batch, step, piece, starts)
            return
        for number in range(1, MOST_LEVELS + 1):
            places = of_kind(step.messages, Kind.PLACE + number)
            if not places.size:
                break
            batch[f"level_{number}"] = places["b"][np.searchsorted(places["a"], batch["label"])]
            batch["levels"] = number
        if batch.first_id == 0:  # again, for runs that went on from a checkpoint after the master's superstep
            step.aggregate("modularity", batch["best"][0])
            step.aggregate("levels", batch["levels"][0])
            step.aggregate("refinements", batch["cycle"][0])
        step.vote_to_halt()

    def _refine(self, batch: SubgraphBatch, step: BatchStep, piece: Piece, starts: NDArray[np.int64]) -> None:
        places = of_kind(step.messages, Kind.PLACE)
        named = np.ascontiguousarray(places["a"])
        ghost, _ = ghost_labels(batch, step, piece)
        batch["label"] = places["b"][np.searchsorted(named, batch["label"])]
        ghost = places["b"][np.searchsorted(named, ghost)]
        batch["tot"] = 0.0
        batch["cycle"] += 1
        batch["stage"] = Stage.OUTER
        begin_rounds(batch, slice(None))
        prepare(self, batch, step, piece, ghost, starts)

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        if not sg.num_vertices:
            return {}
        position = np.empty(sg.num_vertices, np.int64)
        position[np.argsort(sg.vertex_ids, kind="stable")] = np.arange(sg.num_vertices)
        levels = [sg[f"level_{number}"][position].astype(np.int64) for number in range(1, int(sg["levels"][0]) + 1)]
        return {"community": levels[-1], **{f"level_{n}": column for n, column in enumerate(levels, 1)}}

"""Louvain on a partitioned graph: level 1 without communication, rounds over the boundary, the rest on one master."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.communities.hierarchy import meet
from goffish.algorithms.communities.levels import Level, dense_ranks
from goffish.algorithms.communities.merged import agreed_communities, connected_pieces, seed_of
from goffish.algorithms.communities.sequential import run_level, split_parts
from goffish.algorithms.communities.settings import Order, Search, sequential_settings
from goffish.algorithms.communities.subgraph import piece_kernels as kernels
from goffish.algorithms.communities.subgraph.master import MOST_LEVELS, finish
from goffish.algorithms.communities.subgraph.messages import (
    MESSAGE,
    Kind,
    Phase,
    announce,
    bits_of,
    first_subgraphs,
    ghost_labels,
    keep_ghosts,
    keep_ranges,
    kept_ranges,
    of_kind,
    ranges,
    send_to_ghosts,
    unpack_places,
)
from goffish.algorithms.communities.subgraph.pieces import Piece, cut_piece
from goffish.algorithms.communities.subgraph.rounds import answer, begin_rounds, gather, move
from goffish.algorithms.weights import check_range
from goffish.errors import InputError
from goffish.gopher import BatchStep, SubgraphBatch, SubgraphProgram, per_remote, per_subgraph, per_vertex
from goffish.graph.guards import whole_number

#: Most rows that the master is sent without repair rounds: some 2 GB.
MOST_ROWS = 1 << 25

# Pieces are functions of immutable slices. They are kept beside the program and not on it: options alone distinguish
# jobs, and a run that resumes from a checkpoint makes the pieces again.
_pieces: WeakKeyDictionary[PartitionedLouvain, dict[int, Piece]] = WeakKeyDictionary()


class Refinement(NamedTuple):
    """How refined communities are searched.

    Attributes
    ----------
    least_gain, max_passes, blocks
        As in `Search`.
    start : int64, shape (n,), optional
        Community that every vertex starts in, 0 … n-1, by the number of the vertex in the graph as read. Vertices
        without an arc start alone unless they are fixed.
    fixed : bool, shape (n,), optional
        With `start`: vertices that stay there.
    """

    least_gain: float = 3e-4
    max_passes: int = 20
    blocks: int | None = None
    start: NDArray[np.int64] | None = None
    fixed: NDArray[np.bool_] | None = None


_USUAL = Refinement()


class PartitionedLouvain(SubgraphProgram):
    """Louvain with a partition-local first level (Wickramaarachchi et al., HPEC 2014; docs/specs/communities.md).

    As published (`repair_rounds` 0 and not `refine`): every partition runs level 1 on its own vertices as if cut edges
    did not exist, and the partition of the first subgraph runs the other levels on the merged graph; five supersteps.
    With `repair_rounds`, vertices then first move between the communities of different partitions (section 3.7).

    With `refine`, in as many supersteps, partitions collapse only what is safe: connected pieces of what two local
    movings agree on, of vertices with at least half their weight there. The master searches what is merged by an
    ensemble (see `search_ensemble`), which moves single vertices at the boundary as well. Where the master would get
    more than 2^25 rows so, repair rounds make the graph smaller first, and what has less than half its weight in
    its community is free again.

    How the partitions are cut into subgraphs does not change the answer. With `refine`, directed graphs are divided by
    directed modularity, as in memory; as published, they are analyzed as A + Aᵀ.

    With `start`, partitions collapse only what also starts together, fixed vertices of one community in any case; there
    are no rounds, and the master searches once, from the communities that are given.

    Parameters
    ----------
    order, seed, eps, resolution, max_levels
        As for `sequential_louvain`; the random order is drawn from (seed, partition, level). Refined communities do not
        depend on `order`; with `refine`, ``max_levels=1`` gives the last level of two.
    repair_rounds : int
        Most rounds over the boundary after level 1; they end before where a round gains at most `eps`.
    refine : bool
        Refined communities, or the levels as published.
    null_model : {"local", "global"}
        Level 1 counts degrees and the total weight without cut edges, as published, or with them, which takes one more
        superstep (section 3.6).
    connected : bool
        Every community is connected: split what is not before every merge and collapse. Refined communities are
        connected anyway, unless the graph was so big that repair rounds came first.
    refinement : Refinement
        With `refine`: how refined communities are searched.

    Notes
    -----
    Result columns: ``community`` and ``level_1 … level_L`` (int64, 0 … c-1), of which the last equals ``community``.
    Aggregates: level_1_communities, level_1_passes and level_1_seconds (the largest over partitions), cut_weight and
    total_weight (twice the weight of cut edges, and of all), merged_vertices and merged_modularity (as published the
    modularity of level 1), modularity, communities, levels, merge_seconds and finish_seconds.
    """

    message = MESSAGE
    state = {
        "phase": per_subgraph(np.int8, Phase.LEVEL),
        "half": per_subgraph(np.int64),
        "levels": per_subgraph(np.int64),
        "undone": per_subgraph(np.bool_),
        "two_m": per_subgraph(np.float64),
        "gain": per_subgraph(np.float64),
        "quality": per_subgraph(np.float64, -np.inf),
        "round_quality": per_subgraph(np.float64, -np.inf),
        "label": per_vertex(np.int64),
        "before": per_vertex(np.int64),
        "outer": per_vertex(np.int64),
        "tot": per_vertex(np.float64),
        "tot_in": per_vertex(np.float64),
        "inside": per_vertex(np.float64),
        "active": per_vertex(np.bool_),
        "fresh": per_vertex(np.bool_),
        "dirty": per_vertex(np.bool_),
        "ghost": per_remote(np.int64, -1),
        **{f"level_{number}": per_vertex(np.int32) for number in range(1, MOST_LEVELS + 1)},
    }
    aggregators = {
        "inside": "sum", "squares": "sum", "active": "sum", "moves": "sum", "level_1_communities": "sum",
        "level_1_passes": "max", "level_1_seconds": "max", "cut_weight": "sum", "total_weight": "sum",
        "merged_vertices": "sum", "merged_modularity": "sum", "modularity": "sum", "communities": "sum",
        "levels": "sum", "merge_seconds": "sum", "finish_seconds": "sum",
    }  # fmt: skip

    def __init__(
        self,
        order: Order = "random",
        seed: int = 0,
        eps: float = 1e-6,
        resolution: float = 1.0,
        max_levels: int | None = None,
        repair_rounds: int = 3,
        refine: bool = True,
        connected: bool = False,
        null_model: Literal["local", "global"] = "local",
        refinement: Refinement = _USUAL,
    ) -> None:
        self.order, self.seed, self.eps, self.resolution = order, seed, eps, resolution
        self.max_levels, self.connected, self.null_model = max_levels, connected, null_model
        if null_model not in ("local", "global"):
            raise InputError(f"null_model={null_model!r}: choose one of local, global")
        self.repair_rounds = whole_number(repair_rounds, "repair_rounds", 0)
        self.refine = refine
        self.least_gain, self.max_passes, self.blocks, self.start, self.fixed = refinement
        self.published()

    def by_direction(self, batch: SubgraphBatch) -> bool:
        """Whether directed modularity is maximized."""
        return self.refine and batch.directed

    def published(self) -> Search:
        """The options of the levels as published."""
        return sequential_settings(
            self.order, self.seed, self.eps, self.resolution, self.max_levels, connected=self.connected
        )

    def search(self, *key: int) -> Search:
        """The options of a search on one thread, with a seed for each key."""
        return Search(
            self.resolution, seed_of(self.seed, *key), "leiden", self.eps, threads=1, max_passes=self.max_passes,
            blocks=self.blocks, least_gain=self.least_gain,
        )  # fmt: skip

    def init(self, sg: SubgraphBatch) -> None:
        check_range(sg.weights)

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
        elif phase is Phase.SETTLE:
            self._settle(batch, step, piece)
        elif phase is Phase.SPLIT:
            self._split(batch, step, piece)
        elif phase is Phase.NUMBER_PIECES:
            self._number_pieces(batch, step, piece)
        elif phase is Phase.MERGE:
            self._send_rows(batch, step, piece)
        elif phase is Phase.WAIT:
            if batch.first_id == 0:
                finish(self, batch, step)
            batch["phase"] = Phase.COMPOSE
        else:
            self._compose(batch, step)

    def _piece(self, batch: SubgraphBatch, step: BatchStep) -> Piece:
        found = _pieces.setdefault(self, {})
        piece = found.get(batch.partition)
        if piece is None or piece.source is not batch.targets:
            piece = found[batch.partition] = cut_piece(batch, first_subgraphs(batch), step.graph.num_partitions)
        return piece

    def _first_level(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """S1 to S3, and the count of S4."""
        total = 0.0
        if self.null_model == "global":
            if step.number == 1:
                announce(batch, step, 0, float(piece.degree.sum()))
                return
            total = float(of_kind(step.messages, Kind.COUNT)["weight"].sum())
        begun = time.perf_counter()
        weight, directed = float(piece.degree.sum()), self.by_direction(batch)
        degree, in_degree = piece.degrees(directed=directed)
        local = piece.local(zeros=not self.refine, directed=directed)
        level = local
        if self.null_model == "global":
            level = replace(local, degree=degree, in_degree=in_degree, total=total)
        count, passes = self._safe_pieces(batch, piece, level) if self.refine else self._communities(batch, level)
        batch["tot"][:count] = np.bincount(batch["label"], degree, count)
        if directed:
            batch["tot_in"][:count] = np.bincount(batch["label"], in_degree, count)
        announce(batch, step, count, weight)
        if self.refine:
            rows = kernels.arcs_between(piece.starts, piece.middle, piece.ends, piece.targets, batch["label"])
            announce(batch, step, rows, 0.0, Kind.ARCS)
        batch["phase"] = Phase.NUMBER
        step.aggregate("level_1_communities", count)
        step.aggregate("level_1_passes", passes)
        step.aggregate("level_1_seconds", time.perf_counter() - begun)
        step.aggregate("total_weight", weight)
        step.aggregate("cut_weight", weight - local.total)

    def _communities(self, batch: SubgraphBatch, local: Level) -> tuple[int, int]:
        """The first level as published: labels, their number and the passes."""
        level = run_level(local, self.published(), (self.seed, batch.partition, 1))
        batch["label"], batch["gain"] = level.label, level.gain
        return level.graph.num_vertices, level.passes

    def _safe_pieces(self, batch: SubgraphBatch, piece: Piece, level: Level) -> tuple[int, int]:
        """What the rest of the graph can hardly tear apart: labels, their number and the passes."""
        agreed, passes = agreed_communities(level, self.search(batch.partition, 0))
        start, held = self._start(batch, piece)
        if start is not None:
            agreed = meet(agreed, dense_ranks(start)[1])
        alone = piece.contested(agreed, np.full(piece.ghosts.size, -1))
        pieces, count = connected_pieces(level, agreed, alone | held, self.search(batch.partition, 1))
        if start is not None and held.any():  # what has to stay together anyway
            pieces[held] = count + dense_ranks(start[held])[1]
            names, pieces = dense_ranks(pieces)
            count = names.size
        batch["label"] = pieces
        return count, passes

    def _start(self, batch: SubgraphBatch, piece: Piece) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_]]:
        """Community that every position starts in, and which ones stay there."""
        if self.start is None:
            return None, np.zeros(piece.size, np.bool_)
        number = batch.vertex_ids[piece.vertex].astype(np.int64, copy=False)
        held = np.zeros(piece.size, np.bool_) if self.fixed is None else self.fixed[number]
        alone = (piece.starts == piece.ends) & (piece.loops == 0.0) & ~held
        return np.where(alone, self.start.size + number, self.start[number]), held

    def _number(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """The rest of S4: global numbers, and the exchange of the ghosts' labels."""
        starts = ranges(step.messages, step.graph.num_partitions)
        batch["two_m"] = float(of_kind(step.messages, Kind.COUNT)["weight"].sum())
        batch["label"] += starts[batch.partition]
        send_to_ghosts(batch, step, piece)
        rows = int(of_kind(step.messages, Kind.ARCS)["b"].sum())
        rounds = self.repair_rounds and batch["two_m"][0] > 0 and self.start is None
        if rounds and (not self.refine or rows > MOST_ROWS):
            begin_rounds(batch, piece.pair_position)
            keep_ranges(batch, step, starts)
        else:
            batch["phase"] = Phase.SPLIT if self.connected and not self.refine else Phase.MERGE

    def _end_rounds(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        if batch["undone"][0]:  # labels are on their way back to the ghosts
            keep_ghosts(batch, step, piece, ghost_labels(batch, step, piece)[0])
            keep_ranges(batch, step, kept_ranges(step))
            batch["phase"] = Phase.SETTLE
        else:
            self._settle(batch, step, piece)

    def _settle(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """After the rounds: free what the communities hold only loosely, or go on with them as they are."""
        if self.refine:
            ghost, _ = ghost_labels(batch, step, piece)
            alone = piece.contested(batch["label"], ghost)
            batch["label"][alone] = kept_ranges(step)[-1] + batch.start + piece.vertex[alone]
        if self.connected:
            self._split(batch, step, piece)
        elif self.refine:
            send_to_ghosts(batch, step, piece, alone)
            keep_ghosts(batch, step, piece, ghost)
            batch["phase"] = Phase.MERGE
        else:
            self._send_rows(batch, step, piece)

    def _split(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """Give every connected component of a community in this partition a separate number."""
        batch["outer"] = batch["label"]
        batch["label"] = split_parts(piece.local(zeros=True), dense_ranks(batch["label"])[1])
        announce(batch, step, int(batch["label"].max(initial=-1)) + 1, 0.0)
        batch["phase"] = Phase.NUMBER_PIECES

    def _number_pieces(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        batch["label"] += ranges(step.messages, step.graph.num_partitions)[batch.partition]
        send_to_ghosts(batch, step, piece)
        batch["phase"] = Phase.MERGE

    def _send_rows(self, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
        """S5: the partition's part of the matrix between communities, cut edges included, to the master."""
        ghost, _ = ghost_labels(batch, step, piece)
        n = piece.size
        names, label = dense_ranks(np.concatenate((batch["label"], ghost)))
        present = dense_ranks(label[:n])[0]
        number = np.zeros(names.size, np.int64)
        number[present] = np.arange(present.size)
        row, column, weight = kernels.label_rows(
            piece.starts, piece.ends, piece.targets, piece.weights, piece.loops, label, present, number, self.refine
        )
        kind = np.full(row.size + 1, Kind.ROW, np.int8)
        kind[0] = Kind.HEAD
        step.send_to_subgraph(
            np.zeros(kind.size, np.int64), kind=kind, a=np.append(batch.partition, names[row]),
            b=np.append(n, names[column]), weight=np.append(batch["gain"][0], weight),
        )  # fmt: skip
        local = label[:n]
        if self.by_direction(batch):
            degrees = piece.degrees(directed=True)
            out, into = (np.bincount(local, way, names.size)[present] for way in degrees)
            step.send_to_subgraph(
                np.zeros(present.size, np.int64), kind=Kind.DEGREE, a=names[present], b=bits_of(into), weight=out
            )
        start, held = self._start(batch, piece)
        if start is not None:
            first = np.unique(local, return_index=True)[1]
            stays = np.bincount(local[held], minlength=names.size)[present] > 0
            step.send_to_subgraph(
                np.zeros(present.size, np.int64), kind=Kind.BEGIN, a=names[present], b=start[first], weight=stays
            )
        if self.connected and not self.refine:
            named, first = np.unique(batch["label"], return_index=True)
            step.send_to_subgraph(
                np.zeros(named.size, np.int64), kind=Kind.OUTER, a=named, b=batch["outer"][first], weight=0.0
            )
        batch["phase"] = Phase.WAIT

    def _compose(self, batch: SubgraphBatch, step: BatchStep) -> None:
        """Take the master's answer: the levels of the hierarchy."""
        names, which = dense_ranks(batch["label"])
        for number in range(1, MOST_LEVELS + 1):
            received = of_kind(step.messages, Kind.PLACE + number)
            if not received.size:
                break
            places = unpack_places(received, names.size)
            batch[f"level_{number}"] = places[which]
            batch["levels"] = number
            names, ranks = dense_ranks(places)
            which = ranks[which]
        step.vote_to_halt()

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        if not sg.num_vertices:
            return {}
        position = np.empty(sg.num_vertices, np.int64)
        position[np.argsort(sg.vertex_ids, kind="stable")] = np.arange(sg.num_vertices)
        levels = [sg[f"level_{number}"][position].astype(np.int64) for number in range(1, int(sg["levels"][0]) + 1)]
        return {"community": levels[-1], **{f"level_{n}": column for n, column in enumerate(levels, 1)}}

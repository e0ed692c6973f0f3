"""Synchronous rounds over the boundary: vertices move between global labels (docs/specs/communities.md, section 3.7).

A half-round takes three supersteps. `gather`: news of ghosts and total degrees arrive, each partition adds its part of
the modularity and asks the owners for the total degrees of the labels around its active vertices. `answer`: everybody
has the modularity and decides alike, owners answer. `move`: vertices move, to smaller labels in the first
half-round of a round and to larger ones in the second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.communities.subgraph import piece_kernels as kernels
from goffish.algorithms.communities.subgraph.messages import (
    Kind,
    Options,
    Phase,
    bits_of,
    floats_of,
    ghost_labels,
    keep_ghosts,
    keep_ranges,
    kept_ranges,
    of_kind,
    owners,
    send_to_ghosts,
)
from goffish.algorithms.communities.subgraph.pieces import Piece
from goffish.gopher import BatchStep, SubgraphBatch

#: Sweeps over the vertices that a partition's own moves have touched, before it hears of the others.
_SWEEPS = 4


def begin_rounds(batch: SubgraphBatch, active: NDArray[np.int64]) -> None:
    """Set the state for a first half-round with the given vertices active."""
    batch["active"][active] = True
    batch["dirty"] = True
    batch["half"] = 0
    batch["quality"] = batch["round_quality"] = -np.inf
    batch["phase"] = Phase.GATHER


def gather(program: Options, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
    """Take in the news, bring the owned total degrees up to date, add up the modularity, ask about labels."""
    ghost, changed = ghost_labels(batch, step, piece)
    kernels.touch_neighbours(piece.middle, piece.ends, piece.targets, changed, batch["fresh"], batch["dirty"])
    starts = kept_ranges(step)
    label = np.concatenate((batch["label"], ghost))
    low, high = int(starts[batch.partition]), int(starts[batch.partition + 1])
    changes = of_kind(step.messages, Kind.DELTA)
    directed = program.by_direction(batch)
    np.add.at(batch["tot"], changes["a"] - low, changes["weight"])
    if directed:
        np.add.at(batch["tot_in"], changes["a"] - low, floats_of(changes["b"]))
    kernels.inside_weights(
        np.flatnonzero(batch["dirty"]), piece.starts, piece.ends, piece.targets, piece.weights, piece.loops, label,
        batch["inside"],
    )  # fmt: skip
    batch["dirty"] = False
    two_m = float(batch["two_m"][0])
    step.aggregate("inside", batch["inside"].sum() / two_m)
    out = batch["tot"][: high - low] / two_m
    into = batch["tot_in"][: high - low] / two_m if directed else out
    step.aggregate("squares", (4.0 if directed else 1.0) * (out * into).sum())
    half = int(batch["half"][0])
    if half % 2:
        batch["active"] |= batch["fresh"]
    elif half:
        batch["active"] = batch["fresh"]
        batch["fresh"] = False
    active = np.flatnonzero(batch["active"])
    step.aggregate("active", active.size)
    wanted = np.zeros(int(starts[-1]), np.bool_)
    kernels.labels_around(active, piece.starts, piece.ends, piece.targets, label, wanted)
    asked = np.flatnonzero(wanted)
    step.send_to_subgraph(owners(batch, starts, asked), kind=Kind.ASK, a=asked, b=batch.first_id, weight=0.0)
    keep_ghosts(batch, step, piece, ghost)
    keep_ranges(batch, step, starts)
    batch["phase"] = Phase.ANSWER


def answer(program: Options, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> bool:
    """Answer the questions; or end the rounds, then true.

    A half-round that lost modularity is taken back, and is the last one.
    """
    inside, squares = step.aggregated("inside"), step.aggregated("squares")
    quality = inside - program.resolution * squares
    half = int(batch["half"][0])
    if half and quality < batch["quality"][0] - 1e-12:
        batch["label"] = batch["before"]
        send_to_ghosts(batch, step, piece)
        batch["undone"] = True
        return True
    batch["quality"] = quality
    ended = half >= 2 * program.repair_rounds or not step.aggregated("active")
    if half % 2 == 0:
        ended = ended or quality - batch["round_quality"][0] <= program.eps
        batch["round_quality"] = quality
    if ended:
        return True
    starts = kept_ranges(step)
    asked = of_kind(step.messages, Kind.ASK)
    wanted = asked["a"] - starts[batch.partition]
    step.send_to_subgraph(
        asked["b"], kind=Kind.ANSWERED, a=asked["a"], b=bits_of(batch["tot_in"][wanted]), weight=batch["tot"][wanted]
    )
    keep_ghosts(batch, step, piece, ghost_labels(batch, step, piece)[0])
    keep_ranges(batch, step, starts)
    batch["phase"] = Phase.MOVE
    return False


def move(program: Options, batch: SubgraphBatch, step: BatchStep, piece: Piece) -> None:
    """One half-round: move the active vertices, notify neighbors and label owners."""
    ghost, _ = ghost_labels(batch, step, piece)
    starts = kept_ranges(step)
    received = of_kind(step.messages, Kind.ANSWERED)
    directed, two_m = program.by_direction(batch), float(batch["two_m"][0])
    tot = np.full(int(starts[-1]), np.nan)
    tot_in = np.full(tot.size if directed else 0, np.nan)
    tot[received["a"]] = received["weight"]
    if directed:
        tot_in[received["a"]] = floats_of(received["b"])
    degrees, totals = piece.degrees(directed=directed), kernels.Degrees(tot, tot_in)
    scale = program.resolution / (two_m / 2.0 if directed else two_m)
    label = np.concatenate((batch["label"], ghost))
    batch["before"] = batch["label"]
    half = int(batch["half"][0])
    # Numbers often follow degrees, and scans from hubs downwards end in poor optima.
    active = np.random.default_rng((program.seed, batch.partition, 0, step.number)).permutation(
        np.flatnonzero(batch["active"])
    )
    moves = kernels.move_between_labels(
        active, piece.rows, degrees, scale, half % 2 == 1, _SWEEPS, label, totals, batch["fresh"], batch["dirty"]
    )
    step.aggregate("moves", moves)
    batch["label"] = label[: piece.size]
    changed = batch["label"] != batch["before"]
    moved = np.flatnonzero(changed), batch["before"], batch["label"]
    labels, change = kernels.label_changes(*moved, degrees.out, tot.size)
    change_in = kernels.label_changes(*moved, degrees.into, tot.size)[1] if directed else np.zeros(labels.size)
    step.send_to_subgraph(owners(batch, starts, labels), kind=Kind.DELTA, a=labels, b=bits_of(change_in), weight=change)
    send_to_ghosts(batch, step, piece, changed)
    keep_ghosts(batch, step, piece, ghost)
    keep_ranges(batch, step, starts)
    batch["half"] = half + 1
    batch["phase"] = Phase.GATHER

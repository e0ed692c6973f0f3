"""Recursive removal of leaves, and what it takes to make up for it exactly.

See docs/specs/betweenness.md, sections 3.6 and 3.7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.algorithms.betweenness.subgraph import compression_kernels as kernels
from goffish.algorithms.betweenness.subgraph.messages import Kind, Phase, column
from goffish.algorithms.betweenness.subgraph.steps import Work

_NO_LABEL = np.iinfo(np.int64).max


def leaves(work: Work) -> None:
    """A superstep of the protocol of section 3.7."""
    batch, piece, start = work.batch, work.whole, work.phase is not Phase.LEAVES
    if start:
        work.enter(Phase.LEAVES)
        batch["degree"] = np.diff(piece.out.arcs.offsets)
    mail = work.mail(Kind.LEAF)
    trees = kernels.Trees(*(batch[name] for name in kernels.Trees._fields))
    leaf, row = kernels.remove_leaves(
        start, column(mail, "vertex"), piece.out.rows(column(mail, "subgraph"), column(mail, "sender")),
        column(mail, "value").astype(np.int64), column(mail, "other").astype(np.int64), piece.out.arcs,
        batch.vertex_ids.astype(np.int64), batch["ghost_id"], trees,
    )  # fmt: skip
    work.to_ghosts(
        piece.out, row, Kind.LEAF, batch.start + leaf, batch["omega"][leaf].astype(np.float64),
        batch["mass"][leaf].astype(np.float64),
    )  # fmt: skip
    work.sent("leaf", leaf.size)


def labels(work: Work) -> None:
    """A superstep of label propagation over the core."""
    batch, piece = work.batch, work.core
    label, ghost_label = batch["label"][: piece.size], batch["ghost_label"][: piece.out.ghost_vertex.size]
    if work.phase is Phase.LABELS:
        mail = work.mail(Kind.LABEL)
        entry, offered = piece.position[column(mail, "vertex")], column(mail, "sender")
    else:
        work.enter(Phase.LABELS)
        label[:] = ghost_label[:] = _NO_LABEL
        entry, offered = np.arange(piece.size), batch.start + piece.vertex
    news = np.empty(ghost_label.size, np.int64)
    order = np.argsort(offered, kind="stable")
    count = kernels.flood(order, entry, offered, piece.out.arcs, label, ghost_label, news)
    work.to_ghosts(piece.out, news[:count], Kind.LABEL, ghost_label[news[:count]])
    work.step.aggregate("sent", count)


class _Labels(NamedTuple):
    """Labels here, original vertices and sources under each, the label of each position, and which have cut arcs."""

    names: NDArray[np.int64]
    vertices: NDArray[np.float64]
    sources: NDArray[np.float64]
    which: NDArray[np.integer[Any]]
    shared: NDArray[np.bool_]


def _label_sums(work: Work) -> _Labels:
    piece = work.core
    names, which = np.unique(work.batch["label"][: piece.size], return_inverse=True)
    shared = np.zeros(names.size, np.bool_)
    shared[which[piece.out.outer]] = True
    vertices, sources = (
        np.bincount(which, work.batch[name][piece.vertex], names.size).astype(np.float64, copy=False)
        for name in ("omega", "mass")
    )
    return _Labels(names, vertices, sources, which, shared)


def send_totals(work: Work) -> None:
    """The partition's part of the size of every component that others may have a part of."""
    found = _label_sums(work)
    shared = found.shared
    work.step.send_to_subgraph(
        np.zeros(int(shared.sum()), np.int64), kind=Kind.TOTAL, slot=work.batch.partition, sender=found.names[shared],
        value=found.vertices[shared], other=found.sources[shared],
    )  # fmt: skip
    work.enter(Phase.TOTALS)


def answer_totals(work: Work) -> None:
    """On the master: add up the sizes of components and send them to all partitions that requested them."""
    mail = work.mail(Kind.TOTAL)
    _, which = np.unique(mail["sender"], return_inverse=True)
    vertices, sources = (np.bincount(which, mail[name])[which] for name in ("value", "other"))
    work.to_partitions(mail["slot"], Kind.TOTAL, mail["sender"], vertices, sources)
    work.enter(Phase.COMPONENTS)


def take_totals(work: Work) -> None:
    """Sizes of the components to the core, and from there down the trees."""
    batch, piece = work.batch, work.core
    found = _label_sums(work)
    mail = work.mail(Kind.TOTAL)
    place = np.searchsorted(found.names, mail["sender"])
    found.vertices[place], found.sources[place] = mail["value"], mail["other"]
    batch["component"][piece.vertex] = found.vertices[found.which]
    batch["component_mass"][piece.vertex] = found.sources[found.which]
    # A component that is a tree has no core to search.
    batch["root"][piece.vertex] = np.where(np.diff(piece.out.arcs.offsets) > 0, batch.start + piece.vertex, -1)
    batch["root_unit"][piece.vertex] = batch.first_id + batch.subgraph_of_vertex()[piece.vertex]
    work.enter(Phase.SIZES)
    _hand_down(work, np.zeros(batch.num_vertices, np.bool_))


def sizes(work: Work) -> None:
    """A superstep on the way down the trees."""
    batch, mail = work.batch, work.mail(Kind.SIZE)
    known = batch["component"] > 0
    vertex = mail["vertex"]
    batch["component"][vertex], batch["component_mass"][vertex] = mail["value"], mail["slot"]
    batch["root"][vertex], batch["root_unit"][vertex] = mail["sender"], mail["other"].astype(np.int64)
    _hand_down(work, known)


def _hand_down(work: Work, known: NDArray[np.bool_]) -> None:
    batch = work.batch
    order = np.argsort(-batch["sequence"], kind="stable")[: np.count_nonzero(batch["sequence"] >= 0)]
    component, mass, root = batch["component"], batch["component_mass"], batch["root"]
    kernels.hand_down(order, batch["parent"], component, mass, root, batch["root_unit"])
    new = (component > 0) & ~known
    rows = np.flatnonzero(batch["child_of"] >= 0)
    rows = rows[new[batch["child_of"][rows]]]
    above = batch["child_of"][rows]
    work.step.send_to_vertex(
        batch.remote_subgraph[rows], batch.remote_vertex[rows], kind=Kind.SIZE, slot=mass[above].astype(np.int32),
        sender=root[above], value=component[above], other=batch["root_unit"][above].astype(np.float64),
    )  # fmt: skip
    work.sent("size", rows.size)


def close(work: Work) -> None:
    """Equation (3): what pairs with an end in a hanging tree contribute to every vertex.

    Summed over ordered pairs from a source to a target and halved, which for all sources is the equation as printed.
    """
    batch = work.batch
    below, sources = batch["omega"] - work.is_target, batch["mass"] - _is_source(work)
    up = sources * (batch["component"] - batch["omega"])
    down = (batch["component_mass"] - batch["mass"]) * below
    batch["tree_part"] = (up + down + (sources * below - batch["cross"])) / 2.0


def endpoint_part(work: Work) -> NDArray[np.float64]:
    """What pairs contribute to their two ends, halved as in `close`: all pairs in a component are connected."""
    batch, source, target = work.batch, _is_source(work), work.is_target
    part: NDArray[np.float64] = source * (batch["component"] - target) + (batch["component_mass"] - source) * target
    return part / 2.0


def _is_source(work: Work) -> NDArray[np.float64]:
    if work.program.sources is None:
        return np.ones(work.batch.num_vertices)
    return (work.batch["rank"] >= 0).astype(np.float64)

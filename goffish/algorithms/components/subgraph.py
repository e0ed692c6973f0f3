"""Connected components, weakly and strongly, and the maximum vertex value, against the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.algorithms.components import step_kernels as kernels
from goffish.errors import InputError
from goffish.gopher import (
    BatchStep,
    Subgraph,
    SubgraphBatch,
    SubgraphProgram,
    Superstep,
    per_partition,
    per_subgraph,
    per_vertex,
)
from goffish.gopher.views import RemoteArcs
from goffish.kernels.subgraphs import local_components


class MaxVertexValue(SubgraphProgram):
    """The largest vertex value of each component (docs/specs/engine.md, section 4.1, Algorithms 1 and 2).

    Parameters
    ----------
    attribute : str, optional
        Vertex attribute to take; by default the largest vertex number counts, given as that vertex's label.
    """

    needs_connected = True

    def __init__(self, attribute: str | None = None) -> None:
        self.attribute = attribute
        self.attributes = () if attribute is None else (f"vertex.{attribute}",)
        if attribute is None:
            self.label_columns = ("value",)  # type: ignore[misc]
        kind = np.int64 if attribute is None else np.float64
        self.message = {"value": kind}
        self.state = {"value": per_subgraph(kind)}

    def init(self, sg: Subgraph) -> None:
        sg["value"] = self._values(sg).max()

    def _values(self, sg: Subgraph) -> Any:
        if self.attribute is not None:
            values = sg.attribute(f"vertex.{self.attribute}")
            if values.dtype.kind not in "biuf" or (values.dtype.kind == "f" and np.isnan(values).any()):
                raise InputError(f"attribute {self.attribute!r} must hold a number for every vertex")
            if values.dtype.kind in "iu" and (np.abs(values.astype(np.float64)) >= 2.0**53).any():
                raise InputError(f"attribute {self.attribute!r} holds integers beyond 2^53")
            return values
        return sg.vertex_ids

    def compute(self, sg: Subgraph, step: Superstep) -> None:
        changed = step.number == 1
        value = sg["value"]
        if step.messages.size:
            received = step.messages["value"].max()
            if received > value[0]:
                value[0] = received
                changed = True
        if changed:
            step.send_to_neighbors(value=value[0])
        else:
            step.vote_to_halt()

    def result(self, sg: Subgraph) -> Mapping[str, ArrayLike]:
        return {"value": np.repeat(sg["value"], sg.num_vertices)}


class ConnectedComponents(SubgraphProgram):
    """Weakly connected components by the largest vertex number (docs/specs/engine.md, section 4.2).

    Every subgraph starts with the largest vertex number it holds; neighbors are those of the quotient graph, so
    arcs of directed graphs count in both directions. Supersteps: eccentricity of the largest vertex's subgraph in
    the quotient
    graph, plus 2.
    """

    message = {"value": np.int64}
    combine = "max"
    state = {"value": per_subgraph(np.int64)}
    label_columns = ("component",)
    needs_connected = True

    def init(self, sg: SubgraphBatch) -> None:
        if sg.num_subgraphs:
            sg["value"] = np.maximum.reduceat(sg.vertex_ids, sg.subgraph_offsets[:-1])

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        value = batch["value"]
        changed = np.full(batch.num_subgraphs, step.number == 1)
        addressed = np.flatnonzero(np.diff(step.message_offsets))
        if addressed.size:
            received = np.maximum.reduceat(step.messages["value"], step.message_offsets[addressed])
            better = received > value[addressed]
            value[addressed[better]] = received[better]
            changed[addressed[better]] = True
        sending = step.active[changed[step.active]]
        step.send_to_neighbors(sending, value=value[sending])
        step.vote_to_halt(step.active[~changed[step.active]])

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"component": np.repeat(sg["value"], np.diff(sg.subgraph_offsets))}


class PartitionCentricComponents(SubgraphProgram):
    """Weakly connected components where the unit of computation is a whole partition, connected or not.

    The baseline of Giraph++ (docs/specs/engine.md, section 1): the program has to find the connected pieces itself and
    can address boundary vertices only. Gives the same answer as `ConnectedComponents` on any units.
    """

    message = {"value": np.int64}
    combine = "max"
    state = {"piece": per_vertex(np.int64), "value": per_vertex(np.int64)}
    label_columns = ("component",)

    def init(self, sg: SubgraphBatch) -> None:
        local = np.concatenate(([0], np.cumsum(sg.targets >= 0)))[sg.offsets]
        start = np.repeat(sg.subgraph_offsets[:-1], np.diff(sg.subgraph_offsets))
        targets = (sg.targets + np.repeat(start, sg.degrees))[sg.targets >= 0]
        unit = np.zeros(sg.num_vertices, np.int64)
        sg["piece"], _ = local_components(local, targets, unit)
        np.maximum.at(sg["value"], sg["piece"], sg.vertex_ids)

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        piece, value = batch["piece"], batch["value"]
        before = value.copy()
        np.maximum.at(value, piece[step.messages["vertex"]], step.messages["value"])
        changed = (value > before) | (step.number == 1)
        self._send_labels(batch, step, batch.out_remotes(), changed)
        if batch.directed:
            self._send_labels(batch, step, batch.in_remotes(), changed)
        step.vote_to_halt()

    @staticmethod
    def _send_labels(batch: SubgraphBatch, step: BatchStep, remotes: RemoteArcs, changed: NDArray[np.bool_]) -> None:
        piece = batch["piece"][remotes.source]
        news = changed[piece]
        step.send_to_vertex(remotes.subgraph[news], remotes.vertex[news], value=batch["value"][piece[news]])

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"component": sg["value"][sg["piece"]]}


class StrongComponents(SubgraphProgram):
    """Strongly connected components, each named by a number that its vertices have in common.

    In each round, every vertex takes the highest rank among the vertices that reach it. Those that reach the vertex
    with this rank, through vertices that took it as well, are its component (S. Orzan, "On distributed verification and
    verified distribution", 2004). Others that took the same rank are a group, apart from all others, in the next round;
    as ranks are random, long chains of components fall apart in few rounds (D. Coppersmith, L. Fleischer, B.
    Hendrickson, A. Pinar, "A divide-and-conquer algorithm for identifying strongly connected components", 2003).
    """

    message = {"color": np.int64, "group": np.int64}
    state = {
        "done": per_vertex(np.bool_),
        "group": per_vertex(np.int64),
        "color": per_vertex(np.int64),
        "back": per_vertex(np.bool_),
        "rank": per_vertex(np.int64),
        "backward": per_partition(np.bool_),
    }
    aggregators = {"moved": "or", "left": "or"}

    def init(self, sg: SubgraphBatch) -> None:
        kernels.draw_ranks(sg.vertex_ids, sg["rank"])

    def compute_batch(self, batch: SubgraphBatch, step: BatchStep) -> None:
        search = kernels.Search(batch["done"], batch["group"], batch["color"], batch["back"])
        vertex, color, group = (np.ascontiguousarray(step.messages[name]) for name in ("vertex", "color", "group"))
        backward, left = bool(batch["backward"].any()), step.aggregated("left")
        if left is not None and not left:
            step.vote_to_halt()
            return
        if not step.aggregated("moved"):
            if step.number > 1 and not backward:
                backward, vertex = True, np.flatnonzero(~search.done & (search.color == batch["rank"]))
            else:
                backward, vertex = False, self._next_round(search)
            color, group = batch["rank"][vertex], search.group[vertex]
        batch["backward"] = [backward]
        moved = np.zeros(batch.num_vertices, np.bool_)
        units, rows = batch.subgraph_of_vertex(), batch.in_rows if backward else batch.rows
        if backward:
            kernels.reach_backward(vertex, color, units, rows, search, moved)
        else:
            order = np.argsort(color)[::-1]
            kernels.reach_forward(vertex[order], color[order], group[order], units, rows, search, moved)
        step.aggregate("moved", moved.any() and self._send(batch, step, moved, backward))
        step.aggregate("left", not (search.done | search.back).all())

    @staticmethod
    def _send(batch: SubgraphBatch, step: BatchStep, moved: NDArray[np.bool_], backward: bool) -> bool:
        """Send the colors of some vertices along cut arcs, or against them; returns whether there are any."""
        arcs = batch.in_remotes() if backward else batch.out_remotes()
        sent = moved[arcs.source]
        source = arcs.source[sent]
        step.send_to_vertex(
            arcs.subgraph[sent], arcs.vertex[sent], color=batch["color"][source], group=batch["group"][source]
        )
        return bool(sent.any())

    @staticmethod
    def _next_round(search: kernels.Search) -> NDArray[np.int64]:
        """Set components apart that are complete; returns the other vertices."""
        search.done[search.back] = True
        others = np.flatnonzero(~search.done)
        search.group[others] = search.color[others]
        search.color[others] = np.iinfo(np.int64).min
        return others

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"component": sg["color"]}

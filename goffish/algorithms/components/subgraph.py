"""Weakly connected components and the maximum vertex value, against the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goffish.errors import InputError
from goffish.gopher import (
    BatchStep,
    Subgraph,
    SubgraphBatch,
    SubgraphProgram,
    Superstep,
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
        self._tell(batch, step, batch.out_remotes(), changed)
        if batch.directed:
            self._tell(batch, step, batch.in_remotes(), changed)
        step.vote_to_halt()

    @staticmethod
    def _tell(batch: SubgraphBatch, step: BatchStep, remotes: RemoteArcs, changed: NDArray[np.bool_]) -> None:
        piece = batch["piece"][remotes.source]
        news = changed[piece]
        step.send_to_vertex(remotes.subgraph[news], remotes.vertex[news], value=batch["value"][piece[news]])

    def result(self, sg: SubgraphBatch) -> Mapping[str, ArrayLike]:
        return {"component": sg["value"][sg["piece"]]}

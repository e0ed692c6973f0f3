"""One instance of a series as a separate graph, for everything that works on a graph in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import PartitionedGraph, build_layout
from goffish.gofs.series import Instance, Series
from goffish.graph import Graph, from_edges


class InstanceGraphs:
    """Makes graphs of the instances of a series; the template is read once.

    Parameters
    ----------
    series : Series
    edge_exists, vertex_exists : str, optional
        Boolean attributes; an edge is in the graph if its flag says so and both its ends exist
        (docs/specs/time-series.md, section 2).
    weight : str, optional
        Attribute of the edges that becomes their weight.

    Raises
    ------
    InputError
        An attribute that the series does not have.
    """

    def __init__(
        self,
        series: Series,
        *,
        edge_exists: str | None = "exists",
        vertex_exists: str | None = None,
        weight: str | None = None,
    ) -> None:
        self.series = series
        self._edge_exists, self._vertex_exists, self._weight = edge_exists, vertex_exists, weight
        for place, name in (("edge", edge_exists), ("edge", weight), ("vertex", vertex_exists)):
            if name is not None:
                series.schema[f"{place}.{name}"]
        template = series.graph.to_graph()
        source = template.arc_sources()
        once = np.ones(source.size, np.bool_) if template.directed else source <= template.targets
        self._labels, self._directed = template.label_column(), template.directed
        self._ends = source[once].astype(np.int64), template.targets[once].astype(np.int64)
        # The rows of an attribute: those of the graph's edge attributes, or else one per edge in this very order.
        edge = template.edge_of_arc
        self._owner: NDArray[np.int32] | None = None
        self._row = np.arange(self._ends[0].size) if edge is None else edge[once]

    def graph(self, instance: Instance) -> Graph:
        """The graph of an instance: its edges, and the vertices that have one (with `vertex_exists`, that exist)."""
        return self._made(instance)[0]

    def partitioned(self, instance: Instance) -> PartitionedGraph:
        """The same graph, with the vertices in their partitions of the store."""
        graph, there = self._made(instance)
        info = self.series.graph.info
        if self._owner is None:
            self._owner = self.series.graph.owner()
        finder: Any = info.finder
        return build_layout(
            graph, self._owner[there], info.num_partitions, finder=finder, partitioner=info.partitioner
        )  # fmt: skip

    def _made(self, instance: Instance) -> tuple[Graph, NDArray[np.int64]]:
        """The graph of an instance, and the number in the template of each of its vertices."""
        keep, alive = np.ones(self._row.size, np.bool_), None
        if self._edge_exists is not None:
            keep = self._column(instance.edge(self._edge_exists)).astype(np.bool_)
        source, target = self._ends
        if self._vertex_exists is not None:
            alive = instance.vertex(self._vertex_exists).to_numpy(zero_copy_only=False).astype(np.bool_)
            keep = keep & alive[source] & alive[target]
        weight = None if self._weight is None else self._column(instance.edge(self._weight))[keep]
        numbers = [np.flatnonzero(alive)] if alive is not None else [source[keep], target[keep]]
        there = np.unique(np.concatenate(numbers))
        place = np.zeros(len(self._labels), np.int64)
        place[there] = np.arange(there.size)
        graph = from_edges(
            place[source[keep]], place[target[keep]], weight, directed=self._directed,
            labels=self._labels.take(pa.array(there)), self_loops="keep", parallel="keep",
        )  # fmt: skip
        return graph, there

    def _column(self, values: Any) -> NDArray[Any]:
        column: NDArray[Any] = values.to_numpy(zero_copy_only=False)[self._row]
        return column


def graphs_of(
    series: Series, edge_exists: str | None = None, vertex_exists: str | None = None, weight: str | None = None
) -> InstanceGraphs:
    """Graphs of the instances of a series; attributes default to ``exists`` and ``weight``, if available."""
    usual = {"edge.exists": edge_exists, "vertex.exists": vertex_exists, "edge.weight": weight}
    edge, vertex, weights = (
        given or (name.partition(".")[2] if name in series.schema else None) for name, given in usual.items()
    )
    return InstanceGraphs(series, edge_exists=edge, vertex_exists=vertex, weight=weights)

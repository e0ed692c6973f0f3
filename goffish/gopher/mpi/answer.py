"""The answer of a run on ranks, gathered on rank 0 as Arrow buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import PartitionedGraph
from goffish.gopher.engine import Columns
from goffish.gopher.mpi.pack import pack_tables, unpack_tables
from goffish.gopher.mpi.team import Team
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.shares import partitions_of


class GatheredGraph(PartitionedGraph):
    """A graph whose labels and vertex numbers came from other ranks; slices are loaded only when asked for."""

    def __init__(self, graph: PartitionedGraph, ids: NDArray[np.integer[Any]], labels: pa.Array) -> None:
        super().__init__(graph.info, graph.slice, path=graph.path)
        self._ids, self._labels = ids, labels

    def vertex_ids(self) -> NDArray[np.integer[Any]]:
        return self._ids

    def labels(self) -> pa.Array:
        return self._labels


def gather_answer(
    team: Team, program: SubgraphProgram, graph: PartitionedGraph, columns: Columns
) -> tuple[Columns, PartitionedGraph] | None:
    """Result columns of all partitions, in order, and the graph with the labels they need; ``None`` but on rank 0."""
    labelled = program.rows == "vertex" or bool(program.label_columns)
    owned = partitions_of(graph, team.size)
    data = memoryview(b"")
    with team.together("result"):
        tables: list[pa.Table] = []
        for partition, found in zip(owned[team.rank], columns, strict=True):
            tables.append(pa.table(found))
            if labelled:
                tables.append(_names(graph, partition))
        data = pack_tables(tables)
    blocks = team.gather(data)
    if blocks is None:
        return None
    parts: Columns = [{} for _ in range(graph.num_partitions)]
    names: list[Any] = [None] * graph.num_partitions
    for partitions, block in zip(owned, blocks, strict=True):
        arrived = iter(unpack_tables(block))
        for partition in partitions:
            table = next(arrived)
            parts[partition] = {name: table[name].to_numpy() for name in table.column_names}
            names[partition] = next(arrived) if labelled else None
    if not labelled or not names:
        return parts, graph
    ids = np.concatenate([table["id"].to_numpy() for table in names])
    labels = pa.chunked_array([chunk for table in names for chunk in table["label"].chunks], names[0]["label"].type)
    return parts, GatheredGraph(graph, ids, labels.combine_chunks())


def _names(graph: PartitionedGraph, partition: int) -> pa.Table:
    part = graph.slice(partition)
    return pa.table({"id": part.vertex_ids, "label": part.labels()})

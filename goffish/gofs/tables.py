"""The vertices and edges of a partitioned graph as tables that are read while they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import InputError
from goffish.gofs import selection
from goffish.gofs.selection import Edges, Partitions
from goffish.gofs.slices import Slice
from goffish.graph.guards import expect
from goffish.graph.selection import condition_mask

#: Rows of a batch at most.
_ROWS = 1 << 20

#: Some rows: their columns by name, which are read when they are asked for.
Rows = Callable[[str], Any]


class LazyTable:
    """Table that is read partition by partition, each time that it is used.

    Libraries that read Arrow streams (``__arrow_c_stream__``) take it: ``polars.DataFrame(table)``,
    ``pyarrow.table(table)``, a table in a query of DuckDB.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns that are left.
    read : callable
        Yields some rows at a time, for the names of the columns that will be asked for.
    whole : pyarrow.Schema
        All columns of the rows.
    condition : pyarrow.compute.Expression, optional
        Rows that are left; may be about columns that are not.
    noun : str
    """

    def __init__(
        self,
        schema: pa.Schema,
        read: Callable[[Sequence[str]], Iterator[Rows]],
        whole: pa.Schema,
        condition: pc.Expression | None = None,
        noun: str = "vertices",
    ) -> None:
        self.schema = schema
        self._read, self._whole, self._condition, self._noun = read, whole, condition, noun

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def select(self, columns: Sequence[str]) -> LazyTable:
        """Return the table with some columns; the files of others are not read."""
        for name in columns:
            if name not in self.schema.names:
                raise InputError(f"{self._noun}: no column {name!r}; the columns are {', '.join(self.schema.names)}")
        schema = pa.schema([self.schema.field(name) for name in columns])
        return LazyTable(schema, self._read, self._whole, self._condition, self._noun)

    def filter(self, condition: pc.Expression) -> LazyTable:
        """Return the table with the rows for which a condition holds; other columns are read where it does."""
        expect(condition, pc.Expression, self._noun, "expected a condition, as pc.field('weight') > 1")
        selection.needed_columns(condition, self.schema, self._noun)
        both = condition if self._condition is None else self._condition & condition
        return LazyTable(self.schema, self._read, self._whole, both, self._noun)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, of which at most one partition is in memory."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        names, condition = self.schema.names, self._condition
        needed = [] if condition is None else selection.needed_columns(condition, self._whole, self._noun)
        for rows in self._read([*names, *needed]):
            columns = {name: rows(name) for name in needed}
            mask = None
            if condition is not None:
                mask = pa.array(condition_mask(pa.table(columns), condition, self._noun, self._noun))
                if not mask.true_count:
                    continue
            chosen = [columns[name] if name in columns else rows(name) for name in names]
            table = pa.table(chosen if mask is None else [column.filter(mask) for column in chosen], self.schema)
            yield from table.to_batches(max_chunksize=_ROWS)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"LazyTable({columns})"


def vertex_table(graph: Partitions) -> LazyTable:
    """Return the table of vertices: ``vertex`` (label), then the attributes.

    Raises
    ------
    InputError
        An attribute is named like the column of labels.
    """
    fields = [pa.field("vertex", selection.label_type(graph.info))]
    for name in graph.info.vertex_schema:
        if name == "vertex":
            raise InputError(f"the vertex attribute {name!r} is named like the label column; use to_graph()")
        fields.append(pa.field(name, selection.attribute_type(graph, f"vertex.{name}")))
    schema = pa.schema(fields)

    def read(names: Sequence[str]) -> Iterator[Rows]:
        for partition in range(graph.info.num_partitions):
            if graph.info.vertices[partition]:
                yield partial(_vertex_column, graph, partition, schema)

    return LazyTable(schema, read, schema, noun="vertices")


def _vertex_column(graph: Partitions, partition: int, schema: pa.Schema, name: str) -> Any:
    return selection.vertex_column(graph, partition, schema.field(name))


def edge_table(graph: Partitions) -> LazyTable:
    """Return the table of edges: ``source``, ``target``, ``weight`` if there are any, then the attributes.

    Raises
    ------
    InputError
        An attribute is named like another column.
    """
    info, labels = graph.info, selection.label_type(graph.info)
    fields = [pa.field("source", labels), pa.field("target", labels)]
    fields += [pa.field("weight", pa.float64())] * info.weighted
    for name in info.edge_schema:
        if name in [field.name for field in fields]:
            raise InputError(f"the edge attribute {name!r} and another column have the same name; rename one")
        fields.append(pa.field(name, selection.attribute_type(graph, f"edge.{name}")))
    schema = pa.schema(fields)

    def read(names: Sequence[str]) -> Iterator[Rows]:
        with_ends = not {"source", "target"}.isdisjoint(names)
        implicit = info.label_type == "implicit"
        # Which end of an edge without a direction is its source, and labels that are numbers, depend on the numbers
        # in the graph as it was read.
        ids = selection.original_numbers(graph) if with_ends and (implicit or not info.directed) else None
        column = cache(lambda partition: selection.label_array(graph.column(partition, "label")))
        for partition in range(info.num_partitions):
            part = graph.slice(partition)
            here = np.arange(part.vertex_start, part.vertex_start + part.num_vertices)
            places = np.concatenate((here, part.out_arcs.remote_vertex))
            numbers = places if ids is None else ids[places]
            labels = None
            if with_ends:
                labels = pa.array(numbers.astype(np.int64)) if implicit else selection.labels_of(graph, places, column)
            for block in selection.blocks(part, numbers):
                yield partial(_edge_column, part, block, labels, schema)

    return LazyTable(schema, read, schema, noun="edges")


def _edge_column(part: Slice, block: Edges, labels: pa.Array | None, schema: pa.Schema, name: str) -> Any:
    if name in ("source", "target"):
        assert labels is not None
        return labels.take(pa.array(block.source if name == "source" else block.target))
    return selection.edge_column(part, schema.field(name), block.arcs)

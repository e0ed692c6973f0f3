"""Results written in parallel: the tasks that write one Parquet file per partition, with the users' labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import JobError
from goffish.gofs import Slice
from goffish.gopher.folder import FolderWriter
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.spark.rows import MESSAGE, unpack_values
from goffish.gopher.spark.tasks import Found, Rows, Task


def common_schema(program: SubgraphProgram, reports: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The columns that all files have, in one type each, from the reports of the `Sample` tasks."""
    filled: list[pa.Table] = [report["sample"] for report in reports if report["sample"].num_columns]
    for table in filled:
        if table.column_names != filled[0].column_names:
            told = f"columns {filled[0].column_names} in one partition, {table.column_names} in another"
            raise JobError(f"{program.name()}, result: {told}")
    if not filled:
        return pa.schema([])
    # An array without elements has the type that NumPy gives to nothing.
    telling = [table.schema for table in filled if table.num_rows] or [filled[0].schema]
    try:
        return pa.unify_schemas(telling, promote_options="permissive")
    except pa.ArrowException as error:
        raise JobError(f"{program.name()}, result: {error}") from None


@dataclass(frozen=True)
class Sample(Task):
    """State → the first row of a partition's answer, for the driver, and questions for labels of other partitions.

    No task has all vertex labels. Each partition is made the directory of one range of numbers (as the graph
    was read, `block` of them), which all vertices first report to and which answers what is asked of it.
    """

    block: int

    def rows(self, partition: int, found: Found) -> Rows:
        """What is sampled and what is asked."""
        job = self.job
        worker = job.restore(found)
        answer = worker.result()
        first = pa.table({name: np.asarray(values)[:1] for name, values in answer.items()})
        yield from job.report({"partition": partition, "sample": first})
        wanted = _distinct([answer[name] for name in job.program.label_columns if name in answer])
        if wanted.size and wanted[-1] >= worker.graph.num_vertices:
            raise JobError(f"{job.program.name()}, result: vertex number {wanted[-1]} does not exist")
        if self.block:
            yield from self._questions(worker.part, wanted)

    def _questions(self, part: Slice, wanted: NDArray[np.int64]) -> Rows:
        order = np.argsort(part.vertex_ids)
        ids = part.vertex_ids[order].astype(np.int64)
        labels = part.labels().take(pa.array(order))
        ranges = np.arange(len(self.job.address.keys) + 1) * self.block
        for directory, (a, b, c, d) in enumerate(_between(ids, wanted, ranges)):
            if a < b or c < d:
                told = {"ids": ids[a:b], "labels": labels.take(pa.array(np.arange(a, b))), "asked": wanted[c:d]}
                yield from self.job.address.pack_values(directory, MESSAGE, part.partition, told)


@dataclass(frozen=True)
class Answer(Task):
    """What all partitions reported to and asked of a directory → labels for those who asked."""

    def rows(self, partition: int, found: Found) -> Rows:
        """Labels, for each of those who asked."""
        told = {source: unpack_values(data) for (_, source), data in found.items()}
        ids, labels = _joined(told.values())
        for source, block in told.items():
            if block["asked"].size:
                answer = {"ids": block["asked"], "labels": labels.take(pa.array(np.searchsorted(ids, block["asked"])))}
                yield from self.job.address.pack_values(source, MESSAGE, partition, answer)


@dataclass(frozen=True)
class Write(Task):
    """State and labels that were asked for → one Parquet file; its name is sent to the driver."""

    schema: pa.Schema
    target: Path

    def rows(self, partition: int, found: Found) -> Rows:
        """What the file is called."""
        worker = self.job.restore(found)
        answers = [unpack_values(data) for (kind, _), data in found.items() if kind == MESSAGE]
        table = self._table(worker.part, worker.result(), answers)
        part = FolderWriter(self.target).write(partition, table)
        yield from self.job.report({"partition": partition, **part._asdict()})

    def _table(self, part: Slice, found: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> pa.Table:
        program = self.job.program
        order = np.argsort(part.vertex_ids) if program.rows == "vertex" else None
        columns: dict[str, Any] = {}
        labels = part.labels()
        if program.rows == "vertex":
            columns["vertex"] = labels.take(pa.array(order))
        elif program.rows == "subgraph":
            columns["partition"] = np.full(part.num_subgraphs, part.partition)
            columns["subgraph"] = np.arange(part.subgraph_start, part.subgraph_start + part.num_subgraphs)
        for field in self.schema:
            values = np.asarray(found.get(field.name, np.empty(0, np.int64)))
            if order is not None and values.size:
                values = values[order]
            if field.name in program.label_columns:
                columns[field.name] = _labels(values, answers, labels.type)
            else:
                mask = values < 0 if field.name in program.nullable else None
                columns[field.name] = pa.array(values, mask=mask).cast(field.type)
        return pa.table(columns)


def _labels(numbers: NDArray[Any], answers: Sequence[Mapping[str, Any]], kind: pa.DataType) -> pa.Array:
    """Labels of vertices by their numbers, null for -1; without answers the numbers are the labels."""
    missing = numbers < 0
    if not answers:
        return pa.array(numbers.astype(np.int64), mask=missing).cast(kind)
    ids, labels = _joined(answers)
    return labels.take(pa.array(np.searchsorted(ids, numbers), mask=missing))


def _joined(blocks: Iterable[Mapping[str, Any]]) -> tuple[NDArray[np.int64], pa.Array]:
    """Numbers of vertices, ascending, and their labels, from several blocks of both."""
    given = list(blocks)
    ids = np.concatenate([block["ids"] for block in given])
    order = np.argsort(ids)
    return ids[order], pa.concat_arrays([block["labels"] for block in given]).take(pa.array(order))


def _distinct(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """The numbers in some columns, ascending, without -1."""
    numbers = np.unique(np.concatenate([np.empty(0, np.int64), *columns])).astype(np.int64)
    return numbers[np.searchsorted(numbers, 0) :]


def _between(*columns: NDArray[Any]) -> list[tuple[int, ...]]:
    """For each range, where it begins and ends in two ascending columns; the last column holds the limits."""
    cuts = [np.searchsorted(column, columns[-1]).tolist() for column in columns[:-1]]
    return [tuple(cut[i + side] for cut in cuts for side in (0, 1)) for i in range(columns[-1].size - 1)]

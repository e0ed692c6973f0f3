"""Results of a team: gathered on the first member, or written in parallel, by each the rows of its partitions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import JobError
from goffish.gofs import PartitionedGraph
from goffish.gopher.engine import Columns
from goffish.gopher.folder import FolderWriter, Part, folder_writer
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.team.exchange import pack_tables, unpack_tables
from goffish.gopher.team.team import Team
from goffish.gopher.work import partitions_of


class GatheredGraph(PartitionedGraph):
    """A graph whose labels and vertex numbers came from other members; slices are loaded only when asked for."""

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
    """Result columns of all partitions, in order, and the graph with their labels; ``None`` but on the first member."""
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


def write_answer(
    team: Team, program: SubgraphProgram, graph: PartitionedGraph, columns: Columns, target: str, name: str
) -> tuple[int, int]:
    """Write the answer as a folder with one Parquet file from every member that has partitions.

    The folder appears whole, by one rename, or not at all; the error is the same on every member.

    Returns
    -------
    rows, parts : int
        Of the whole folder.
    """
    return _publish(team, folder_writer(target), answer_table(team, program, graph, columns), name)


def answer_table(team: Team, program: SubgraphProgram, graph: PartitionedGraph, columns: Columns) -> pa.Table | None:
    """The rows of this member's partitions with the users' labels, in the order read; ``None`` without partitions.

    The columns have the same types on all members.
    """
    mine = partitions_of(graph, team.size)[team.rank]
    with team.together("result"):
        values = _values(program, graph, mine, columns)
    schema = _common_schema(team, program, pa.table({name: array[:1] for name, array in values.items()}))
    arrays: dict[str, Any] = {}
    for field in schema:
        found = values.get(field.name, np.empty(0, np.int64))
        if field.name in program.label_columns:
            with team.together("result"):
                if found.size and (largest := int(found.max())) >= graph.num_vertices:
                    raise JobError(f"{program.name()}, result: vertex number {largest} does not exist")
            arrays[field.name] = _labels_of(team, graph, mine, found)
        elif field.name in program.nullable:
            arrays[field.name] = pa.array(found, mask=found < 0)
        else:
            arrays[field.name] = pa.array(found).cast(field.type)
    with team.together("result"):
        return _with_keys(program, graph, mine, arrays) if mine else None


def _values(
    program: SubgraphProgram, graph: PartitionedGraph, mine: list[int], columns: Columns
) -> dict[str, NDArray[Any]]:
    """Columns of this member's partitions, one after the other, vertices in the order of reading."""
    filled = [found for found in columns if found]
    names = list(filled[0]) if filled else []
    for found in filled:
        if list(found) != names:
            raise JobError(f"{program.name()}, result: columns {names} in one partition, {list(found)} in another")
    values = {name: np.concatenate([found[name] for found in filled]) for name in names}
    if program.rows != "vertex":
        return values
    order = _reading_order(graph, mine)
    return {name: array[order] for name, array in values.items()}


def _reading_order(graph: PartitionedGraph, mine: list[int]) -> NDArray[np.int64]:
    ids = [graph.slice(p).vertex_ids for p in mine]
    return np.argsort(np.concatenate(ids)) if ids else np.empty(0, np.int64)


def _common_schema(team: Team, program: SubgraphProgram, sample: pa.Table) -> pa.Schema:
    """The columns that the files of all members have, in one type each; `sample` is a first row, where there is one."""
    data = np.frombuffer(pack_tables([sample]), np.uint8)
    samples = [unpack_tables(block)[0] for block in team.exchange([data] * team.size)]
    filled = [table for table in samples if table.num_columns]
    for table in filled:
        if table.column_names != filled[0].column_names:
            difference = f"columns {filled[0].column_names} in one partition, {table.column_names} in another"
            raise team.alike(JobError(f"{program.name()}, result: {difference}"))
    if not filled:
        return pa.schema([])
    # An array without elements has the type that NumPy gives to nothing.
    telling = [table.schema for table in filled if table.num_rows] or [filled[0].schema]
    try:
        return pa.unify_schemas(telling, promote_options="permissive")
    except pa.ArrowException as error:
        raise team.alike(JobError(f"{program.name()}, result: {error}")) from None


def _with_keys(program: SubgraphProgram, graph: PartitionedGraph, mine: list[int], arrays: dict[str, Any]) -> pa.Table:
    keys: dict[str, Any] = {}
    if program.rows == "vertex" and mine:
        labels = pa.chunked_array([graph.slice(p).labels() for p in mine])
        keys["vertex"] = labels.take(pa.array(_reading_order(graph, mine)))
    elif program.rows == "subgraph":
        sizes = [graph.info.subgraphs[p] for p in mine]
        starts = graph.subgraph_starts
        numbers = [np.arange(starts[p], starts[p + 1]) for p in mine]
        keys = {
            "partition": np.repeat(np.array(mine, np.int64), sizes),
            "subgraph": np.concatenate([np.empty(0, np.int64), *numbers]),
        }
    return pa.table({**keys, **arrays})


def _labels_of(team: Team, graph: PartitionedGraph, mine: list[int], numbers: NDArray[Any]) -> pa.Array:
    """Labels of any vertices by their numbers as the graph was read; null for -1.

    No member has the labels of all vertices. Each is made the directory of one range of numbers, which all vertices
    first report to and which is then asked.
    """
    block = max(1, -(-graph.num_vertices // team.size))
    parts = [graph.slice(p) for p in mine]
    ids = np.concatenate([part.vertex_ids for part in parts] or [np.empty(0, np.int64)])
    labels = pa.chunked_array([part.labels() for part in parts], _label_type(graph))
    order = np.argsort(ids)
    reports = pa.table({"id": ids[order].astype(np.int64), "label": labels.take(pa.array(order))})
    reported = [unpack_tables(data)[0] for data in team.exchange(_by_rank(reports, ids[order], block, team.size))]
    directory = pa.concat_tables(reported).sort_by("id")["label"]

    wanted, places = np.unique(numbers, return_inverse=True)
    known = wanted[np.searchsorted(wanted, 0) :].astype(np.int64)
    cuts = np.searchsorted(known, np.arange(team.size + 1) * block)
    asked = team.exchange([known[a:b].view(np.uint8) for a, b in pairwise(cuts.tolist())])
    answers = []
    for question in asked:
        rows = question.view(np.int64) - team.rank * block
        answers.append(np.frombuffer(pack_tables([pa.table({"label": directory.take(pa.array(rows))})]), np.uint8))
    labels = pa.concat_tables(unpack_tables(data)[0] for data in team.exchange(answers))["label"]
    at = places.astype(np.int64) - (wanted.size - known.size)
    return labels.take(pa.array(at, mask=at < 0))


def _label_type(graph: PartitionedGraph) -> pa.DataType:
    return pa.string() if graph.info.label_type == "string" else pa.int64()


def _by_rank(table: pa.Table, numbers: NDArray[Any], block: int, ranks: int) -> list[NDArray[np.uint8]]:
    cuts = np.searchsorted(numbers, np.arange(ranks + 1) * block).tolist()
    return [np.frombuffer(pack_tables([table.slice(a, b - a)]), np.uint8) for a, b in pairwise(cuts)]


def _publish(team: Team, folder: FolderWriter, table: pa.Table | None, name: str) -> tuple[int, int]:
    try:
        with team.together(str(folder.target)):
            if team.rank == 0:
                folder.begin()
        written: Part | None = None
        with team.together(str(folder.target)):
            if table is not None:
                written = folder.write(team.rank, table)
        mine = [] if written is None else [written._asdict()]
        columns = pa.schema([("name", pa.string()), ("rows", pa.int64()), ("size", pa.int64())])
        blocks = team.gather(pack_tables([pa.Table.from_pylist(mine, schema=columns)]))
        rows = team.settle(None, str(folder.target), 0 if written is None else written.rows)
        parts = team.settle(None, str(folder.target), len(mine))
        with team.together(str(folder.target)):
            if blocks is not None:
                folder.publish(name, [Part(**row) for data in blocks for row in unpack_tables(data)[0].to_pylist()])
    except BaseException:
        if team.rank == 0:
            folder.discard()
        raise
    return int(rows.sum()), int(parts.sum())

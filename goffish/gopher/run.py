"""Run a program on an engine and put its answer into the user's labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, JobError
from goffish.gofs import PartitionedGraph
from goffish.gopher.checkpoint import CheckpointFolder, stable
from goffish.gopher.local import Columns, Progress, run_local
from goffish.gopher.program import SubgraphProgram, check_program
from goffish.gopher.result import Result

ENGINES = ("local",)


def run_program(
    program: SubgraphProgram,
    graph: PartitionedGraph,
    *,
    engine: str = "local",
    threads: int | None = None,
    max_supersteps: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run `program` on a partitioned graph.

    Parameters
    ----------
    engine : {"local"}
    threads : int, optional
        Default: the cores this process may use.
    max_supersteps : int, optional
        Fail the job when it has not ended by then.
    checkpoint_dir : path, optional
        Write a checkpoint there every `checkpoint_every` supersteps.
    resume : bool
        Go on from the newest checkpoint in `checkpoint_dir`; start anew where there is none.
    progress : callable, optional
        Called after each superstep with (superstep, sub-graphs that ran, messages sent).

    Returns
    -------
    Result
        Rows in the order of the vertices as the graph was read.
    """
    if engine not in ENGINES:
        raise InputError(f"engine={engine!r}: choose one of {', '.join(ENGINES)}")
    check_program(program)
    if program.needs_connected and graph.info.finder == "single":
        raise InputError(f"{program.name()} needs connected sub-graphs; this graph's units are whole partitions")
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads}: at least 1")
    if checkpoint_every < 1:
        raise InputError(f"checkpoint_every={checkpoint_every}: at least 1")
    if resume and checkpoint_dir is None:
        raise InputError("resume needs checkpoint_dir")
    if engine == "local":
        columns, stats = run_local(
            program,
            graph,
            threads=threads or len(os.sched_getaffinity(0)),
            max_supersteps=max_supersteps,
            checkpoints=_checkpoints(program, graph, checkpoint_dir, checkpoint_every),
            resume=resume,
            progress=progress,
        )
    return Result(program.name(), _gather(program, graph, columns), {"supersteps": stats.supersteps}, stats)


def _checkpoints(
    program: SubgraphProgram, graph: PartitionedGraph, path: str | Path | None, every: int
) -> CheckpointFolder | None:
    if path is None:
        return None
    options = {name: stable(name, value) for name, value in sorted(vars(program).items())}
    identity = {"program": program.name(), "options": options, "graph": graph.fingerprint()}
    return CheckpointFolder(Path(path), every, identity)


def _gather(program: SubgraphProgram, graph: PartitionedGraph, parts: Columns) -> pa.Table:
    filled = [columns for columns in parts if columns]
    names = list(filled[0]) if filled else []
    for part in filled:
        if list(part) != names:
            raise JobError(f"{program.name()}, result: columns {names} in one partition, {list(part)} in another")
    values: dict[str, NDArray[Any]] = {n: np.concatenate([c[n] for c in filled]) for n in names}
    columns: dict[str, Any] = {}
    if program.rows == "vertex":
        order = graph.read_order()
        columns["vertex"] = graph.labels().take(pa.array(order))
        values = {name: column[order] for name, column in values.items()}
    elif program.rows == "subgraph":
        columns["partition"] = np.repeat(np.arange(graph.num_partitions), graph.info.subgraphs)
        columns["subgraph"] = np.arange(graph.num_subgraphs)
    for name, column in values.items():
        if name in program.label_columns:
            columns[name] = graph.labels_by_number().take(pa.array(column, mask=column < 0))
        elif name in program.nullable:
            columns[name] = pa.array(column, mask=column < 0)
        else:
            columns[name] = column
    return pa.table(columns)

"""What every engine keeps while a run goes on: phases, counter rows and the aggregates that were reported."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from goffish.errors import JobError
from goffish.gofs import PartitionedGraph
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.stats import STEP_SCHEMA, RunStats
from goffish.gopher.superstep import Totals, reduce_values
from goffish.gopher.worker import StepOutput, Worker

PHASES = ("load", "init", "compute", "exchange", "checkpoint", "result")


class Ledger:
    """The counters of a run in the making.

    Attributes
    ----------
    phases : dict of str to float
        Wall seconds spent in each of `PHASES` so far.
    rows : list of dict
        One row of `STEP_SCHEMA` per superstep and partition.
    reported : dict
        The latest value of every aggregator.
    """

    def __init__(self, program: SubgraphProgram, graph: PartitionedGraph) -> None:
        self._program, self._graph = program, graph
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.rows: list[dict[str, Any]] = []
        self.reported: dict[str, Any] = {}
        self._begun = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        begun = time.perf_counter()
        yield
        self.phases[name] += time.perf_counter() - begun

    def count(
        self, number: int, workers: Sequence[Worker], active: Sequence[int], outputs: Sequence[StepOutput]
    ) -> None:
        """Add the rows of one superstep; `active` subgraphs ran on each worker."""
        for worker, ran, out in zip(workers, active, outputs, strict=True):
            idle = not ran
            self.rows.append(
                {
                    "superstep": number,
                    "partition": worker.part.partition,
                    "active": ran,
                    "messages": out.sent,
                    "combined": out.combined,
                    "remote": out.remote,
                    "remote_bytes": out.remote_bytes,
                    "start": 0.0 if idle else worker.started - self._begun,
                    "end": 0.0 if idle else worker.ended - self._begun,
                    "busy": worker.busy,
                }
            )

    def table(self, first: int = 0) -> pa.Table:
        """The counter rows from row `first` on."""
        return pa.Table.from_pylist(self.rows[first:], schema=STEP_SCHEMA)

    def stats(self, engine: str, threads: int, supersteps: int, ranks: int = 1) -> RunStats:
        """The counters of the run, once it has ended."""
        return RunStats(
            program=self._program.name(),
            engine=engine,
            partitions=self._graph.num_partitions,
            threads=threads,
            subgraphs=self._graph.num_subgraphs,
            supersteps=supersteps,
            steps=self.table(),
            phases={name: round(seconds, 6) for name, seconds in self.phases.items()},
            edge_cut=self._graph.info.partitioner.get("edge_cut_share"),
            aggregates=dict(self.reported),
            ranks=ranks,
        )


def totals_of(graph: PartitionedGraph) -> Totals:
    """The constants of a graph that its programs see."""
    return Totals(graph.num_vertices, graph.num_edges, graph.num_subgraphs, graph.num_partitions)


def fold(program: SubgraphProgram, contributions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Aggregates of all partitions, folded in partition order so that every engine rounds alike."""
    folded = {}
    for name in dict.fromkeys(name for given in contributions for name in given):
        values = [given[name] for given in contributions if name in given]
        folded[name] = np.asarray(reduce_values(program.aggregators[name], values)).item()
    return folded


def check_limit(program: SubgraphProgram, number: int, limit: int | None, active: int) -> None:
    """End a job that is about to begin a superstep past its limit."""
    if limit is not None and number > limit:
        raise JobError(f"{program.name()}: not finished after {limit} supersteps ({active} subgraphs still active)")

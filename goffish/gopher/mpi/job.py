"""A job on ranks from beginning to end: the team, the graph and program that all agree on, and how it ends."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, is_store, open_store, write_store
from goffish.gopher.checkpoint import stable
from goffish.gopher.engine import RunOptions, assemble
from goffish.gopher.messages import message_dtype
from goffish.gopher.mpi.team import MpiTeam
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.result import Result
from goffish.gopher.shared import SHARED_VARIABLE, remove_place, temporary_place
from goffish.gopher.team.engine import run_team
from goffish.gopher.team.output import gather_answer, write_answer
from goffish.gopher.team.team import Team
from goffish.gopher.work import partitions_of
from goffish.partial import remove_partial_files

T = TypeVar("T")


@contextmanager
def open_team(comm: Any = None) -> Iterator[MpiTeam]:
    """A team for the length of a job.

    An error that all ranks have agreed on leaves the block on all of them. One that the others cannot detect would
    leave them waiting indefinitely, so it ends all processes at once, with one line on standard error.
    """
    team = MpiTeam(comm)
    try:
        yield team
    except Exception as error:
        if not team.is_agreed(error):
            remove_partial_files()
            text = " ".join(f"{type(error).__name__}: {error}".split())
            os.write(team.last_words, f"error: rank {team.rank}: {text}\n".encode(errors="backslashreplace"))
            team.comm.Abort(1)
        team.close()
        raise
    team.close()


class MpiEngine:
    """Partitions spread over the ranks of a team; rank 0 leads."""

    def __init__(self, team: MpiTeam, options: RunOptions) -> None:
        self.team, self.options = team, options
        self.leads = team.rank == 0

    def together(self, doing: str) -> AbstractContextManager[None]:
        return self.team.together(doing)

    def same(self, value: T) -> T:
        found: T = self.team.comm.bcast(value, root=0)
        return found

    def share(self, make: Callable[[int], PartitionedGraph], *, everywhere: bool) -> PartitionedGraph:
        if everywhere:
            with self.team.together("partitioning"):
                return make(0)
        mine = self.team.local_threads() if self.options.threads is None else self.options.threads
        total = int(self.team.settle(None, "partitioning", mine).sum())
        return share_graph(self.team, lambda: make(total))

    def check_label(self, graph: PartitionedGraph, label: int | str) -> None:
        check_label(self.team, graph, label)

    def run(self, program: SubgraphProgram, graph: PartitionedGraph) -> tuple[Result, PartitionedGraph]:
        team, asked = self.team, self.options
        check_same(team, program, graph)
        with team.together("checkpoints"):
            checkpoints = asked.checkpoints(program, graph)
        columns, stats = run_team(
            program, graph, team, threads=asked.threads, max_supersteps=asked.max_supersteps, checkpoints=checkpoints,
            resume=asked.resume, progress=asked.progress,
        )  # fmt: skip
        summary: dict[str, Any] = {"supersteps": stats.supersteps}
        table = pa.table({})
        if asked.output is not None:
            rows, parts = write_answer(team, program, graph, columns, str(asked.output), program.name())
            summary |= {"rows": rows, "parts": parts}
        else:
            found = gather_answer(team, program, graph, columns)
            with team.together("result"):
                if found is not None:
                    table, graph = assemble(program, found[1], found[0]), found[1]
        return Result(program.name(), table, summary, stats if self.leads else None), graph


def share_graph(team: MpiTeam, make: Callable[[], PartitionedGraph]) -> PartitionedGraph:
    """Give every rank the slices of its partitions of a graph that only rank 0 can make.

    They travel through a temporary store, which is removed as soon as all ranks have read what they need.
    """
    folder = ""
    made: PartitionedGraph | None = None
    try:
        with team.together("partitioning"):
            if team.rank == 0:
                made = make()
                if team.size > 1:
                    folder = temporary_place()
                    write_store(made, folder)
        if team.size == 1:
            assert made is not None
            return made
        place = team.comm.bcast(folder, root=0)
        with team.together("loading"):
            if not is_store(place):
                raise InputError(
                    f"the temporary store {place} of rank 0 is not accessible; set {SHARED_VARIABLE} to a folder or "
                    "URI that all ranks can use, or create a store there with goffish partition FILE STORE"
                )
            graph = made if made is not None else open_store(place)
            for partition in partitions_of(graph, team.size)[team.rank]:
                graph.slice(partition)
        return graph
    finally:
        if folder:
            remove_place(folder)


def check_label(team: Team, graph: PartitionedGraph, label: int | str) -> None:
    """Refuse a label that no partition has; each rank looks into its own ones."""
    found = 0
    with team.together("loading"):
        mine = partitions_of(graph, team.size)[team.rank]
        found = int(any(graph.slice(partition).find(label) >= 0 for partition in mine))
    if not team.settle(None, "loading", found).any():
        raise team.alike(
            InputError(
                f"unknown vertex {label!r}: not among the {graph.num_vertices:,} vertices of this graph "
                f"with {graph.info.label_type} labels"
            )
        )


def check_same(team: Team, program: SubgraphProgram, graph: PartitionedGraph) -> None:
    """Refuse a job of which the ranks have different ideas."""
    facts_of_job: list[str] = [
        program.name(),
        str(message_dtype(program.message)),
        str(sorted(program.aggregators.items())),
    ]
    for name, value in sorted(vars(program).items()):
        try:
            facts_of_job.append(f"{name}={stable(name, value)}")
        except InputError:
            facts_of_job.append(name)
    facts_of_graph = [f"{name}={value}" for name, value in asdict(graph.info).items()]
    for what, facts in (("program or options", facts_of_job), ("graph", facts_of_graph)):
        if not team.all_equal(_digest(facts)):
            raise team.alike(InputError(f"the ranks do not run the same job: their {what} differ"))


def _digest(facts: Sequence[str]) -> bytes:
    return hashlib.sha256(np.frombuffer("\0".join(facts).encode(), np.uint8).tobytes()).digest()

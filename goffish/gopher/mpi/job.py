"""A job on ranks from beginning to end: the team, the graph and program that all agree on, and how it ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph, open_store, write_store
from goffish.gopher.checkpoint import stable
from goffish.gopher.messages import message_dtype
from goffish.gopher.mpi.team import Team
from goffish.gopher.program import SubgraphProgram
from goffish.gopher.shares import partitions_of
from goffish.partial import remove_partial_files


@contextmanager
def open_team(comm: Any = None) -> Iterator[Team]:
    """A team for the length of a job.

    An error that all ranks have agreed on leaves the block on all of them. One that the others cannot know of would
    leave them waiting for ever, so it ends all processes at once, with one line on standard error.
    """
    team = Team(comm)
    try:
        yield team
    except Exception as error:
        if not team.is_agreed(error):
            remove_partial_files()
            told = " ".join(f"{type(error).__name__}: {error}".split())
            os.write(team.last_words, f"error: rank {team.rank}: {told}\n".encode(errors="backslashreplace"))
            team.comm.Abort(1)
        team.close()
        raise
    team.close()


def share_graph(team: Team, make: Callable[[], PartitionedGraph]) -> PartitionedGraph:
    """Give every rank the slices of its partitions of a graph that only rank 0 can make.

    They travel through a temporary store, which is removed as soon as all ranks have mapped what they need.
    """
    folder = ""
    made: PartitionedGraph | None = None
    try:
        with team.together("partitioning"):
            if team.rank == 0:
                made = make()
                if team.size > 1:
                    folder = tempfile.mkdtemp(prefix="goffish-")
                    write_store(made, folder)
        if team.size == 1:
            assert made is not None
            return made
        place = team.comm.bcast(folder, root=0)
        with team.together("loading"):
            if not os.path.isdir(place):  # noqa: PTH112
                raise InputError(
                    f"the temporary store {place} of rank 0 is not seen here: make one in a shared folder first, "
                    "with goffish partition FILE STORE"
                )
            graph = made if made is not None else open_store(place)
            for partition in partitions_of(graph, team.size)[team.rank]:
                graph.slice(partition)
        return graph
    finally:
        if folder:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


def check_label(team: Team, graph: PartitionedGraph, label: int | str) -> None:
    """Refuse a label that no partition has; each rank looks into its own ones."""
    found = 0
    with team.together("loading"):
        mine = partitions_of(graph, team.size)[team.rank]
        found = int(any(graph.slice(partition).find(label) >= 0 for partition in mine))
    if not team.settle(None, "loading", found).any():
        raise team.alike(
            InputError(
                f"unknown vertex {label!r}: it is not a vertex of this graph of {graph.num_vertices:,} vertices "
                f"with {graph.info.label_type} labels"
            )
        )


def check_same(team: Team, program: SubgraphProgram, graph: PartitionedGraph) -> None:
    """Refuse a job of which the ranks have different ideas."""
    told: list[str] = [program.name(), str(message_dtype(program.message)), str(sorted(program.aggregators.items()))]
    for name, value in sorted(vars(program).items()):
        try:
            told.append(f"{name}={stable(name, value)}")
        except InputError:
            told.append(name)
    graph_told = [f"{name}={value}" for name, value in asdict(graph.info).items()]
    for what, facts in (("program or options", told), ("graph", graph_told)):
        if not team.all_equal(_digest(facts)):
            raise team.alike(InputError(f"the ranks do not run the same job: they were given a different {what}"))


def _digest(facts: Sequence[str]) -> bytes:
    return hashlib.sha256(np.frombuffer("\0".join(facts).encode(), np.uint8).tobytes()).digest()

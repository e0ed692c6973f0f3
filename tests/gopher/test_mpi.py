"""The MPI engine: the local engine's answers bit for bit on any number of ranks, resumed ones too; what ranks read."""

from __future__ import annotations

from pathlib import Path

import pytest

from goffish.gopher.work import place
from tests.gopher.mpi_jobs import mpirun
from tests.gopher.test_mpi_programs import JOBS

pytest.importorskip("mpi4py")

_EQUALITY = """
import sys
import numpy as np
from goffish import run
from goffish.errors import GoffishError
from goffish.gofs import open_store
from goffish.gopher.mpi import team
from tests.gopher.test_mpi_programs import COUNTS, JOBS, Chatter, Silent
from mpi4py import MPI

comm = MPI.COMM_WORLD
if sys.argv[1] == "rounds":
    team._MOST_ROWS = 7
done = 0
for store in sys.argv[2:]:
    graph, place = open_store(store), store.rsplit("/")[-1]
    jobs = [(name, dict(options)) for name, options in JOBS.items()] + [(Chatter(), {}), (Silent(), {})]
    for job, options in jobs:
        if isinstance(job, str) and place == "texts" and "source" in options:
            options["source"] = "v07 ü"
        what = (place, job)
        there = None
        try:
            if comm.rank == 0:
                there = run(job, graph, engine="local", threads=1, **options)
        except GoffishError as error:
            there = str(error)
        try:
            here = run(job, graph, engine="mpi", threads=2, comm=comm, **options)
        except GoffishError as error:
            assert comm.rank or str(error) == there, (what, error, there)
            continue
        if comm.rank:
            assert here.table.num_rows == 0 and here.stats is None, what
            continue
        assert here.table.schema.equals(there.table.schema), (what, here.table.schema, there.table.schema)
        assert here.table.equals(there.table), what
        assert here.stats.steps.select(COUNTS).equals(there.stats.steps.select(COUNTS)), what
        assert here.stats.supersteps == there.stats.supersteps and here.stats.ranks == comm.size
        for mine, theirs in ((here.summary, there.summary), (here.stats.aggregates, there.stats.aggregates)):
            steady = {k: v for k, v in theirs.items() if not k.endswith("seconds")}
            assert {k: v for k, v in mine.items() if not k.endswith("seconds")} == steady, (what, mine, theirs)
        done += 1
if comm.rank == 0:
    print("equal:", done)
"""


@pytest.mark.parametrize(
    ("ranks", "how", "graphs"),
    [
        pytest.param(1, "whole", "texts", marks=pytest.mark.slow),
        (2, "rounds", "sparse vertices"),
        pytest.param(3, "whole", "grid texts", marks=pytest.mark.slow),
        pytest.param(5, "whole", "sparse whole", marks=pytest.mark.slow),
    ],
)
def test_every_program_gives_what_the_local_engine_gives(stores: Path, ranks: int, how: str, graphs: str) -> None:
    """Tables, counters, aggregates and summaries, for all programs; with a tiny limit for the rounds of an exchange."""
    code, out, told = mpirun(
        ranks, "-m", "mpi4py", "-c", _EQUALITY, how, *(str(stores / name) for name in graphs.split())
    )
    assert code == 0, told[-2000:]
    # Some programs refuse units that are vertices, or graphs with directions: on both engines alike.
    assert int(out.split("equal:")[1]) >= len(graphs.split()) * len(JOBS), out


def test_partitions_go_to_the_rank_that_has_least() -> None:
    assert place([5, 9, 3, 7, 1], 2) == [[1, 2, 4], [0, 3]]  # 9 to the first, 7 and 5 to the other, 3, and 1 on a tie
    assert place([1, 1], 4) == [[0], [1], [], []]
    assert place([], 2) == [[], []]


_RESUMING = """
import sys
from goffish.algorithms.catalogue import make
from goffish.errors import JobError
from goffish.gofs import open_store
from goffish.gopher import run_program
from tests.gopher.test_mpi_programs import COUNTS
from mpi4py import MPI

comm, store, folder = MPI.COMM_WORLD, open_store(sys.argv[1]), sys.argv[2]
two = comm.Split(comm.rank // 2, comm.rank)
JOBS = (("pagerank", {"supersteps": 12}, 5), ("blockrank", {"tolerance": 1e-4}, 9), ("sssp", {"source": 3}, 4))
for name, options, stop in JOBS:
    program = make(name, options).program(store)

    def both(engine, where, **more):
        found = None
        try:
            if engine == "mpi" and (where is comm or comm.rank < 2):
                found = run_program(program, store, engine="mpi", comm=where, threads=1, **more)
            elif engine == "local" and comm.rank == 0:
                found = run_program(program, store, threads=1, **more)
        except JobError as error:
            assert "not finished" in str(error), error
        comm.Barrier()
        return found

    whole = run_program(program, store, threads=1)
    alone, pair, three = ("local", None), ("mpi", two), ("mpi", comm)
    for first, then in ((alone, three), (pair, alone), (pair, three)):
        place = f"{folder}/{name}-{first[0]}-{then[0]}"
        both(*first, max_supersteps=stop, checkpoint_dir=place, checkpoint_every=1)
        found = both(*then, checkpoint_dir=place, checkpoint_every=1, resume=True)
        if comm.rank == 0:
            assert found.table.equals(whole.table), place
            assert found.stats.steps.select(COUNTS).equals(whole.stats.steps.select(COUNTS)), place
            assert found.stats.aggregates == whole.stats.aggregates, place
            print("same", place)
"""


@pytest.mark.slow
def test_checkpoints_go_from_engine_to_engine_and_to_other_numbers_of_ranks(tmp_path: Path, store: Path) -> None:
    code, out, told = mpirun(3, "-m", "mpi4py", "-c", _RESUMING, str(store), str(tmp_path))
    assert code == 0, told[-2000:]
    assert out.count("same") == 9


_OWN_SLICES = """
import sys
from pathlib import Path
from goffish import run
from goffish.gofs import files, open_store
from goffish.gopher.work import partitions_of
from mpi4py import MPI

comm, seen = MPI.COMM_WORLD, set()
read = files._LocalFolder.read
files._LocalFolder.read = lambda self, name: (seen.add(name.split("/")[0]), read(self, name))[1]
graph = open_store(sys.argv[1])
for name, options in (("components", {}), ("sssp", {"source": 3}), ("louvain", {"seed": 1})):
    run(name, graph, engine="mpi", **options)
    run(name, graph, engine="mpi", output=f"{sys.argv[2]}/{name}", **options)
mine = {f"p{p:05d}" for p in partitions_of(graph, comm.size)[comm.rank]}
assert seen - {"manifest.json"} == mine, (seen, mine)
"""


@pytest.mark.slow
def test_a_rank_opens_the_files_of_its_own_partitions_only(tmp_path: Path, store: Path) -> None:
    code, _, told = mpirun(3, "-m", "mpi4py", "-c", _OWN_SLICES, str(store), str(tmp_path))
    assert code == 0, told[-2000:]

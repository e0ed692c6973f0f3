"""One process of `engines.py`: runs jobs on one engine, again and again, and prints what it saw as a line of JSON each.

    python _engine_jobs.py ENGINE THREADS REPEATS STORE JOB [JOB ...]

Under ``mpirun`` for the MPI engine, where rank 0 prints. The first round of every job warms up and is not
counted, unless it was so long that there is no other.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import _graphs  # noqa: F401  (a checkout works without an installation)

import goffish as gf
from goffish.gofs import PartitionedGraph
from goffish.gopher import Result, RunStats

JOBS: dict[str, dict[str, Any]] = {
    "components": {},
    "sssp": {},
    "pagerank": {"supersteps": 20},
    "label-propagation": {},
    "louvain": {"seed": 1},
    "betweenness": {"pivots": 32, "seed": 1},
}


#: Seconds after which a job is not run again.
LONG = 20.0


def options_of(job: str, graph: PartitionedGraph) -> dict[str, Any]:
    """The options of a job on a graph: shortest paths begin at the least label."""
    return {"source": min(graph.labels().to_pylist())} if job == "sssp" else JOBS[job]


def digest(result: Result) -> str:
    """A checksum of the answer: equal on all engines, or one of them is wrong."""
    table = result.table.combine_chunks()
    seen = hashlib.sha256()
    for name in table.column_names:
        seen.update(name.encode())
        column = table[name]
        seen.update(repr(column.to_pylist()).encode() if column.null_count else column.to_numpy().tobytes())
    return seen.hexdigest()


def counted(stats: RunStats, arcs: int) -> dict[str, Any]:
    """What the cost model is fitted from."""
    return {
        "supersteps": stats.supersteps,
        "busy": float(stats.steps["busy"].to_numpy().sum()),
        "remote": stats.total("remote"),
        "remote_bytes": stats.total("remote_bytes"),
        "arcs": arcs,
        "phases": dict(stats.phases),
    }


@contextmanager
def engine_options(engine: str, threads: int) -> Iterator[dict[str, Any]]:
    """The arguments of ``goffish.run`` that choose the engine, with what it needs open."""
    if engine == "mpi":
        from mpi4py import MPI

        yield {"engine": "mpi", "threads": threads, "comm": MPI.COMM_WORLD}
    elif engine == "spark":
        import goffish.spark

        session = goffish.spark.session(master=f"local[{threads}]", memory="4g")
        yield {"engine": "spark", "spark": session}
        session.stop()
    else:
        yield {"engine": "local", "threads": threads}


def agreed(options: dict[str, Any], seconds: float) -> float:
    """The same seconds on all ranks, so that they end together: those of rank 0."""
    return options["comm"].bcast(seconds) if "comm" in options else seconds


def first(options: dict[str, Any]) -> bool:
    return "comm" not in options or options["comm"].Get_rank() == 0


def main() -> None:
    engine, threads, repeats, path, *jobs = sys.argv[1:]
    with engine_options(engine, int(threads)) as options:
        for job in jobs:
            seconds, asked = list[float](), options_of(job, gf.open(path))
            while len(seconds) <= int(repeats) and sum(seconds) < LONG:
                begun = time.perf_counter()
                result = gf.run(job, gf.open(path), **options, **asked)
                seconds.append(agreed(options, time.perf_counter() - begun))
            if first(options):
                assert result.stats is not None
                told = counted(result.stats, sum(gf.open(path).info.arcs))
                print(
                    json.dumps({"job": job, "seconds": seconds[1:] or seconds, "digest": digest(result), **told}),
                    flush=True,
                )


if __name__ == "__main__":
    main()

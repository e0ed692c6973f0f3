"""One measured run in a separate process: ``python -m goffish.scheduling.estimate.probe REQUEST``.

A small graph runs first, to separate the costs that every run has once (imports, kernels, a Spark session) from the
work. A second run writes checkpoints, to measure their size and time. Rank 0 prints the measurements as a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

#: Maximum number of checkpoints of a run, and vertices of the small graph.
_CHECKPOINTS, _WARM = 8, 64


def usage() -> tuple[float, int]:
    """CPU seconds, and the sum of the peaks of resident memory in bytes, of this process and its descendants."""
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds, peak = sum(used.ru_utime + used.ru_stime for used in ended), _peak(os.getpid())
    ticks = os.sysconf("SC_CLK_TCK")
    for process in _below(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(int(field) for field in fields[11:15]) / ticks
            peak += _peak(process)
        except OSError:  # it has ended, and counts among the children of its parent
            continue
    return seconds, peak


def _peak(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return 0


def _below(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            try:
                yield from _below(child)
            except OSError:
                continue


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def engine_options(engine: str, workers: int) -> Iterator[dict[str, Any]]:
    """Arguments of `goffish.run` that choose the engine, with its resources opened."""
    if engine == "mpi":
        from mpi4py import MPI

        yield {"engine": "mpi", "threads": 1, "comm": MPI.COMM_WORLD}
    elif engine == "spark":
        from goffish.gopher.spark.session import session

        opened = session(master=f"local[{workers}]")
        try:
            yield {"engine": "spark", "spark": opened}
        finally:
            opened.stop()
    else:
        yield {"engine": "local", "threads": workers}


def all_ranks(running: dict[str, Any], values: tuple[float, ...]) -> tuple[float, ...]:
    """Sums over the MPI ranks."""
    return tuple(running["comm"].allreduce(value) for value in values) if "comm" in running else values


def main() -> None:
    request = json.loads(sys.argv[1])
    from goffish.algorithms.run import run
    from goffish.gofs import open_store
    from goffish.graph import from_edges

    options: dict[str, Any] = request["options"]
    with engine_options(request["engine"], request["workers"]) as running:
        graph = open_store(request["store"])
        ring = np.arange(_WARM)
        weights = np.ones(_WARM) if graph.info.weighted else None
        warm = {**options, **{name: value for name, value in (("source", 0), ("pivots", 2)) if name in options}}
        small = from_edges(ring, (ring + 1) % _WARM, weights, labels=ring)
        run(request["algorithm"], small, parts=min(graph.num_partitions, 4), method="range", **running, **warm)
        before, began = all_ranks(running, usage()), time.monotonic()
        result = run(request["algorithm"], graph, **running, **options)
        took = time.monotonic() - began
        after = all_ranks(running, usage())
        report: dict[str, Any] = {
            "startup_cpu": before[0], "startup_seconds": began - request["begun"], "startup_memory": before[1],
            "cpu": after[0] - before[0], "seconds": took, "memory": after[1] - before[1],
        }  # fmt: skip
        report |= _checkpointed(request, running, open_store(request["store"]), result)
        if "comm" not in running or running["comm"].Get_rank() == 0:
            sys.stdout.write(json.dumps(report) + "\n")


def _checkpointed(request: dict[str, Any], running: dict[str, Any], graph: Any, plain: Any) -> dict[str, Any]:
    """Size and time of checkpoints; 0 of them on ranks without this information."""
    from goffish.algorithms.run import run

    comm = running.get("comm")
    steps = plain.stats.supersteps if plain.stats is not None else 0
    folder = tempfile.mkdtemp(dir=request["folder"]) if comm is None or comm.Get_rank() == 0 else ""
    if comm is not None:
        steps, folder = comm.bcast((steps, folder), root=0)
    every, sizes = max(1, -(-steps // _CHECKPOINTS)), list[int]()

    def progress(number: int, *_: Any) -> None:
        if number % every == 0:
            sizes.append(folder_bytes(Path(folder)))

    result = run(
        request["algorithm"], graph, checkpoint_dir=folder, checkpoint_every=every, progress=progress, **running,
        **request["options"],
    )  # fmt: skip
    found = {"supersteps": steps, "checkpoint_bytes": 0, "checkpoint_seconds": 0.0}
    if result.stats is not None and sizes:
        found["checkpoint_bytes"] = max(sizes)
        found["checkpoint_seconds"] = result.stats.phases.get("checkpoint", 0.0) / len(sizes)
    if comm is not None:
        comm.Barrier()
    shutil.rmtree(folder, ignore_errors=True)
    return found


if __name__ == "__main__":
    main()

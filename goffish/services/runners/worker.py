"""The process that runs a graph job: ``python -m goffish.services.runners.worker FOLDER ATTEMPT``.

It goes on from the newest checkpoint, tells after every superstep how far it is, and ends with 0 when the result is
there, 2 for input that cannot be used, 1 for a job that failed, and 75 when it is not its turn (any more).
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from goffish.errors import GoffishError
from goffish.services.runners.folder import Busy, JobFolder

#: Exit code of a worker that another one came before (EX_TEMPFAIL).
NOT_NOW = 75
_STORE = "manifest.json"


def main() -> None:
    """Run an attempt."""
    folder, attempt = JobFolder(Path(sys.argv[1])), int(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    import json

    order = json.loads(folder.order.read_text())
    try:
        if order["engine"] == "mpi":
            _on_ranks(folder, attempt, order)
        else:
            with folder.taken():
                _check_turn(folder, attempt)
                if folder.done is None:
                    _finish(folder, _run(folder, order))
    except Busy:
        sys.exit(NOT_NOW)
    except GoffishError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def _check_turn(folder: JobFolder, attempt: int) -> None:
    if folder.attempt != attempt:
        raise Busy(f"attempt {folder.attempt} is at it")
    folder.sign()


def _on_ranks(folder: JobFolder, attempt: int, order: dict[str, Any]) -> None:
    """The first rank takes the folder; the others hear from it whether to go on."""
    from goffish.gopher.mpi.job import open_team

    with open_team(None) as team, folder.taken() if team.rank == 0 else nullcontext():
        with team.together("taking the job"):
            if team.rank == 0:
                _check_turn(folder, attempt)
        if team.comm.bcast(folder.done is not None if team.rank == 0 else None, root=0):
            return
        result = _run(folder, order)
        with team.together("writing the result"):
            if team.rank == 0:
                _finish(folder, result)


def _run(folder: JobFolder, order: dict[str, Any]) -> Any:
    from goffish.algorithms.catalogue import ALGORITHMS
    from goffish.algorithms.labels import as_label
    from goffish.algorithms.run import run

    graph = _graph(order["input"], order["engine"])
    running: dict[str, Any] = {"engine": order["engine"]}
    if order["engine"] == "spark":
        from goffish.spark import session

        running["spark"] = session()
    else:
        running["threads"] = order["threads"]
    if not ALGORITHMS[order["algorithm"]].in_memory:
        running |= {"checkpoint_dir": folder.checkpoints, "checkpoint_every": order["checkpoint_every"]}
        running |= {"resume": any(folder.checkpoints.glob("*")), "progress": _teller(folder)}
    else:
        running["engine"] = "auto"
    options = dict(order["options"])
    if "source" in options and graph is not None:
        options["source"] = as_label(options["source"], graph)
    return run(order["algorithm"], graph, **running, **options)


def _finish(folder: JobFolder, result: Any) -> None:
    import pyarrow as pa

    partial = folder.result.with_suffix(".partial")
    with partial.open("wb") as file:
        with pa.ipc.new_stream(file, result.table.schema) as writer:
            writer.write_table(result.table, max_chunksize=65536)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder.result)
    folder.finish({"summary": result.summary, "rows": result.table.num_rows, "bytes": folder.result.stat().st_size})


def _teller(folder: JobFolder) -> Any:
    def tell(superstep: int, active: int, messages: int, share: float | None) -> None:
        folder.report({"superstep": superstep, "active": active, "messages": messages, "share": share})

    return tell


def _graph(path: str, engine: str) -> Any:
    from goffish.gofs import is_store, open_store
    from goffish.graph.io import read

    store = is_store(path) if "://" in path or Path(path).is_dir() else False
    if store:
        return open_store(path)
    if engine == "mpi":
        from mpi4py import MPI

        return read(path) if MPI.COMM_WORLD.rank == 0 else None
    return read(path)


if __name__ == "__main__":
    main()

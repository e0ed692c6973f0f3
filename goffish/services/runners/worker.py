"""Worker process of graph jobs: ``python -m goffish.services.runners.worker FOLDER ATTEMPT``.

It resumes from the newest checkpoint and reports progress after every superstep. SIGUSR1 is the notice that its machine
will be taken back: it ends with a checkpoint. A wish for a checkpoint in the folder is met at the end of the next
superstep. Exit codes: 0 success, 1 failed job, 2 invalid input, 73 lost Spark cluster, 74 full disk, 75 another attempt
is current, 76 ended after a notice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from goffish.errors import CheckpointError, GoffishError, InputError, JobError, StoreError
from goffish.services.runners.folder import Busy, JobFolder, is_disk_full
from goffish.services.runners.limits import is_no_memory, limit_process, memory_exceeded, reserve_nothing
from goffish.services.runners.order import as_named, saves

#: Exit code of a worker whose attempt is not the current one (EX_TEMPFAIL).
NOT_NOW = 75
#: Exit code of a worker whose job folder cannot be read or written (EX_UNAVAILABLE).
NO_STORAGE = 69
#: Exit code of a worker that has lost the Spark cluster, or its executors (EX_CANTCREAT).
NO_CLUSTER = 73
#: Exit code of a worker whose disk is full (EX_IOERR).
DISK_FULL = 74
#: Exit code of a worker that ended after a notice, with a checkpoint where there can be one.
NOTICED = 76
_STORE = "manifest.json"


def main() -> None:
    """Run an attempt at a graph job."""
    as_worker(_attempt)


def as_worker(attempt: Callable[[JobFolder, str, dict[str, Any]], None]) -> None:
    """Run the process of an attempt; `attempt` receives the job folder, the turn and the order."""
    reserve_nothing()
    folder, turn = JobFolder(Path(sys.argv[1])), sys.argv[2]
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    _at_notice(lambda: os._exit(NOTICED))
    import json

    order = json.loads(folder.order.read_text())
    try:
        attempt(folder, turn, order)
    except Busy:
        sys.exit(NOT_NOW)
    except KeyboardInterrupt:
        sys.exit(NOTICED)
    except (GoffishError, OSError, MemoryError) as error:
        limits = order.get("limits", {})
        if limits.get("memory_mb") is not None and is_no_memory(error):
            _write_log(f"error: {memory_exceeded(limits)}")
            sys.exit(JobError.exit_code)
        if is_disk_full(error):
            # Not caused by the job: retry.
            code = DISK_FULL
        elif isinstance(error, StoreError) and "checkpoints" in order:
            # Ranks of several machines write checkpoints to storage, which may be away.
            code = NO_STORAGE
        elif order.get("engine") == "spark" and _is_lost(error):
            code = NO_CLUSTER
        elif isinstance(error, GoffishError):
            code = error.exit_code
        else:
            raise
        _write_log(f"error: {as_named(_without_secrets(str(error)), order.get('names', {}))}")
        sys.exit(code)


def _is_lost(error: BaseException) -> bool:
    from goffish.gopher.spark.session import LostError

    return isinstance(error, LostError)


def _without_secrets(text: str) -> str:
    """Return a text without the token of Spark Connect."""
    if "SPARK_REMOTE" not in os.environ:
        return text
    from goffish.gopher.spark.master import REMOTE, Master

    return Master.of(os.environ[REMOTE]).hide(text)


def _write_log(text: str) -> None:
    """Write to the log, unbuffered; ignore a full disk, which would change the exit code at flush."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def _attempt(folder: JobFolder, turn: str, order: dict[str, Any]) -> None:
    # Load all code before limiting memory, so that failed allocations are due to the data.
    import goffish.algorithms.run
    import goffish.gofs
    import goffish.graph.io  # noqa: F401

    limit_process(order["limits"])
    if order["engine"] == "mpi":
        _on_ranks(folder, turn, order)
        return
    with folder.taken():
        check_turn(folder, turn)
        if folder.done is None:
            result = _run(folder, order)
            finish(folder, result.table, result.summary)


def check_turn(folder: JobFolder, turn: str) -> None:
    """Check that this is the current turn, with the folder locked.

    Raises
    ------
    Busy
    """
    if folder.turn != turn:
        raise Busy(f"attempt {folder.turn} is current")
    folder.sign()


def _on_ranks(folder: JobFolder, turn: str, order: dict[str, Any]) -> None:
    """Run on MPI ranks; rank 0 locks the folder and broadcasts whether to continue."""
    from goffish.gopher.checkpoint import LeavingError
    from goffish.gopher.mpi.job import open_team

    with open_team(None) as team, folder.taken() if team.rank == 0 else nullcontext():
        with team.together("taking the job"):
            if team.rank == 0:
                check_turn(folder, turn)
        if team.comm.bcast(folder.done is not None if team.rank == 0 else None, root=0):
            return
        try:
            result = _run(folder, order)
        except LeavingError as error:
            if team.rank == 0:
                _write_log(f"warning: a machine will be taken back; {error}")
            sys.exit(NOTICED)
        with team.together("writing the result"):
            if team.rank == 0:
                finish(folder, result.table, result.summary)


def _run(folder: JobFolder, order: dict[str, Any]) -> Any:
    from goffish.algorithms.algorithm import as_label
    from goffish.algorithms.catalogue import make
    from goffish.algorithms.run import run
    from goffish.gofs import PartitionedGraph
    from goffish.gopher.checkpoint import checkpoint_now

    graph = _graph(order["input"], order["engine"])
    noticed = threading.Event()
    running: dict[str, Any] = {"engine": order["engine"]}
    if order["engine"] == "spark":
        running["spark"] = _spark_session(folder, order)
    else:
        running["threads"] = order["threads"]
    options = dict(order["options"])
    job = make(order["algorithm"], options)
    whole = job.in_memory or bool(job.only_whole())
    if whole and job.resumes_whole():
        _at_notice(_interrupt)
    if "checkpoints" in order:  # of several machines
        running |= {"checkpoint_dir": order["checkpoints"], "resume": True}
    elif saves(job):
        running |= {"checkpoint_dir": folder.checkpoints, "resume": any(folder.checkpoints.glob("*"))}
    if "parts" in order and not isinstance(graph, PartitionedGraph):
        running["parts"] = order["parts"]
    if whole:
        running["engine"] = "auto"
        if job.single_threaded():
            running.pop("threads", None)
        graph = graph.to_graph() if isinstance(graph, PartitionedGraph) else graph
    else:
        running |= {"checkpoint_every": order["checkpoint_every"], "progress": _progress_writer(folder, noticed)}
        if order["checkpoint_every"] > 0:
            if order["engine"] == "local":
                _at_notice(noticed.set, checkpoint_now)
            elif order["engine"] == "mpi":
                _at_notice(checkpoint_now)
    if graph is not None:
        options |= {name: as_label(options[name], graph) for name in ("source", "target") if name in options}
    try:
        return run(order["algorithm"], graph, **running, **options)
    except CheckpointError as error:
        # A power failure may leave a damaged checkpoint.
        _write_log(f"warning: {error}; restarting from the beginning")
        return run(order["algorithm"], graph, **running | {"resume": False}, **options)


def _spark_session(folder: JobFolder, order: dict[str, Any]) -> Any:
    """Return a session on the cluster, once there are executors.

    Raises
    ------
    LostError
        The cluster, which the server has checked when it started, does not answer now.
    """
    from goffish.gopher.shared import SHARED_VARIABLE, remove_place
    from goffish.gopher.spark.master import REMOTE, Master
    from goffish.gopher.spark.session import LostError, session, wait_for_executors

    if "shared" in order:
        os.environ[SHARED_VARIABLE] = order["shared"]
        remove_place(order["shared"])  # of a worker that was killed
    master = Master.of(os.environ[REMOTE]).in_session(order["session"]) if "session" in order else None
    try:
        spark = session(f"goffish-{folder.path.name}", master=master)
    except InputError as error:
        raise LostError(str(error)) from error
    wait_for_executors(spark)
    return spark


def finish(folder: JobFolder, result: Any, summary: dict[str, Any], text: str = "") -> None:
    """Write the result, a table or a reader of batches, and mark the job as completed."""
    import pyarrow as pa

    partial, rows = folder.result.with_suffix(".partial"), 0
    batches = result.to_reader(max_chunksize=65536) if isinstance(result, pa.Table) else result
    with partial.open("wb") as file:
        with pa.ipc.new_stream(file, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder.result)
    folder.finish({"summary": summary, "rows": rows, "bytes": folder.result.stat().st_size, "text": text})


def _interrupt() -> None:
    raise KeyboardInterrupt


def _at_notice(*acts: Callable[[], object]) -> None:
    def notice(*_: Any) -> None:
        for act in acts:
            act()

    signal.signal(signal.SIGUSR1, notice)


def _progress_writer(folder: JobFolder, noticed: threading.Event) -> Any:
    from goffish.gopher.checkpoint import checkpoint_next

    met = None

    def write(superstep: int, active: int, messages: int, share: float | None) -> None:
        nonlocal met
        folder.report({"superstep": superstep, "active": active, "messages": messages, "share": share})
        wished = folder.wishes.get("checkpoint")
        if wished is not None and wished != met and (folder.saved or 0) <= wished:
            met = wished  # checkpoints of several machines are not in this folder
            checkpoint_next()
        if noticed.is_set() and folder.saved == superstep:
            _write_log(f"warning: the machine will be taken back; ended with a checkpoint of superstep {superstep}")
            os._exit(NOTICED)

    return write


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

"""Launchers that a worker is started with: those that came with the Python of the server, else those on the path."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from goffish.errors import InputError
from goffish.services.runners import worker as worker_module
from goffish.services.runners.limits import JobLimits
from goffish.services.store.spec import GraphJob

#: Spark does not start with less.
_LEAST_HEAP_MB = 512


def mpi_command(worker: list[str], graph: GraphJob) -> list[str]:
    """A worker on each of the job's ranks."""
    return [launcher("mpirun", "pip install 'goffish[mpi]'"), "-n", str(graph.workers), *worker]


def spark_command(master: str, limits: JobLimits) -> Callable[[list[str], GraphJob], list[str]]:
    """A worker as the driver of a Spark cluster.

    Parameters
    ----------
    master : str
        Such as ``local[2]`` or ``spark://HOST:PORT``.
    limits : JobLimits
        The driver's Java process is given the memory of the job as its heap.
    """

    def command(worker: list[str], graph: GraphJob) -> list[str]:
        submit = launcher("spark-submit", "pip install 'goffish[spark]'")
        memory = limits.memory_of(graph)
        heap = [] if memory is None else ["--driver-memory", f"{max(_LEAST_HEAP_MB, memory)}m"]
        return [submit, "--master", master, *heap, worker_module.__file__, *worker[-2:]]

    return command


def launcher(name: str, advice: str) -> str:
    """Where a program is.

    Raises
    ------
    InputError
        It is not installed.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=places)
    if found is None:
        raise InputError(f"{name} is not installed here: {advice}")
    return found

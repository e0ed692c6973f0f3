"""Resource limits of jobs and their enforcement by the operating system."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a process that runs a graph job needs neither the database nor dataflows
    from goffish.services.store.spec import FlowJob, GraphJob


@dataclass(frozen=True)
class JobLimits:
    """Limits per job; ``None`` means unlimited.

    Attributes
    ----------
    workers : int
        Maximum threads or MPI ranks.
    cores : int, optional
        Maximum cores of all processes of the job.
    memory_mb : int, optional
        Memory limit of all processes of the job, in MB.
    run_s : float
        Maximum duration from the first start, in seconds.
    option : int
        Maximum value of integer options of policies and algorithms, except seeds and labels.
    storage_mb : int, optional
        Maximum size of the folder of a flow job, and of the result of a job on rented machines, in MB.
    machines : int
        Maximum rented machines.
    """

    workers: int = 1024
    cores: int | None = None
    memory_mb: int | None = None
    run_s: float = float("inf")
    option: int = 1 << 62
    storage_mb: int | None = None
    machines: int = 256

    def memory_of(self, job: GraphJob | FlowJob | None) -> int | None:
        """Return the memory limit of a job, in MB: the requested limit, at most that of the server."""
        asked = None if job is None else job.memory_mb
        if asked is None or self.memory_mb is None:
            return asked or self.memory_mb
        return min(asked, self.memory_mb)

    def order(self, job: GraphJob | FlowJob | None) -> dict[str, Any]:
        """Return the limits as part of a worker's order."""
        memory, ranks = self.memory_of(job), 1
        if job is not None and getattr(job, "runner", "") == "mpi":
            ranks = job.workers
        ranks *= getattr(job, "machines", 1)
        return {"memory_mb": memory, "process_mb": memory and max(1, memory // ranks), "cores": self.cores}


UNLIMITED = JobLimits()


def memory_exceeded(limits: Mapping[str, Any]) -> str:
    """Return the error message for a failed allocation."""
    total, each = limits["memory_mb"], limits["process_mb"]
    return f"memory limit exceeded: {total:,} MB allowed" + ("" if each == total else f", {each:,} MB per MPI rank")


def limit_process(limits: Mapping[str, Any]) -> None:
    """Apply the limits of an order to this process and its children."""
    if limits.get("cores") is not None:
        cores = sorted(os.sched_getaffinity(0))
        # Concurrent jobs use different cores; processes of one job use the same.
        first = os.getsid(0) % len(cores)
        os.sched_setaffinity(0, (cores[first:] + cores[:first])[: limits["cores"]])
    if limits.get("process_mb") is not None:
        limit_memory(limits["process_mb"])


def limit_memory(most_mb: int) -> None:
    """Limit the memory of this process, and of each child, in MB.

    The limit (RLIMIT_DATA) counts private writable memory, not reserved or file-mapped memory.
    """
    most = most_mb << 20
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def reserve_nothing() -> None:
    """Make Arrow use the system allocator; its default pool reserves 1 GB, which counts against the limit."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"


def is_no_memory(error: BaseException | None) -> bool:
    """Return whether an error is a failed allocation, including wrapped errors."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        error = error.__cause__ or error.__context__
    return False

"""What the operator of a server lets a job take, and how a process is held to it by the operating system."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a process that runs a graph job needs neither the database nor dataflows
    from goffish.services.store.spec import GraphJob


@dataclass(frozen=True)
class JobLimits:
    """Largest demands of a job. ``None``: unlimited.

    Attributes
    ----------
    workers : int
        Threads, or MPI ranks.
    cores : int, optional
        Cores that its processes run on.
    memory_mb : int, optional
        Of all its processes together.
    run_s : float
        Seconds from when it first begins.
    option : int
        Whole numbers among the options of policies and algorithms, such as generations; not seeds and labels.
    """

    workers: int = 1024
    cores: int | None = None
    memory_mb: int | None = None
    run_s: float = float("inf")
    option: int = 1 << 62

    def memory_of(self, graph: GraphJob | None) -> int | None:
        """MB that a job may take: as it asks for, or all that the operator allows."""
        asked = None if graph is None else graph.memory_mb
        if asked is None or self.memory_mb is None:
            return asked or self.memory_mb
        return min(asked, self.memory_mb)

    def order(self, graph: GraphJob | None) -> dict[str, Any]:
        """The limits as the processes of a job are given them."""
        memory, ranks = self.memory_of(graph), graph.workers if graph is not None and graph.runner == "mpi" else 1
        return {"memory_mb": memory, "process_mb": memory and max(1, memory // ranks), "cores": self.cores}


UNLIMITED = JobLimits()


def memory_exceeded(limits: Mapping[str, Any]) -> str:
    """What is reported of a job whose processes could not allocate more."""
    total, each = limits["memory_mb"], limits["process_mb"]
    return f"memory limit exceeded: {total:,} MB allowed" + ("" if each == total else f", {each:,} MB for each rank")


def limit_process(limits: Mapping[str, Any]) -> None:
    """Hold this process, and those that it starts, to the limits of an order."""
    if limits.get("cores") is not None:
        cores = sorted(os.sched_getaffinity(0))
        # Jobs that run side by side take different ones; processes of one job the same.
        first = os.getsid(0) % len(cores)
        os.sched_setaffinity(0, (cores[first:] + cores[:first])[: limits["cores"]])
    if limits.get("process_mb") is not None:
        limit_memory(limits["process_mb"])


def limit_memory(most_mb: int) -> None:
    """Let this process, and each that it starts, allocate at most so many MB.

    Counted is what is private and can be written (RLIMIT_DATA), not what is only reserved or mapped from files.
    """
    most = most_mb << 20
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def reserve_nothing() -> None:
    """Have Arrow, when it is imported, allocate what it needs only: its own pool takes 1 GB at once, which counts."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"


def is_no_memory(error: BaseException | None) -> bool:
    """Whether an allocation failed, also where that was wrapped on the way."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False

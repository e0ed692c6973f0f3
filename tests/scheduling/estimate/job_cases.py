"""Runs that were never measured: their figures follow coefficients that the tests chose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from goffish.scheduling.estimate.features import JobShape
from goffish.scheduling.estimate.fitting import MeasuredRun

#: CPU seconds a vertex, an arc, and a partition and superstep; bytes a vertex and boundary arc.
WORK = (3e-7, 5e-8, 2e-3)
MEMORY = (200.0, 40.0)
CHECKPOINT = (16.0, 24.0)
#: Seconds of a checkpoint for a partition and a byte, and share of the work that one core does.
WRITING, SERIAL = (2e-3, 4e-9), 0.3


def run_of(vertices: int, edges: int, partitions: int, boundary: int, steps: int, fitted: bool = True) -> MeasuredRun:
    """A run of components on 2 cores."""
    shape = JobShape("components", "local", vertices, edges, partitions, 2, boundary=boundary)
    cpu = float(np.dot(WORK, (vertices, 2 * edges, partitions * steps)))
    size = float(np.dot(CHECKPOINT, (vertices, boundary)))
    return MeasuredRun(
        graph=f"{'fitted' if fitted else 'kept'}-{vertices}-{edges}", fitted=fitted, shape=shape, supersteps=steps,
        startup_cpu=1.5, startup_seconds=1.25, startup_memory=2.5e8, cpu=cpu,
        seconds=cpu * (SERIAL + (1.0 - SERIAL) / 2), memory=float(np.dot(MEMORY, (vertices, boundary))),
        checkpoint_bytes=size, checkpoint_seconds=float(np.dot(WRITING, (partitions, size))),
    )  # fmt: skip


def exact_runs(count: int = 9, seed: int = 0) -> list[MeasuredRun]:
    """Runs to fit to, and a third as many to test on, all of 6 supersteps."""
    rng = np.random.default_rng(seed)
    drawn = 10 ** rng.uniform(5, 7, (count + count // 3, 3))
    parts = rng.integers(2, 17, len(drawn)).tolist()
    return [
        run_of(int(n), int(m), k, int(b), 6, fitted=at < count)
        for at, ((n, m, b), k) in enumerate(zip(drawn, parts, strict=True))
    ]


def times(run: MeasuredRun, factor: float) -> MeasuredRun:
    """The run with more work, memory and checkpoints."""
    return replace(
        run, cpu=factor * run.cpu, memory=factor * run.memory, checkpoint_bytes=factor * run.checkpoint_bytes
    )

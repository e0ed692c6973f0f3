"""Resource estimates of graph jobs with the error of the calibration, and their conversion to spot jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from goffish.errors import InputError
from goffish.scheduling.estimate.calibration import Calibration, calibration_for, this_machine
from goffish.scheduling.estimate.features import JobShape

if TYPE_CHECKING:
    from goffish.gofs import PartitionedGraph
    from goffish.graph import Graph

#: Numbers of cores with estimated run times.
_CORES = (1, 2, 4, 8, 16, 32, 64)
#: Ratio of a job's size to the largest measured one above which a warning is issued.
_FAR = 10.0


@dataclass(frozen=True)
class JobEstimate:
    """Estimated resources of a job. Low and high ends exclude a tenth of the jobs each, if there are enough test runs.

    Attributes
    ----------
    core_hours, core_hours_low, core_hours_high : float
        CPU time of all processes, one start-up included.
    memory_bytes, memory_bytes_high : float
        Peak memory of all processes together.
    checkpoint_bytes, checkpoint_bytes_high : float
        Size of the largest checkpoint.
    checkpoint_seconds, checkpoint_seconds_high : float
        Time to write the largest checkpoint to the storage of the calibration.
    startup_seconds, startup_core_hours : float
        From the start of the process to the first superstep.
    wall_seconds : mapping of int to float
        Run time by number of cores, one start-up included.
    serial : float
        Serial share of the work.
    supersteps : float
        Fixed by the job, or the median of the calibration.
    warnings : tuple of str
        Reasons for a larger error than stated, one line each.
    """

    core_hours: float
    core_hours_low: float
    core_hours_high: float
    memory_bytes: float
    memory_bytes_high: float
    checkpoint_bytes: float
    checkpoint_bytes_high: float
    checkpoint_seconds: float
    checkpoint_seconds_high: float
    startup_seconds: float
    startup_core_hours: float
    wall_seconds: Mapping[int, float]
    serial: float
    supersteps: float = 1.0
    warnings: tuple[str, ...] = field(default=())

    def speedup(self, cores: int) -> float:
        """Speed-up of some cores over one core, by Amdahl's law.

        See docs/specs/spot.md, section 6.13, O-17.
        """
        if cores < 1:
            raise InputError(f"cores = {cores}: must be at least 1")
        return 1.0 / (self.serial + (1.0 - self.serial) / cores)


def estimate(shape: JobShape, calibration: Calibration | None = None) -> JobEstimate:
    """Estimate a graph job.

    Parameters
    ----------
    shape : JobShape
    calibration : Calibration, optional
        Default: the user's calibration, or the bundled one if it does not include the algorithm on the engine.

    Raises
    ------
    InputError
        If no calibration includes the algorithm on the engine.
    """
    used = calibration_for(shape.algorithm, shape.engine) if calibration is None else calibration
    model = used.models.get((shape.algorithm, shape.engine))
    if model is None:
        known = ", ".join(f"{algorithm} on {engine}" for algorithm, engine in used.models)
        raise InputError(f"{shape.algorithm} on {shape.engine} is not part of the calibration; available: {known}")
    startup = model.startup
    work, memory, checkpoint = (model.value(name, shape) for name in ("work", "memory", "checkpoint"))
    least, most = model.band("work", shape)
    _, most_memory = model.band("memory", shape)
    _, most_checkpoint = model.band("checkpoint", shape)
    fixed = model.per_partition * shape.partitions
    return JobEstimate(
        core_hours=(startup.cpu + work) / 3600.0,
        core_hours_low=(startup.least_cpu + least * work) / 3600.0,
        core_hours_high=(startup.most_cpu + most * work) / 3600.0,
        memory_bytes=startup.memory + memory,
        memory_bytes_high=startup.memory + most_memory * memory,
        checkpoint_bytes=checkpoint,
        checkpoint_bytes_high=most_checkpoint * checkpoint,
        checkpoint_seconds=fixed + model.per_byte * checkpoint,
        checkpoint_seconds_high=fixed + model.per_byte * most_checkpoint * checkpoint,
        startup_seconds=startup.seconds,
        startup_core_hours=startup.cpu / 3600.0,
        wall_seconds={cores: startup.seconds + model.wall(work, cores) for cores in sorted({*_CORES, shape.workers})},
        serial=model.serial,
        supersteps=model.usual.steps_of(shape),
        warnings=_warnings(shape, used, model.largest),
    )


def _warnings(shape: JobShape, used: Calibration, largest: Mapping[str, int]) -> tuple[str, ...]:
    found = []
    if used.machine != this_machine():
        found.append(
            f"measured on another machine ({used.describe_machine()}); run goffish calibrate to measure this one"
        )
    times = max(getattr(shape, name) / max(count, 1) for name, count in largest.items())
    if times > _FAR:
        found.append(f"the graph is {times:.0f} times as large as the largest measured one")
    return tuple(found)


class SpotJob(NamedTuple):
    """A job in the units of RTBA (docs/specs/spot.md, sections 2.2 and 2.4).

    Attributes
    ----------
    work : int
        Units of work.
    checkpoint_slots, startup_slots : int
    """

    work: int
    checkpoint_slots: int
    startup_slots: int


def spot_job(
    found: JobEstimate, market_unit: float, slot_s: float, bandwidth: float, machine_startup_s: float = 0.0
) -> SpotJob:
    """Convert an estimate to units and slots, each rounded up.

    The work is the high end of the estimate (O-18), with linear speed-up; for non-linear speed-up,
    `JobEstimate.speedup` returns the speeds of machine types (O-17). Checkpoints of the same size are written and,
    after the loss of a machine, read.

    Parameters
    ----------
    found : JobEstimate
    market_unit : float
        Core-hours of a unit of work, such as `Market.unit`.
    slot_s : float
        Seconds.
    bandwidth : float
        Bytes per second between a machine and durable storage.
    machine_startup_s : float
        Seconds from the request of a machine until it can start processes.

    Raises
    ------
    InputError
        If a unit, slot or bandwidth is not greater than 0.
    """
    for name, value in (("market_unit", market_unit), ("slot_s", slot_s), ("bandwidth", bandwidth)):
        if not (value > 0 and math.isfinite(value)):
            raise InputError(f"{name} = {value!r}: must be greater than 0")
    if not (machine_startup_s >= 0 and math.isfinite(machine_startup_s)):
        raise InputError(f"machine_startup_s = {machine_startup_s!r}: must be at least 0")
    carried = found.checkpoint_bytes_high / bandwidth
    return SpotJob(
        _at_least_one(found.core_hours_high / market_unit),
        _at_least_one((found.checkpoint_seconds_high + carried) / slot_s),
        _at_least_one((machine_startup_s + found.startup_seconds + carried) / slot_s),
    )


def _at_least_one(value: float) -> int:
    return max(1, math.ceil(value - 1e-9))


def shape_of(
    graph: str | Path | PartitionedGraph | Graph,
    algorithm: str,
    engine: str = "local",
    partitions: int | None = None,
    *,
    workers: int = 1,
    sources: int | None = None,
    supersteps: int | None = None,
) -> JobShape:
    """Return the shape of a job on a graph. Reads only the manifest of a store, but the whole of a graph file.

    Parameters
    ----------
    graph : path, PartitionedGraph or Graph
        A store, a graph file, or a loaded graph.
    partitions : int, optional
        Number of partitions of an unpartitioned graph; default: one for each worker.

    Raises
    ------
    InputError
        If `partitions` differs from that of a store.
    """
    from goffish.gofs import PartitionedGraph, is_store, open_store
    from goffish.graph.io import read

    if isinstance(graph, str | Path):
        graph = open_store(graph) if is_store(graph) else read(str(graph))
    given: dict[str, Any] = {"workers": workers, "sources": sources, "supersteps": supersteps}
    if isinstance(graph, PartitionedGraph):
        info = graph.info
        if partitions not in (None, info.num_partitions):
            raise InputError(f"partitions = {partitions}: the graph already has {info.num_partitions} partitions")
        return JobShape(
            algorithm, engine, info.num_vertices, info.num_edges, info.num_partitions, directed=info.directed,
            weighted=info.weighted, boundary=sum(info.remote), **given,
        )  # fmt: skip
    return JobShape(
        algorithm, engine, graph.num_vertices, graph.num_edges, workers if partitions is None else partitions,
        directed=graph.directed, weighted=graph.weights is not None, **given,
    )  # fmt: skip

"""What a graph job will take, with the error that the calibration was found to have; and the job that RTBA plans."""

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

#: Cores for which the estimate tells the seconds.
_CORES = (1, 2, 4, 8, 16, 32, 64)
#: How much larger than anything measured a job may be before that is worth a word.
_FAR = 10.0


@dataclass(frozen=True)
class JobEstimate:
    """What a job will take. Low and high ends leave out a tenth of the jobs each, where enough were tested.

    Attributes
    ----------
    core_hours, core_hours_low, core_hours_high : float
        CPU time of all processes, one start-up included.
    memory_bytes, memory_bytes_high : float
        Peak of all processes together.
    checkpoint_bytes, checkpoint_bytes_high : float
        Of the largest checkpoint.
    checkpoint_seconds, checkpoint_seconds_high : float
        To write it where the calibration wrote.
    startup_seconds, startup_core_hours : float
        From the start of the process to the first superstep.
    wall_seconds : mapping of int to float
        By cores, one start-up included.
    serial : float
        Share of the work that one core does while others wait.
    warnings : tuple of str
        Why the error may be larger than told; a line each.
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
    warnings: tuple[str, ...] = field(default=())

    def speedup(self, cores: int) -> float:
        """How many times as fast as one core some cores are, by Amdahl's law.

        See docs/specs/spot.md, section 6.13, O-17.
        """
        if cores < 1:
            raise InputError(f"cores={cores}: at least 1")
        return 1.0 / (self.serial + (1.0 - self.serial) / cores)


def estimate(shape: JobShape, calibration: Calibration | None = None) -> JobEstimate:
    """Estimate a graph job.

    Parameters
    ----------
    shape : JobShape
    calibration : Calibration, optional
        Default: the user's own, and where that does not know the algorithm on the engine, the one that comes along.

    Raises
    ------
    InputError
        If no calibration knows the algorithm on the engine.
    """
    used = calibration_for(shape.algorithm, shape.engine) if calibration is None else calibration
    model = used.models.get((shape.algorithm, shape.engine))
    if model is None:
        known = ", ".join(f"{algorithm} on {engine}" for algorithm, engine in used.models)
        raise InputError(f"{shape.algorithm} on {shape.engine} is not in the calibration, which knows {known}")
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
        warnings=_warnings(shape, used, model.largest),
    )


def _warnings(shape: JobShape, used: Calibration, largest: Mapping[str, int]) -> tuple[str, ...]:
    told = []
    if used.machine != this_machine():
        told.append(f"measured on another machine ({used.describe_machine()}): goffish calibrate measures this one")
    times = max(getattr(shape, name) / max(count, 1) for name, count in largest.items())
    if times > _FAR:
        told.append(f"the graph is {times:.0f} times as large as any that was measured")
    return tuple(told)


class SpotJob(NamedTuple):
    """A job as RTBA plans it (docs/specs/spot.md, sections 2.2 and 2.4).

    Attributes
    ----------
    work : int
        Units.
    checkpoint_slots, startup_slots : int
    """

    work: int
    checkpoint_slots: int
    startup_slots: int


def spot_job(
    found: JobEstimate, market_unit: float, slot_s: float, bandwidth: float, machine_startup_s: float = 0.0
) -> SpotJob:
    """Put an estimate into units and slots, each rounded up.

    The work is the high end of the estimate (O-18), for which linear speed-up is assumed; `JobEstimate.speedup` gives
    the speeds of classes where it is not linear (O-17). The same size of checkpoint is written and, after a machine was
    lost, read again.

    Parameters
    ----------
    found : JobEstimate
    market_unit : float
        Core-hours of a unit of work, as `Market.unit`.
    slot_s : float
        Seconds.
    bandwidth : float
        Bytes a second between a machine and the storage that outlives it.
    machine_startup_s : float
        Seconds until a machine that was asked for can start processes.

    Raises
    ------
    InputError
        For a unit, a slot or a bandwidth that is not above 0.
    """
    for name, value in (("market_unit", market_unit), ("slot_s", slot_s), ("bandwidth", bandwidth)):
        if not (value > 0 and math.isfinite(value)):
            raise InputError(f"{name}={value!r}: must be more than 0")
    if not (machine_startup_s >= 0 and math.isfinite(machine_startup_s)):
        raise InputError(f"machine_startup_s={machine_startup_s!r}: must be at least 0")
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
    """The shape of a job on a graph. Of a store only the manifest is read; a graph file must be read.

    Parameters
    ----------
    graph : path, PartitionedGraph or Graph
        A store, a graph file, or what was read from them.
    partitions : int, optional
        Of a graph that is not partitioned; default: one for each worker. A store has its own.

    Raises
    ------
    InputError
        For `partitions` that are not a store's.
    """
    from goffish.gofs import PartitionedGraph, is_store, open_store
    from goffish.graph.io import read

    if isinstance(graph, str | Path):
        graph = open_store(graph) if is_store(graph) else read(str(graph))
    given: dict[str, Any] = {"workers": workers, "sources": sources, "supersteps": supersteps}
    if isinstance(graph, PartitionedGraph):
        info = graph.info
        if partitions not in (None, info.num_partitions):
            raise InputError(f"partitions={partitions}: the graph is partitioned into {info.num_partitions} already")
        return JobShape(
            algorithm, engine, info.num_vertices, info.num_edges, info.num_partitions, directed=info.directed,
            weighted=info.weighted, boundary=sum(info.remote), **given,
        )  # fmt: skip
    return JobShape(
        algorithm, engine, graph.num_vertices, graph.num_edges, workers if partitions is None else partitions,
        directed=graph.directed, weighted=graph.weights is not None, **given,
    )  # fmt: skip

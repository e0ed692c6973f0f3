"""Resource requirements of graph jobs on a cloud, derived from estimates for this machine."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from goffish.cloud.catalogue import Catalogue
from goffish.environment import child_environment
from goffish.errors import InputError
from goffish.gofs import is_store
from goffish.gofs.files import open_folder
from goffish.partial import is_uri
from goffish.scheduling.estimate.calibration import calibrations
from goffish.scheduling.estimate.estimates import JobEstimate, estimate, shape_of
from goffish.scheduling.estimate.features import JobShape
from goffish.services.runners.cloud_planning import HOUR_S, Need, spot_classes
from goffish.services.runners.limits import is_no_memory, limit_memory, reserve_nothing
from goffish.services.store.spec import GraphJob

#: Used for algorithms without calibration.
_USUAL = "pagerank"
#: Limits up to which graph files are read to count edges; for others, edges are estimated from the file size.
_MOST_READ, _MOST_READ_S, _MOST_READ_MB = 16 << 20, 10.0, 2048
_BYTES_PER_EDGE, _EDGES_PER_VERTEX = 12, 8
#: Start-up time of a local machine, and minimum slot length, in seconds.
_MACHINE_S, _LEAST_SLOT_S = 0.5, 0.5


@dataclass(frozen=True)
class Sized:
    """Estimate of a job on this machine, and its mapping to cloud machines.

    Attributes
    ----------
    estimate : JobEstimate
    share : float
        Local cores per reference core: the fastest machine type has as many local cores as the job has threads.
    remark : str
        Reason why the estimate may be inaccurate, or an empty string.
    start_s : float
        Seconds in which a process of this machine started and read the input just now; 0 if none did.
    """

    estimate: JobEstimate
    share: float
    remark: str
    start_s: float = 0.0

    def need(
        self, catalogue: Catalogue, pace: float, left_s: float | None, checkpoint_every: int | None = None
    ) -> Need:  # fmt: skip
        """Convert the estimate to simulated cloud time.

        Parameters
        ----------
        catalogue : Catalogue
        pace : float
            Simulated cloud seconds per real second.
        left_s : float, optional
            Real seconds to the deadline.
        checkpoint_every : int, optional
            Supersteps between checkpoints.
        """
        found, slowest = self.estimate, min(one.power for one in spot_classes(catalogue))
        startup_s = _MACHINE_S + found.startup_seconds / min(1.0, slowest * self.share)
        core_hours = found.core_hours_high * pace / self.share
        superstep_s = core_hours * HOUR_S / slowest / max(1.0, found.supersteps)
        checkpoint_s = found.checkpoint_seconds_high * pace
        between_s = math.inf if checkpoint_every is None else superstep_s * checkpoint_every
        return Need(
            core_hours=core_hours * (1.0 + checkpoint_s / between_s),  # workers compute or write
            startup_s=max(catalogue.startup_s, startup_s * pace),
            checkpoint_s=checkpoint_s,
            left_s=None if left_s is None else max(0.0, left_s * pace),
            least_slot_s=_LEAST_SLOT_S * pace,
            between_s=between_s,
            likely_share=found.core_hours / found.core_hours_high,
        )


def size_of(graph: GraphJob, path: str, catalogue: Catalogue, environment: Mapping[str, str] | None = None) -> Sized:
    """Estimate a job.

    Parameters
    ----------
    graph : GraphJob
    path : str
        Path or URI of the input.
    catalogue : Catalogue
        Catalogue with spot machine types.
    environment : mapping, optional
        Of the process that reads the input; default: `goffish.environment.child_environment`.

    Raises
    ------
    InputError
        The input cannot be read, or the catalogue has no spot machine types.
    """
    threads = min(graph.workers, os.cpu_count() or 1)
    share = min(1.0, threads / max(one.power for one in spot_classes(catalogue)))
    measured = any((graph.algorithm, "local") in one.models for one in calibrations())
    algorithm = graph.algorithm if measured else _USUAL
    remark = "" if measured else f"{graph.algorithm} is not calibrated; estimated as {_USUAL}"
    begun = time.monotonic()
    size = _file_size(path)
    shape = _shape(path, size, algorithm, threads, environment or child_environment())
    start_s = 0.0 if size is None else time.monotonic() - begun
    if shape is None:
        edges = max(1, (size or 0) // _BYTES_PER_EDGE)
        shape = JobShape(algorithm, "local", max(1, edges // _EDGES_PER_VERTEX), edges, threads, workers=threads)
        remark = (remark and f"{remark}; ") + f"number of edges estimated from the file size: {edges:,}"
    fixed: dict[str, Any] = {
        field: int(text)
        for field, option in (("supersteps", "supersteps"), ("sources", "pivots"))
        if (text := graph.options.get(option, "")).isdecimal() and int(text) > 0
    }
    if graph.machines > 1:
        if size is None and shape.partitions < graph.machines:
            raise InputError(f"machines: {graph.machines} exceed the {shape.partitions} partitions of the store")
        if any((algorithm, "mpi") in one.models for one in calibrations()):
            fixed |= {"engine": "mpi", "workers": threads * graph.machines}
    return Sized(estimate(replace(shape, **fixed)), share, remark, start_s)


def _file_size(path: str) -> int | None:
    """Return the bytes of a file, given by its path or URI; ``None`` for a store."""
    if not is_uri(path):
        return None if Path(path).is_dir() else Path(path).stat().st_size
    if is_store(path):
        return None
    folder, _, name = path.rpartition("/")
    size = open_folder(folder).size(name)
    if size is None:
        raise InputError(f"{path}: no such file")
    return size


def _shape(
    path: str, size: int | None, algorithm: str, threads: int, environment: Mapping[str, str]
) -> JobShape | None:  # fmt: skip
    if size is None:
        return shape_of(path, algorithm, workers=threads)
    if size > _MOST_READ:
        return None
    # In a separate process: a small file may expand to a large one.
    command = [sys.executable, "-m", "goffish.services.runners.cloud_needs", path, algorithm, str(threads)]
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_MOST_READ_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == InputError.exit_code:
        raise InputError(done.stderr.strip().splitlines()[-1])
    return JobShape(**json.loads(done.stdout)) if done.returncode == 0 else None


def _main(path: str, algorithm: str, threads: str) -> None:
    reserve_nothing()
    from goffish.graph.io import read  # noqa: F401 (loaded before memory is limited)

    limit_memory(_MOST_READ_MB)
    try:
        sys.stdout.write(json.dumps(asdict(shape_of(path, algorithm, workers=int(threads)))))
    except InputError as error:
        if is_no_memory(error):
            raise
        sys.stderr.write(str(error))
        sys.exit(InputError.exit_code)


if __name__ == "__main__":
    _main(*sys.argv[1:])

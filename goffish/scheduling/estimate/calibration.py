"""Calibrations: the measured runs of a machine, their models, and their file format."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from goffish.errors import InputError, StoreError
from goffish.partial import local_path, partial_file
from goffish.scheduling.estimate.features import JobShape
from goffish.scheduling.estimate.fitting import QUANTITIES, MeasuredRun, Model, fit

FORMAT, VERSION = "goffish-calibration", 1

#: The bundled calibration, used if this machine has not been calibrated.
SHIPPED = Path(__file__).with_name("default_calibration.json")


def user_path() -> Path:
    """Path of the user's calibration: ``goffish/calibration.json`` in `XDG_CONFIG_HOME` or ``~/.config``."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "goffish" / "calibration.json"


def this_machine() -> dict[str, Any]:
    """Properties of this machine, to compare calibrations."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
    }  # fmt: skip


@dataclass(frozen=True)
class Error:
    """Error of estimates on the test runs.

    Attributes
    ----------
    algorithm, engine, quantity : str
        The quantity is one of `fitting.QUANTITIES`, followed by ``, file`` for unpartitioned graph files.
    runs : int
        Number of test runs.
    median, worst : float
        Of max(measured / estimated, estimated / measured).
    """

    algorithm: str
    engine: str
    quantity: str
    runs: int
    median: float
    worst: float


@dataclass(frozen=True)
class Calibration:
    """Measured runs of one machine.

    Attributes
    ----------
    machine : mapping
        See `this_machine`.
    runs : sequence of MeasuredRun
    """

    machine: Mapping[str, Any]
    runs: Sequence[MeasuredRun] = field(repr=False)

    @cached_property
    def models(self) -> Mapping[tuple[str, str], Model]:
        """Models by algorithm and engine."""
        pairs = dict.fromkeys((run.shape.algorithm, run.shape.engine) for run in self.runs)
        return {pair: fit([run for run in self.runs if run.key[:2] == pair]) for pair in pairs}

    def errors(self) -> list[Error]:
        """Errors by algorithm, engine and quantity."""
        found = []
        for (algorithm, engine), model in self.models.items():
            for quantity in (name for base in QUANTITIES for name in (base, f"{base}, file")):
                factors = [max(ratio, 1.0 / ratio) for ratio in model.ratios[quantity]]
                middle, worst = statistics.median(factors), max(factors)
                found.append(Error(algorithm, engine, quantity, len(factors), middle, worst))
        return found

    def describe_machine(self) -> str:
        """Describe the machine in a few words."""
        machine = self.machine
        return f"{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB"

    def merged(self, other: Calibration) -> Calibration:
        """Merge with another calibration of the same machine, for combinations without measurements here."""
        pairs = {run.key[:2] for run in self.runs}
        kept = [run for run in other.runs if run.key[:2] not in pairs] if other.machine == self.machine else []
        return Calibration(self.machine, [*kept, *self.runs])

    def write(self, path: str | Path) -> None:
        """Write the calibration as JSON, atomically.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        body = {"format": FORMAT, "version": VERSION, "machine": dict(self.machine)}
        try:
            target = local_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with partial_file(target) as temporary:
                lines = ",\n".join(json.dumps(run_to_dict(run)) for run in self.runs)
                errors = ",\n".join(json.dumps(asdict(error)) for error in self.errors())
                text = json.dumps(body)[:-1] + f',\n"errors": [\n{errors}\n],\n"runs": [\n{lines}\n]}}\n'
                temporary.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def run_to_dict(run: MeasuredRun) -> dict[str, Any]:
    """Convert a run to plain values."""
    return asdict(run)


def run_from_dict(values: Mapping[str, Any], where: str | Path) -> MeasuredRun:
    """Convert plain values to a run.

    Raises
    ------
    StoreError
        If the values are invalid.
    """
    try:
        run = MeasuredRun(**{**values, "shape": JobShape(**values["shape"])})
        figures = [getattr(run, name) for name in _FIGURES]
        if not isinstance(run.graph, str) or not isinstance(run.fitted, bool) or min(figures) < 0:
            raise ValueError(f"{run.graph!r}: numbers must be 0 or more")
    except (TypeError, KeyError, ValueError) as error:
        raise StoreError(f"{where}: damaged calibration ({error})") from None
    return run


_FIGURES = (
    "supersteps", "startup_cpu", "startup_seconds", "startup_memory", "cpu", "seconds", "memory", "checkpoint_bytes",
    "checkpoint_seconds",
)  # fmt: skip


def read_calibration(path: str | Path) -> Calibration:
    """Read a calibration that `Calibration.write` wrote.

    Raises
    ------
    StoreError
        If the file is missing, damaged, of another format, or written by a newer version.
    """
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError:
        raise StoreError(f"{path}: is not a calibration (not JSON)") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise StoreError(f"{path}: is not a calibration (no format mark {FORMAT!r})")
    version = body.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise StoreError(f"{path}: written in calibration format {version}, this GoFFish reads up to {VERSION}")
    machine, runs = body.get("machine"), body.get("runs")
    if not isinstance(machine, dict) or not isinstance(runs, list) or not runs:
        raise StoreError(f"{path}: damaged calibration (no machine or no runs)")
    return Calibration(machine, [run_from_dict(run, path) for run in runs])


def calibrations() -> Iterable[Calibration]:
    """Return the user's calibration, if there is one, then the bundled one."""
    if user_path().is_file():
        yield read_calibration(user_path())
    yield read_calibration(SHIPPED)


def calibration_for(algorithm: str, engine: str) -> Calibration:
    """Return the first of `calibrations` with an algorithm on an engine.

    Raises
    ------
    InputError
        If there is none.
    """
    for one in calibrations():
        if any(run.key[:2] == (algorithm, engine) for run in one.runs):
            return one
    raise InputError(
        f"no calibration of {algorithm} on {engine}; run goffish calibrate --algorithms {algorithm} --engine {engine}"
    )

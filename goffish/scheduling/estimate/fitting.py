"""The cost model of one algorithm on one engine: fitted to some measured runs, tested on others.

Start-up is measured separately (`probe`); its estimate is the median of the runs. Work, memory beyond that of the
start-up, and the size of the largest checkpoint are sums of a few terms (`features`). Their coefficients are fitted by
non-negative least squares of the relative errors, so that short and long runs have equal weights.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.estimate.features import JobShape, Usual, terms_of, values_of

QUANTITIES = ("work", "memory", "checkpoint", "seconds")
#: CPU seconds, bytes and bytes below which a measurement is meaningless.
FLOORS: Mapping[str, float] = {"work": 0.01, "memory": 2.0**20, "checkpoint": 2.0**16}
#: Share of jobs below the high end of an estimate, and above the low end.
COVERED = 0.9


@dataclass(frozen=True)
class MeasuredRun:
    """One measured run.

    Attributes
    ----------
    graph : str
        Name of the graph.
    fitted : bool
        Whether the model is fitted to it, or tested on it.
    shape : JobShape
        Shape with the counted boundary, and with supersteps only if they were fixed.
    supersteps : int
        Number of supersteps of the run.
    startup_cpu, startup_seconds, startup_memory : float
        CPU seconds, seconds and bytes until the work began.
    cpu, seconds, memory : float
        Work: CPU seconds of all processes, seconds, and increase of the peak memory in bytes.
    checkpoint_bytes, checkpoint_seconds : float
        Size of the largest checkpoint, and mean time of a checkpoint.
    """

    graph: str
    fitted: bool
    shape: JobShape
    supersteps: int
    startup_cpu: float
    startup_seconds: float
    startup_memory: float
    cpu: float
    seconds: float
    memory: float
    checkpoint_bytes: float
    checkpoint_seconds: float

    @property
    def key(self) -> tuple[str, str, str]:
        """Algorithm, engine and graph."""
        return self.shape.algorithm, self.shape.engine, self.graph

    def measured(self, quantity: str) -> float:
        """Work (CPU seconds), memory, checkpoint (bytes) or seconds, without the start-up."""
        return {
            "work": self.cpu, "memory": self.memory, "checkpoint": self.checkpoint_bytes, "seconds": self.seconds,
        }[quantity]  # fmt: skip


@dataclass(frozen=True)
class Startup:
    """Costs of a run before its work: medians over the runs, and minimum and maximum CPU seconds.

    Attributes
    ----------
    cpu, seconds, memory : float
        CPU seconds, seconds, bytes.
    least_cpu, most_cpu : float
    """

    cpu: float
    seconds: float
    memory: float
    least_cpu: float
    most_cpu: float


@dataclass(frozen=True)
class Model:
    """Costs of one algorithm on one engine.

    Attributes
    ----------
    startup : Startup
    usual : Usual
    coefficients : mapping
        For work (CPU seconds), memory and checkpoint (bytes): the coefficient of each term.
    per_partition, per_byte : float
        Seconds of a checkpoint per partition, and per byte.
    serial : float
        Serial share of the work (Amdahl).
    largest : mapping
        Maximum vertices and edges of the fitted runs.
    ratios : mapping
        For each quantity: measured over estimated value of every test run with known partitioning; under ``"work,
        file"`` and so on without.
    """

    startup: Startup
    usual: Usual
    coefficients: Mapping[str, Mapping[str, float]]
    per_partition: float
    per_byte: float
    serial: float
    largest: Mapping[str, int]
    ratios: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def value(self, quantity: str, shape: JobShape) -> float:
        """Work in CPU seconds, memory or checkpoint in bytes, or seconds; without the start-up."""
        if quantity == "seconds":
            return self.wall(self.value("work", shape), shape.workers)
        given = self.coefficients[quantity]
        return float(np.dot(list(given.values()), values_of(tuple(given), shape, self.usual)))

    def wall(self, cpu: float, cores: int) -> float:
        """Seconds of work on some cores."""
        return cpu * (self.serial + (1.0 - self.serial) / cores)

    def band(self, quantity: str, shape: JobShape) -> tuple[float, float]:
        """Factors of the low and the high end of an estimate, from the test runs."""
        found = self.ratios.get(ratio_key(quantity, shape), ())
        return quantile_below(found), quantile_above(found)


def ratio_key(quantity: str, shape: JobShape) -> str:
    """Key of the ratios of a quantity."""
    return quantity if shape.boundary is not None or shape.partitions == 1 else f"{quantity}, file"


def quantile_above(ratios: Sequence[float]) -> float:
    """Upper quantile: above a new value with the probability `COVERED` if there are enough (split conformal); else the

    Never below 1: an estimate is no upper bound of itself.
    """
    if not ratios:
        raise InputError("no test runs: the error of the estimate is unknown")
    ordered = sorted(ratios)
    return max(1.0, ordered[min(math.ceil(COVERED * (len(ordered) + 1)), len(ordered)) - 1])


def quantile_below(ratios: Sequence[float]) -> float:
    """Lower quantile, like `quantile_above`."""
    return 1.0 / quantile_above([1.0 / max(ratio, 1e-9) for ratio in ratios])


def least_squares(values: np.ndarray, measured: np.ndarray, floor: float) -> np.ndarray:
    """Non-negative coefficients with the least squares of relative errors.

    Parameters
    ----------
    values : float64, shape (runs, terms)
    measured : float64, shape (runs,)
    floor : float
        Minimum denominator of relative errors.
    """
    from scipy.optimize import nnls

    scale = np.maximum(measured, floor)
    sizes = np.maximum(np.abs(values).max(axis=0), 1e-300)
    found, _ = nnls(values / sizes / scale[:, None], measured / scale)
    return np.asarray(found / sizes, np.float64)


def fit(runs: Sequence[MeasuredRun]) -> Model:
    """Fit a model to the runs of one algorithm on one engine marked for fitting, and test it on the others.

    Raises
    ------
    InputError
        If there are fewer than two runs to fit or none to test.
    """
    taken = [run for run in runs if run.fitted]
    kept = [run for run in runs if not run.fitted]
    if len(taken) < 2 or not kept:
        name = f"{runs[0].shape.algorithm} on {runs[0].shape.engine}" if runs else "nothing"
        raise InputError(
            f"{name}: {len(taken)} runs to fit and {len(kept)} to test; at least 2 and 1 are required: "
            "increase --minutes, or use --resume"
        )
    median = _medians(taken)
    startup = Startup(
        median(lambda run: run.startup_cpu), median(lambda run: run.startup_seconds),
        median(lambda run: run.startup_memory), min(run.startup_cpu for run in taken),
        max(run.startup_cpu for run in taken),
    )  # fmt: skip
    cut = [run for run in taken if run.shape.partitions > 1 and run.shape.arcs]
    share = statistics.median((run.shape.boundary or 0) / run.shape.arcs for run in cut) if cut else 0.0
    usual = Usual(median(lambda run: float(run.supersteps)), share)
    known = [replace(run.shape, supersteps=max(run.supersteps, 1)) for run in taken]
    coefficients = {}
    for quantity, floor in FLOORS.items():
        terms = terms_of(quantity, taken[0].shape.algorithm)
        values = np.array([values_of(terms, shape, usual) for shape in known])
        found = least_squares(values, np.array([run.measured(quantity) for run in taken]), floor)
        coefficients[quantity] = dict(zip(terms, found.tolist(), strict=True))
    written = np.array([[run.shape.partitions, run.checkpoint_bytes] for run in taken], np.float64)
    lasting = np.array([run.checkpoint_seconds for run in taken])
    per_partition, per_byte = least_squares(written, lasting, 1e-3).tolist()
    largest = {name: max(getattr(run.shape, name) for run in taken) for name in ("vertices", "edges")}
    model = Model(startup, usual, coefficients, per_partition, per_byte, _serial(taken), largest)
    return replace(model, ratios=_ratios(model, kept))


def _medians(runs: Sequence[MeasuredRun]) -> Callable[[Callable[[MeasuredRun], float]], float]:
    return lambda of: statistics.median(map(of, runs))


def _serial(runs: Sequence[MeasuredRun]) -> float:
    """Serial share from ``seconds = cpu (s + (1 - s) / cores)``, of the half of the runs with the most work."""
    shared = sorted((run for run in runs if run.shape.workers > 1), key=lambda run: run.cpu)
    shares = [
        (run.seconds / max(run.cpu, 1e-9) - 1.0 / run.shape.workers) / (1.0 - 1.0 / run.shape.workers)
        for run in shared[len(shared) // 2 :]
    ]
    return min(1.0, max(0.0, statistics.median(shares))) if shares else 1.0


def _ratios(model: Model, runs: Sequence[MeasuredRun]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in runs:
        for shape in (run.shape, replace(run.shape, boundary=None)):
            for quantity in QUANTITIES:
                # Values that are too small to be measured have no error.
                floor = FLOORS.get(quantity, FLOORS["work"])
                ratio = max(run.measured(quantity), floor) / max(model.value(quantity, shape), floor)
                name = quantity if shape.boundary is not None else f"{quantity}, file"
                found.setdefault(name, []).append(ratio)
    return found

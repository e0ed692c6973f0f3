"""Machines whose speed and bandwidth vary: traces, and their assignment to machines.

A coefficient is observed speed (or bandwidth) over rated speed (or bandwidth). See docs/specs/provisioning.md, section
4.1; docs/specs/plasticc.md, sections 4.1 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from goffish.errors import InputError

Floats = NDArray[np.float64]
Metric = Literal["speed", "network"]

#: Length of a slot of the default traces, in seconds.
SLOT_S = 300.0
#: Seconds between two steps of the random walk of the authors' simulator.
WALK_SLOT_S = 120.0
#: Probability of leaving the high state; a share of 23 % (speed) or 22 % (bandwidth) of all slots is low.
LEAVE_HIGH = {"speed": 0.15, "network": 0.5 * 0.22 / 0.78}
LEAVE_LOW = 0.5
#: Lower limit of the random walk: a machine without speed has failed.
LEAST = 0.01


@dataclass(frozen=True, eq=False)
class Traces:
    """Coefficients over time.

    Attributes
    ----------
    values : float64, shape (traces, slots)
    slot_s : float
        Length of a slot in seconds; traces repeat after the last slot.
    """

    values: Floats
    slot_s: float = SLOT_S

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or not self.values.size:
            raise InputError("traces: expected a two-dimensional array with one row per trace and at least one slot")
        if not np.isfinite(self.values).all() or (self.values < 0).any():
            raise InputError("traces: coefficients must be finite and 0 or more")
        if not self.slot_s > 0:
            raise InputError(f"slot_s = {self.slot_s:g}: must be greater than 0")

    @cached_property
    def _sums(self) -> Floats:
        return np.concatenate((np.zeros((len(self.values), 1)), np.cumsum(self.values, axis=1)), axis=1)

    def integral(self, trace: NDArray[np.int64], slot: Floats) -> Floats:
        """Integral of a trace from its start to a position, in slots."""
        slots = self.values.shape[1]
        rounds, place = np.divmod(slot, slots)
        whole = np.minimum(place.astype(np.int64), slots - 1)
        part = self._sums[trace, whole] + (place - whole) * self.values[trace, whole]
        return np.asarray(rounds * self._sums[trace, -1] + part, np.float64)


def generate_traces(count: int, slots: int, rng: np.random.Generator, metric: Metric = "speed") -> Traces:
    """Traces like those measured on EC2: a Markov chain of a high and a low state in slots of 5 minutes (§4.1).

    Speeds have a mean of 0.85, 22.8 % of slots below 0.80, and 25.5 % of changes between neighbors above 20 %.

    Parameters
    ----------
    count, slots : int
    rng : numpy.random.Generator
    metric : {"speed", "network"}
        For bandwidth, 22 % of slots are below 0.80.
    """
    leave = LEAVE_HIGH[metric]
    offset = rng.normal(0.0, 0.03, count)
    low = rng.random(count) < leave / (leave + LEAVE_LOW)
    noise = rng.normal(0.0, 0.045, count)
    values = np.empty((count, slots))
    for at in range(slots):
        high_value = np.clip(0.92 + offset + noise, 0.80, 1.0)
        values[:, at] = np.where(low, rng.uniform(0.45, 0.76, count), high_value)
        moves = rng.random(count)
        low = np.where(low, moves >= LEAVE_LOW, moves < leave)
        noise = 0.7 * noise + rng.normal(0.0, 0.045 * np.sqrt(1 - 0.7**2), count)
    return Traces(values, SLOT_S)


def generate_walks(count: int, slots: int, rng: np.random.Generator) -> Traces:
    """Random walks of the authors' simulator: from 1, up to 0.1 up or down each 120 s; reflected at 1 and near 0."""
    steps = rng.uniform(0.0, 0.1, (count, slots)) * rng.choice([-1.0, 1.0], (count, slots))
    values = np.empty((count, slots))
    now = np.ones(count)
    for at in range(slots):
        values[:, at] = now
        now = now + steps[:, at]
        now = np.where(now > 1.0, 2.0 - now, now)
        now = np.where(now < LEAST, 2 * LEAST - now, now)
    return Traces(values, WALK_SLOT_S)


def read_traces(path: str | Path, slot_s: float = SLOT_S) -> Traces:
    """Read traces from a CSV or Parquet file with one column per trace and one row per slot."""
    return Traces(np.stack(list(read_columns(path).values())), slot_s)


@dataclass(frozen=True, eq=False)
class Variability:
    """Traces, and their assignment: every machine gets a random trace from a random slot on.

    Trace and slot depend on the seed and the machine's id only, not on other machines.

    Attributes
    ----------
    speed : Traces
    network : Traces, optional
        Traces of bandwidth; default: the rated bandwidth.
    seed : int
    """

    speed: Traces
    network: Traces | None = None
    seed: int = 0
    _places: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict, init=False, repr=False)

    def place(self, machine: int, metric: Metric = "speed") -> tuple[int, int]:
        """Trace of a machine, and its slot at second 0."""
        traces = self.speed if metric == "speed" or self.network is None else self.network
        key = (machine, int(metric == "network"))
        if key not in self._places:
            rng = np.random.default_rng([self.seed, key[1], machine])
            count, slots = traces.values.shape
            self._places[key] = (int(rng.integers(count)), int(rng.integers(slots)))
        return self._places[key]

    def speeds(self, machines: NDArray[np.int64], since_s: Floats | float, until_s: Floats | float) -> Floats:
        """Mean coefficients of machines over periods.

        Parameters
        ----------
        machines : int64, shape (machines,)
            Ids.
        since_s, until_s : float or float64, shape (machines,) or (machines, k)
            If both are equal, the coefficient at that moment.
        """
        return self._mean(self.speed, "speed", machines, since_s, until_s)

    def bandwidths(self, machines: NDArray[np.int64], since_s: Floats | float, until_s: Floats | float) -> Floats:
        """Mean bandwidth coefficients; 1 without traces of bandwidth."""
        if self.network is None:
            shape = np.broadcast_shapes(np.shape(since_s), np.shape(until_s), machines.shape)
            return np.ones(shape)
        return self._mean(self.network, "network", machines, since_s, until_s)

    def future(self, machines: NDArray[np.int64], start_s: float, step_s: float, steps: int) -> Floats:
        """Mean speed coefficients of the next intervals, shape (machines, steps), as a perfect oracle predicts them."""
        edges = start_s + step_s * np.arange(steps + 1)
        columns = [self.speeds(machines, a, b) for a, b in pairwise(edges.tolist())]
        return np.stack(columns, axis=1) if columns else np.empty((machines.size, 0))

    @property
    def slots_s(self) -> tuple[float, ...]:
        """Lengths of the slots at whose ends a coefficient can change."""
        found = {t.slot_s for t in (self.speed, self.network) if t is not None and t.values.shape[1] > 1}
        return tuple(sorted(found))

    def _mean(
        self, traces: Traces, metric: Metric, machines: NDArray[np.int64], since: Floats | float, until: Floats | float
    ) -> Floats:
        if not machines.size:
            return np.zeros(0)
        places = np.array([self.place(int(machine), metric) for machine in machines], np.int64)
        first = np.asarray(since, np.float64) / traces.slot_s
        last = np.asarray(until, np.float64) / traces.slot_s
        length = last - first
        low = traces.integral(places[:, 0], places[:, 1] + first)
        high = traces.integral(places[:, 0], places[:, 1] + last)
        # A moment belongs to the slot that begins with it; the slack keeps 299.9999... out of the previous slot.
        slots = traces.values.shape[1]
        moment = traces.values[places[:, 0], np.floor(places[:, 1] + first + 1e-9).astype(np.int64) % slots]
        return np.where(length > 0, (high - low) / np.where(length > 0, length, 1.0), moment)


def steady() -> Variability:
    """Machines that always run at their rated speed."""
    return Variability(Traces(np.ones((1, 1))))


def like_ec2(seed: int = 0, *, count: int = 20, slots: int = 2000, network: bool = True) -> Variability:
    """Variability as measured on EC2: generated traces of speed and bandwidth.

    See docs/specs/plasticc.md, section 4.2.
    """
    rng = np.random.default_rng([seed, 4242])
    speed = generate_traces(count, slots, rng)
    return Variability(speed, generate_traces(count, slots, rng, "network") if network else None, seed)


def read_columns(path: str | Path) -> dict[str, NDArray[np.float64]]:
    """Read the columns of a CSV (with a header) or Parquet file.

    Raises
    ------
    InputError
        If the file cannot be read, has no rows, or contains anything but finite numbers of 0 or more.
    """
    path = Path(path)
    try:
        table = pa.parquet.read_table(path) if _is_parquet(path) else pa.csv.read_csv(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None
    if not table.num_rows or not table.num_columns:
        raise InputError(f"{path}: no rows; expected one series per column")
    found = {}
    for name in table.column_names:
        column = table[name]
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) or column.null_count:
            raise InputError(f"{path}: column {name} must contain a number in every row")
        values = column.to_numpy().astype(np.float64)
        if not np.isfinite(values).all() or (values < 0).any():
            raise InputError(f"{path}: column {name}: numbers must be finite and 0 or more")
        found[name] = values
    return found


def _is_parquet(path: Path) -> bool:
    return path.suffix in (".parquet", ".pq")

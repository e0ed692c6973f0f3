"""The counters of a run: what every superstep and partition did, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goffish.errors import InputError

#: One row per superstep and partition.
STEP_SCHEMA = pa.schema(
    [
        ("superstep", pa.int64()),
        ("partition", pa.int64()),
        ("active", pa.int64()),  # subgraphs whose compute was called
        ("messages", pa.int64()),  # sent by the program
        ("combined", pa.int64()),  # left after the combiner
        ("remote", pa.int64()),  # of these, sent to another partition
        ("remote_bytes", pa.int64()),
        ("start", pa.float64()),  # seconds since the run began
        ("end", pa.float64()),
        ("busy", pa.float64()),  # seconds of compute, added over threads
    ]
)


@dataclass(frozen=True)
class RunStats:
    """Counters of one run.

    Attributes
    ----------
    program, engine : str
    partitions, threads, subgraphs : int
    supersteps : int
        Supersteps in which at least one `compute` was called (docs/specs/engine.md, section 2, counting).
    steps : pyarrow.Table
        Columns of `STEP_SCHEMA`.
    phases : mapping of str to float
        Wall seconds of load, init, compute, exchange, checkpoint and result.
    aggregates : mapping of str to value
        What the aggregators held after the last superstep in which somebody contributed.
    edge_cut : float or None
        Share of arcs that cross subgraphs of different partitions, where the partitioner reported it.
    ranks : int
        Processes that shared the work; `threads` are those of all of them together.
    """

    program: str
    engine: str
    partitions: int
    threads: int
    subgraphs: int
    supersteps: int
    steps: pa.Table
    phases: Mapping[str, float] = field(default_factory=dict)
    edge_cut: float | None = None
    aggregates: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 1

    def total(self, column: str) -> int:
        """Sum of a counter over the run."""
        return int(pc.sum(self.steps.column(column)).as_py() or 0)

    @property
    def messages(self) -> int:
        return self.total("messages")

    def per_superstep(self, column: str) -> np.ndarray[Any, np.dtype[Any]]:
        """A counter summed over partitions, one value per superstep."""
        steps = self.steps.column("superstep").to_numpy()
        values = self.steps.column(column).to_numpy()
        return np.bincount(steps, values, self.supersteps + 1)[1:]

    def busy_per_partition(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Seconds of compute of each partition."""
        partition, busy = (self.steps.column(name).to_numpy() for name in ("partition", "busy"))
        return np.bincount(partition, busy, self.partitions).astype(np.float64, copy=False)

    @property
    def imbalance(self) -> float:
        """Largest over mean compute time of the partitions; 1 is perfect."""
        busy = self.busy_per_partition()
        return float(busy.max() / busy.mean()) if busy.size and busy.mean() > 0 else 1.0

    @property
    def idle_share(self) -> float:
        """Share of the threads' time that the compute phase left unused (docs/specs/engine.md, section 5.9)."""
        capacity = self.threads * self.phases.get("compute", 0.0)
        return max(0.0, 1.0 - float(self.busy_per_partition().sum()) / capacity) if capacity > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for ``--json``."""
        return {
            "program": self.program,
            "engine": self.engine,
            "ranks": self.ranks,
            "partitions": self.partitions,
            "threads": self.threads,
            "subgraphs": self.subgraphs,
            "supersteps": self.supersteps,
            **{name: self.total(name) for name in ("messages", "combined", "remote", "remote_bytes")},
            "edge_cut": self.edge_cut,
            "imbalance": self.imbalance,
            "idle_share": self.idle_share,
            "aggregates": dict(self.aggregates),
            "phases": dict(self.phases),
            "steps": self.steps.to_pylist(),
        }

    @classmethod
    def from_dict(cls, values: Any) -> RunStats:
        """The inverse of `to_dict`: counters from the JSON of ``goffish run --json`` or ``--stats-file``.

        Raises
        ------
        InputError
            Something is missing or is not what `to_dict` writes; the message names it.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"run counters: expected an object, not {type(values).__name__}")
        needed = ("program", "engine", "partitions", "threads", "subgraphs", "supersteps", "steps", "phases")
        missing = [name for name in needed if name not in values]
        if missing:
            raise InputError(f"run counters: {', '.join(map(repr, missing))} missing")
        whole = {name: values[name] for name in ("partitions", "threads", "subgraphs", "supersteps")}
        whole["ranks"] = values.get("ranks", 1)
        for name, value in whole.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InputError(f"run counters: {name}={value!r} is not a count")
        edge_cut = values.get("edge_cut")
        try:
            phases = {str(name): float(seconds) for name, seconds in values["phases"].items()}
            edge_cut = None if edge_cut is None else float(edge_cut)
        except (AttributeError, TypeError, ValueError):
            raise InputError("run counters: 'phases' or 'edge_cut' does not hold numbers") from None
        steps = _step_table(values["steps"], whole["supersteps"], whole["partitions"])
        final = dict(values.get("aggregates") or {})
        program, engine = str(values["program"]), str(values["engine"])
        return cls(program, engine, **whole, steps=steps, phases=phases, edge_cut=edge_cut, aggregates=final)


def _step_table(rows: Any, supersteps: int, partitions: int) -> pa.Table:
    try:
        steps = pa.Table.from_pylist(rows, schema=STEP_SCHEMA)
    except (AttributeError, TypeError, pa.ArrowException) as error:
        raise InputError(f"run counters: 'steps' is not a list of counter rows ({error})") from None
    for name in STEP_SCHEMA.names:
        if steps.column(name).null_count:
            raise InputError(f"run counters: 'steps' has rows without {name!r}")
    for name, low, high in (("superstep", 1, supersteps), ("partition", 0, partitions - 1)):
        numbers = steps.column(name).to_numpy()
        if numbers.size and not (numbers.min() >= low and numbers.max() <= high):
            raise InputError(f"run counters: 'steps' has a {name} outside {low} … {high}")
    return steps

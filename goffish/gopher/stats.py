"""Counters of a run: work, messages and time of every superstep and partition."""

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
    """Counters of one run of the engine.

    Attributes
    ----------
    program, engine : str
        Name of the program and of the engine ("local", "mpi" or "spark").
    partitions, threads, subgraphs : int
        Numbers of partitions, of threads (of all processes) and of subgraphs.
    supersteps : int
        Number of supersteps in which at least one `compute` was called (docs/specs/engine.md, section 2).
    steps : pyarrow.Table
        One row per superstep and partition: ``superstep``, ``partition``, ``active`` (subgraphs that ran), ``messages``
        (sent by the program), ``combined`` (left after the combiner), ``remote`` (of these, to other partitions),
        ``remote_bytes``, ``start`` and ``end`` (seconds since the run began), and ``busy`` (seconds of compute, added
        over threads).
    phases : mapping of str to float
        Wall-clock seconds of load, init, compute, exchange, checkpoint and result.
    aggregates : mapping of str to value
        Aggregators after the last superstep with a contribution.
    edge_cut : float or None
        Share of arcs between subgraphs of different partitions, if the partitioner reported it.
    ranks : int
        Number of processes that shared the work.
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
        """Sum a counter over the run.

        Parameters
        ----------
        column : str
            Column of `steps`, such as ``"messages"``.

        Returns
        -------
        int
            The sum over supersteps and partitions.
        """
        return int(pc.sum(self.steps.column(column)).as_py() or 0)

    @property
    def messages(self) -> int:
        """Number of messages sent by the program."""
        return self.total("messages")

    def per_superstep(self, column: str) -> np.ndarray[Any, np.dtype[Any]]:
        """Sum a counter over partitions.

        Parameters
        ----------
        column : str
            Column of `steps`, such as ``"messages"``.

        Returns
        -------
        float64, shape (supersteps,)
            One value per superstep.
        """
        steps = self.steps.column("superstep").to_numpy()
        values = self.steps.column(column).to_numpy()
        return np.bincount(steps, values, self.supersteps + 1)[1:]

    def busy_per_partition(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the compute time of each partition.

        Returns
        -------
        float64, shape (partitions,)
            Seconds, added over threads.
        """
        partition, busy = (self.steps.column(name).to_numpy() for name in ("partition", "busy"))
        return np.bincount(partition, busy, self.partitions).astype(np.float64, copy=False)

    @property
    def imbalance(self) -> float:
        """Maximum compute time of a partition over the mean; 1 is perfect balance."""
        busy = self.busy_per_partition()
        return float(busy.max() / busy.mean()) if busy.size and busy.mean() > 0 else 1.0

    @property
    def idle_share(self) -> float:
        """Share of the threads' time that the compute phase did not use (docs/specs/engine.md, section 5.9)."""
        capacity = self.threads * self.phases.get("compute", 0.0)
        return max(0.0, 1.0 - float(self.busy_per_partition().sum()) / capacity) if capacity > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Convert the counters to plain values, as in ``goffish run --json``.

        Returns
        -------
        dict
            All attributes, the totals of the message counters, ``imbalance`` and ``idle_share``.
        """
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
        """Restore counters from `to_dict`, or from the JSON of ``goffish run --json`` or ``--stats-file``.

        Parameters
        ----------
        values : mapping
            What `to_dict` returned.

        Returns
        -------
        RunStats
            The counters.

        Raises
        ------
        InputError
            If an entry is missing or invalid; the message names it.
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

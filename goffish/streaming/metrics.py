"""Metrics of a running flow, as a table and as a mapping."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from goffish.notebook import facts_html, rows_html


@dataclass(frozen=True)
class OperatorMetrics:
    """Metrics of one operator.

    Attributes
    ----------
    operator, kind : str
    alternate : str or None
        The active implementation.
    received, sent : int
        Records since the first run on the checkpoint folder.
    rate : float
        Records received per second in this run.
    busy : float
        Seconds in the operator in this run.
    queue : int
        Records that wait.
    late : int
        Records behind the watermark of their window.
    errors : int
        Records that could not be processed.
    """

    operator: str
    kind: str
    alternate: str | None
    received: int
    sent: int
    rate: float
    busy: float
    queue: int
    late: int
    errors: int


@dataclass(frozen=True)
class Metrics:
    """Metrics of a run.

    Attributes
    ----------
    flow : str
    stopped : {"running", "finished", "until", "stopped", "interrupted", "terminated"}
        Why the run ended: its sources did, `until` held, `Run.stop` was called, or SIGINT or SIGTERM was received.
    seconds : float
        Duration of this run.
    checkpoint : int or None
        Number of the last checkpoint.
    operators : tuple of OperatorMetrics

    Examples
    --------
    >>> import goffish as gf
    >>> flow = gf.stream.Flow("numbers")
    >>> _ = flow.source(gf.stream.generate(5)).filter(lambda n: n > 2, name="large").sink(gf.stream.collect())
    >>> metrics = flow.run()
    >>> metrics["large"].received, metrics["large"].sent
    (5, 2)
    """

    flow: str
    stopped: str
    seconds: float
    checkpoint: int | None
    operators: tuple[OperatorMetrics, ...]

    def __getitem__(self, operator: str) -> OperatorMetrics:
        return next(one for one in self.operators if one.operator == operator)

    @property
    def records(self) -> int:
        """Records that the sources have sent."""
        return sum(one.sent for one in self.operators if one.kind == "source")

    @property
    def table(self) -> pa.Table:
        """One row for each operator."""
        return pa.Table.from_pylist([asdict(one) for one in self.operators])

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as a mapping for JSON.

        Returns
        -------
        dict
        """
        return asdict(self) | {"operators": [asdict(one) for one in self.operators]}

    def _repr_html_(self) -> str:
        facts = {"stopped": self.stopped, "seconds": self.seconds, "checkpoint": self.checkpoint}
        names = list(asdict(self.operators[0]))
        rows = [list(asdict(one).values()) for one in self.operators]
        return facts_html(self.flow, facts) + rows_html(names, rows, len(rows))

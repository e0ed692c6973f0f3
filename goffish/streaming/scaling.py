"""How a scheduling policy drives a flow of a user."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goffish.cloud.catalogue import Billing, Catalogue, MachineType
from goffish.gofs.times import Duration


@dataclass(frozen=True)
class Scaling:
    """How a scheduling policy chooses machines, workers and alternates of a flow while it runs.

    Rates, costs and selectivities are measured; costs and values that the flow gives are the beginning, and the
    relation between alternates.

    Parameters
    ----------
    policy : str
        ``goffish plan --policies`` lists them; or ``file.py:Class``.
    elements : sequence of str
        Operators that get workers of their own, with what follows them [default: those with alternates or a cost].
    cloud : str, optional
        Catalogue of machine types: a file, or a bundled name. Machines are simulated by processes of this computer, as
        fast as the catalogue says [default: as many machines of one core as this computer has, for one core-hour per
        hour].
    interval : str, float or timedelta
        Time between two decisions.
    throughput : float
        Share of the records that the flow must keep up with, from 0 to 1.
    options : mapping of str to object
        Of the policy.
    output : str or Path, optional
        Folder for what was measured and decided, as Parquet files.

    Examples
    --------
    >>> import goffish as gf
    >>> gf.stream.Scaling("ds2", interval="30 s").throughput
    0.95
    """

    policy: str = "reactive-global"
    elements: Sequence[str] = ()
    cloud: str | None = None
    interval: Duration = 60.0
    throughput: float = 0.95
    options: Mapping[str, Any] = field(default_factory=dict)
    output: str | Path | None = None


def this_computer(least: int) -> Catalogue:
    """Return the processors of this computer as machines of one core, but at least so many."""
    processors = max(len(os.sched_getaffinity(0)), least)
    core = MachineType(name="core", cores=1, price_per_hour=1.0, market="local", limit=processors)
    return Catalogue(
        classes=(core,), billing=Billing(quantum_s=1.0), startup_s=1.0, limit=processors, currency="core-hours"
    )

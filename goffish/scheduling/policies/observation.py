"""Observations, and the protocol of scheduler policies.

A policy is a pure function of an `Observation` and of its memory: it reads no clock and no files, and uses no random
numbers other than those of its seed. The simulator, the service and the tests call the same functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import Floats, Flow


class Forecast(NamedTuple):
    """Predictions for the next intervals.

    Attributes
    ----------
    step : int
        The first predicted interval.
    rates : float64, shape (horizon, elements)
        External input, messages per second.
    speeds : mapping from machine id to float64, shape (horizon,)
        Coefficients: speed over rated speed. Machines that are not listed have the mean of the observed ones.
    bandwidths : mapping from machine id to float64, shape (horizon,)
        Bandwidth over rated bandwidth; machines that are not listed have the rated bandwidth.
    """

    step: int
    rates: Floats
    speeds: Mapping[int, Floats]
    bandwidths: Mapping[int, Floats] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Observation:
    """The information of a policy at the start of an interval.

    Attributes
    ----------
    flow, catalogue
        The dataflow (with its goal), and the machine types to rent.
    step, steps : int
        Number of the interval that begins, and the number of intervals.
    interval_s : float
    live : Deployment
        The running deployment without failed machines, with the coefficients of the last interval.
    omegas : float64, shape (step,)
        Relative throughput of the intervals so far.
    rates : float64, shape (step, elements)
        External input of the intervals so far.
    speeds : mapping from machine id to float64
        Coefficients observed since the start of each machine, the last interval last.
    queue : float64, shape (elements,)
        Queued messages.
    spent : float
        Cost so far.
    forecast : Forecast, optional
        The latest forecast.
    failed : int
        Number of machines that failed in the last interval.
    bandwidths : mapping from machine id to float
        Observed over rated bandwidth in the last interval; machines that are not listed have the rated bandwidth.
    """

    flow: Flow
    catalogue: Catalogue
    step: int
    steps: int
    interval_s: float
    live: Deployment
    omegas: Floats
    rates: Floats
    speeds: Mapping[int, Floats] = field(default_factory=dict)
    queue: Floats = field(default_factory=lambda: np.zeros(0))
    spent: float = 0.0
    forecast: Forecast | None = None
    failed: int = 0
    bandwidths: Mapping[int, float] = field(default_factory=dict)

    @property
    def observed(self) -> Floats:
        """External input of the last interval; before the first one, the expected rates."""
        return self.rates[-1] if len(self.rates) else self.flow.rates

    @property
    def omega(self) -> float:
        """Relative throughput of the last interval; 1 before the first one."""
        return float(self.omegas[-1]) if len(self.omegas) else 1.0


class Policy(Protocol):
    """A scheduler policy: deploys and adapts a dataflow."""

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """Return the first deployment, for rated speeds and expected rates; all its machines are planned."""
        ...

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """Return the deployment of the interval that begins, and the new memory; `memory` is ``None`` at first.

        Machines of the live deployment that are missing in the result are released; planned machines (negative ids) are
        requested.
        """
        ...


def __getattr__(name: str) -> Any:
    if name == "Situation":
        warnings.warn("Situation is now Observation", DeprecationWarning, stacklevel=2)
        return Observation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

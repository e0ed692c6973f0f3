"""What a policy knows when it decides, and what a policy is.

A policy is a function of an `Observation` and of what it remembered; it has no clock, reads no file and draws no number
that it was not given. The simulator, the service and the tests call the same one.
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
    """What is expected of the next intervals.

    Attributes
    ----------
    step : int
        The first interval that it speaks of.
    rates : float64, shape (horizon, elements)
        External input, messages per second.
    speeds : mapping from machine id to float64, shape (horizon,)
        Coefficients: speed over rated speed. Machines that are not named have the mean of those that are observed.
    bandwidths : mapping from machine id to float64, shape (horizon,)
        Bandwidth over rated bandwidth; machines that are not named have the rated one.
    """

    step: int
    rates: Floats
    speeds: Mapping[int, Floats]
    bandwidths: Mapping[int, Floats] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Observation:
    """What is known at the beginning of an interval.

    Attributes
    ----------
    flow, catalogue
        The dataflow (with its goal) and what can be rented.
    step, steps : int
        Number of the interval that begins, and of all.
    interval_s : float
    live : Deployment
        What runs, with the coefficients observed in the last interval; a failed machine is gone.
    omegas : float64, shape (step,)
        Relative throughput of the intervals so far.
    rates : float64, shape (step, elements)
        External input of the intervals so far.
    speeds : mapping from machine id to float64
        Coefficients observed so far, the last interval last; as long as the machine is old.
    queue : float64, shape (elements,)
        Messages that wait.
    spent : float
        Cost so far.
    forecast : Forecast, optional
        The newest one.
    failed : int
        Machines that failed in the last interval.
    bandwidths : mapping from machine id to float
        Observed over rated bandwidth in the last interval; machines that are not named have the rated one.
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
        """External input of the last interval; before the first one what the definition expects."""
        return self.rates[-1] if len(self.rates) else self.flow.rates

    @property
    def omega(self) -> float:
        """Relative throughput of the last interval; 1 before the first one."""
        return float(self.omegas[-1]) if len(self.omegas) else 1.0


class Policy(Protocol):
    """How a dataflow is deployed and adapted."""

    def deploy(self, flow: Flow, catalogue: Catalogue) -> Deployment:
        """The first deployment, from rated speeds and expected rates; all its machines are planned."""
        ...

    def adapt(self, observation: Observation, memory: Any) -> tuple[Deployment, Any]:
        """The deployment of the interval that begins, and what to be remembered; `memory` is ``None`` at first.

        Machines of the live deployment that are missing in the answer are released, planned ones (negative ids) asked
        for.
        """
        ...


def __getattr__(name: str) -> Any:
    if name == "Situation":
        warnings.warn("Situation is now Observation", DeprecationWarning, stacklevel=2)
        return Observation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

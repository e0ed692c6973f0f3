"""Machine types that are available or not, and the slots of their markets. See docs/specs/spot.md, section 6.14."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE, Trace, in_slots
from goffish.scheduling.spot.estimate import Estimator, estimate_class
from goffish.scheduling.spot.model import SpotClass

#: Minutes of a slot; they divide an hour.
SLOT_MINUTES = (1, 2, 3, 4, 5, 6, 10)
#: Accepted share by which rounding to slots extends start-up and checkpoint.
WASTE = 0.1


def availability_class(
    trace: Trace,
    speed: int,
    on_demand: float,
    slot_s: float,
    spot_price: float,
    *,
    estimator: Estimator = "slot",
    name: str | None = None,
    ages: int | None = None,
) -> SpotClass:
    """Estimate a machine type with two bins, available and not, and the only bid `ANY_PRICE`.

    Parameters
    ----------
    trace : Trace
        From `Availability.trace`.
    speed : int
        Units of work in a slot.
    on_demand, spot_price : float
        Prices of an hour.
    slot_s : float
    estimator, ages
        As for `estimate_class`.
    name : str, optional
        Default: the name of the trace.

    Notes
    -----
    Counts of the starts of slots (``slot`` and ``semi``) miss times without machines in between. These become the
    hazard: their share of the slots that begin and end with machines. ``recent`` has it already; with ``paper`` and
    ``level`` they are changes of the chain.
    """
    found = estimate_class(
        trace, speed, on_demand, slot_s, bids=np.array([ANY_PRICE]), estimator=estimator,
        hazard=_missed(trace, slot_s) if estimator in ("slot", "semi") else 0.0, name=name, ages=ages,
    )  # fmt: skip
    if trace.prices.size == 1 and estimator in ("paper", "level"):
        # A state that never occurred is left at once.
        found = replace(found, chain=np.tile(np.eye(2)[int(trace.prices[0] > ANY_PRICE)], (2, 1)))
    return replace(found, levels=np.array([spot_price, UNAVAILABLE]))


def _missed(trace: Trace, slot_s: float) -> float:
    """Share of the slots that begin and end with machines, but have a time without."""
    slots = in_slots([trace], slot_s, trace.start, trace.end)
    free = slots.prices[:, 0] < ANY_PRICE
    calm = free[:-1] & free[1:]
    return float((slots.peaks[calm, 0] > ANY_PRICE).mean()) if calm.any() else 0.0


def slots_for(startup_s: float, checkpoint_s: float) -> Iterator[float]:
    """Return suitable slots in seconds, the best one first, then longer ones.

    The best one is the longest in which start-up and checkpoint, rounded up to slots, take at most `WASTE` longer than
    they do; a minute if there is none.
    """
    wanted = startup_s + checkpoint_s
    spans = [60.0 * minutes for minutes in SLOT_MINUTES]
    rounded = [sum(slot * max(1.0, np.ceil(s / slot - 1e-9)) for s in (startup_s, checkpoint_s)) for slot in spans]
    best = max((at for at, taken in enumerate(rounded) if taken <= (1 + WASTE) * wanted), default=0)
    return iter(spans[best:])

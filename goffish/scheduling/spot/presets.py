"""Market presets: the paper's market, EC2 today by operating system, and a market without bids.

See docs/specs/spot.md, sections 6.14 and 6.5 (O-6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.billing import Rule
from goffish.cloud.prices import Trace
from goffish.errors import InputError
from goffish.scheduling.spot.estimate import Estimator, estimate_class, most_probable_bids, quantile_bids
from goffish.scheduling.spot.model import Market, SpotClass, work_units

Floats = NDArray[np.float64]
BidRule = Literal["most-probable", "quantiles", "none"]

#: Hours of a mean month, for interruption frequencies.
MONTH_S = 365.25 / 12 * 86_400.0
HOUR_S = 3600.0


class Times(NamedTuple):
    """Length of a slot, and delays of a job.

    Attributes
    ----------
    slot_s : float
        Seconds; divides an hour.
    startup_s, checkpoint_s : float
        Seconds, rounded up to slots, at least one.
    """

    slot_s: float = 600.0
    startup_s: float = 600.0
    checkpoint_s: float = 600.0


TEN_MINUTES = Times()


@dataclass(frozen=True)
class Preset:
    """Rules of a market.

    Attributes
    ----------
    spot_billing, on_demand_billing : str
        Rules of `billing.automaton`.
    notice_s : float
        Seconds between the notice and the end of a spot machine; a job whose checkpoint fits into this time resumes
        from its progress at the start of the slot.
    startup_billed : bool
    bids : {"most-probable", "quantiles", "none"}
        The four most probable prices + $0.001; the prices not exceeded for 50, 75 and 90 % of the time and the
        on-demand price; or no bidding: a constant price, and interruptions by the hazard only.
    """

    spot_billing: Rule
    on_demand_billing: Rule
    notice_s: float
    startup_billed: bool
    bids: BidRule


#: `paper-2012`: EC2 with bids. `ec2-linux`: EC2 today; the first hour is free if it is interrupted, otherwise
#: billing is by the second. `ec2-suse`: EC2 with SUSE Linux, by the hour. `no-bid`: as Linux, without prices. `ec2`: as
#: `no-bid`, by the second from the start, which is an upper bound on EC2 and allows short slots.
PRESETS: dict[str, Preset] = {
    "paper-2012": Preset("hourly", "hourly", 0.0, False, "most-probable"),
    "ec2-linux": Preset("first_hour_free", "per_second", 120.0, True, "quantiles"),
    "ec2-suse": Preset("hourly", "hourly", 120.0, True, "quantiles"),
    "no-bid": Preset("first_hour_free", "per_second", 120.0, True, "none"),
    "ec2": Preset("per_second", "per_second", 120.0, True, "none"),
}


def monthly_hazard(frequency: float, slot_s: float) -> float:
    """Convert a monthly probability of interruption to that of a slot: ``1 - (1 - q)^(slot / month)``.

    Published frequencies of interruption are rough; prefer your own measurements.

    Raises
    ------
    InputError
        If `frequency` is not from 0 to below 1.
    """
    if not 0 <= frequency < 1 or not slot_s > 0:
        raise InputError(
            f"frequency = {frequency:g}, slot_s = {slot_s:g}: must be from 0 to below 1, and greater than 0"
        )
    return float(-np.expm1(np.log1p(-frequency) * slot_s / MONTH_S))


def market_from(
    preset: str,
    histories: Sequence[Trace | SpotClass],
    cores: Sequence[int],
    on_demand: Sequence[float],
    *,
    times: Times = TEN_MINUTES,
    hazards: Sequence[float] | None = None,
    bids: Sequence[Floats] | None = None,
    estimator: Estimator = "paper",
) -> Market:
    """Create a market of a preset from price histories.

    Parameters
    ----------
    preset : {"paper-2012", "ec2-linux", "ec2-suse", "no-bid", "ec2"}
    histories : sequence of Trace or SpotClass
        One per machine type, for training. A `SpotClass` is used unchanged, except for its speed and on-demand price.
    cores : sequence of int
        Cores of each machine type; the unit of work is a slot of their greatest common divisor.
    on_demand : sequence of float
        On-demand price of an hour of each machine type.
    times : Times
    hazards : sequence of float, optional
        Probability of an interruption of each machine type in a slot at any price (`monthly_hazard`); default: 0, or
        that of the `SpotClass`.
    bids : sequence of float64, optional
        Bids of each machine type, instead of the preset's rule.
    estimator : {"recent", "paper", "level", "slot", "semi"}
        Estimator of the chains.

    Raises
    ------
    InputError
        If the preset is unknown, names are not unique, numbers are inconsistent, or a history is too short.
    """
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; accepted: {', '.join(PRESETS)}")
    rules, count = PRESETS[preset], len(histories)
    slot_s, startup_s, checkpoint_s = times
    given = {"cores": cores, "on_demand": on_demand, "hazards": hazards, "bids": bids}
    for name, values in given.items():
        if values is not None and len(values) != count:
            raise InputError(f"{name}: expected {count} values, one for each machine type, found {len(values)}")
    hour = round(HOUR_S / slot_s) if slot_s > 0 else 0
    if hour < 1 or abs(hour * slot_s - HOUR_S) > 1e-9 * HOUR_S:
        raise InputError(f"slot_s = {slot_s:g}: an hour must be a whole number of slots")
    if not startup_s >= 0 or not checkpoint_s >= 0:
        raise InputError(f"startup_s = {startup_s:g}, checkpoint_s = {checkpoint_s:g}: must be 0 or more")
    if bids is not None and rules.bids == "none":
        raise InputError(f"bids: not available in the market {preset}")
    speeds, unit = work_units(list(cores), hour)
    classes = []
    for at, history in enumerate(histories):
        price, hazard = float(on_demand[at]), None if hazards is None else float(hazards[at])
        if isinstance(history, SpotClass):
            risk = history.hazard if hazard is None else hazard
            classes.append(replace(history, speed=speeds[at], on_demand=price, hazard=risk))
            continue
        wanted = None if bids is None else bids[at]
        classes.append(_class(rules.bids, history, speeds[at], price, slot_s, wanted, estimator, hazard or 0.0, count))
    return Market(
        tuple(classes),
        hour,
        unit,
        spot_billing=rules.spot_billing,
        on_demand_billing=rules.on_demand_billing,
        startup_slots=_slots(startup_s, slot_s),
        checkpoint_slots=_slots(checkpoint_s, slot_s),
        notice=0 < rules.notice_s >= checkpoint_s,
        startup_billed=rules.startup_billed,
    )


def _slots(seconds: float, slot_s: float) -> int:
    return max(1, int(np.ceil(seconds / slot_s - 1e-9)))


def _class(
    rule: BidRule,
    trace: Trace,
    speed: int,
    on_demand: float,
    slot_s: float,
    bids: Floats | None,
    estimator: Estimator,
    hazard: float,
    types: int,
) -> SpotClass:
    """A machine type from its history; `types`: number of machine types of the market."""
    if rule == "none":
        one = np.ones((1, 1))
        covers = np.zeros(1, np.int64)
        return SpotClass(trace.name, speed, on_demand, np.zeros(0), np.array([trace.mean]), one, covers, hazard)
    if bids is None:
        bids = most_probable_bids(trace) if rule == "most-probable" else quantile_bids(trace, on_demand)
    return estimate_class(
        trace, speed, on_demand, slot_s, bids=np.asarray(bids, np.float64), estimator=estimator, hazard=hazard,
        ages=1 if estimator == "recent" and types > 1 else None,
    )  # fmt: skip

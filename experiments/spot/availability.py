"""Traces of whether spot machines were to be had: the SkyPilot spot traces of "Can't Be Late" (NSDI 2024).

A file holds one number every ``gap_seconds``: how many machines of so many there were. Files of two kinds:

availability
    A machine was asked for from time to time (every ten minutes) and given back at once: 1 if it was granted. A machine
    that runs all the time may live on where a new one is refused, so these traces are approximations (their §2.1).
preemption
    Machines were kept running, and asked for again whenever they were taken: how many ran. Times of start-up count as
    0, some files hold prices as well, and those of several machines count up to their number. A job that needs them
    all has spot only where all ran (their §5.5), which is what is read here.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices, Trace, in_slots, trace_of
from goffish.errors import FormatError, InputError
from goffish.scheduling.spot.estimate import Estimator, estimate_class
from goffish.scheduling.spot.model import SpotClass

_DATE = re.compile(r"(\d\d)-(\d\d)-(\d{4})")


@dataclass(frozen=True, eq=False)
class Availability:
    """Whether spot machines were to be had, at equal distances in time.

    Attributes
    ----------
    values : int8, shape (observations,)
        1 where they were, 0 where not. Each holds until the next one.
    gap_s : float
        Seconds between two of them.
    start : float
        Of the first one, in seconds since 1970; the file's name tells the day only.
    name : str
    """

    values: NDArray[np.int8]
    gap_s: float
    start: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or not self.values.size or not np.isin(self.values, (0, 1)).all():
            raise InputError(f"availability {self.name}: needs at least one value, each 0 or 1")
        if not 0 < self.gap_s < np.inf:
            raise InputError(f"availability {self.name}: {self.gap_s:g} s between values; must be more than 0")

    @property
    def end(self) -> float:
        """Until when the last value holds."""
        return self.start + self.gap_s * self.values.size

    @property
    def share(self) -> float:
        """Of the time in which machines were to be had."""
        return float(self.values.mean())

    def trace(self, spot_price: float, unavailable_price: float) -> Trace:
        """The same as a price that no bid covers where there was no machine.

        Parameters
        ----------
        spot_price : float
            Of an hour, where there were machines.
        unavailable_price : float
            Greater than every bid.
        """
        if not 0 <= spot_price < unavailable_price < np.inf:
            raise InputError(
                f"prices {spot_price:g} and {unavailable_price:g}: that of times without machines must be the greater"
            )
        times = self.start + self.gap_s * np.arange(self.values.size + 1.0)
        prices = np.where(np.append(self.values, self.values[-1]) == 1, spot_price, unavailable_price)
        return trace_of(times, prices, self.name)

    def in_slots(
        self,
        slot_s: float,
        spot_price: float,
        unavailable_price: float,
        first: float | None = None,
        last: float | None = None,
    ) -> SlotPrices:
        """The same in slots, for `replay`.

        In a slot in which there was a moment without machines, its end included, a machine is taken away whatever the
        bid. Where there was none at its start, none can be had: the price exceeds the bids.

        Parameters
        ----------
        slot_s : float
        spot_price, unavailable_price : float
            As for `trace`.
        first, last : float, optional
            Part of the time, in seconds since 1970; default: all.
        """
        trace = self.trace(spot_price, unavailable_price)
        found = in_slots([trace], slot_s, self.start if first is None else first, self.end if last is None else last)
        return SlotPrices(found.prices, np.where(found.peaks > spot_price, np.inf, found.peaks))

    def between(self, first: float, last: float) -> Availability:
        """The values in force from one time to another."""
        begin = int(np.floor((first - self.start) / self.gap_s))
        stop = int(np.ceil((last - self.start) / self.gap_s))
        if not 0 <= begin < stop <= self.values.size:
            raise InputError(f"availability {self.name}: does not reach from {first:g} s to {last:g} s")
        return Availability(self.values[begin:stop], self.gap_s, self.start + begin * self.gap_s, self.name)

    def spot_class(
        self,
        speed: int,
        on_demand: float,
        slot_s: float,
        spot_price: float,
        *,
        estimator: Estimator = "slot",
        name: str | None = None,
    ) -> SpotClass:
        """A class with one bid, the price on demand, and the chain of whether there are machines.

        Parameters
        ----------
        speed : int
            Units of work in a slot.
        on_demand, spot_price : float
            Prices of an hour.
        slot_s : float
        estimator : {"paper", "level", "slot", "semi"}
            As for `estimate_class`: "paper" leaves both bins with one probability, the others each with its own.
        name : str, optional
            Default: the trace's.

        Notes
        -----
        The chain says how slots begin. Moments without machines within a slot, which it cannot see, become the class's
        hazard: their share of the slots that begin and end with machines. With "paper" and "level" they are changes of
        the chain already, and the hazard is 0.
        """
        if not spot_price < on_demand:
            raise InputError(f"spot costs {spot_price:g}, on demand {on_demand:g}: spot must be cheaper")
        trace = self.trace(spot_price, 2.0 * on_demand)
        hazard = 0.0
        if estimator == "slot":
            slots = self.in_slots(slot_s, spot_price, 2.0 * on_demand)
            free = slots.prices[:, 0] == spot_price
            calm = free[:-1] & free[1:]
            hazard = float(np.isinf(slots.peaks[calm, 0]).mean()) if calm.any() else 0.0
        return estimate_class(
            trace, speed, on_demand, slot_s, bids=np.array([on_demand]), estimator=estimator, hazard=hazard, name=name
        )


def read_availability(path: str | Path, machines: int | None = None) -> Availability:
    """A trace of the SkyPilot spot traces (JSON, ``.gz`` is unpacked).

    Parameters
    ----------
    path : path
        With ``{"metadata": {"gap_seconds": ...}, "data": [...]}``; other keys are ignored.
    machines : int, optional
        How many are needed at a time; default: the greatest number in the file, at least 1.

    Raises
    ------
    InputError
        If the file cannot be read, or is none of these; `FormatError` names the value.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: availability cannot be read ({error})") from None
    try:
        found = json.loads(text)
        gap, counts = float(found["metadata"]["gap_seconds"]), np.asarray(found["data"])
    except json.JSONDecodeError as error:
        raise FormatError(path, error.lineno, f"is no spot trace ({error.msg})") from None
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, None, f"is no spot trace: metadata.gap_seconds and data are needed ({error})") from None
    if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "iu" or counts.min() < 0:
        raise FormatError(path, None, "data must be numbers of machines, 0 or more")
    needed = max(1, int(counts.max())) if machines is None else machines
    if needed < 1:
        raise InputError(f"machines = {needed}: at least one is needed")
    name = path.name.split(".json")[0]
    day = _DATE.search(name)
    start = 0.0
    if day is not None:
        month, date, year = (int(part) for part in day.groups())
        start = datetime(year, month, date, tzinfo=UTC).timestamp()
    return Availability((counts >= needed).astype(np.int8), gap, start, name)

"""Costs and interruptions of the machines of a catalogue, from the price traces of its machine types.

A spot machine is granted and kept while its price does not exceed its bid. Each quantum costs the price at its start.
Times are seconds since the start of a run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.availability import read_availability
from goffish.cloud.billing import billed_quanta, rent
from goffish.cloud.catalogue import Catalogue, MachineType
from goffish.cloud.price_files import read_prices
from goffish.cloud.prices import ANY_PRICE, Trace, bundled_trace, bundled_traces, moment_text
from goffish.errors import InputError

Floats = NDArray[np.float64]
_HOUR_S = 3600.0


class SpotMarket:
    """The prices of a catalogue's machine types over time.

    Parameters
    ----------
    catalogue : Catalogue
    since : float, optional
        Start of the run in seconds since 1970 (UTC); default: the earliest time that all traces cover.
    length_s : float
        Minimum length of the traces, in seconds.

    Attributes
    ----------
    since : float

    Raises
    ------
    InputError
        If prices cannot be read or do not cover the run.
    """

    def __init__(self, catalogue: Catalogue, since: float | None = None, length_s: float = 0.0) -> None:
        self.catalogue = catalogue
        traces = {kind: machine_trace(found) for kind, found in enumerate(catalogue.classes) if found.market == "spot"}
        begin = max((trace.start for trace in traces.values()), default=0.0) if since is None else since
        for trace in traces.values():
            if not trace.start <= begin or begin + length_s > trace.end:
                raise InputError(
                    f"prices {trace.name} reach from {moment_text(trace.start)} to {moment_text(trace.end)}, not from "
                    f"{moment_text(begin)} for {length_s / _HOUR_S:g} hours"
                )
        self.since = begin
        self._traces = {
            kind: Trace(trace.times - begin, trace.prices, trace.end - begin, trace.name)
            for kind, trace in traces.items()
        }
        self._bids = {
            kind: ANY_PRICE if found.availability else found.price_per_hour if found.bid is None else found.bid
            for kind, found in enumerate(catalogue.classes)
        }
        self._known: dict[tuple[float, ...], Catalogue] = {}

    def priced(self, now: float) -> Catalogue:
        """Return the catalogue with the prices of a moment; types that are not granted then are not available."""
        if not self._traces:
            return self.catalogue
        prices = tuple(float(trace.at(np.array([now]))[0]) for trace in self._traces.values())
        if prices not in self._known:
            classes = list(self.catalogue.classes)
            for kind, price in zip(self._traces, prices, strict=True):
                change = {"price_per_hour": price, "available": price <= self._bids[kind]}
                classes[kind] = classes[kind].model_copy(update=change)
            self._known[prices] = self.catalogue.with_classes(tuple(classes))
        return self._known[prices]

    def taken_s(self, kind: int, since: float) -> float:
        """Time of the interruption of a machine requested at `since`: at once if not granted, infinite if never."""
        if kind not in self._traces:
            return np.inf
        trace = self._traces[kind]
        first = int(np.searchsorted(trace.times, since, "right")) - 1
        above = np.flatnonzero(trace.prices[first:] > self._bids[kind])
        return max(since, float(trace.times[first + above[0]])) if above.size else np.inf

    def rents(self, kinds: NDArray[np.int64], starts: Floats, stops: Floats, taken: NDArray[np.bool_]) -> Floats:
        """Costs of machines that ran from one second to another.

        `taken`: whether each ended by an interruption.
        """
        elapsed, billing = np.maximum(0.0, stops - starts), self.catalogue.billing
        found = rent(elapsed, self.catalogue.prices[kinds], billing)
        quanta = billed_quanta(elapsed, billing)
        if billing.cut_off == "free":
            quanta = np.where(taken, np.maximum(quanta - 1, 0), quanta)
        elif billing.cut_off == "first-hour-free":
            quanta = np.where(taken & (elapsed < _HOUR_S), 0, quanta)
        for at in np.flatnonzero(np.isin(kinds, list(self._traces))).tolist():
            found[at] = self._paid(int(kinds[at]), float(starts[at]), float(quanta[at]))
        return np.asarray(found, np.float64)

    def _paid(self, kind: int, start: float, quanta: float) -> float:
        """Sum of the prices at the starts of this many quanta."""
        trace, quantum = self._traces[kind], self.catalogue.billing.quantum_s
        first = int(np.searchsorted(trace.times, start, "right")) - 1
        last = int(np.searchsorted(trace.times, start + quanta * quantum, "left"))
        begun = np.ceil((trace.times[first:last] - start) / quantum).clip(0.0, quanta)
        counts = np.diff(begun, append=quanta)
        return float(counts @ trace.prices[first:last]) * quantum / _HOUR_S


def spot_price(machine: MachineType, first: float, last: float) -> float:
    """Spot price of an hour of a machine type with `availability`.

    Its `spot_price_per_hour`, or the mean of its `prices` between two times; if they do not reach there, of all.
    """
    if machine.spot_price_per_hour is not None:
        return machine.spot_price_per_hour
    trace = read_trace(str(machine.prices))
    begin, end = max(first, trace.start), min(last, trace.end)
    return trace.between(begin, end).mean if begin < end else trace.mean


def machine_trace(machine: MachineType) -> Trace:
    """Read the prices of a spot machine type: its `prices`, or those of `Availability.trace`.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    if machine.availability is None:
        return read_trace(str(machine.prices))
    found = read_availability(machine.availability)
    return found.trace(spot_price(machine, found.start, found.end))


def read_trace(name: str) -> Trace:
    """Read a price file, or a bundled trace by its name.

    Raises
    ------
    InputError
        If no file or bundled trace has this name, or the file cannot be read.
    """
    if name in bundled_traces():
        return bundled_trace(name)
    if not Path(name).exists():
        raise InputError(
            f"prices: no file {name!r}, in the folder of the catalogue or here, and no bundled trace of that name "
            f"({', '.join(bundled_traces())}); "
            "save a history with: aws ec2 describe-spot-price-history"
        )
    found = read_prices(name)
    if len(found) > 1:
        raise InputError(f"{name}: contains prices of {len(found)} machine types; give a file with one of them")
    return next(iter(found.values()))

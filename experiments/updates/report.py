"""What an update did cost, from columns of what the sinks emitted.

See docs/specs/updates.md, section 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.updates.routing import Header, Update
from goffish.errors import InputError
from goffish.streaming.updates.bounds import Bounds
from goffish.streaming.updates.versions import Strategy

#: A window of throughput below this share of the rate before the update is a dip.
DIP = 0.95


class Emissions(NamedTuple):
    """What the sinks emitted, a row for each message in order of time.

    Attributes
    ----------
    times : float64 array
        Seconds.
    versions : int64 array
        Stamps of the sources.
    traces : int64 array
        Positions in `distinct`.
    distinct : sequence of int
        The different traces.
    """

    times: NDArray[np.float64]
    versions: NDArray[np.int64]
    traces: NDArray[np.int64]
    distinct: Sequence[int]

    @classmethod
    def of(cls, times: Sequence[float], headers: Sequence[Header]) -> Emissions:
        """Make the columns from one header for each message."""
        places: dict[int, int] = {}
        codes = [places.setdefault(header.trace, len(places)) for header in headers]
        versions = [header.version for header in headers]
        return cls(np.array(times, np.float64), np.array(versions, np.int64), np.array(codes, np.int64), list(places))


@dataclass(frozen=True)
class Cost:
    """What an update did cost, in seconds after its request.

    Attributes
    ----------
    refresh, lag : float or None
        By the stamp under NCL, NCH and MVC, by the trace under HTI and PVC; as in `Bounds`.
    stamp_refresh, stamp_lag, trace_refresh, trace_lag : float or None
        Both attributions.
    outage : float
        Longest time without output after the request.
    lowest_throughput : float
        Least share of the rate before the update in a window.
    dip : float
        Seconds of windows below 95 % of that rate, in total.
    mixed : int
        Outputs with parts of both versions: violations of C1.
    lost : int
        Messages that were discarded.
    """

    refresh: float | None
    lag: float
    stamp_refresh: float | None
    stamp_lag: float
    trace_refresh: float | None
    trace_lag: float
    outage: float
    lowest_throughput: float
    dip: float
    mixed: int
    lost: int

    def to_dict(self) -> dict[str, Any]:
        """Return one row of a table."""
        return asdict(self)

    def against(self, bounds: Bounds) -> list[dict[str, Any]]:
        """Return a row for each metric that has a bound: metric, bound, measured, and whether it holds."""
        pairs = {
            "refresh": (bounds.refresh, self.refresh),
            "lag": (bounds.lag, self.lag),
            "outage": (bounds.lag + bounds.outage, self.outage),  # outputs may end before the drain does
            "loss": (bounds.loss, self.lost),
        }
        if not bounds.outage:  # the time between two outputs is not an outage
            del pairs["outage"]
        return [
            {"metric": name, "bound": bound, "measured": found, "holds": _holds(bound, found)}
            for name, (bound, found) in pairs.items()
        ]


def _holds(bound: float | None, found: float | None) -> bool:
    return bound is None or (found is not None and found <= bound + 1e-9)


def measure(
    update: Update, requested: float, emitted: Emissions, *, lost: int = 0, merged: int = 0, window: float = 1.0
) -> Cost:
    """Measure what an update did cost.

    Parameters
    ----------
    update : Update
    requested : float
        Time of the request.
    emitted : Emissions
        From some windows before the request until the update was complete, and the first output after.
    lost : int
        Messages that were discarded.
    merged : int
        Batches of the old version that joined the new one (`PartialWindow.MERGE`): their traces do not show it.
    window : float
        Seconds over which throughput is measured.

    Returns
    -------
    Cost

    Raises
    ------
    InputError
        The window is not positive, or the times are not in order.

    Examples
    --------
    >>> from goffish.streaming.updates.versions import Numbering, Version
    >>> versions = [Version.of(n, {"read": 1, "write": n}, [("read", "write")]) for n in (1, 2)]
    >>> update = Update(Strategy.MVC, *versions, Numbering({}).extended(versions[0]).extended(versions[1]))
    >>> old, new = update.numbering.mask(versions[0].parts), update.numbering.mask(versions[1].parts)
    >>> headers = [Header(1, old, 0, 0.0)] * 4 + [Header(2, new, 0, 0.0)] * 4
    >>> cost = measure(update, 2.2, Emissions.of([0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4], headers))
    >>> round(cost.refresh, 3), cost.lag, cost.mixed
    (0.3, 0.0, 0)
    """
    if not window > 0:
        raise InputError(f"report of an update: window must be positive, not {window:g} s")
    times = emitted.times
    if np.any(np.diff(times) < 0):
        raise InputError("report of an update: outputs must be in order of time")
    is_old = np.array([bool(trace & update.old_mask) for trace in emitted.distinct], np.bool_)
    is_new = np.array([bool(trace & update.new_mask) for trace in emitted.distinct], np.bool_)
    after = times > requested

    def first(chosen: NDArray[np.bool_]) -> float | None:
        found = times[chosen & after]
        return float(found[0] - requested) if found.size else None

    def last(chosen: NDArray[np.bool_]) -> float:
        found = times[chosen & after]
        return float(found[-1] - requested) if found.size else 0.0

    stamps = first(emitted.versions == update.new.number), last(emitted.versions < update.new.number)
    traces = first(is_new[emitted.traces]), last(is_old[emitted.traces])
    refresh, lag = traces if update.strategy in (Strategy.HTI, Strategy.PVC) else stamps
    gaps = np.diff(times[after], prepend=requested)
    lowest, dip = _throughput(times, requested, window)
    mixed = int(np.count_nonzero((is_old & is_new)[emitted.traces])) + merged
    outage = float(gaps.max()) if gaps.size else 0.0
    return Cost(refresh, lag, *stamps, *traces, outage, lowest, dip, mixed, lost)


def _throughput(times: NDArray[np.float64], requested: float, window: float) -> tuple[float, float]:
    """Return the least share of the earlier rate in a window after the request, and the time of low windows."""
    before = times[times <= requested]
    windows = int((requested - before[0]) // window) if before.size else 0
    later = int((times[-1] - requested) // window) if times.size else 0
    steady = np.count_nonzero(before > requested - windows * window) / max(1, windows)
    if not steady or not later:
        return 1.0, 0.0
    edges = requested + window * np.arange(later + 1)
    shares = np.histogram(times, edges)[0] / steady
    return float(min(1.0, shares.min())), float(np.count_nonzero(shares < DIP) * window)

"""Spot markets fitted to the spot machine types of a catalogue and their price histories.

See docs/specs/spot.md, sections 3.1, 6.5 (O-6) and 6.12 (O-15).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from goffish.cloud.availability import read_availability
from goffish.cloud.catalogue import Catalogue, MachineType
from goffish.cloud.prices import ANY_PRICE, UNAVAILABLE, SlotPrices, Trace, in_slots, moment_text
from goffish.cloud.spot_market import machine_trace, read_trace, spot_price
from goffish.errors import InputError
from goffish.partial import output_file
from goffish.scheduling.spot.agent import ALARM, evidence
from goffish.scheduling.spot.availability import availability_class, slots_for
from goffish.scheduling.spot.estimate import Estimator, bin_correlation, estimate_joint, log_likelihood
from goffish.scheduling.spot.files import market_of
from goffish.scheduling.spot.model import Local, Market, SpotClass
from goffish.scheduling.spot.presets import Times, market_from, monthly_hazard
from goffish.scheduling.spot.sizes import MOST_VALUES, values_of_jobs

FORMAT, VERSION = "goffish-spot-market", 1
#: Share of the history, at its end, that estimators are compared on; the chosen one is fitted to all of it.
JUDGED = 0.2
HOUR_S = 3600.0
#: Last part of the prices after a history that is compared with it.
LATELY_S = 2 * 86_400.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted market, and its sources.

    Attributes
    ----------
    market : Market
    prices : tuple of str
        File or trace name of each machine type: its prices, or its availability.
    first, last : float
        Start and end of the history, in seconds since 1970.
    estimator : str
    likelihoods : dict from estimator to float
        Mean log-likelihood of a slot of the test part, summed over machine types; empty if the estimator was given.
    correlation : list of list of float
        Correlation of the bins of the machine types; types are modeled as independent.
    """

    market: Market
    prices: tuple[str, ...]
    first: float
    last: float
    estimator: str
    likelihoods: dict[str, float]
    correlation: list[list[float]]

    @property
    def slot_s(self) -> float:
        """Length of a slot in seconds."""
        return HOUR_S / self.market.slots_per_hour

    def history(self) -> SlotPrices:
        """Prices of the history in slots."""
        return in_slots(self.traces(), self.slot_s, self.first, self.last)

    def traces(self, first: float | None = None, last: float | None = None) -> list[Trace]:
        """Prices of the machine types; default: those of the history, or from `first` to the end of the prices."""
        found = [
            read_availability(name).trace(float(one.levels[0])) if one.by_availability else read_trace(name)
            for name, one in zip(self.prices, self.market.classes, strict=True)
        ]
        begin = self.first if first is None else first
        end = self.last if first is None else min(trace.end for trace in found)
        return [trace.between(begin, end if last is None else last) for trace in found]


class OwnMachine(NamedTuple):
    """A local machine.

    Attributes
    ----------
    cores : int
    cost : float
        Cost of moving a job's data to it, which takes a slot.
    """

    cores: int
    cost: float = 0.0


class FitTimes(NamedTuple):
    """Times of a market, in seconds; those that are not given have defaults.

    Attributes
    ----------
    slot_s : float, optional
        Default: 10 minutes; with availability, `slots_for` the other times, longer if tables of the longest job would
        have more than `MOST_VALUES`.
    startup_s : float, optional
        Default: start-up time of the catalogue.
    checkpoint_s : float, optional
        Default: 10 minutes; with availability, 2 minutes.
    job_hours : float
        Length of the longest job.
    """

    slot_s: float | None = None
    startup_s: float | None = None
    checkpoint_s: float | None = None
    job_hours: float = 24.0

    def spans(self, startup_s: float, *, available: bool) -> list[Times]:
        """Times to try, the best ones first.

        Raises
        ------
        InputError
            If a time is negative or not finite, or the slot is 0.
        """
        for name, seconds in self._asdict().items():
            if seconds is not None and not 0 <= seconds < np.inf:
                raise InputError(f"{name} = {seconds:g}: must be 0 or more, and finite")
        if self.slot_s == 0 or self.job_hours == 0:
            raise InputError("slot_s and job_hours must be greater than 0")
        startup = startup_s if self.startup_s is None else self.startup_s
        usual = 120.0 if available else 600.0
        checkpoint = usual if self.checkpoint_s is None else self.checkpoint_s
        if self.slot_s is not None or not available:
            return [Times(600.0 if self.slot_s is None else self.slot_s, startup, checkpoint)]
        return [Times(slot_s, startup, checkpoint) for slot_s in slots_for(startup, checkpoint)]


DEFAULT_TIMES = FitTimes()


def with_availability(
    catalogue: Catalogue, files: Sequence[tuple[str | None, str]], zones: Sequence[str] | None = None
) -> Catalogue:
    """Return a catalogue whose spot machine types have these availability files, and are in some zones.

    Parameters
    ----------
    catalogue : Catalogue
    files : sequence of (str or None, str)
        Machine type and file. ``TYPE/ZONE`` adds a copy of a machine type for a zone, which replaces the type itself;
        None is the only spot machine type.
    zones : sequence of str, optional
        Default: all.

    Raises
    ------
    InputError
        If a machine type or zone is unknown, a machine type is given twice, or None is ambiguous.
    """
    spot = {one.name: one for one in catalogue.classes if one.market == "spot"}
    names, made, zoned = list(spot), dict(spot), set()
    known = f"the catalogue has: {', '.join(names) or 'none'}"
    for name, path in files:
        if name is None and len(names) != 1:
            raise InputError(f"--availability {path}: give TYPE={path} with a spot machine type; {known}")
        own = names[0] if name is None else name
        base, _, zone = (own, "", "") if own in spot else own.rpartition("/")
        if base not in spot or not (own == base or re.fullmatch(r"[A-Za-z0-9_.:-]+", zone)):
            raise InputError(f"--availability {own}={path}: unknown spot machine type {own!r}; {known}")
        if made.get(own, spot[base]) is not spot[base]:
            raise InputError(f"--availability {own}={path}: the machine type has a file already")
        change = {"name": own, "availability": path, "bid": None} | ({"zone": zone} if zone else {})
        made[own] = spot[base].model_copy(update=change)
        zoned |= {base} if zone else set()
    kept = [one for name, one in made.items() if name not in zoned or one is not spot[name]]
    there = sorted({one.zone for one in kept if one.zone is not None})
    unknown = next((zone for zone in zones or () if zone not in there), None)
    if unknown is not None:
        raise InputError(f"unknown zone {unknown!r}; the catalogue has: {', '.join(there) or 'none'}")
    kept = [one for one in kept if zones is None or one.zone in zones]
    return catalogue.with_classes((*(one for one in catalogue.classes if one.market != "spot"), *kept))


def _chosen(catalogue: Catalogue, classes: list[str] | None) -> list[MachineType]:
    """The machine types of a market."""
    spot = [c for c in catalogue.classes if c.market == "spot"]
    names = [c.name for c in spot]
    for name in classes or ():
        if name not in names:
            raise InputError(f"unknown spot machine type {name!r}; the catalogue has: {', '.join(names) or 'none'}")
    usual = [c for c in spot if c.availability is not None] or spot
    chosen = usual if classes is None else [c for c in spot if c.name in classes]
    if not chosen:
        raise InputError("the catalogue has no spot machine types (market: spot)")
    return chosen


def fit_market(
    catalogue: Catalogue,
    classes: list[str] | None = None,
    period: tuple[float | None, float | None] = (None, None),
    *,
    preset: str | None = None,
    estimator: Estimator | Literal["auto"] | None = None,
    times: FitTimes = DEFAULT_TIMES,
    monthly_loss: float = 0.0,
    local: OwnMachine | None = None,
    dependent: bool = False,
    late_penalty: float | None = None,
) -> Fitted:
    """Fit a market to price histories, or to the availability of machine types.

    Parameters
    ----------
    catalogue : Catalogue
        Catalogue with spot machine types; speeds are rounded down to whole reference cores.
    classes : list of str, optional
        Names of the machine types; default: those with availability, or all spot types.
    period : (float, float), optional
        Start and end within the histories, in seconds since 1970; default: the common period.
    preset : str, optional
        A name of `presets.PRESETS`; default: ``ec2`` with availability, ``ec2-linux`` with prices.
    estimator : str, optional
        Estimator of the chains; ``auto`` chooses, of those with the same bins, the one with the highest likelihood of
        the last fifth of the history. Default: ``recent``, and with the preset paper-2012 ``auto``.
    times : FitTimes
    monthly_loss : float
        Probability of a spot interruption in a month at any price.
    local : OwnMachine, optional
        Default: no local machine.
    dependent : bool
        Whether the prices of the machine types move together, as in the history (O-15).
    late_penalty : float, optional
        Penalty for each core-hour left at the deadline (O-14); default: the deadline is hard.

    Raises
    ------
    InputError
        If the catalogue has no spot machine types, a name is not a spot type, or prices do not cover the period.
    """
    chosen = _chosen(catalogue, classes)
    # Files from any later working folder.
    files = [str(c.availability or c.prices) for c in chosen]
    sources = tuple(str(Path(name).absolute()) if Path(name).exists() else name for name in files)
    traces = [machine_trace(c) for c in chosen]
    first, last = period
    begin = max(t.start for t in traces) if first is None else first
    end = min(t.end for t in traces) if last is None else last
    if first is None and last is None and not begin < end:
        late, early = max(traces, key=lambda t: t.start), min(traces, key=lambda t: t.end)
        raise InputError(
            f"no common period: {late.name} starts at {moment_text(late.start)}, {early.name} ends at "
            f"{moment_text(early.end)}; choose machine types with --machine-type"
        )
    worth = [None if c.availability is None else spot_price(c, begin, end) for c in chosen]
    # Machine types have the names of the catalogue, whatever the names of their files.
    parts = [
        replace(_priced(t.between(begin, end), price), name=c.name)
        for t, price, c in zip(traces, worth, chosen, strict=True)
    ]
    cores = [max(1, int(c.power + 1e-9)) for c in chosen]
    if local is not None and (local.cores < 1 or not local.cost >= 0):
        raise InputError(
            f"local machine: {local.cores} cores at {local.cost:g}; expected at least 1 core and a cost of 0 or more"
        )
    known = get_args(Estimator)
    if estimator is None:
        estimator = "auto" if preset == "paper-2012" else "recent"
    if estimator != "auto" and estimator not in known:
        raise InputError(f"unknown estimator {estimator!r}; accepted: auto, {', '.join(known)}")
    tried = times.spans(catalogue.startup_s, available=any(price is not None for price in worth))
    available = any(price is not None for price in worth)
    rules = preset or ("ec2" if available else "ec2-linux")

    def made(one: Estimator, histories: list[Trace], spans: Times, ages: int | None = None) -> Market:
        slot_s = spans.slot_s
        loss = monthly_hazard(monthly_loss, slot_s) if monthly_loss else 0.0
        fitted: list[Trace | SpotClass] = [
            trace
            if price is None
            else availability_class(trace, 1, c.price_per_hour, slot_s, price, estimator=one, ages=ages)
            for trace, price, c in zip(histories, worth, chosen, strict=True)
        ]
        hazards = [loss if isinstance(c, Trace) else 1.0 - (1.0 - c.hazard) * (1.0 - loss) for c in fitted]
        market = market_from(
            rules, fitted, cores, [c.price_per_hour for c in chosen], times=spans, estimator=one, hazards=hazards
        )
        return replace(
            market,
            local=_local(market, min(cores), local),
            joint_chain=estimate_joint(histories, market.classes, slot_s) if dependent else None,
            late_penalty=None if late_penalty is None else late_penalty * market.unit,
        )

    candidates: list[Estimator] = [one for one in known if one != "recent"] if estimator == "auto" else [estimator]
    # Fewer ages rather than longer slots.
    numbers = [None] if estimator != "recent" else [None, 3, 1] if len(chosen) == 1 else [1]
    likelihoods: dict[str, float] = {}
    split = end - JUDGED * (end - begin)
    for spans in tried:
        if estimator == "auto":
            train = [t.between(begin, split) for t in parts]
            judged = [t.between(split, end) for t in parts]
            slots = max(1.0, (end - split) // spans.slot_s)
            for one in candidates:
                market = made(one, train, spans)
                likelihoods[one] = sum(
                    log_likelihood(c, t, spans.slot_s) / slots for c, t in zip(market.classes, judged, strict=True)
                )
            candidates.sort(key=lambda one: -likelihoods[one])
        markets = [made(one, parts, spans, ages) for one in candidates for ages in numbers]
        small = [values_of_jobs(market, times.job_hours) <= MOST_VALUES for market in markets]
        if any(small):
            break
    # A price market has the slot that is given, or the default, whatever the size of its tables.
    at = small.index(True) if available and any(small) else 0
    market = markets[at]
    correlation = bin_correlation(parts, market.classes, spans.slot_s)
    best = candidates[at // len(numbers)]
    return Fitted(market, sources, begin, end, best, likelihoods, np.asarray(correlation).tolist())


def _priced(trace: Trace, price: float | None) -> Trace:
    """A trace of availability at another price; None: unchanged."""
    if price is None:
        return trace
    return replace(trace, prices=np.where(trace.prices == UNAVAILABLE, UNAVAILABLE, price))


def _local(market: Market, cores: int, local: OwnMachine | None) -> Local | None:
    """The local machine in units of the market: `cores` is the size of the slowest machine type."""
    if local is None:
        return None
    slowest = min(one.speed for one in market.classes)
    return Local(max(1, local.cores * slowest // cores), 1, local.cost)


def write_fitted(path: str | Path, fitted: Fitted) -> None:
    """Write a fitted market as JSON, atomically."""
    body: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "market": fitted.market.fingerprint(),
        "prices": [_beside(name, Path(path)) for name in fitted.prices],
        "first": fitted.first,
        "last": fitted.last,
        "period": f"{moment_text(fitted.first)} to {moment_text(fitted.last)} UTC",
        "estimator": fitted.estimator,
        "likelihoods": fitted.likelihoods,
        "correlation": fitted.correlation,
    }
    with output_file(path) as partial:
        partial.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def _beside(name: str, market: Path) -> str:
    """Path of a price file relative to the folder of a market if it is below it, so that both can be moved."""
    folder = market.absolute().parent
    return str(Path(name).relative_to(folder)) if Path(name).is_relative_to(folder) else name


def read_fitted(path: str | Path) -> Fitted:
    """Read a fitted market.

    Raises
    ------
    InputError
        If the file cannot be read, or was not written by `write_fitted`.
    """
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
        if body.get("format") != FORMAT or body.get("version") != VERSION:
            raise InputError(f"{path}: is not a spot market of version {VERSION}; create one with goffish spot fit")
        folder = Path(path).absolute().parent
        prices = tuple(str(folder / name) if (folder / name).is_file() else name for name in body["prices"])
        return Fitted(
            market_of(body["market"]), prices, float(body["first"]), float(body["last"]),
            body["estimator"], body["likelihoods"], body["correlation"],
        )  # fmt: skip
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is not a spot market ({error}); create one with goffish spot fit") from None


def prices_of(
    fitted: Fitted,
    given: Mapping[str, float],
    available: Mapping[str, bool] | None = None,
    *,
    fields: tuple[str, str] = ("prices", "available"),
) -> tuple[list[float], list[int]]:
    """Current prices of the machine types, and the number of slots that each has been in its bin.

    Parameters
    ----------
    fitted : Fitted
    given : mapping
        Prices by machine type; the others have the last price of the history. A price in another bin counts as new.
    available : mapping, optional
        Whether machine types are available; default: as at the end of the history.
    fields : (str, str)
        Names of `given` and `available` in errors.

    Raises
    ------
    InputError
        If a machine type is not part of the market, or a price is out of range or for a machine type without bids.
    """
    classes, there = fitted.market.classes, available or {}
    names = [one.name for one in classes]
    for field, known in zip(fields, (given, there), strict=True):
        unknown = next((name for name in known if name not in names), None)
        if unknown is not None:
            raise InputError(f"{field}: unknown machine type {unknown!r}; accepted: {', '.join(names)}")
    for name, price in given.items():
        if classes[names.index(name)].without_bids:
            raise InputError(f"{fields[0]}: {name}: this market has no bids, and prices are constant; give {fields[1]}")
        if not 0 <= price < ANY_PRICE:
            raise InputError(f"{fields[0]}: {name}={price:g}; must be at least 0 and less than {ANY_PRICE:g}")
    traces = fitted.traces()
    history = in_slots(traces, fitted.slot_s, max(fitted.first, fitted.last - 48 * 3600.0), fitted.last)
    ages = fitted.market.ages_of(history.prices)[-1].tolist()
    prices = [float(trace.prices[-1]) for trace in traces]
    for at, (name, one) in enumerate(zip(names, classes, strict=True)):
        now = given.get(name, prices[at])
        if name in there and not there[name]:
            now = UNAVAILABLE
        elif name in there and now == UNAVAILABLE:
            now = float(one.levels[0])
        if one.bins_of(np.array([now])) != one.bins_of(np.array([prices[at]])):
            ages[at] = 0
        prices[at] = now
    return prices, ages


def doubts(fitted: Fitted, prices: Sequence[float]) -> list[str]:
    """Return reasons for which advice at these prices may not hold; none in a market like that of the history.

    Parameters
    ----------
    fitted : Fitted
    prices : sequence of float
        Current price of each machine type.
    """
    found = []
    for one, trace, price in zip(fitted.market.classes, fitted.traces(), prices, strict=True):
        low, high = float(trace.prices.min()), float(trace.prices.max())
        if not one.by_availability and not low <= price <= high:
            found.append(f"{one.name}: the price {price:g} is outside the range of the history, {low:g} to {high:g}")
    for one, trace in zip(fitted.market.classes, fitted.traces(fitted.first), strict=True):
        if trace.end < fitted.last + 2 * fitted.slot_s:
            continue
        begin = max(fitted.last, trace.end - LATELY_S)
        if evidence(one, in_slots([trace], fitted.slot_s, begin, trace.end).prices[:, 0]) > ALARM:
            what = "availability" if one.by_availability else "the price"
            found.append(f"{one.name}: lately {what} changes otherwise than in the history; fit the market again")
    return found

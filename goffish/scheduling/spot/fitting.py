"""Spot markets fitted to the spot machine types of a catalogue and their price histories.

See docs/specs/spot.md, sections 3.1, 6.5 (O-6) and 6.12 (O-15).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.prices import Trace, in_slots, moment_text
from goffish.cloud.spot_market import read_trace
from goffish.errors import InputError
from goffish.partial import local_path, partial_file
from goffish.scheduling.spot.estimate import Estimator, bin_correlation, estimate_joint, log_likelihood
from goffish.scheduling.spot.files import market_of
from goffish.scheduling.spot.model import Local, Market
from goffish.scheduling.spot.presets import Times, market_from

FORMAT, VERSION = "goffish-spot-market", 1
#: Share of the history, at its end, that estimators are compared on; the chosen one is fitted to all of it.
JUDGED = 0.2
HOUR_S = 3600.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted market, and its sources.

    Attributes
    ----------
    market : Market
    prices : tuple of str
        File or trace name of each machine type.
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

    def traces(self, first: float | None = None, last: float | None = None) -> list[Trace]:
        """Prices of the machine types; default: those of the history."""
        begin, end = self.first if first is None else first, self.last if last is None else last
        return [read_trace(name).between(begin, end) for name in self.prices]


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


def fit_market(
    catalogue: Catalogue,
    classes: list[str] | None = None,
    period: tuple[float | None, float | None] = (None, None),
    *,
    preset: str = "ec2-linux",
    estimator: Estimator | Literal["auto"] = "auto",
    times: Times | None = None,
    hazard: float = 0.0,
    local: OwnMachine | None = None,
    dependent: bool = False,
    late_penalty: float | None = None,
) -> Fitted:
    """Fit a market to price histories.

    Parameters
    ----------
    catalogue : Catalogue
        Catalogue with spot machine types; speeds are rounded down to whole reference cores.
    classes : list of str, optional
        Names of the machine types; default: all spot types.
    period : (float, float), optional
        Start and end within the histories, in seconds since 1970; default: the common period.
    preset : str
        A name of `presets.PRESETS`.
    estimator : str
        Estimator of the price chains; ``auto`` chooses the one with the highest likelihood of the last fifth of the
        history.
    times : Times, optional
        Default: slots and checkpoints of 10 minutes, and the start-up time of the catalogue.
    hazard : float
        Probability of a spot interruption in a slot at any price.
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
    spot = [c for c in catalogue.classes if c.market == "spot" and c.prices is not None]
    names = [c.name for c in spot]
    for name in classes or ():
        if name not in names:
            raise InputError(f"unknown spot machine type {name!r}; the catalogue has: {', '.join(names) or 'none'}")
    chosen = [c for c in spot if classes is None or c.name in classes]
    if not chosen:
        raise InputError("the catalogue has no spot machine types (market: spot, prices: …)")
    # In the form that `read_trace` reads, from any later working folder.
    sources = tuple(
        str(Path(str(c.prices)).absolute()) if Path(str(c.prices)).exists() else str(c.prices) for c in chosen
    )
    traces = [read_trace(name) for name in sources]
    first, last = period
    begin = max(t.start for t in traces) if first is None else first
    end = min(t.end for t in traces) if last is None else last
    # Machine types have the names of the catalogue, whatever the names of their files.
    parts = [replace(t.between(begin, end), name=c.name) for t, c in zip(traces, chosen, strict=True)]
    cores = [max(1, int(c.power + 1e-9)) for c in chosen]
    if local is not None and (local.cores < 1 or not local.cost >= 0):
        raise InputError(
            f"local machine: {local.cores} cores at {local.cost:g}; expected at least 1 core and a cost of 0 or more"
        )
    spans = Times(startup_s=catalogue.startup_s) if times is None else times
    slot_s = spans.slot_s

    def made(one: Estimator, histories: list[Trace]) -> Market:
        market = market_from(
            preset, histories, cores, [c.price_per_hour for c in chosen], times=spans, estimator=one,
            hazards=[hazard] * len(chosen),
        )  # fmt: skip
        return replace(
            market,
            local=_local(market, min(cores), local),
            joint_chain=estimate_joint(histories, market.classes, slot_s) if dependent else None,
            late_penalty=None if late_penalty is None else late_penalty * market.unit,
        )

    likelihoods: dict[str, float] = {}
    if estimator == "auto":
        split = end - JUDGED * (end - begin)
        train = [t.between(begin, split) for t in parts]
        judged = [t.between(split, end) for t in parts]
        slots = max(1.0, (end - split) // slot_s)
        for one in get_args(Estimator):
            market = made(one, train)
            likelihoods[one] = sum(
                log_likelihood(c, t, slot_s) / slots for c, t in zip(market.classes, judged, strict=True)
            )
    known = get_args(Estimator)
    if estimator != "auto" and estimator not in known:
        raise InputError(f"unknown estimator {estimator!r}; accepted: auto, {', '.join(known)}")
    best: Estimator = max(known, key=lambda one: likelihoods[one]) if estimator == "auto" else estimator
    market = made(best, parts)
    correlation = bin_correlation(parts, market.classes, slot_s)
    return Fitted(market, sources, begin, end, best, likelihoods, np.asarray(correlation).tolist())


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
    with partial_file(local_path(path)) as partial:
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


def prices_of(fitted: Fitted, given: Mapping[str, float]) -> tuple[list[float], list[int]]:
    """Current prices of the machine types, and the number of slots that each has been in its bin.

    Parameters
    ----------
    fitted : Fitted
    given : mapping
        Prices by machine type; the others have the last price of the history. A price in another bin counts as new.

    Raises
    ------
    InputError
        If a machine type is not part of the market.
    """
    classes = fitted.market.classes
    names = [one.name for one in classes]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise InputError(f"prices: unknown machine type {unknown!r}; accepted: {', '.join(names)}")
    traces = fitted.traces()
    history = in_slots(traces, fitted.slot_s, max(fitted.first, fitted.last - 48 * 3600.0), fitted.last)
    ages = fitted.market.ages_of(history.prices)[-1].tolist()
    prices = [float(trace.prices[-1]) for trace in traces]
    for at, (name, one) in enumerate(zip(names, classes, strict=True)):
        if name in given:
            if one.bins_of(np.array([given[name]])) != one.bins_of(np.array([prices[at]])):
                ages[at] = 0
            prices[at] = given[name]
    return prices, ages

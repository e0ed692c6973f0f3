"""Shared code of the ``goffish spot`` commands: parsing of options and formatting of results."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import GoffishWarning, InputError

if TYPE_CHECKING:
    from goffish.scheduling.spot.advice import Advice
    from goffish.scheduling.spot.fitting import Fitted
    from goffish.scheduling.spot.job import Status
    from goffish.scheduling.spot.model import SpotClass
    from goffish.scheduling.spot.table import Table


#: Maximum hours, and core-hours of a job, as in the service.
_MOST = 1e6


def strategy_for(path: str | None, fitted: Fitted, work: int, slots: int) -> Table:
    """Read the strategy table from a file, or build one for this job."""
    from goffish.scheduling.spot.files import open_table
    from goffish.scheduling.spot.table import build_table

    if path is None:
        check_size(fitted, work, slots)
        return build_table(fitted.market, work, slots)
    return open_table(path, fitted.market)


def check_size(fitted: Fitted, work: int, slots: int, *, kept: bool = False) -> None:
    """Refuse a table that takes too long to build or exceeds the memory; warn of a long build if it is `kept`."""
    import psutil

    from goffish.scheduling.spot import sizes
    from goffish.scheduling.spot.table import MOST_BYTES

    values = sizes.values_of_slot(fitted.market, work)
    if 8 * values <= MOST_BYTES and values * slots <= sizes.MOST_VALUES:
        return
    small = sizes.suitable_minutes(fitted.market, work, slots)
    better = "" if small is None else f"; goffish spot fit --slot {small} takes less than a minute"
    job = f"{work * fitted.market.unit:g} core-hours within {slots / fitted.market.slots_per_hour:g} h"
    minutes, size = values * slots * sizes.SECONDS / 60, values * slots * sizes.BYTES
    found = (
        f"with slots of {fitted.slot_s / 60:g} min, the table takes about {minutes:,.0f} min and up to "
        f"{size / 1e9:,.0f} GB"
    )
    text = f"{job}: {found} to build{better}"
    available = psutil.virtual_memory().available
    if size > available:
        raise InputError(f"{text}; {available / 1e9:,.0f} GB of memory are available")
    if 8 * values > MOST_BYTES:
        raise InputError(text)
    if not kept:
        fewer = ", fewer zones or machine types," if len(fitted.market.classes) > 1 else ""
        raise InputError(f"{text}; use longer slots{fewer} or build it once with goffish spot table, for --table")
    warnings.warn(text, GoffishWarning, stacklevel=2)


def status_from(fitted: Fitted, work: float, saved: float | None, holding: str | None, used: float) -> Status:
    """Return the status of a job from command-line options."""
    from goffish.scheduling.spot.advice import running
    from goffish.scheduling.spot.job import submitted

    units = fitted.market.units(positive(work, "--work"))
    kept = units if saved is None else fitted.market.units(positive(saved, "--work-from-checkpoint"))
    if kept < units:
        raise InputError(f"--work-from-checkpoint {saved:g}: must be at least --work, {work:g}")
    if holding is None:
        # Without a machine, the job resumes from the last checkpoint.
        return submitted(kept)
    name, at, bid = holding.partition("@")
    try:
        offer = None if not at else float("inf") if bid == "spot" else float(bid)
    except ValueError:
        raise InputError(
            f"--machine {holding}: give TYPE@BID, TYPE@spot without bids, or TYPE for an on-demand machine"
        ) from None
    if not 0 <= used <= 60:
        raise InputError(f"--used-minutes {used:g}: must be 0 to 60")
    try:
        return running(fitted.market, units, kept, name, offer, used * 60.0)
    except InputError as error:
        free = [one.name for one in fitted.market.classes if one.without_bids]
        rest = f"; give {name}@spot" if at and name in free else ""
        raise InputError(f"--machine {holding}: {error}{rest}") from None


def prices_now(
    fitted: Fitted, given: list[str] | None, there: list[str] | None, missing: list[str] | None
) -> tuple[list[float], list[int]]:
    """Return the current price of each machine type, and for how many slots it has been in its bin."""
    from goffish.scheduling.spot.fitting import prices_of

    known, last = class_names(fitted), {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if name not in known or not equals:
            raise InputError(f"--price {text}: give TYPE=DOLLARS with a machine type of {', '.join(known)}")
        try:
            last[name] = float(value)
        except ValueError:
            raise InputError(f"--price {text}: {value!r} is not a number") from None
    for option, names in (("--available", there or ()), ("--unavailable", missing or ())):
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            raise InputError(f"{option} {unknown}: give a machine type of {', '.join(known)}")
    both = next((name for name in there or () if name in (missing or ())), None)
    if both is not None:
        raise InputError(f"--available {both}: also given as --unavailable")
    there_now = dict.fromkeys(there or (), True) | dict.fromkeys(missing or (), False)
    return prices_of(fitted, last, there_now, fields=("--price", "--available or --unavailable"))


def availability_file(text: str) -> tuple[str | None, str]:
    """Parse ``[TYPE[/ZONE]=]FILE``."""
    name, equals, path = text.partition("=")
    if equals and not Path(text).exists():
        return name, path
    return None, text


def current_facts(fitted: Fitted, prices: list[float]) -> dict[str, Any]:
    """Return current prices, and whether the machine types without bids are available, as JSON fields."""
    from goffish.cloud.prices import ANY_PRICE

    classes = list(zip(fitted.market.classes, prices, strict=True))
    return {
        "prices": {one.name: float(one.levels[0]) if one.by_availability else price for one, price in classes},
        "available": {one.name: price < ANY_PRICE for one, price in classes if one.by_availability},
    }


def class_names(fitted: Fitted) -> list[str]:
    """Return the names of the machine types of a market."""
    return [one.name for one in fitted.market.classes]


def market_facts(fitted: Fitted, path: str) -> dict[str, Any]:
    """Return the properties of a market as JSON fields."""
    from goffish.cloud.prices import moment_text

    market = fitted.market
    return {
        "market": path,
        "period": f"{moment_text(fitted.first)} to {moment_text(fitted.last)}",
        "estimator": fitted.estimator,
        "likelihoods": fitted.likelihoods,
        "correlation": fitted.correlation,
        "unit_core_hours": market.unit,
        "machine_types": [_type_facts(one) for one in market.classes],
    }


def _type_facts(one: SpotClass) -> dict[str, Any]:
    """Return the properties of a machine type as JSON fields; bins without the one of times without machines."""
    kept = 1 if one.by_availability else one.bins
    return {
        "machine_type": one.name, "speed": one.speed, "on_demand": one.on_demand, "hazard": one.hazard,
        "bids": [] if one.by_availability else one.bids.tolist(),
        "levels": one.levels[:kept].tolist(),
        "share": one.stationary.reshape(one.bins, -1).sum(axis=1)[:kept].tolist(),
    }  # fmt: skip


def money_text(cost: float) -> str:
    """Format the cost on demand; infinite if such machines are too late."""
    return f"{cost:.4g} $" if cost < float("inf") else "too late for on-demand machines"


def choice_facts(found: Advice) -> list[tuple[str, str]]:
    """Return the policy of the advice, and how often a job would follow another one."""
    if found.choice is None:
        return []
    others = [f"{name} {share:.0%}" for name, share in found.choice.shares.items() if share >= 0.005]
    return [("policy", f"{found.choice.name} (of {', '.join(others)})" if len(others) > 1 else found.choice.name)]


def outlook_facts(found: Advice) -> list[tuple[str, str]]:
    """Return what a job may cost, and the probability of its outcomes."""
    outlook = None if found.choice is None else found.choice.outlook
    if outlook is None:
        return [] if found.choice is None else [("80 % of jobs", "unknown: too few trials on the history")]
    first, middle, last = outlook.hours
    outside = [] if outlook.low <= found.expected_cost <= outlook.high else [
        ("note", "the expected cost is a mean, and can be outside the interval, whose limits are quantiles")
    ]  # fmt: skip
    return [
        ("80 % of jobs", f"{outlook.low:.4g} to {outlook.high:.4g} $ (held in {outlook.held:.0%} of "
                         f"{outlook.trials} trials on the history)"),
        ("probability", f"{outlook.without_on_demand:.0%} without on-demand machines, "
                        f"{outlook.without_interruption:.0%} without interruptions"),
        ("completion", f"{middle:.3g} h; 80 % of jobs in {first:.3g} to {last:.3g} h"),
        *outside,
    ]  # fmt: skip


def with_likelihoods(fitted: Fitted) -> str:
    """Return the name of the estimator with the log-likelihoods that led to its choice."""
    if not fitted.likelihoods:
        return fitted.estimator
    found = ", ".join(f"{name} {value:.4f}" for name, value in fitted.likelihoods.items())
    return f"{fitted.estimator} (log-likelihood per slot: {found})"


def whole_slots(hours: float, fitted: Fitted, option: str) -> int:
    """Convert hours to whole slots."""
    found = int(positive(hours, option) * fitted.market.slots_per_hour + 1e-9)
    if found < 1:
        raise InputError(f"{option} {hours:g}: must be at least one slot, {fitted.slot_s / 60:g} minutes")
    return found


def positive(value: float, option: str) -> float:
    """Check that a number of hours or core-hours is positive, and not beyond all uses."""
    if not 0 < value <= _MOST:
        raise InputError(f"{option} {value:g}: must be more than 0 and at most {_MOST:,.0f}")
    return value


def check_picture(path: str | None) -> None:
    """Reject a plot file that cannot be written."""
    if path is not None:
        from goffish.plot import check_picture

        check_picture(path)


def draw(picture: str, path: str, *given: Any) -> None:
    """Write one of the plots of `goffish.plot.spot`."""
    from goffish.plot import spot
    from goffish.plot.files import save

    save(getattr(spot, picture)(*given), path)


def figures(values: list[float]) -> str:
    """Format numbers with three digits."""
    return " ".join(f"{value:.3g}" for value in values)


def share_text(share: float) -> str:
    """Format a share with a digit of a percent, without a negative zero."""
    text = f"{share:.1%}"
    return "0.0%" if text == "-0.0%" else text


def figure(value: float | None) -> str:
    """Format a number, or return an empty string for ``None``."""
    return "" if value is None else f"{value:.2f}"

"""What the commands for spot jobs share: reading what the user gives, and telling what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.scheduling.spot.fitting import Fitted
    from goffish.scheduling.spot.job import Status
    from goffish.scheduling.spot.table import Table


def strategy_for(path: str | None, fitted: Fitted, work: int, slots: int) -> Table:
    """The table in a file, or one that is built for this job."""
    from goffish.scheduling.spot.files import open_table
    from goffish.scheduling.spot.table import build_table

    if path is None:
        return build_table(fitted.market, work, slots)
    return open_table(path, fitted.market)


def status_from(fitted: Fitted, work: float, saved: float | None, holding: str | None, used: float) -> Status:
    """Where a job is, from what the user says."""
    from goffish.scheduling.spot.advice import running
    from goffish.scheduling.spot.job import submitted

    units = fitted.market.units(positive(work, "--work"))
    kept = units if saved is None else fitted.market.units(positive(saved, "--saved"))
    if kept < units:
        raise InputError(f"--saved {saved:g}: from the last checkpoint on there is at least as much left, {work:g}")
    if holding is None:
        # Without a machine, work goes on from the last checkpoint.
        return submitted(kept)
    name, at, bid = holding.partition("@")
    try:
        offer = float(bid) if at else None
    except ValueError:
        raise InputError(f"--holding {holding}: give CLASS@BID, or CLASS for a machine on demand") from None
    return running(fitted.market, units, kept, name, offer, used * 60.0)


def prices_now(fitted: Fitted, given: list[str] | None) -> tuple[list[float], list[int]]:
    """Prices of the classes, and for how many slots each has been in its bin; the user may give some."""
    from goffish.scheduling.spot.fitting import prices_of

    known, last = class_names(fitted), {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if name not in known or not equals:
            raise InputError(f"--price {text}: give CLASS=DOLLARS with a class of {', '.join(known)}")
        try:
            last[name] = float(value)
        except ValueError:
            raise InputError(f"--price {text}: {value} is no price") from None
        if not 0 <= last[name] < float("inf"):
            raise InputError(f"--price {text}: a price is 0 or more")
    return prices_of(fitted, last)


def class_names(fitted: Fitted) -> list[str]:
    """Of a market."""
    return [one.name for one in fitted.market.classes]


def told_market(fitted: Fitted, path: str) -> dict[str, Any]:
    """A market in names and figures."""
    from goffish.cloud.prices import moment_text

    market = fitted.market
    return {
        "market": path,
        "period": f"{moment_text(fitted.first)} to {moment_text(fitted.last)}",
        "estimator": fitted.estimator,
        "likelihoods": fitted.likelihoods,
        "correlation": fitted.correlation,
        "unit_core_hours": market.unit,
        "machine_types": [
            {
                "machine_type": one.name, "speed": one.speed, "on_demand": one.on_demand, "bids": one.bids.tolist(),
                "levels": one.levels.tolist(), "hazard": one.hazard,
                "share": one.stationary.reshape(one.bins, -1).sum(axis=1).tolist(),
            }
            for one in market.classes
        ],
    }  # fmt: skip


def with_likelihoods(fitted: Fitted) -> str:
    """The estimator, and why it was chosen."""
    if not fitted.likelihoods:
        return fitted.estimator
    told = ", ".join(f"{name} {value:.4f}" for name, value in fitted.likelihoods.items())
    return f"{fitted.estimator} (log-likelihood of a slot: {told})"


def whole_slots(hours: float, fitted: Fitted, option: str) -> int:
    """Hours in whole slots."""
    found = int(positive(hours, option) * fitted.market.slots_per_hour + 1e-9)
    if found < 1:
        raise InputError(f"{option} {hours:g}: is shorter than a slot of {fitted.slot_s / 60:g} minutes")
    return found


def positive(value: float, option: str) -> float:
    """A number that is more than 0."""
    if not 0 < value < float("inf"):
        raise InputError(f"{option} {value:g}: give more than 0")
    return value


def check_picture(path: str | None) -> None:
    """Refuse a picture that could not be written, before any work is done."""
    if path is not None:
        from goffish.plot import check_picture

        check_picture(path)


def draw(picture: str, path: str, *given: Any) -> None:
    """Draw and write one of the pictures of `goffish.plot.spot`."""
    from goffish.plot import spot
    from goffish.plot.files import save

    save(getattr(spot, picture)(*given), path)


def figures(values: list[float]) -> str:
    """Numbers, shortly."""
    return " ".join(f"{value:.3g}" for value in values)


def figure(value: float | None) -> str:
    """A number, or nothing."""
    return "" if value is None else f"{value:.2f}"

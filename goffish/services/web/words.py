"""Numbers and times as people read them."""

from __future__ import annotations

import time
from typing import Any

#: Larger ones are no prices, costs or times.
_LARGEST = 1e15
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def number(details: Any, name: str) -> float | None:
    """A number of an event's details; ``None`` for whatever else is there, or nothing."""
    found = details.get(name) if isinstance(details, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= _LARGEST:
        return None
    return float(found)


def text(details: Any, name: str) -> str:
    """A text of an event's details, or an empty one."""
    found = details.get(name) if isinstance(details, dict) else None
    return found if isinstance(found, str) else ""


def duration(seconds: float) -> str:
    """Seconds in the two largest units that tell something."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.0005 else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for unit, name, small, below in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1.0, "s")):
        if whole >= unit:
            rest = int(whole % unit // small)
            return f"{int(whole // unit)} {name}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def moment(seconds: float | None) -> str:
    """Seconds since 1970 as a date and a time of day (UTC)."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def money(amount: float, currency: str = "") -> str:
    """An amount, with as many digits as are of use."""
    shown = f"{amount:,.2f}" if amount >= 100 else f"{amount:.4g}"
    return f"{shown} {currency}".rstrip()

"""When queries begin and end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.gofs.times import event_time
from goffish.streaming.batches import FIRST
from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.syntax import CgqlError

if TYPE_CHECKING:
    from croniter import croniter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_ACCEPTED = 'accepted are ISO 8601 texts such as "2026-01-31T12:00Z" and cron texts such as "0 8 * * 1-5"'


class Span(NamedTuple):
    """When a query begins and ends.

    Attributes
    ----------
    start : int or None
        ``None`` if it is counted from the first record.
    end : int or None
    """

    start: int | None
    end: int | None


def span_of(query: syntax.Query, now: int) -> Span | None:
    """Return when a query begins and ends; ``None`` if it begins now.

    Parameters
    ----------
    query : Query
    now : int
        Time up to which records are applied.

    Raises
    ------
    CgqlError
        There is no such time, or the end is not after the beginning.
    """
    match query.duration:
        case syntax.Since():
            if now == FIRST:
                raise CgqlError(f"{query.duration}: there are no records yet", query.duration.at)
            return Span(now - query.duration.span.micros, now)
        case syntax.Between():
            return _between(query.duration, _zone(query), now, begins=True)
    return None


def span_after(query: syntax.Query, end: int) -> Span | None:
    """Return when a query that repeats begins again after an end; ``None`` if it does not."""
    if not isinstance(query.duration, syntax.Between) or not query.duration.repeats:
        return None
    try:
        return _between(query.duration, _zone(query), end, begins=False)
    except CgqlError:  # there is no further one
        return None


def _between(given: syntax.Between, zone: tzinfo, now: int, *, begins: bool) -> Span:
    first = _time(given.start, zone, given)
    last = None if given.end is None else _time(given.end, zone, given)
    if given.repeats and (first is not None or last is not None or given.end is None):
        raise CgqlError(f"{given}: REPEAT needs cron texts for both times", given.at)
    if first is not None:
        start: int | None = first
    elif now == FIRST:
        start = None
    else:
        start = _next(given.start, now - 1, zone, given)
        if given.repeats and begins:
            assert given.end is not None
            before = _next(given.start, now + 1, zone, given, back=True)
            if _next(given.end, before, zone, given) > now:
                start = now
    end = last
    if start is not None and last is None and given.end is not None:
        end = _next(given.end, start, zone, given)
    if start is not None and end is not None and end <= start:
        raise CgqlError(f"{given}: the end is not after the beginning", given.at)
    return Span(start, end)


def _zone(query: syntax.Query) -> tzinfo:
    for option in query.options:
        if option.name == "tz":
            name = getattr(option.value, "value", None)
            try:
                return ZoneInfo(str(name))
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise CgqlError(f"WITH {option}: unknown time zone", option.at) from None
    return UTC


def _time(text: str, zone: tzinfo, given: syntax.Between) -> int | None:
    """Return the time of an ISO 8601 text; ``None`` if it is a cron text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        _cron(text, _EPOCH, given)
        return None
    try:
        return event_time(moment if moment.tzinfo is not None else moment.replace(tzinfo=zone))
    except (InputError, OverflowError):
        raise CgqlError(f"{text}: {_ACCEPTED}", given.at) from None


def _cron(text: str, base: datetime, given: syntax.Between) -> croniter:
    fields = text.split()
    if len(fields) not in (5, 6):
        raise CgqlError(f"{text}: {_ACCEPTED}", given.at)
    if len(fields) == 6:  # the last one is the year, and the library has seconds before it
        fields.insert(5, "0")
    with needed_for("cron texts in FROM and TO"):
        from croniter import CroniterError, croniter
    try:
        return croniter(" ".join(fields), base, day_or=True)
    except (CroniterError, ValueError):
        raise CgqlError(f"{text}: {_ACCEPTED}", given.at) from None


def _next(text: str, after: int, zone: tzinfo, given: syntax.Between, *, back: bool = False) -> int:
    """Return the first match of a cron text after a time, or the last one before it."""
    try:
        base = (_EPOCH + timedelta(microseconds=after)).astimezone(zone)
        whole = base.replace(microsecond=0)
        cron = _cron(text, whole + _SECOND if back and whole < base else whole, given)
        found: datetime = (cron.get_prev if back else cron.get_next)(datetime)
        return event_time(found)
    except CgqlError:
        raise
    except (ValueError, OverflowError):
        raise CgqlError(f"{text}: there is no such time {'before' if back else 'after'} {base}", given.at) from None

"""Reports of updates, from columns whose metrics are known."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

from experiments.updates.report import Cost, Emissions, measure
from experiments.updates.routing import Header, Update
from goffish.errors import InputError
from goffish.streaming.updates.bounds import Bounds
from goffish.streaming.updates.versions import Element, Numbering, Strategy, UpdateType, Version

WAYS = [("s", "a"), ("a", "b")]
OLD = Version.of(1, {"s": 1, "a": 1, "b": 1}, WAYS)
NEW = Version.of(2, {"s": 1, "a": 2, "b": 2}, WAYS)
NUMBERING = Numbering({}).extended(OLD).extended(NEW)
OLD_TRACE, NEW_TRACE = NUMBERING.mask(OLD.parts), NUMBERING.mask(NEW.parts)
MIXED = OLD_TRACE & ~NUMBERING.bits[Element("b", 1)] | NUMBERING.bits[Element("b", 2)]


def cost(strategy: Strategy, times: list[float], headers: list[Header], **options: float) -> Cost:
    return measure(Update(strategy, OLD, NEW, NUMBERING), 10.0, Emissions.of(times, headers), **options)  # type: ignore[arg-type]


def test_attribution_by_stamp_and_trace() -> None:
    """Breaks when a message that was stamped before the update but took the new path counts by the wrong rule."""
    headers = [Header(1, OLD_TRACE, 0, 0), Header(1, OLD_TRACE, 0, 0), Header(1, NEW_TRACE, 0, 0)]
    headers += [Header(1, NEW_TRACE, 0, 0), Header(2, NEW_TRACE, 0, 0)]
    times = [9.0, 10.5, 11.0, 12.0, 13.0]
    by_trace, by_stamp = cost(Strategy.PVC, times, headers), cost(Strategy.MVC, times, headers)
    assert (by_trace.refresh, by_trace.lag) == (1.0, 0.5)
    assert (by_stamp.refresh, by_stamp.lag) == (3.0, 2.0)
    assert (by_trace.stamp_refresh, by_stamp.trace_lag) == (3.0, 0.5)
    assert by_trace.mixed == 0


def test_mixed_outputs_are_counted() -> None:
    headers = [Header(1, OLD_TRACE, 0, 0), Header(1, MIXED, 0, 0), Header(1, MIXED, 0, 0), Header(2, NEW_TRACE, 0, 0)]
    found = cost(Strategy.HTI, [9.0, 11.0, 11.5, 12.0], headers, merged=1, lost=4)
    assert (found.mixed, found.lost) == (3, 4)
    assert (found.refresh, found.lag) == (1.0, 1.5)  # mixed ones are of both versions


def test_no_outputs_of_a_version() -> None:
    found = cost(Strategy.PVC, [9.0, 11.0], [Header(1, OLD_TRACE, 0, 0)] * 2)
    assert found.refresh is None
    assert found.lag == 1.0
    empty = cost(Strategy.PVC, [], [])
    assert (empty.refresh, empty.lag, empty.lowest_throughput, empty.dip) == (None, 0.0, 1.0, 0.0)


def test_throughput() -> None:
    """Breaks when a gap of two seconds and a half in ten outputs per second is not seen."""
    times = np.arange(0.05, 20, 0.1)
    times = times[(times < 11.0) | (times > 13.5)]
    headers = [Header(1 + (time > 12), NEW_TRACE if time > 12 else OLD_TRACE, 0, 0) for time in times]
    found = cost(Strategy.NCH, times.tolist(), headers)
    assert found.outage == pytest.approx(2.6)
    assert found.lowest_throughput == 0.0
    assert found.dip == 3.0
    assert found.refresh == pytest.approx(3.55)


def test_against_bounds() -> None:
    headers = [Header(1, OLD_TRACE, 0, 0), Header(1, OLD_TRACE, 0, 0), Header(2, NEW_TRACE, 0, 0)]
    found = cost(Strategy.MVC, [9.0, 10.5, 11.0], headers)
    bounds = Bounds(Strategy.MVC, UpdateType.ELEMENT, 0.9, 0.5, 0.0, 0, 0.1, 5.0, True, False)
    rows = {row["metric"]: row for row in found.against(bounds)}
    assert rows.keys() == {"refresh", "lag", "loss"}
    assert [rows[name]["holds"] for name in ("refresh", "lag", "loss")] == [False, True, True]
    assert rows["refresh"]["measured"] == found.to_dict()["refresh"] == 1.0


def test_invalid_columns() -> None:
    with pytest.raises(InputError, match="order of time"):
        cost(Strategy.MVC, [2.0, 1.0], [Header(1, OLD_TRACE, 0, 0)] * 2)
    with pytest.raises(InputError, match="window must be positive, not 0 s"):
        cost(Strategy.MVC, [], [], window=0.0)


@pytest.mark.parametrize("module", ["routing", "coordinator", "report"])
def test_examples(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"experiments.updates.{module}"))
    assert found.attempted >= 2
    assert found.failed == 0

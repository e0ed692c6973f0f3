"""What a running job asks the table with: work and time in whole units and slots.

See docs/specs/spot.md, section 3.5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.scheduling.spot.job import Status, slots_left
from goffish.scheduling.spot.model import units_left
from goffish.scheduling.spot.table import build_table
from tests.scheduling.spot.spot_cases import reference


@given(st.floats(0.01, 20), st.floats(0, 9e4), st.floats(0, 0.999), st.floats(0, 0.999), st.integers(0, 3))
def test_rounding_at_run_time(core_hours: float, span: float, more: float, later: float, margin: int) -> None:
    """§7.1, 11: work and time within a unit and a slot decide alike, and what is feasible rounded is so exactly."""
    market = reference()
    work, left = units_left(core_hours, market.unit), slots_left(1e6 + span, 1e6, 600.0, margin)
    grown = core_hours + more * (work * market.unit - core_hours)
    passed = later * max(0.0, (1e6 + span - 1e6) - 600.0 * (left + margin))
    assert units_left(grown, market.unit) == work
    if left:
        assert slots_left(1e6 + span, 1e6 + passed * 0.999, 600.0, margin) == left
    assert work * market.unit >= core_hours - 1e-9 and (left == 0 or 600.0 * (left + margin) <= span + 1e-6)
    if work >= 1 and left >= market.least_slots(work):
        exact = market.startup_slots + core_hours / market.unit / 2
        assert span / 600.0 >= exact - 1e-6


def test_run_time_helpers() -> None:
    """By hand; and O-9: a start-up that takes longer is waited for, whatever is left."""
    assert [slots_left(3600, now, 600, 1) for now in (0, 0.1, 600, 2400, 3000, 9000)] == [5, 4, 4, 1, 0, 0]
    assert slots_left(0.3, 0, 0.1) == 2 and slots_left(7200, 0, 600) == 12
    assert [units_left(x, 1 / 3) for x in (8, 8.01, 0, 7.99)] == [24, 25, 0, 24]
    for arguments, match in (
        ((np.inf, 0, 600), "finite"),
        ((1, 0, 0), "deadline in 1 s, slot_s = 0, margin_slots = 0: must be finite, greater than 0,"),
        ((1, 0, 1, -1), "0 or more"),
    ):
        with pytest.raises(InputError, match=match):
            slots_left(*arguments)
    with pytest.raises(InputError, match="core_hours = -1, unit = 1: must be 0 or more, and greater than 0"):
        units_left(-1, 1)
    for market in (reference(startup_slots=2), replace(reference(), startup_billed=True)):
        table = build_table(market, 6, 20)
        for left in range(20, 0, -1):
            for choice in range(market.choices):
                assert table.decide(left, Status(1, 6, 6, choice, 0, 1), [0.014, 0.028]) == 0

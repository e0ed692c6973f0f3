"""Markets by name: what each preset means, and hazards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from goffish.cloud.prices import trace_of
from goffish.errors import InputError
from goffish.scheduling.spot.estimate import most_probable_bids, quantile_bids
from goffish.scheduling.spot.presets import PRESETS, Times, market_from, monthly_hazard
from goffish.scheduling.spot.table import build_table

SLOT = 600.0
RNG = np.random.default_rng(0)
TRACES = [
    trace_of(SLOT * np.arange(900.0), np.round(RNG.choice([0.2, 0.25, 0.4, 0.9], 900) * price, 4), name)
    for name, price in (("medium", 0.13), ("large", 0.26))
]


def _market(preset: str, **given: Any) -> Any:
    return market_from(preset, TRACES, [2, 4], [0.13, 0.26], **given)


def test_presets() -> None:
    """§6.14, the table: breaks when a preset has another market's billing, notice, start-up or bids."""
    paper, linux, suse, free = (_market(name) for name in ("paper-2012", "ec2-linux", "ec2-suse", "no-bid"))
    seconds = _market("ec2")
    assert (seconds.spot_billing, seconds.on_demand_billing, seconds.startup_billed) == ("per_second",) * 2 + (True,)
    assert [c.bids.tolist() for c in seconds.classes] == [[np.inf]] * 2
    assert [m.spot_billing for m in (paper, linux, suse, free)] == [
        "hourly", "first_hour_free", "hourly", "first_hour_free",
    ]  # fmt: skip
    assert [m.on_demand_billing for m in (paper, linux, suse, free)] == ["hourly", "per_second", "hourly", "per_second"]
    assert [m.startup_billed for m in (paper, linux, suse, free)] == [False, True, True, True]
    for one, trace, price in zip(paper.classes, TRACES, (0.13, 0.26), strict=True):
        assert one.bids.tolist() == most_probable_bids(trace).tolist() and one.hazard == 0
        assert one.on_demand == price and one.name == trace.name
    for market in (linux, suse):
        for one, trace in zip(market.classes, TRACES, strict=True):
            assert one.bids.tolist() == quantile_bids(trace, one.on_demand).tolist() and one.bids[-1] == one.on_demand
    for one, trace in zip(free.classes, TRACES, strict=True):
        assert one.bins == 1 and one.bids.tolist() == [np.inf]
        assert one.levels[0] == pytest.approx(trace.prices @ trace.durations() / (trace.end - trace.start))
    assert [c.speed for c in paper.classes] == [1, 2] and paper.unit == pytest.approx(1 / 3)
    # Two minutes are enough for some checkpoints only, and the paper's market gives none.
    assert not any(m.notice for m in (paper, linux, suse, free))
    quick = {name: _market(name, times=Times(checkpoint_s=100.0)).notice for name in PRESETS}
    assert quick == {"paper-2012": False, "ec2-linux": True, "ec2-suse": True, "no-bid": True, "ec2": True}
    market = _market("paper-2012", times=Times(slot_s=300.0, startup_s=601.0, checkpoint_s=1800.0))
    assert (market.startup_slots, market.checkpoint_slots, market.slots_per_hour) == (3, 6, 12)


@pytest.mark.slow
def test_hazards() -> None:
    """`1 - (1 - q)^(slot / month)`: a month of slots has the monthly frequency; the more hazard, the dearer."""
    slots = 365.25 / 12 * 144
    hazard = monthly_hazard(0.2, SLOT)
    assert 1 - (1 - hazard) ** slots == pytest.approx(0.2) and monthly_hazard(0.0, SLOT) == 0
    assert monthly_hazard(0.2, 2 * SLOT) == pytest.approx(1 - (1 - hazard) ** 2)
    costs = []
    for risk in (0.0, 0.01, 0.05):
        market = _market("no-bid", hazards=[risk, risk])
        assert [c.hazard for c in market.classes] == [risk, risk]
        costs.append(build_table(market, 12, 30).expected_cost(12, 20))
    assert costs[0] < costs[1] < costs[2]


def test_given_classes_and_bids() -> None:
    """A class that was estimated before is kept; bids may be given."""
    one = _market("paper-2012").classes[1]
    market = market_from("ec2-linux", [TRACES[0], one], [3, 6], [0.2, 0.5], hazards=[0.1, 0.2], bids=[np.ones(1)] * 2)
    assert market.classes[0].bids.tolist() == [1.0] and market.classes[0].hazard == 0.1
    kept = market.classes[1]
    assert (kept.speed, kept.on_demand, kept.hazard, kept.levels is one.levels) == (2, 0.5, 0.2, True)
    assert market.unit == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("preset", "given_", "match"),
    [
        ("azure", {}, "unknown preset 'azure'; accepted: paper-2012, ec2-linux, ec2-suse, no-bid, ec2"),
        ("ec2-linux", {"times": Times(slot_s=700.0)}, "slot_s = 700"),
        ("ec2-linux", {"times": Times(slot_s=0.0)}, "slot_s = 0"),
        ("ec2-linux", {"times": Times(startup_s=-1.0)}, "startup_s = -1"),
        ("ec2-linux", {"hazards": [0.1]}, "hazards: expected 2 values, one for each machine type, found 1"),
        ("no-bid", {"bids": [np.ones(1)] * 2}, "bids: not available in the market no-bid"),
    ],
)
def test_what_is_refused(preset: str, given_: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        _market(preset, **given_)
    with pytest.raises(InputError, match="below 1"):
        monthly_hazard(1.0, SLOT)

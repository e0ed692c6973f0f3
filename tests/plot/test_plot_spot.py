"""Pictures of spot jobs: what is drawn is what was computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from goffish.cloud.prices import UNAVAILABLE, SlotPrices, Trace, trace_of
from goffish.errors import InputError
from goffish.plot import spot
from goffish.scheduling.spot.availability import availability_class
from goffish.scheduling.spot.comparison import compare
from goffish.scheduling.spot.job import run_job
from goffish.scheduling.spot.presets import market_from
from goffish.scheduling.spot.table import Table, build_table
from tests.scheduling.spot.spot_cases import path_prices, tiny

MARKET = tiny()
PRICES = path_prices(np.array([[0.02]] * 4 + [[0.5]] * 2 + [[0.02]] * 12))


@pytest.fixture(scope="module")
def table() -> Table:
    return build_table(MARKET, 3, 8)


def artists(figure: Any, gid: str) -> list[Any]:
    return [a for axes in figure.axes for a in axes.get_children() if a.get_gid() == gid]


def test_prices_with_bids() -> None:
    """Breaks when a price is drawn at another time, or a bid is missing."""
    trace = Trace(np.array([0.0, 3600.0, 7200.0]), np.array([0.02, 0.5, 0.03]), 9000.0)
    figure = spot.prices([trace], MARKET)
    line = artists(figure, "price-0")[0]
    assert line.get_ydata().tolist() == [0.02, 0.5, 0.03, 0.03] and line.get_drawstyle() == "steps-post"
    assert [at.hour for at in line.get_xdata()] == [0, 1, 2, 2]
    assert [a.get_ydata()[0] for a in artists(figure, "bid-0")] == MARKET.classes[0].bids.tolist()
    assert artists(figure, "on-demand-0")[0].get_ydata()[0] == 0.13


def test_availability() -> None:
    """Breaks when a bar covers a time without machines, or the share is of the number of changes."""
    trace = Trace(np.array([0.0, 3600.0, 7200.0]), np.array([0.3, UNAVAILABLE, 0.3]), 36_000.0, "a")
    market = market_from("ec2", [availability_class(trace, 1, 1.0, 600.0, 0.3, name="gpu")], [1], [1.0])
    figure = spot.prices([trace], market)
    bars = artists(figure, "available-0")[0].get_paths()
    found = [bar.get_extents().intervalx.tolist() for bar in bars]
    assert found == [pytest.approx([0, 1 / 24]), pytest.approx([2 / 24, 10 / 24])]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["gpu (90%)"]


def test_the_map_of_costs(table: Table) -> None:
    """Breaks when rows and columns are mixed up, or what cannot be promised is not left out."""
    found = artists(spot.cost_map(table, [0.02]), "cost")[0].get_array()
    assert found.shape == (3, 8)
    assert found[0].compressed().round(6).tolist() == [0.13, 0.13, 0.0596, 0.0596, 0.05256, 0.043408, 0.038128]
    assert found.mask[:, 0].all() and found.mask[2].sum() == 3


def test_cost_by_deadline(table: Table) -> None:
    """Breaks when the marked deadline is not the job's."""
    figure = spot.cost_curve(table, 1, 4, [0.02])
    mark = artists(figure, "now")[0]
    assert (mark.get_xdata()[0], round(mark.get_ydata()[0], 6)) == (2.0, 0.0596)


def test_outcomes_and_one_job(table: Table) -> None:
    """Breaks when means, worst costs or states are those of other jobs."""
    starts = np.arange(8)
    found = compare(MARKET, table, ["rtba", "on-demand"], 2, 8, PRICES, starts)
    figure = spot.outcomes(found, 0.13, 2)
    assert figure.axes[1].get_xlim() == (0.0, 4.0) and figure.axes[1].get_xlabel() == "hours since the submission"
    for at, one in enumerate(found):
        assert artists(figure, f"mean-{at}")[0].get_xdata()[0] == pytest.approx(one.costs.mean())
        assert artists(figure, f"worst-{at}")[0].get_xdata()[0] == pytest.approx(one.costs.max())
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["rtba", "on-demand, tiny"]
    run = run_job(MARKET, table, 2, 8, PRICES)
    picture = spot.job(run, MARKET, PRICES)
    left = artists(picture, "work")[0].get_ydata()
    assert left[0] == 2 and left[-1] < 2
    with pytest.raises(InputError, match="expected at least one outcome"):
        spot.outcomes([], 1.0)


def test_one_job_in_a_market_without_bids() -> None:
    """Breaks when the panel of prices is empty: it has the hours in which machines were available."""
    free = np.array([True, True, False, True, True, True])
    prices = np.where(free, 0.02, UNAVAILABLE)[:, None]
    trace = trace_of(600.0 * np.arange(6), prices[:, 0])
    market = market_from("ec2", [availability_class(trace, 1, 0.13, 600.0, 0.02, name="m")], [1], [0.13])
    slots = SlotPrices(prices, np.maximum(prices[:-1], prices[1:]))
    run = run_job(market, build_table(market, 2, 5), 2, 5, slots)
    figure = spot.job(run, market, slots)
    [bars] = artists(figure, "available-0")
    spans = [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in bars.get_paths()]
    assert spans[:2] == [(pytest.approx(0), pytest.approx(1 / 6)), (pytest.approx(1 / 6), pytest.approx(2 / 6))]
    assert all(begin >= 0.5 - 1e-9 for begin, _ in spans[2:])
    assert figure.axes[0].get_ylabel() == "available"

"""The optimal program: by hand on one processing element, and never below a valid run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.holdout.optimum import Receding, solve
from goffish.cloud.catalogue import Catalogue, read_catalogue
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.simulate.run import simulate

ONE: Catalogue = read_catalogue(
    {"classes": [{"name": "one", "cores": 1, "speed": 1.0, "price_per_hour": 1.0}], "startup_s": 0}
)


def element(rate: float, hours: int) -> Flow:
    """One PE with a good alternate of twice the cost; a dollar is worth 0.5 / 10."""
    goal = {"throughput": 0.8, "cost_at_best_value": 20, "cost_at_worst_value": 10, "period_h": hours}
    alternates: list[dict[str, Any]] = [
        {"id": "good", "cost": 2.0, "value": 1.0}, {"id": "poor", "cost": 1.0, "value": 0.5},
    ]  # fmt: skip
    return compile_flow(
        read_dataflow({
            "processing_elements": [{"id": "only", "alternates": alternates}], "edges": [],
            "inputs": {"only": rate}, "goal": goal,
        })
    )  # fmt: skip


def test_constant_rates_by_hand() -> None:
    """Two hours at 3 messages per second. The good alternate requires 6 cores, so 0.8 * 12 = 9.6 core-hours, in whole
    ones 10: 10 dollars, profit 1 - 0.5. The poor one requires 5, profit 0.5 - 0.25.
    """
    flow = element(3.0, 2)
    found = solve(flow, ONE, np.full((24, 1), 3.0), 300.0, 0.8)
    assert found.blocks.sum() == pytest.approx(10.0, abs=1e-6)
    assert found.bound == pytest.approx(0.5, abs=2e-3)
    assert (found.active == 0).all()


def test_paid_machines_cost_nothing() -> None:
    """Else a plan over a horizon pays twice for the hours that have begun."""
    flow = element(3.0, 1)
    found = solve(flow, ONE, np.full((12, 1), 3.0), 300.0, 0.8, paid=np.full((1, 12), 5.0))
    assert found.blocks.sum() == pytest.approx(0.0, abs=1e-6)
    assert found.bound == pytest.approx(1.0, abs=2e-3)


def test_no_valid_run_is_above_the_bound() -> None:
    """Else the bound is none. The policies see the same rates, at rated speed."""
    flow = element(3.0, 3)
    rates = 3.0 * (1.0 + 0.6 * np.sin(np.arange(36) / 4.0))[:, None]
    goal = flow.goal.throughput - flow.goal.tolerance
    bound = solve(flow, ONE, rates, 300.0, goal, seconds=20.0).bound
    for policy in (make_policy("plasticc"), make_policy("reactive-global"), Receding(make_policy("ds2"), rates, 12)):
        found = simulate(flow, ONE, policy, rates, network=False).summary
        assert not found.valid or found.profit <= bound + 1e-6


def test_selectivities_that_differ_are_refused() -> None:
    flow = compile_flow(read_dataflow("sc13-diamond"))
    with pytest.raises(ValueError, match="same selectivity"):
        solve(flow, ONE, np.tile(flow.rates, (2, 1)), 180.0, 0.7)

"""Golden values of docs/specs/spot.md, section 7.2, and the exact ones of §7.4."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from goffish.scheduling.spot.heuristics import Heuristic, on_demand_cost
from goffish.scheduling.spot.model import Local
from goffish.scheduling.spot.table import Table, build_table
from tests.scheduling.spot.spot_cases import exact_cost, reference, tiny

GOLDEN = """
hourly 1 .130000 .130000 .130000 .130000 .059600 .130000 .059600 .094800 .052560 .077200 .043408 .064880 .038128 .054144
hourly 2 inf inf .130000 .130000 .130000 .130000 .130000 .130000 .073680 .130000 .073680 .101840 .068048 .087760
hourly 3 inf inf inf inf .260000 .260000 .260000 .260000 .260000 .260000 .203680 .260000 .167635 .231840
per_second 2 inf inf .130000 .130000 .130000 .130000 .130000 .130000 .077840 .130000 .077840 .103920 .072624 .090880
first_hour_free 3 inf inf inf inf .195000 .195000 .195000 .195000 .195000 .195000 .171960 .195000 .130488 .183480
""".strip().splitlines()
#: From tau = 3 on, C = 2.
HEURISTICS = """
h1 .130000 .130000 .130000 .130000 .142800 .130000 .073680 .136400 .074960 .105040 .069712 .090000
h2 .130000 .130000 .130000 .130000 .130000 .130000 .073680 .130000 .073680 .101840 .068048 .087760
h3 .130000 .130000 .130000 .130000 .130000 .130000 .095184 .130000 .095184 .112592 .091702 .103888
""".strip().splitlines()
HOURS = (18, 24, 36, 48, 72)


@pytest.fixture(scope="module")
def whole() -> Table:
    return build_table(reference(), 24, 72)


@pytest.mark.parametrize("line", GOLDEN)
def test_tiny_model(line: str) -> None:
    """§7.2 to the digit: breaks when a charge, the guard, or what the loss of a machine costs is off by anything."""
    rule, work, *numbers = line.split()
    table = build_table(tiny(rule), 3, 8)
    expected = np.array(numbers, np.float64).reshape(-1, 2)
    assert np.array_equal(np.round(table.values[2:, :, int(work)], 6), expected)


@pytest.mark.parametrize("line", HEURISTICS)
def test_heuristics_on_the_tiny_model(line: str) -> None:
    """§7.2 to the digit: breaks when a heuristic switches, saves or resumes a slot too early or too late."""
    kind, *numbers = line.split()
    rule = Heuristic(tiny(), kind, 2, interval=1.0)  # type: ignore[arg-type]
    found = [exact_cost(rule.market, rule, 2, left, (p,)) for left in range(3, 9) for p in (0, 1)]
    assert np.round(found, 6).tolist() == np.array(numbers, np.float64).tolist()


def test_two_classes(whole: Table) -> None:
    """§7.2 to the digit, from one price and averaged over the long run."""
    slots, now = (13, *HOURS), [0.014, 0.028]
    assert [round(whole.expected_cost(24, s, now), 6) for s in slots] == [
        0.52, 0.3445, 0.115034, 0.077164, 0.066793, 0.062787,
    ]  # fmt: skip
    assert [round(whole.expected_cost(24, s), 6) for s in slots] == [
        0.52, 0.357787, 0.123324, 0.079223, 0.067624, 0.062541,
    ]  # fmt: skip


#: Arguments of `reference`, and the cost at 3, 4, 6, 8 and 12 h.
VARIANTS: list[tuple[dict[str, Any], str]] = [
    ({"covers": [1]}, ".4406 .2876 .1508 .0968 .0688"),
    ({"covers": [0, 1, 2]}, ".3806 .1671 .0884 .0705 .0630"),
    ({"covers": [3]}, ".3578 .1239 .0817 .0755 .0717"),
    ({"spot_billing": "per_second", "on_demand_billing": "per_second"}, ".3356 .1043 .0696 .0636 .0608"),
    ({"spot_billing": "first_hour_free", "on_demand_billing": "first_hour_free"}, ".3347 .1041 .0715 .0647 .0611"),
    ({"hazard": 0.02}, ".3890 .1582 .0859 .0712 .0631"),
    ({"checkpoint_slots": 2}, ".5200 .1535 .0870 .0713 .0643"),
    ({"startup_slots": 2}, ".5200 .1452 .0878 .0707 .0634"),
    ({"checkpoint_slots": 3}, ".5200 .1621 .0930 .0740 .0650"),
]


@pytest.mark.parametrize(("given", "numbers"), VARIANTS)
@pytest.mark.slow
def test_variants(given: dict[str, Any], numbers: str) -> None:
    """§7.4 (f), (g), (i): breaks when bids, billing, hazards or longer operations are not what the prototype had."""
    table = build_table(reference(**given), 24, 72)
    assert [round(table.expected_cost(24, s), 4) for s in HOURS] == [float(x) for x in numbers.split()]


def test_local_machine() -> None:
    """§7.4 (h): breaks when the move, its slot or its cost is not counted as it should."""
    found = []
    for gigabytes in (0.25, 0.5, 1.0, 1.25, 1.5):
        table = build_table(reference(local=Local(1, 1, 0.12 * gigabytes)), 24, 72)
        found.append([round(table.expected_cost(24, s), 4) for s in (25, 36, 72, 18)])
    assert found == [
        [0.0300, 0.0300, 0.0300, 0.3578],
        [0.0600, 0.0600, 0.0600, 0.3578],
        [0.1100, 0.0765, 0.0624, 0.3578],
        [0.1148, 0.0782, 0.0625, 0.3578],
        [0.1169, 0.0787, 0.0625, 0.3578],
    ]


@pytest.mark.parametrize(("name", "at_six_hours"), [("medium", 0.1792), ("large", 0.0926)])
def test_single_classes(name: str, at_six_hours: float) -> None:
    """§7.4 (c): RTBA with one class."""
    assert round(build_table(reference(names=name), 24, 36).expected_cost(24, 36), 4) == at_six_hours


def test_questions_to_the_table(whole: Table) -> None:
    """Against the definitions, over all deadlines: breaks when a cliff or the first deadline within a budget is off."""
    now = [0.014, 0.028]
    costs = [whole.expected_cost(24, s, now) for s in range(73)]
    assert whole.min_deadline(24, 0.12, now) == next(s for s, cost in enumerate(costs) if cost <= 0.12)
    assert whole.min_deadline(24, 0.01, now) is None
    drops = {s: 1 - costs[s] / costs[s - 1] for s in range(14, 73)}
    best = sorted(drops, key=lambda s: (-drops[s], s))[:5]
    assert [s for s, _ in whole.cliffs(24, now)[:5]] == best
    assert whole.cliffs(24, now)[0][1] == pytest.approx(drops[best[0]])


def test_on_demand_only() -> None:
    """§3.7: $0.52 on both classes for 8 core-hours; also as the exact cost of running it."""
    market = reference()
    for kind in (0, 1):
        assert on_demand_cost(market, 24, kind) == pytest.approx(0.52)
        rule = Heuristic(market, "on-demand", 24, kind)
        assert exact_cost(market, rule, 24, 30, (1, 1)) == pytest.approx(0.52)

"""Decisions of the controller: the worked values of docs/specs/btu.md, its scenario, and what plans may do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.btu.item_results import Life, cost_of, units_of
from experiments.btu.items import operators_of
from experiments.btu.patterns import machines_of, walk
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.btu.controller import (
    BtuController,
    make_room,
    needs_instance,
    predicted_duration,
    scale_up,
)
from goffish.scheduling.policies.btu.ending import plan_emptying
from goffish.scheduling.policies.btu.model import ClusterState, OperatorNeeds, Settings, Size
from goffish.scheduling.policies.btu.ranking import best_host, donor_utility, host_score
from goffish.scheduling.policies.btu.threshold import ThresholdController

VISP = compile_flow(read_dataflow("visp-oee"))
PLAIN = Settings()
OEE = operators_of(VISP)
#: Shares and megabytes of Table 2, in the order of the operators O1 to O9.
TABLE = [
    (660, 452), (131, 524), (100, 430), (83, 502), (77, 527), (65, 440), (46, 464), (74, 466), (47, 452)
]  # fmt: skip
VM = Size(4096, 7168)


def test_shipped_dataflow() -> None:
    """Breaks when the shipped topology is not that of Tables 1 and 2."""
    assert [(c * 1024, m) for c, m in zip(OEE.cores, OEE.memory_mb, strict=True)] == TABLE
    assert [1000 * s for s in OEE.objective_s] == [1500, 600, 750, 750, 750, 600, 700, 500, 1300]
    into, _ = VISP.ideal(VISP.best, VISP.rates)
    per_machine = [2.083, 10.417, 2.083, 2.083, 2.083, 20.833, 6.25, 0.424, 2.083]
    assert into / 5 == pytest.approx(per_machine, abs=1e-3) and into.sum() / 5 == pytest.approx(48.34, abs=0.005)
    busy = 0.1 * np.array(OEE.objective_s) * into / 5 * np.array([[2], [5], [8]])
    # With eight machines O2 and O6 would be busy all the time with 5 and 10: one more each.
    assert (np.floor(busy + 1e-9) + 1).sum(axis=1).tolist() == [12, 22, 34]


@pytest.mark.parametrize(
    ("free", "operator", "cached", "score"),
    [
        ((4096, 7168), 0, False, 0.0158031),
        ((4096, 7168), 0, True, 0.000158031),
        ((2813, 2911), 0, True, 0.000428384),
        ((2813, 2911), 5, True, 0.000493011),
        ((500, 7168), 0, False, -1.0),
    ],
)
def test_score_of_a_host(free: tuple[float, float], operator: int, cached: bool, score: float) -> None:
    found = host_score(VM, Size(*free), Size(*TABLE[operator]), cached, PLAIN)
    assert found == pytest.approx(score, abs=1e-7 if cached else 1e-6)


def test_utility_of_a_donor() -> None:
    """The worked values; the last instance is never given."""
    counts, scalings = [5, 1, 9], [10, 10, 20]
    assert donor_utility(0, counts, scalings, 0, 1.5, PLAIN) == pytest.approx(99.74985, abs=1e-9)
    assert donor_utility(0, counts, scalings, 3, 1.5, PLAIN) == pytest.approx(-0.25015, abs=1e-9)
    assert donor_utility(1, counts, scalings, 0, 0.1, PLAIN) == -1
    assert donor_utility(0, [2, 2], [0, 0], 5, 0.5, PLAIN) == pytest.approx(1 - 0.50005)


@pytest.mark.parametrize(
    ("durations", "queue", "needed"),
    [
        ((500, 525, 550, 575, 600), 51, True),
        ((500, 520, 540, 560, 580), 51, False),
        ((500, 525, 550, 575, 600), 50, False),
        ((), 251, True),
        ((), 250, False),
        ((601,), 51, True),
        ((600,), 51, False),
        ((700, 100, 601), 51, True),
        # Only the last five count: with the first one, too, no rise would be seen.
        ((900, 500, 525, 550, 575, 600), 51, True),
    ],
)
def test_trigger(durations: tuple[float, ...], queue: float, needed: bool) -> None:
    assert needs_instance(durations, 600, queue, PLAIN) is needed


@given(st.lists(st.floats(0, 1e4), min_size=2, max_size=12))
def test_regression(durations: list[float]) -> None:
    """Against numpy's polynomial fit."""
    n = len(durations)
    expected = np.polyval(np.polyfit(np.arange(1, n + 1), durations, 1), n + 1)
    assert predicted_duration(durations) == pytest.approx(expected, abs=1e-6 * (1 + max(durations)))


def small(size: Size, rows: list[dict[int, int]], operators: OperatorNeeds | None = None) -> ClusterState:
    """A state of hosts with instances; images are only where instances are."""
    state = ClusterState(operators or OEE, size, now_s=1e5)
    for row in rows:
        host = state.lease()
        assert host is not None
        host.paid_until_s = state.now_s + 180.0
        for operator, count in row.items():
            for _ in range(count):
                state.start(operator, host.number)
    return state


def test_best_host() -> None:
    """The cached host wins against a better score; of equal ones the emptier, then the older."""
    two = OperatorNeeds(("a", "b"), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
    state = small(Size(10, 10), [{1: 2}, {0: 1}, {1: 10}], two)
    found = best_host(state, 0, PLAIN)
    assert found is not None and found.number == 1
    assert best_host(state, 0, PLAIN, {1}).number == 0 and best_host(state, 0, PLAIN, {0, 1}) is None  # type: ignore[union-attr]
    state.hosts[1].closing = True
    assert best_host(state, 0, PLAIN).number == 0  # type: ignore[union-attr]
    # Scores of 0: emptier, then older.
    state = small(Size(10, 10), [{1: 2}, {1: 1}, {1: 1}], two)
    assert best_host(state, 0, PLAIN).number == 1  # type: ignore[union-attr]
    assert best_host(state, 0, Settings(pack=True)).number == 0  # type: ignore[union-attr]
    state.hosts[2].paid_until_s += 1
    assert best_host(state, 0, Settings(prefer_paid=True)).number == 2  # type: ignore[union-attr]
    # A good host without the image beats a bad one with it (E5b), unless groups are strict.
    skewed = OperatorNeeds(("a", "b"), (1.0, 9.0), (1.0, 1.0), (1.0, 1.0))
    state = small(Size(20, 20), [{0: 1, 1: 2}, {}], skewed)
    assert best_host(state, 0, Settings(image_factor=1.0)).number == 1  # type: ignore[union-attr]
    assert best_host(state, 0, Settings(image_factor=1.0, strict_images=True)).number == 0  # type: ignore[union-attr]


def test_three_of_three() -> None:
    """One of three instances is given up, by the cap; the others move."""
    state = small(Size(4, 7168), [{2: 3}, {k: 1 for k in range(9) if k != 2}])
    plan = plan_emptying(state, 0, PLAIN)
    assert plan is not None and plan.release == (2,) and plan.migrate == ((2, 1), (2, 1)) and not plan.donors
    state.hosts[0].idle_fails = 3
    plan = plan_emptying(state, 0, PLAIN)
    assert plan is not None and plan.release == (2, 2) and plan.migrate == ((2, 1),)
    assert plan_emptying(state, 0, Settings(escalate=False)).release == (2,)  # type: ignore[union-attr]


def test_last_host_is_prolonged() -> None:
    state = small(Size(4, 7168), [dict.fromkeys(range(9), 1)])
    until = state.hosts[0].paid_until_s
    done = BtuController().host_end(state, 0, 600.0)
    assert [a.kind for a in done] == ["prolong"] and state.hosts[0].paid_until_s == until + 600
    assert state.hosts[0].idle_fails == 0


def test_failed_plans_raise_the_cap() -> None:
    """Two full hosts: without an upscaling the counter rises, with one in the unit it is set back."""
    full = dict.fromkeys(range(9), 1)
    state = small(Size(4, 4300), [full, full])
    state.scalings = [1] * 9
    state.queues = [5.0] * 9
    assert [a.kind for a in BtuController().host_end(state, 0, 600.0)] == ["prolong"] and state.hosts[0].idle_fails == 1
    state.raised_s[3] = state.hosts[0].paid_until_s - 600
    BtuController().host_end(state, 0, 600.0)
    assert state.hosts[0].idle_fails == 0


def test_unit_end() -> None:
    state = small(Size(4, 7168), [{0: 1}, {1: 1}])
    state.hosts[1].closing = True
    kinds = [a.kind for a in BtuController().unit_end(state, 1, 600.0, False)]
    assert kinds == ["reopen", "prolong"] and not state.hosts[1].closing
    assert [a.kind for a in BtuController().unit_end(state, 1, 600.0, True)] == ["release"] and list(state.hosts) == [0]


def test_bills() -> None:
    """A lease of 61 minutes, and one that never worked."""
    life = Life(0.0, 45.0, 45.0 + 61 * 60)
    assert [cost_of([life], 60 * unit) for unit in (10, 30, 60)] == [7, 9, 12]
    assert units_of(Life(0.0, 45.0, 20.0), 600) == 1 and units_of(Life(0.0, 0.0, 1200.0), 600) == 2


@pytest.mark.parametrize("seed", range(5))
def test_stages_of_figure_3(seed: int) -> None:
    """Section 7.3: one lease for three operators, one more for five, and release when the load stops."""
    rng = np.random.default_rng(seed)
    state = small(Size(4, 2350), [{0: 1, 1: 1, 3: 1, 4: 1}, {2: 1, 5: 1, 6: 1, 7: 1, 8: 1}])
    for host in state.hosts.values():
        host.images = set(range(9))
    controller = BtuController()

    def cycle(triggering: set[int]) -> list[str]:
        for k in range(9):
            state.queues[k] = 100.0 if k in triggering else 1.0
            state.measure(k, [2 * OEE.objective_s[k]], state.now_s)
        found = controller.cycle(state, rng)
        for host in state.hosts.values():
            host.images = set(range(9))
            assert min(host.free(OEE)) >= 0
        return [a.kind for a in found]

    assert cycle({0, 1, 5}).count("lease") == 1
    assert state.hosts[2].placed == [1, 1, 0, 0, 0, 1, 0, 0, 0]
    state.now_s += 240
    done = cycle({0, 2, 3, 4, 8})
    assert done.count("lease") == 1 and done.count("drain") == 0 and done.count("start") == 5
    assert state.counts == [3 if k == 0 else 2 if k not in (6, 7) else 1 for k in range(9)]
    state.now_s += 3000
    state.queues = [0.0] * 9
    done = [a.kind for a in controller.host_end(state, 0, 3600.0)]
    assert done == ["close", "drain", "drain", "drain", "drain"]
    assert [a.kind for a in controller.unit_end(state, 0, 3600.0, True)] == ["release"]


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    """Random full or half-full hosts, with queues and durations."""
    n = draw(st.integers(2, 5))
    part = st.integers(1, 6).map(float)
    operators = OperatorNeeds(
        tuple(f"o{k}" for k in range(n)), tuple(draw(part) for _ in range(n)), tuple(draw(part) for _ in range(n)),
        (1.0,) * n,
    )  # fmt: skip
    state = ClusterState(operators, Size(10, 10), now_s=1e4)
    for k in range(n):
        best = best_host(state, k, PLAIN) or state.lease()
        assert best is not None
        state.start(k, best.number)
    for _ in range(draw(st.integers(0, 12))):
        k = draw(st.integers(0, n - 1))
        target = best_host(state, k, PLAIN) or (state.lease() if len(state.hosts) < 5 else None)
        if target is not None:
            state.start(k, target.number)
    for k in range(n):
        state.queues[k] = float(draw(st.sampled_from([0, 0, 5, 60])))
        state.measure(k, [draw(st.sampled_from([0.5, 1.0, 3.0]))], state.now_s)
        state.scalings[k] = draw(st.integers(0, 4))
    for host in state.hosts.values():
        host.paid_until_s = state.now_s + 30
        host.idle_fails = draw(st.integers(0, 2))
    return state


def _fits(state: ClusterState) -> bool:
    return all(min(host.free(state.operators)) >= -1e-9 for host in state.hosts.values())


@given(states(), st.data())
def test_plans(state: ClusterState, data: st.DataObject) -> None:
    """Planning changes nothing; what a plan does fits, keeps to the shared cap, and leaves everybody an instance."""
    before, counts = repr(state), state.counts
    host = data.draw(st.sampled_from(sorted(state.hosts)))
    plan = plan_emptying(state, host, PLAIN)
    operator = data.draw(st.integers(0, state.operators.size - 1))
    room = make_room(state, operator, PLAIN)
    assert repr(state) == before
    if room is not None:
        assert operator not in {k for k, _ in room.donors}
        assert max(sum(d == k for d, _ in room.donors) for k in range(state.operators.size)) <= 2
    leased = len(state.hosts)
    done = scale_up(state.copy(), operator, PLAIN)
    possible = best_host(state, operator, PLAIN) is not None
    assert [a.kind for a in done].count("lease") == (not possible and room is None)
    assert possible <= (done[0].kind == "start")
    if plan is None:
        return
    removed = [*plan.release, *(k for k, _ in plan.donors)]
    share = min(1.0, 0.2 * 2 ** state.hosts[host].idle_fails)
    for k, count in enumerate(counts):
        assert removed.count(k) <= min(count - 1, max(1, math.floor(share * count + 1e-9)))
    assert all(place != host for _, place in [*plan.donors, *plan.migrate]) and len(state.hosts) == leased
    here = sorted([*plan.release, *(k for k, _ in plan.migrate)])
    assert here == [k for k, count in enumerate(state.hosts[host].placed) for _ in range(count)]
    for k, place in plan.donors:
        state.drain(k, place)
    for k, place in plan.migrate:
        state.start(k, place)
    assert _fits(state)


def test_donors_are_taken_where_it_helps() -> None:
    """O1 gets the room of two instances that nobody needs, from the host where their leaving makes room; both count."""
    state = small(Size(4, 4300), [dict.fromkeys(range(9), 1), {1: 1, 2: 4, 4: 1, 5: 1, 7: 1, 8: 1}])
    state.queues = [60.0] + [5.0] * 8
    state.queues[2] = 0.0
    state.measure(0, [2.0], state.now_s)
    for k in range(1, 9):
        state.measure(k, [3 * OEE.objective_s[k]], state.now_s)
    done = BtuController().cycle(state, np.random.default_rng(0))
    assert [(a.kind, a.operator, a.host) for a in done] == [("drain", 2, 1), ("start", 0, 1)]
    assert state.scalings == [1, 0, 1, 0, 0, 0, 0, 0, 0] and state.raised_s[0] == state.now_s
    assert state.raised_s[2] == -math.inf


def test_lost_operators_come_back() -> None:
    """An operator whose instances all crashed gets one at once, whatever waits."""
    for controller in (BtuController(), ThresholdController()):
        state = small(Size(4, 7168), [dict.fromkeys(range(8), 1)])
        assert [a.kind for a in controller.cycle(state, np.random.default_rng(0))] == ["start"]
        assert state.counts == [1] * 9


def test_thresholds() -> None:
    """Two, one, none and one less, by the queue; the removed ones from the emptiest host."""
    state = small(Size(4, 7168), [dict.fromkeys(range(9), 1), {2: 1, 3: 1}])
    state.queues = [251.0, 250.0, 0.0, 1.0, 51.0, 50.0, 0.5, 0.0, 0.0]
    done = ThresholdController().cycle(state, np.random.default_rng(0))
    assert [(a.kind, a.operator, a.host) for a in done] == [
        ("start", 0, 0), ("start", 0, 0), ("start", 1, 0), ("drain", 2, 1), ("start", 4, 0)
    ]  # fmt: skip


def test_no_more_hosts_than_allowed() -> None:
    """Where no host may be leased, nothing is started, and the next cycle asks again."""
    state = small(Size(4, 4300), [dict.fromkeys(range(9), 1)])
    state.most_hosts = 1
    state.queues[0] = 300.0
    assert BtuController().cycle(state, np.random.default_rng(0)) == [] and state.counts == [1] * 9


def test_patterns() -> None:
    assert machines_of("stepwise", 20).tolist() == [2] * 4 + [5] * 4 + [8] * 4 + [5] * 4 + [2] * 4
    assert machines_of("two-level", 17).tolist() == [2] * 8 + [8] * 8 + [2]
    assert machines_of("pyramid", 112).max() == 8 and machines_of("pyramid", 120)[-1] == 1
    for name, mean in (("walk-1", 4.1), ("walk-2", 4.6)):
        found = machines_of(name, 120, 3)
        assert abs(found.mean() - mean) < 0.6 and found[0] == 4 and np.abs(np.diff(found)).max() == 1
    steps = np.diff(walk(20_000, np.random.default_rng(0)))
    assert 0.3 < (steps > 0).mean() < 0.41 and steps.min() == -1
    with pytest.raises(InputError, match="no pattern 'wave': choose one of stepwise"):
        machines_of("wave")


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="cap = 0"):
        Settings(cap=0.0)
    with pytest.raises(InputError, match="threshold = -1"):
        Settings(threshold=-1.0)
    with pytest.raises(InputError, match="window = 1"):
        Settings(window=1)
    with pytest.raises(InputError, match=r"processing element parse: a machine is too small for 0.644531 cores"):
        ClusterState(OEE, Size(0.5, 7168))
    with pytest.raises(InputError, match=r"needs.duration_s is needed"):
        operators_of(compile_flow(read_dataflow("sc13-diamond")))

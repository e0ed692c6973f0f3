"""The simulation of single messages: against a plain one, and its invariants under every controller."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from experiments.btu.item_results import Life
from experiments.btu.item_world import FixedController, Trace, make_trace, make_world
from experiments.btu.items import ItemRun, ItemSetting, run_items
from experiments.tests.btu.cases import PUBLISHED, VISP, trace
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Flow, compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.btu.controller import BtuController
from goffish.scheduling.policies.btu.ending import plan_emptying
from goffish.scheduling.policies.btu.model import Action, ClusterState, Settings, Size
from goffish.scheduling.policies.btu.threshold import ThresholdController

JOIN = compile_flow(
    read_dataflow(
        {
            "elements": [
                {"id": "a", "cost": 1, "needs": {"duration_s": 2.0, "memory_mb": 10}},
                {"id": "b", "cost": 1, "needs": {"duration_s": 3.0, "memory_mb": 10}},
                {"id": "c", "cost": 1, "selectivity": 0.5, "needs": {"duration_s": 1.0, "memory_mb": 10}},
                {"id": "d", "cost": 1, "needs": {"duration_s": 0.4, "memory_mb": 10}},
            ],
            "edges": [["a", "c"], ["b", "c"], ["c", "d"], ["a", "d"]],
            "inputs": {"a": 1.0, "b": 1.0},
        }
    )
)


def plainly(
    flow: Flow, arrivals: Trace, servers: list[int], share: float
) -> tuple[list[list[tuple[float, float]]], list[list[float]]]:
    """Arrival and duration of every completed message of each operator, without noise, and arrivals of the others."""
    objective, every = flow.needs.duration_s, np.rint(1 / flow.selectivity)
    events: list[tuple[float, int, int, int, float]] = [
        (t, 1, n, int(op), t) for n, (t, op) in enumerate(zip(arrivals.moments, arrivals.operators, strict=True))
    ]
    heapq.heapify(events)
    free, queues = list(servers), [deque[float]() for _ in servers]
    done: list[list[tuple[float, float]]] = [[] for _ in servers]
    number = len(events)

    def begin(op: int, arrival: float, now: float) -> None:
        nonlocal number
        number += 1
        free[op] -= 1
        heapq.heappush(events, (now + share * objective[op], 0, number, op, arrival))

    def arrive(op: int, now: float) -> None:
        if free[op]:
            begin(op, now, now)
        else:
            queues[op].append(now)

    while events and events[0][0] < arrivals.end_s:
        now, kind, _, op, arrival = heapq.heappop(events)
        if kind:
            arrive(op, now)
            continue
        free[op] += 1
        done[op].append((arrival, now - arrival + (1 - share) * objective[op]))
        if queues[op]:
            begin(op, queues[op].popleft(), now)
        if len(done[op]) % every[op] == 0:
            for follower in flow.succ[flow.succ_offsets[op] : flow.succ_offsets[op + 1]]:
                arrive(int(follower), now)
    left = [list(queue) for queue in queues]
    for _, kind, _, op, arrival in events:
        if not kind:
            left[op].append(arrival)
    return done, left


@pytest.mark.parametrize("seed", range(3))
def test_against_a_plain_simulation(seed: int) -> None:
    """Breaks when messages are served out of turn, counted in the wrong minute or level, or not passed on."""
    rng = np.random.default_rng(seed)
    arrivals = Trace(
        np.sort(rng.uniform(0, 175, 900)), rng.integers(0, 2, 900), np.ones(3, np.int64), 180.0
    )  # fmt: skip
    servers = [2, 3, 2, 1]
    result = run_items(
        JOIN,
        arrivals,
        FixedController(),
        ItemSetting(service_share=0.8, noise=0.0, size=Size(100, 1000)),
        start=servers,
    )
    done, left = plainly(JOIN, arrivals, servers, 0.8)
    for op in range(4):
        minutes = Counter(int(arrival / 60) for arrival, _ in done[op])
        assert result.seen[:, op, 0].tolist() == [minutes[m] for m in range(3)]
        for level, times in enumerate((1, 2, 5)):
            limit = times * JOIN.needs.duration_s[op]
            late = sum(duration > limit + 1e-9 for _, duration in done[op])
            late += sum(180.0 - arrival > limit for arrival in left[op])
            assert late == result.seen[:, op, 1 + level].sum()
    assert result.unfinished == sum(map(len, left)) > 10 and result.misses.min() > 0


def test_unfinished_messages_count() -> None:
    """One server, a message every second, five seconds each: all that wait too long at the end are missed."""
    moments = np.arange(0.5, 100)
    arrivals = Trace(moments, np.zeros(100, np.int64), np.ones(2, np.int64), 120.0)
    setting = ItemSetting(service_share=1.0, noise=0.0, size=Size(10, 100))
    result = run_items(JOIN, arrivals, FixedController(), setting)
    # Two seconds each: 59 are done, the others still wait, or are being served.
    done = [(0.5 + 2 * (n + 1) - m) for n, m in enumerate(moments) if 0.5 + 2 * (n + 1) < 120]
    age = (120 - moments[len(done) :]).tolist()
    assert result.seen[:, 0, 0].sum() == len(done)
    for level, limit in enumerate((2, 4, 10)):
        assert result.seen[:, 0, 1 + level].sum() == sum(x > limit + 1e-9 for x in done + age)


def test_noise_begins_anew_at_the_end_of_its_table() -> None:
    """Breaks when operators whose draws begin at an odd place read what lies behind the table."""
    arrivals = Trace(np.arange(0.5, 100), np.zeros(100, np.int64), np.ones(2, np.int64), 120.0)
    world = make_world(JOIN, arrivals, ItemSetting(sample_every=1), 5, np.random.default_rng(0))
    table = np.array([1.0, 1.1, 0.9, 1.2, np.nan, np.nan])
    world.arrays = world.arrays._replace(noise=table[:4])
    for operator in range(4):
        world.add(operator, 0.0)
    world.advance(120.0)
    assert world.completed[[0, 2, 3]].min() > 20 and np.isfinite(world.recent).all()


class Watch:
    """Checks, after every event, what must always be true."""

    def __init__(self) -> None:
        self.run: ItemRun
        self.counts: list[int] = []
        self.acted = 0

    def __call__(self, run: ItemRun, event: str) -> None:
        self.run, state, size = run, run.state, run.setting.size
        for host in state.hosts:
            held = run.held(host)
            assert held.cores <= size.cores + 1e-9 and held.memory_mb <= size.memory_mb + 1e-9
            free = state.hosts[host].free(state.operators)
            assert min(free) >= -1e-9
        assert min(state.counts) >= 1
        kept = Counter((i.operator, i.host) for i in run.instances.values() if i.status != "draining")
        placed = {(k, h.number): c for h in state.hosts.values() for k, c in enumerate(h.placed) if c}
        assert kept == placed
        w = run.world
        serving = np.bincount(w.slot_op[w.busy > 0], minlength=w.length.size)
        assert (w.entered == w.completed + w.length + serving).all()
        sent = w.completed // w.every
        for k in range(w.length.size):
            parents = run.flow.pred[run.flow.pred_offsets[k] : run.flow.pred_offsets[k + 1]]
            came = (run.trace.operators[: w.cursor[0]] == k).sum() + sent[parents].sum()
            assert w.entered[k] == came
        ready = Counter(i.operator for i in run.instances.values() if i.status == "ready")
        assert [ready[k] for k in range(w.slots.size)] == w.slots.tolist()
        done = [action for _, action in run.actions[self.acted :]]
        self.acted = len(run.actions)
        if run.controller.by_units and event not in ("host_end", "ready"):
            # Between ends of units only donors of an instance that was added go.
            kinds = [a.kind for a in done]
            assert not kinds.count("drain") or (event == "cycle" and kinds.count("start"))
            for at, kind in enumerate(kinds):
                if kind == "drain":
                    assert next(k for k in kinds[at:] if k != "drain") == "start"
        if event == "ready":
            # Make before break: with a move one is added before one goes.
            assert all(now >= before for now, before in zip(w.slots.tolist(), self.counts, strict=True))
        self.counts = w.slots.tolist()


def run_host(run: ItemRun, life: Life) -> int:
    """The number of the host that had a life; no two work from the same moment on."""
    return next(host for host, ready in run.ready_s.items() if ready == life.ready_s)


CASES: list[tuple[str, Any, float, str]] = [
    ("ten", BtuController(), 10, "8x8 2x12 6x10 1x10"),
    ("half an hour", BtuController(), 30, "2x3 8x8 2x23"),
    ("a minute", BtuController(), 1, "8x10 1x10"),
    ("as published", BtuController(PUBLISHED), 10, "2x4 8x6 2x14"),
    ("packed", BtuController(Settings(pack=True, strict_images=True, prefer_paid=True)), 10, "2x5 8x10 2x15"),
    ("threshold", ThresholdController(), 60, "2x4 8x8 2x8 8x4"),
]


@pytest.mark.parametrize(("controller", "unit", "load"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_invariants(controller: Any, unit: float, load: str) -> None:
    """Invariants 1 to 13 of docs/specs/btu.md, section 7.1; units of billing by what was enacted."""
    unit_s, arrivals = 60 * unit, trace(load, 0)
    watch = Watch()
    result = run_items(VISP, arrivals, controller, ItemSetting(unit_s=unit_s), 4, observer=watch)
    run = watch.run
    assert result.ups > 5 and result.leases > 1
    assert result.misses[0] >= result.misses[1] >= result.misses[2]
    assert result.total_costs() == pytest.approx(result.resource_cost() + 1e-4 * result.misses)
    lives = [(life.end_s - life.ready_s) / unit_s for life in result.lives if life.end_s < arrivals.end_s]
    if controller.by_units:
        assert all(abs(units - round(units)) < 1e-9 for units in lives)
        assert result.paid == pytest.approx(result.resource_cost()) and result.early_releases == 0
        # One look at each unit of each host, in its last twentieth.
        moments = [
            (a.host, (t - run.ready_s[a.host]) / unit_s) for t, a in run.actions if a.kind in ("close", "prolong")
        ]
        looks = Counter((host, round(at + 0.05)) for host, at in moments if abs(at - round(at)) > 1e-6)
        assert set(looks.values()) == {1}
        assert all(abs(at + 0.05 - round(at + 0.05)) < 1e-6 or abs(at - round(at)) < 1e-6 for _, at in moments)
        for life in result.lives:
            units = math.floor((life.end_s - life.ready_s) / unit_s + 0.05 - 1e-6)
            assert sum(host == run_host(run, life) for host, _ in looks) == max(0, units)
    else:
        assert lives and result.early_releases == len(lives)
    again = run_items(VISP, arrivals, controller, ItemSetting(unit_s=unit_s), 4)
    assert again.seen.tobytes() == result.seen.tobytes() and again.lives == result.lives
    assert again.minutes == result.minutes


@pytest.mark.parametrize(("load", "each"), [("8x4", 1), ("8x2", 10)])
def test_long_queues_and_many_instances(load: str, each: int) -> None:
    """Queues and slots grow: nothing is lost, and what waited is served in its turn."""
    watch = Watch()
    setting = ItemSetting(noise=0.0)
    result = run_items(VISP, trace(load, 0), FixedController(), setting, start=[each] * 9, observer=watch)
    waiting = watch.run.world.length
    if each == 1:
        # 167 messages a second come, 16.7 are served by the one instance.
        assert waiting[5] == pytest.approx(240 * 150, rel=0.01) and watch.run.world.queue.shape[1] > 1 << 12
        assert watch.run.world.recent[5, -1] == pytest.approx(240 * 0.9, rel=0.02)
    else:
        assert waiting.max() <= 1 and watch.run.world.role.size == 128 and result.misses[1] == 0


@dataclass(frozen=True)
class Noting(BtuController):
    """Notes the plans that fail, and looks at the last host, for which there is none."""

    noted: Counter[str] = field(default_factory=Counter)

    def host_end(self, state: ClusterState, host: int, unit_s: float) -> list[Action]:
        if len(state.usable) < 2:
            self.noted["last"] += 1
        elif plan_emptying(state, host, self.settings) is None:
            self.noted["infeasible"] += 1
        return super().host_end(state, host, unit_s)


@pytest.mark.parametrize(("memory", "rest_s", "failed"), [(20, 0.0, 6), (20, 100.0, 4), (100, 0.0, 0)])
def test_failed_plans(memory: float, rest_s: float, failed: int) -> None:
    """Four instances that none can do without fill two hosts, which so fail at the end of each of three units.

    Breaks when hosts that no plan is made for count: the last one, or those that must stay for a while after a lease.
    """
    arrivals = Trace(np.array([1.0, 2.0]), np.array([0, 1]), np.ones(3, np.int64), 180.0)
    setting = ItemSetting(unit_s=60.0, size=Size(100, memory))
    result = run_items(JOIN, arrivals, BtuController(Settings(rest_s=rest_s)), setting)
    hosts = 2 if memory == 20 else 1
    assert (result.failed_plans, result.leases, result.prolongings) == (failed, hosts, 2 * hosts)


def test_a_host_that_fails_to_empty_is_kept() -> None:
    """Six seconds are too few to move an instance: the host is opened again and paid on, what moved stays moved."""
    controller = Noting()
    kinds: Counter[str] = Counter()

    def observe(run: ItemRun, event: str) -> None:
        kinds.clear()
        kinds.update(action.kind for _, action in run.actions)

    setting = ItemSetting(unit_s=120.0, image_s=(30.0, 30.0))
    result = run_items(VISP, trace("8x12 2x18", 0), controller, setting, 1, observer=observe)
    assert kinds["reopen"] > 0 and kinds["migrate"] >= result.migrations > 0
    assert min(controller.noted["last"], controller.noted["infeasible"]) > 0
    assert result.failed_plans == controller.noted["infeasible"] + kinds["reopen"]
    assert result.paid == pytest.approx(result.resource_cost())


def test_loads() -> None:
    """Sixteen messages of a machine in each step, evenly, whoever reads them."""
    found = trace("3x1 1x1", 0)
    assert found.moments.size == 16 * 125 * 4 and (np.diff(found.moments) >= 0).all()
    names = [VISP.names[k] for k in found.operators.tolist()]
    assert Counter(names) == {"filter": 2500, "parse": 500, "temperature": 5000}
    first = found.moments[: 16 * 3].reshape(-1)
    assert first.max() < 0.48 and first[0] == pytest.approx(0.48 / 60)
    with pytest.raises(InputError, match="no element 'x'"):
        make_trace(VISP, np.ones(1, np.int64), {"x": 1}, 0.48)


def test_what_cannot_be_simulated() -> None:
    arrivals = trace("1x1", 0)
    odd = compile_flow(
        read_dataflow(
            {"elements": [{"id": "a", "cost": 1, "selectivity": 0.7, "needs": {"duration_s": 1.0}}], "inputs": {"a": 1}}
        )
    )
    with pytest.raises(InputError, match=r"element a: selectivity = 0\.7"):
        run_items(odd, arrivals, FixedController())
    with pytest.raises(InputError, match="service_share = 2"):
        run_items(VISP, arrivals, FixedController(), ItemSetting(service_share=2.0))
    with pytest.raises(InputError, match="noise = -1"):
        run_items(VISP, arrivals, FixedController(), ItemSetting(noise=-1.0))
    assert math.isnan(run_items(VISP, arrivals, FixedController()).adapting_s)

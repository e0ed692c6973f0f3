"""Plans of graph jobs for the spot market, the pace of local machines, and the operator's catalogues."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.prices import UNAVAILABLE, seconds_of
from goffish.cloud.providers import CapacityError, LocalProvider, Request, SimulatedProvider
from goffish.errors import InputError
from goffish.scheduling.spot.advice import text_of
from goffish.scheduling.spot.agent import Agent
from goffish.scheduling.spot.heuristics import Heuristic
from goffish.scheduling.spot.job import QUIESCED, START, WAIT, Status, submitted
from goffish.services.api import wire
from goffish.services.api.admission import check_spec
from goffish.services.api.inputs import Inputs
from goffish.services.runners import cloud_needs
from goffish.services.runners.cloud import CloudRunner
from goffish.services.runners.cloud_needs import size_of
from goffish.services.runners.cloud_planning import Need, Planner, began_at
from goffish.services.runners.order import Files
from goffish.services.store.spec import GraphJob, JobSpec
from tests.services.runners.rented import BEGIN, CALM, HIGH, KNOWN_S, ON_DEMAND, cloud_of, make_store, write_cloud

#: An hour of work of a machine of two cores, within six hours; a slot lasts six minutes or more.
NEED = Need(core_hours=2.0, startup_s=300.0, checkpoint_s=10.0, left_s=6 * 3600.0, least_slot_s=360.0)


def test_plans_on_calm_prices(tmp_path: Path) -> None:
    """Breaks when on demand is not the price of the hours that the job takes, or the others are not cheaper."""
    cloud, planner = cloud_of(write_cloud(tmp_path)), Planner()
    plans = {name: planner.plan(cloud, name, NEED) for name in ("rtba", "h1", "h2", "h3", "on-demand")}
    dear = plans["on-demand"]
    # Slots of ten minutes: one to start, and six of two cores each; five minutes of the start are charged.
    assert (dear.slot_s, dear.work, dear.slots) == (600.0, 6, 36)
    assert dear.expected_cost == pytest.approx(ON_DEMAND * 65 / 60) == dear.on_demand_cost
    for name in ("h1", "h2", "h3", "rtba"):
        assert CALM * 65 / 60 * (1 - 1e-9) <= plans[name].expected_cost < 0.5 * dear.expected_cost, name
    assert plans["rtba"].expected_cost <= min(plan.expected_cost for plan in plans.values()) * 1.1
    rules = dear.market.rules
    assert rules.spot.tolist() == [True, False] and rules.bid[0] == ON_DEMAND
    prices = [CALM]
    assert dear.decide(30, submitted(6), prices) == START + dear.market.on_demand_choice(0)
    assert rules.spot[plans["rtba"].decide(30, submitted(6), prices) - START]
    assert plans["rtba"].decide(30, submitted(6), [HIGH]) == WAIT


def test_heuristics_bid_for_recent_prices(tmp_path: Path) -> None:
    """60 % of the known day at 0.02, the rest and the job's own day at 0.05: a bid of 0.02 would never be met again."""
    folder = write_cloud(tmp_path)
    changes = ((0.0, 0.05), (0.1, 0.02), (0.7, 0.05), (2.0, 0.05))
    rows = [f"{BEGIN + np.timedelta64(int(at * KNOWN_S), 's')},{price}" for at, price in changes]
    (folder / "own.csv").write_text("timestamp_utc,price_usd_per_hour\n" + "\n".join(rows) + "\n")
    for name in ("h1", "h2", "h3"):
        plan = Planner().plan(cloud_of(folder), name, NEED)
        assert isinstance(plan.policy, Heuristic)
        assert plan.market.classes[0].bids[plan.policy.bid] >= 0.05
        assert plan.decide(30, submitted(6), [0.05]) == START + plan.market.spot_choice(0, plan.policy.bid)


def test_a_deadline_that_cannot_be_promised(tmp_path: Path) -> None:
    """Breaks when a job that is late waits for prices, or asks the table for what is not in it."""
    cloud, planner = cloud_of(write_cloud(tmp_path)), Planner()
    for left_s in (0.0, 1800.0):
        plan = planner.plan(cloud, "rtba", NEED.__class__(2.0, 300.0, 10.0, left_s, 360.0))
        assert not plan.promised and plan.on_demand_cost == np.inf and np.isfinite(plan.expected_cost)
    plan = planner.plan(cloud, "rtba", NEED)
    on_demand = START + plan.market.on_demand_choice(0)
    for left in (0, 1, 6):
        assert plan.decide(left, Status(QUIESCED, 6, 6), [HIGH]) == on_demand
    assert plan.decide(10_000, submitted(6), [HIGH]) == WAIT


def test_jobs_of_seconds(tmp_path: Path) -> None:
    """Breaks when a job that is shorter than a slot is never promised, whatever its deadline."""
    cloud, planner = cloud_of(write_cloud(tmp_path)), Planner()
    for left_s in (None, 3600.0):
        plan = planner.plan(cloud, "rtba", Need(0.001, 1.0, 0.1, left_s, 0.5))
        assert plan.promised and plan.work == 1 and plan.slots >= 8
        assert plan.expected_cost < plan.on_demand_cost == pytest.approx(ON_DEMAND / 60)


def test_jobs_that_are_too_large_for_a_table(tmp_path: Path) -> None:
    """Breaks when a job makes the server build a table that fills its memory."""
    cloud = cloud_of(write_cloud(tmp_path))
    with pytest.raises(InputError, match=r"policy: too large for rtba: 1e\+05 core-hours in .* choose another policy"):
        Planner().plan(cloud, "rtba", Need(1e5, 300.0, 10.0, None, 360.0))
    assert Planner().plan(cloud, "on-demand", Need(1e5, 300.0, 10.0, None, 360.0)).slots > 100_000


def test_planning_ends_with_its_job(tmp_path: Path) -> None:
    """Breaks when a job that is cancelled goes on planning, or leaves the planner locked for others."""
    cloud, planner = cloud_of(write_cloud(tmp_path)), Planner()
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise KeyError("cancelled")

    with pytest.raises(KeyError, match="cancelled"):
        planner.plan(cloud, "rtba", NEED, check)
    assert len(asked) == 3 and planner.plan(cloud, "rtba", NEED).slots == 36


def test_planners_know_the_past_only(tmp_path: Path) -> None:
    """Breaks when a plan depends on prices that its job will live to see."""
    calm, wild = (cloud_of(write_cloud(tmp_path / name, changes)) for name, changes in (
        ("calm", []), ("wild", [(at, (CALM, HIGH)[at // 900 % 2]) for at in range(900, 60_000, 900)]),
    ))  # fmt: skip
    found = [Planner().plan(cloud, "rtba", NEED) for cloud in (calm, wild)]
    assert found[0].expected_cost == found[1].expected_cost
    begin = seconds_of(str(BEGIN))
    assert began_at(calm, 0.0) == begin + KNOWN_S and began_at(calm, 100.0) == begin + KNOWN_S + 100
    assert began_at(calm, 3 * KNOWN_S + 5.0) == began_at(calm, 5.0)


def test_machine_types_without_bids(tmp_path: Path) -> None:
    """Breaks when a job bids where nothing is bid for, waits for a lower price, or starts what is not available."""
    rows = "".join(f"{BEGIN + np.timedelta64(hour, 'h')},{hour % 4 != 3:d}\n" for hour in range(97))
    (tmp_path / "own.csv").write_text("timestamp_utc,available\n" + rows)
    one = {"name": "tiny", "cores": 2, "price_per_hour": ON_DEMAND, "market": "spot", "spot_price_per_hour": CALM}
    (tmp_path / "own.yaml").write_text(json.dumps({"machine_types": [one | {"availability": "own.csv"}]}))
    plan = Planner().plan(read_catalogue(tmp_path / "own.yaml"), "rtba", NEED)
    assert plan.market.classes[0].by_availability and plan.market.rules.spot.tolist() == [True, False]
    assert text_of(plan.market, plan.decide(30, submitted(6), [CALM])) == "start tiny on the spot market"
    assert plan.decide(30, submitted(6), [UNAVAILABLE]) == WAIT
    assert CALM < plan.expected_cost < 0.7 * plan.on_demand_cost

    async def run() -> None:
        provider = SimulatedProvider(read_catalogue(tmp_path / "own.yaml"))
        given = {"machine_type": "tiny", "command": (), "market": "spot", "max_price": float(plan.market.rules.bid[0])}
        await provider.request(Request(token="1", **given))
        assert [(one.price_per_hour, one.available) for one in await provider.offers()] == [
            (ON_DEMAND, True), (CALM, True),
        ]  # fmt: skip
        provider.advance(4 * 3600.0 - 1)
        assert (await provider.offers())[1][3:] == (UNAVAILABLE, False)
        assert [(one.ended_s, one.reason) for one in await provider.machines({})] == [(10800.0, "no capacity is left")]
        with pytest.raises(CapacityError, match="tiny on the spot market: is not available"):
            await provider.request(Request(token="2", **given))

    asyncio.run(run())


def test_a_notice_lowers_the_expected_cost(tmp_path: Path) -> None:
    """Breaks when a plan does not use that nothing is lost where notice is given, or a table without it is taken."""
    rows = "".join(f"{BEGIN + np.timedelta64(hour, 'h')},{hour % 3 != 2:d}\n" for hour in range(97))
    (tmp_path / "own.csv").write_text("timestamp_utc,available\n" + rows)
    one = {"name": "tiny", "cores": 2, "price_per_hour": ON_DEMAND, "market": "spot", "spot_price_per_hour": CALM}
    (tmp_path / "own.yaml").write_text(json.dumps({"machine_types": [one | {"availability": "own.csv"}]}))
    catalogue, planner = read_catalogue(tmp_path / "own.yaml"), Planner()
    costs = [planner.plan(catalogue, "rtba", replace(NEED, notice=notice)).expected_cost for notice in (False, True)]
    assert costs[1] < costs[0]
    # Checkpoints in each slot are as good as a notice; rarer ones, or ones that take too long, are no use.
    slot_s = 3600.0 / planner.plan(catalogue, "rtba", NEED).market.slots_per_hour
    for between_s, as_notice in ((slot_s - NEED.checkpoint_s, True), (slot_s, False)):
        assert planner.plan(catalogue, "rtba", replace(NEED, between_s=between_s)).market.notice == as_notice


def test_what_an_interruption_costs(tmp_path: Path) -> None:
    """Breaks when a plan counts on checkpoints of an algorithm that writes none, or on a notice that is not given."""
    make_store(tmp_path, 100, 500)
    cloud = cloud_of(write_cloud(tmp_path / "clouds"))
    local = CloudRunner(lambda uri: str(tmp_path / uri), lambda _: cloud, 360.0)
    remote = replace(local, jobs_at="memory://jobs")
    needs = [
        runner.plan(job, Files.of(job, runner.resolve), None).need
        for job in (
            GraphJob(algorithm=name, input_uri="store", runner="cloud", checkpoint_every=5)
            for name in ("pagerank", "matching")
        )
        for runner in (local, remote)
    ]
    assert [need.notice for need in needs] == [False, True, False, False]
    assert [need.between_s < math.inf for need in needs] == [True, True, False, False]


def test_clouds_without_a_spot_market() -> None:
    with pytest.raises(InputError, match="no spot machine types"):
        Planner().plan(read_catalogue("ec2-2013-m1"), "rtba", NEED)


def test_what_a_job_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the time of the cloud is not that of this computer times the pace, by the share of a processor."""
    make_store(tmp_path, 2000, 10_000)
    cloud = cloud_of(write_cloud(tmp_path / "clouds"))
    graph = GraphJob(algorithm="pagerank", input_uri="store", runner="cloud", options={"supersteps": "100"})
    sized = size_of(graph, str(tmp_path / "store"), cloud)
    # Two cores are one processor, for one thread.
    assert sized.share == 0.5 and sized.remark == ""
    need = sized.need(cloud, 360.0, 10.0, 20)
    found = sized.estimate
    assert need.between_s == pytest.approx(found.core_hours_high * 360 * 3600 / 5)  # 5 of 100 supersteps, on 2 cores
    assert sized.need(cloud, 360.0, 10.0).between_s == math.inf
    without = sized.need(cloud, 360.0, 10.0).core_hours
    assert without == pytest.approx(found.core_hours_high * 360 * 2)
    assert need.core_hours == pytest.approx(without * (1 + found.checkpoint_seconds_high * 360 / need.between_s))
    assert without * need.likely_share == pytest.approx(found.core_hours * 360 * 2)
    assert need.left_s == 3600.0 and need.startup_s == pytest.approx(360 * (0.5 + sized.estimate.startup_seconds))
    (tmp_path / "edges.csv").write_text("source,target\n" + "1,2\n" * 3000)
    with monkeypatch.context() as patch:
        patch.setattr(cloud_needs, "_MOST_READ", 100)
        guessed = size_of(graph, str(tmp_path / "edges.csv"), cloud)
    assert guessed.remark == "number of edges estimated from the file size: 1,001"
    longer = size_of(graph.model_copy(update={"options": {"supersteps": "10000"}}), str(tmp_path / "store"), cloud)
    assert longer.estimate.core_hours > 2 * sized.estimate.core_hours
    assert (
        "triangles is not calibrated"
        in size_of(graph.model_copy(update={"algorithm": "triangles"}), str(tmp_path / "store"), cloud).remark
    )


def test_jobs_that_are_not_accepted(tmp_path: Path) -> None:
    """Breaks when what can be known to fail is accepted."""
    make_store(tmp_path, 100, 500)
    inputs, runners = Inputs([tmp_path], tmp_path / "uploads", 1000, 1000), ("local", "cloud")
    graph = {"algorithm": "pagerank", "input_uri": "store", "runner": "cloud"}
    dataflow = {"dataflow": "sc13-diamond"}
    check_spec(JobSpec.model_validate({"graph": graph}), inputs, runners)
    check_spec(JobSpec.model_validate({"dataflow": dataflow}), inputs, runners)
    for body, error in (
        ({"graph": graph | {"cloud_name": "ec2-2013-m1"}}, r"spec\.graph\.cloud_name: .* has no spot machines"),
        ({"graph": graph | {"cloud_name": "own"}}, r"spec\.graph\.cloud_name: unknown 'own'"),
        ({"dataflow": dataflow | {"hours": 1e9}}, r"spec\.dataflow\.hours: .* 1 to 20,000 are accepted"),
    ):
        with pytest.raises(InputError, match=error):
            check_spec(JobSpec.model_validate(body), inputs, runners)


def test_the_pace_of_local_machines(tmp_path: Path) -> None:
    """Breaks when prices or bills of local machines do not go with their clock."""
    pace = 3600.0
    cloud = cloud_of(write_cloud(tmp_path, [(1800, 0.1), (5400, HIGH)]))
    since = began_at(cloud, 0.0)

    async def run() -> None:
        provider = LocalProvider(cloud, folder=tmp_path / "machines", pace=pace, since=since)
        try:
            assert (await provider.offers())[1].price_per_hour == CALM
            machine = await provider.request(Request(machine_type="tiny", market="spot", command=(), token="1"))
            before = time.monotonic()
            await asyncio.sleep(0.75)
            assert (await provider.offers())[1].price_per_hour == 0.1
            while not machine.ended:
                assert time.monotonic() < before + 30
                await asyncio.sleep(0.05)
                machine = (await provider.machines({}))[0]
            begun = machine.requested_s
            assert (machine.state, machine.ended_s) == ("interrupted", 5400.0) and 0 <= begun < 1800
            assert time.monotonic() - before >= (5400 - begun) / pace - 0.1
            # Minutes that began before half an hour had passed cost the first price.
            first = -(-(1800 - begun) // 60)
            every = -(-(5400 - begun) // 60)
            assert await provider.costs([machine]) == [pytest.approx((first * CALM + (every - first) * 0.1) / 60)]
        finally:
            await provider.close()

    asyncio.run(run())
    for wrong in (0.0, -1.0, float("inf")):
        with pytest.raises(InputError, match="pace = "):
            LocalProvider(cloud, folder=tmp_path, pace=wrong)


def test_catalogues_of_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a catalogue of the operator is not known by its name, or a client's name is taken for a file."""
    monkeypatch.setattr(wire, "_own_clouds", {})
    folder = write_cloud(tmp_path / "clouds")
    with pytest.raises(InputError, match="unknown 'own'"):
        wire.cloud_by_name("own")
    wire.add_clouds(folder)
    assert wire.cloud_by_name("own").classes[0].prices == str(folder / "own.csv")
    assert "own" in wire.cloud_names() and wire.cloud_by_name("ec2-2013-m1") == read_catalogue("ec2-2013-m1")
    for name in (str(folder / "own.yaml"), "../own", "own.yaml", ""):
        with pytest.raises(InputError, match="unknown"):
            wire.cloud_by_name(name)
    (folder / "own.yaml").rename(folder / "ec2-2013.yaml")
    with pytest.raises(InputError, match=r"has the name ec2-2013; rename the file"):
        wire.add_clouds(folder)


def test_jobs_fit_the_market_again(tmp_path: Path) -> None:
    """A price that stays above on demand for hours is unlike the known day; the rest of the job gets another table."""
    plan = Planner().plan(cloud_of(write_cloud(tmp_path)), "rtba", NEED)
    assert isinstance(plan.policy, Agent)
    plan.policy.alarm = 1.5
    for left in range(36, 8, -1):
        plan.decide(left, submitted(6), [HIGH])
    assert plan.policy.fits >= 1
    assert plan.policy.table.slots < plan.slots and plan.policy.table.market.choices == plan.market.choices
    assert plan.decide(7, submitted(6), [HIGH]) == START + plan.market.on_demand_choice(0)

"""Spot advice by gRPC: what the command says of the same market, and a job that is under way."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from goffish.errors import InputError
from goffish.scheduling.spot.advice import text_of
from goffish.scheduling.spot.fitting import read_fitted
from goffish.scheduling.spot.job import START
from goffish.scheduling.spot.sizes import values_of_slot
from goffish.services.api import spot_advice
from goffish.services.api.spot_advice import Markets, _decide, strategy
from goffish.v1 import planning_pb2
from tests.commands import call
from tests.services.api.serving import serving

ROOT = Path(__file__).resolve().parents[3]


def command(*given: str) -> str:
    done = call("spot", *given, cwd=ROOT)
    assert done.code == 0, done.err
    return done.out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("markets")
    command("fit", "examples/spot-2015.yaml", "--until", "2015-07-01", "--estimator", "auto", "-o",
            str(made / "two.json"))  # fmt: skip
    return made


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the market names its price files from there


def advise(markets: Markets, asked: planning_pb2.AdviseSpotRequest) -> planning_pb2.AdviseSpotResponse:
    """As the service does, with the table built here."""
    found = markets.read(asked)
    return found.answer(strategy(found.fitted, *found.key[1:]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *(
            ({"used_s": value}, "running.used_s: .*; must be 0 to 3600")
            for value in (1e308, 3601.0, -1.0, math.inf, -math.inf, math.nan)
        ),
        *(({"saved_core_hours": value}, "saved_core_hours: ") for value in (math.inf, math.nan, -1.0, 1e308)),
        (
            {"saved_core_hours": 2.0},
            "running.saved_core_hours: 2; must be at least core_hours, 4: the work from the last",
        ),
        ({"saved_core_hours": 0.0}, "or from the start of a job without one"),
        ({"class": "huge"}, "running.class: unknown machine type 'huge'; accepted: "),
        ({"bid": 1e-6}, "running.bid: bid 1e-06 of .*: below the bids of the market"),
    ],
)
def test_a_running_job_that_cannot_be(folder: Path, change: dict[str, float], told: str) -> None:
    """Breaks when numbers of a client keep a thread busy for ever, or are a fault of the server."""
    name = Markets(folder).messages()[0].classes[0].name
    running = {"class": name, "saved_core_hours": 4.0, "used_s": 60.0} | change
    asked = planning_pb2.AdviseSpotRequest(core_hours=4, hours=10, market="two", running=running)
    with pytest.raises(InputError, match=told):
        Markets(folder).read(asked)


@pytest.mark.slow
def test_advice_is_that_of_the_command(folder: Path) -> None:
    """Breaks when the service advises something else than the command, or expects another cost."""
    markets = Markets(folder)
    assert [one.name for one in markets.messages()] == ["two"] and len(markets.messages()[0].classes) == 2
    name = markets.messages()[0].classes[0].name
    given = ["advise", "--market", str(folder / "two.json"), "--json", "--work", "4", "--deadline", "6"]
    told = json.loads(command(*given, "--price", f"{name}=0.02"))
    asked = planning_pb2.AdviseSpotRequest(core_hours=4, hours=6, market="two", prices={name: 0.02})
    found = advise(markets, asked)
    assert found.action == told["action"]
    assert found.expected_cost == pytest.approx(told["expected_cost"])
    assert found.on_demand_cost == pytest.approx(told["on_demand_cost"])
    assert [(one.hours, pytest.approx(one.expected_cost)) for one in found.deadlines] == [
        (one["hours"], one["expected_cost"]) for one in told["deadlines"]
    ]
    running = ["--machine", name, "--work-from-checkpoint", "5", "--used-minutes", "30"]
    held = json.loads(command(*given, "--price", f"{name}=0.02", *running))
    asked.running.CopyFrom(planning_pb2.RunningJob(saved_core_hours=5, used_s=1800, **{"class": name}))
    assert advise(markets, asked).action == held["action"]


def test_decisions_for_programs(folder: Path) -> None:
    """Breaks when a program is told another action, class or bid than people are: all that a market knows."""
    market = read_fitted(str(folder / "two.json")).market
    told = {
        "wait": "WAIT", "continue": "GO_ON", "checkpoint": "CHECKPOINT", "release the machine": "RELEASE",
        "cancel the checkpoint": "QUIT_CHECKPOINT", "move to the local machine": "MOVE",
    }  # fmt: skip
    bids = [(one.name, bid) for one in market.classes for bid in one.bids.tolist()]
    assert len({bid for _, bid in bids if bid < float("inf")}) > 2
    for action in range(START + market.choices):
        answer = planning_pb2.AdviseSpotResponse()
        _decide(answer, market, action)
        text = text_of(market, action)
        decision = planning_pb2.SpotAction.Name(answer.decision).removeprefix("SPOT_ACTION_")
        name = getattr(answer, "class")
        if action < START:
            assert decision == told[text] and not name and not answer.on_demand and not answer.HasField("bid")
            continue
        assert decision == "START"
        if answer.on_demand:
            assert text == f"start {name} on demand" and not answer.HasField("bid")
        else:
            expected, bid = bids[action - START]  # classes one after the other, bids ascending
            assert name == expected and text.startswith(f"start {name} on the spot market")
            assert answer.bid == bid if answer.HasField("bid") else bid == float("inf")


@pytest.mark.slow
def test_decisions_are_those_of_the_table(folder: Path) -> None:
    """Breaks when the decision in an answer is not that of the text beside it."""
    markets, fitted = Markets(folder), read_fitted(str(folder / "two.json"))
    seen = set()
    for hours, price in ((2.5, 0.02), (2.5, 3.0), (4.0, 3.0), (6.0, 0.02)):
        names = [one.name for one in fitted.market.classes]
        for held in (None, *names):
            asked = planning_pb2.AdviseSpotRequest(
                core_hours=4, hours=hours, market="two", prices=dict.fromkeys(names, price)
            )
            if held is not None:
                asked.running.CopyFrom(planning_pb2.RunningJob(saved_core_hours=5, **{"class": held}))
            found = advise(markets, asked)
            name, decision = getattr(found, "class"), planning_pb2.SpotAction.Name(found.decision)
            seen.add(decision)
            if decision == "SPOT_ACTION_START":
                market = "on demand" if found.on_demand else "on the spot market"
                bid = f", bid {found.bid:.4g}" if found.HasField("bid") else ""
                assert found.action == f"start {name} {market}{bid}"
            else:
                words = {
                    "WAIT": "wait", "GO_ON": "continue", "CHECKPOINT": "checkpoint", "RELEASE": "release the machine"
                }  # fmt: skip
                assert found.action == words[decision.removeprefix("SPOT_ACTION_")] and not name
    assert len(seen) >= 3, seen


def test_advice_that_is_not_given(folder: Path) -> None:
    """Breaks when a name leaves the folder, a job that makes no sense is advised, or one request takes all memory."""
    markets = Markets(folder)
    for change, told in (
        ({"market": "../two"}, "market: unknown"), ({"core_hours": 0}, "core_hours: 0"),
        ({"hours": -1}, "hours: -1"), ({"prices": {"x": 1}}, "prices: unknown machine type 'x'"),
        *(
            ({"prices": {"c3.xlarge-spot": value}}, "prices: c3.xlarge-spot=.*; must be at least 0 and less than")
            for value in (math.nan, math.inf, -1.0, 1e300)
        ),
        ({"core_hours": 1e5}, "core_hours: at most"),
        ({"hours": 1e5}, "hours: at most 500 are supported for 4 core-hours"),
        ({"core_hours": 40, "hours": 400}, r"hours: at most [\d.]+ are supported for 40 core-hours"),
        ({"available": {"x": True}}, "available: unknown machine type 'x'"),
        ({"hours": 0.5, "core_hours": 8}, r"hours: 8 core-hours within 0\.5 h: not feasible; .* in 2\.17 h, on demand"),
        ({"hours": 0.1}, r"hours: 4 core-hours within 0\.1 h: not feasible; .* in 1\.17 h, on demand"),
    ):  # fmt: skip
        asked = {"core_hours": 4, "hours": 6, "market": "two"} | change
        with pytest.raises(InputError, match=told):
            advise(markets, planning_pb2.AdviseSpotRequest(**asked))


def test_markets_that_are_too_large_to_plan_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a client is told that at most 0 hours are accepted, in place of what is."""
    markets, market = Markets(folder), read_fitted(str(folder / "two.json")).market
    asked = planning_pb2.AdviseSpotRequest(market="two", core_hours=20, hours=10)
    monkeypatch.setattr(spot_advice, "_MOST_VALUES", 20 * values_of_slot(market, 20))
    with pytest.raises(InputError) as caught:
        markets.read(asked)
    found = re.fullmatch(r"core_hours: 20; at most ([\d.]+) are supported in this market", str(caught.value))
    assert found is not None
    most = float(found[1])
    least = market.least_slots(market.units(most)) / market.slots_per_hour + 1e-9
    assert markets.read(planning_pb2.AdviseSpotRequest(market="two", core_hours=most, hours=least)).key[2] > 0
    more = most + market.unit
    least = market.least_slots(market.units(more)) / market.slots_per_hour + 1e-9
    with pytest.raises(InputError, match="are supported in this market"):
        markets.read(planning_pb2.AdviseSpotRequest(market="two", core_hours=more, hours=least))
    monkeypatch.setattr(spot_advice, "_MOST_VALUES", values_of_slot(market, 1))
    with pytest.raises(InputError, match="market: two has too many states for planning"):
        markets.read(asked)


@pytest.fixture
def zones(tmp_path: Path) -> Path:
    """A market of two zones, hour by hour; at its end, b is available."""
    types = "".join(
        f"  - {{name: {name}, cores: 2, price_per_hour: 1, market: spot, spot_price_per_hour: 0.3, zone: z{name},"
        f" availability: {name}.csv}}\n"
        for name in "ab"
    )
    (tmp_path / "cloud.yaml").write_text(f"startup_s: 120\nmachine_types:\n{types}")
    for name, values in (("a", "1110" * 12), ("b", "0111" * 12)):
        rows = [f"2024-05-0{1 + at // 24}T{at % 24:02}:00,{value}\n" for at, value in enumerate(values + "0")]
        (tmp_path / f"{name}.csv").write_text("timestamp_utc,available\n" + "".join(rows))
    (tmp_path / "markets").mkdir()
    command("fit", str(tmp_path / "cloud.yaml"), "-o", str(tmp_path / "markets/zones.json"))
    return tmp_path / "markets"


@pytest.mark.slow
def test_zones_that_are_available_now(zones: Path) -> None:
    """Breaks when advice ignores what a request says of zones, or mentions bids where there are none."""
    markets = Markets(zones)
    shown = markets.messages()[0]
    assert [(c.name, list(c.bids), c.spot_price_per_hour) for c in shown.classes] == [("a", [], 0.3), ("b", [], 0.3)]
    for available, name in (({"a": True, "b": False}, "a"), ({"a": False, "b": True}, "b"), ({}, "b")):
        asked = planning_pb2.AdviseSpotRequest(core_hours=4, hours=6, market="zones", available=available)
        found = advise(markets, asked)
        assert found.action == f"start {name} on the spot market" and getattr(found, "class") == name
        assert not found.on_demand and not found.HasField("bid")
        options = [part for n, there in available.items() for part in ("--available" if there else "--unavailable", n)]
        given = ["--market", str(zones / "zones.json"), "--work", "4", "--deadline", "6", *options, "--json"]
        told = json.loads(command("advise", *given))
        assert (told["action"], pytest.approx(told["expected_cost"])) == (found.action, found.expected_cost)
        assert told["available"] == {"a": False, "b": True} | available and told["prices"] == {"a": 0.3, "b": 0.3}
    asked.available.update({"a": False, "b": False})
    assert advise(markets, asked).action == "wait"
    # On a spot machine without a bid; then on demand: the same class, other rules.
    asked.running.CopyFrom(planning_pb2.RunningJob(spot=True, saved_core_hours=4.0, used_s=60.0, **{"class": "b"}))
    assert markets.read(asked).status.choice == 1
    asked.running.spot = False
    assert markets.read(asked).status.choice == 3


def test_prices_and_bids_where_there_are_none(zones: Path) -> None:
    """Breaks when a price is ignored, or a bid is compared with a number that stands for availability."""
    asked = planning_pb2.AdviseSpotRequest(core_hours=4, hours=6, market="zones", prices={"a": 0.1})
    with pytest.raises(InputError, match="prices: a: this market has no bids, and prices are constant; give available"):
        Markets(zones).read(asked)
    running = planning_pb2.RunningJob(bid=0.5, saved_core_hours=4.0, **{"class": "a"})
    asked = planning_pb2.AdviseSpotRequest(core_hours=4, hours=6, market="zones", running=running)
    with pytest.raises(
        InputError, match=r"running.bid: bid 0.5 of a: this market has no bids; set running.spot instead"
    ):
        Markets(zones).read(asked)


def test_running_jobs_that_are_late(zones: Path) -> None:
    """Breaks when a cost is infinite, or a deadline that depends on luck is not named as such."""
    markets = Markets(zones)
    running = planning_pb2.RunningJob(spot=True, saved_core_hours=4.0, **{"class": "a"})
    asked = planning_pb2.AdviseSpotRequest(core_hours=0.5, hours=1, market="zones", running=running)
    found = advise(markets, asked)
    assert found.action == "continue" and 0 < found.expected_cost < 1 and math.isfinite(found.on_demand_cost)
    assert found.notes[0].startswith("too late for another machine")
    asked.core_hours = 4
    with pytest.raises(
        InputError, match=r"hours: 4 core-hours within 1 h: not feasible; .* in 2 h, on the machine that"
    ):
        markets.read(asked)


def test_jobs_of_a_day_at_short_slots(zones: Path) -> None:
    """Breaks when a market has so short slots that the service refuses the job that it was fitted for."""
    found = Markets(zones).read(planning_pb2.AdviseSpotRequest(core_hours=48, hours=36, market="zones"))
    assert found.fitted.market.slots_per_hour >= 20


_FIRST = """
import sys
from pathlib import Path
from goffish.scheduling.spot import job_kernels
from goffish.services.api.spot_advice import Markets, strategy
from goffish.v1 import planning_pb2

def compiled():
    return sum(len(getattr(one, "signatures", ())) for one in vars(job_kernels).values())

markets = Markets(Path(sys.argv[1]))
asked = planning_pb2.AdviseSpotRequest(market="two", core_hours=0.5, hours=1)
asked.running.CopyFrom(planning_pb2.RunningJob(saved_core_hours=0.5, used_s=60, **{"class": sys.argv[2]}))
markets.prepare()
before, functions = set(sys.modules), compiled()
found = markets.read(asked)
print(sorted(set(sys.modules) - before))
table = strategy(found.fitted, *found.key[1:])  # in the server, another process does that
before = set(sys.modules)
found.answer(table)
print(sorted(set(sys.modules) - before), functions > 0, compiled() - functions)
"""


@pytest.mark.slow
def test_the_first_advice(folder: Path) -> None:
    """Breaks when the first request loads libraries or compiles, which holds up all calls of the server for seconds."""
    name = Markets(folder).messages()[0].classes[0].name
    told = subprocess.run(
        [sys.executable, "-c", _FIRST, str(folder), name], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert told.stdout.splitlines() == ["[]", "[] True 0"]


@pytest.mark.slow
def test_advice_takes_the_planning_pool(folder: Path, tmp_path: Path, data: Path) -> None:
    """Breaks when tables are built in the server itself: others wait, equal ones are built twice, no end at SIGTERM."""
    market = read_fitted(str(folder / "two.json")).market
    large = planning_pb2.AdviseSpotRequest(core_hours=100 * market.unit, hours=60, market="two")
    small = planning_pb2.AdviseSpotRequest(core_hours=2, hours=3, market="two")
    with serving(tmp_path / "home", data, "--markets", str(folder), "--grace", "0.5") as server, server.client() as one:
        assert server.process is not None
        here = psutil.Process(server.process.pid)
        with ThreadPoolExecutor(9) as threads:
            loaded = libraries(here)
            waiting = [threads.submit(one.planning.AdviseSpot, large) for _ in range(8)]
            advised = threads.submit(one.planning.AdviseSpot, small)
            assert advised.result().action
            cheap = one.planning.AdviseSpot(small)  # its table is kept
            assert cheap.expected_cost == advised.result().expected_cost
            assert not any(call.done() for call in waiting)
            assert libraries(here) == loaded, "all code was loaded before the first call"
            below = here.children(recursive=True)
            assert len(below) <= 3, "two processes that plan, and what multiprocessing keeps"
            assert list(one.list()) == []
            assert server.stop() == 0
            assert all(call.exception() is not None for call in waiting)
        assert psutil.wait_procs(below, timeout=10)[1] == []


def libraries(process: psutil.Process) -> set[str]:
    """Files of compiled code that a process has loaded."""
    return {one.path for one in process.memory_maps() if one.path.endswith(".so")}

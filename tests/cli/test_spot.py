"""``goffish spot fit|table|simulate|advise``: what they say, write and refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from goffish.scheduling.spot.fitting import Fitted, write_fitted
from tests.cli.conftest import Place
from tests.commands import Ended, assert_refused
from tests.scheduling.spot.spot_cases import tiny

DAYS = 12
CLOUD = """
startup_s: 120
billing: {{quantum_s: 3600}}
machine_types:
  - {{name: owned, cores: 4, price_per_hour: 0.21}}
  - {{name: spot, cores: 4, speed: 1.08, price_per_hour: 0.21, market: spot, prices: {prices}}}
"""


#: On the tiny model: half an hour of start-up that is not billed, and two started hours at 0.13.
INFEASIBLE = "3 core-hours within 1 h: not feasible; the earliest possible end is in 2 h, on demand for $0.26"


def prices(path: Path) -> Path:
    """Each day 14.4 hours at 0.02, 7.2 at 0.05 and 2.4 at 0.50."""
    rows = ["timestamp_utc,price_usd_per_hour"]
    begin = np.datetime64("2015-03-01T00:00:00")
    for day in range(DAYS):
        for hour, price in ((0, 0.02), (14.4, 0.05), (21.6, 0.5)):
            rows.append(f"{begin + np.timedelta64(int((24 * day + hour) * 3600), 's')},{price}")
    rows.append(f"{begin + np.timedelta64(DAYS, 'D')},0.02")
    path.write_text("\n".join(rows) + "\n")
    return path


def refused(ended: Ended, told: str) -> None:
    assert_refused(ended)
    assert told in ended.err


@pytest.fixture
def here(place: Place) -> Place:
    prices(place / "prices.csv")
    (place / "cloud.yaml").write_text(CLOUD.format(prices="prices.csv"))
    return place


@pytest.fixture
def golden(place: Place) -> Place:
    """The tiny model of docs/specs/spot.md, section 7.2, with a price that is low at the end."""
    path = prices(place / "prices.csv")
    start = np.datetime64("2015-03-01").astype("datetime64[s]").astype(float)
    write_fitted(place / "tiny.json", Fitted(tiny(), (str(path),), start, start + 86_400.0, "paper", {}, [[1.0]]))
    return place


def test_a_market_is_what_the_prices_say(here: Place) -> None:
    """Breaks when bids, levels or shares of time are not those of the history; they are counted by hand."""
    fit = ["spot", "fit", "cloud.yaml", "--preset", "ec2-linux", "--estimator", "auto"]
    body = here(*fit, "-o", "market.json", "--json").json
    one = body["machine_types"][0]
    assert one["machine_type"] == "spot" and one["on_demand"] == 0.21
    # Half and three quarters of the time are covered by 0.02 and 0.05, nine tenths by 0.05 too, then on demand.
    assert one["bids"] == pytest.approx([0.02, 0.05, 0.21])
    assert one["levels"] == pytest.approx([0.02, 0.05, 0.21, 0.5])
    assert body["unit_core_hours"] == pytest.approx(4 / 6)
    assert set(body["likelihoods"]) == {"paper", "level", "slot", "semi"}
    assert body["likelihoods"][body["estimator"]] == max(body["likelihoods"].values())
    assert here(*fit, "-o", "again.json").out.count("spot") >= 1
    assert (here / "again.json").read_bytes() == (here / "market.json").read_bytes()


def test_a_catalogue_works_from_any_folder(here: Place) -> None:
    """Breaks when price files are looked for in the current folder only."""
    (here / "dir/p").mkdir(parents=True)
    (here / "elsewhere").mkdir()
    (here / "prices.csv").rename(here / "dir/p/r3.csv")
    (here / "dir/cloud.yaml").write_text(CLOUD.format(prices="p/r3.csv"))
    elsewhere = Place(here / "elsewhere")
    fit = ["spot", "fit", "-o", "market.json", "--preset", "paper-2012", "--estimator", "paper", "--json"]
    assert elsewhere(*fit, "../dir/cloud.yaml").json["machine_types"][0]["machine_type"] == "spot"
    simulate = ["simulate", "sc13-diamond", "--hours", "1", "--json"]
    for cloud in ("../dir/cloud.yaml", here / "dir/cloud.yaml"):
        assert elsewhere(*simulate, "--cloud", cloud).json["runs"]["reactive-global"]["cost"] > 0
    refused(elsewhere("spot", "fit", "../cloud.yaml", "-o", "m.json"), "prices: no file 'prices.csv', in the folder of")


def test_advice_is_the_golden_table(golden: Place) -> None:
    """Breaks when advice is not that of the table, or costs are another job's; figures of §7.2."""

    def advice(*given: str) -> dict[str, float]:
        return golden("spot", "advise", "--market", "tiny.json", *given, "--json").json

    low = advice("--work", "1", "--deadline", "2", "--price", "tiny=0.02")
    assert low["expected_cost"] == pytest.approx(0.0596, abs=1e-9) and low["on_demand_cost"] == pytest.approx(0.13)
    assert low["action"].startswith("start tiny on the spot market")
    high = advice("--work", "1", "--deadline", "2.5", "--price", "tiny=0.5")
    assert high["expected_cost"] == pytest.approx(0.0948, abs=1e-9) and high["action"] == "wait"
    assert {d["hours"]: round(d["expected_cost"], 6) for d in low["deadlines"]} == {1.0: 0.13, 1.5: 0.13, 2.0: 0.0596}
    # A slot of margin is a slot less; half of the work done and saved is a job of half the size.
    assert advice("--work", "1", "--deadline", "2.5", "--margin", "30", "--price", "tiny=0.02") == low
    last = advice("--work", "2", "--deadline", "1.5")
    assert last["action"] == "start tiny on demand" and last["expected_cost"] == pytest.approx(0.13)
    held = advice("--work", "1", "--work-from-checkpoint", "2", "--machine", "tiny", "--deadline", "1")
    assert held["action"] == "continue"


def test_a_machine_of_ones_own_and_soft_deadlines(here: Place) -> None:
    """Breaks when a machine that is busy is planned with, or lateness is refused although it has a price."""
    fit = ["spot", "fit", "cloud.yaml", "--preset", "paper-2012", "-o", "market.json"]
    here(*fit, "--local-cores", "4", "--local-cost", "0.001")
    # Seven slots: one to move, six to work; before that, waiting is as good.
    given = ["spot", "advise", "--market", "market.json", "--work", "4", "--deadline", "1.17", "--json"]
    own = here(*given).json
    assert own["action"] == "move to the local machine" and own["expected_cost"] == pytest.approx(0.001)
    busy = here(*given, "--local-busy").json
    assert busy["action"] != own["action"] and busy["expected_cost"] > 0.01
    late = ["spot", "advise", "--market", "market.json", "--work", "4", "--deadline", "0.5", "--local-busy", "--json"]
    refused(
        here(*late),
        "4 core-hours within 0.5 h: not feasible; the earliest possible end is in 1.17 h, on demand for $0.21",
    )
    here(*fit, "--late-penalty", "0.01", "--correlated")
    # Nothing is worth doing: 4 core-hours that are late cost 4 cents.
    assert here(*late).json["expected_cost"] <= 0.04 + 1e-9


def test_a_table_is_built_once_and_used_again(golden: Place) -> None:
    """Breaks when a table on disk is not the one that was built, or one for another market is taken."""
    given = ["--work", "3", "--deadline", "4", "-o", "t.table", "--budget", "0.2", "--json"]
    body = golden("spot", "table", "tiny.json", *given).json
    # By the long run of prices (low 5/7 of the time) seven slots cost 0.2198, eight 0.1860.
    assert body["within_budget_h"] == 4.0
    assert body["core_hours"] == 3 and body["earliest_h"] == 2.0
    assert body["cliffs"][0]["saves"] > 0 and (golden / "t.table").stat().st_size > 0
    short = golden("spot", "table", "tiny.json", "--work", "3", "--deadline", "2", "-o", "s.table", "--json")
    assert short.code == 0
    assert golden("spot", "table", "tiny.json", "--work", "3", "--deadline", "4", "-o", "e.table",
                  "--extends", "s.table").code == 0  # fmt: skip
    assert (golden / "e.table").read_bytes() == (golden / "t.table").read_bytes()
    given = ["--market", "tiny.json", "--work", "2", "--deadline", "3", "--price", "tiny=0.02", "--json"]
    with_table = golden("spot", "advise", *given, "--table", "t.table").json
    assert with_table["expected_cost"] == pytest.approx(0.07368, abs=1e-9)
    assert with_table["action"] == golden("spot", "advise", *given).json["action"]
    refused(golden("spot", "advise", *given, "--table", "tiny.json"), "tiny.json: is not a strategy table")


def test_policies_run_over_the_same_prices(here: Place) -> None:
    """Breaks when jobs are lost, a policy is charged wrongly, or the file does not hold what is printed."""
    here("spot", "fit", "cloud.yaml", "-o", "market.json", "--preset", "paper-2012", "--until", "2015-03-09")
    period = ["--since", "2015-03-09", "--until", "2015-03-12"]
    written = ["-o", "runs.parquet", "--plot", "runs.png", "--plot-job", "job.svg"]
    body = here(
        "spot", "simulate", "market.json", "--work", "4", "--deadline", "4", *period, *written, "--json"
    ).json  # fmt: skip
    told = {row["policy"]: row for row in body["policies"]}
    assert list(told) == ["rtba", "h1", "h2", "h3", "greedy", "uniform-progress", "on-demand", "clairvoyant"]
    assert all(row["missed"] == 0 for row in told.values())
    assert told["on-demand"]["mean_cost"] == pytest.approx(0.21) == body["on_demand"]
    assert told["clairvoyant"]["mean_cost"] <= min(row["mean_cost"] for row in told.values()) + 1e-12
    assert told["rtba"]["saving"] == pytest.approx(1 - told["rtba"]["mean_cost"] / 0.21)
    runs = pq.read_table(here / "runs.parquet").to_pandas()
    assert runs.groupby("policy")["cost"].mean().to_dict() == pytest.approx(
        {n: r["mean_cost"] for n, r in told.items()}
    )
    assert (runs[runs["policy"] == "rtba"]["hours"] <= 4).all()
    assert (here / "runs.png").stat().st_size > 1000 and "<svg" in (here / "job.svg").read_text()[:500]


def test_a_start_without_an_end_means_to_the_end_of_the_history(here: Place) -> None:
    """Breaks when the period ends with that of the market, not with the prices of 12 days."""
    fit = ("spot", "fit", "cloud.yaml", "-o", "market.json", "--preset", "paper-2012", "--json")
    assert here(*fit, "--since", "2015-03-02").json["period"] == "2015-03-02 00:00 to 2015-03-13 00:00"
    assert here(*fit, "--until", "2015-03-09").json["period"] == "2015-03-01 00:00 to 2015-03-09 00:00"
    job = ("spot", "simulate", "market.json", "--work", "4", "--deadline", "4", "--policy", "on-demand", "--json")

    def jobs(*period: str) -> int:
        runs: int = here(*job, *period).json["policies"][0]["runs"]
        return runs

    # A job starts every 10 minutes, the last one 4 hours before the end.
    assert jobs("--since", "2015-03-10") == (3 * 24 - 4) * 6 + 1 == jobs("--since", "2015-03-10T00:00")
    assert jobs("--since", "2015-03-05") == (8 * 24 - 4) * 6 + 1, "also from within the period of the market"
    assert jobs() == (8 * 24 - 4) * 6 + 1 == jobs("--until", "2015-03-09")
    for command in (fit, job):
        for until in ("2015-03-02", "2015-03-03"):
            ended = here(*command, "--since", "2015-03-03", "--until", until)
            refused(ended, f"--since 2015-03-03 must be before --until {until}")
    refused(here(*job, "--since", "2015-03-13"), "is wanted, it reaches from 2015-03-01 00:00 to 2015-03-13 00:00")


def availability(path: Path, values: str) -> Path:
    """Hours of May 2024 with and without machines."""
    rows = [f"2024-05-{1 + at // 24:02}T{at % 24:02}:00,{value}" for at, value in enumerate(values + "0")]
    path.write_text("\n".join(["timestamp_utc,available", *rows]) + "\n")
    return path


@pytest.fixture
def zones(here: Place) -> Place:
    """Two zones, of which one is available when the other is not; the prices of the catalogue are older."""
    availability(here / "a.csv", "110" * 80)
    availability(here / "b.csv", "011" * 80)
    return here


ZONES = ["--availability", "spot/a=a.csv", "--availability", "spot/b=b.csv"]


def test_zones_without_bids(zones: Place) -> None:
    """Breaks when zones are not machine types, a job does not move between them, or bids are printed."""
    fit = zones("spot", "fit", "cloud.yaml", "-o", "m.json", *ZONES, "--until", "2024-05-06", "--plot", "m.svg")
    assert "2 min; start-up 2 min, checkpoint 2 min, uses the notice" in fit.out and "none" in fit.out
    body = zones("spot", "fit", "cloud.yaml", "-o", "m.json", *ZONES, "--until", "2024-05-06", "--json").json
    # The mean of all prices, as they end before the availability begins: 0.6 · 0.02 + 0.3 · 0.05 + 0.1 · 0.5.
    assert [(c["machine_type"], c["bids"], c["levels"]) for c in body["machine_types"]] == [
        (name, [], [pytest.approx(0.077, abs=1e-5)]) for name in ("spot/a", "spot/b")
    ]
    assert [c["share"] for c in body["machine_types"]] == [[pytest.approx(2 / 3, abs=0.02)]] * 2
    assert body["period"] == "2024-05-01 00:00 to 2024-05-06 00:00" and len(body["notes"]) <= 1
    given = ["m.json", "--work", "16", "--deadline", "6", "--json"]
    told = zones("spot", "simulate", *given, "--since", "2024-05-06", "--plot", "o.png", "--plot-job", "j.png").json
    rows = {(row["policy"], row["machines"]): row for row in told["policies"]}
    assert all(row["missed"] == 0 for row in rows.values()) and told["tested_from"] > 0
    # Four hours of work, at least three machines as each runs for two hours; one of two zones is always available.
    best = rows["rtba", "all"]
    assert best["on_demand_share"] == 0 and 1 <= best["losses"] <= 3 and best["mean_cost"] < 5 * 0.077
    assert best["mean_cost"] < min(row["mean_cost"] for (name, _), row in rows.items() if name == "greedy")
    assert rows["on-demand", "spot/a"]["mean_cost"] == pytest.approx((4 + 2 / 60) * 0.21)
    advise = ["spot", "advise", "--market", "m.json", "--work", "16", "--deadline", "6"]
    assert "start spot/b on the spot market\n" in zones(*advise, "--unavailable", "spot/a").out
    last = zones(*advise, "--available", "spot/a", "--unavailable", "spot/b", "--json").json
    assert last["action"] == "start spot/a on the spot market"
    assert last["available"] == {"spot/a": True, "spot/b": False} and last["prices"]["spot/b"] == pytest.approx(
        0.077, abs=1e-5
    )
    held = zones(*advise, "--machine", "spot/a@spot", "--work-from-checkpoint", "16", "--available", "spot/a", "--json")
    assert held.json["action"] == "continue"
    one = zones("spot", "fit", "cloud.yaml", "-o", "a.json", *ZONES, "--zone", "a", "--slot", "5", "--json").json
    assert [c["machine_type"] for c in one["machine_types"]] == ["spot/a"]
    assert one["unit_core_hours"] == pytest.approx(4 / 12)


def test_tables_that_are_too_large(zones: Place) -> None:
    """Breaks when a build starts that takes hours, or the user does not learn which slots would do."""
    minutes = ["--slot", "1", "--checkpoint", "1", "--startup", "1", "--estimator", "level"]
    zones("spot", "fit", "cloud.yaml", "-o", "m.json", *ZONES, *minutes)
    table = zones("spot", "table", "m.json", "--work", "1200", "--deadline", "450", "-o", "t")
    refused(table, "1200 core-hours within 450 h: with slots of 1 min, the table takes about")
    assert "GB to build; goffish spot fit --slot 30 takes less than a minute" in table.err
    note = "slots of 1 min suit start-up and checkpoint, but tables for jobs of 90 h would take too long to build"
    fit = ["spot", "fit", "cloud.yaml", "-o", "n.json", *ZONES, "--checkpoint", "1", "--startup", "1", "--job-hours"]
    assert note in zones(*fit, "90").out and "too long to build" not in zones(*fit, "2").out
    assert zones(*fit, "90", "--json").json["notes"][0].startswith(note)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["fit", "cloud.yaml", "-o", "x", "--availability", "none.csv"], "none.csv: cannot read availability"),
        (["fit", "cloud.yaml", "-o", "x", "--availability", "owned=a.csv"], "unknown spot machine type 'owned'"),
        (["fit", "cloud.yaml", "-o", "x", *ZONES, "--zone", "c"], "unknown zone 'c'; the catalogue has: a, b"),
        (["fit", "cloud.yaml", "-o", "x", *ZONES, "--since", "2015-03-02"], "it reaches from 2024-05-01"),
        (["fit", "cloud.yaml", "-o", "x", *ZONES, "--job-hours", "0"], "--job-hours 0: must be more than 0"),
        (["advise", "--unavailable", "c"], "--unavailable c: give a machine type of spot/a, spot/b"),
        (["advise", "--available", "c"], "--available c: give a machine type of spot/a, spot/b"),
        (["advise", "--available", "spot/a", "--unavailable", "spot/a"], "--available spot/a: also given as"),
        (["advise", "--machine", "spot/a@x"], "give TYPE@BID, TYPE@spot without bids"),
        (["simulate", "m.json", "--work", "16", "--deadline", "4"], "16 core-hours within 4 h: not feasible; the"),
        (["table", "m.json", "--work", "16", "--deadline", "1", "-o", "x"], "end is in 4.04 h, on demand for $0.85"),
    ],
)
def test_zones_that_are_refused(zones: Place, given: list[str], told: str) -> None:
    """Breaks when a wrong name passes, or an error is not one line."""
    if given[0] != "fit":
        zones("spot", "fit", "cloud.yaml", "-o", "m.json", *ZONES)
    rest = ["--market", "m.json", "--work", "16", "--deadline", "6"] if given[0] == "advise" else []
    refused(zones("spot", *given, *rest), told)
    assert not (zones / "x").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["fit", "ec2-2013", "-o", "m.json"], "the catalogue has no spot machine types"),
        (["fit", "cloud.yaml", "-o", "m.json", "--machine-type", "owned"], "unknown spot machine type 'owned'"),
        (["fit", "cloud.yaml", "-o", "m.json", "--slot", "7"], "--slot 7: an hour must be a whole number of slots"),
        (
            ["fit", "cloud.yaml", "-o", "m.json", "--monthly-loss", "1"],
            "--monthly-loss 1: must be at least 0 and less than 1",
        ),
        (["fit", "cloud.yaml", "-o", "m.json", "--since", "soon"], "--since soon: give a date or time"),
        (["fit", "cloud.yaml", "-o", "m.json", "--since", "2020-01-01"], "it reaches from 2015-03-01"),
        (["fit", "cloud.yaml", "-o", "m.json", "--estimator", "best"], "unknown estimator 'best'"),
        (["fit", "cloud.yaml", "-o", "m.json", "--preset", "azure"], "unknown preset 'azure'"),
        (["table", "cloud.yaml", "--work", "1", "--deadline", "2", "-o", "t"], "cloud.yaml: is not a spot market"),
        (["simulate", "nowhere.json", "--work", "1", "--deadline", "2"], "nowhere.json: cannot be read"),
        (["advise", "--deadline", "2", "--work", "1"], "--market and --deadline are required"),
        (["advise", "--market", "m.json", "--deadline", "2"], "give either INPUT (a graph file or store) or --work"),
    ],
)
def test_bad_input_is_refused_in_one_line(here: Place, given: list[str], told: str) -> None:
    """Breaks when a wrong value passes, leaves a file, or is answered with a traceback."""
    refused(here("spot", *given), told)
    assert not (here / "m.json").exists() and not (here / "t").exists()


def test_what_cannot_be_done_is_refused(golden: Place) -> None:
    """Breaks when a deadline is promised that cannot be kept, or the user is not told what can."""
    common = ["spot", "advise", "--market", "tiny.json"]
    refused(golden(*common, "--work", "3", "--deadline", "1"), INFEASIBLE)
    refused(golden(*common, "--work", "3", "--deadline", "0.01"), INFEASIBLE.replace("1 h", "0.01 h"))
    for command, rest in (("table", ["-o", "t.table"]), ("simulate", [])):
        refused(golden("spot", command, "tiny.json", "--work", "3", "--deadline", "1", *rest), INFEASIBLE)
    late = golden(*common, "--work", "3", "--deadline", "1", "--margin", "60")
    refused(late, "3 core-hours within 1 h: not feasible; the earliest possible end is in 3 h, on demand for $0.26")
    refused(golden(*common, "--work", "-1", "--deadline", "1"), "--work -1: must be more than 0")
    refused(golden(*common, "--work", "2", "--work-from-checkpoint", "1", "--deadline", "4"), "must be at least --work")
    refused(golden(*common, "--work", "1", "--deadline", "4", "--price", "huge=1"), "with a machine type of tiny")
    refused(golden(*common, "--work", "1", "--deadline", "4", "--machine", "tiny@x"), "give TYPE@BID")
    refused(
        golden(*common, "--work", "1", "--deadline", "4", "--machine", "tiny@0.001"),
        "below the bids of the market, 0.26",
    )
    long = golden("spot", "simulate", "tiny.json", "--work", "1", "--deadline", "400", "--policy", "on-demand")
    refused(long, "--deadline 400: the period has only 24 hours")
    unknown = golden("spot", "simulate", "tiny.json", "--work", "1", "--deadline", "4", "--policy", "luck")
    refused(unknown, "--policy luck: unknown policy; accepted: auto, rtba, h1,")


def test_running_jobs_that_are_late(golden: Place) -> None:
    """Breaks when a job that can finish on its machine is refused, or one that cannot is advised at infinite cost."""
    job = ["spot", "advise", "--market", "tiny.json", "--work-from-checkpoint", "6", "--deadline", "1"]
    # Half an hour of work in an hour, but three hours and a start-up from the checkpoint.
    sure = golden(*job, "--work", "1", "--machine", "tiny", "--json").json
    assert (sure["action"], sure["guaranteed"], sure["expected_cost"]) == ("continue", True, pytest.approx(0.13))
    assert sure["on_demand_cost"] is None
    spot = golden(*job, "--work", "1", "--machine", "tiny@0.26")
    assert "continue" in spot.out and "inf" not in spot.out
    assert "too late for another machine: the deadline is missed if this spot machine is interrupted" in spot.out
    late = golden(*job, "--work", "3", "--machine", "tiny")
    earliest = "the earliest possible end is in 1.5 h, on the machine that it runs on"
    refused(late, f"3 core-hours within 1 h: not feasible; {earliest}")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--work", "1e300"], "--work 1e+300: must be more than 0 and at most 1,000,000"),
        (["--work", "inf"], "--work inf: must be more than 0 and at most 1,000,000"),
        (["--work", "1e6"], "1e+06 core-hours within 4 h: not feasible; the earliest possible end is in 500000 h, on"),
        (["--work", "1", "--price", "tiny=1e300"], "--price: tiny=1e+300; must be at least 0 and less than 2.5e+08"),
        (["--work", "1", "--price", "tiny=nan"], "--price: tiny=nan; must be at least 0"),
        (["--work", "1", "--price", "tiny=-1"], "--price: tiny=-1; must be at least 0"),
        (["--work", "1", "--machine", "tiny", "--used-minutes", "90"], "--used-minutes 90: must be 0 to 60"),
        (["--work", "1", "--machine", "huge"], "--machine huge: unknown machine type 'huge'; accepted: tiny"),
    ],
)
def test_numbers_that_are_refused(golden: Place, given: list[str], told: str) -> None:
    """Breaks when a number is used for minutes of computation, or for advice that means nothing."""
    refused(golden("spot", "advise", "--market", "tiny.json", "--deadline", "4", *given), told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ["--machine", "spot/a@0.5"],
            "--machine spot/a@0.5: bid 0.5 of spot/a: this market has no bids; give spot/a@spot",
        ),
        (
            ["--price", "spot/a=0.1"],
            "--price: spot/a: this market has no bids, and prices are constant; give --available or",
        ),
    ],
)
def test_bids_where_there_are_none(zones: Place, given: list[str], told: str) -> None:
    zones("spot", "fit", "cloud.yaml", "-o", "m.json", *ZONES)
    refused(zones("spot", "advise", "--market", "m.json", "--work", "16", "--deadline", "6", *given), told)


@pytest.mark.parametrize("command", ["fit", "table", "simulate"])
def test_outputs_that_cannot_be_written(golden: Place, command: str) -> None:
    """Breaks when the work is done first, or a message names a temporary file or standard output."""
    (golden / "folder").mkdir()
    given = {
        "fit": ["none.yaml"],
        "table": ["none.json", "--work", "1", "--deadline", "4"],
        "simulate": ["none.json", "--work", "1", "--deadline", "4"],
    }[command]
    for path, told in (
        ("nodir/x.parquet", "nodir/x.parquet: the folder nodir does not exist"),
        ("folder", "folder: is a directory; name a file in it"),
    ):
        refused(golden("spot", command, *given, "-o", path), told)


def test_jobs_of_the_automatic_policy(here: Place) -> None:
    """Breaks when the policy of `advise` has another name, or its row lacks what other policies have."""
    here("spot", "fit", "cloud.yaml", "-o", "m.json", "--until", "2015-03-09")
    given = ["m.json", "--work", "4", "--deadline", "4", "--since", "2015-03-10", "--until", "2015-03-11"]
    rest = ["--policy", "auto", "--start-interval", "60", "--plot", "auto.svg", "--json"]
    [row] = here("spot", "simulate", *given, *rest).json["policies"]
    assert row["policy"] == "auto" and row["missed"] == 0
    assert None not in (row["losses"], row["checkpoints"], row["on_demand_share"])

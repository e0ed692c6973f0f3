"""``goffish plan`` and ``goffish simulate``: what they say, write and refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from goffish.cloud.catalogue import read_catalogue
from goffish.scheduling.control.records import TABLES
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from tests.cli.conftest import Place
from tests.commands import assert_refused

MINE = """
processing_elements:
  - {id: read, cost: 0.1}
  - id: guess
    alternates: [{id: good, cost: 1.0, value: 1.0}, {id: quick, cost: 0.3, value: 0.8}]
edges: [[read, guess]]
inputs: {read: 4}
goal: {throughput: 0.8, cost_at_best_value: 30, cost_at_worst_value: 10, period_h: 2, interval_s: 300}
"""
ROOT = Path(__file__).parents[2]
COMPARED = "reactive-global,latency-aware,edrp"
SITES = ("examples/factory.yaml", "--cloud", "examples/edge-cloud.yaml")
CLOUD = (
    "machine_types:\n  - {name: small, cores: 1, price_per_hour: 0.1}\n"
    "  - {name: big, cores: 4, price_per_hour: 0.36}\n"
)


@pytest.fixture
def here(place: Place) -> Place:
    (place / "mine.yaml").write_text(MINE)
    (place / "cloud.yaml").write_text(CLOUD)
    return place


def test_acceptable_costs_are_those_of_the_simulated_time(here: Place) -> None:
    """Breaks when a longer run, of the same cost per hour, is less profitable."""
    runs = [
        here("simulate", "mine.yaml", "--cloud", "cloud.yaml", "--hours", hours, "--json").json["runs"]
        for hours in ("1", "2", "4")
    ]
    found = [run["reactive-global"] for run in runs]
    assert found[2]["cost"] == pytest.approx(4 * found[0]["cost"])
    assert [one["profit"] for one in found] == pytest.approx([found[1]["profit"]] * 3)
    whole = here("simulate", "mine.yaml", "--cloud", "cloud.yaml", "--json").json["runs"]["reactive-global"]
    assert whole["profit"] == pytest.approx(found[1]["profit"]), "the period of the goal is 2 h"


def test_a_growing_backlog_does_not_meet_the_goal(here: Place) -> None:
    """Half a message a second, of 4, is left over; with throughput 1 nothing is. Breaks when queues do not count."""
    text = MINE.replace("cost: 1.0, value: 1.0", "cost: 1.75, value: 1.0")
    (here / "piles.yaml").write_text(text)
    (here / "keeps.yaml").write_text(text.replace("throughput: 0.8", "throughput: 1.0"))
    run = ("--no-alternates", "--policy", "static-reactive-global", "--cloud", "cloud.yaml")
    told = here("simulate", "piles.yaml", *run, "--json").json["runs"]["static-reactive-global"]
    assert told["omega"] == pytest.approx(6 / 7) and told["queue"] == pytest.approx(4 / 7 * 7200)
    assert told["throughput_met"] and told["backlog_grows"] and not told["valid"]
    assert "NO, the backlog grows" in here("simulate", "piles.yaml", *run, "--html", "run.html").out
    assert "static-reactive-global, the backlog grows" in (here / "run.html").read_text()
    plan = here("plan", "piles.yaml", *run, "--json").json
    assert plan["backlog_growth"] == pytest.approx(4 / 7), "4 messages a second arrive, and 6 / 1.75 are processed"
    assert "grows by 0.571 messages/s" in here("plan", "piles.yaml", *run).out
    assert "backlog" not in here("plan", "keeps.yaml", *run).out
    told = here("simulate", "keeps.yaml", *run, "--json").json["runs"]["static-reactive-global"]
    assert told["valid"] and not told["backlog_grows"] and told["queue"] == 0
    out = here("simulate", "keeps.yaml", *run, "--html", "run.html").out
    assert " yes " in out and "backlog" not in out + (here / "run.html").read_text()


def test_a_plan_can_be_carried_out(here: Place) -> None:
    """Breaks when the figures of a plan do not follow from what it says it runs."""
    plan = here("plan", "mine.yaml", "--cloud", "cloud.yaml", "--json").json
    cloud, flow = read_catalogue(here / "cloud.yaml"), compile_flow(read_dataflow(here / "mine.yaml"))
    assert plan["cost_per_hour"] == pytest.approx(
        sum(cloud.prices[cloud.number(machine["machine_type"])] for machine in plan["machines"])
    )
    assert all(
        sum(machine["instances"].values()) == machine["used"] <= machine["cores"] for machine in plan["machines"]
    )
    instances = {element["processing_element"]: element["instances"] for element in plan["processing_elements"]}
    assert instances == {
        name: sum(machine["instances"].get(name, 0) for machine in plan["machines"]) for name in flow.names
    }
    costs = {"read": 0.1, "guess": {"good": 1.0, "quick": 0.3}[plan["processing_elements"][1]["alternate"]]}
    share = min(min(1.0, instances[name] / (4 * costs[name])) for name in flow.names)
    assert plan["throughput"] == pytest.approx(share) and share >= 0.8
    assert plan["profit"] == pytest.approx(plan["value"] - flow.sigma * plan["cost"])
    text = here("plan", "mine.yaml", "--cloud", "cloud.yaml").out
    assert "relative throughput" in text and "guess" in text and "USD per hour" in text


def test_rates_of_a_file(here: Place) -> None:
    """One message a second in the first hour, 4 in the next ones. Breaks when an option of the file has no effect."""
    minutes = [60] * 60 + [240] * 120
    (here / "load.csv").write_text(
        "time,requests\n" + "".join(f"{1.7e9 + 60 * at},{n}\n" for at, n in enumerate(minutes))
    )
    read = ("--rates", "load.csv", "--column", "requests", "--scale", "0.016666666666666666")
    whole = here("simulate", "mine.yaml", *read, "--json").json["runs"]["reactive-global"]
    assert [round(one["rate"], 9) for one in whole["intervals"]] == [1.0] * 12 + [4.0] * 12
    late = here("simulate", "mine.yaml", *read, "--offset", "0.5h", "--hours", "60m", "--json").json["runs"]
    assert [round(one["rate"], 9) for one in late["reactive-global"]["intervals"]] == [1.0] * 6 + [4.0] * 6
    planned = [here("plan", "mine.yaml", *more, "--json").json for more in (read, ("--rate", "read=3"))]
    assert planned[0]["machines"] == planned[1]["machines"], "(1 + 4 + 4) / 3 messages a second"
    (here / "rows.csv").write_text("requests\n" + "2\n" * 24)
    rows = ("--rates", "rows.csv", "--column", "requests", "--every", "5min")
    assert here("simulate", "mine.yaml", *rows, "--json").json["runs"]["reactive-global"]["rate"] == 2.0
    log = [f'host - - [01/Jul/1995:{at // 60:02d}:{at % 60:02d}:00 -0400] "GET / HTTP/1.0" 200 1' for at in range(121)]
    (here / "access.log").write_text("\n".join(log) + "\n")
    counted = here("simulate", "mine.yaml", "--rates", "access.log", "--scale", "60", "--json").json["runs"]
    assert [one["rate"] for one in counted["reactive-global"]["intervals"]] == pytest.approx([1.0] * 24)
    for given, told in (
        (
            ("simulate", "mine.yaml", "--rates", "walk", "--scale", "2"),
            "--scale: requires a file of rates, not --rates walk",
        ),
        (("simulate", "mine.yaml", "--column", "x", "--every", "1m"), "--column, --every: requires a file of rates"),
        (("plan", "mine.yaml", "--offset", "2h"), "--offset requires --rates FILE"),
        (("plan", "mine.yaml", "--rates", "load.csv"), "load.csv: no column has the name of an input (read)"),
        (("simulate", "mine.yaml", *rows, "--every", "1min"), "rows.csv: covers 1440 s; expected at least 7200 s"),
        (("simulate", "mine.yaml", *read, "--scale", "-1"), "'--scale': must be"),
        (("simulate", "mine.yaml", *rows, "--every", "0"), "'--every': must be a duration such as"),
        (("simulate", "mine.yaml", *read, "--offset", "soon"), "'--offset': must be a duration"),
        (("simulate", "mine.yaml", "--rates", "."), ".: is a directory"),
    ):
        ended = here(*given)
        assert_refused(ended)
        assert told in ended.err


def test_plans_for_other_rates_and_without_alternates(here: Place) -> None:
    few, many = (
        here("plan", "mine.yaml", "--rate", f"read={rate}", "--json").json["cost_per_hour"] for rate in (1, 40)
    )
    assert many > few
    fixed = here("plan", "mine.yaml", "--no-alternates", "--json").json
    assert fixed["processing_elements"][1]["alternate"] == "good" and fixed["value"] == 1
    (here / "rates.csv").write_text("read\n" + "40\n" * 24)
    assert here("plan", "mine.yaml", "--rates", "rates.csv", "--json").json["cost_per_hour"] == many
    schemas = here("plan", "--schema").json
    assert set(schemas) == {"dataflow", "cloud"} and "selectivity" in str(schemas["dataflow"])
    listed = here("plan", "--policies").out
    assert "plasticc" in listed and "static-ga" in listed


def test_a_simulated_run_and_its_files(here: Place) -> None:
    """Breaks when tables, summary, picture or page do not tell the same run, or the same command gives other bytes."""
    command = (
        "simulate", "mine.yaml", "--cloud", "cloud.yaml", "--policy", "reactive-global", "--policy", "plasticc",
        "--rates", "walk", "--variability", "ec2", "--forecast", "oracle", "--mean-lifetime", "3", "--seed", "4",
    )  # fmt: skip
    told = here(*command, "-o", "out", "--plot", "run.png", "--html", "run.html", "--json").json
    assert list(told["runs"]) == ["reactive-global", "plasticc"]
    for name, run in told["runs"].items():
        found = {table: pq.read_table(here / "out" / name / f"{file}.parquet") for table, file in TABLES.items()}
        assert len(run["intervals"]) == found["intervals"].num_rows == 24
        assert run["cost"] == pytest.approx(sum(found["machines"].column("rent").to_pylist()))
        assert run["omega"] == pytest.approx(sum(i["omega"] for i in run["intervals"]) / 24)
        assert found["events"].num_rows > 0
    assert (here / "run.png").read_bytes().startswith(b"\x89PNG")
    page = (here / "run.html").read_text()
    assert "<script" in page and "src=" not in page.split("<body>")[0].replace("data:", "")

    def written() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in [*(here / "out").rglob("*.*"), here / "run.png"]}

    before = written()
    assert here(*command, "-o", "out", "--plot", "run.png").code == 0
    assert written() == before and len(before) == 11


@pytest.mark.slow
def test_events_and_the_interval_model_agree(here: Place) -> None:
    """Breaks when one of the engines loses messages or machines: the same run, seen twice."""
    runs = {
        engine: here("simulate", "mine.yaml", "--engine", engine, "--json").json["runs"]["reactive-global"]
        for engine in ("fluid", "events")
    }
    assert runs["fluid"]["cost"] == pytest.approx(runs["events"]["cost"])
    assert runs["fluid"]["omega"] == pytest.approx(runs["events"]["omega"], abs=0.02)


@pytest.mark.slow
def test_a_real_run(here: Place) -> None:
    """Breaks when a plan is not carried out by processes, or one of them outlives the command."""
    told = here(
        "simulate", "mine.yaml", "--cloud", "cloud.yaml", "--engine", "real", "--interval", "3", "--hours", "0.0035",
        "--json",
    ).json["runs"]["reactive-global"]  # fmt: skip
    # A computer with other work may need several intervals for its first messages.
    assert len(told["intervals"]) == 4 and max(one["omega"] for one in told["intervals"]) > 0.2


def runs(process: psutil.Process) -> bool:
    """Whether a process still runs; one that nobody waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.slow
def test_interrupted_real_runs_leave_no_process(here: Place) -> None:
    """Breaks when Ctrl-C leaves machines or instances behind."""
    command = [
        sys.executable, "-m", "goffish", "simulate", "mine.yaml", "--engine", "real", "--interval", "20", "--hours", "1"
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=here.path, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    children: list[psutil.Process] = []
    while len(children) < 3 and time.monotonic() < end:
        time.sleep(0.2)
        children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 3
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in said
    end = time.monotonic() + 10
    while any(runs(child) for child in children) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(runs(child) for child in children)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan", "none.yaml"), "dataflow 'none.yaml' not found"),
        (("plan", "mine.yaml", "--cloud", "none"), "catalogue 'none' not found"),
        (("plan", "mine.yaml", "--policy", "best"), "unknown policy 'best': choose one of reactive-global"),
        (("plan", "mine.yaml", "--option", "speed=3"), "unknown option 'speed'; accepted: alternate_every"),
        (("plan", "mine.yaml", "--option", "speed"), "give NAME=VALUE"),
        (("plan", "mine.yaml", "--option", "alternate_every=x"), "alternate_every = 'x'"),
        (("plan", "mine.yaml", "--rate", "read=fast"), "the rate must be a number of messages per second"),
        (
            ("plan", "mine.yaml", "--rate", "write=1"),
            "rates: unknown processing element 'write'; accepted: read, guess",
        ),
        (("plan", "mine.yaml", "--rate", "read=-1"), "the rate must be 0 or more"),
        (("plan", "bad.yaml"), r"bad.yaml: processing_elements\[0\].cost = 0"),
        (("simulate", "mine.yaml", "--rates", "none"), "rates 'none': no such file; give a file, or one of"),
        (
            ("simulate", "mine.yaml", "--rates", "rates.csv"),
            "rates.csv: covers 600 s; expected at least 7200 s, 24 intervals",
        ),
        (("simulate", "mine.yaml", "--variability", "none.csv"), "unknown variability 'none.csv'"),
        (("simulate", "mine.yaml", "--engine", "magic"), "choose one of fluid, events, real"),
        (("simulate", "mine.yaml", "--hours", "0"), "--hours: 0 intervals"),
        (("simulate", "mine.yaml", "--interval", "0"), "must be more than 0 seconds"),
        (("simulate", "mine.yaml", "--plot", "run.bmp"), "the suffix must be one of"),
        (("simulate", "mine.yaml", "--html", "run.png"), "must be one of .html"),
        (("simulate", "mine.yaml", "--policy", "plasticc", "--forecast", "stars"), "unknown forecast 'stars'"),
        (
            ("simulate", "mine.yaml", "--policy", "plasticc", "--oracle-error", "0.1"),
            "error and bias: only available with forecast oracle",
        ),
    ],
)
def test_what_is_refused(here: Place, arguments: tuple[str, ...], told: str) -> None:
    (here / "bad.yaml").write_text("processing_elements: [{id: a, cost: 0}]\ninputs: {a: 1}\n")
    (here / "rates.csv").write_text("read\n1\n2\n")
    ended = here(*arguments)
    assert_refused(ended)
    assert re.search(told, ended.err), ended.err


@pytest.mark.parametrize(
    "command",
    [
        ("plan", *SITES, "--policy", "latency-aware"),
        pytest.param(("simulate", *SITES, "--compare", COMPARED), marks=pytest.mark.slow),
    ],
)
def test_sites_in_plans_and_runs(here: Place, command: tuple[str, ...]) -> None:
    """The bundled example as documented; breaks when a plan hides its sites, or a comparison the delay of links."""
    pages = "".join((ROOT / "docs" / "guides" / page).read_text() for page in ("placement.md", "scheduling.md"))
    shutil.copytree(ROOT / "examples", here / "examples")
    said = here(*command).out
    assert f"$ goffish {' '.join(command)}\n{said.rstrip()}\n```" in pages, said


@pytest.mark.parametrize(
    ("site", "links", "told"),
    [
        (
            "site: a, ",
            "[{between: [a, b], latency_ms: 5}]",
            r"far.yaml: links\[0\].between: unknown site 'b'; sites: a",
        ),
        ("", "[]", r"far.yaml: machine_types\[0\].site: is missing; sites: a"),
        (
            "site: a, ",
            "[]",
            r"pinned.yaml on far.yaml: processing element read: needs.sites: unknown site 'b'; machines are at: a",
        ),
    ],
)
def test_sites_that_are_refused(here: Place, site: str, links: str, told: str) -> None:
    (here / "pinned.yaml").write_text(MINE.replace("cost: 0.1}", "cost: 0.1, needs: {sites: [b]}}"))
    (here / "far.yaml").write_text(
        f"sites: [a]\nlinks: {links}\nmachine_types: [{{name: m, {site}cores: 1, price_per_hour: 1}}]"
    )
    for command in ("plan", "simulate"):
        ended = here(command, "pinned.yaml", "--cloud", "far.yaml")
        assert_refused(ended)
        assert re.search(told, ended.err), ended.err


def test_plans_are_json_all_the_way(here: Place) -> None:
    said = here("simulate", "mine.yaml", "--hours", "0.5", "--json").out
    assert json.loads(said)["dataflow"] == "mine.yaml"
    assert Path(here / "mine.yaml").exists()


def test_a_policy_of_ones_own(here: Place) -> None:
    """The one of docs/guides/own-policy.md, in at most 30 lines; breaks when it is not run as the others are."""
    page = (ROOT / "docs" / "guides" / "own-policy.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    (here / "keep_headroom.py").write_text(code)
    own = "keep_headroom.py:KeepHeadroom"
    plan = here(
        "plan", "mine.yaml", "--cloud", "cloud.yaml", "--policy", own, "--option", "headroom=1.5", "--json"
    ).json
    # 4 messages a second need 0.4 and 4 cores; half as much again, whole instances: 1 and 6.
    assert [element["instances"] for element in plan["processing_elements"]] == [1, 6] and plan["throughput"] == 1.0
    runs = here("simulate", "mine.yaml", "--cloud", "cloud.yaml", "--compare", f"ds2,{own}", "--json").json["runs"]
    assert list(runs) == ["ds2", own] and runs[own]["omega"] == pytest.approx(1.0)
    more = here("simulate", "mine.yaml", "--cloud", "cloud.yaml", "--compare", f"ds2,{own}", "--option",
                f"{own}.headroom=3", "--json").json["runs"]  # fmt: skip
    assert more["ds2"]["cost"] == runs["ds2"]["cost"] and more[own]["cost"] > runs[own]["cost"]
    for name, told in (
        ("nowhere.py:X", "policy nowhere.py:X: cannot be loaded (FileNotFoundError"),
        ("keep_headroom.py:Deployment", "Deployment must be a dataclass with the methods deploy and adapt"),
        ("no_such_module:X", "cannot be loaded (ModuleNotFoundError"),
    ):
        refused = here("plan", "mine.yaml", "--cloud", "cloud.yaml", "--policy", name)
        assert_refused(refused)
        assert told in refused.err
    wrong = here("plan", "mine.yaml", "--cloud", "cloud.yaml", "--policy", own, "--option", "head=2")
    assert_refused(wrong)
    assert "unknown option 'head'; accepted: headroom" in wrong.err

"""``goffish launch`` and ``goffish cost report``, on machines of this computer and of a Kubernetes API."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.csv
import pytest

import goffish as gf
from tests.cli.conftest import Place
from tests.cloud.kubernetes_cluster import Cluster
from tests.commands import ENVIRONMENT
from tests.services.runners.rented import CALM, ON_DEMAND, make_store, write_cloud

LOCAL = ("--provider", "local", "--cloud", "own.yaml")


@pytest.fixture
def here(place: Place) -> Place:
    """The samples, and a catalogue with a spot machine type."""
    write_cloud(place.path)
    return place


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("small.txt",), "Missing option '--provider'"),
        (("small.txt", "--provider", "gcp"), "'gcp' is not one of 'aws', 'kubernetes', 'local'"),
        (("nope", *LOCAL[:2]), "nope: no such file"),
        (("small.txt", *LOCAL[:2], "--cloud", "ec2-2013-m1"), "has no spot machine types (market: spot)"),
        (("small.txt", *LOCAL[:2], "--policy", "x"), "--policy 'x': choose one of rtba, h1, h2, h3, greedy, eager"),
        (("small.txt", *LOCAL[:2], "--option", "x=1"), "x"),
        (("small.txt", *LOCAL[:2], "--deadline", "0"), "--deadline 0: must be greater than 0"),
        (("small.txt", *LOCAL[:2], "-o", "no/x.csv"), "no/x.csv: the folder no does not exist"),
        (("small.txt", *LOCAL[:2], "--provider-options", "f"), "--provider-options does not apply to --provider local"),
        (("small.txt", "--provider", "aws"), "--provider aws: requires --cloud"),
        (("small.txt", "--provider", "aws", "--cloud", "ec2-2015-spot"), "--provider aws: requires --jobs"),
        (
            ("small.txt", "--provider", "kubernetes", "--cloud", "ec2-2015-spot", "--jobs", "memory://x"),
            "--provider kubernetes: requires --provider-options",
        ),
        (
            ("small.txt", "--provider", "aws", "--cloud", "ec2-2015-spot", "--cloud-speed", "9"),
            "--cloud-speed 9 applies to --provider local only",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_bad_argument(refuses: Callable[..., str], args: tuple[str, ...], told: str) -> None:
    assert told in refuses("launch", "pagerank", *args)


def test_unknown_algorithm(refuses: Callable[..., str]) -> None:
    assert "pagerang: unknown algorithm" in refuses("launch", "pagerang", "small.txt", *LOCAL[:2])


def test_the_plan(here: Place) -> None:
    """Breaks when a dry run launches something, or a plan hides a price, the risk or the deadline."""
    found = here("launch", "pagerank", "small.txt", *LOCAL, "--deadline", "6h", "--dry-run", "--json").json
    plan = found["plan"]
    assert found["job"] is None and plan["policy"] == "rtba" and plan["deadline_guaranteed"]
    assert 0 < plan["expected_cost"] < plan["on_demand_cost"]
    prices = {one["market"]: one["price_per_hour"] for one in plan["machine_types"]}
    assert prices == {"spot": CALM, "on-demand": ON_DEMAND}
    assert plan["machine_types"][0]["hours_between_interruptions"] > 1 and 0 <= plan["risk"]["interrupted"] <= 1
    shown = here("launch", "pagerank", "small.txt", *LOCAL, "--deadline", "6h", "--policy", "on-demand", "--dry-run")
    assert shown.code == 0 and "in 6 h; on demand from" in shown.out and "on-demand on local" in shown.out
    assert not (here / ".goffish").exists()
    hourly = here("launch", "pagerank", "small.txt", "--provider", "local", "--dry-run", "--json").json["plan"]
    for one in hourly["machine_types"]:  # each begun hour is charged
        assert one["hours"] < 1 and one["cost"] == pytest.approx(one["price_per_hour"])


def test_nothing_is_launched_unasked(here: Place) -> None:
    """Breaks when a program without a terminal spends money, or a job that costs more than its budget begins."""
    ended = here("launch", "pagerank", "small.txt", *LOCAL)
    assert ended.code == 2 and ended.err == "error: nothing was launched: confirm with --yes\n"
    ended = here("launch", "pagerank", "small.txt", *LOCAL, "--yes", "--budget", "0")
    assert ended.code == 2 and "--budget 0: less than the expected cost of" in ended.err
    ended = here("launch", "pagerank", "small.txt", *LOCAL, "--cancel")
    assert ended.code == 2 and "--cancel: this command has no unfinished job in .goffish" in ended.err
    assert here("cost", "report", "--home", ".goffish", "--json").json["rows"] == []


def started(here: Place, *args: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "goffish", "launch", *args], cwd=here.path, env=ENVIRONMENT | variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read lines until one has the text."""
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(line)
        if text in line:
            return found
    raise AssertionError(f"{''.join(found)}{process.stderr and process.stderr.read()}")


def check_ranks(output: Path, graph: gf.Graph) -> None:
    expected = gf.pagerank(graph, tolerance=1e-13).table.sort_by("vertex")
    found = pyarrow.csv.read_csv(output).sort_by("vertex")
    assert np.allclose(found["rank"].to_numpy(), expected["rank"].to_numpy(), rtol=1e-8, atol=0)


@pytest.mark.slow
def test_a_job_from_plan_to_bill(here: Place) -> None:
    """Breaks when a result is wrong, or expected and actual costs are not kept for reports."""
    common = ("small.txt", *LOCAL, "--yes", "--label", "team=red", "--json")
    found = here("launch", "components", *common, "-o", "out.csv").json
    job = found["job"]
    assert job["state"] == "done" and job["cost"] > 0 and job["expected_cost"] == found["plan"]["expected_cost"]
    assert here("run", "components", "small.txt", "-o", "expected.csv").code == 0
    assert sorted((here / "out.csv").read_text().split()) == sorted((here / "expected.csv").read_text().split())
    again = here("launch", "components", *common).json["job"]
    assert again["id"] != job["id"] and Path(here.path / again["result"]).is_file()
    report = ("cost", "report", "--home", ".goffish")
    for by, groups in (("job", {job["id"], again["id"]}), ("label", {"team=red"}), ("provider", {"local"})):
        rows = here(*report, "--by", by, "--json").json["rows"]
        assert {row["group"] for row in rows} == groups
        assert sum(row["cost"] for row in rows) == pytest.approx(job["cost"] + again["cost"])
        assert sum(row["jobs"] for row in rows) == sum(row["done"] for row in rows) == 2
    assert here(*report, "--label", "team=blue", "--json").json["rows"] == []
    assert here(*report, "--by", "client", "-o", "costs.csv").code == 0
    with (here / "costs.csv").open() as file:
        [row] = csv.DictReader(file)
    total = job["expected_cost"] + again["expected_cost"]
    assert float(row["difference"]) == pytest.approx((job["cost"] + again["cost"]) / total - 1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_launcher_that_ends_is_replaced(here: Place, how: str) -> None:
    """Breaks when a job is begun again, its checkpoint is not used, or nobody says what goes on."""
    graph = make_store(here.path, 60_000, 400_000)
    options = ("--option", "supersteps=1500", "--checkpoint-every", "20")
    command = ("pagerank", "store", *LOCAL, *options, "--yes", "-o", "out.csv")
    first = started(here, *command)
    [launched] = [line for line in lines_until(first, "launched") if line.startswith("job ")]
    lines_until(first, "checkpoint of superstep")
    ended = here("launch", *command)
    assert ended.code == 2 and "another launcher controls this job" in ended.err
    if how == "killed":
        first.kill()
        first.wait()
    else:
        first.send_signal(signal.SIGINT)
        _, told = first.communicate(timeout=30)
        assert first.returncode == 130 and "its machines stop; the job resumes from its newest checkpoint" in told
        assert f"follow it: goffish launch {' '.join(command)}\n" in told and "--yes -o out.csv --cancel\n" in told
    second = started(here, *command)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, out + err
    assert launched.replace("launched", "taken up again") in out
    steps = [int(line.split()[-1]) for line in out.splitlines() if " progress " in line]
    assert steps[0] > 20
    check_ranks(here / "out.csv", graph)


@pytest.mark.slow
def test_a_launched_job_is_cancelled(here: Place) -> None:
    make_store(here.path, 60_000, 400_000)
    command = ("pagerank", "store", *LOCAL, "--option", "supersteps=1000000", "--yes")
    first = started(here, *command)
    lines_until(first, " running ")
    first.kill()
    first.wait()
    ended = here("launch", "pagerank", "store", *LOCAL, "--option", "supersteps=1000000", "--policy", "h1", "--yes")
    assert ended.code == 2 and "is unfinished, with other options" in ended.err
    found = here("launch", *command, "--cancel", "--json").json["job"]
    assert found["state"] == "cancelled"


@pytest.mark.slow
def test_a_killed_launcher_leaves_no_pod(here: Place, s3: Any, pods: Cluster) -> None:
    """Breaks when pods of a killed launcher are not found again, or one is left when the job has ended."""
    graph = make_store(here.path, 60_000, 400_000)
    fsspec.filesystem("s3").makedirs("jobs", exist_ok=True)
    (here / "pods.yaml").write_text(json.dumps(pods.options))
    command = (
        "pagerank", "store", "--provider", "kubernetes", "--provider-options", "pods.yaml", "--cloud", "own.yaml",
        "--jobs", "s3://jobs/all", "--option", "supersteps=2500", "--yes", "-o", "out.csv",
    )  # fmt: skip
    first = started(here, *command, **os.environ)
    lines_until(first, " progress ")
    [machine] = pods.pods
    first.kill()
    first.wait()
    assert list(pods.pods) == [machine]
    second = started(here, *command, **os.environ)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, out + err
    assert f"machine {machine}, tiny" in out and "found again" in out
    check_ranks(here / "out.csv", graph)
    pods.wait_until_empty()
    [row] = here("cost", "report", "--home", ".goffish", "--by", "provider", "--json").json["rows"]
    assert row["group"] == "kubernetes" and row["cost"] > 0


@pytest.mark.slow
def test_a_job_that_is_cancelled_after_a_kill_leaves_no_pod(here: Place, s3: Any, pods: Cluster) -> None:
    """Breaks when a job is cancelled before its machine was found again, which then runs on."""
    make_store(here.path, 60_000, 400_000)
    fsspec.filesystem("s3").makedirs("jobs", exist_ok=True)
    (here / "pods.yaml").write_text(json.dumps(pods.options))
    command = (
        "pagerank", "store", "--provider", "kubernetes", "--provider-options", "pods.yaml", "--cloud", "own.yaml",
        "--jobs", "s3://jobs/all", "--option", "supersteps=1000000", "--yes",
    )  # fmt: skip
    first = started(here, *command, **os.environ)
    lines_until(first, " running ")
    first.kill()
    first.wait()
    assert len(pods.pods) == 1
    ended = started(here, *command, "--cancel", **os.environ)
    out, err = ended.communicate(timeout=300)
    assert "cancelled" in out, out + err
    pods.wait_until_empty()

"""``goffish jobs``, ``goffish top`` and ``goffish clients``, against a real server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goffish.cli.app import app
from goffish.client import ServiceError
from goffish.errors import InputError
from tests.commands import call
from tests.services.api.serving import Known, RealServer


def goffish(*command: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """Output and errors of a command that ends with a code."""
    done = call(*command, variables=environment)
    assert done.code == code, (done.out, done.err)
    assert "Traceback" not in done.err
    return done.out, done.err


def test_a_job_by_hand(server: RealServer, tmp_path: Path) -> None:
    """Breaks when a command does not do what its help says, or its JSON lacks what the table shows."""
    where = {"GOFFISH_SERVER": server.address}
    (tmp_path / "mine.txt").write_text("1 2\n2 3\n7 8\n")
    told, _ = goffish("jobs", "submit", "components", f"@{tmp_path / 'mine.txt'}", "--label", "team=a", "--wait",
                      "--json", **where)  # fmt: skip
    job = json.loads(told)
    assert (job["state"], job["summary"]["components"], job["spec"]["labels"]) == ("done", 2, {"team": "a"})
    shown, _ = goffish("jobs", "show", job["id"], **where)
    assert job["id"] in shown and "done" in shown
    listed = json.loads(goffish("jobs", "list", "--label", "team=a", "--state", "done", "--json", **where)[0])
    assert [one["id"] for one in listed["jobs"]] == [job["id"]]
    table, _ = goffish("jobs", "list", "--limit", "1", **where)
    assert job["id"] in table
    watched = [json.loads(line) for line in goffish("jobs", "watch", job["id"], "--json", **where)[0].splitlines()]
    assert [event["number"] for event in watched] == list(range(1, len(watched) + 1))
    assert watched[-1]["state"] == "done"
    assert "done" in goffish("jobs", "watch", job["id"], "--after", "2", **where)[0]
    goffish("jobs", "result", job["id"], "-o", str(tmp_path / "found.parquet"), **where)
    assert pq.read_table(tmp_path / "found.parquet").num_rows == 5
    assert job["id"] in goffish("top", "--once", **where)[0]
    assert goffish("jobs", "cancel", job["id"], **where)[0] == f"{job['id']} is done\n"
    assert goffish("jobs", "log", job["id"], **where)[0].strip() == ""


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (("jobs", "show", "nothing"), 2, "job 'nothing' does not exist"),
        (("jobs", "submit", "pagerank", "../secret.txt"), 2, "spec.graph.input_uri"),
        (("jobs", "submit", "pagerank", "@/no/such/file"), 2, "/no/such/file: cannot be read"),
        (("jobs", "submit", "pagerank", "store", "--option", "x"), 2, "--option x: give NAME=VALUE"),
        (("jobs", "submit", "pagerank", "store", "--runner", "boat"), 2, "choose one of local"),
        (("jobs", "list", "--state", "happy"), 2, "choose from queued"),
        (("jobs", "submit", "bfs", "edges.txt", "--option", "source=99999", "--wait"), 1, ""),
        (("jobs", "list", "--token", "@/no/such/file"), 2, "--token @/no/such/file: cannot be read"),
        (("jobs", "list", "--authority", "/no/such/file"), 2, "/no/such/file: cannot be read"),
    ],
)
def test_what_cannot_be_done(server: RealServer, command: tuple[str, ...], code: int, told: str) -> None:
    """Breaks when a mistake gets more than one line, or the wrong exit code."""
    _, errors = goffish(*command, code=code, GOFFISH_SERVER=server.address)
    assert told in errors and len(errors.splitlines()) <= 1


GRAPH, FLOW = ("jobs", "submit", "components", "store"), ("jobs", "submit", "dataflow", "sc13-diamond")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ((*FLOW, "--runner", "mpi"), "--runner mpi applies to graph jobs only, not to dataflows"),
        ((*FLOW, "--runner", "local"), "--runner local applies to"),
        ((*FLOW, "--workers", "2"), "--workers 2 applies to"),
        ((*FLOW, "--max-memory", "2"), "--max-memory 2 applies to"),
        ((*FLOW, "--max-cpu-seconds", "2"), "--max-cpu-seconds 2.0 applies to"),
        ((*FLOW, "--checkpoint-every", "2"), "--checkpoint-every 2 applies to"),
        ((*GRAPH, "--rates", "walk"), "--rates walk applies to dataflows"),
        ((*GRAPH, "--hours", "2"), "--hours 2.0 applies to dataflows"),
        ((*GRAPH, "--seed", "0"), "--seed 0 applies to dataflows"),
        ((*GRAPH, "--hours-per-second", "2"), "--hours-per-second 2.0 applies to dataflows"),
        ((*GRAPH, "--policy", "rtba"), "--policy rtba applies to dataflows and to --runner cloud"),
        ((*GRAPH, "--runner", "mpi", "--cloud", "x"), "--cloud x applies to dataflows and to --runner cloud"),
        ((*FLOW[:3], "@/no/such/file"), "not found"),
    ],
)
@pytest.mark.slow
def test_flags_of_another_kind_of_job(command: tuple[str, ...], told: str) -> None:
    """Breaks when a flag that changes nothing is taken in silence."""
    with pytest.raises(InputError, match=re.escape(told)):
        app(list(command), standalone_mode=False)


def test_a_dataflow_of_ones_own(server: RealServer, tmp_path: Path) -> None:
    """Breaks when a definition in a file, or a flag of dataflows, does not reach the server."""
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nelements: [{id: a, cost: 0.1}, {id: b, cost: 0.2}]\nedges: [[a, b]]\ninputs: {a: 3}\n"
    )
    flags = ("--seed", "5", "--hours", "1", "--hours-per-second", "900", "--max-attempts", "4", "--policy", "ds2")
    given = (f"@{tmp_path / 'mine.yaml'}", "--cloud", "ec2-2013", "--rates", "walk", "--wait", "--json", *flags)
    job = json.loads(goffish("jobs", "submit", "dataflow", *given, GOFFISH_SERVER=server.address)[0])
    run = job["spec"]["dataflow"]
    assert job["state"] == "done" and job["spec"]["most_attempts"] == 4
    assert run["dataflow_definition"]["edges"] == [{"from": "a", "to": "b"}]
    assert (run["seed"], run["hours"], run["hours_per_second"]) == ("5", 1, 900)
    assert (run["policy"], run["cloud_name"], run["rates"]) == ("ds2", "ec2-2013", "walk")
    with pytest.raises(ServiceError, match=r"cloud_name: unknown '@x'"):
        app([*FLOW, "--cloud", "@x", "--server", server.address], standalone_mode=False)


def test_no_server() -> None:
    """Breaks when a server that is not there hangs a command, or shows what gRPC says of it."""
    _, errors = goffish("jobs", "list", "--server", "127.0.0.1:1", code=1)
    assert errors.startswith("error: cannot connect to the server") and len(errors.splitlines()) == 1


@pytest.mark.slow
def test_without_the_extra() -> None:
    """Breaks when who has not installed the extra is not told which."""
    code = "import sys; sys.modules['grpc'] = None; sys.argv = ['goffish', {!r}, *{!r}]; "
    code += "from goffish.cli import main; main()"
    for command, rest in (("jobs", ["list"]), ("top", ["--once"]), ("serve", [])):
        done = subprocess.run(
            [sys.executable, "-c", code.format(command, rest)], check=False, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2 and "pip install 'goffish[service]'" in done.stderr, done.stderr


def test_tokens(known: Known, tmp_path: Path) -> None:
    """Breaks when a token that is in a file or in the environment does not reach the server."""
    (tmp_path / "token").write_text(known.tokens["eve"] + "\n")
    address = known.server.address
    for given, environment in (
        (["--token", f"@{tmp_path / 'token'}"], {}),
        ([], {"GOFFISH_TOKEN": known.tokens["ann"]}),
    ):
        told, _ = goffish("jobs", "list", "--json", "--server", address, *given, **environment)
        assert "jobs" in json.loads(told)
    _, errors = goffish("jobs", "list", "--server", address, code=1)
    assert "authorization: Bearer TOKEN" in errors

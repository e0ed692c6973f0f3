"""What clients and spreadsheets get to read: no folders of the server, no errors without a reason, no formulas."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from goffish.client import Client, ServiceError
from goffish.errors import InputError
from goffish.gopher.result import spreadsheet_safe
from goffish.services.runners import worker
from goffish.services.runners.processes import launcher
from goffish.services.store.records import without_folders
from goffish.v1 import jobs_pb2
from tests.services.api.serving import RealServer, serving, settle
from tests.services.api.test_commands import goffish

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "service-operators.md"
RISKY = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\uff1d1"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/srv/graphs/a/bad.txt:2: more columns", "bad.txt:2: more columns"),
        ("input: '/srv/x/y' is gone (/var/lib/g/z.db)", "input: 'y' is gone (z.db)"),
        ("file:///srv/x/y.txt", "y.txt"),
        ("Input path does not exist: file:/srv/x/y.txt", "Input path does not exist: y.txt"),
        ("jar:file:/srv/x/y.jar!/a.class, -cp /srv/a/b.jar:/srv/c/d.jar", "jar:a.class, -cp b.jar:d.jar"),
        ("s3:/bucket/x/y, http://x.example:80/a/b", "s3:/bucket/x/y, http://x.example:80/a/b"),
        ("s3://bucket/a/b and https://x.example/a/b", "s3://bucket/a/b and https://x.example/a/b"),
        ("upload:0b37/bad.txt, a/b/c, 1/2, 10 / 3, /", "upload:0b37/bad.txt, a/b/c, 1/2, 10 / 3, /"),
    ],
)
def test_folders_are_cut(text: str, found: str) -> None:
    assert without_folders(text) == found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("runner", "program", "options"), [("mpi", "mpirun", ()), ("spark", "spark-submit", ("--spark-master", "local[1]"))]
)
def test_jobs_name_no_folders(tmp_path: Path, data: Path, runner: str, program: str, options: tuple[str, ...]) -> None:
    """Breaks when the log, an error or an event of a job on ranks or on Spark shows where the server keeps things."""
    try:
        launcher(program, "")
    except InputError:
        pytest.skip(f"{program} is not installed here")
    own = tmp_path / "data"
    shutil.copytree(data / "store", own / "damaged")
    shutil.copytree(data / "store", own / "well")
    largest = max((own / "damaged").rglob("*.arrow"), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[::-1])
    with serving(tmp_path / "home", own, "--grace", "1", *options) as server, server.client() as client:
        damaged, well, crashed = (
            client.submit_graph("components", name, runner=runner, workers=2 if runner == "mpi" else 1).id
            for name in ("damaged", "well", "well")
        )
        settle(client, [damaged, well, crashed])
        assert "damaged" in client.job(damaged).error
        # What libraries print of themselves: the frames of an exception that nobody expected.
        with (server.home / "jobs" / crashed / "log.txt").open("a") as log:
            frames = [f'  File "{worker.__file__}", line 1', f"{own}/well/manifest.json", f"file:{tmp_path}/home/x.jar"]
            log.write("\n".join(frames))
        for job in (damaged, well, crashed):
            events = "\n".join(f"{event.text} {event.details}" for event in client.watch(job))
            for text in (client.log(job), client.job(job).error, events):
                for place in (tmp_path, sys.prefix, Path(worker.__file__).parent):
                    assert str(place) not in text
        assert client.log(damaged) and "well/manifest.json" in client.log(crashed)


def test_spreadsheets_see_no_formulas() -> None:
    """Breaks when a text that begins a formula is written as it is, or a number or another text is changed."""
    fine = ["a=b", "", None, "'=1", "7", " x"]
    texts = pa.array([*RISKY, *fine])
    numbers = pa.array([-1.5, 2.0] * (len(texts) // 2))
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        found = spreadsheet_safe(pa.table({"vertex": texts.cast(kind), "=x": numbers}))
        assert found.column("vertex").to_pylist() == [f"'{text}" for text in RISKY] + fine
        assert found.column("'=x").equals(pa.chunked_array([numbers]))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealServer, Client, str]]:
    """A server with a dashboard, and files that cannot be read."""
    room = tmp_path_factory.mktemp("texts")
    data = room / "inputs" / "deep"
    data.mkdir(parents=True)
    (data / "edges.txt").write_text("1 2\n2 3\n")
    (data / "bad.txt").write_text("1 2\n1 2 3 4\n")
    (data / "bad.parquet").write_bytes(b"PAR1")
    (data / "store").mkdir()
    (data / "store" / "manifest.json").write_text("{}")
    rows = "".join(f'"{text}",b\n' for text in RISKY[:4])
    (data / "formulas.csv").write_text(rows)
    web = room / "web"
    with (
        serving(room / "home", data.parent, "--web", "127.0.0.1:0", "--grace", "1") as server,
        server.client() as client,
    ):
        assert server.process is not None and server.process.stdout is not None
        web.write_text(server.process.stdout.readline().split()[-1])
        yield server, client, web.read_text()


@pytest.mark.parametrize("name", ["bad.txt", "bad.parquet", "store"])
def test_why_a_job_failed(own: tuple[RealServer, Client, str], name: str) -> None:
    """Breaks when the reason names a folder of the server, or no longer the input."""
    server, client, _ = own
    job = client.wait(client.submit_graph("components", f"deep/{name}").id)
    assert job.state == jobs_pb2.JOB_STATE_FAILED and job.error.startswith(f"deep/{name}")
    told = job.error + "".join(event.text + event.details for event in client.watch(job.id))
    assert str(server.data) not in told and str(server.home) not in told
    with pytest.raises(ServiceError) as caught:
        client.result(job.id)
    assert "/" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["x" * 1900, "deep/" + "x" * 300, "y/" * 900, "deep/edges.txt/x", "upload:" + "0" * 1900]
)
def test_names_that_are_too_long(own: tuple[RealServer, Client, str], name: str) -> None:
    """Breaks when a name that no file can have is an error of the server."""
    with pytest.raises(ServiceError, match=r"not found") as caught:
        own[1].submit_graph("components", name)
    assert caught.value.code.name == "INVALID_ARGUMENT" and len(str(caught.value)) < 400


@pytest.mark.slow
def test_results_in_spreadsheets(own: tuple[RealServer, Client, str], tmp_path: Path) -> None:
    """Breaks when the dashboard or ``goffish jobs result`` writes CSV with a label that is a formula."""
    server, client, web = own
    job = client.wait(client.submit_graph("components", "deep/formulas.csv").id)
    assert job.state == jobs_pb2.JOB_STATE_DONE, job.error
    goffish("jobs", "result", job.id, "-o", str(tmp_path / "r.csv"), "--server", server.address)
    for text in (httpx.get(f"{web.rstrip('/')}/jobs/{job.id}/result.csv").text, (tmp_path / "r.csv").read_text()):
        labels = [row[0] for row in csv.reader(io.StringIO(text))][1:]
        assert {*labels} == {"b", *(f"'{text}" for text in RISKY[:4])}
    assert set(client.result(job.id).column("vertex").to_pylist()) == {"b", *RISKY[:4]}


@pytest.mark.slow
def test_backup_and_restore_as_documented(tmp_path: Path, data: Path) -> None:
    """Breaks when the commands of the guide, run one after the other, do not bring the jobs back."""
    if shutil.which("sqlite3") is None:
        pytest.skip("the sqlite3 command is not installed")
    part = GUIDE.read_text(encoding="utf-8").partition("## Backup and restore")[2].partition("\n## ")[0]
    backup, restore = re.findall(r"^```sh\n(.*?)^```", part, re.DOTALL | re.MULTILINE)

    def run(commands: str) -> None:
        kept = "".join(f"{line}\n" for line in commands.splitlines() if not re.match("pg_dump|goffish serve", line))
        subprocess.run(["sh", "-euc", kept], cwd=tmp_path, check=True, capture_output=True, text=True)

    with serving(tmp_path / "home", data, "--grace", "1") as server, server.client() as client:
        job = client.wait(client.submit_graph("components", "store").id)
        run(backup)
    run(restore)
    with serving(tmp_path / "restored" / "home", data, "--grace", "1") as server, server.client() as client:
        assert client.job(job.id) == job and client.result(job.id).num_rows == 400

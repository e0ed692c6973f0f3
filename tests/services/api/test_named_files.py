"""No option of a job opens a file of the server by a client's text: every option, every algorithm, every policy."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

import goffish as gf
from goffish.algorithms.algorithm import Algorithm, TableFile
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.errors import GoffishError, InputError
from goffish.scheduling.policies.policies import policy_names, policy_schema
from goffish.services.api import plans
from goffish.services.api.admission import check_spec
from goffish.services.api.inputs import Inputs
from goffish.services.api.spot_advice import Markets
from goffish.services.runners import worker
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import UNLIMITED
from goffish.services.runners.order import Files, order_of
from goffish.services.store.spec import DataflowJob, GraphJob, JobSpec
from goffish.v1 import planning_pb2
from tests.services.api.serving import RealServer, settle

SECRET = "s3cr3t"
RUNNERS = ("local", "mpi", "spark", "cloud")
_IN_OPEN, _IN_NONBLOCK = 0x20, 0o4000


class Canary:
    """A file that no job may read, and whether anything has opened it (inotify of the kernel)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text(f"vertex,community,{SECRET}\n1,1,{SECRET}\n")
        libc = ctypes.CDLL(None, use_errno=True)
        self._watch = libc.inotify_init1(_IN_NONBLOCK)
        assert self._watch >= 0
        assert libc.inotify_add_watch(self._watch, os.fsencode(path), _IN_OPEN) >= 0

    @property
    def opened(self) -> bool:
        """Whether it was opened since the last look."""
        try:
            return len(os.read(self._watch, 4096)) >= struct.calcsize("iIII")
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._watch)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    found = Canary(tmp_path / "secret.csv")
    found.path.read_text()
    assert found.opened and not found.opened, "the watch works"
    yield found
    found.close()


@pytest.fixture
def inputs(tmp_path: Path, data: Path) -> Inputs:
    return Inputs([data], tmp_path / "uploads", 1000, 1000)


def upload(inputs: Inputs, name: str, text: str) -> str:
    import hashlib

    sent = inputs.upload(name, len(text), hashlib.sha256(text.encode()).hexdigest())
    sent.write(text.encode())
    return sent.finish()


def outcome(graph: GraphJob, inputs: Inputs, folder: Path) -> str:
    """What a client is told of a job: the refusal, or how its worker ends."""
    try:
        check_spec(JobSpec(graph=graph), inputs, RUNNERS)
        files = Files.of(graph, inputs.resolve)
        result = worker._run(JobFolder(folder), order_of(graph, files, UNLIMITED))
        return f"{result.table.to_pydict()} {result.summary}"
    except GoffishError as error:
        return str(error)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_option_of_an_algorithm_opens_a_file(name: str, canary: Canary, inputs: Inputs, tmp_path: Path) -> None:
    """Breaks when an option of any algorithm, now or later, is opened as a file without the server's input policy."""
    model, missing = ALGORITHMS[name], tmp_path / "missing.csv"
    needed = {one: "1" for one, field in model.model_fields.items() if field.is_required()}
    for option in model.model_fields:
        told = {}
        for path in (canary.path, missing):
            for text in (str(path), f"file://{path}", os.path.relpath(path)):
                graph = GraphJob(algorithm=name, input_uri="edges.txt", options=needed | {option: text})
                said = outcome(graph, inputs, tmp_path)
                assert not canary.opened, f"{name} opened {option}={text}"
                assert SECRET not in said
                told.setdefault(path, []).append(said.replace(str(path.stem), "X").replace(str(path.parent), ""))
        assert told[canary.path] == told[missing], f"{name}: {option} tells whether a file exists"


@pytest.mark.parametrize("field", ["algorithm", "input_uri", "cloud_name"])
def test_no_field_of_a_graph_job_opens_a_file(field: str, canary: Canary, inputs: Inputs, tmp_path: Path) -> None:
    """Breaks when a text of a graph job beside its options is opened as a file."""
    for runner in ("local", "cloud"):
        given = {"algorithm": "components", "input_uri": "edges.txt", "runner": runner} | {field: str(canary.path)}
        with pytest.raises(InputError) as caught:
            check_spec(JobSpec(graph=GraphJob.model_validate(given)), inputs, RUNNERS)
            assert runner == "local" and field == "cloud_name"
            raise InputError("only the runner cloud looks at it")
        assert SECRET not in str(caught.value) and not canary.opened


@pytest.mark.parametrize("policy", policy_names())
def test_no_option_of_a_policy_opens_a_file(policy: str, canary: Canary, inputs: Inputs) -> None:
    """Breaks when an option of any policy is opened as a file, or taken for code, by a job or a plan."""
    for option in policy_schema(policy)["properties"]:
        for text in (str(canary.path), f"{canary.path}:Own"):
            job = DataflowJob(dataflow="sc13-diamond", policy=policy, options={option: text})
            setting = planning_pb2.Setting(dataflow_name="sc13-diamond", policy=policy, options={option: text})
            for ask in (
                lambda job=job: check_spec(JobSpec(dataflow=job), inputs, ()),
                lambda s=setting: plans.read(s),
            ):
                with pytest.raises(InputError) as caught:
                    ask()
                assert SECRET not in str(caught.value) and not canary.opened


@pytest.mark.parametrize("field", ["dataflow", "cloud_name", "policy", "rates"])
def test_no_field_of_a_dataflow_job_opens_a_file(field: str, canary: Canary, inputs: Inputs) -> None:
    """Breaks when a name in a dataflow job or in a request for a plan or for advice is opened as a file."""
    given = {"dataflow": "sc13-diamond"} | {field: str(canary.path)[-110:]}
    with pytest.raises(InputError):
        check_spec(JobSpec(dataflow=DataflowJob.model_validate(given)), inputs, ())
    named = {"dataflow": "dataflow_name"}.get(field, field)
    if field != "rates":
        setting = planning_pb2.Setting(**{"dataflow_name": "sc13-diamond", named: str(canary.path)})
        with pytest.raises(InputError):
            plans.read(setting)
    with pytest.raises(InputError):
        Markets(canary.path.parent).read(
            planning_pb2.AdviseSpotRequest(market=str(canary.path.with_suffix("")), core_hours=1, hours=1)
        )
    assert not canary.opened


def test_marked_options_are_found() -> None:
    """Breaks when the mark of an option that names files is lost inside another type."""

    class Several(Algorithm):
        name = "several"
        title = "An algorithm with options that name files."
        one: TableFile = None
        many: tuple[TableFile, ...] = ()
        either: dict[str, TableFile | int] | None = None
        none: str = ""

    assert Several.files() == ["one", "many", "either"]
    assert ALGORITHMS["louvain"].files() == ["initial", "fixed", "truth"]


@pytest.mark.slow
def test_uploads_as_options(server: RealServer, data: Path, tmp_path: Path, canary: Canary) -> None:
    """Breaks when options that name files do not work by upload and by data folder, or a result differs from Python."""
    graph = gf.read(data / "edges.txt")
    truth = pa.table({"vertex": range(400), "community": [v % 4 for v in range(400)]})
    fixed = pa.table({"vertex": [0, 1, 2], "community": [7, 7, 9]})
    for name, table in (("truth", truth), ("fixed", fixed)):
        csv.write_csv(table, tmp_path / f"{name}.csv")
    gf.louvain(graph).write(data / "first.parquet")
    expected = gf.louvain(graph, truth=truth, fixed=fixed, initial=data / "first.parquet")
    with server.client() as client:
        options = {name: client.upload(tmp_path / f"{name}.csv") for name in ("truth", "fixed")}
        job = client.submit_graph("louvain", "edges.txt", options | {"initial": "first.parquet"})
        settle(client, [job.id])
        assert not client.job(job.id).error
        assert client.result(job.id).equals(expected.table)
        told = gf_summary(client.job(job.id))
        assert told["nmi"] == expected.summary["nmi"]
        (tmp_path / "bad.csv").write_text("vertex,other\n1,2\n")
        bad = client.submit_graph("louvain", "edges.txt", {"truth": client.upload(tmp_path / "bad.csv")})
        settle(client, [bad.id])
        error = client.job(bad.id).error
        assert "community" in error and str(server.home) not in error
        (tmp_path / "torn.csv").write_text("vertex,community\n1\n")
        torn = client.submit_graph("louvain", "edges.txt", {"truth": (uri := client.upload(tmp_path / "torn.csv"))})
        settle(client, [torn.id])
        assert client.job(torn.id).error.startswith(f"{uri}: not a csv table")
        for name in ("truth", "initial", "fixed"):
            for path in (canary.path, tmp_path / "nothing.csv"):
                with pytest.raises(GoffishError, match=rf"options\.{name}: nothing called '{path.name}'"):
                    client.submit_graph("louvain", "edges.txt", {name: str(path)})
        assert not canary.opened


def gf_summary(job: Any) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(job.summary)
    return found

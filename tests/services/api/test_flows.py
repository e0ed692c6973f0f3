"""Flow jobs over gRPC: clients control them, the server and its workers are killed, and hostile clients are refused."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from goffish.client import Client, ServiceError
from goffish.errors import InputError
from goffish.services.api.clients import add_client
from goffish.services.api.inputs import Inputs
from goffish.services.runners.flow_folder import FlowFolder, check_description, load_description
from goffish.v1 import flows_pb2, jobs_pb2
from tests.commands import call
from tests.services.api.conftest import ROLES
from tests.services.api.serving import Known, RealServer, serving
from tests.services.runners.test_flows import LOOP, ORDERS, PARTS, description, until

Code = grpc.StatusCode


def write_orders(
    folder: Path, name: str, out: Path, *, count: int = 60_000, rate: int = 1000, value: str = "row"
) -> None:
    text = ORDERS.format(count=count, rate=rate, bad=-1, out=str(out))
    (folder / f"{name}.py").write_text(text.replace("    return row\n\nflow", f"    return {value}\n\nflow"))


def totals(out: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for file in out.glob("part-*"):
        for row in map(json.loads, file.read_text().splitlines()):
            found[row["user"]] = max(found.get(row["user"], 0), row["n"])
    return found


@pytest.fixture(scope="module")
def flowing(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Known]:
    """A server with flows and clients."""
    place = tmp_path_factory.mktemp("flowing")
    tokens = {name: add_client(place / "clients.yaml", name, role) for name, role in ROLES.items()}
    (place / "flows").mkdir()
    write_orders(place / "flows", "orders", place / "out")
    write_orders(place / "flows", "newer", place / "out", value='row | {"newer": True}')
    (place / "flows" / "parts.py").write_text(PARTS)
    (place / "flows" / "halves.py").write_text(LOOP)
    (place / "flows" / "_private.py").write_text(LOOP)
    (place / "secret.py").write_text(f"open({str(place / 'opened')!r}, 'w').close()\n{LOOP}")
    options = ("--clients", str(place / "clients.yaml"), "--flows", str(place / "flows"), "--slots", "4")
    with serving(place / "home", data, *options, "--grace", "1", "--max-workers", "4") as server:
        yield Known(server, tokens)


@pytest.fixture
def orders(flowing: Known) -> Iterator[tuple[Client, str]]:
    """A job of ann that runs the flow."""
    out = flowing.server.home.parent / "out"
    for file in out.glob("*"):
        file.unlink()
    with flowing.client("ann") as ann:
        job = ann.submit_flow("orders", checkpoint_s=0.2).id
        until(lambda: (ann.flow_metrics(job)["metrics"] or {"records": 0})["records"])
        yield ann, job
        ann.cancel(job)
        until(lambda: ann.job(job).state > jobs_pb2.JOB_STATE_MIGRATING)


def refused(call: Callable[..., Any], *given: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(ServiceError) as caught:
        call(*given)
    assert "\n" not in str(caught.value)
    return caught.value.code, str(caught.value)


def kinds(client: Client, job: str) -> list[tuple[str, str]]:
    return [(event.kind, event.text) for event in client.watch(job) if event.kind not in ("progress", "state")]


def test_what_the_server_offers(flowing: Known) -> None:
    with flowing.client("eve") as eve:
        assert eve.list_flows() == {
            "halves": (), "newer": (), "orders": (), "parts": ("parts:double", "parts:numbers"),
        }  # fmt: skip


def test_a_server_without_flows(server: RealServer) -> None:
    with server.client() as client:
        assert client.list_flows() == {}
        code, text = refused(lambda: client.submit_flow("orders"))
    assert (code, text) == (
        Code.INVALID_ARGUMENT,
        "spec.flow: this server offers no flows; its operator must set --flows",
    )


def test_a_flow_is_controlled(flowing: Known, orders: tuple[Client, str]) -> None:
    """Breaks when a change is not made, is not an event, or the savepoint does not have it."""
    ann, job = orders
    assert ann.flow_metrics(job)["version"] == 0
    ann.scale_flow(job, 2)
    ann.switch_alternate(job, "price", "rough")
    assert refused(lambda: ann.switch_alternate(job, "price", "none")) == (
        Code.INVALID_ARGUMENT, "operator price: no alternate 'none'; choose one of main, rough",
    )  # fmt: skip
    until(lambda: [one["joined"] for one in ann.flow_metrics(job)["metrics"]["workers"]] == [True] * 2)
    ann.switch_alternate(job, "price", "main")
    plan = ann.update_flow(job, "newer", dry_run=True)
    assert (plan["changes"], ann.flow_metrics(job)["updates"]) == ("changed price", [])
    planned = ann.update_flow(job, "newer", dry_run=True, require=["no-loss", "no-mixing"])
    assert planned["strategy"] == planned["recommended"] and planned["strategy"] in ("mvc", "pvc", "nch")
    assert {"no-loss", "no-mixing"} in [{*one["meets"]} for one in planned["predictions"]]
    planned = ann.update_flow(job, "newer", dry_run=True, require=["no-loss"], strategy="ncl")
    assert planned["strategy"] == "ncl" and planned["recommended"] != "ncl"
    code, text = refused(lambda: ann.update_flow(job, "orders"))
    assert code == Code.INVALID_ARGUMENT and "no operator and no channel differs" in text
    for strategy in ("mvc", "pvc", "hti", "nch", "ncl"):
        given = "newer" if strategy in ("mvc", "hti", "ncl") else "orders"
        assert ann.update_flow(job, given, strategy=strategy)["strategy"] == strategy
        until(lambda: not ann.flow_metrics(job)["updating"] and ann.flow_metrics(job)["updates"][-1:])
        until(lambda s=strategy: ann.flow_metrics(job)["updates"][-1]["strategy"] == s)  # type: ignore[misc]
    version = ann.flow_metrics(job)["version"]
    assert version > 4
    ann.stop_flow(job)
    found = ann.wait(job)
    summary = json.loads(found.summary)
    assert found.state == jobs_pb2.JOB_STATE_DONE, found.error
    assert (summary["stopped"], summary["version"]) == ("stopped", version) and summary["savepoint"] > 0
    counted = Counter(kind for kind, _ in kinds(ann, job))
    assert counted == {"submitted": 1, "scale": 2, "switch": 2, "update": 10, "stop": 1}
    assert refused(lambda: ann.scale_flow(job, 3)) == (
        Code.FAILED_PRECONDITION, f"job {job} is done; its flow is not running",
    )  # fmt: skip


@pytest.mark.slow
def test_workers_of_operators(flowing: Known) -> None:
    """Breaks when numbers of workers for operators do not reach the flow, or exceed what the operator allows."""
    with flowing.client("ann") as ann:
        code, text = refused(lambda: ann.submit_flow("orders", workers={"price": 4}))
        assert code == Code.INVALID_ARGUMENT and "5 exceeds the server's limit of 4 (--max-workers)" in text
        for given in ({"price": 0}, {"price": 1000}, {"": 2}):
            assert refused(lambda given=given: ann.submit_flow("orders", workers=given))[0] == Code.INVALID_ARGUMENT
        assert refused(lambda: ann.submit_flow("orders", delivery="sometimes"))[0] == Code.INVALID_ARGUMENT
        failed = ann.wait(ann.submit_flow("orders", workers={"none": 2}).id)
        assert "no operator 'none'" in failed.error
        for file in (flowing.server.home.parent / "out").glob("*"):
            file.unlink()
        job = ann.submit_flow("orders", workers={"price": 1}, delivery="at-least-once", checkpoint_s=0.2).id

        def stages() -> Counter[str | None]:
            metrics = ann.flow_metrics(job)["metrics"] or {"workers": []}
            return Counter(one["stage"] for one in metrics["workers"] if one["joined"])

        until(lambda: stages() == {None: 1, "price": 1})
        for wrong in ({"price=2,totals": 1}, {"totals": 2}, {}, 0):
            assert refused(ann.scale_flow, job, wrong)[0] == Code.INVALID_ARGUMENT, wrong
        ann.scale_flow(job, {"price": 2})
        until(lambda: stages() == {None: 1, "price": 2})
        ann.stop_flow(job)
        assert json.loads(ann.wait(job).summary)["stopped"] == "stopped"


def test_roles(flowing: Known, orders: tuple[Client, str]) -> None:
    """Breaks when a client changes a job that is not its own, or a reader does anything but read."""
    ann, job = orders
    calls: list[Callable[[Client], Any]] = [
        lambda client: client.stop_flow(job), lambda client: client.update_flow(job, "newer"),
        lambda client: client.scale_flow(job, 2), lambda client: client.switch_alternate(job, "price", "rough"),
    ]  # fmt: skip
    with flowing.client("eve") as eve, flowing.client("bob") as bob, flowing.server.client("wrong") as nobody:
        for call in calls:
            assert refused(call, eve) == (
                Code.PERMISSION_DENIED,
                "client eve has the role read; submit is required",
            )
            code, text = refused(call, bob)
            assert code == Code.PERMISSION_DENIED and text.endswith("belongs to client ann; the role admin is required")
            assert refused(call, nobody)[0] == Code.UNAUTHENTICATED
        assert refused(lambda: eve.submit_flow("halves"))[0] == Code.PERMISSION_DENIED
        assert eve.flow_metrics(job)["metrics"]["flow"] == "orders"
    with flowing.client("root") as root:
        root.stop_flow(job)
    assert json.loads(ann.wait(job).summary)["stopped"] == "stopped"


NAMES = (
    "../secret",
    "/etc/passwd",
    "_private",
    "orders.py",
    "orders:flow",
    "secret",
    "",
    "a" * 200,
    "orders\0",
    "..",
    "os",
)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files(flowing: Known, name: str) -> None:
    """Breaks when a name of a client opens anything but a file that the folder of flows has."""
    with flowing.client("ann") as ann:
        assert refused(lambda: ann.submit_flow(name))[0] == Code.INVALID_ARGUMENT
    assert not (flowing.server.home.parent / "opened").exists()


def bad(at: int, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(description())
    given["operators"][at] |= changes
    return given


DESCRIPTIONS: list[tuple[dict[str, Any], str]] = [
    (bad(1, function="parts:hidden"), "the server does not offer it; choose one of parts:double, parts:numbers"),
    (bad(1, function="os:system"), "unknown 'os'"),
    (bad(1, function="builtins:eval"), "unknown 'builtins'"),
    (bad(1, function="parts:double.__globals__"), "the server does not offer it"),
    (bad(1, function="parts.os:system"), "unknown 'parts.os'"),
    (bad(1, function="halves:flow"), "none, as halves has no __all__"),
    (bad(2, key="os:system"), "unknown 'os'"),
    (bad(0, time="subprocess:run"), "unknown 'subprocess'"),
    (bad(0, read={"source": "parts:double.x"}), "the server does not offer it"),
    (bad(0, read={"json_lines": "/etc/passwd"}), "not found in the server's data folders"),
    (bad(0, read={"json_lines": "../secret.txt"}), "not found in the server's data folders"),
    (bad(0, read={"csv": "link.txt"}), "not found in the server's data folders"),
    (bad(0, read={"parquet": "s3://bucket/key"}), "not found in the server's data folders"),
    (bad(0, read={"gofs": {"store": "/etc"}}), "not found in the server's data folders"),
    (bad(0, read={"kafka": "topic", "servers": "10.0.0.1:9092"}), "kafka: not accepted from clients"),
    (bad(0, read={"http": {"bind": "0.0.0.0:80"}}), "http: not accepted from clients"),
    (bad(0, read={"delta": {"path": "/"}}), "delta: not accepted from clients"),
    (bad(0, read={"generate": "os:getcwd"}), "unknown 'os'"),
    (bad(3, write={"json_lines": "/tmp/x"}), "json_lines: not accepted from clients"),
    (bad(3, write={"csv": "x"}), "csv: not accepted from clients"),
    (bad(3, write={"kafka": "topic"}), "kafka: not accepted from clients"),
    (bad(3, write={"print": True}), "print: not accepted from clients"),
    (bad(3, write={"sink": "os:devnull"}), "unknown 'os'"),
    (json.loads(description(on_error={"json_lines": "/tmp/x"})), "json_lines: not accepted from clients"),
    (json.loads(description(operators=[])), "operators = []"),
    (bad(3, input="nothing"), "no such stream"),
]


@pytest.mark.parametrize(("given", "message"), DESCRIPTIONS, ids=[text[:40] for _, text in DESCRIPTIONS])
def test_descriptions_of_hostile_clients(flowing: Known, given: dict[str, Any], message: str) -> None:
    """Breaks when a description names a function, a file or an address that the operator does not offer."""
    with flowing.client("ann") as ann:
        code, text = refused(lambda: ann.submit_flow(given))
    assert code == Code.INVALID_ARGUMENT and message in text and text.startswith("spec.flow.flow_definition: ")
    assert str(flowing.server.home.parent) not in text


def test_the_worker_refuses_them_too(tmp_path: Path) -> None:
    """Breaks when the loader relies on checks of the server: a worker accepts no name that is not exported."""
    (tmp_path / "parts.py").write_text(PARTS)
    folder = FlowFolder(tmp_path)
    for given, _ in DESCRIPTIONS:
        with pytest.raises((ValueError, KeyError)):
            load_description(folder, json.dumps(given), {}, tmp_path / "records")
    flow, sinks = load_description(folder, description(), {}, tmp_path / "records")
    assert flow.run(progress=False).records == 30 and sinks == []


@pytest.mark.parametrize("names", ["'double'", "5", "['double', 5]", "[double]"])
def test_exports_that_are_no_texts(tmp_path: Path, names: str) -> None:
    (tmp_path / "parts.py").write_text(f"__all__ = {names}\n")
    with pytest.raises(InputError, match=r"parts\.py:1: __all__ must be a list of texts"):
        FlowFolder(tmp_path).exports("parts")


def test_inputs_of_patterns(tmp_path: Path) -> None:
    """Breaks when the name of a file that exists is a pattern for others."""
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a*.jsonl").write_text("")
    inputs = Inputs((tmp_path / "data",), tmp_path / "up", 1, 1)
    text = json.dumps(bad(0, read={"json_lines": "a*.jsonl"}))
    with pytest.raises(ValueError, match=r"names with any of .* are not accepted"):
        check_description(FlowFolder(tmp_path), text, inputs.resolve, 1)


def test_descriptions_that_are_large(tmp_path: Path) -> None:
    """Breaks when a description takes a time that grows with the paths in it, or parses a file for each name."""
    (tmp_path / "parts.py").write_text(PARTS)
    parsed = []

    class Counting(FlowFolder):
        def exports(self, name: str) -> list[str]:
            parsed.append(name)
            return super().exports(name)

    operators: list[dict[str, Any]] = [{"name": "u0", "kind": "source", "read": {"source": "parts:numbers"}}]
    for at in range(1, 60):  # 2 ** 60 paths
        both = [f"{side}{at}" for side in "ab"]
        operators += [{"name": one, "kind": "map", "input": f"u{at - 1}", "function": "parts:double"} for one in both]
        operators.append({"name": f"u{at}", "kind": "union", "inputs": both})
    operators += [
        {"name": "sums", "kind": "aggregate", "input": f"u{at}", "key": "user", "results": {"n": "count"}},
        {"name": "out", "kind": "sink", "input": "sums", "write": {"result": True}},
    ]
    assert check_description(Counting(tmp_path), description(operators=operators), str, 2) == {}
    assert parsed == ["parts"]


def test_messages_of_hostile_clients(flowing: Known, orders: tuple[Client, str]) -> None:
    """Breaks when a message is accepted, or refused without its field, or ends the flow."""
    ann, job = orders
    deep = '{"name":' + "[" * 30_000 + "]" * 30_000 + "}"
    for text, message in (
        ("[1]", "must be a JSON object"), ("{", "must be JSON"), (deep, "must be JSON"), ("x" * 65_537, "at most"),
        ("y" * (300 << 10), "at most"),
    ):  # fmt: skip
        spec = jobs_pb2.JobSpec(flow=jobs_pb2.FlowJob(flow_definition=text))
        code, found = refused(ann.submit, spec)
        assert code == Code.INVALID_ARGUMENT and message in found, found
        asked = flows_pb2.UpdateFlowRequest(id=job, flow_definition=text)
        assert refused(ann._call, ann.flows.UpdateFlow, asked)[0] == Code.INVALID_ARGUMENT
    for made, message in (
        (lambda: ann.submit_flow("orders", workers=5), "spec.flow.workers: 5 exceeds the server's limit of 4"),
        (lambda: ann.submit_flow("orders", workers=0), "flow.workers = 0: should be"),
        (lambda: ann.submit_flow("orders", checkpoint_s=0.001), "flow.checkpoint_s = 0.001"),
        (lambda: ann.submit_flow("orders", resume_from=job), f"spec.flow.resume_from: job {job} is running; stop it"),
        (lambda: ann.submit_flow("orders", resume_from="../x"), "spec.flow.resume_from: job '../x' does not exist"),
        (lambda: ann.scale_flow(job, 5), "workers: 5 exceeds the server's limit of 4 (--max-workers)"),
        (lambda: ann.scale_flow(job, -1), "workers"),
        (lambda: ann.switch_alternate(job, "x" * 300, "y"), "operator: 1 to 200 characters"),
        (lambda: ann.update_flow(job, "newer", strategy="fast"), "fast"),
        (
            lambda: ann.update_flow(job, "newer", require=["speed"]),
            "require = 'speed': choose one of no-loss, no-mixing, lowest-latency",
        ),
        (
            lambda: ann.update_flow(job, "newer", require=["no-loss"] * 4),
            "require: at most 3 requirements are accepted",
        ),
        (lambda: ann.update_flow(job, "../newer"), "flow_name: unknown '../newer'"),
    ):
        code, text = refused(made)
        assert code == Code.INVALID_ARGUMENT and message in text, text
    assert ann.job(job).state == jobs_pb2.JOB_STATE_RUNNING


@pytest.mark.slow
def test_thousands_of_calls_at_once(flowing: Known, orders: tuple[Client, str]) -> None:
    """Breaks when calls wait for each other in the threads of the server, versions pile up, or the flow suffers."""
    ann, job = orders

    def call(number: int) -> str:
        asked = flows_pb2.UpdateFlowRequest(id=job, flow_name="orders", dry_run=bool(number % 2))
        try:
            ann.flows.UpdateFlow(asked, metadata=ann.metadata, timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    with ThreadPoolExecutor(64) as threads:
        codes = Counter(threads.map(call, range(10_000)))
    assert set(codes) <= {"ABORTED", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"} and codes["INVALID_ARGUMENT"] > 0
    before = ann.flow_metrics(job)["metrics"]["records"]
    until(lambda: ann.flow_metrics(job)["metrics"]["records"] > before)
    folder = flowing.server.home / "jobs" / job
    assert [one.name for one in folder.glob("version_*")] == ["version_0"] and len(list(folder.glob("flow_*"))) == 1
    with flowing.client("eve") as eve:
        assert eve.job(job).state == jobs_pb2.JOB_STATE_RUNNING


@pytest.mark.slow
def test_a_savepoint_soon_after_an_update(flowing: Known) -> None:
    """Breaks when the job that resumes lacks the modules that checkpoints of the other one name."""
    with flowing.client("ann") as ann:
        job = ann.submit_flow("orders", workers=2, checkpoint_s=4).id
        until(lambda: (ann.flow_metrics(job)["metrics"] or {"records": 0})["records"])
        ann.scale_flow(job, 3)
        ann.update_flow(job, "newer")
        ann.stop_flow(job)
        assert ann.wait(job).state == jobs_pb2.JOB_STATE_DONE
        second = ann.submit_flow("newer", resume_from=job, workers=2, checkpoint_s=0.2).id
        until(lambda: (ann.flow_metrics(second)["metrics"] or {"records": 0})["records"])
        assert ann.job(second).state == jobs_pb2.JOB_STATE_RUNNING
        ann.cancel(second)
        until(lambda: ann.job(second).state > jobs_pb2.JOB_STATE_MIGRATING)


@pytest.mark.slow
def test_one_job_at_a_time_runs_a_flow(flowing: Known, orders: tuple[Client, str]) -> None:
    ann, _ = orders
    found = ann.wait(ann.submit_flow("newer").id)
    assert found.state == jobs_pb2.JOB_STATE_FAILED
    assert found.error == "flow orders: another job uses it; stop that job first"


@pytest.mark.slow
def test_commands(flowing: Known, tmp_path: Path, orders: tuple[Client, str]) -> None:
    """Breaks when a command does not what its help says, or its JSON lacks what the table shows."""
    ann, job = orders
    where = {"GOFFISH_SERVER": flowing.server.address, "GOFFISH_TOKEN": flowing.tokens["ann"]}

    def jobs(*command: str, code: int = 0) -> str:
        ended = call("jobs", *command, variables=where)
        assert ended.code == code and "Traceback" not in ended.err, (ended.out, ended.err)
        return ended.err if code else ended.out

    listed = json.loads(jobs("flows", "--json"))["flows"]
    assert {one["name"]: one["exports"] for one in listed}["parts"] == ["parts:double", "parts:numbers"]
    assert "parts:double, parts:numbers" in jobs("flows")
    (tmp_path / "described.yaml").write_text(description())
    done = json.loads(jobs("submit", "flow", f"@{tmp_path / 'described.yaml'}", "--every", "200ms", "--wait", "--json"))
    assert (done["state"], done["algorithm"], done["summary"]["records"]) == ("done", "flow", 30)
    assert (
        jobs("submit", "flow", "orders", "--rates", "wave", code=2) == "error: --rates wave does not apply to flows\n"
    )
    assert "applies to flows only" in jobs("submit", "bfs", "store", "--every", "1s", code=2)
    assert jobs("show", job).splitlines()[0] == f"job {job}" and "orders" in jobs("show", job)
    assert f"orders (version {ann.flow_metrics(job)['version']}): " in jobs("metrics", job)
    assert json.loads(jobs("metrics", job, "--json"))["metrics"]["flow"] == "orders"
    assert "give a number" in jobs("submit", "bfs", "store", "--workers", "a=2", code=2)
    assert "no separate workers" in jobs("scale", job, "price=2", code=2)
    assert jobs("scale", job, "2") == f"{job}: 2 workers requested\n"
    assert jobs("switch", job, "price", "rough") == f"{job}: operator price uses rough\n"
    assert jobs("update", job, "newer", "--dry-run").startswith(f"{job}: changed price\n")
    asked = ("update", job, "newer", "--dry-run", "--require", "no-mixing", "--json")
    assert json.loads(jobs(*asked))["recommended"] in ("mvc", "pvc", "nch", "ncl")
    assert json.loads(jobs("update", job, "newer", "--strategy", "nch", "--json"))["strategy"] == "nch"
    until(lambda: ann.flow_metrics(job)["updates"])
    assert jobs("stop", job).startswith(f"{job}: stopped, savepoint ")
    assert jobs("stop", job, code=1) == f"error: job {job} is done; its flow is not running\n"


@pytest.mark.slow
def test_the_server_is_killed(tmp_path: Path, data: Path) -> None:
    """Breaks when a flow does not go on without its server, is begun again, or is not controlled by the next server."""
    (tmp_path / "flows").mkdir()
    write_orders(tmp_path / "flows", "orders", tmp_path / "out", count=30_000, rate=1500)
    write_orders(tmp_path / "flows", "newer", tmp_path / "out", count=30_000, rate=1500, value='row | {"newer": True}')
    with serving(tmp_path / "home", data, "--flows", str(tmp_path / "flows")) as server:
        with server.client() as client:
            job = client.submit_flow("orders", workers=2, checkpoint_s=0.2).id
            until(lambda: (client.flow_metrics(job)["metrics"] or {"records": 0})["records"] > 1000)
        server.kill()
        report = server.home / "jobs" / job / "progress.json"
        seen = json.loads(report.read_text())["metrics"]["records"]
        until(lambda: json.loads(report.read_text())["metrics"]["records"] > seen)
        server.start()
        with server.client() as client:
            until(lambda: client.job(job).state == jobs_pb2.JOB_STATE_RUNNING)
            client.update_flow(job, "newer")
            until(lambda: client.flow_metrics(job)["version"] == 1)
            server.kill()
        for worker in server.workers():
            worker.kill()
        server.start()
        with server.client() as client:
            found = client.wait(job)
            assert found.state == jobs_pb2.JOB_STATE_DONE, found.error
            summary = json.loads(found.summary)
            assert (summary["version"], found.attempts) == (1, 2)
    assert totals(tmp_path / "out") == {f"u{key}": 1500 for key in range(20)}


@pytest.mark.slow
def test_storage_is_limited(tmp_path: Path, data: Path) -> None:
    """Breaks when a client fills the disk with the result of a flow that never ends."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "parts.py").write_text(PARTS.replace("n}, count=30", 'n, "text": f"{n}" * 40}'))
    given = json.loads(description())
    given["operators"] = [
        given["operators"][0],
        {"name": "out", "kind": "sink", "input": "rows", "write": {"result": True}},
    ]
    options = ("--flows", str(tmp_path / "flows"), "--max-storage", "20")
    with serving(tmp_path / "home", data, *options) as server, server.client() as client:
        begun = time.monotonic()
        found = client.wait(client.submit_flow(given).id)
    assert found.error.startswith("storage limit exceeded: ") and found.error.endswith("20 MB allowed (--max-storage)")
    assert time.monotonic() > begun

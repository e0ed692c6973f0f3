"""No text of a client opens a file of the server: every option, alone and in pairs, every field, every message.

The types are the first line: a text of a job that is neither a file nor a known name cannot be defined. The walks are
the second: they hand in paths of files that the kernel watches, wherever a text is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import struct
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pyarrow as pa
import pytest
from google.protobuf.message import Message
from pyarrow import csv
from pydantic import BaseModel

import goffish as gf
from goffish.algorithms.algorithm import Algorithm, Label, Name, TableFile
from goffish.algorithms.catalogue import ALGORITHMS, make
from goffish.cloud.catalogue import read_catalogue
from goffish.definitions import Marked
from goffish.errors import GoffishError, InputError
from goffish.gopher.result import _READERS
from goffish.graph.io.sniff import _BY_SUFFIX
from goffish.scheduling.policies.policies import make_policy, policy_names, policy_schema
from goffish.services.api import plans
from goffish.services.api.admission import check_spec
from goffish.services.api.catalog_service import CatalogService
from goffish.services.api.clients import LOCAL_CLIENT
from goffish.services.api.feeds import Feeds
from goffish.services.api.flow_service import FlowService
from goffish.services.api.guard import Refused, caller
from goffish.services.api.inputs import Inputs
from goffish.services.api.job_service import JobService
from goffish.services.api.planning_service import PlanningService
from goffish.services.api.spot_advice import Markets
from goffish.services.runners import cloud_needs, dataflow_worker, worker
from goffish.services.runners.dataflows import dataflow_order
from goffish.services.runners.flow_folder import FlowFolder, check_description, load_description
from goffish.services.runners.folder import JobFolder
from goffish.services.runners.limits import UNLIMITED
from goffish.services.runners.order import Files, order_of
from goffish.services.runners.supervisor import PatientJobs, Supervisor
from goffish.services.store.database import open_database
from goffish.services.store.records import State
from goffish.services.store.spec import DataflowJob, FlowJob, GraphJob, JobSpec
from goffish.streaming.flow_file import Read, Write
from goffish.v1 import catalog_pb2, flows_pb2, jobs_pb2, planning_pb2
from tests.services.api.serving import RealServer, settle
from tests.services.runners.test_flows import PARTS, description

SECRET = "s3cr3t"
RUNNERS = ("local", "mpi", "spark", "cloud")
#: Names of all formats that anything here reads, and some that it might.
SUFFIXES = sorted({
    *(f".{one.lstrip('.')}" for one in (*_BY_SUFFIX, *_READERS)),
    *("", ".gz", ".txt.gz", ".json", ".yaml", ".npy", ".npz", ".py", ".pkl", ".tmpl", ".sqlite"),
})  # fmt: skip
_IN_OPEN, _IN_NONBLOCK = 0x20, 0o4000
_EVENT = struct.Struct("iIII")


class Canaries:
    """Files and a folder that no job may open, and which of them were opened (inotify of the kernel)."""

    def __init__(self, room: Path) -> None:
        self.room, self.missing = room / "secrets", room / "n0thing"
        self.store = self.room / "secret.gofs"
        self.store.mkdir(parents=True)
        for path in (*(self.path(suffix) for suffix in SUFFIXES), self.store / "manifest.json"):
            path.write_text(f"vertex,community,{SECRET}\n1,1,{SECRET}\n")
        self.names = [*(path.name for path in self.room.iterdir())]
        libc = ctypes.CDLL(None, use_errno=True)
        self._watch = libc.inotify_init1(_IN_NONBLOCK)
        assert self._watch >= 0
        for folder in (self.room, self.store):
            assert libc.inotify_add_watch(self._watch, os.fsencode(folder), _IN_OPEN) >= 0

    def path(self, suffix: str) -> Path:
        """The one of a format."""
        return self.room / f"secret{suffix}"

    def opened(self) -> set[str]:
        """Names that were opened since the last look; a folder that was listed is empty."""
        found = set()
        try:
            while events := os.read(self._watch, 1 << 16):
                while events:
                    *_, length = _EVENT.unpack_from(events)
                    name, events = events[_EVENT.size : _EVENT.size + length], events[_EVENT.size + length :]
                    found.add(name.rstrip(b"\0").decode())
        except BlockingIOError:
            return found
        return found

    def check(self, what: object) -> None:
        """Fail if anything was opened since the last look."""
        assert not (found := self.opened()), f"{what} opened {found}"

    def close(self) -> None:
        os.close(self._watch)


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[Canaries]:
    found = Canaries(tmp_path)
    for name in found.names:
        path = found.room / name
        assert list(path.iterdir()) if path.is_dir() else path.read_text()
        assert found.opened(), "the watch works"
    assert pa.memory_map(str(found.path(".parquet"))) and found.opened() == {"secret.parquet"}
    yield found
    found.close()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A data folder with a graph as a file and as a store, and a table."""
    folder = tmp_path / "small"
    folder.mkdir()
    edges = ([1, 2, 3, 4, 5, 1, 7], [2, 3, 4, 5, 1, 3, 8])
    (folder / "edges.txt").write_text("".join(f"{u} {v}\n" for u, v in zip(*edges, strict=True)))
    gf.partition(gf.from_edges(*edges), parts=2, method="hash").save(folder / "store")
    (folder / "table.csv").write_text("vertex,community\n" + "".join(f"{v},{v % 2}\n" for v in (1, 2, 3, 4, 5, 7, 8)))
    return folder


@pytest.fixture
def inputs(tmp_path: Path, small: Path) -> Inputs:
    return Inputs([small], tmp_path / "uploads", 1000, 1000)


def outcome(graph: GraphJob, inputs: Inputs, folder: Path) -> str:
    """What a client is told of a job: the refusal, or how its worker ends."""
    try:
        check_spec(JobSpec(graph=graph), inputs, RUNNERS)
        files = Files.of(graph, inputs.resolve)
        order = order_of(graph, files, UNLIMITED)
        if graph.runner == "cloud":
            cloud_needs.size_of(graph, files.input, read_catalogue(graph.cloud_name))
        result = worker._run(JobFolder(folder), order)
        return f"{result.table.to_pydict()} {result.summary}"
    except GoffishError as error:
        return str(error)


# --- types ---


def test_texts_are_marked() -> None:
    """Breaks when a text can be among the options of an algorithm, or in a job, without saying what it is for."""

    class Several(Algorithm):
        name = "several"
        title = "An algorithm with options that name files."
        one: TableFile = None
        many: tuple[TableFile, ...] = ()
        either: dict[Name, TableFile | int] | None = None
        none: Name = ""
        other: Label | Literal["a"] | None = None

    assert Several.files() == ["one", "many", "either"]
    assert ALGORITHMS["louvain"].files() == ["initial", "fixed", "truth"]
    assert [one.files() for one in (JobSpec, GraphJob, DataflowJob)] == [[], ["input_uri"], []]
    for base, annotation in product(
        (Algorithm, Marked, GraphJob, DataflowJob),
        (str, str | None, tuple[str, ...], list[Annotated[str, 1]], dict[Name, str], Any, object, bytes, Path),
    ):
        with pytest.raises(TypeError, match=r"Bad\.place accepts any text: make it a Literal, or mark"):
            type("Bad", (base,), {"__annotations__": {"place": annotation}, "place": None, "__module__": __name__})
    for model in models(JobSpec):
        if model.__module__ == JobSpec.__module__:
            assert issubclass(model, Marked)


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model, and those of its fields."""
    parts, found = [field.annotation for field in model.model_fields.values()], {model}
    while parts:
        part = parts.pop()
        parts += typing.get_args(part)
        if isinstance(part, type) and issubclass(part, BaseModel) and part not in found:
            found |= models(part)
    return found


# --- options ---


def values_of(name: str) -> dict[str, list[str]]:
    """Of each option of an algorithm values that it accepts, of every kind that could switch to another path."""
    model, found = ALGORITHMS[name], {}
    needed = needed_of(name)
    literals = [str(one) for field in model.model_fields.values() for one in literals_of(field.annotation)]
    for option in model.model_fields:
        tried = ["true", "false", "1", "2", "64", "0.25", "table.csv", "1%", "none", "1,2", *literals]
        found[option] = [one for one in dict.fromkeys(tried) if accepts(name, needed | {option: one})]
    for option, known in found.items():
        # Lists and mappings are no texts: clients cannot give them.
        nested = {typing.get_origin(one) for one in typing.get_args(model.model_fields[option].annotation)}
        assert known or nested - {None}, f"{name}.{option}: none of the tried values is accepted; try more"
    return found


def literals_of(annotation: Any) -> Iterator[Any]:
    if typing.get_origin(annotation) is Literal:
        yield from typing.get_args(annotation)
    else:
        for part in typing.get_args(annotation):
            yield from literals_of(part)


def needed_of(name: str) -> dict[str, str]:
    return {one: "1" for one, field in ALGORITHMS[name].model_fields.items() if field.is_required()}


def accepts(name: str, options: dict[str, str]) -> bool:
    """Whether the options are those of an algorithm, files apart."""
    try:
        make(name, {one: text for one, text in options.items() if one not in ALGORITHMS[name].files()})
    except InputError:
        return False
    return True


def spellings(path: Path) -> list[str]:
    return [str(path), f"file://{path}", os.path.relpath(path)]


@pytest.mark.parametrize("pairs", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.slow
def test_no_option_of_an_algorithm_opens_a_file(
    name: str, pairs: bool, canaries: Canaries, inputs: Inputs, tmp_path: Path
) -> None:
    """Breaks when an option of any algorithm, now or later, is opened as a file without the server's input policy.

    Each option alone or with each other one, on a file and on a store, so that every path of an algorithm is taken.
    """
    model, needed = ALGORITHMS[name], needed_of(name)
    switches = [{option: one} for option, known in values_of(name).items() for one in known] if pairs else []
    for option in model.model_fields:
        alone = [suffix for suffix in SUFFIXES if accepts(name, needed | {option: str(canaries.path(suffix))})]
        # Files are refused by the input policy, whatever else is given; other texts that no option makes right, too.
        together = SUFFIXES if alone and option not in model.files() else [".csv", ".parquet"]
        for suffix in SUFFIXES:
            canaries.check(f"{name}: reading {option}")
            for at, text in enumerate(spellings(canaries.path(suffix))):
                for switch in ({}, *(switches if at == 0 and suffix in together else ())):
                    options = needed | switch | {option: text}
                    refused = option not in model.files() and not accepts(name, options)
                    if refused and (switch or suffix != SUFFIXES[0]):
                        continue
                    for uri in ("edges.txt", "store"):
                        graph = GraphJob(algorithm=name, input_uri=uri, options=options)
                        other = options | {option: text.replace(canaries.room.name, canaries.missing.name)}
                        said = outcome(graph, inputs, tmp_path)
                        canaries.check(f"{name} on {uri}: {options}")
                        assert SECRET not in said
                        again = outcome(graph.model_copy(update={"options": other}), inputs, tmp_path)
                        again = again.replace(canaries.missing.name, canaries.room.name)
                        assert said == again, f"{name}: {option} tells whether a file exists"
                        if refused or option in model.files():
                            break  # before the input is looked at


# --- fields ---


def texts_for(canaries: Canaries) -> Iterator[str]:
    """Every canary in every spelling, also cut to what short fields take."""
    for name in canaries.names:
        yield from spellings(canaries.room / name)
        yield os.path.relpath(canaries.room / name)[-110:]
        yield f"{canaries.room / name}:Own"


def accepted(model: type[Any], field: str, text: str, given: dict[str, Any]) -> Any:
    """A job with a text in a field, or as name or value of what the field holds; those that can be."""
    for value in (text, {text: "x"}, {"x": text}, [text]):
        try:
            yield model.model_validate(given | {field: value})
        except ValueError:
            continue


@pytest.mark.parametrize("runner", RUNNERS)
def test_no_field_of_a_graph_job_opens_a_file(
    runner: str, canaries: Canaries, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a text of a graph job, whatever the field, is opened as a file."""
    # The engines are those of their own tests; what a worker does with its order is the same.
    monkeypatch.setattr(worker, "_run", in_memory(worker._run))
    tried = set()
    for field, text in product(GraphJob.model_fields, texts_for(canaries)):
        given = {"algorithm": "bfs", "input_uri": "store", "options": {"source": "1"}, "runner": runner}
        for graph in accepted(GraphJob, field, text, given):
            tried.add(field)
            said = outcome(graph, inputs, tmp_path)
            canaries.check(f"{field}={text}")
            assert SECRET not in said
    assert tried == {"algorithm", "input_uri", "options", "cloud_name"}, "fields that accept any text"


def in_memory(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda folder, order: run(folder, order | {"engine": "local", "threads": 1})


@pytest.mark.slow
def test_no_field_of_a_dataflow_job_opens_a_file(canaries: Canaries, inputs: Inputs, tmp_path: Path) -> None:
    """Breaks when a text of a dataflow job, whatever the field, is opened as a file, by the server or by the worker."""
    tried, ran = set(), Counter[str]()
    given = {"dataflow": "sc13-diamond", "hours": 1, "policy": "static-reactive-local"}
    for field, text in [("", ""), *product(DataflowJob.model_fields, texts_for(canaries))]:
        for job in accepted(DataflowJob, field, text, given) if field else [DataflowJob.model_validate(given)]:
            tried.add(field)
            try:
                check_spec(JobSpec(dataflow=job), inputs, ())
                order = dataflow_order(job, read_catalogue(job.cloud_name), 0, UNLIMITED)
                folder = JobFolder(tmp_path / f"job{sum(ran.values())}")
                # Through JSON, as the worker gets it.
                dataflow_worker._attempt(folder, folder.prepare(order, 1), json.loads(folder.order.read_text()))
                ran[field] += 1
            except InputError as error:
                assert SECRET not in str(error)
            canaries.check(f"{field}={text}")
    assert tried == {"", "dataflow", "cloud_name", "policy", "options", "rates"}, "fields that accept any text"
    assert ran == {"": 1}, "fields with which a worker ran"


@pytest.mark.slow
@pytest.mark.parametrize("policy", policy_names())
def test_no_option_of_a_policy_opens_a_file(policy: str, canaries: Canaries, inputs: Inputs) -> None:
    """Breaks when an option of any policy, alone or with another one, is opened as a file, or taken for code."""
    options = policy_schema(policy)["properties"]
    values = ["1", "0.5", "2", "true", "false", *policy_names()]
    switches = [{option: one} for option in options for one in values if is_policy(policy, {option: one})]
    assert switches or not options
    few = [str(canaries.path(".csv")), f"{canaries.path('.py')}:Own"]
    for option in options:
        for text, switch in [*((text, {}) for text in texts_for(canaries)), *product(few, switches)]:
            assert not is_policy(policy, switch | {option: text})
            canaries.check(f"{policy}: {switch}, {option}={text}")
        for text in few:
            job = DataflowJob(dataflow="sc13-diamond", policy=policy, options={option: text})
            setting = planning_pb2.Setting(dataflow_name="sc13-diamond", policy=policy, options={option: text})
            for ask in (
                lambda job=job: check_spec(JobSpec(dataflow=job), inputs, ()),
                lambda s=setting: plans.read(s),
            ):
                with pytest.raises(InputError) as caught:
                    ask()
                canaries.check(f"{policy}: {option}={text}")
                assert SECRET not in str(caught.value)


def is_policy(policy: str, options: dict[str, str]) -> bool:
    try:
        make_policy(policy, options)
    except InputError:
        return False
    return True


# --- messages ---


def texts_in(descriptor: Any) -> Iterator[Callable[[Any, str], None]]:
    """For each text of a message, however deep: a function that sets it."""
    for field in descriptor.fields:
        kind, message = field.type, field.message_type
        if message is not None and message.GetOptions().map_entry:
            key, value = message.fields_by_name["key"], message.fields_by_name["value"]
            if key.type == key.TYPE_STRING and value.message_type is None:
                other = "x" if value.type == value.TYPE_STRING else 1
                yield lambda made, text, f=field, o=other: getattr(made, f.name).update({text: o})
            if value.type == value.TYPE_STRING:
                yield lambda made, text, f=field: getattr(made, f.name).update({"x": text})
            if value.message_type is not None:
                yield lambda made, text, f=field: getattr(made, f.name)[text].SetInParent()
                for inner in texts_in(value.message_type):
                    yield lambda made, text, f=field, i=inner: i(getattr(made, f.name)["x"], text)
        elif message is not None:
            for inner in texts_in(message):
                yield lambda made, text, f=field, i=inner: i(part_of(made, f), text)
        elif kind in (field.TYPE_STRING, field.TYPE_BYTES):
            yield lambda made, text, f=field: set_text(made, f, text)


def part_of(made: Message, field: Any) -> Any:
    part = getattr(made, field.name)
    if not field.is_repeated:
        return part
    return part[0] if len(part) else part.add()


def set_text(made: Message, field: Any, text: str) -> None:
    value = text.encode() if field.type == field.TYPE_BYTES else text
    if field.is_repeated:
        getattr(made, field.name).append(value)
    else:
        setattr(made, field.name, value)


class Here:
    """Plans in this process, where its opening of files is seen as well."""

    async def share(self, key: Any, call: Callable[..., Any], *given: Any) -> Any:
        return call(*given)

    async def call(self, call: Callable[..., Any], *given: Any) -> Any:
        return call(*given)


FLOW = {"elements": [{"id": "a", "cost": 1.0}, {"id": "b", "cost": 1.0}], "inputs": {"a": 1.0},
        "edges": [{"from": "a", "to": "b"}]}  # fmt: skip
CLOUD = {"classes": [{"name": "m", "cores": 2, "price_per_hour": 1.0}]}
SETTINGS = [{"dataflow_name": "sc13-diamond"}, {"dataflow_definition": FLOW, "cloud_definition": CLOUD}]
FLOWS = [{"flow_name": "parts"}, {"flow_definition": description()}]
#: Requests that are answered, to be changed in one text.
ASKED: dict[str, list[dict[str, Any]]] = {
    "Submit": [
        {"spec": {"graph": {"algorithm": "bfs", "input_uri": "store", "options": {"source": "1"}}}},
        {"spec": {"graph": {"algorithm": "components", "input_uri": "store", "runner": 4}}},
        *({"spec": {"dataflow": one}} for one in ({"dataflow_name": "sc13-diamond"}, {"dataflow_definition": FLOW})),
        *({"spec": {"flow": one}} for one in FLOWS),
    ],
    "Upload": [], "Plan": [{"setting": one} for one in SETTINGS], "Explain": [{"setting": one} for one in SETTINGS],
    "Adapt": [{"setting": one, "observations": {"intervals": [{"rates": {}}]}} for one in SETTINGS],
    "PlanAhead": [
        {"setting": one | {"policy": "plasticc"}, "observations": {"intervals": [{"rates": {}}]}, "forecast": [{}]}
        for one in SETTINGS
    ],
    "AdviseSpot": [{"market": "x", "core_hours": 1.0, "hours": 1.0}],
}  # fmt: skip


@pytest.mark.parametrize(
    "module", [jobs_pb2, planning_pb2, catalog_pb2, flows_pb2], ids=lambda one: str(one.__name__)[11:]
)
@pytest.mark.slow
def test_no_text_of_a_message_opens_a_file(module: Any, canaries: Canaries, inputs: Inputs, tmp_path: Path) -> None:
    """Breaks when any text of any request, however deep, is opened as a file by the server."""
    engine = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    jobs = PatientJobs(engine, "here")
    supervisor = Supervisor(jobs, tmp_path / "jobs", {})
    markets = Markets(canaries.room.parent)
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "parts.py").write_text('__all__ = ["double", "numbers"]\n')
    flows = FlowFolder(tmp_path / "flows")
    running = jobs.submit(JobSpec(flow=FlowJob(flow="parts")), LOCAL_CLIENT.name)[0]
    [running] = jobs.claim()
    for state in (State.PROVISIONING, State.RUNNING):
        running = jobs.move(running, state)
    supervisor.folder(running.id).prepare({}, 1)
    services: dict[str, Any] = {
        "JobService": JobService(jobs, supervisor, inputs, Feeds(), RUNNERS, 10**6, 10**6, UNLIMITED, flows),
        "FlowService": FlowService(jobs, supervisor, inputs, flows, UNLIMITED),
        "PlanningService": PlanningService(markets, Here(), 10**6),  # type: ignore[arg-type]
        "CatalogService": CatalogService(markets),
    }
    tried = 0

    async def ask(call: Any, request: Message, streams: bool) -> str:
        caller.set(LOCAL_CLIENT)
        try:
            answer = call(request, SimpleNamespace())
            if streams:
                return "".join([str(one) async for one in answer])
            return str(await answer)
        except (GoffishError, Refused) as error:
            return str(error)

    async def walk() -> None:
        nonlocal tried
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                kind = getattr(module, method.input_type.name)
                call = getattr(services[service.name], method.name)
                usual: list[dict[str, Any]] = [{"id": running.id}] if service.name == "FlowService" else [{}]
                if method.name in ("UpdateFlow", "ListFlows"):
                    usual = [{"id": running.id} | one for one in FLOWS] if method.name == "UpdateFlow" else [{}]
                for body in ASKED.get(method.name, usual):
                    plain = await ask(call, kind(**body), method.server_streaming)
                    assert method.name not in ASKED or "AdviseSpot" in method.name or "job" in plain or "plan" in plain
                    for put in texts_in(method.input_type):
                        for text in (str(canaries.path(s)) for s in (".csv", ".yaml", ".json", ".parquet", ".sqlite")):
                            request = kind(**body)
                            put(request, text)
                            said = await ask(call, request, method.server_streaming)
                            canaries.check(f"{method.name}: {request}")
                            assert SECRET not in said
                            tried += 1

    asyncio.run(walk())
    assert (
        tried
        >= {"jobs_pb2": 300, "planning_pb2": 500, "catalog_pb2": 5, "flows_pb2": 75}[module.__name__.rpartition(".")[2]]
    )
    engine.dispose()


def test_messages_have_the_fields_of_jobs() -> None:
    """Breaks when a job of the protocol has a text that the walks over jobs do not know."""
    models = ((jobs_pb2.GraphJob, GraphJob), (jobs_pb2.DataflowJob, DataflowJob), (jobs_pb2.FlowJob, FlowJob))
    for message, model in models:
        named = {"dataflow" if one.name.startswith("dataflow_") else one.name for one in message.DESCRIPTOR.fields}
        named = {one.replace("flow_name", "flow").replace("flow_definition", "definition") for one in named}
        assert named == set(model.model_fields)


def test_no_text_of_a_description_opens_a_file(canaries: Canaries, inputs: Inputs, tmp_path: Path) -> None:
    """Breaks when any text of the description of a flow is opened by the server, or by the worker that loads it."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "parts.py").write_text(PARTS)
    folder, tried = FlowFolder(tmp_path / "flows"), 0

    def changed(value: Any, text: str) -> Iterator[Any]:
        """Every version of a value with the text in place of one text or key."""
        if isinstance(value, str):
            yield text
        elif isinstance(value, list):
            yield from (
                [*value[:at], one, *value[at + 1 :]] for at, old in enumerate(value) for one in changed(old, text)
            )
        elif isinstance(value, dict):
            for key, old in value.items():
                yield from (value | {key: one} for one in changed(old, text))
                yield {text if name == key else name: one for name, one in value.items()}

    kinds = [*Read.model_fields, *Write.model_fields]
    for end in (".py", ".csv", ".json", ".yaml", ".parquet", ".pkl"):
        path = str(canaries.path(end))
        given = json.loads(description())
        several = [given | {"on_error": {"sink": path}}]
        several += [
            given | {"operators": [{**one, "read": {kind: path}} for one in given["operators"]]} for kind in kinds
        ]
        several += [
            given | {"operators": [{**one, "write": {kind: path}} for one in given["operators"]]} for kind in kinds
        ]
        for one in (*changed(given, path), *several):
            text = json.dumps(one)
            for call in (
                lambda text=text: check_description(folder, text, inputs.resolve, 1),
                lambda text=text: load_description(folder, text, {}, tmp_path / "records"),
            ):
                with contextlib.suppress(GoffishError, KeyError):
                    call()
            canaries.check(text)
            tried += 1
    assert tried > 300


@pytest.mark.slow
def test_uploads_as_options(server: RealServer, data: Path, tmp_path: Path, canaries: Canaries) -> None:
    """Breaks when options that name files do not work by upload and by data folder, or a result differs from Python."""
    graph = gf.read(data / "edges.txt")
    truth = pa.table({"vertex": range(400), "community": [v % 4 for v in range(400)]})
    fixed = pa.table({"vertex": [0, 1, 2], "community": [7, 7, 9]})
    for name, table in (("truth", truth), ("fixed", fixed)):
        csv.write_csv(table, tmp_path / f"{name}.csv")
    gf.louvain(graph).write(data / "first.parquet")
    files = {"truth": truth, "fixed": fixed, "initial": data / "first.parquet"}
    expected = gf.run("louvain", graph, engine="local", threads=1, **files)
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
            for path in (canaries.path(".csv"), tmp_path / "nothing.csv"):
                with pytest.raises(GoffishError, match=rf"options\.{name}: '{path.name}' not found"):
                    client.submit_graph("louvain", "edges.txt", {name: str(path)})
        canaries.check("uploads")


def gf_summary(job: Any) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(job.summary)
    return found

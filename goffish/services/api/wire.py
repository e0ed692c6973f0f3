"""Conversion between protocol messages and library objects, and lookup of named catalogues.

Names refer to definitions on the server only: clients can neither read files of the server nor run code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel

from goffish.cloud.catalogue import Catalogue, known_catalogues, read_catalogue
from goffish.cloud.prices import bundled_traces
from goffish.cloud.spot_market import machine_trace
from goffish.definitions import Model, read_definition
from goffish.errors import InputError
from goffish.scheduling.dataflow.model import Dataflow, known_dataflows, read_dataflow
from goffish.scheduling.messages import dataflow_message
from goffish.services.store.records import Event, Job, State
from goffish.services.store.spec import DataflowJob, FlowJob, GraphJob, JobSpec
from goffish.v1 import dataflows_pb2, jobs_pb2

#: Additional catalogues by file name.
_own_clouds: dict[str, Catalogue] = {}


def add_clouds(folder: Path) -> None:
    """Load additional catalogues from a folder.

    Parameters
    ----------
    folder : Path
        Folder of ``*.yaml`` files; paths of price files may be relative to it.

    Raises
    ------
    InputError
        A catalogue or price file is invalid, or the name exists.
    """
    for path in sorted(folder.glob("*.yaml")):
        if path.stem in known_catalogues():
            raise InputError(f"{path}: a bundled catalogue has the name {path.stem}; rename the file")
        catalogue = read_catalogue(path)
        for one in catalogue.classes:
            if one.market == "spot":
                machine_trace(one)
        _own_clouds[path.stem] = catalogue


def cloud_names() -> list[str]:
    """Return the names of all catalogues."""
    return [*known_catalogues(), *_own_clouds]


def cloud_by_name(name: str) -> Catalogue:
    """Return a catalogue by name; never reads other files.

    Raises
    ------
    InputError
    """
    if name in _own_clouds:
        return _own_clouds[name]
    if name not in known_catalogues():
        raise InputError(f"unknown {name[:80]!r}; choose one of {', '.join(cloud_names())}")
    return read_catalogue(name)


_RUNNERS = {number: name.removeprefix("RUNNER_").lower() for name, number in jobs_pb2.Runner.items() if number}
_RUNNER_NUMBERS = {name: number for number, name in _RUNNERS.items()}
STATES = {state: jobs_pb2.JobState.Value(f"JOB_STATE_{state.name}") for state in State}
_STATES_BY_NUMBER = {number: state for state, number in STATES.items()}
#: Fields that the first version of the protocol names otherwise than files and tables do.
_PROTOCOL_NAMES = {
    "processing_elements": "elements", "processing_element": "element",
    "machine_types": "classes", "machine_type": "class",
}  # fmt: skip
DEFAULT_CLOUD = "ec2-2013-m1"
#: Maximum seconds of a protobuf Duration (10,000 years).
_MOST_SECONDS = 315_576_000_000


def plain(message: Message) -> dict[str, Any]:
    """Return the set fields of a message in the form of a definition file.

    `google.protobuf.json_format.MessageToDict` converts int64 and NaN to texts, which errors would quote.
    """
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            held = field.message_type.fields_by_name["value"].message_type is not None
            found[field.name] = {key: plain(one) if held else one for key, one in value.items()}
        elif field.message_type is not None:
            repeated = not isinstance(value, Message)
            found[field.name] = [plain(one) for one in value] if repeated else plain(value)
        else:
            found[field.name] = value if isinstance(value, int | float | str | bool | bytes) else list(value)
    return found


def dataflow_of(message: Any, field: str) -> Dataflow:
    """Return the dataflow that a message names or defines.

    Parameters
    ----------
    message : Message
        With a oneof ``dataflow``.
    field : str
        Name of the field in error messages.

    Raises
    ------
    InputError
    """
    kind = message.WhichOneof("dataflow")
    if kind is None:
        raise InputError(f"{field}.dataflow: give a name or a definition")
    if kind == "dataflow_name":
        return known_dataflow(message.dataflow_name, f"{field}.dataflow_name")
    return _read(Dataflow, _dataflow_body(message.dataflow_definition), f"{field}.dataflow_definition")


def _read(model: type[Model], body: dict[str, Any], field: str) -> Model:
    """Check a definition; errors name its fields as the protocol does."""
    try:
        return read_definition(model, body, field, "")
    except InputError as error:
        text = re.sub(r"\b(?:machine_types|processing_elements)\b", lambda m: _PROTOCOL_NAMES[m[0]], str(error))
        raise InputError(text) from None


def _dataflow_body(message: Any) -> dict[str, Any]:
    body = plain(message)
    if "edges" in body:
        body["edges"] = [(edge.get("from", ""), edge.get("to", "")) for edge in body["edges"]]
    return body


def known_dataflow(name: str, field: str) -> Dataflow:
    """Return a bundled dataflow by name.

    Raises
    ------
    InputError
    """
    _check_known(name, known_dataflows(), field)
    return read_dataflow(name)


def cloud_of(message: Any, field: str) -> Catalogue:
    """Return the catalogue that a message with a oneof ``cloud`` names or defines; default: `DEFAULT_CLOUD`.

    Raises
    ------
    InputError
    """
    kind = message.WhichOneof("cloud")
    if kind is None:
        return read_catalogue(DEFAULT_CLOUD)
    if kind == "cloud_name":
        return known_cloud(message.cloud_name, f"{field}.cloud_name")
    body = plain(message.cloud_definition)
    for at, one in enumerate(body.get("classes", [])):
        one.setdefault("price_per_hour", 0.0)
        if "prices" in one:
            _check_known(one["prices"], bundled_traces(), f"{field}.cloud_definition.classes[{at}].prices")
    return _read(Catalogue, body, f"{field}.cloud_definition")


def known_cloud(name: str, field: str) -> Catalogue:
    """Return a bundled or additional catalogue by name.

    Raises
    ------
    InputError
    """
    try:
        return cloud_by_name(name)
    except InputError as error:
        raise InputError(f"{field}: {error}") from None


def _check_known(name: str, known: Any, field: str) -> None:
    if name not in known:
        raise InputError(f"{field}: unknown {name[:80]!r}; choose one of {', '.join(known)}")


#: Fields of flow jobs that the protocol names otherwise, as those of a oneof.
_FLOW_FIELDS = {"flow_name": "flow", "flow_definition": "definition"}


def spec_of(message: jobs_pb2.JobSpec) -> JobSpec:
    """Return the job specification in a message.

    Raises
    ------
    InputError
    """
    body = plain(message)
    body.pop("deadline", None)
    if message.HasField("deadline"):
        if abs(message.deadline.seconds) > _MOST_SECONDS:
            raise InputError(f"spec.deadline: {message.deadline.seconds:,} s; must be at most {_MOST_SECONDS:,} s")
        body["deadline_s"] = message.deadline.seconds + message.deadline.nanos / 1e9
    if "graph" in body:
        runner = message.graph.runner
        body["graph"]["runner"] = _RUNNERS.get(runner, "local" if runner == 0 else str(runner))
    if message.HasField("dataflow"):
        given = body["dataflow"]
        given.pop("dataflow_name", None)
        given.pop("dataflow_definition", None)
        kind = message.dataflow.WhichOneof("dataflow")
        if kind == "dataflow_name":
            given["dataflow"] = message.dataflow.dataflow_name
        elif kind is not None:
            given["dataflow"] = dataflow_of(message.dataflow, "spec.dataflow")
    if message.HasField("flow"):
        body["flow"] = {_FLOW_FIELDS.get(name, name): value for name, value in body["flow"].items()}
    try:
        return read_definition(JobSpec, body, "spec", "")
    except InputError as error:
        names = {f"flow.{field}": f"flow.{name}" for name, field in _FLOW_FIELDS.items()}
        raise InputError(
            re.sub(r"^spec: (flow\.\w+)", lambda m: f"spec: {names.get(m[1], m[1])}", str(error))
        ) from None


def spec_message(body: Mapping[str, Any]) -> jobs_pb2.JobSpec:
    """Convert the output of `JobSpec.as_json` to a message, without building a `JobSpec`."""
    made = jobs_pb2.JobSpec(
        labels=body.get("labels"), most_attempts=body.get("most_attempts", _DEFAULTS["spec"]["most_attempts"]),
        budget=body.get("budget"),
    )  # fmt: skip
    if body.get("deadline_s") is not None:
        made.deadline.FromNanoseconds(round(body["deadline_s"] * 1e9))
    graph, dataflow, flow_job = body.get("graph"), body.get("dataflow"), body.get("flow")
    if flow_job is not None:
        names = {field: name for name, field in _FLOW_FIELDS.items()}
        given = {names.get(name, name): value for name, value in (_DEFAULTS["flow"] | flow_job).items()}
        made.flow.CopyFrom(jobs_pb2.FlowJob(**given))
    if graph is not None:
        given = _DEFAULTS["graph"] | graph
        given["runner"] = _RUNNER_NUMBERS[given["runner"]]
        made.graph.CopyFrom(jobs_pb2.GraphJob(**given))
    if dataflow is not None:
        given = _DEFAULTS["dataflow"] | dataflow
        flow = given.pop("dataflow")
        made.dataflow.CopyFrom(jobs_pb2.DataflowJob(**given))
        if isinstance(flow, str):
            made.dataflow.dataflow_name = flow
        else:
            made.dataflow.dataflow_definition.CopyFrom(dataflow_message(Dataflow.model_validate(flow)))
    return made


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults of optional fields, except ``None``."""
    return {
        name: field.default for name, field in model.model_fields.items()
        if not field.is_required() and field.default is not None
    }  # fmt: skip


_DEFAULTS = {
    "spec": _defaults(JobSpec), "graph": _defaults(GraphJob), "dataflow": _defaults(DataflowJob),
    "flow": _defaults(FlowJob),
}  # fmt: skip


def plan_message(described: Mapping[str, Any], ids: list[int] | None = None) -> dataflows_pb2.Plan:
    """Convert the output of `describe_plan` to a message.

    Parameters
    ----------
    described : mapping
    ids : list of int, optional
        IDs of the machines; default: -1, -2, … for machines to be started.
    """
    elements = [
        {_PROTOCOL_NAMES.get(name, name): value for name, value in one.items() if name != "machines"}
        for one in described["processing_elements"]
    ]
    machines = [
        {
            _PROTOCOL_NAMES.get(name, name): one[name]
            for name in ("machine_type", "site", "instances", "cores", "price_per_hour") if name in one
        } | {"id": -1 - at if ids is None else ids[at]}
        for at, one in enumerate(described["machines"])
    ]  # fmt: skip
    others = {name: value for name, value in described.items() if name != "processing_elements"}
    return dataflows_pb2.Plan(**{**others, "elements": elements, "machines": machines})


def states_of(numbers: Any) -> list[State]:
    """Return the states of a filter.

    Raises
    ------
    InputError
    """
    asked = set(numbers)
    for number in asked:
        if number not in _STATES_BY_NUMBER:
            raise InputError(f"states: unknown {number}; choose from {', '.join(jobs_pb2.JobState.keys()[1:])}")
    return [_STATES_BY_NUMBER[number] for number in asked]


def job_message(job: Job) -> jobs_pb2.Job:
    """Convert a job to a message."""
    made = jobs_pb2.Job(
        id=job.id, client=job.client, client_key=job.client_key or "", spec=spec_message(job.body),
        state=STATES[job.state], submitted=moment(job.submitted), attempts=job.attempts, cost=job.cost,
        expected_cost=job.expected_cost, currency=job.currency, provider=job.provider, error=job.error,
        progress=job.progress,
        cancel_requested=job.cancel_requested, server=job.server,
        summary="" if job.summary is None else json.dumps(job.summary),
    )  # fmt: skip
    for name in ("started", "ended"):
        if (time := getattr(job, name)) is not None:
            getattr(made, name).CopyFrom(moment(time))
    return made


def event_message(event: Event) -> jobs_pb2.Event:
    """Convert an event to a message."""
    return jobs_pb2.Event(
        number=event.number, time=moment(event.time), kind=event.kind, state=STATES[event.state], text=event.text,
        details="" if event.details is None else json.dumps(event.details),
    )  # fmt: skip


def moment(seconds: float) -> Timestamp:
    """Convert seconds since 1970 to a timestamp."""
    made = Timestamp()
    made.FromMicroseconds(round(seconds * 1e6))
    return made

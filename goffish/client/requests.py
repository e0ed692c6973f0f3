"""Requests of both clients, from arguments and from definitions in files."""

from __future__ import annotations

import hashlib
import json as jsons
import warnings
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import pyarrow as pa

from goffish.errors import InputError
from goffish.v1 import catalog_pb2, dataflows_pb2, jobs_pb2, planning_pb2, records_pb2

_PIECE = 1 << 20
_LONGEST = 60
#: Runners and job states by lower-case name.
RUNNERS = {name.removeprefix("RUNNER_").lower(): number for name, number in jobs_pb2.Runner.items() if number}
STATES = {name.removeprefix("JOB_STATE_").lower(): number for name, number in jobs_pb2.JobState.items() if number}
M = TypeVar("M")


class JobOptions(TypedDict, total=False):
    """Options of every job.

    Attributes
    ----------
    deadline_s : float
        Deadline in seconds from submission.
    budget : float
        Maximum cost in the currency of the cloud.
    labels : mapping of str to str
        Labels of the job.
    max_attempts : int
        Number of worker losses after which the job fails. ``most_attempts`` is a deprecated spelling.
    """

    deadline_s: float | None
    budget: float | None
    labels: Mapping[str, str] | None
    max_attempts: int | None
    most_attempts: int | None


class GraphOptions(JobOptions, total=False):
    """Options of a graph job.

    Attributes
    ----------
    workers : int
        Threads, or MPI ranks.
    checkpoint_every : int
        Supersteps between checkpoints.
    memory_mb, cpu_seconds : float
        Limits of all processes together.
    policy, cloud_name : str
        With the runner ``cloud``: scheduler policy, and catalogue of machine types.
    machines : int
        With the runner ``cloud``: number of rented machines.
    """

    workers: int | None
    machines: int | None
    checkpoint_every: int | None
    memory_mb: int | None
    cpu_seconds: float | None
    policy: str | None
    cloud_name: str | None


class DataflowOptions(JobOptions, total=False):
    """Options of a dataflow on the simulated cloud.

    Attributes
    ----------
    cloud_name, policy, rates : str
        Catalogue of machine types, scheduler policy, and message rates over time.
    hours : float
        Simulated hours.
    hours_per_second : float
        Simulated hours per second [default: unlimited].
    seed : int
        Random seed.
    """

    cloud_name: str | None
    policy: str | None
    rates: str | None
    hours: float | None
    seed: int | None
    hours_per_second: float | None


class FlowOptions(JobOptions, total=False):
    """Options of a flow job.

    Attributes
    ----------
    workers : int or mapping of str to int
        Number of worker processes, or numbers for operators, each with what follows it.
    delivery : {"exactly-once", "at-least-once"}
        Whether results cross workers after a checkpoint.
    replication : int
        Number of workers that may fail at once without loss.
    checkpoint_s : float
        Seconds between checkpoints.
    memory_mb : int
        Memory limit of all processes together.
    resume_from : str
        ID of an ended flow job, whose last checkpoint the flow resumes from.
    """

    workers: int | Mapping[str, int] | None
    delivery: str | None
    replication: int | None
    checkpoint_s: float | None
    memory_mb: int | None
    resume_from: str | None


def filled(message: M, **fields: Any) -> M:
    """Set the fields of a message that are not ``None``.

    Raises
    ------
    InputError
        If a value does not match its field.
    """
    made: Any = message
    for name, value in fields.items():
        if value is None:
            continue
        try:
            if isinstance(value, str) and not isinstance(getattr(made, name), str):
                raise TypeError  # a text is not a list of letters
            made.MergeFrom(type(made)(**{name: value}))
        except (TypeError, AttributeError):
            accepted = _type_name(made.DESCRIPTOR.fields_by_name[name])
            raise InputError(f"{name}: {_short(value)} is not {accepted}") from None
        except ValueError as error:
            raise InputError(f"{name}: {_short(value)} is out of range ({error})") from None
    return message


def _type_name(field: Any) -> str:
    if field.message_type is not None:
        kind = field.message_type
        return "a mapping" if kind.GetOptions().map_entry else f"a message of type {kind.name}"
    return {field.CPPTYPE_STRING: "text", field.CPPTYPE_DOUBLE: "a number"}.get(field.cpp_type, "a whole number")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def of_job(message: M, job: str, **fields: Any) -> M:
    """Return a request about a job.

    Raises
    ------
    InputError
        If the job is not an id, or a value does not match its field.
    """
    if not isinstance(job, str):
        raise InputError(f"job: {_short(job)} is not a job ID")
    return filled(message, id=job, **fields)


def graph_spec(
    algorithm: str, input_uri: str, options: Mapping[str, Any] | None, runner: str, more: GraphOptions
) -> jobs_pb2.JobSpec:
    """Return the specification of a graph job; options that are ``None`` are left out.

    Raises
    ------
    InputError
        If a value has the wrong type.
    """
    if runner not in RUNNERS:
        raise InputError(f"runner={runner!r}: choose one of {', '.join(RUNNERS)}")
    own, limits = _split(more, GraphOptions)
    work = filled(jobs_pb2.GraphJob(runner=RUNNERS[runner]), algorithm=algorithm, input_uri=input_uri, **own)
    return _limited(jobs_pb2.JobSpec(graph=filled(work, options=texts(options))), **limits)


def dataflow_spec(
    dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None, more: DataflowOptions
) -> jobs_pb2.JobSpec:
    """Return the specification of a dataflow on the simulated cloud.

    Raises
    ------
    InputError
        If a value has the wrong type.
    """
    own, limits = _split(more, DataflowOptions)
    work = filled(jobs_pb2.DataflowJob(), **_either("dataflow", dataflow), options=texts(options), **own)
    return _limited(jobs_pb2.JobSpec(dataflow=work), **limits)


def flow_spec(flow: str | Mapping[str, Any], more: FlowOptions) -> jobs_pb2.JobSpec:
    """Return the specification of a flow job.

    Raises
    ------
    InputError
        If a value has the wrong type.
    """
    own, limits = _split(more, FlowOptions)
    own |= worker_fields(own.pop("workers", None))
    return _limited(jobs_pb2.JobSpec(flow=filled(jobs_pb2.FlowJob(), **flow_fields(flow), **own)), **limits)


def worker_fields(workers: int | Mapping[str, int] | None) -> dict[str, Any]:
    """Return the field of a number of workers, or of numbers for operators."""
    return {"operator_workers" if isinstance(workers, Mapping) else "workers": workers}


def flow_fields(flow: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the field of the name of a flow, or of its description.

    Raises
    ------
    InputError
        If the description has a value that JSON does not have.
    """
    if not isinstance(flow, Mapping):
        return {"flow_name": flow}
    try:
        return {"flow_definition": jsons.dumps(flow, allow_nan=False)}
    except (TypeError, ValueError) as error:
        raise InputError(f"flow: the description cannot be written as JSON ({error})") from None


def _split(given: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the options of one kind of job from those of every job."""
    for name in given:
        if name not in kind.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}; choose from {', '.join(kind.__annotations__)}")
    limits = JobOptions.__annotations__
    return {n: v for n, v in given.items() if n not in limits}, {n: v for n, v in given.items() if n in limits}


def _limited(
    spec: jobs_pb2.JobSpec, *, deadline_s: float | None = None, max_attempts: int | None = None, **limits: Any
) -> jobs_pb2.JobSpec:
    if limits.get("most_attempts") is not None:
        warnings.warn("most_attempts is deprecated; use max_attempts", DeprecationWarning, stacklevel=5)
    if max_attempts is not None:
        limits["most_attempts"] = max_attempts  # the frozen name of the protocol
    if deadline_s is not None:
        try:
            spec.deadline.FromNanoseconds(round(deadline_s * 1e9))
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"deadline_s: {_short(deadline_s)} is not a number of seconds") from None
    return filled(spec, **limits)


def setting(
    dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None, policy: str,
    options: Mapping[str, Any] | None,
) -> planning_pb2.Setting:  # fmt: skip
    """Return dataflow, catalogue and policy of a planning call.

    Raises
    ------
    InputError
        If a value has the wrong type.
    """
    which = _either("dataflow", dataflow) | ({} if cloud is None else _either("cloud", cloud))
    return filled(planning_pb2.Setting(), **which, policy=policy, options=texts(options))


def _either(field: str, given: Any) -> dict[str, Any]:
    """Return the field of a name or of a definition."""
    return {f"{field}_name" if isinstance(given, str) else f"{field}_definition": given}


def prices(trace: str, since: datetime | None, until: datetime | None) -> catalog_pb2.GetPricesRequest:
    """Return a request for a part of a price trace.

    Raises
    ------
    InputError
        If a value has the wrong type.
    """
    asked = filled(catalog_pb2.GetPricesRequest(), trace=trace)
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not isinstance(moment, datetime):
            raise InputError(f"{name}: {_short(moment)} is not a datetime")
        if moment is not None:
            getattr(asked, name).FromDatetime(moment)
    return asked


def states(names: tuple[str, ...]) -> list[Any]:
    """Return the protocol numbers of job states.

    Raises
    ------
    InputError
        If a state is unknown.
    """
    unknown = next((name for name in names if name not in STATES), None)
    if unknown is not None:
        raise InputError(f"state {unknown!r}: choose from {', '.join(STATES)}")
    return [STATES[name] for name in names]


def upload(path: str | Path) -> Iterator[jobs_pb2.UploadRequest]:
    """Return the requests that upload a file piece by piece.

    Raises
    ------
    InputError
        If the file cannot be read; raised before anything is sent.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            total = file.tell()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return _pieces(path, jobs_pb2.UploadStart(name=path.name, total_bytes=total, sha256=digest))


def _pieces(path: Path, start: jobs_pb2.UploadStart) -> Iterator[jobs_pb2.UploadRequest]:
    yield jobs_pb2.UploadRequest(start=start)
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            yield jobs_pb2.UploadRequest(data=data)


def texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return options as strings.

    Raises
    ------
    InputError
        If the options are not a mapping.
    """
    if not isinstance(options, Mapping | None):
        raise InputError(f"options: {_short(options)} is not a mapping")
    return {name: str(value) for name, value in (options or {}).items()}


def dataflow(path: str | Path) -> dataflows_pb2.Dataflow:
    """Read the definition of a dataflow from a YAML or JSON file.

    Parameters
    ----------
    path : str or path-like
        Local file.

    Returns
    -------
    Dataflow
        Definition for `Client.plan` and `Client.submit_dataflow`.

    Raises
    ------
    InputError
        If the file cannot be read or a field is invalid; the message names file, field and accepted values.

    Examples
    --------
    >>> from pathlib import Path
    >>> from goffish.client import dataflow
    >>> text = '''
    ... name: lines
    ... processing_elements: [{id: read, cost: 0.001}, {id: count, cost: 0.002}]
    ... edges: [[read, count]]
    ... inputs: {read: 100}
    ... '''
    >>> _ = Path("lines.yaml").write_text(text)
    >>> dataflow("lines.yaml").name
    'lines'
    """
    from goffish.scheduling.dataflow.model import read_dataflow
    from goffish.scheduling.messages import dataflow_message

    return dataflow_message(read_dataflow(Path(path)))


def catalogue(path: str | Path) -> dataflows_pb2.Catalogue:
    """Read a catalogue of machine types from a YAML or JSON file.

    Parameters
    ----------
    path : str or path-like
        Local file.

    Returns
    -------
    Catalogue
        Definition for `Client.plan`.

    Raises
    ------
    InputError
        If the file cannot be read or a field is invalid; the message names file, field and accepted values.

    Examples
    --------
    >>> from pathlib import Path
    >>> from goffish.client import catalogue
    >>> text = '''
    ... source: own prices
    ... machine_types: [{name: small, cores: 2, price_per_hour: 0.08}]
    ... '''
    >>> _ = Path("machines.yaml").write_text(text)
    >>> catalogue("machines.yaml").source
    'own prices'
    """
    from goffish.cloud.catalogue import read_catalogue
    from goffish.scheduling.messages import catalogue_message

    return catalogue_message(read_catalogue(Path(path)))


#: Bytes and rows of a request with records.
_RECORD_BYTES, _RECORD_ROWS = 2 << 20, 10_000


def of_records(records: Any) -> Iterator[records_pb2.PushRecordsRequest]:
    """Return requests with records: a table, or mappings."""
    if hasattr(records, "__arrow_c_stream__"):
        table = pa.table(records)
        rows = max(1, min(_RECORD_ROWS, int(_RECORD_BYTES / max(1.0, table.nbytes / max(1, len(table))))))
        for begin in range(0, len(table), rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table.slice(begin, rows).combine_chunks())
            yield records_pb2.PushRecordsRequest(arrow_stream=sink.getvalue().to_pybytes())
        return
    lines: list[bytes] = []
    size = 0
    for one in records:
        line = jsons.dumps(one, default=lambda value: value.isoformat()).encode()
        if lines and (size + len(line) > _RECORD_BYTES or len(lines) == _RECORD_ROWS):
            yield records_pb2.PushRecordsRequest(json_lines=b"\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield records_pb2.PushRecordsRequest(json_lines=b"\n".join(lines))


def table_of(data: bytes) -> pa.Table:
    """Return the table of an Arrow IPC stream."""
    return pa.ipc.open_stream(data).read_all()

"""Request messages of both clients, built from arguments and definition files."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from goffish.errors import InputError
from goffish.v1 import catalog_pb2, dataflows_pb2, jobs_pb2, planning_pb2

_PIECE = 1 << 20
_LONGEST = 60
#: Runners and job states by lower-case name.
RUNNERS = {name.removeprefix("RUNNER_").lower(): number for name, number in jobs_pb2.Runner.items() if number}
STATES = {name.removeprefix("JOB_STATE_").lower(): number for name, number in jobs_pb2.JobState.items() if number}
M = TypeVar("M")


class JobOptions(TypedDict, total=False):
    """Options of all jobs.

    Attributes
    ----------
    deadline_s : float
        Deadline, in seconds from the submission.
    budget : float
        Cost limit, in the currency of the cloud.
    labels : mapping
        Names and values for filtering.
    max_attempts : int
        Number of attempts, after lost workers, before the job fails. ``most_attempts`` is a deprecated spelling.
    """

    deadline_s: float | None
    budget: float | None
    labels: Mapping[str, str] | None
    max_attempts: int | None
    most_attempts: int | None


class GraphOptions(JobOptions, total=False):
    """Options of graph jobs.

    Attributes
    ----------
    workers : int
        Number of threads or MPI ranks.
    checkpoint_every : int
        Supersteps between checkpoints.
    memory_mb, cpu_seconds : float
        Limits of all processes of the job together.
    policy, cloud_name : str
        Scheduler policy and catalogue of machine types; with the runner ``cloud`` only.
    """

    workers: int | None
    checkpoint_every: int | None
    memory_mb: int | None
    cpu_seconds: float | None
    policy: str | None
    cloud_name: str | None


class DataflowOptions(JobOptions, total=False):
    """Options of dataflows on the simulated cloud.

    Attributes
    ----------
    cloud_name, policy, rates : str
        Catalogue of machine types, scheduler policy, and input rates.
    hours, hours_per_second : float
        Simulated duration, and simulated hours per real second; default: unlimited.
    seed : int
        Random seed.
    """

    cloud_name: str | None
    policy: str | None
    rates: str | None
    hours: float | None
    seed: int | None
    hours_per_second: float | None


def filled(message: M, **fields: Any) -> M:
    """Set the fields of a message that are not ``None``.

    Raises
    ------
    InputError
        A value has the wrong type; names the field and the accepted type.
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
        return (
            "a mapping" if field.message_type.GetOptions().map_entry else f"a message of type {field.message_type.name}"
        )
    return {field.CPPTYPE_STRING: "text", field.CPPTYPE_DOUBLE: "a number"}.get(field.cpp_type, "a whole number")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def of_job(message: M, job: str, **fields: Any) -> M:
    """Set the job ID and other fields of a request message.

    Raises
    ------
    InputError
    """
    if not isinstance(job, str):
        raise InputError(f"job: {_short(job)} is not a job ID")
    return filled(message, id=job, **fields)


def graph_spec(
    algorithm: str, input_uri: str, options: Mapping[str, Any] | None, runner: str, more: GraphOptions
) -> jobs_pb2.JobSpec:
    """Return the specification of a graph job.

    Parameters
    ----------
    algorithm, input_uri, options, runner
    more : GraphOptions
        Options; ``None`` means the default.

    Raises
    ------
    InputError
    """
    if runner not in RUNNERS:
        raise InputError(f"runner={runner!r}: choose one of {', '.join(RUNNERS)}")
    own, limits = _split(more, GraphOptions)
    work = filled(jobs_pb2.GraphJob(runner=RUNNERS[runner]), algorithm=algorithm, input_uri=input_uri, **own)
    return _limited(jobs_pb2.JobSpec(graph=filled(work, options=texts(options))), **limits)


def dataflow_spec(
    dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None, more: DataflowOptions
) -> jobs_pb2.JobSpec:
    """Return the specification of a dataflow job.

    Raises
    ------
    InputError
    """
    own, limits = _split(more, DataflowOptions)
    work = filled(jobs_pb2.DataflowJob(), **_either("dataflow", dataflow), options=texts(options), **own)
    return _limited(jobs_pb2.JobSpec(dataflow=work), **limits)


def _split(given: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those of the kind of job and those of all jobs."""
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
    """Return the dataflow, catalogue and policy of a planning request.

    Raises
    ------
    InputError
    """
    which = _either("dataflow", dataflow) | ({} if cloud is None else _either("cloud", cloud))
    return filled(planning_pb2.Setting(), **which, policy=policy, options=texts(options))


def _either(field: str, given: Any) -> dict[str, Any]:
    """Return the field for a name, or the field for a definition."""
    return {f"{field}_name" if isinstance(given, str) else f"{field}_definition": given}


def prices(trace: str, since: datetime | None, until: datetime | None) -> catalog_pb2.GetPricesRequest:
    """Return the request for a time range of a price trace.

    Raises
    ------
    InputError
    """
    asked = filled(catalog_pb2.GetPricesRequest(), trace=trace)
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not isinstance(moment, datetime):
            raise InputError(f"{name}: {_short(moment)} is not a datetime")
        if moment is not None:
            getattr(asked, name).FromDatetime(moment)
    return asked


def states(names: tuple[str, ...]) -> list[Any]:
    """Convert names of states to numbers.

    Raises
    ------
    InputError
    """
    unknown = next((name for name in names if name not in STATES), None)
    if unknown is not None:
        raise InputError(f"state {unknown!r}: choose from {', '.join(STATES)}")
    return [STATES[name] for name in names]


def upload(path: str | Path) -> Iterator[jobs_pb2.UploadRequest]:
    """Iterate over the upload messages of a file.

    Raises
    ------
    InputError
        The file cannot be read; raised before anything is sent.
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
    """Convert option values to text.

    Raises
    ------
    InputError
    """
    if not isinstance(options, Mapping | None):
        raise InputError(f"options: {_short(options)} is not a mapping")
    return {name: str(value) for name, value in (options or {}).items()}


def dataflow(path: str | Path) -> dataflows_pb2.Dataflow:
    """Read a dataflow from a YAML or JSON file, for plans and jobs.

    Raises
    ------
    InputError
        The definition is invalid; names the file, the field and the accepted values.
    """
    from goffish.scheduling.dataflow.model import read_dataflow
    from goffish.scheduling.messages import dataflow_message

    return dataflow_message(read_dataflow(Path(path)))


def catalogue(path: str | Path) -> dataflows_pb2.Catalogue:
    """Read a catalogue of machine types from a YAML or JSON file, for plans.

    Raises
    ------
    InputError
        The definition is invalid; names the file, the field and the accepted values.
    """
    from goffish.cloud.catalogue import read_catalogue
    from goffish.scheduling.messages import catalogue_message

    return catalogue_message(read_catalogue(Path(path)))

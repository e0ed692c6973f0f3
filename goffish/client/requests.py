"""What both clients send, from what a user gives: arguments, and definitions in files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from goffish.errors import InputError
from goffish.v1 import catalog_pb2, dataflows_pb2, jobs_pb2, planning_pb2

_PIECE = 1 << 20
_LONGEST = 60
#: Runners and states by the names that people use.
RUNNERS = {name.removeprefix("RUNNER_").lower(): number for name, number in jobs_pb2.Runner.items() if number}
STATES = {name.removeprefix("JOB_STATE_").lower(): number for name, number in jobs_pb2.JobState.items() if number}
M = TypeVar("M")


class JobOptions(TypedDict, total=False):
    """What may be asked of every kind of job.

    Attributes
    ----------
    deadline_s : float
        From the submission on.
    budget : float
        In the currency of its cloud.
    labels : mapping
    most_attempts : int
        Times that its worker may be lost until it fails.
    """

    deadline_s: float | None
    budget: float | None
    labels: Mapping[str, str] | None
    most_attempts: int | None


class GraphOptions(JobOptions, total=False):
    """What may be asked of a job on a graph.

    Attributes
    ----------
    workers : int
        Threads, or ranks of mpirun.
    checkpoint_every : int
        Supersteps.
    memory_mb, cpu_seconds : float
        Most of its processes together.
    policy, cloud_name : str
        With the runner ``cloud``: who decides on machines, and their catalogue.
    """

    workers: int | None
    checkpoint_every: int | None
    memory_mb: int | None
    cpu_seconds: float | None
    policy: str | None
    cloud_name: str | None


class DataflowOptions(JobOptions, total=False):
    """What may be asked of a dataflow on the simulated cloud.

    Attributes
    ----------
    cloud_name, policy, rates : str
    hours, hours_per_second : float
        Length; and of it what passes in a second, instead of as much as can be computed.
    seed : int
    """

    cloud_name: str | None
    policy: str | None
    rates: str | None
    hours: float | None
    seed: int | None
    hours_per_second: float | None


def filled(message: M, **fields: Any) -> M:
    """A message with those of its fields that are given: not ``None``.

    Raises
    ------
    InputError
        The field, its value, and what is accepted.
    """
    made: Any = message
    for name, value in fields.items():
        if value is None:
            continue
        try:
            if isinstance(value, str) and not isinstance(getattr(made, name), str):
                raise TypeError  # several texts are not the letters of one
            made.MergeFrom(type(made)(**{name: value}))
        except (TypeError, AttributeError):
            wanted = _wanted(made.DESCRIPTOR.fields_by_name[name])
            raise InputError(f"{name}: {_short(value)} is given, {wanted} is needed") from None
        except ValueError as error:
            raise InputError(f"{name}: {_short(value)} cannot be sent ({error})") from None
    return message


def _wanted(field: Any) -> str:
    if field.message_type is not None:
        return "a mapping" if field.message_type.GetOptions().map_entry else str(field.message_type.name)
    return {field.CPPTYPE_STRING: "text", field.CPPTYPE_DOUBLE: "a number"}.get(field.cpp_type, "a whole number")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def of_job(message: M, job: str, **fields: Any) -> M:
    """A message that asks for something of a job.

    Raises
    ------
    InputError
    """
    if not isinstance(job, str):
        raise InputError(f"job: {_short(job)} is given, its id is needed")
    return filled(message, id=job, **fields)


def graph_spec(
    algorithm: str, input_uri: str, options: Mapping[str, Any] | None, runner: str, more: GraphOptions
) -> jobs_pb2.JobSpec:
    """A job on a graph.

    Parameters
    ----------
    algorithm, input_uri, options, runner
    more : GraphOptions
        ``None`` is not given.

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
    """A dataflow that is run on the simulated cloud.

    Raises
    ------
    InputError
    """
    own, limits = _split(more, DataflowOptions)
    work = filled(jobs_pb2.DataflowJob(), **_either("dataflow", dataflow), options=texts(options), **own)
    return _limited(jobs_pb2.JobSpec(dataflow=work), **limits)


def _split(given: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is the job's own, and what may be asked of every kind of job."""
    for name in given:
        if name not in kind.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r} (there are: {', '.join(kind.__annotations__)})")
    limits = JobOptions.__annotations__
    return {n: v for n, v in given.items() if n not in limits}, {n: v for n, v in given.items() if n in limits}


def _limited(spec: jobs_pb2.JobSpec, *, deadline_s: float | None = None, **limits: Any) -> jobs_pb2.JobSpec:
    if deadline_s is not None:
        try:
            spec.deadline.FromNanoseconds(round(deadline_s * 1e9))
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"deadline_s: {_short(deadline_s)} is given, seconds are needed") from None
    return filled(spec, **limits)


def setting(
    dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None, policy: str,
    options: Mapping[str, Any] | None,
) -> planning_pb2.Setting:  # fmt: skip
    """What is planned, on what, and by whom.

    Raises
    ------
    InputError
    """
    which = _either("dataflow", dataflow) | ({} if cloud is None else _either("cloud", cloud))
    return filled(planning_pb2.Setting(), **which, policy=policy, options=texts(options))


def _either(field: str, given: Any) -> dict[str, Any]:
    """What is either named or defined."""
    return {f"{field}_name" if isinstance(given, str) else f"{field}_definition": given}


def prices(trace: str, since: datetime | None, until: datetime | None) -> catalog_pb2.GetPricesRequest:
    """A part of a trace of prices.

    Raises
    ------
    InputError
    """
    asked = filled(catalog_pb2.GetPricesRequest(), trace=trace)
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not isinstance(moment, datetime):
            raise InputError(f"{name}: {_short(moment)} is given, a datetime is needed")
        if moment is not None:
            getattr(asked, name).FromDatetime(moment)
    return asked


def states(names: tuple[str, ...]) -> list[Any]:
    """Numbers of states.

    Raises
    ------
    InputError
    """
    unknown = next((name for name in names if name not in STATES), None)
    if unknown is not None:
        raise InputError(f"state {unknown!r}: choose some of {', '.join(STATES)}")
    return [STATES[name] for name in names]


def upload(path: str | Path) -> Iterator[jobs_pb2.UploadRequest]:
    """A file in pieces.

    Raises
    ------
    InputError
        It cannot be read; before anything is sent.
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
    """Options as they are sent.

    Raises
    ------
    InputError
    """
    if not isinstance(options, Mapping | None):
        raise InputError(f"options: {_short(options)} is given, a mapping is needed")
    return {name: str(value) for name, value in (options or {}).items()}


def dataflow(path: str | Path) -> dataflows_pb2.Dataflow:
    """A dataflow from a YAML or JSON file, for plans and jobs.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    from goffish.scheduling.dataflow.model import read_dataflow
    from goffish.scheduling.messages import dataflow_message

    return dataflow_message(read_dataflow(Path(path)))


def catalogue(path: str | Path) -> dataflows_pb2.Catalogue:
    """A catalogue of machine classes from a YAML or JSON file, for plans.

    Raises
    ------
    InputError
        In one line: the file, the field, what is wrong and what is accepted.
    """
    from goffish.cloud.catalogue import read_catalogue
    from goffish.scheduling.messages import catalogue_message

    return catalogue_message(read_catalogue(Path(path)))

"""What both clients send, from what a user gives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from goffish.errors import InputError
from goffish.v1 import dataflows_pb2, jobs_pb2, planning_pb2

_PIECE = 1 << 20
RUNNERS = {
    "local": jobs_pb2.RUNNER_LOCAL, "mpi": jobs_pb2.RUNNER_MPI, "spark": jobs_pb2.RUNNER_SPARK,
    "cloud": jobs_pb2.RUNNER_CLOUD,
}  # fmt: skip
#: States by the names that people use.
STATES = {name.removeprefix("JOB_STATE_").lower(): number for name, number in jobs_pb2.JobState.items() if number}
OVER = frozenset({jobs_pb2.JOB_STATE_DONE, jobs_pb2.JOB_STATE_FAILED, jobs_pb2.JOB_STATE_CANCELLED})


def graph_spec(
    algorithm: str, input_uri: str, options: Mapping[str, Any] | None, runner: str, limits: Mapping[str, Any],
    graph: Mapping[str, Any],
) -> jobs_pb2.JobSpec:  # fmt: skip
    """A job on a graph.

    Raises
    ------
    InputError
        Unknown runner.
    """
    if runner not in RUNNERS:
        raise InputError(f"runner={runner!r}: choose one of {', '.join(RUNNERS)}")
    made = jobs_pb2.JobSpec(
        graph=jobs_pb2.GraphJob(
            algorithm=algorithm, input_uri=input_uri, runner=RUNNERS[runner], options=texts(options), **_given(graph)
        )
    )
    return limited(made, **limits)


def dataflow_spec(
    dataflow: str | dataflows_pb2.Dataflow, options: Mapping[str, Any] | None, limits: Mapping[str, Any],
    run: Mapping[str, Any],
) -> jobs_pb2.JobSpec:  # fmt: skip
    """A dataflow that is run on the simulated cloud."""
    named = isinstance(dataflow, str)
    which: dict[str, Any] = {"dataflow_name" if named else "dataflow_definition": dataflow}
    made = jobs_pb2.JobSpec(dataflow=jobs_pb2.DataflowJob(options=texts(options), **which, **_given(run)))
    return limited(made, **limits)


def limited(
    spec: jobs_pb2.JobSpec, *, deadline_s: float | None = None, budget: float | None = None,
    labels: Mapping[str, str] | None = None, most_attempts: int | None = None,
) -> jobs_pb2.JobSpec:  # fmt: skip
    """A job with what is asked of every kind."""
    if deadline_s is not None:
        spec.deadline.FromNanoseconds(round(deadline_s * 1e9))
    if budget is not None:
        spec.budget = budget
    if most_attempts is not None:
        spec.most_attempts = most_attempts
    spec.labels.update(labels or {})
    return spec


def setting(
    dataflow: str | dataflows_pb2.Dataflow, cloud: str | dataflows_pb2.Catalogue | None, policy: str,
    options: Mapping[str, Any] | None,
) -> planning_pb2.Setting:  # fmt: skip
    """What is planned, on what, and by whom."""
    made = planning_pb2.Setting(policy=policy, options=texts(options))
    if isinstance(dataflow, str):
        made.dataflow_name = dataflow
    else:
        made.dataflow_definition.CopyFrom(dataflow)
    if isinstance(cloud, str):
        made.cloud_name = cloud
    elif cloud is not None:
        made.cloud_definition.CopyFrom(cloud)
    return made


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
    """Options as they are sent."""
    return {name: str(value) for name, value in (options or {}).items()}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

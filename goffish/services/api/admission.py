"""What has to be true of a job before it is accepted: whatever can be found wrong now does not fail it later."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from goffish.errors import InputError
from goffish.services.api.inputs import Inputs
from goffish.services.api.wire import known_cloud, known_dataflow
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.order import Files, as_named
from goffish.services.store.spec import DataflowJob, GraphJob, JobSpec


def check_spec(spec: JobSpec, inputs: Inputs, runners: Collection[str], limits: JobLimits = UNLIMITED) -> None:
    """Refuse a job that cannot be run, or that asks for more than the operator allows.

    Raises
    ------
    InputError
        The field, what is wrong, and what is accepted.
    """
    if spec.graph is not None:
        _check_graph(spec.graph, inputs, runners, limits)
    if spec.dataflow is not None:
        _check_dataflow(spec.dataflow, limits)


def check_policy_sizes(policy: str, options: Mapping[str, str], most: int, field: str) -> None:
    """Refuse options of a policy, such as generations, with which a plan would take any amount of time or memory.

    Parameters
    ----------
    policy : str
        An unknown one is refused elsewhere.
    options : mapping
        As a client gives them.
    most : int
        Largest whole number; seeds may have any size.
    field : str
        What the options are called in errors.

    Raises
    ------
    InputError
    """
    if options:
        _check_sizes(options, _policy_numbers(policy), most, field)


@lru_cache
def _policy_numbers(policy: str) -> frozenset[str]:
    from goffish.scheduling.policies.policies import policy_names, policy_schema

    return _whole_numbers(policy_schema(policy)) if policy in policy_names() else frozenset()


@lru_cache
def _algorithm_numbers(algorithm: str) -> frozenset[str]:
    from goffish.algorithms.catalogue import ALGORITHMS

    return _whole_numbers(ALGORITHMS[algorithm].model_json_schema())


def _whole_numbers(schema: Mapping[str, Any]) -> frozenset[str]:
    """Options that are whole numbers, by their JSON schema; without seeds and labels."""
    found = set()
    for name, one in schema.get("properties", {}).items():
        kinds = {kind.get("type") for kind in (one, *one.get("anyOf", ()))}
        # What may be a text as well is the label of a vertex.
        if "integer" in kinds and "string" not in kinds and name != "seed":
            found.add(name)
    return frozenset(found)


def _check_sizes(options: Mapping[str, str], whole: Collection[str], most: int, field: str) -> None:
    for name, value in options.items():
        if name in whole and abs(_size(value)) > most:
            raise InputError(f"{field}: {name}={value[:40]}: at most {most:,} on this server (--max-option)")


def _size(value: str) -> float:
    """A number in a text; 0 for what is none, which is refused elsewhere."""
    try:
        return float(value)
    except ValueError:
        return 0.0


def _check_graph(graph: GraphJob, inputs: Inputs, runners: Collection[str], limits: JobLimits) -> None:
    from goffish.algorithms.catalogue import ALGORITHMS, make
    from goffish.gofs import is_store

    if graph.algorithm not in ALGORITHMS:
        raise InputError(f"spec.graph.algorithm: no {graph.algorithm!r}; choose one of {', '.join(ALGORITHMS)}")
    if graph.runner not in runners:
        raise InputError(f"spec.graph.runner: {graph.runner} is not served here; there are: {', '.join(runners)}")
    if graph.workers > limits.workers:
        told = f"{graph.workers:,}; at most {limits.workers:,} on this server (--max-workers)"
        raise InputError(f"spec.graph.workers: {told}")
    if graph.memory_mb is not None and limits.memory_mb is not None and graph.memory_mb > limits.memory_mb:
        told = f"{graph.memory_mb:,}; at most {limits.memory_mb:,} on this server (--max-memory)"
        raise InputError(f"spec.graph.memory_mb: {told}")
    _check_sizes(graph.options, _algorithm_numbers(graph.algorithm), limits.option, "spec.graph.options")
    try:
        files = Files.of(graph, inputs.resolve)
    except InputError as error:
        raise InputError(f"spec.graph.{error}") from None
    try:
        made = make(graph.algorithm, files.options)
    except InputError as error:
        raise InputError(f"spec.graph.options: {as_named(str(error), files.names)}") from None
    if made.in_memory and graph.runner not in ("local", "cloud"):
        raise InputError(f"spec.graph.runner: {graph.algorithm} runs in memory only; choose local")
    if graph.runner not in ("local", "cloud"):
        for name in made.only_whole():
            raise InputError(f"spec.graph.options: {name} is answered in memory only; choose the runner local")
    if Path(files.input).is_dir() and not is_store(files.input):
        raise InputError(f"spec.graph.input_uri: {graph.input_uri} is a folder, but no store")
    if graph.runner == "cloud":
        cloud = known_cloud(graph.cloud_name, "spec.graph.cloud_name")
        if not any(one.market == "spot" for one in cloud.classes):
            raise InputError(
                f"spec.graph.cloud_name: {graph.cloud_name} has no machines on a spot market; choose another"
            )


def _check_dataflow(job: DataflowJob, limits: JobLimits) -> None:
    from goffish.scheduling.dataflow.needs import need_columns
    from goffish.scheduling.policies.feasible import check_places
    from goffish.scheduling.policies.policies import make_policy, policy_names
    from goffish.scheduling.simulate.scenario import RATES
    from goffish.services.runners.dataflows import intervals_of

    given = job.dataflow
    dataflow = known_dataflow(given, "spec.dataflow.dataflow_name") if isinstance(given, str) else given
    cloud, elements = known_cloud(job.cloud_name, "spec.dataflow.cloud_name"), dataflow.elements
    try:
        check_places([one.id for one in elements], need_columns([one.needs for one in elements]), cloud)
    except InputError as error:
        raise InputError(f"spec.dataflow.cloud_name: {job.cloud_name}: {error}") from None
    if job.rates not in RATES:
        raise InputError(f"spec.dataflow.rates: no {job.rates!r}; choose one of {', '.join(RATES)}")
    check_policy_sizes(job.policy, job.options, limits.option, "spec.dataflow.options")
    try:
        make_policy(job.policy, job.options)
    except InputError as error:
        raise InputError(f"spec.dataflow.{'options' if job.policy in policy_names() else 'policy'}: {error}") from None
    try:
        intervals_of(job, dataflow.goal)
    except InputError as error:
        raise InputError(f"spec.dataflow.{error}") from None

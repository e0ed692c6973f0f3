"""Admission checks: validate a job completely before it is accepted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from goffish.errors import InputError
from goffish.services.api.inputs import Inputs
from goffish.services.api.wire import known_cloud, known_dataflow
from goffish.services.runners.flow_folder import FlowFolder, check_description
from goffish.services.runners.flows import NO_FLOWS
from goffish.services.runners.limits import UNLIMITED, JobLimits
from goffish.services.runners.order import Files, as_named, check_machines
from goffish.services.store.spec import DataflowJob, FlowJob, GraphJob, JobSpec


def check_spec(
    spec: JobSpec, inputs: Inputs, runners: Collection[str], limits: JobLimits = UNLIMITED,
    flows: FlowFolder | None = None,
) -> None:  # fmt: skip
    """Reject a job that cannot run or exceeds the limits of the server.

    Raises
    ------
    InputError
        Names the field, the problem and the accepted values.
    """
    if spec.graph is not None:
        _check_graph(spec.graph, inputs, runners, limits)
    if spec.dataflow is not None:
        _check_dataflow(spec.dataflow, limits)
    if spec.flow is not None:
        _check_sizes_of(spec.flow, "spec.flow", limits)
        check_flow(spec.flow, "spec.flow", inputs, flows)


def check_flow(flow: FlowJob, field: str, inputs: Inputs, flows: FlowFolder | None) -> FlowFolder:
    """Reject a flow that the server does not offer, and return its folder of flows.

    Parameters
    ----------
    flow : FlowJob
    field : str
        Name of the message in error messages; empty for that of a call.
    inputs : Inputs
    flows : FlowFolder or None

    Raises
    ------
    InputError
    """
    if flows is None:
        raise InputError(f"{field or 'flow_name'}: {NO_FLOWS}")
    try:
        if flow.flow is not None:
            flows.file(flow.flow)
        else:
            assert flow.definition is not None
            check_description(flows, flow.definition, inputs.resolve, flow.processes)
    except InputError as error:
        name = "flow_name" if flow.flow is not None else "flow_definition"
        raise InputError(f"{field}.{name}: {error}" if field else f"{name}: {error}") from None
    return flows


def check_policy_sizes(policy: str, options: Mapping[str, str], most: int, field: str) -> None:
    """Reject policy options, such as generations, that make a plan arbitrarily expensive.

    Parameters
    ----------
    policy : str
        Name of the policy; unknown names are rejected elsewhere.
    options : mapping
        Options as text.
    most : int
        Largest accepted integer; seeds are not limited.
    field : str
        Name of the field in error messages.

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
    """Return the integer options of a JSON schema, except seeds and vertex labels."""
    found = set()
    for name, one in schema.get("properties", {}).items():
        kinds = {kind.get("type") for kind in (one, *one.get("anyOf", ()))}
        # A type that is an integer or a text is a vertex label.
        if "integer" in kinds and "string" not in kinds and name != "seed":
            found.add(name)
    return frozenset(found)


def _check_sizes(options: Mapping[str, str], whole: Collection[str], most: int, field: str) -> None:
    for name, value in options.items():
        if name in whole and abs(_size(value)) > most:
            raise InputError(f"{field}: {name}={value[:40]} exceeds the server's limit of {most:,} (--max-option)")


def _size(value: str) -> float:
    """Parse a number; return 0 for other texts, which are rejected elsewhere."""
    try:
        return float(value)
    except ValueError:
        return 0.0


def check_workers(workers: int, field: str, limits: JobLimits) -> None:
    """Reject more workers than the server accepts.

    Parameters
    ----------
    workers : int
    field : str
        Name of the field in error messages.
    limits : JobLimits

    Raises
    ------
    InputError
    """
    if workers > limits.workers:
        raise InputError(f"{field}: {workers:,} exceeds the server's limit of {limits.workers:,} (--max-workers)")


def _check_sizes_of(job: GraphJob | FlowJob, field: str, limits: JobLimits) -> None:
    check_workers(job.processes if isinstance(job, FlowJob) else job.workers, f"{field}.workers", limits)
    if isinstance(job, GraphJob) and job.machines > limits.machines:
        problem = f"{job.machines:,} exceeds the server's limit of {limits.machines:,} (--max-machines)"
        raise InputError(f"{field}.machines: {problem}")
    if job.memory_mb is not None and limits.memory_mb is not None and job.memory_mb > limits.memory_mb:
        problem = f"{job.memory_mb:,} MB exceed the server's limit of {limits.memory_mb:,} MB (--max-memory)"
        raise InputError(f"{field}.memory_mb: {problem}")


def _check_graph(graph: GraphJob, inputs: Inputs, runners: Collection[str], limits: JobLimits) -> None:
    from goffish.algorithms.catalogue import ALGORITHMS, make
    from goffish.gofs import is_store

    if graph.algorithm not in ALGORITHMS:
        raise InputError(f"spec.graph.algorithm: unknown {graph.algorithm!r}; choose one of {', '.join(ALGORITHMS)}")
    if graph.runner not in runners:
        raise InputError(f"spec.graph.runner: {graph.runner} is not available; choose one of {', '.join(runners)}")
    _check_sizes_of(graph, "spec.graph", limits)
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
            raise InputError(f"spec.graph.options: {name} is supported in memory only; choose the runner local")
    try:
        check_machines(graph, made)
    except InputError as error:
        raise InputError(f"spec.graph.{error}") from None
    if Path(files.input).is_dir() and not is_store(files.input):
        raise InputError(f"spec.graph.input_uri: {graph.input_uri} is a folder without manifest.json; give a store")
    if graph.runner == "cloud":
        cloud = known_cloud(graph.cloud_name, "spec.graph.cloud_name")
        if not any(one.market == "spot" for one in cloud.classes):
            raise InputError(
                f"spec.graph.cloud_name: {graph.cloud_name} has no spot machines; choose another catalogue"
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
        raise InputError(f"spec.dataflow.rates: unknown {job.rates!r}; choose one of {', '.join(RATES)}")
    check_policy_sizes(job.policy, job.options, limits.option, "spec.dataflow.options")
    try:
        make_policy(job.policy, job.options)
    except InputError as error:
        raise InputError(f"spec.dataflow.{'options' if job.policy in policy_names() else 'policy'}: {error}") from None
    try:
        intervals_of(job, dataflow.goal)
    except InputError as error:
        raise InputError(f"spec.dataflow.{error}") from None

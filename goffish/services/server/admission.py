"""What has to be true of a job before it is accepted: whatever can be found wrong now does not fail it later."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from goffish.errors import InputError
from goffish.services.cloud.catalogue import Catalogue
from goffish.services.jobs.spec import DataflowJob, GraphJob, JobSpec
from goffish.services.server.inputs import Inputs
from goffish.services.server.wire import known_cloud, known_dataflow


def check_spec(spec: JobSpec, inputs: Inputs, runners: Collection[str]) -> None:
    """Refuse a job that cannot be run.

    Raises
    ------
    InputError
        The field, what is wrong, and what is accepted.
    """
    if spec.graph is not None:
        _check_graph(spec.graph, inputs, runners)
    if spec.dataflow is not None:
        _check_dataflow(spec.dataflow)


def _check_graph(graph: GraphJob, inputs: Inputs, runners: Collection[str]) -> None:
    from goffish.algorithms.catalogue import ALGORITHMS, make
    from goffish.gofs import is_store

    if graph.algorithm not in ALGORITHMS:
        raise InputError(f"spec.graph.algorithm: no {graph.algorithm!r}; choose one of {', '.join(ALGORITHMS)}")
    if graph.runner not in runners:
        raise InputError(f"spec.graph.runner: {graph.runner} is not served here; there are: {', '.join(runners)}")
    try:
        made = make(graph.algorithm, graph.options)
    except InputError as error:
        raise InputError(f"spec.graph.options: {error}") from None
    if made.in_memory and graph.runner not in ("local", "cloud"):
        raise InputError(f"spec.graph.runner: {graph.algorithm} runs in memory only; choose local")
    try:
        path = Path(inputs.resolve(graph.input_uri))
    except InputError as error:
        raise InputError(f"spec.graph.{error}") from None
    if path.is_dir() and not is_store(str(path)):
        raise InputError(f"spec.graph.input_uri: {graph.input_uri} is a folder, but no store")
    if graph.runner == "cloud":
        cloud = known_cloud(graph.cloud_name, "spec.graph.cloud_name")
        if not any(one.market == "spot" for one in cloud.classes):
            raise InputError(
                f"spec.graph.cloud_name: {graph.cloud_name} has no machines on a spot market; choose another"
            )
        _check_prices(cloud, "spec.graph.cloud_name")


def _check_prices(cloud: Catalogue, field: str) -> None:
    """Refuse a catalogue whose spot prices this server does not have."""
    from goffish.services.cloud.spot_market import read_trace

    for one in cloud.classes:
        if one.prices is not None:
            try:
                read_trace(one.prices)
            except InputError:
                told = f"this server does not have the prices of {one.name}; its operator sets GOFFISH_DATA"
                raise InputError(f"{field}: {told}") from None


def _check_dataflow(job: DataflowJob) -> None:
    from goffish.services.provisioning.policies import make_policy, policy_names
    from goffish.services.runners.dataflows import intervals_of
    from goffish.services.simulation.scenario import RATES

    given = job.dataflow
    dataflow = known_dataflow(given, "spec.dataflow.dataflow_name") if isinstance(given, str) else given
    _check_prices(known_cloud(job.cloud_name, "spec.dataflow.cloud_name"), "spec.dataflow.cloud_name")
    if job.rates not in RATES:
        raise InputError(f"spec.dataflow.rates: no {job.rates!r}; choose one of {', '.join(RATES)}")
    try:
        make_policy(job.policy, job.options, own=False)
    except InputError as error:
        raise InputError(f"spec.dataflow.{'options' if job.policy in policy_names() else 'policy'}: {error}") from None
    try:
        intervals_of(job, dataflow.goal)
    except InputError as error:
        raise InputError(f"spec.dataflow.{error}") from None

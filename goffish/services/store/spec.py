"""Job specifications, validated on submission and stored as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from goffish.cloud.catalogue import NotNegative, Positive
from goffish.definitions import Definition, KnownName, Marked, NamesFile
from goffish.scheduling.dataflow.model import Dataflow

#: Prefix of upload URIs.
UPLOAD = "upload:"
Label = Annotated[str, Field(min_length=1, max_length=120), KnownName()]
Whole = Annotated[int, Field(ge=1, le=1_000_000_000)]
#: Maximum bytes of a stored specification.
MOST_BYTES = 256 << 10
#: Maximum labels of a job.
MOST_LABELS = 32
#: Parsed by the models of algorithms and policies, which mark the options that name files.
Options = dict[Label, Annotated[str, Field(max_length=4000), KnownName()]]
Runner = Literal["local", "mpi", "spark", "cloud"]
#: Policies of graph jobs on rented machines.
SpotPolicy = Literal["rtba", "h1", "h2", "h3", "greedy", "eager", "uniform-progress", "on-demand"]
DEFAULT_POLICY: SpotPolicy = "rtba"


class GraphJob(Definition, Marked):
    """Graph job.

    Attributes
    ----------
    algorithm : str
        Name as in ``goffish run ALGORITHM``.
    input_uri : str
        Graph file or store, in a folder of inputs of the server or uploaded by the client.
    options : mapping
        Options of the algorithm, as texts.
    runner : {"local", "mpi", "spark", "cloud"}
        Where the job runs: threads of one process, MPI ranks, Spark, or machines of the simulated cloud.
    checkpoint_every : int
        Supersteps between checkpoints.
    workers : int
        Number of threads or MPI ranks; threads of each machine with the runner ``cloud``.
    machines : int
        Number of rented machines, with one MPI rank on each if there are several.
    memory_mb : int, optional
        Memory limit of all processes of the job; exceeding it fails the job.
    cpu_seconds : float, optional
        CPU time limit of all processes of an attempt; exceeding it fails the job.
    policy : {"rtba", "h1", "h2", "h3", "greedy", "eager", "uniform-progress", "on-demand"}, optional
        Spot policy on rented machines; default: that of the server.
    cloud_name : str
        Catalogue of machine types.
    """

    algorithm: Label
    input_uri: Annotated[str, Field(min_length=1, max_length=2000), NamesFile()]
    options: Options = {}
    runner: Runner = "local"
    checkpoint_every: Whole = 1
    workers: Annotated[int, Field(ge=1, le=1024)] = 1
    machines: Annotated[int, Field(ge=1, le=256)] = 1
    memory_mb: Whole | None = None
    cpu_seconds: Positive | None = None
    policy: SpotPolicy | None = None
    cloud_name: Label = "ec2-2015-spot"

    @model_validator(mode="after")
    def _machines_are_rented(self) -> GraphJob:
        if self.machines > 1 and self.runner != "cloud":
            raise ValueError("machines: more than one requires the runner cloud")
        return self


class DataflowJob(Definition, Marked):
    """Dataflow job on the simulated cloud.

    Attributes
    ----------
    dataflow : Dataflow or str
        Name of a bundled dataflow, or a definition.
    cloud_name, policy, options, rates, hours, seed
        As in ``goffish simulate``.
    hours_per_second : float, optional
        Simulated hours per real second; default: unlimited.
    """

    dataflow: Dataflow | Label
    cloud_name: Label = "ec2-2013-m1"
    policy: Label = "reactive-global"
    options: Options = {}
    rates: Label = "constant"
    hours: Positive | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    hours_per_second: Positive | None = None


class FlowJob(Definition, Marked):
    """Flow job: a continuous dataflow on workers of the server, until its sources end or it is stopped.

    Attributes
    ----------
    flow : str, optional
        Name of a flow of the server.
    definition : str, optional
        Instead of a name: a description, as JSON with the content of a flow file.
    workers : int
        Number of worker processes.
    operator_workers : mapping
        Instead of `workers`: number of worker processes for operators, each with what follows it.
    delivery : {"exactly-once", "at-least-once"}
        Whether results cross workers after a checkpoint.
    replication : int
        Number of workers that may fail at once without loss.
    checkpoint_s : float
        Seconds between checkpoints.
    memory_mb : int, optional
        Memory limit of all processes of the job; exceeding it fails the job.
    resume_from : str, optional
        ID of an ended job, whose last checkpoint the flow resumes from.
    """

    flow: Label | None = None
    definition: Annotated[str, Field(min_length=1, max_length=64 << 10), KnownName()] | None = None
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    operator_workers: Annotated[dict[Label, Annotated[int, Field(ge=1, le=256)]], Field(max_length=256)] = {}
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    replication: Annotated[int, Field(ge=0, le=8)] = 1
    checkpoint_s: Annotated[float, Field(ge=0.1, le=86_400)] = 2.0
    memory_mb: Whole | None = None
    resume_from: Annotated[str, Field(min_length=1, max_length=40), KnownName()] | None = None

    @model_validator(mode="after")
    def _one_flow(self) -> FlowJob:
        if (self.flow is None) == (self.definition is None):
            raise ValueError("give either flow_name or flow_definition")
        if self.operator_workers and self.workers != 1:
            raise ValueError("give either workers or operator_workers")
        return self

    @property
    def processes(self) -> int:
        """Number of worker processes; at most one runs what no operator with a number precedes."""
        return sum(self.operator_workers.values()) + 1 if self.operator_workers else self.workers


class JobSpec(Definition, Marked):
    """Job specification: a graph job, a dataflow job, or a flow job.

    Attributes
    ----------
    graph, dataflow, flow
        The work; exactly one of the three.
    deadline_s : float, optional
        Deadline from the submission; a job that exceeds it fails.
    budget : float, optional
        Cost limit in the currency of the cloud; a job that exceeds it fails.
    labels : mapping
        Texts to search jobs by.
    most_attempts : int
        Number of lost workers after which the job fails.
    """

    graph: GraphJob | None = None
    dataflow: DataflowJob | None = None
    flow: FlowJob | None = None
    deadline_s: Positive | None = None
    budget: NotNegative | None = None
    labels: Annotated[
        dict[Label, Annotated[str, Field(max_length=240), KnownName()]], Field(max_length=MOST_LABELS)
    ] = {}
    most_attempts: Annotated[int, Field(ge=1, le=1000)] = 20

    @model_validator(mode="after")
    def _one_work(self) -> JobSpec:
        if sum(work is not None for work in (self.graph, self.dataflow, self.flow)) != 1:
            raise ValueError("give one of graph, dataflow and flow")
        return self

    @property
    def what(self) -> str:
        """Name of the algorithm, or ``dataflow`` or ``flow``."""
        if self.graph is not None:
            return self.graph.algorithm
        return "flow" if self.dataflow is None else "dataflow"

    @property
    def runner(self) -> str:
        """Name of the runner: that of a graph job, or ``dataflow`` or ``flow``."""
        return self.what if self.graph is None else self.graph.runner

    def as_json(self) -> dict[str, Any]:
        """Return the stored form; `JobSpec.model_validate` parses it."""
        return self.model_dump(mode="json", exclude_defaults=True)

"""What a client asks for. Checked before it is accepted; kept as JSON with the job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from goffish.cloud.catalogue import NotNegative, Positive
from goffish.definitions import Definition, KnownName, Marked, NamesFile
from goffish.scheduling.dataflow.model import Dataflow

#: How URIs of uploads begin.
UPLOAD = "upload:"
Label = Annotated[str, Field(min_length=1, max_length=120), KnownName()]
Whole = Annotated[int, Field(ge=1, le=1_000_000_000)]
#: Bytes of a job as it is kept.
MOST_BYTES = 256 << 10
#: Labels of a job.
MOST_LABELS = 32
#: Read by the models of algorithms and policies: which texts name files is said there.
Options = dict[Label, Annotated[str, Field(max_length=4000), KnownName()]]
Runner = Literal["local", "mpi", "spark", "cloud"]


class GraphJob(Definition, Marked):
    """An algorithm on a graph.

    Attributes
    ----------
    algorithm : str
        As in ``goffish run ALGORITHM``.
    input_uri : str
    options : mapping
        Of the algorithm, as texts.
    runner : {"local", "mpi", "spark", "cloud"}
    checkpoint_every : int
        Supersteps.
    workers : int
        Threads, or ranks of mpirun.
    memory_mb : int, optional
        Of all its processes together; more, and it fails.
    cpu_seconds : float, optional
        Of all its processes together in an attempt; more, and it fails.
    policy : {"rtba", "h1", "h2", "h3", "on-demand"}
        Who decides on machines of the simulated cloud.
    cloud_name : str
        Its catalogue.
    """

    algorithm: Label
    input_uri: Annotated[str, Field(min_length=1, max_length=2000), NamesFile()]
    options: Options = {}
    runner: Runner = "local"
    checkpoint_every: Whole = 1
    workers: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_mb: Whole | None = None
    cpu_seconds: Positive | None = None
    policy: Literal["rtba", "h1", "h2", "h3", "on-demand"] = "rtba"
    cloud_name: Label = "ec2-2015-spot"


class DataflowJob(Definition, Marked):
    """A dataflow that is deployed and adapted on the simulated cloud.

    Attributes
    ----------
    dataflow : Dataflow or str
        The name of one that comes along, or a definition.
    cloud_name, policy, options, rates, hours, seed
        As in ``goffish simulate``.
    hours_per_second : float, optional
        Hours of the dataflow that pass in a second; default: as fast as can be computed.
    """

    dataflow: Dataflow | Label
    cloud_name: Label = "ec2-2013-m1"
    policy: Label = "reactive-global"
    options: Options = {}
    rates: Label = "constant"
    hours: Positive | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    hours_per_second: Positive | None = None


class JobSpec(Definition, Marked):
    """A job: either a graph's or a dataflow's.

    Attributes
    ----------
    graph, dataflow
        What is to be done; one of the two.
    deadline_s : float, optional
        From the submission on; a job that is not over by then fails.
    budget : float, optional
        A job that costs more fails; in the currency of its cloud.
    labels : mapping
    most_attempts : int
        Attempts whose worker may be lost until it fails.
    """

    graph: GraphJob | None = None
    dataflow: DataflowJob | None = None
    deadline_s: Positive | None = None
    budget: NotNegative | None = None
    labels: Annotated[
        dict[Label, Annotated[str, Field(max_length=240), KnownName()]], Field(max_length=MOST_LABELS)
    ] = {}
    most_attempts: Annotated[int, Field(ge=1, le=1000)] = 20

    @model_validator(mode="after")
    def _one_work(self) -> JobSpec:
        if (self.graph is None) == (self.dataflow is None):
            raise ValueError("give either graph or dataflow")
        return self

    @property
    def what(self) -> str:
        """The algorithm, or ``dataflow``: by what jobs are listed."""
        return "dataflow" if self.graph is None else self.graph.algorithm

    def as_json(self) -> dict[str, Any]:
        """As it is kept; `JobSpec.model_validate` reads it again."""
        return self.model_dump(mode="json", exclude_defaults=True)

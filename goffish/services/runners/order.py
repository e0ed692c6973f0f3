"""Orders of graph-job workers, with files as paths resolved by the server, never as client-given texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from goffish.algorithms.catalogue import file_options
from goffish.errors import InputError
from goffish.services.runners.limits import JobLimits

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Algorithm
    from goffish.services.store.spec import GraphJob

Resolve = Callable[[str], str]


class Files(NamedTuple):
    """Files of a graph job.

    Attributes
    ----------
    input : str
        Path of the graph.
    options : dict of str
        Options of the algorithm, with file names replaced by paths.
    names : dict of str
        Client-given name of each path.
    """

    input: str
    options: dict[str, str]
    names: dict[str, str]

    @classmethod
    def of(cls, graph: GraphJob, resolve: Resolve) -> Files:
        """Resolve the input and every option that names a file.

        Parameters
        ----------
        graph : GraphJob
        resolve : callable
            Resolves a client-given URI to a path; raises `InputError` if it is not accessible.

        Raises
        ------
        InputError
            Names the field and the problem.
        """
        given = {name: uri for name in graph.files() if (uri := getattr(graph, name)) is not None}
        given |= {f"options.{one}": graph.options[one] for one in file_options(graph.algorithm) if one in graph.options}
        paths = {}
        for field, uri in given.items():
            try:
                paths[field] = resolve(uri)
            except InputError as error:
                raise InputError(f"{field}: {error}") from None
        options = {name: paths.get(f"options.{name}", value) for name, value in graph.options.items()}
        return cls(paths["input_uri"], options, {paths[field]: uri for field, uri in given.items()})


def as_named(text: str, names: Mapping[str, str]) -> str:
    """Replace paths of the server in a text by their client-given names."""
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text


def saves(made: Algorithm) -> bool:
    """Return whether an algorithm with its options writes checkpoints.

    Parameters
    ----------
    made : Algorithm
    """
    return not (made.in_memory or made.only_whole()) or made.resumes_whole()


def check_machines(graph: GraphJob, made: Algorithm) -> None:
    """Check that an algorithm with its options can run on the machines of a job.

    Parameters
    ----------
    graph : GraphJob
    made : Algorithm

    Raises
    ------
    InputError
        It runs in memory only, and there are several.
    """
    if graph.machines == 1:
        return
    if made.in_memory:
        raise InputError(f"machines: {graph.machines}; {graph.algorithm} runs in memory, on one machine")
    for name in made.only_whole():
        raise InputError(f"machines: {graph.machines}; the option {name} is supported in memory, on one machine")


def of_team(place: str, graph: GraphJob) -> dict[str, Any]:
    """Return what the order of ranks on several machines has beside that of `order_of`.

    Parameters
    ----------
    place : str
        Folder of the job in storage.
    graph : GraphJob
    """
    # The same partitions for teams of any size, so that each resumes from the checkpoints of the others.
    return {"checkpoints": f"{place}/checkpoints", "parts": graph.machines * graph.workers}


def order_of(graph: GraphJob, files: Files, limits: JobLimits) -> dict[str, Any]:
    """Return the order of a worker."""
    engine = "mpi" if graph.machines > 1 else graph.runner if graph.runner in ("mpi", "spark") else "local"
    return {
        "algorithm": graph.algorithm, **files._asdict(), "engine": engine,
        "threads": graph.workers if engine == "local" or graph.machines > 1 else 1,
        "checkpoint_every": graph.checkpoint_every, "limits": limits.order(graph),
    }  # fmt: skip

"""`run_series`: any application or program, over a stored time series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from goffish.algorithms.catalogue import describe_problems
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gofs.series import Series, as_series
from goffish.gopher.run import ENGINES
from goffish.graph.guards import whole_number
from goffish.temporal import run as engine_run
from goffish.temporal.options import APPLICATIONS, Application
from goffish.temporal.program import TimeSeriesProgram

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note
    from goffish.gopher.local import Progress
    from goffish.temporal.run import SeriesResult


#: What an answer from whole instances can heed.
_IN_MEMORY = {"start", "end", "engine", "threads", "progress", "temporal_parallelism"}


def run_series(
    application: str | TimeSeriesProgram,
    series: Series | PartitionedGraph | str | Path,
    *,
    start: Any = None,
    end: Any = None,
    given: Mapping[str, Any] | None = None,
    temporal_parallelism: int = 1,
    engine: str = "auto",
    threads: int | None = None,
    comm: Any = None,
    spark: Any = None,
    max_supersteps: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    progress: Progress | None = None,
    note: Note | None = None,
    **options: Any,
) -> SeriesResult:
    """Run an application by name, or a program of your own, over the instances of a store.

    Parameters
    ----------
    application : str or TimeSeriesProgram
        ``tdsp``, ``memes``, ``hashtags``, ``components``, ``pagerank``, ``vehicles``, ``communities``; or one of
        your own programs.
    series : Series, PartitionedGraph or path
        Of a store with a time series.
    start, end, given, temporal_parallelism
        See `goffish.temporal.run.run_series`.
    engine : {"auto", "local", "mpi", "spark"}
        ``auto`` answers ``components`` and ``pagerank`` from whole instances in memory, `threads` of them side by side
        (or `temporal_parallelism`, if that is given), unless the template is too large for that or the call asks
        for something that only engines have, such as checkpoints; in any other case it is ``local``.
    threads, comm, spark, max_supersteps, checkpoint_dir, checkpoint_every, resume, progress
        As for `goffish.run`.
    note : callable, optional
        Told how far work without supersteps is.
    **options
        Of the application, see ``goffish timeseries run APPLICATION --help``.

    Returns
    -------
    SeriesResult
        Its table has rows by vertex and timestep, or by vertex; ``timesteps`` one row per timestep.

    Raises
    ------
    InputError
        An unknown application, option or vertex; an attribute that the series does not have; a range outside the
        series.
    JobError
        A program failed; the message names sub-graph, timestep and superstep.
    """
    if engine not in ("auto", *ENGINES):
        raise InputError(f"engine={engine!r}: choose one of {', '.join(('auto', *ENGINES))}")
    opened, auto = as_series(series), engine == "auto"
    engine = "local" if auto else engine
    running: dict[str, Any] = {"start": start, "end": end, "engine": engine, "threads": threads, "progress": progress}
    more = {
        "given": given, "temporal_parallelism": temporal_parallelism, "comm": comm, "spark": spark,
        "max_supersteps": max_supersteps, "checkpoint_dir": checkpoint_dir, "checkpoint_every": checkpoint_every,
        "resume": resume,
    }  # fmt: skip
    usual = {"temporal_parallelism": 1, "checkpoint_every": 10, "resume": False}
    running |= {name: value for name, value in more.items() if value != usual.get(name)}
    if isinstance(application, TimeSeriesProgram):
        if options:
            raise InputError(f"unknown option {next(iter(options))!r}: a program has its options when it is made")
        return engine_run.run_series(application, opened, **running)
    made = make_application(application, options)
    if auto and running.keys() <= _IN_MEMORY:
        side_by_side = whole_number(temporal_parallelism, "temporal_parallelism", 1)
        whole = made.answer_in_memory(
            opened, start=start, end=end, side_by_side=side_by_side if side_by_side > 1 else threads, note=note
        )
        if whole is not None:
            return replace(whole, algorithm=made.name)
    _check_labels(made, opened.graph, engine, comm)
    found = made.answer(opened, running, note)
    return replace(found, algorithm=made.name)


def make_application(name: str, options: Mapping[str, Any]) -> Application:
    """The application `name` with checked options.

    Raises
    ------
    InputError
        Unknown application or option, or a value out of range; one line that says what is accepted.
    """
    model = APPLICATIONS.get(name) if isinstance(name, str) else None
    if model is None:
        raise InputError(f"unknown application {name!r}: choose one of {', '.join(APPLICATIONS)}")
    try:
        return model(**options)
    except ValidationError as error:
        raise InputError(f"{name}: {describe_problems(error, options, model.model_fields)}") from None


def _check_labels(made: Application, graph: PartitionedGraph, engine: str, comm: Any) -> None:
    """Refuse labels that are no vertices; on ranks each looks into its own partitions."""
    labels = made.labels()
    if engine != "mpi":
        for label in labels:
            graph.find(label)
    elif labels:
        from goffish.gopher.mpi.job import check_label, open_team

        with open_team(comm) as team:
            for label in labels:
                check_label(team, graph, label)

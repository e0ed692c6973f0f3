"""Run applications and programs over a stored time series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.algorithms.catalogue import ALGORITHMS, make
from goffish.algorithms.dispatch import RUN_OPTIONS
from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gofs.series import Series, as_series
from goffish.gopher.engine import ENGINES, RunOptions
from goffish.gopher.run import open_engine
from goffish.graph.guards import whole_number
from goffish.temporal import run as engine_run
from goffish.temporal.each_instance import run_each_instance
from goffish.temporal.instance_graph import graphs_of
from goffish.temporal.options import APPLICATIONS, Application
from goffish.temporal.program import TimeSeriesProgram

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note
    from goffish.temporal.run import SeriesResult


#: An answer from whole instances has no supersteps, and no ranks or executors to write it.
_RUN_OPTIONS = {field.name for field in fields(RunOptions)} - {"engine", "output"}
_USUAL = {"temporal_parallelism": 1}


def run_series(
    application: str | TimeSeriesProgram,
    series: Series | PartitionedGraph | str | Path,
    *,
    start: Any = None,
    end: Any = None,
    given: Mapping[str, Any] | None = None,
    temporal_parallelism: int = 1,
    engine: str = "auto",
    note: Note | None = None,
    **options: Any,
) -> SeriesResult:
    """Run an application or algorithm by name, or your own program, over the instances of a stored time series.

    Parameters
    ----------
    application : str or TimeSeriesProgram
        "tdsp", "temporal-paths", "temporal-triangles", "memes", "hashtags", "components", "pagerank", "vehicles" or
        "communities"; the name of any other algorithm of `goffish.run`, which runs on the graph of each instance; or an
        instance of your program.
    series : Series, PartitionedGraph, str or path-like
        A series, or the store that contains it.
    start, end : int, datetime or str, optional
        Run the instances that start at `start` or later and before `end`: numbers on the axis of the series, or dates
        and ISO 8601 strings [default: all].
    given : mapping of str to value, optional
        Message to every subgraph in superstep 1 of the first timestep; in the independent and eventually dependent
        patterns, of every timestep.
    temporal_parallelism : int
        Number of timesteps to run concurrently in those two patterns: by threads, groups of MPI ranks, or Spark jobs
        [default: 1]. The result does not depend on it.
    engine : {"auto", "local", "mpi", "spark"}
        "auto" computes "components" and "pagerank" on whole instances in memory, in parallel on `threads` (or
        `temporal_parallelism`) of them, unless the template is too large or an option requires an engine; otherwise it
        is "local". Algorithms of `goffish.run` run as they do on a `Graph`, or, on an engine, on a graph whose vertices
        are in their partitions of the store [default: "auto"].
    note : callable, optional
        Called with a line of text that reports the progress of work without supersteps.
    **options
        Options of the run, listed under Other Parameters, and of the application or algorithm; see ``goffish timeseries
        run APPLICATION --help`` and ``goffish run ALGORITHM --help``.

    Returns
    -------
    SeriesResult
        A `Result` with rows by vertex and timestep, or by vertex. `timesteps` has one row per timestep: ``timestep``,
        ``start``, ``end``, ``supersteps`` and the reports of the program. `summary` holds ``timesteps`` and, on an
        engine, ``supersteps``.

    Other Parameters
    ----------------
    threads, comm, spark, max_supersteps, checkpoint_dir, checkpoint_every, resume, progress : optional
        See `goffish.run`. Algorithms of `goffish.run` have no checkpoints here.
    edge_exists, vertex_exists : str, optional
        Of algorithms of `goffish.run`: boolean attributes that state existence [default: exists, if available]. Without
        `vertex_exists`, the vertices of an instance are those with edges in it.
    weight : str, optional
        Of algorithms of `goffish.run`: edge attribute with weights [default: weight, if available].

    Raises
    ------
    InputError
        If the application, an option, a vertex or an attribute is unknown, or the range is outside the series.
    StoreError
        If the store has no time series.
    JobError
        If a program fails; the message names subgraph, timestep and superstep.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
    >>> schema = SeriesSchema(edge=(Attribute("exists", "bool", default=True),))
    >>> days = [InstanceData(0, 1), InstanceData(1, 2, {"edge.exists": [True, False]})]
    >>> store = write_series(gf.from_edges([1, 2], [2, 3]), "days.store", schema, days, unit="1")
    >>> gf.run_series("components", store).timesteps.select(["timestep", "components"]).to_pydict()
    {'timestep': [0, 1], 'components': [1, 2]}
    >>> gf.run_series("triangles", store, engine="local").table.column_names
    ['timestep', 'vertex', 'triangles']
    """
    if engine not in ("auto", *ENGINES):
        raise InputError(f"engine={engine!r}: choose one of {', '.join(('auto', *ENGINES))}")
    opened, auto = as_series(series), engine == "auto"
    if isinstance(application, str) and application not in APPLICATIONS and application in ALGORITHMS:
        side_by_side = whole_number(temporal_parallelism, "temporal_parallelism", 1)
        given_to_run = {name: options.pop(name) for name in RUN_OPTIONS & options.keys()} | {"given": given}
        graphs = graphs_of(opened, *(options.pop(name, None) for name in ("edge_exists", "vertex_exists", "weight")))
        return run_each_instance(
            make(application, options), graphs, engine=engine, start=start, end=end, side_by_side=side_by_side,
            note=note, running=given_to_run,
        )  # fmt: skip
    running = {name: options.pop(name) for name in _RUN_OPTIONS & options.keys()}
    asked = RunOptions(engine="local" if auto else engine, **running)
    over = {"start": start, "end": end, "given": given, "temporal_parallelism": temporal_parallelism}
    over = {name: value for name, value in over.items() if value != _USUAL.get(name)}
    if isinstance(application, TimeSeriesProgram):
        if options:
            raise InputError(f"unknown option {next(iter(options))!r}: pass options to the constructor of the program")
        return engine_run.run_series(application, opened, options=asked, **over)
    made = make_application(application, options)
    if auto and "given" not in over and asked == RunOptions(threads=asked.threads, progress=asked.progress):
        side_by_side = whole_number(temporal_parallelism, "temporal_parallelism", 1)
        whole = made.answer_in_memory(
            opened, start=start, end=end, side_by_side=side_by_side if side_by_side > 1 else asked.threads, note=note
        )
        if whole is not None:
            return replace(whole, algorithm=made.name)
    if labels := made.labels():
        with open_engine(asked) as opened_engine:
            for label in labels:
                opened_engine.check_label(opened.graph, label)
    found = made.answer(opened, {**over, "options": asked}, note)
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
        raise InputError(
            f"unknown application {name!r}: choose one of {', '.join(APPLICATIONS)}, or an algorithm of goffish run"
        )
    return model.checked(**options)

"""`run_series`: any application or program, over a stored time series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError
from goffish.gofs import PartitionedGraph
from goffish.gofs.series import Series, as_series
from goffish.gopher.engine import ENGINES, RunOptions
from goffish.gopher.run import open_engine
from goffish.graph.guards import whole_number
from goffish.temporal import run as engine_run
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
    note : callable, optional
        Called with a line of text on how far work without supersteps is.
    **options
        ``threads``, ``comm``, ``spark``, ``max_supersteps``, ``checkpoint_dir``, ``checkpoint_every``, ``resume`` and
        ``progress`` as of `goffish.gopher.RunOptions`; all others are the application's, see ``goffish timeseries run
        APPLICATION --help``.

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
        A program failed; the message names subgraph, timestep and superstep.
    """
    if engine not in ("auto", *ENGINES):
        raise InputError(f"engine={engine!r}: choose one of {', '.join(('auto', *ENGINES))}")
    opened, auto = as_series(series), engine == "auto"
    running = {name: options.pop(name) for name in _RUN_OPTIONS & options.keys()}
    asked = RunOptions(engine="local" if auto else engine, **running)
    over = {"start": start, "end": end, "given": given, "temporal_parallelism": temporal_parallelism}
    over = {name: value for name, value in over.items() if value != _USUAL.get(name)}
    if isinstance(application, TimeSeriesProgram):
        if options:
            raise InputError(f"unknown option {next(iter(options))!r}: a program has its options when it is made")
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
        raise InputError(f"unknown application {name!r}: choose one of {', '.join(APPLICATIONS)}")
    return model.checked(**options)

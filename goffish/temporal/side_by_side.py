"""Temporal parallelism: several timesteps at a time, of programs whose timesteps do not need each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa

from goffish.errors import GoffishError, InputError
from goffish.gopher import Result, RunOptions
from goffish.gopher.run import run_with
from goffish.temporal.program import TimeSeriesProgram
from goffish.temporal.timeline import Timeline
from goffish.temporal.values import SeriesValues


def check_side_by_side(program: TimeSeriesProgram, options: RunOptions) -> None:
    """Refuse what cannot be run side by side."""
    if program.pattern == "sequential":
        raise InputError(f"temporal_parallelism: {program.name()} is sequential; omit temporal_parallelism")
    if options.checkpoint_dir is not None:
        raise InputError("temporal_parallelism: checkpoints require temporal_parallelism=1")


def run_side_by_side(
    program: TimeSeriesProgram,
    values: SeriesValues,
    numbers: Sequence[int],
    given: Mapping[str, Any] | None,
    count: int,
    options: RunOptions,
) -> Result:
    """Several runs at a time, each of every `count`-th timestep; then the merge of what they hand over.

    Threads of this process start them: with their own share of its threads, or as jobs of one Spark session. On ranks,
    groups of them do it, as many as there are ranks at most.
    """
    merges = program.pattern == "eventual"
    threads = options.threads
    each = replace(options, threads=None if threads is None else max(1, threads // count), progress=None)

    def run(first: int, step: int, **more: Any) -> Result:
        own = SeriesValues(values.series, values.names)
        timeline = Timeline(program, own, numbers[first::step], given=given, hands_over=merges)
        return run_with(timeline, values.series.graph, replace(each, **more))

    if options.engine == "mpi":
        found = _on_groups(run, options.comm, count)
    else:
        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(lambda first: run(first, count), range(count)))
    stats = [result.stats for result in found if result.stats is not None]
    aggregates = {name: value for one in stats for name, value in one.aggregates.items()}
    supersteps = sum(one.supersteps for one in stats)
    table = pa.concat_tables(result.table for result in found)
    if not merges:
        together = replace(stats[0], aggregates=aggregates, supersteps=supersteps)
        return Result(program.name(), table, {}, together if _speaks(options) else None)
    handed = {name: table[name].to_numpy() for name in table.column_names}
    last = run_with(
        Timeline(program, values, [], merges=True, handed=handed, whole=numbers), values.series.graph, options
    )
    if last.stats is None:
        return last
    together = replace(
        last.stats, aggregates={**aggregates, **last.stats.aggregates}, supersteps=supersteps + last.stats.supersteps
    )
    return replace(last, stats=together)


def _speaks(options: RunOptions) -> bool:
    """Whether this process gives the answer."""
    return bool(options.engine != "mpi" or _world(options.comm).Get_rank() == 0)


def _world(comm: Any) -> Any:
    from goffish.gopher.mpi.team import load_mpi

    return load_mpi().COMM_WORLD if comm is None else comm


def _on_groups(run: Any, comm: Any, count: int) -> list[Result]:
    """What each group of ranks found, on all ranks; a job that failed in one group fails on all of them."""
    world = _world(comm)
    groups = min(count, world.Get_size())
    mine = world.Get_rank() % groups
    team = world.Split(mine, world.Get_rank())
    found, error = None, None
    try:
        result = run(mine, groups, comm=team)
        found = result if team.Get_rank() == 0 else None
    except GoffishError as failed:
        error = (type(failed), str(failed))
    finally:
        team.Free()
    gathered = world.allgather((mine, found, error))
    for _, _, failure in gathered:
        if failure is not None:
            raise failure[0](failure[1])
    return [one for _, one, _ in sorted(gathered, key=lambda entry: entry[0]) if one is not None]

"""A time series from snapshots: one edge list for every instance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError
from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, SparseColumn
from goffish.gofs.series.model import Unit, moment, moment_text
from goffish.graph import Graph, from_edges, read
from goffish.graph.guards import options_of
from goffish.temporal.building import EdgeFinder, SeriesBuild, StoreOptions, TimeUnit, at, ends_of, length, unit_of


def build_from_snapshots(
    snapshots: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    pattern: str | None = None,
    time_format: str | None = None,
    start: Any = None,
    period: Any = None,
    time_unit: TimeUnit | None = None,
    directed: bool = False,
    **more: Any,
) -> SeriesBuild:
    """Write a store with a time series made of one edge list for every instance.

    Parameters
    ----------
    snapshots : path or sequence of paths
        A folder, all of whose files (but hidden ones) are snapshots, or the files. Each is read twice.
    path
        The store: local folder or fsspec URI.
    pattern : str, optional
        Regular expression that finds the time in the name of a file, as its group ``time`` or its first group. Without
        it the instances follow each other in the order of the names (of a sequence: as given).
    time_format : str, optional
        How the time is written, such as ``%Y-%m-%d`` (see `datetime.strptime`; UTC unless it says otherwise); default:
        as a whole number in `time_unit`.
    start : moment, optional
        Where the first instance begins, without `pattern`; default 0.
    period : int, timedelta or str, optional
        Length of every instance: a number in `time_unit`, or such as ``1h``, ``7d``. By default an instance ends where
        the next one begins (without `pattern`: after 1).
    time_unit : {"s", "ms", "us", "1"}, optional
        Of times that are numbers. ``"1"`` is a series without a calendar, and the default unless there is a
        `time_format`.
    directed
        As for `goffish.read`.
    **more
        As of `goffish.temporal.building.StoreOptions`; `goffish.read` gets all others.

    Returns
    -------
    SeriesBuild
        The template is the union of all edges; ``edge.exists`` says which are in a snapshot, and ``edge.weight`` their
        weights where all snapshots with edges have weights.

    Raises
    ------
    InputError
        No files, a file without a time in its name, two with the same, instances that overlap, a bad file.
    """
    options = dict(more)
    writing = options_of(
        StoreOptions, {field.name: options.pop(field.name) for field in fields(StoreOptions) if field.name in options}
    )
    files, starts, ends, unit = timed_files(snapshots, pattern, time_format, start, period, time_unit)
    options = {"directed": directed, **options}
    graph, weighted = union_of(files, options)
    own = (Attribute("weight", "float64"),) if weighted else ()
    schema = SeriesSchema(edge=(Attribute("exists", "bool", False), *own))

    data = instances_of_files(files, starts, ends, options, EdgeFinder(graph).find, weighted=weighted)
    return writing.write(graph, path, schema, data, unit, ())


def instances_of_files(
    files: list[Path],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    options: dict[str, Any],
    find: Callable[[Any, Any, str], NDArray[np.int64]],
    *,
    weighted: bool,
) -> Iterator[InstanceData]:
    """An instance of each file; `find` gives the numbers of edges from the labels of their ends."""
    for file, first, last in zip(files, starts.tolist(), ends.tolist(), strict=True):
        snapshot = _read(file, options)
        u, v, weights, _ = snapshot.edge_columns()
        labels = snapshot.label_column()
        edges = find(labels.take(pa.array(u)), labels.take(pa.array(v)), f"{file}: ")
        values = {"edge.exists": SparseColumn(edges, np.ones(edges.size, np.bool_))}
        if weighted:
            values["edge.weight"] = SparseColumn(edges, np.empty(0) if weights is None else weights)
        yield InstanceData(first, last, values)


def timed_files(
    snapshots: str | Path | Sequence[str | Path],
    pattern: str | None,
    time_format: str | None,
    start: Any,
    period: Any,
    time_unit: TimeUnit | None,
) -> tuple[list[Path], NDArray[np.int64], NDArray[np.int64], Unit]:
    """Files in the order of time, when their instances begin and end, and the axis; as of `build_from_snapshots`."""
    files = _files(snapshots)
    time_unit = time_unit or ("us" if time_format is not None else "1")
    unit = unit_of(time_unit)
    if time_format is not None and unit == "1":
        raise InputError(
            f'time_format={time_format!r}: dates require a calendar; set time_unit to "s", "ms" or "us", or omit it'
        )
    step = None if period is None else length(period, time_unit, "period")
    if pattern is None:
        if time_format is not None:
            raise InputError(f"time_format={time_format!r}: requires pattern, which finds the time in a file name")
        begin = 0 if start is None else at(start, time_unit, "start")
        starts = begin + (step or length(1, time_unit, "period")) * np.arange(len(files), dtype=np.int64)
        ends = starts + (step or length(1, time_unit, "period"))
    else:
        if start is not None:
            raise InputError("start and pattern are mutually exclusive: file names state when instances start")
        times = [_time(file, pattern, time_format, time_unit) for file in files]
        order = np.argsort(times, kind="stable")
        files, starts = [files[i] for i in order], np.array(times, np.int64)[order]
        twice = np.flatnonzero(np.diff(starts) == 0)
        if twice.size:
            first, second = (files[int(twice[0]) + j].name for j in (0, 1))
            raise InputError(f"{first} and {second} have the same time, {moment_text(int(starts[twice[0]]), unit)}")
        ends = ends_of(starts, step)
        _check_ends(files, starts, ends, unit)
    return files, starts, ends, unit


def _files(snapshots: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(snapshots, str | Path):
        files = [Path(file) for file in snapshots]
    else:
        folder = Path(snapshots)
        if not folder.is_dir():
            raise InputError(f"{folder}: not a folder; expected a folder of snapshots or a list of files")
        files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
        if not files:
            raise InputError(f"{folder}: the folder is empty; expected edge lists")
    if not files:
        raise InputError("no snapshots; expected a folder or a list of files")
    return files


def _time(file: Path, pattern: str, time_format: str | None, time_unit: str) -> int:
    try:
        found = re.search(pattern, file.name)
        if found is None:
            raise InputError(f"{file}: pattern {pattern!r} does not match the file name")
        text = found["time"] if "time" in found.groupdict() else found[1]
    except (re.error, IndexError) as error:
        raise InputError(
            f"pattern={pattern!r}: expected a regular expression with a group for the time ({error})"
        ) from None
    try:
        if time_format is None:
            return at(int(text), time_unit, "time")
        value = datetime.strptime(text, time_format)
        return moment(value if value.tzinfo else value.replace(tzinfo=UTC), "us")
    except (ValueError, TypeError):
        accepted = "an integer" if time_format is None else f"a time of the form {time_format}"
        raise InputError(f"{file}: {text!r} in the file name is not {accepted}") from None


def _check_ends(files: list[Path], starts: Any, ends: Any, unit: Unit) -> None:
    late = np.flatnonzero(ends[:-1] > starts[1:])
    if late.size:
        i = int(late[0])
        begins = f"{files[i + 1].name} begins ({moment_text(int(starts[i + 1]), unit)})"
        when = f"ends at {moment_text(int(ends[i]), unit)}, after {begins}"
        raise InputError(f"period: {files[i].name} {when}; use a shorter period or omit it")


def _read(file: Path, options: dict[str, Any]) -> Graph:
    """A snapshot; one without edges is an empty graph, where a graph alone would be a mistake."""
    try:
        return read(file, **options)
    except FormatError as error:
        if not error.problem.startswith("no edges found"):
            raise
        return from_edges([], [], directed=bool(options["directed"]))


def union_of(files: list[Path], options: dict[str, Any]) -> tuple[Graph, bool]:
    """All edges of all snapshots, and whether they have weights."""
    sources: list[pa.Array] = []
    targets: list[pa.Array] = []
    alone: list[pa.Array] = []
    weighted, pending, known = [], 0, 0
    kinds: dict[str, Path] = {}
    directed = bool(options["directed"])
    for file in files:
        graph = _read(file, options)
        u, v, weights, _ = graph.edge_columns()
        labels = graph.label_column()
        if len(labels):
            kinds.setdefault(str(labels.type), file)
        if len(kinds) > 1:
            (first, one), (second, other) = kinds.items()
            raise InputError(f"{other}: its vertices are of type {second}, those of {one} of type {first}")
        if u.size:
            weighted.append(weights is not None)
            sources.append(labels.take(pa.array(u)))
            targets.append(labels.take(pa.array(v)))
        if len(labels):
            alone.append(labels)
        pending += u.size
        # Merged when as much has come as is known, so that every edge is handled a few times only.
        if pending > known:
            union = _merge(sources, targets, alone, directed)
            first_ends, second_ends, _, _ = union.edge_columns()
            names = union.label_column()
            sources, targets = [names.take(pa.array(first_ends))], [names.take(pa.array(second_ends))]
            alone, known, pending = [names], first_ends.size, 0
    return _merge(sources, targets, alone, directed), bool(weighted) and all(weighted)


def _merge(sources: list[pa.Array], targets: list[pa.Array], alone: list[pa.Array], directed: bool) -> Graph:
    columns = [pa.concat_arrays(c) if c else np.empty(0, np.int64) for c in (sources, targets, alone)]
    if alone and not sources:
        columns[:2] = [columns[2][:0]] * 2
    return from_edges(*columns[:2], directed=directed, isolated=columns[2], parallel="first", self_loops="keep")

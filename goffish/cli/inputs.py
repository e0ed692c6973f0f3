"""Input loading with progress display: raw graph files and stores."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note
    from goffish.gofs import PartitionedGraph
    from goffish.gopher.engine import Progress
    from goffish.graph import Graph


@contextmanager
def progress_bar(title: str, *, unit_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar on standard error if it is a terminal; yield ``update(done, total)``."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    amount = DownloadColumn() if unit_bytes else MofNCompleteColumn()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def working(title: str) -> Iterator[None]:
    """Show a status line on standard error if it is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(title):
        yield


@contextmanager
def run_status(title: str) -> Iterator[tuple[Progress, Note]]:
    """Show the progress of a run on standard error; yield callbacks for the engine and for in-memory kernels."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield (lambda number, active, messages, share: None), (lambda text: None)
        return
    from goffish.algorithms.timing import Remaining

    remaining = Remaining()
    with console.status(title) as status:

        def superstep(number: int, active: int, messages: int, share: float | None) -> None:
            done = "" if share is None else f", {100.0 * share:.1f} % done{remaining(share, 1.0)}"
            status.update(f"{title}: superstep {number}, {active:,} subgraphs, {messages:,} messages{done}")

        yield superstep, (lambda text: status.update(f"{title}: {text}"))


def is_store(path: str) -> bool:
    """Return whether INPUT names a store (a folder or URI with a manifest) rather than a raw file."""
    if "://" not in path and not Path(path).is_dir():
        return False
    from goffish.gofs import is_store as has_manifest

    return has_manifest(path)


class _Missing:
    """Finder of modules that finds no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _leave_out_pandas() -> None:
    """Keep Arrow from importing pandas with its first array, which would take a tenth of a small job.

    Arrow tries once, and again where pandas is needed, as in `to_pandas`.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Missing)
        try:
            pa.array([])
        finally:
            sys.meta_path.remove(_Missing)


def load(path: str, reading: dict[str, Any]) -> Graph | PartitionedGraph:
    """Open a store or read a raw file; reject reading options for a store."""
    _leave_out_pandas()
    if is_store(path):
        given = [name for name, value in reading.items() if value is not None]
        if given:
            raise InputError(f"--{given[0].replace('_', '-')} applies to raw files only; {path} is a store")
        from goffish.gofs import open_store

        return open_store(path)
    from goffish.graph.io import read

    options = {name: value for name, value in reading.items() if value is not None}
    with progress_bar(f"reading {Path(path).name}", unit_bytes=True) as update:
        return read(path, progress=update, **options)


def duration(unit: str, least: float = 0.0) -> dict[str, Any]:
    """Return the parser of an option for ``typer.Option``: a number of a unit, or a duration such as 90s, 30m or 2h.

    Parameters
    ----------
    unit : {"s", "m", "h"}
        Unit of plain numbers, and of the parsed value.
    least : float
    """

    def parse(given: str | float) -> float:
        import typer

        from goffish.definitions import duration_s

        try:
            found = float(given)
        except ValueError:
            seconds, one = duration_s(str(given)), duration_s("1", unit)
            found = float("nan") if seconds is None or one is None else seconds / one
        if not least <= found < float("inf"):
            name = {"s": "seconds", "m": "minutes", "h": "hours"}[unit]
            limit = f"of at least {least:g} {name}" if least else f"or a number of {name}"
            raise typer.BadParameter(f"must be a duration such as 90s, 30m, 2h or 1.5d, {limit}, not {given!r}")
        return found

    return {"parser": parse, "metavar": "DURATION"}


def period(since: str | None, until: str | None) -> tuple[float | None, float | None]:
    """Parse ``--since`` and ``--until`` into seconds since 1970."""
    begin, end = moment(since, "--since"), moment(until, "--until")
    if begin is not None and end is not None and begin >= end:
        raise InputError(f"--since {since} must be before --until {until}")
    return begin, end


def moment(day: str | None, option: str) -> float | None:
    """Parse a date or time option into seconds since 1970."""
    from goffish.cloud.prices import seconds_of

    if day is None:
        return None
    try:
        return seconds_of(day)
    except ValueError:
        raise InputError(f"{option} {day}: give a date or time such as 2015-06-01T12:00") from None

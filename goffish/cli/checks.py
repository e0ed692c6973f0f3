"""Validation of command-line arguments before any work starts."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goffish.errors import InputError
from goffish.partial import check_output, is_uri, local_path

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Algorithm


def check_choice(option: str, value: str | None, choices: Collection[str]) -> None:
    """Reject a value that is not among `choices`."""
    if value is not None and value not in choices:
        raise InputError(f"--{option} {value!r}: choose one of {', '.join(choices)}")


def check_graph_target(output: str) -> None:
    """Reject a graph file that cannot be written."""
    from goffish.graph.io.sniff import format_of_name
    from goffish.graph.io.writer import check_writable

    check_writable(format_of_name(output, "auto"), output)
    check_output(output)


def check_result_target(output: str, path: str) -> None:
    """Reject a result file that cannot be written or would overwrite the graph."""
    from goffish.gopher.result import check_suffix

    target = check_suffix(output)
    if isinstance(target, str):
        same = target == path
    else:
        same = target.exists() and Path(path).exists() and target.samefile(path)
    if same:
        raise InputError(f"{output}: is the input graph; write the result to another file")


def check_parts_target(output: str, engine: str) -> None:
    """Reject a result folder that cannot be written."""
    from goffish.gopher.folder import check_folder

    if engine not in ("mpi", "spark"):
        accepted = "is a directory; name a file in it, or use --engine mpi or spark to write one part per worker"
        raise InputError(f"{output}: {accepted}")
    check_folder(output)


def check_stats_target(stats_file: str) -> None:
    """Reject a counters file that cannot be written."""
    check_output(stats_file, (".json",))


def check_run(algorithm: type[Algorithm], running: dict[str, Any], options: dict[str, Any], *, store: bool) -> None:
    """Validate every option of ``goffish run`` that does not depend on the graph."""
    from goffish.algorithms.catalogue import make
    from goffish.algorithms.dispatch import UNITS
    from goffish.gopher.engine import ENGINES
    from goffish.partition.options import check_options

    make(algorithm.name, options)
    check_choice("engine", running["engine"], ("auto", *ENGINES))
    check_choice("units", running["units"], UNITS)
    if running["method"] is not None:
        if store:
            raise InputError("--method applies to raw files only; the store is already partitioned")
        check_options(running["method"], {})
    folder = running["checkpoint_dir"]
    if folder is None:
        for option in ("resume", "checkpoint_every"):
            if running[option]:
                raise InputError(f"--{option.replace('_', '-')} requires --checkpoint-dir")
    else:
        check_checkpoint_dir(folder)


def check_checkpoint_dir(folder: str) -> None:
    """Reject a checkpoint folder that cannot be written."""
    if is_uri(folder):
        from goffish.gofs.files import open_folder

        open_folder(folder)
        return
    place = local_path(folder)
    if place.exists() and not place.is_dir():
        raise InputError(f"--checkpoint-dir {folder}: is a file; give a folder")


def name_values(given: list[str] | None, option: str) -> dict[str, str]:
    """Parse repeated ``NAME=VALUE`` options into a dictionary.

    Raises
    ------
    InputError
    """
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: give NAME=VALUE")
        found[name] = value
    return found

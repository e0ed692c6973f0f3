"""``goffish run ALGORITHM``: one command per algorithm, made from its option model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import typer

from goffish.algorithms.catalogue import ALGORITHMS, Algorithm
from goffish.cli.flags import apply_signature, field_parameter, parameter
from goffish.cli.inputs import as_label, load, superstep_status
from goffish.cli.options import input_argument, json_option, reading_options, reading_parameters
from goffish.cli.output import print_json, print_result, print_stats


def _running_parameters() -> list[Any]:
    options: dict[str, tuple[Any, Any]] = {
        "engine": (
            str,
            typer.Option("auto", help="auto: the fastest for a raw file; local: the engine, in threads."),
        ),
        "parts": (int | None, typer.Option(None, help="Partition a raw file into so many parts first.")),
        "method": (str, typer.Option("metis", help="How to partition: metis, hash, range, ldg or fennel.")),
        "units": (
            str | None,
            typer.Option(None, help="Unit of computation: components (sub-graphs), single (partitions), vertex."),
        ),
        "threads": (int | None, typer.Option(None, help="Default: all processors.")),
        "max_supersteps": (int | None, typer.Option(None, help="Fail when not finished by then.")),
        "checkpoint_dir": (str | None, typer.Option(None, help="Write checkpoints into this folder.")),
        "checkpoint_every": (int, typer.Option(10, help="Supersteps between checkpoints.")),
        "resume": (bool, typer.Option(False, "--resume", help="Go on from the newest checkpoint.")),
    }
    return [parameter(name, kind, option) for name, (kind, option) in options.items()]


def add_commands(app: typer.Typer) -> None:
    """Add one command for each algorithm to `app`."""
    for algorithm in ALGORITHMS.values():
        app.command(algorithm.name, help=algorithm.title)(_command(algorithm))


def _command(algorithm: type[Algorithm]) -> Callable[..., None]:
    made = {name: field_parameter(name, field) for name, field in algorithm.model_fields.items()}
    own = {name: option for name, option in made.items() if option is not None}

    def command(**given: Any) -> None:
        options = {name: given.pop(name) for name in own}
        reading = reading_options(given)
        _run(algorithm, given.pop("input"), given.pop("output"), reading, options, **given)

    output = typer.Option(None, "-o", "--output", help="Table file: .parquet, .csv, .json or .arrow.")
    apply_signature(
        command,
        [
            input_argument(),
            *own.values(),
            parameter("output", str | None, output),
            *_running_parameters(),
            *reading_parameters(),
            parameter("stats", bool, typer.Option(False, "--stats", help="Show the engine's counters.")),
            json_option(),
        ],
    )
    return command


def _run(
    algorithm: type[Algorithm],
    path: str,
    output: str | None,
    reading: dict[str, Any],
    options: dict[str, Any],
    *,
    stats: bool,
    json: bool,
    **running: Any,
) -> None:
    if output is not None:
        from goffish.gopher.result import check_suffix

        check_suffix(output)
    begun = time.perf_counter()
    graph = load(path, reading)
    from goffish.algorithms.run import run

    if "source" in options:
        options["source"] = as_label(options["source"], graph)
    if stats and running["engine"] == "auto":
        running["engine"] = "local"
    with superstep_status(algorithm.name) as progress:
        result = run(algorithm.name, graph, progress=progress, **running, **options)
    saved = None if output is None else str(result.write(output))
    seconds = time.perf_counter() - begun
    if json:
        body: dict[str, Any] = {
            "algorithm": result.algorithm, "input": path, "seconds": seconds, "summary": dict(result.summary),
            "output": saved, "stats": None if result.stats is None else result.stats.to_dict(),
        }  # fmt: skip
        if saved is None:
            body["rows"] = result.table.to_pylist()
        print_json(body)
        return
    print_result(result, seconds, saved)
    if stats and result.stats is not None:
        print_stats(result.stats)

"""``goffish timeseries run APPLICATION``: one command per application, generated from its option model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import typer

from goffish.cli.checks import check_checkpoint_dir, check_choice, check_result_target
from goffish.cli.mpi import joined
from goffish.cli.options import (
    ALL_CORES,
    CHECKPOINT_DIR,
    CHECKPOINT_EVERY,
    MAX_SUPERSTEPS,
    RESUME,
    SERIES_STORE,
    TABLE_FILE,
    THREADS,
    apply_signature,
    field_parameter,
    json_option,
    parameter,
)
from goffish.temporal.options import APPLICATIONS, Application

if TYPE_CHECKING:
    from goffish.temporal.run import SeriesResult


def add_series_runs(runs: typer.Typer) -> None:
    """Add one command for each application."""
    for application in APPLICATIONS.values():
        runs.command(application.name, help=application.title)(_command(application))


def _running_parameters() -> list[Any]:
    group = "Engine"

    def option(kind: Any, default: Any, *names: str, text: str, **more: Any) -> tuple[Any, Any]:
        return kind, typer.Option(default, *names, help=text, rich_help_panel=group, **more)

    options = {
        "start": option(str | None, None, text="First instance: a date or a number."),
        "end": option(str | None, None, text="End of the instances (exclusive): a date or a number."),
        "engine": option(
            str,
            "auto",
            text="Engine: auto (fastest), local (threads), mpi (MPI ranks) or spark (Spark cluster).",
        ),
        "threads": option(int | None, None, text=THREADS, min=1, show_default=ALL_CORES),
        "temporal_parallelism": option(
            int, 1, text="Number of timesteps computed in parallel, for applications with independent timesteps.", min=1
        ),
        "max_supersteps": option(int | None, None, text=MAX_SUPERSTEPS, min=1, show_default="unlimited"),
        "checkpoint_dir": option(str | None, None, text=CHECKPOINT_DIR, show_default="no checkpoints"),
        "checkpoint_every": option(int | None, None, text=CHECKPOINT_EVERY, min=1, show_default="10"),
        "resume": option(bool, False, "--resume", text=RESUME),
    }
    return [parameter(name, kind, made) for name, (kind, made) in options.items()]


def _command(application: type[Application]) -> Callable[..., None]:
    made = {name: field_parameter(name, field) for name, field in application.model_fields.items()}
    own = {name: option for name, option in made.items() if option is not None}

    def command(**given: Any) -> None:
        options = {name: given.pop(name) for name in own}
        _run(application, given.pop("store"), given.pop("output"), given.pop("timesteps"), given.pop("json"), options,
             given)  # fmt: skip

    apply_signature(
        command,
        [
            parameter("store", str, typer.Argument(..., metavar="STORE", help=SERIES_STORE)),
            *own.values(),
            parameter("output", str | None, typer.Option(None, "-o", "--output", help=TABLE_FILE)),
            parameter(
                "timesteps", str | None, typer.Option(None, metavar="FILE", help="Table file for one row per timestep.")
            ),
            json_option(),
            *_running_parameters(),
        ],
    )
    return command


def _run(
    application: type[Application],
    store: str,
    output: str | None,
    timesteps: str | None,
    json: bool,
    options: dict[str, Any],
    running: dict[str, Any],
) -> None:
    from goffish.algorithms.algorithm import as_label
    from goffish.cli.inputs import run_status
    from goffish.gofs.series import open_series
    from goffish.gopher import Result
    from goffish.gopher.engine import ENGINES
    from goffish.temporal.api import make_application, run_series

    with joined(running["engine"] == "mpi") as ranks:
        begun = time.perf_counter()
        with ranks.together("options"):
            check_choice("engine", running["engine"], ("auto", *ENGINES))
            for target in (output, timesteps):
                if target is not None:
                    check_result_target(target, store)
            if running["checkpoint_dir"] is not None:
                check_checkpoint_dir(running["checkpoint_dir"])
            make_application(application.name, options)
        with ranks.together("loading"):
            series = open_series(store)
            for name in ("source", "last_seen"):
                if name in options:
                    options[name] = as_label(options[name], series.graph)
            if options.get("sources") is not None:
                options["sources"] = [as_label(text.strip(), series.graph) for text in options["sources"].split(",")]
            for name in ("start", "end"):
                running[name] = _moment(running[name])
        with run_status(application.name) if ranks.first else nullcontext((None, None)) as (progress, note):
            found = run_series(application.name, series, progress=progress, note=note, **running, **options)
        with ranks.together("output"):
            if not ranks.first:
                return
            saved = None if output is None else str(found.write(output))
            if timesteps is not None:
                Result(found.algorithm, found.timesteps).write(timesteps)
        _print(found, store, time.perf_counter() - begun, saved, timesteps, json)


def _moment(text: str | None) -> Any:
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def _print(
    found: SeriesResult, store: str, seconds: float, saved: str | None, timesteps: str | None, json: bool
) -> None:
    from goffish.cli.output import print_json, print_result, print_table, say

    if json:
        body = {"application": found.algorithm, "store": store, "summary": dict(found.summary), "seconds": seconds}
        rows = {"rows": found.table.to_pylist()} if saved is None else {}
        body["notes"] = list(found.notes)
        print_json({**body, "timesteps": found.timesteps.to_pylist(), "output": saved, **rows})
        return
    print_result(found, f"{found.algorithm} of {store}: {seconds:.2f} s", saved)
    shown = found.timesteps.slice(0, 12)
    columns = (column.to_pylist() for column in shown.columns)
    say("")
    print_table("timesteps", shown.column_names, zip(*columns, strict=True))
    if found.timesteps.num_rows > shown.num_rows:
        say(f"  … and {found.timesteps.num_rows - shown.num_rows:,} more (write all with --timesteps FILE or --json)")
    for note in found.notes:
        say(f"note: {note}")
    if timesteps is not None:
        say(f"timesteps written to {timesteps}")

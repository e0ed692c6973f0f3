"""``goffish timeseries run NAME``: one command per application and algorithm, generated from its option model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import typer

from goffish.algorithms.algorithm import Algorithm, Options, as_label
from goffish.algorithms.catalogue import ALGORITHMS
from goffish.cli.checks import check_checkpoint_dir, check_choice, check_result_target
from goffish.cli.groups import LazyCommands
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
from goffish.temporal.options import APPLICATIONS

if TYPE_CHECKING:
    from goffish.temporal.run import SeriesResult


#: Where the help lists algorithms.
_PANEL = "Algorithms of goffish run, on the graph of each instance"
#: Which attributes make the graph of an instance; options of `run_series` for algorithms.
_ATTRIBUTES = {
    "edge_exists": "Boolean edge attribute that states existence [default: exists, if available].",
    "vertex_exists": "Boolean vertex attribute that states existence [default: exists, or else vertices with edges].",
    "weight": "Edge attribute with weights [default: weight, if available].",
}


class _Applications(LazyCommands):
    """The applications, and the algorithms on the graph of each instance."""

    noun = "application"

    def names(self) -> list[str]:
        return [*APPLICATIONS, *(name for name in ALGORITHMS if name not in APPLICATIONS)]

    def make(self, name: str) -> Any:
        model, panel = (APPLICATIONS[name], None) if name in APPLICATIONS else (ALGORITHMS[name], _PANEL)
        app = typer.Typer(add_completion=False)
        app.command(name, help=model.title, rich_help_panel=panel)(_command(model))
        return typer.main.get_command(app)


def add_series_runs(series: typer.Typer) -> None:
    """Add ``goffish timeseries run`` with a command for each application and algorithm."""
    runs = typer.Typer(
        cls=_Applications, help="Run an application or an algorithm over a time series.", no_args_is_help=True
    )
    series.add_typer(runs, name="run")


def _running_parameters(model: type[Options]) -> list[Any]:
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
            int, 1, text="Number of independent timesteps computed in parallel, by threads or Spark jobs.", min=1
        ),
        "max_supersteps": option(int | None, None, text=MAX_SUPERSTEPS, min=1, show_default="unlimited"),
        "checkpoint_dir": option(str | None, None, text=CHECKPOINT_DIR, show_default="no checkpoints"),
        "checkpoint_every": option(int | None, None, text=CHECKPOINT_EVERY, min=1, show_default="10"),
        "resume": option(bool, False, "--resume", text=RESUME),
    }
    if issubclass(model, Algorithm):
        for name in ("checkpoint_dir", "checkpoint_every", "resume"):
            del options[name]
        if model.in_memory:
            del options["engine"], options["max_supersteps"]
    return [parameter(name, kind, made) for name, (kind, made) in options.items()]


def _command(model: type[Options]) -> Callable[..., None]:
    made = {name: field_parameter(name, field) for name, field in model.model_fields.items()}
    own = {name: option for name, option in made.items() if option is not None}
    attributes = _ATTRIBUTES if issubclass(model, Algorithm) else {}

    def command(**given: Any) -> None:
        options = {name: given.pop(name) for name in own}
        given = {"engine": "auto", **given}
        _run(model, given.pop("store"), given.pop("output"), given.pop("timesteps"), given.pop("json"), options,
             given)  # fmt: skip

    apply_signature(
        command,
        [
            parameter("store", str, typer.Argument(..., metavar="STORE", help=SERIES_STORE)),
            *own.values(),
            *(parameter(name, str | None, _stated(text)) for name, text in attributes.items()),
            parameter("output", str | None, typer.Option(None, "-o", "--output", help=TABLE_FILE)),
            parameter(
                "timesteps", str | None, typer.Option(None, metavar="FILE", help="Table file for one row per timestep.")
            ),
            json_option(),
            *_running_parameters(model),
        ],
    )
    return command


def _stated(text: str) -> Any:
    """Return an option whose default is stated in its help."""
    text, _, stated = text.removesuffix("].").partition(" [default: ")
    return typer.Option(None, help=f"{text}.", show_default=stated)


def _run(
    model: type[Options],
    store: str,
    output: str | None,
    timesteps: str | None,
    json: bool,
    options: dict[str, Any],
    running: dict[str, Any],
) -> None:
    from goffish.cli.inputs import run_status
    from goffish.gofs.series import open_series
    from goffish.gopher import Result
    from goffish.gopher.engine import ENGINES
    from goffish.temporal.api import run_series

    with joined(running["engine"] == "mpi") as ranks:
        begun = time.perf_counter()
        with ranks.together("options"):
            check_choice("engine", running["engine"], ("auto", *ENGINES))
            for target in (output, timesteps):
                if target is not None:
                    check_result_target(target, store)
            if running.get("checkpoint_dir") is not None:
                check_checkpoint_dir(running["checkpoint_dir"])
            model.checked(**options)
        with ranks.together("loading"):
            series = open_series(store)
            for name in ("source", "target", "last_seen", "vertex"):
                if name in options:
                    options[name] = as_label(options[name], series.graph)
            if options.get("sources") is not None:
                options["sources"] = [as_label(text.strip(), series.graph) for text in options["sources"].split(",")]
            for name in ("start", "end"):
                running[name] = _moment(running[name])
        running = {name: value for name, value in running.items() if value is not None}
        with run_status(model.name) if ranks.first else nullcontext((None, None)) as (progress, note):
            found = run_series(model.name, series, progress=progress, note=note, **running, **options)
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

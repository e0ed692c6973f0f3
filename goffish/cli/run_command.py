"""``goffish run ALGORITHM``: one command per algorithm, generated from its option model."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from goffish.algorithms.algorithm import Algorithm, as_label
from goffish.algorithms.catalogue import ALGORITHMS, make
from goffish.cli.checks import check_parts_target, check_result_target, check_run, check_stats_target
from goffish.cli.groups import LazyCommands
from goffish.cli.inputs import is_store, load, run_status
from goffish.cli.mpi import is_folder_name, joined
from goffish.cli.options import (
    ALL_CORES,
    CHECKPOINT_DIR,
    CHECKPOINT_EVERY,
    MAX_SUPERSTEPS,
    METHOD,
    PARTS,
    RESUME,
    TABLE_FILE,
    THREADS,
    UNITS,
    apply_signature,
    field_parameter,
    input_argument,
    json_option,
    parameter,
    reading_options,
    reading_parameters,
)
from goffish.cli.output import as_json, print_facts, print_json, print_result, print_stats, say
from goffish.cli.program_file import is_program, load_program
from goffish.errors import InputError
from goffish.partial import local_path, output_file

if TYPE_CHECKING:
    from goffish.gopher import Result


#: Help of the option ``--html``, for algorithms with an interactive page.
PAGES = {"landscape": "Write an interactive page: FILE.html."}

#: Values of engine options for algorithms that run in memory only.
NO_ENGINE: dict[str, Any] = {
    "engine": "auto", "parts": None, "method": None, "units": None, "max_supersteps": None, "checkpoint_dir": None,
    "checkpoint_every": None, "resume": False, "stats": False, "stats_file": None,
}  # fmt: skip


def check_page_target(target: str, path: str) -> None:
    """Reject a page that cannot be written or would overwrite the graph."""
    from goffish.plot.landscape import check_page

    check_page(target)
    place = local_path(target)
    if place.exists() and Path(path).exists() and place.samefile(path):
        raise InputError(f"{target}: is the input graph; write the page to another file")


def write_page(result: Result, target: str, path: str) -> str:
    """Write the page of a result on the graph at `path`."""
    from goffish.algorithms.landscape.levels import CommunityLandscape
    from goffish.plot.landscape import write_page as write

    if not isinstance(result, CommunityLandscape):
        raise InputError(f"{target}: {result.algorithm} has no interactive page; leave out --html")
    return str(write(result, target, name=Path(path.rstrip("/")).name or path))


def _running_parameters(*, one_thread: bool = False) -> list[Any]:
    group = "Engine"
    threads = THREADS
    if one_thread:
        threads += " The in-memory kernel uses one thread."
    options: dict[str, tuple[Any, Any]] = {
        "engine": (
            str,
            typer.Option(
                "auto",
                help="Engine: auto (fastest), local (threads), mpi (MPI ranks) or spark (Spark cluster).",
                rich_help_panel=group,
            ),
        ),
        "parts": (
            int | None,
            typer.Option(
                None, help=PARTS, show_default="one per thread; raw files only", rich_help_panel=group
            ),
        ),
        "method": (
            str | None,
            typer.Option(
                None, help=METHOD, show_default="metis; raw files only",
                rich_help_panel=group,
            ),
        ),
        "units": (
            str | None,
            typer.Option(
                None, help=UNITS,
                rich_help_panel=group,
            ),
        ),
        "threads": (
            int | None, typer.Option(None, min=1, help=threads, show_default=ALL_CORES, rich_help_panel=group)
        ),
        "max_supersteps": (
            int | None, typer.Option(None, min=1, help=MAX_SUPERSTEPS, show_default="unlimited", rich_help_panel=group)
        ),
        "checkpoint_dir": (
            str | None, typer.Option(None, help=CHECKPOINT_DIR, show_default="no checkpoints", rich_help_panel=group)
        ),
        "checkpoint_every": (
            int | None,
            typer.Option(None, min=1, help=CHECKPOINT_EVERY, show_default="10", rich_help_panel=group),
        ),
        "resume": (
            bool, typer.Option(False, "--resume", help=RESUME, rich_help_panel=group)
        ),
    }  # fmt: skip
    return [parameter(name, kind, option) for name, (kind, option) in options.items()]


class _Algorithms(LazyCommands):
    """The algorithms, and programs in files of the user."""

    noun = "algorithm"

    def names(self) -> list[str]:
        return list(ALGORITHMS)

    def make(self, name: str) -> Any:
        algorithm = ALGORITHMS[name]
        app = typer.Typer(add_completion=False)
        app.command(name, help=algorithm.title)(_command(algorithm))
        return typer.main.get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and is_program(args[0]) and args[0] not in ALGORITHMS:
            ALGORITHMS[args[0]] = load_program(args[0])  # from here on, it is one by name
        return super().resolve_command(ctx, args)


def add_commands(app: typer.Typer) -> None:
    """Add ``goffish run`` with a command for each algorithm."""
    runs = typer.Typer(
        cls=_Algorithms,
        help="Run an algorithm, or a program as FILE.py:CLASS, on a graph file or a store.",
        no_args_is_help=True,
    )
    app.add_typer(runs, name="run")


def _command(algorithm: type[Algorithm]) -> Callable[..., None]:
    made = {name: field_parameter(name, field) for name, field in algorithm.model_fields.items()}
    own = {name: option for name, option in made.items() if option is not None}

    def command(**given: Any) -> None:
        options = {name: given.pop(name) for name in own}
        given = {**NO_ENGINE, **given}
        extra = {name: path for name in algorithm.extra_tables if (path := given.pop(name)) is not None}
        reading = reading_options(given)
        _run(algorithm, given.pop("input"), given.pop("output"), extra, reading, options, **given)

    output = typer.Option(
        None,
        "-o",
        "--output",
        help=f"{TABLE_FILE} With --engine mpi or spark also a folder: DIR/.",
    )
    extra = [
        parameter(name, str | None, typer.Option(None, metavar="FILE", help=text))
        for name, text in algorithm.extra_tables.items()
    ]
    if algorithm.name in PAGES:
        html = typer.Option(None, "--html", metavar="FILE", help=PAGES[algorithm.name])
        extra.append(parameter("html", str | None, html))
    counters = [
        parameter("stats", bool, typer.Option(False, "--stats", help="Print the counters of the run.")),
        parameter("stats_file", str | None, typer.Option(None, help="Write the counters of the run: FILE.json.")),
    ]
    running = _running_parameters(one_thread=algorithm.one_thread)
    if algorithm.in_memory:
        counters, running = [], [option for option in running if option.name not in NO_ENGINE]
    apply_signature(
        command,
        [
            input_argument(),
            *own.values(),
            parameter("output", str | None, output),
            *extra,
            *counters,
            json_option(),
            *running,
            *reading_parameters(),
        ],
    )
    return command


def _run(
    algorithm: type[Algorithm],
    path: str,
    output: str | None,
    extra: dict[str, str],
    reading: dict[str, Any],
    options: dict[str, Any],
    *,
    stats: bool,
    stats_file: str | None,
    json: bool,
    html: str | None = None,
    **running: Any,
) -> None:
    with joined(running["engine"] == "mpi") as ranks:
        begun = time.perf_counter()
        folder = output if output is not None and is_folder_name(output) else None
        with ranks.together("options"):
            if folder is not None:
                check_parts_target(folder, running["engine"])
            for target in (*([] if output is None or folder else [output]), *extra.values()):
                check_result_target(target, path)
            if stats_file is not None:
                check_stats_target(stats_file)
            if html is not None:
                check_page_target(html, path)
            check_run(algorithm, running, options, store=is_store(path))
        # Counters and partitioning require the engine.
        if running["engine"] == "auto" and (stats or stats_file or running["method"]):
            running["engine"] = "local"
        running = {name: value for name, value in running.items() if value is not None}
        with ranks.together("loading"):
            graph = load(path, reading) if ranks.first or is_store(path) else None
            if graph is not None:
                options |= {name: as_label(options[name], graph) for name in ("source", "target") if name in options}
        options = ranks.same(options)
        from goffish.algorithms.run import run

        with run_status(algorithm.name) if ranks.first else nullcontext((None, None)) as (progress, note):
            result = run(algorithm.name, graph, output=folder, progress=progress, note=note, **running, **options)
        with ranks.together("output"):
            if not ranks.first:
                return
            saved = folder if output is None or folder else str(result.write(output))
            for name, target in extra.items():
                make(algorithm.name, options).write_extra(result, name, target)
            if html is not None:
                extra["html"] = write_page(result, html, path)
            if stats_file is not None:
                _write_stats(result, path, stats_file)
        seconds = time.perf_counter() - begun
        if json:
            body = {**_body(result, path), "seconds": seconds, "output": saved, **extra}
            if saved is None:
                body["rows"] = result.table.to_pylist()
            print_json(body)
            return
        title = f"{algorithm.name} of {path}: {seconds:.2f} s"
        if folder is None:
            print_result(result, title, saved)
        else:
            print_facts(title, [(name.replace("_", " "), value) for name, value in result.summary.items()])
            say(f"\n{result.summary['rows']:,} rows written to {folder}")
        for name, target in extra.items():
            say(f"{name} written to {target}")
        if stats and result.stats is not None:
            print_stats(result.stats)
        if stats_file is not None:
            say(f"\ncounters written to {stats_file}; plot them with goffish plot supersteps or goffish plot gantt")


def _body(result: Result, path: str) -> dict[str, Any]:
    stats = None if result.stats is None else result.stats.to_dict()
    return {"algorithm": result.algorithm, "input": path, "summary": dict(result.summary), "stats": stats}


def _write_stats(result: Result, path: str, stats_file: str) -> None:
    with output_file(stats_file) as temporary:
        temporary.write_text(as_json(_body(result, path)) + "\n", encoding="utf-8")

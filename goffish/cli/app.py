"""Command tree of the ``goffish`` program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from goffish.cli.calibrate_command import add_calibrate_command
from goffish.cli.cloud_commands import add_cloud_commands
from goffish.cli.cost_commands import add_cost_commands
from goffish.cli.dataflow_commands import add_dataflow_commands
from goffish.cli.deprecated import arguments_of
from goffish.cli.ingest_commands import add_ingest_command, add_spark_commands
from goffish.cli.jobs_commands import add_jobs_commands
from goffish.cli.launch_command import add_launch_command
from goffish.cli.options import Json, Store
from goffish.cli.plot_commands import add_plot_commands
from goffish.cli.program_file import is_program
from goffish.cli.reservoir_commands import add_reservoir_commands
from goffish.cli.run_command import add_commands, program_command
from goffish.cli.serve_commands import add_serve_commands
from goffish.cli.spot_commands import add_spot_commands
from goffish.cli.store_commands import add_store_commands
from goffish.cli.stream_commands import add_stream_commands
from goffish.cli.timeseries_commands import add_series_commands
from goffish.cli.timeseries_events import add_event_commands
from goffish.cli.timeseries_plots import add_series_plots
from goffish.cli.timeseries_run import add_series_runs, algorithm_command, algorithm_names
from goffish.errors import InputError
from goffish.version import __version__


class _Commands(TyperGroup):
    """Command group that lists the valid names when an unknown one is given."""

    noun = "command"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            raise InputError(f"unknown {self.noun} {args[0]!r}: choose one of {', '.join(names)}")
        return super().resolve_command(ctx, args)


class _Root(_Commands):
    """Root of the command tree; accepts former option names."""

    def main(self, args: Sequence[str] | None = None, *given: Any, **more: Any) -> Any:
        """Run a command line."""
        return super().main(arguments_of(args), *given, **more)


class _Algorithms(_Commands):
    """The algorithms, and programs in files of the user."""

    noun = "algorithm"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and is_program(args[0]) and args[0] not in self.commands:
            self.commands[args[0]] = program_command(args[0])
        return super().resolve_command(ctx, args)


class _Pictures(_Commands):
    noun = "plot"


class _Applications(_Commands):
    """The applications, and the algorithms, whose commands are made when they are needed."""

    noun = "application"

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.commands, *(name for name in algorithm_names() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in algorithm_names() and cmd_name not in self.commands:
            self.commands[cmd_name] = algorithm_command(cmd_name)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="goffish",
    cls=_Root,
    help="Analyze graphs in memory or partitioned, schedule jobs, and serve them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs = typer.Typer(
    cls=_Algorithms,
    help="Run an algorithm, or a program as FILE.py:CLASS, on a graph file or a store.",
    no_args_is_help=True,
)
app.add_typer(runs, name="run")
add_commands(runs)
add_store_commands(app)
add_serve_commands(app)
add_jobs_commands(app)
add_launch_command(app)
add_plot_commands(app)
add_spark_commands(app)
add_ingest_command(app)
add_dataflow_commands(app)
add_calibrate_command(app)
add_spot_commands(app, _Commands)
add_cloud_commands(app, _Commands)
add_cost_commands(app)
add_stream_commands(app, _Commands)
reservoir = typer.Typer(cls=_Commands, help="Keep events in a durable store, and query them.", no_args_is_help=True)
app.add_typer(reservoir, name="reservoir")
add_reservoir_commands(reservoir)
series = typer.Typer(cls=_Commands, help="Build, extend, analyze and plot time series of graphs.", no_args_is_help=True)
app.add_typer(series, name="timeseries")
add_series_commands(series)
series_runs = typer.Typer(
    cls=_Applications, help="Run an application or an algorithm over a time series.", no_args_is_help=True
)
series.add_typer(series_runs, name="run")
add_series_runs(series_runs)
add_event_commands(series)
series_plots = typer.Typer(cls=_Pictures, help="Plot a result over a time series.", no_args_is_help=True)
series.add_typer(series_plots, name="plot")
add_series_plots(series_plots)


def _version(wanted: bool) -> None:
    if wanted:
        from goffish.cli.output import say

        say(f"goffish {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = None,
) -> None:
    """Analyze graphs in memory or partitioned, schedule jobs, and serve them."""


@app.command()
def verify(
    store: Store,
    json: Json = False,
) -> None:
    """Verify the checksums of a store."""
    from goffish.cli.inputs import progress_bar
    from goffish.cli.output import print_json, say
    from goffish.gofs import verify_store

    with progress_bar("verifying") as update:
        total = verify_store(store, progress=update)
    if json:
        print_json({"store": store, "ok": True, "bytes": total})
    else:
        say(f"{store}: all checksums match ({total:,} bytes)")


@app.command()
def examples(
    folder: Annotated[str, typer.Argument(help="Target folder; receives data/ and examples/.")] = ".",
    json: Json = False,
) -> None:
    """Copy the bundled example data and programs into a folder; keep existing files."""
    from goffish.cli.output import print_json, say
    from goffish.examples import write_examples

    written, kept = write_examples(folder)
    if json:
        print_json({"folder": folder, "written": written, "kept": kept})
    else:
        say(f"{folder}: {written} files written, {kept} kept")


@app.command()
def bench(
    graph: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="Graph file or store.", show_default="a generated grid")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of timed runs; the median is reported.")] = 5,
    json: Json = False,
) -> None:
    """Benchmark GoFFish against the installed graph libraries on this machine."""
    from goffish.cli.bench import run_bench

    run_bench(graph, repeats, json)


@app.command("compile")
def compile_kernels(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(metavar="ALGORITHM", help="Names of algorithms, flows or live-graphs.", show_default="all"),
    ] = None,
    json: Json = False,
) -> None:
    """Compile kernels, so that the first runs of algorithms, flows and live graphs do not have to."""
    from goffish.cli.compile_command import run_compile

    run_compile(algorithms or [], json)


@app.command()
def doctor(json: Json = False) -> None:
    """Report installed and missing dependencies, and how to install them."""
    from goffish.cli.doctor import print_report

    print_report(json=json)

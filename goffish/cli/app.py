"""Command tree of the ``goffish`` program."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from goffish.cli.deprecated import arguments_of
from goffish.cli.groups import LazyCommands
from goffish.version import __version__

#: Modules with the commands that they add, in the order of the help; a module is imported for these, and for the help.
_MODULES = {
    "goffish.cli.run_command": ("run",),
    "goffish.cli.store_commands": ("import", "export", "partition", "info", "verify"),
    "goffish.cli.timeseries_commands": ("timeseries",),
    "goffish.cli.reservoir_commands": ("reservoir",),
    "goffish.cli.plot_commands": ("plot",),
    "goffish.cli.ingest_commands": ("ingest", "spark-entry", "spark-package"),
    "goffish.cli.stream_commands": ("stream",),
    "goffish.cli.dataflow_commands": ("plan", "simulate"),
    "goffish.cli.calibrate_command": ("calibrate",),
    "goffish.cli.spot_commands": ("spot",),
    "goffish.cli.serve_commands": ("serve", "clients"),
    "goffish.cli.jobs_commands": ("jobs", "top"),
    "goffish.cli.launch_command": ("launch",),
    "goffish.cli.cloud_commands": ("cloud",),
    "goffish.cli.cost_commands": ("cost",),
    "goffish.cli.installation_commands": ("examples", "bench", "compile", "doctor"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


class _Root(LazyCommands):
    """Root of the command tree; accepts former option names."""

    def main(self, args: Sequence[str] | None = None, *given: Any, **more: Any) -> Any:
        """Run a command line."""
        return super().main(arguments_of(args), *given, **more)

    def names(self) -> list[str]:
        return list(_MODULE_OF)

    def make(self, name: str) -> Any:
        part = typer.Typer()
        import_module(_MODULE_OF[name]).add_commands(part)
        return typer.main.get_group(part).commands[name]


app = typer.Typer(
    name="goffish",
    cls=_Root,
    help="Analyze graphs in memory or partitioned, schedule jobs, and serve them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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

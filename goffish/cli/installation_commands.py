"""``goffish examples``, ``bench``, ``compile`` and ``doctor``: the installation, and examples to begin with."""

from __future__ import annotations

from typing import Annotated

import typer

from goffish.cli.options import Json


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for name, command in (("examples", _examples), ("bench", _bench), ("compile", _compile), ("doctor", _doctor)):
        app.command(name)(command)


def _examples(
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


def _bench(
    graph: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="Graph file or store.", show_default="a generated grid")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of timed runs; the median is reported.")] = 5,
    json: Json = False,
) -> None:
    """Benchmark GoFFish against the installed graph libraries on this machine."""
    from goffish.cli.bench import run_bench

    run_bench(graph, repeats, json)


def _compile(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(metavar="ALGORITHM", help="Names of algorithms, flows or live-graphs.", show_default="all"),
    ] = None,
    json: Json = False,
) -> None:
    """Compile kernels, so that the first runs of algorithms, flows and live graphs do not have to."""
    from goffish.cli.compile_command import run_compile

    run_compile(algorithms or [], json)


def _doctor(json: Json = False) -> None:
    """Report installed and missing dependencies, and how to install them."""
    from goffish.cli.doctor import print_report

    print_report(json=json)

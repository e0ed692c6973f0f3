"""``goffish spark-entry`` and ``goffish spark-package``: what ``spark-submit`` needs."""

from __future__ import annotations

from typing import Annotated

import typer


def add_spark_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("spark-entry")(_entry)
    app.command("spark-package")(_package)


def _entry() -> None:
    """Show the script for spark-submit: spark-submit $(goffish spark-entry) run components STORE --engine spark."""
    from goffish.cli.output import say
    from goffish.spark import entry

    say(str(entry()))


def _package(
    output: Annotated[str, typer.Option("-o", "--output", help="The archive: FILE.zip.")] = "goffish.zip",
) -> None:
    """Pack GoFFish for spark-submit --py-files, for clusters where only what it depends on is installed."""
    from goffish.cli.output import say
    from goffish.spark.package import write_package

    say(f"{output}: {write_package(output)} files; spark-submit --py-files {output} …")

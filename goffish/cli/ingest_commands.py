"""``goffish ingest``: convert raw files to a store on Spark; helper commands for ``spark-submit``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.options import STORE_TARGET, Json

if TYPE_CHECKING:
    from goffish.spark.ingest import IngestReport


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("ingest")(_ingest)
    app.command("spark-entry")(_entry)
    app.command("spark-package")(_package)


def _ingest(
    spec: Annotated[str, typer.Argument(metavar="SPEC.yaml", help="Ingest specification: inputs, columns and rules.")],
    output: Annotated[str, typer.Option("-o", "--output", help=STORE_TARGET)],
    master: Annotated[
        str | None,
        typer.Option(help="Spark master URL.", show_default="that of spark-submit, else local[*]"),
    ] = None,
    quarantine: Annotated[
        str | None, typer.Option(help="Parquet folder or URI for rejected rows.", show_default="OUTPUT.quarantine")
    ] = None,
    work_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder or URI for intermediate steps; a restarted job resumes from it.", show_default="OUTPUT.work"
        ),
    ] = None,
    packages: Annotated[
        list[str] | None, typer.Option(help="Maven package to load, as group:artifact:version; repeatable.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory of the Spark driver, such as 4g; in local mode, of the whole job.")
    ] = None,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Add new files and table versions to a store written this way.")
    ] = False,
    json: Json = False,
) -> None:
    """Convert raw files to a store on Spark: clean, number, partition and write."""
    from goffish.cli.inputs import run_status
    from goffish.cli.output import print_json, say
    from goffish.spark import session
    from goffish.spark.ingest import ingest, read_spec
    from goffish.spark.ingest.run import check_places

    check_places(output, quarantine, work_dir)
    checked = read_spec(spec)
    with run_status("ingest") as (_, report_step):
        report_step("starting Spark")
        here = master is None or master.startswith("local")
        # Locally, the final report suffices; on a cluster, keep Spark's log for traces of the executors.
        quiet = {"spark.log.level": "OFF"} if here and "PYSPARK_GATEWAY_PORT" not in os.environ else {}
        spark = session(master=master, packages=packages or (), memory=memory, config=quiet)
        try:
            report = ingest(
                checked, output, spark, quarantine=quarantine, work=work_dir, progress=report_step,
                incremental=incremental,
            )  # fmt: skip
        finally:
            spark.stop()
    if json:
        print_json(report.to_dict())
    elif not report.degrees:
        say(f"{report.store}: nothing new; {report.vertices:,} vertices, {report.edges:,} edges")
    else:
        _print(report)


def _print(report: IngestReport) -> None:
    from goffish.cli.output import print_facts, say

    facts: list[tuple[str, Any]] = [
        ("rows read", report.rows),
        ("kept", report.kept),
        ("merged with another row", report.merged),
        ("quarantined", report.quarantined),
        *((f"  {name}", count) for name, count in report.rules.items()),
        *_vertex_facts(report),
        ("vertices", report.vertices),
        ("edges", report.edges),
        ("degree: smallest / median / largest", _joined(report.degrees, "smallest", "median", "largest")),
        ("components", report.components["components"]),
        ("vertices of the largest", f"{report.components['largest']:,} ({report.components['largest_share']:.1%})"),
        ("partitions", f"{report.partition['parts']} by {report.partition['method']}"),
        ("edge cut", f"{report.partition['edge_cut']:,} ({report.partition['edge_cut_share']:.1%})"),
    ]
    if "metis_edge_cut" in report.partition:
        facts.append(("edge cut of METIS", report.partition["metis_edge_cut"]))
    if report.instances is not None:
        facts.append(("instances", report.instances["count"]))
    if report.continued:
        facts.append(("resumed", "completed steps of an earlier run were reused"))
    print_facts(f"{report.store}: {sum(report.seconds.values()):.2f} s", facts)
    if report.quarantined or (report.vertex_rows or {}).get("quarantined"):
        say(f"\nrows that were not used: {report.quarantine}")
    command = "run" if report.instances is None else "timeseries run"
    say(f"\nnext: goffish {command} components {report.store}")


def _vertex_facts(report: IngestReport) -> list[tuple[str, Any]]:
    counts = report.vertex_rows
    if counts is None:
        return []
    facts = [
        ("rows of vertices read", counts["rows"]),
        *((f"  {name}", counts[name]) for name in ("kept", "merged", "quarantined")),
    ]
    return [*facts, *((f"    {name}", count) for name, count in counts["rules"].items())]


def _joined(figures: dict[str, Any], *names: str) -> str:
    return " / ".join(f"{figures[name]:,}" for name in names)


def _entry() -> None:
    """Print the path of the entry script, as in spark-submit $(goffish spark-entry) run components STORE."""
    from goffish.cli.output import say
    from goffish.spark import entry

    say(str(entry()))


def _package(
    output: Annotated[str, typer.Option("-o", "--output", help="Archive to write: FILE.zip.")] = "goffish.zip",
) -> None:
    """Package GoFFish for spark-submit --py-files, for clusters that have its dependencies installed."""
    from goffish.cli.output import say
    from goffish.spark.package import write_package

    say(f"{output}: {write_package(output)} files; spark-submit --py-files {output} …")

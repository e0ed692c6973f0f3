"""``goffish cost``: what jobs on rented machines cost, and what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_result_target, name_values
from goffish.cli.options import TABLE_FILE, Json
from goffish.cli.output import print_json, print_table, say
from goffish.cli.server_calls import calls_server, job_facts
from goffish.errors import InputError
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.client import Client
else:
    Client = Any

#: Jobs per request, and jobs of a home folder.
_PAGE, _ALL = 100, 1 << 31


class By(StrEnum):
    """What a row of a report stands for."""

    JOB = "job"
    LABEL = "label"
    CLIENT = "client"
    PROVIDER = "provider"


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    cost = typer.Typer(help="Report the costs of jobs on rented machines.", no_args_is_help=True)
    cost.command("report")(calls_server(_report))
    app.add_typer(cost, name="cost")


def _report(
    caller: Client,
    by: Annotated[By, typer.Option(metavar="job|label|client|provider", help="What a row stands for.")] = By.JOB,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Job label; repeatable.", show_default="all jobs"),
    ] = None,
    client: Annotated[str, typer.Option(help="Name of the client that submitted the jobs.")] = "",
    home: Annotated[
        str | None,
        typer.Option(help="Folder of a server or of goffish launch, read without a server.", show_default="--server"),
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help=TABLE_FILE, show_default="none")] = None,
    json: Json = False,
) -> None:
    """Report expected and actual costs of jobs on rented machines, and their difference."""
    if output is not None:
        check_result_target(output, "")
    labels = name_values(label, "--label")
    if home is not None:
        found = _kept(home, labels, client)
    else:
        found = map(job_facts, caller.list(labels=labels, client=client, page_size=_PAGE))
    rows = _rows(by, (job for job in found if job["provider"] or job["cost"] or job["expected_cost"]))
    if output is not None:
        import pyarrow as pa

        from goffish.gopher.result import spreadsheet_safe, write_table

        names = rows[0] if rows else _row("", "")
        table = pa.table({name: [row[name] for row in rows] for name in names})
        # Texts of clients may reach a spreadsheet: escape formulas.
        write_table(spreadsheet_safe(table) if output.lower().endswith(".csv") else table, output)
    if json:
        print_json({"by": str(by), "rows": rows})
    elif output is not None:
        say(f"{len(rows):,} rows written to {output}")
    else:
        body = [
            [row["group"], row["currency"], row["jobs"], row["done"], round(row["expected_cost"], 4),
             round(row["cost"], 4), "" if row["difference"] is None else f"{row['difference']:+.1%}"]
            for row in rows
        ]  # fmt: skip
        print_table("costs", [str(by), "currency", "jobs", "done", "expected", "cost", "difference"], body)


def _kept(home: str, labels: dict[str, str], client: str) -> Iterator[dict[str, Any]]:
    """Iterate over the jobs in the database of a home folder."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.settings import Settings
        from goffish.services.api.wire import job_message
        from goffish.services.store.database import open_database
        from goffish.services.store.store import Jobs

    folder = Path(local_path(home))
    url = Settings(home=folder).database_url
    if not Path(url.removeprefix("sqlite:///")).is_file():
        raise InputError(f"--home {home}: has no jobs; give the folder of a server or of goffish launch")
    engine = open_database(url)
    try:
        for job in Jobs(engine, "").find(labels=labels, client=client, limit=_ALL):
            yield job_facts(job_message(job))
    finally:
        engine.dispose()


def _row(group: str, currency: str) -> dict[str, Any]:
    return {
        "group": group, "currency": currency, "jobs": 0, "done": 0, "expected_cost": 0.0, "cost": 0.0,
        "difference": None,
    }  # fmt: skip


def _rows(by: By, jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum up jobs by group and currency, most expensive group first; `difference` is that of completed jobs."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    ended: dict[tuple[str, str], tuple[float, float]] = {}
    for job in jobs:
        for group in _groups(by, job):
            key = group, job["currency"]
            row = found.setdefault(key, _row(*key))
            row["jobs"] += 1
            row["expected_cost"] += job["expected_cost"]
            row["cost"] += job["cost"]
            if job["state"] == "done" and job["expected_cost"]:
                row["done"] += 1
                expected, cost = ended.get(key, (0.0, 0.0))
                ended[key] = expected + job["expected_cost"], cost + job["cost"]
    for key, (expected, cost) in ended.items():
        found[key]["difference"] = cost / expected - 1.0
    return sorted(found.values(), key=lambda row: (-row["cost"], row["group"]))


def _groups(by: By, job: dict[str, Any]) -> list[str]:
    if by == By.LABEL:  # a job with several labels is in several groups
        return [f"{name}={value}" for name, value in sorted(job["spec"].get("labels", {}).items())] or ["none"]
    return [str(job["id"] if by == By.JOB else job[by]) or "none"]

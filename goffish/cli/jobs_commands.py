"""``goffish jobs`` and ``goffish top``: jobs of the scheduling service."""

from __future__ import annotations

import json as jsons
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_result_target, name_values
from goffish.cli.options import Json
from goffish.cli.output import print_facts, print_json, print_table, say
from goffish.cli.server_calls import COLUMNS, OVER, UNDER_WAY, calls_server, job_facts, job_row, job_state
from goffish.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from goffish.client import Client
else:
    Client = Any

_Job = Annotated[str, typer.Argument(metavar="JOB", help="Its id.")]
_Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Repeatable.")]
_OF_GRAPHS, _OF_DATAFLOWS = "Of an algorithm on a graph", "Of a dataflow"
#: Jobs that are asked for at a time.
_PAGE = 100


def add_jobs_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    jobs = typer.Typer(help="Jobs of the scheduling service.", no_args_is_help=True)
    for name, command in (
        ("submit", _submit), ("list", _list), ("show", _show), ("watch", _watch), ("cancel", _cancel),
        ("result", _result), ("log", _log),
    ):  # fmt: skip
        jobs.command(name)(calls_server(command))
    app.add_typer(jobs, name="jobs")
    app.command("top")(calls_server(_top))


def _submit(
    client: Client,
    what: Annotated[
        str, typer.Argument(metavar="ALGORITHM|dataflow", help="As in goffish run, or a dataflow to be deployed.")
    ],
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Below the server's data folders, or @FILE to upload; of a dataflow its name, or @FILE with a "
            "definition.",
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="Of the algorithm or the policy; @FILE uploads a table. Repeatable."
        ),
    ] = None,
    key: Annotated[str, typer.Option(help="The same key again gives the same job.")] = "",
    deadline: Annotated[float | None, typer.Option(help="Hours from now.")] = None,
    budget: Annotated[float | None, typer.Option(help="Most that it may cost.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="Who decides on machines; of graphs with --runner cloud only.")
    ] = None,
    cloud: Annotated[
        str | None,
        typer.Option(help="A catalogue of the simulated cloud that the server knows; of graphs with --runner cloud."),
    ] = None,
    most_attempts: Annotated[
        int | None, typer.Option(min=1, help="Times that its worker may be lost until it fails. Default: 20.")
    ] = None,
    label: _Label = None,
    runner: Annotated[
        str | None, typer.Option(help="local (default), mpi, spark or cloud.", rich_help_panel=_OF_GRAPHS)
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads, or ranks.", rich_help_panel=_OF_GRAPHS)] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Supersteps between checkpoints.", rich_help_panel=_OF_GRAPHS)
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=1, help="Most MB of its processes.", rich_help_panel=_OF_GRAPHS)
    ] = None,
    cpu_seconds: Annotated[
        float | None, typer.Option(help="Most seconds of processors.", rich_help_panel=_OF_GRAPHS)
    ] = None,
    rates: Annotated[
        str | None, typer.Option(help="What comes in: as in goffish simulate.", rich_help_panel=_OF_DATAFLOWS)
    ] = None,
    hours: Annotated[float | None, typer.Option(help="How long it runs.", rich_help_panel=_OF_DATAFLOWS)] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of everything that is drawn at random.", rich_help_panel=_OF_DATAFLOWS)
    ] = None,
    hours_per_second: Annotated[
        float | None,
        typer.Option(help="Of it that pass in a second. Default: as many as can be.", rich_help_panel=_OF_DATAFLOWS),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is over; exit code 1 if it failed.")] = False,
    json: Json = False,
) -> None:
    """Submit a job; prints its id."""
    limits: dict[str, Any] = {
        "deadline_s": None if deadline is None else deadline * 3600.0, "budget": budget,
        "labels": name_values(label, "--label"), "most_attempts": most_attempts,
    }  # fmt: skip
    of_clouds: dict[str, Any] = {"policy": policy, "cloud_name": cloud}
    of_graphs: dict[str, Any] = {
        "runner": runner, "workers": workers, "checkpoint_every": checkpoint_every, "memory_mb": memory,
        "cpu_seconds": cpu_seconds,
    }  # fmt: skip
    of_dataflows: dict[str, Any] = {
        "rates": rates, "hours": hours, "seed": seed, "hours_per_second": hours_per_second,
    }  # fmt: skip
    options = name_values(option, "--option")
    if what == "dataflow":
        _refuse(of_graphs, "is for algorithms on graphs, not for dataflows")
        job = client.submit_dataflow(_dataflow(input), options, key=key, **limits, **of_clouds, **of_dataflows)
    else:
        from goffish.algorithms.catalogue import file_options

        _refuse(of_dataflows, "is for dataflows")
        if runner != "cloud":
            _refuse(of_clouds, "is for --runner cloud and for dataflows")
        of_graphs["runner"] = runner or "local"
        uri = client.upload(input[1:]) if input.startswith("@") else input
        for name in file_options(what):
            if options.get(name, "").startswith("@"):
                options[name] = client.upload(options[name][1:])
        job = client.submit_graph(what, uri, options, key=key, **limits, **of_clouds, **of_graphs)
    if wait:
        job = client.wait(job.id)
    if json:
        print_json(job_facts(job))
    elif wait:
        _print_job(job)
    else:
        say(job.id)
    if wait and job_state(job) != "done":
        raise typer.Exit(1)


def _refuse(given: dict[str, Any], why: str) -> None:
    """Refuse flags that would change nothing."""
    flags = {"memory_mb": "memory", "cloud_name": "cloud"}
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{flags.get(name, name).replace('_', '-')} {value} {why}")


def _dataflow(given: str) -> Any:
    from goffish.client import dataflow

    return dataflow(given[1:]) if given.startswith("@") else given


def _list(
    caller: Client,
    state: Annotated[list[str] | None, typer.Option(help="queued, running, done, …; repeatable.")] = None,
    label: _Label = None,
    algorithm: Annotated[str, typer.Option(help="An algorithm, or dataflow.")] = "",
    client: Annotated[str, typer.Option(help="Who submitted it.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Jobs at most.")] = 50,
    json: Json = False,
) -> None:
    """List jobs, the newest first."""
    asked = caller.list(
        *(state or ()), labels=name_values(label, "--label"), algorithm=algorithm, client=client,
        page_size=min(limit, _PAGE),
    )  # fmt: skip
    found = list(islice(asked, limit))
    if json:
        print_json({"jobs": [job_facts(job) for job in found]})
    else:
        print_table("jobs", COLUMNS, [job_row(job) for job in found])


def _show(client: Client, job: _Job, json: Json = False) -> None:
    """Show a job."""
    found = client.job(job)
    if json:
        print_json(job_facts(found))
    else:
        _print_job(found)


def _watch(
    client: Client,
    job: _Job,
    after: Annotated[int, typer.Option(min=0, help="Events after this number.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each event.")] = False,
) -> None:
    """Print a job's events as they happen, until it is over; exit code 1 if it failed."""
    last = None
    for event in client.watch(job, after):
        last = _event(event)
        if json:
            say(jsons.dumps(last))
        else:
            say(f"{last['time']}  {last['kind']:<10} {last['state']:<12} {last['text']}")
    if last is not None and last["state"] in ("failed", "cancelled"):
        raise typer.Exit(1)


def _cancel(client: Client, job: _Job) -> None:
    """Ask a job to stop."""
    state = job_state(client.cancel(job))
    say(f"{job} is {state}" if state in OVER else f"{job} is asked to stop")


def _result(
    client: Client,
    job: _Job,
    output: Annotated[str, typer.Option("-o", "--output", help="Table file: .parquet, .csv, .json or .arrow.")],
) -> None:
    """Fetch the table of a job that is done."""
    check_result_target(output, job)
    table = client.result(job)
    from goffish.gopher.result import spreadsheet_safe, write_table

    # What others uploaded may be opened in a spreadsheet here.
    write_table(spreadsheet_safe(table) if output.lower().endswith(".csv") else table, output)
    say(f"{table.num_rows:,} rows written to {output}")


def _log(
    client: Client,
    job: _Job,
    bytes: Annotated[int, typer.Option(min=1, max=1 << 20, help="From the end.")] = 1 << 16,
) -> None:
    """Print the end of a job's log."""
    say(client.log(job, bytes).rstrip("\n"))


def _event(event: Any) -> dict[str, Any]:
    return {
        "number": event.number, "time": event.time.ToJsonString(), "kind": event.kind,
        "state": job_state(event), "text": event.text,
        "details": jsons.loads(event.details) if event.details else None,
    }  # fmt: skip


def _print_job(job: Any) -> None:
    told = job_facts(job)
    facts = [(name, told[name]) for name in ("state", "what", "client", "submitted", "started", "ended", "attempts")]
    run = job.spec.dataflow
    facts += [("input", job.spec.graph.input_uri or run.dataflow_name or run.dataflow_definition.name)]
    facts += [
        (name.replace("_", " "), told[name]) for name in ("progress", "cost", "expected_cost", "error") if told[name]
    ]
    facts += [(name.replace("_", " "), value) for name, value in (told["summary"] or {}).items()]
    print_facts(f"job {job.id}", [(name, value) for name, value in facts if value not in (None, "")])


#: Ctrl-C is heard between two naps, and the terminal has to be as before within a moment (`goffish.cli.main.GRACE`).
_NAP_S = 0.1


def _top(
    client: Client,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    limit: Annotated[int, typer.Option(min=1, help="Jobs at most.")] = 30,
    once: Annotated[bool, typer.Option("--once", help="Print the table once.")] = False,
) -> None:
    """Show jobs as a live table: first those that run, then those that wait; Ctrl-C ends it."""
    rows = _rows(client, limit)
    if once or not sys.stdout.isatty():
        print_table("jobs", COLUMNS, rows)
        return
    _live(client, rows, every, limit)


def _rows(client: Client, limit: int) -> list[list[str]]:
    """Jobs that are worked at, then those that wait, then those that are over; the newest of each first."""
    found: dict[str, list[str]] = {}  # by id: one that moves on meanwhile is found twice
    for states in (UNDER_WAY, ("queued",), OVER):
        left = limit - len(found)
        if left > 0:
            for job in islice(client.list(*states, page_size=min(left, _PAGE)), left):
                found.setdefault(job.id, job_row(job))
    return list(found.values())


def _live(client: Client, rows: list[list[str]], every: float, limit: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from rich.live import Live

    from goffish.client.channels import AWAY, ServiceError

    with ThreadPoolExecutor(1) as elsewhere, Live(_picture(rows), screen=True, auto_refresh=False) as live:
        live.refresh()
        while True:
            _rest(every)
            # A call that hangs hears no Ctrl-C; this thread does.
            asked = elsewhere.submit(_rows, client, limit)
            while not asked.done():
                time.sleep(_NAP_S)
            note = ""
            try:
                rows = asked.result()
            except ServiceError as error:
                if error.code not in AWAY:
                    raise
                note = f"since {time.strftime('%X')}: {error}"
            live.update(_picture(rows, note), refresh=True)


def _rest(seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _NAP_S))


def _picture(rows: list[list[str]], note: str = "") -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*map(Text, row))
    return Group(Text(note, style="bold red"), table) if note else table

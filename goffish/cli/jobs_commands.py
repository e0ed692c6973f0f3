"""``goffish jobs`` and ``goffish top``: submit and monitor jobs of the scheduling service."""

from __future__ import annotations

import json as jsons
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_result_target, name_values
from goffish.cli.inputs import duration
from goffish.cli.options import DEADLINE_HELP, HOURS_HELP, TABLE_FILE, Json
from goffish.cli.output import print_facts, print_json, print_table, say
from goffish.cli.server_calls import COLUMNS, OVER, UNDER_WAY, calls_server, job_facts, job_row, job_state
from goffish.cli.stream_commands import (
    BOUNDS,
    REQUIRE_HELP,
    STRATEGY_DEFAULT,
    STRATEGY_HELP,
    WINDOWS_HELP,
    WORKERS_HELP,
    plan_facts,
    print_bounds,
)
from goffish.errors import InputError
from goffish.streaming.updates.bounds import Requirement
from goffish.streaming.updates.versions import PartialWindow, Strategy

if TYPE_CHECKING:
    from rich.console import RenderableType

    from goffish.client import Client
else:
    Client = Any

_Job = Annotated[str, typer.Argument(metavar="JOB", help="Job ID.")]
_Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Job label; repeatable.")]
_Limit = Annotated[int, typer.Option(min=1, help="Maximum number of jobs to show.")]
_OF_GRAPHS, _OF_DATAFLOWS, _OF_FLOWS = "Graph jobs", "Dataflow jobs", "Flow jobs"
#: Jobs per request.
_PAGE = 100


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    jobs = typer.Typer(help="Submit and monitor jobs of the scheduling service.", no_args_is_help=True)
    for name, command in (
        ("submit", _submit), ("list", _list), ("show", _show), ("watch", _watch), ("cancel", _cancel),
        ("result", _result), ("log", _log), ("flows", _flows), ("metrics", _metrics), ("stop", _stop),
        ("update", _update), ("scale", _scale), ("switch", _switch),
    ):  # fmt: skip
        jobs.command(name)(calls_server(command))
    app.add_typer(jobs, name="jobs")
    app.command("top")(calls_server(_top))


def _submit(
    client: Client,
    what: Annotated[
        str,
        typer.Argument(
            metavar="ALGORITHM|dataflow|flow", help="Algorithm as in goffish run, or the word dataflow or flow."
        ),
    ],
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Path below the server's data folders, or name of a dataflow or flow; @FILE reads a local file.",
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="Algorithm or policy option; @FILE uploads a table. Repeatable."
        ),
    ] = None,
    client_key: Annotated[
        str, typer.Option(help="Idempotency key: submitting the same key again returns the same job.")
    ] = "",
    deadline: Annotated[float | None, typer.Option(**duration("h"), help=DEADLINE_HELP, show_default="none")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Cost limit, in the currency of the cloud.", show_default="unlimited")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Scheduler policy; for graph jobs, requires --runner cloud.")
    ] = None,
    cloud: Annotated[
        str | None,
        typer.Option(help="Name of a cloud catalogue on the server; for graph jobs, requires --runner cloud."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Number of attempts, after lost workers, before the job fails.", show_default="20"),
    ] = None,
    label: _Label = None,
    runner: Annotated[
        str | None,
        typer.Option(help="Runner: local, mpi, spark or cloud.", show_default="local", rich_help_panel=_OF_GRAPHS),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="WORKERS",
            help="Number of threads, MPI ranks, or processes of a flow; OPERATOR=NUMBER,… for operators of a flow.",
            rich_help_panel=_OF_GRAPHS,
        ),
    ] = None,
    machines: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Number of rented machines, with one MPI rank on each if there are several.",
            show_default="1",
            rich_help_panel=_OF_GRAPHS,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(min=1, help="Supersteps between checkpoints.", show_default="10", rich_help_panel=_OF_GRAPHS),
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Memory limit of all processes of a job, in MB.",
            show_default="limit of the server",
            rich_help_panel=_OF_GRAPHS,
        ),
    ] = None,
    max_cpu_seconds: Annotated[
        float | None,
        typer.Option(
            help="CPU time limit of all processes of a job, in seconds.",
            show_default="unlimited",
            rich_help_panel=_OF_GRAPHS,
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            help="Input rates, as in goffish simulate.", show_default="constant", rich_help_panel=_OF_DATAFLOWS
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            **duration("h"), help=HOURS_HELP, show_default="the period of the goal", rich_help_panel=_OF_DATAFLOWS
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed.", show_default="0", rich_help_panel=_OF_DATAFLOWS)
    ] = None,
    hours_per_second: Annotated[
        float | None,
        typer.Option(help="Simulated hours per real second.", show_default="unlimited", rich_help_panel=_OF_DATAFLOWS),
    ] = None,
    resume_from: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help="Ended flow job whose savepoint to resume from.",
            show_default="none",
            rich_help_panel=_OF_FLOWS,
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            **duration("s"),
            help="Time between checkpoints; numbers are seconds.",
            show_default="2",
            rich_help_panel=_OF_FLOWS,
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=8,
            help="Number of workers that may fail at once without loss.",
            show_default="1",
            rich_help_panel=_OF_FLOWS,
        ),
    ] = None,
    delivery: Annotated[
        str | None,
        typer.Option(
            metavar="exactly-once|at-least-once",
            help="Whether results cross workers after a checkpoint.",
            show_default="exactly-once",
            rich_help_panel=_OF_FLOWS,
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job ends; exit with code 1 if it failed.")
    ] = False,
    json: Json = False,
) -> None:
    """Submit a job and print its ID."""
    limits: dict[str, Any] = {
        "deadline_s": None if deadline is None else deadline * 3600.0, "budget": budget,
        "labels": name_values(label, "--label"), "max_attempts": max_attempts,
    }  # fmt: skip
    of_clouds: dict[str, Any] = {"policy": policy, "cloud_name": cloud}
    rented: dict[str, Any] = {"machines": machines}
    number = _workers(workers, flow=what == "flow")
    of_graphs: dict[str, Any] = {
        "runner": runner, "workers": number, "checkpoint_every": checkpoint_every, "memory_mb": max_memory,
        "cpu_seconds": max_cpu_seconds,
    }  # fmt: skip
    of_dataflows: dict[str, Any] = {
        "rates": rates, "hours": hours, "seed": seed, "hours_per_second": hours_per_second,
    }  # fmt: skip
    of_flows: dict[str, Any] = {
        "resume_from": resume_from, "checkpoint_s": every, "replication": replication,
        "delivery": delivery,
    }  # fmt: skip
    options = name_values(option, "--option")
    if what != "flow":
        _refuse(of_flows, "applies to flows only")
    if what == "flow":
        shared = {name: of_graphs.pop(name) for name in ("workers", "memory_mb")}
        _refuse(of_graphs | of_clouds | of_dataflows | rented, "does not apply to flows")
        if options:
            raise InputError("--option does not apply to flows")
        job = client.submit_flow(_flow(input), key=client_key, **limits, **of_flows, **shared)
    elif what == "dataflow":
        _refuse(of_graphs | rented, "applies to graph jobs only, not to dataflows")
        job = client.submit_dataflow(_dataflow(input), options, key=client_key, **limits, **of_clouds, **of_dataflows)
    else:
        from goffish.algorithms.catalogue import file_options

        _refuse(of_dataflows, "applies to dataflows only")
        if runner != "cloud":
            _refuse(of_clouds, "applies to dataflows and to --runner cloud only")
            _refuse(rented, "applies to --runner cloud only")
        of_graphs["runner"] = runner or "local"
        uri = client.upload(input[1:]) if input.startswith("@") else input
        for name in file_options(what):
            if options.get(name, "").startswith("@"):
                options[name] = client.upload(options[name][1:])
        job = client.submit_graph(what, uri, options, key=client_key, **limits, **of_clouds, **of_graphs, **rented)
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
    """Reject flags that have no effect."""
    flags = {
        "memory_mb": "max-memory", "cpu_seconds": "max-cpu-seconds", "cloud_name": "cloud",
        "checkpoint_s": "every",
    }  # fmt: skip
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{flags.get(name, name).replace('_', '-')} {value} {why}")


def _dataflow(given: str) -> Any:
    from goffish.client import dataflow

    return dataflow(given[1:]) if given.startswith("@") else given


def _workers(given: str | None, *, flow: bool) -> Any:
    """Return a number of workers, or for flows, numbers for operators."""
    from goffish.streaming.control import read_workers

    found = None if given is None else read_workers(given)
    if isinstance(found, dict) and not flow:
        raise InputError(f"--workers {given}: give a number; numbers for operators apply to flows only")
    if found == 0:
        raise InputError(f"--workers {given}: must be at least 1")
    return found


def _flow(given: str) -> Any:
    """Return the name of a flow, or the content of a local file."""
    if not given.startswith("@"):
        return given
    from goffish.definitions import read_definition
    from goffish.streaming.flow_file import FlowFile

    found = read_definition(FlowFile, given[1:], "flow", "name and operators")
    return found.model_dump(mode="json", exclude_unset=True)


def _list(
    caller: Client,
    state: Annotated[
        list[str] | None, typer.Option(help="State to list, such as queued or running; repeatable.")
    ] = None,
    label: _Label = None,
    algorithm: Annotated[str, typer.Option(help="Algorithm to list, or the word dataflow or flow.")] = "",
    client: Annotated[str, typer.Option(help="Name of the client that submitted the jobs.")] = "",
    limit: _Limit = 50,
    json: Json = False,
) -> None:
    """List jobs, newest first."""
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
    """Show one job."""
    found = client.job(job)
    if json:
        print_json(job_facts(found))
    else:
        _print_job(found)


def _watch(
    client: Client,
    job: _Job,
    after: Annotated[int, typer.Option(min=0, help="Print only events after this number.")] = 0,
    json: Json = False,
) -> None:
    """Print the events of a job, one per line, until it ends; exit with code 1 if it failed."""
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
    """Cancel a job."""
    state = job_state(client.cancel(job))
    say(f"{job} is {state}" if state in OVER else f"{job}: cancellation requested")


def _result(
    client: Client,
    job: _Job,
    output: Annotated[str, typer.Option("-o", "--output", help=TABLE_FILE)],
) -> None:
    """Download the result table of a completed job."""
    check_result_target(output, job)
    table = client.result(job)
    from goffish.gopher.result import spreadsheet_safe, write_table

    # Uploaded text may reach a spreadsheet: escape formulas.
    write_table(spreadsheet_safe(table) if output.lower().endswith(".csv") else table, output)
    say(f"{table.num_rows:,} rows written to {output}")


def _log(
    client: Client,
    job: _Job,
    max_bytes: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="Number of bytes to print, counted from the end.")
    ] = 1 << 16,
) -> None:
    """Print the end of a job's log."""
    say(client.log(job, max_bytes).rstrip("\n"))


def _flows(client: Client, json: Json = False) -> None:
    """List the flows of the server, and what their files export for descriptions."""
    found = client.list_flows()
    if json:
        print_json({"flows": [{"name": name, "exports": list(exports)} for name, exports in found.items()]})
    else:
        rows = [[name, ", ".join(exports)] for name, exports in found.items()]
        print_table("flows", ["name", "exports"], rows)


def _metrics(client: Client, job: _Job, json: Json = False) -> None:
    """Show the last metrics of a flow job."""
    from goffish.cli.stream_commands import metrics_tables

    found = client.flow_metrics(job)
    if json:
        print_json(found)
    elif found["metrics"] is None:
        say(f"{job}: no metrics yet")
    else:
        for title, header, rows in metrics_tables(found["metrics"], f"version {found['version']}"):
            print_table(title, header, rows)


def _stop(client: Client, job: _Job, json: Json = False) -> None:
    """Stop a flow with a savepoint, and wait until the job has ended."""
    client.stop_flow(job)
    ended = client.wait(job)
    if json:
        print_json(job_facts(ended))
    elif job_state(ended) == "done":
        summary = jsons.loads(ended.summary)
        say(f"{job}: {summary['stopped']}, savepoint {summary['savepoint']}, {summary['records']:,} records")
    else:
        say(f"{job} is {job_state(ended)}: {ended.error}")
    if job_state(ended) != "done":
        raise typer.Exit(1)


def _update(
    client: Client,
    job: _Job,
    flow: Annotated[
        str, typer.Argument(metavar="FLOW", help="New version: name of a flow of the server; @FILE reads a YAML file.")
    ],
    strategy: Annotated[Strategy | None, typer.Option(help=STRATEGY_HELP, show_default=STRATEGY_DEFAULT)] = None,
    require: Annotated[list[Requirement] | None, typer.Option(help=REQUIRE_HELP, show_default="none")] = None,
    partial_windows: Annotated[PartialWindow, typer.Option(help=WINDOWS_HELP)] = PartialWindow.EMIT,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, with bounds of the cost, and exit.")
    ] = False,
    json: Json = False,
) -> None:
    """Begin to replace a flow by another version of it, without stopping it; jobs watch prints the end."""
    plan = client.update_flow(
        job,
        _flow(flow),
        strategy=strategy and str(strategy),
        partial_windows=str(partial_windows),
        dry_run=dry_run,
        require=[str(one) for one in require or ()],
    )
    if json:
        print_json(plan)
    else:
        bounds = {name: plan.pop(name) for name in BOUNDS if name in plan}
        print_facts(f"{job}: {plan['changes']}", plan_facts(plan))
        if bounds:
            print_bounds(bounds)


def _scale(
    client: Client,
    job: _Job,
    workers: Annotated[str, typer.Argument(metavar="WORKERS", help=WORKERS_HELP)],
) -> None:
    """Begin to change the number of workers of a flow, without stopping it; jobs watch prints the end."""
    client.scale_flow(job, _workers(workers, flow=True))
    say(f"{job}: {workers} workers requested")


def _switch(
    client: Client,
    job: _Job,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="Operator with alternates.")],
    alternate: Annotated[str, typer.Argument(metavar="ALTERNATE", help="Alternate; main is the function itself.")],
) -> None:
    """Switch an operator of a flow to an alternate."""
    client.switch_alternate(job, operator, alternate)
    say(f"{job}: operator {operator} uses {alternate}")


def _event(event: Any) -> dict[str, Any]:
    return {
        "number": event.number, "time": event.time.ToJsonString(), "kind": event.kind,
        "state": job_state(event), "text": event.text,
        "details": jsons.loads(event.details) if event.details else None,
    }  # fmt: skip


def _print_job(job: Any) -> None:
    found = job_facts(job)
    names = ("state", "algorithm", "client", "submitted", "started", "ended", "attempts")
    facts = [(name, found[name]) for name in names]
    run = job.spec.dataflow
    flow = job.spec.flow
    named = flow.flow_name or (job.spec.HasField("flow") and "inline description")
    facts += [("input", job.spec.graph.input_uri or run.dataflow_name or run.dataflow_definition.name or named)]
    facts += [
        (name.replace("_", " "), found[name]) for name in ("progress", "cost", "expected_cost", "error") if found[name]
    ]
    facts += [(name.replace("_", " "), value) for name, value in (found["summary"] or {}).items()]
    print_facts(f"job {job.id}", [(name, value) for name, value in facts if value not in (None, "")])


#: Interval of checks for Ctrl-C, in seconds; short, because the terminal must be restored in `goffish.cli.main.GRACE`.
_NAP_S = 0.1


def _top(
    client: Client,
    interval: Annotated[float, typer.Option(**duration("s", 0.1), help="Refresh interval; numbers are seconds.")] = 2.0,
    limit: _Limit = 30,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
) -> None:
    """Show a live table of jobs: running, then queued, then ended; press Ctrl-C to quit."""
    rows = _rows(client, limit)
    if once or not sys.stdout.isatty():
        print_table("jobs", COLUMNS, rows)
        return
    _live(client, rows, interval, limit)


def _rows(client: Client, limit: int) -> list[list[str]]:
    """Return rows of active, then queued, then ended jobs; newest first in each group."""
    found: dict[str, list[str]] = {}  # by ID: a job that changes state between the calls appears twice
    for states in (UNDER_WAY, ("queued",), OVER):
        left = limit - len(found)
        if left > 0:
            for job in islice(client.list(*states, page_size=min(left, _PAGE)), left):
                found.setdefault(job.id, job_row(job))
    return list(found.values())


def _live(client: Client, rows: list[list[str]], interval: float, limit: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from rich.live import Live

    from goffish.client.channels import AWAY, ServiceError

    with ThreadPoolExecutor(1) as elsewhere, Live(_picture(rows), screen=True, auto_refresh=False) as live:
        live.refresh()
        while True:
            _rest(interval)
            # A blocked call ignores Ctrl-C; this thread does not.
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

"""``goffish jobs`` and ``goffish top``: jobs of the scheduling service."""

from __future__ import annotations

import json as jsons
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.checks import check_result_target, name_values
from goffish.cli.extras import needs_extra
from goffish.cli.output import print_facts, print_json, print_table, say
from goffish.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from goffish.client import Client

_ACCESS = "Server"
_Server = Annotated[str, typer.Option(envvar="GOFFISH_SERVER", help="HOST:PORT or unix:PATH.", rich_help_panel=_ACCESS)]
_Token = Annotated[
    str | None,
    typer.Option(envvar="GOFFISH_TOKEN", help="@FILE: read it from there.", rich_help_panel=_ACCESS),
]
_Authority = Annotated[
    Path | None,
    typer.Option(
        envvar="GOFFISH_AUTHORITY",
        rich_help_panel=_ACCESS,
        help="TLS, with the certificate authority of this file. Mutual TLS: GOFFISH_CERTIFICATE and GOFFISH_KEY "
        "name the files of the client.",
    ),
]
_Tls = Annotated[bool, typer.Option("--tls", help="TLS, with what this computer trusts.", rich_help_panel=_ACCESS)]
_Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
_Job = Annotated[str, typer.Argument(metavar="JOB", help="Its id.")]
_Label = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Repeatable.")]
_HERE = "127.0.0.1:7077"


def add_jobs_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    jobs = typer.Typer(help="Jobs of the scheduling service.", no_args_is_help=True)
    for name, command in (
        ("submit", _submit), ("list", _list), ("show", _show), ("watch", _watch), ("cancel", _cancel),
        ("result", _result), ("log", _log),
    ):  # fmt: skip
        jobs.command(name)(command)
    app.add_typer(jobs, name="jobs")
    app.command("top")(_top)


def _submit(
    what: Annotated[
        str, typer.Argument(metavar="ALGORITHM|dataflow", help="As in goffish run, or a dataflow to be deployed.")
    ],
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="Below the server's data folders, or @FILE to upload; of a dataflow its name."
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Of the algorithm or the policy; repeatable."),
    ] = None,
    key: Annotated[str, typer.Option(help="The same key again gives the same job.")] = "",
    runner: Annotated[str, typer.Option(help="local, mpi, spark or cloud.")] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Threads, or ranks.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Supersteps between checkpoints.")] = None,
    memory: Annotated[int | None, typer.Option(min=1, help="Most MB of its processes.")] = None,
    cpu_seconds: Annotated[float | None, typer.Option(help="Most seconds of processors.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Hours from now.")] = None,
    budget: Annotated[float | None, typer.Option(help="Most that it may cost.")] = None,
    policy: Annotated[str | None, typer.Option(help="Who decides on machines.")] = None,
    cloud: Annotated[str | None, typer.Option(help="Catalogue of the simulated cloud.")] = None,
    rates: Annotated[str | None, typer.Option(help="Of a dataflow: as in goffish simulate.")] = None,
    hours: Annotated[float | None, typer.Option(help="Of a dataflow: how long it runs.")] = None,
    label: _Label = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is over; exit code 1 if it failed.")] = False,
    json: _Json = False,
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """Submit a job; prints its id."""
    limits: dict[str, Any] = {
        "deadline_s": None if deadline is None else deadline * 3600.0, "budget": budget,
        "labels": name_values(label, "--label"),
    }  # fmt: skip
    options = name_values(option, "--option")
    with _client(server, token, authority, tls) as client:
        if what == "dataflow":
            run: dict[str, Any] = {"policy": policy, "cloud_name": cloud, "rates": rates, "hours": hours}
            job = client.submit_dataflow(input, options, key=key, **limits, **run)
        else:
            uri = client.upload(input[1:]) if input.startswith("@") else input
            graph: dict[str, Any] = {
                "workers": workers, "checkpoint_every": checkpoint_every, "memory_mb": memory,
                "cpu_seconds": cpu_seconds, "policy": policy, "cloud_name": cloud,
            }  # fmt: skip
            job = client.submit_graph(what, uri, options, key=key, runner=runner, **limits, **graph)
        if wait:
            job = client.wait(job.id)
        if json:
            print_json(_told(job))
        elif wait:
            _print_job(job)
        else:
            say(job.id)
    if wait and _state(job) != "done":
        raise typer.Exit(1)


def _list(
    state: Annotated[list[str] | None, typer.Option(help="queued, running, done, …; repeatable.")] = None,
    label: _Label = None,
    algorithm: Annotated[str, typer.Option(help="An algorithm, or dataflow.")] = "",
    client: Annotated[str, typer.Option(help="Who submitted it.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Jobs at most.")] = 50,
    json: _Json = False,
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """List jobs, the newest first."""
    from itertools import islice

    with _client(server, token, authority, tls) as caller:
        asked = caller.list(*(state or ()), labels=name_values(label, "--label"), algorithm=algorithm, client=client)
        found = list(islice(asked, limit))
    if json:
        print_json({"jobs": [_told(job) for job in found]})
    else:
        print_table("jobs", _COLUMNS, [_row(job) for job in found])


def _show(
    job: _Job,
    json: _Json = False,
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """Show a job."""
    with _client(server, token, authority, tls) as client:
        found = client.job(job)
    if json:
        print_json(_told(found))
    else:
        _print_job(found)


def _watch(
    job: _Job,
    after: Annotated[int, typer.Option(min=0, help="Events after this number.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each event.")] = False,
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """Print a job's events as they happen, until it is over; exit code 1 if it failed."""
    last = None
    with _client(server, token, authority, tls) as client:
        for event in client.watch(job, after):
            last = _event(event)
            if json:
                say(jsons.dumps(last))
            else:
                say(f"{last['time']}  {last['kind']:<10} {last['state']:<12} {last['text']}")
    if last is not None and last["state"] in ("failed", "cancelled"):
        raise typer.Exit(1)


def _cancel(
    job: _Job,
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """Ask a job to stop."""
    with _client(server, token, authority, tls) as client:
        found = client.cancel(job)
    state = _state(found)
    say(f"{job} is asked to stop" if state not in ("done", "failed", "cancelled") else f"{job} is {state}")


def _result(
    job: _Job,
    output: Annotated[str, typer.Option("-o", "--output", help="Table file: .parquet, .csv, .json or .arrow.")],
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """Fetch the table of a job that is done."""
    check_result_target(output, job)
    with _client(server, token, authority, tls) as client:
        table = client.result(job)
    from goffish.gopher.result import write_table

    write_table(table, output)
    say(f"{table.num_rows:,} rows written to {output}")


def _log(
    job: _Job,
    bytes: Annotated[int, typer.Option(min=1, max=1 << 20, help="From the end.")] = 1 << 16,
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """Print the end of a job's log."""
    with _client(server, token, authority, tls) as client:
        text = client.log(job, bytes)
    say(text.rstrip("\n"))


def _top(
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    limit: Annotated[int, typer.Option(min=1, help="Jobs at most.")] = 30,
    once: Annotated[bool, typer.Option("--once", help="Print the table once.")] = False,
    server: _Server = _HERE,
    token: _Token = None,
    authority: _Authority = None,
    tls: _Tls = False,
) -> None:
    """Show jobs as a live table, those that run first; Ctrl-C ends it."""
    import sys
    import time
    from itertools import islice

    from rich.live import Live
    from rich.table import Table

    def picture(client: Client) -> Table:
        found = list(islice(client.list(), max(limit, 200)))
        found.sort(key=lambda job: _state(job) in ("done", "failed", "cancelled"))
        table = Table(*_COLUMNS)
        for job in found[:limit]:
            table.add_row(*_row(job))
        return table

    with _client(server, token, authority, tls) as client:
        if once or not sys.stdout.isatty():
            found = list(islice(client.list(), limit))
            print_table("jobs", _COLUMNS, [_row(job) for job in found])
            return
        with Live(picture(client), screen=True, auto_refresh=False) as live:
            while True:
                live.update(picture(client), refresh=True)
                time.sleep(every)


_COLUMNS = ["id", "what", "state", "client", "submitted", "seconds", "progress", "attempts", "cost", "of"]


def _row(job: Any) -> list[str]:
    told = _told(job)
    seconds = told["seconds"]
    return [
        told["id"], told["what"], told["state"], told["client"], told["submitted"][:19].replace("T", " "),
        "" if seconds is None else f"{seconds:.1f}", str(told["progress"] or ""), str(told["attempts"] or ""),
        f"{job.cost:.4g}" if job.cost else "", f"{job.expected_cost:.4g}" if job.expected_cost else "",
    ]  # fmt: skip


def _told(job: Any) -> dict[str, Any]:
    """A job as JSON."""
    from google.protobuf.json_format import MessageToDict

    began = job.started.ToMicroseconds() if job.HasField("started") else None
    ended = job.ended.ToMicroseconds() if job.HasField("ended") else None
    return {
        "id": job.id, "what": job.spec.graph.algorithm or "dataflow", "state": _state(job), "client": job.client,
        "client_key": job.client_key, "spec": MessageToDict(job.spec, preserving_proto_field_name=True),
        "submitted": job.submitted.ToJsonString(), "started": job.started.ToJsonString() if began else None,
        "ended": job.ended.ToJsonString() if ended else None,
        "seconds": (ended - began) / 1e6 if began and ended else None, "attempts": job.attempts,
        "progress": job.progress, "cost": job.cost, "expected_cost": job.expected_cost, "currency": job.currency,
        "error": job.error, "summary": jsons.loads(job.summary) if job.summary else None,
        "cancel_requested": job.cancel_requested,
    }  # fmt: skip


def _event(event: Any) -> dict[str, Any]:
    from goffish.v1 import jobs_pb2

    return {
        "number": event.number, "time": event.time.ToJsonString(), "kind": event.kind,
        "state": jobs_pb2.JobState.Name(event.state).removeprefix("JOB_STATE_").lower(), "text": event.text,
        "details": jsons.loads(event.details) if event.details else None,
    }  # fmt: skip


def _state(job: Any) -> str:
    from goffish.v1 import jobs_pb2

    return str(jobs_pb2.JobState.Name(job.state)).removeprefix("JOB_STATE_").lower()


def _print_job(job: Any) -> None:
    told = _told(job)
    facts = [(name, told[name]) for name in ("state", "what", "client", "submitted", "started", "ended", "attempts")]
    facts += [("input", job.spec.graph.input_uri or job.spec.dataflow.dataflow_name)]
    facts += [
        (name.replace("_", " "), told[name]) for name in ("progress", "cost", "expected_cost", "error") if told[name]
    ]
    facts += [(name.replace("_", " "), value) for name, value in (told["summary"] or {}).items()]
    print_facts(f"job {job.id}", [(name, value) for name, value in facts if value not in (None, "")])


@contextmanager
def _client(server: str, token: str | None, authority: Path | None, tls: bool) -> Iterator[Client]:
    with needs_extra("service"):
        from goffish.client import Client
    if token is not None and token.startswith("@"):
        try:
            token = Path(token[1:]).read_text().strip()
        except OSError as error:
            raise InputError(f"--token {token}: cannot be read ({error.strerror})") from None
    own = [os.environ.get(f"GOFFISH_{name}") for name in ("CERTIFICATE", "KEY")]
    with Client(server, token, authority=authority, tls=tls, certificate=own[0], key=own[1]) as client:
        yield client

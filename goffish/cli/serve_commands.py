"""``goffish serve`` and ``goffish clients``: the scheduling service and who may call it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goffish.cli.checks import check_choice
from goffish.cli.output import print_json, print_table, say
from goffish.partial import local_path

_PANEL_ACCESS, _PANEL_LIMITS = "Access", "Limits"


def add_serve_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("serve")(_serve)
    clients = typer.Typer(
        help="Who may call the service. A running server reads the file again within two seconds.", no_args_is_help=True
    )
    for name, command in (("list", _list), ("add", _add), ("remove", _remove), ("rotate", _rotate)):
        clients.command(name)(command)
    app.add_typer(clients, name="clients")


def _serve(
    home: Annotated[str, typer.Option(help="Where jobs, uploads and the database are kept.")] = ".goffish",
    listen: Annotated[
        str, typer.Option(help="HOST:PORT, port 0 for any that is free, or unix:PATH.")
    ] = "127.0.0.1:7077",
    data: Annotated[
        list[Path] | None, typer.Option(help="Folder below which jobs may read; repeatable. Default: none.")
    ] = None,
    markets: Annotated[Path | None, typer.Option(help="Folder of spot markets that goffish spot fit wrote.")] = None,
    database: Annotated[
        str | None, typer.Option(help="postgresql://… or sqlite:///FILE. Default: SQLite in --home.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Jobs at a time.")] = 2,
    spark_master: Annotated[str | None, typer.Option(help="Where spark jobs go, such as spark://HOST:7077.")] = None,
    clouds: Annotated[
        Path | None, typer.Option(help="Folder of *.yaml catalogues that jobs may name, besides those that come along.")
    ] = None,
    cloud_pace: Annotated[
        float, typer.Option(help="Seconds that pass in the simulated cloud, for prices and bills, in a second.")
    ] = 360.0,
    grace: Annotated[float, typer.Option(min=0, help="Seconds for what runs when the server is asked to stop.")] = 10.0,
    keep: Annotated[
        float | None, typer.Option(min=0, help="Days after which jobs that are over are forgotten. Default: never.")
    ] = None,
    traces: Annotated[
        str | None, typer.Option(help="OpenTelemetry collector for traces of calls, such as http://127.0.0.1:4317.")
    ] = None,
    web: Annotated[str | None, typer.Option(help="HOST:PORT on this computer for the dashboard and /metrics.")] = None,
    pass_environment: Annotated[
        list[str] | None,
        typer.Option(help="Environment variable that jobs get, such as AWS_PROFILE; repeatable. Default: none."),
    ] = None,
    clients: Annotated[
        Path | None,
        typer.Option(help="File of clients; goffish clients add writes it.", rich_help_panel=_PANEL_ACCESS),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="For TLS, in PEM.", rich_help_panel=_PANEL_ACCESS)] = None,
    key: Annotated[Path | None, typer.Option(help="Of --certificate, in PEM.", rich_help_panel=_PANEL_ACCESS)] = None,
    client_authority: Annotated[
        Path | None,
        typer.Option(help="Clients need a certificate of this authority.", rich_help_panel=_PANEL_ACCESS),
    ] = None,
    rate: Annotated[
        float, typer.Option(help="Calls per second of each client.", rich_help_panel=_PANEL_LIMITS)
    ] = 5000.0,
    at_a_time: Annotated[
        int, typer.Option(help="Calls of each client at a time.", rich_help_panel=_PANEL_LIMITS)
    ] = 2000,
    most_waiting: Annotated[int, typer.Option(help="Jobs in the queue.", rich_help_panel=_PANEL_LIMITS)] = 100_000,
    most_queued: Annotated[
        int, typer.Option(help="Jobs of each client in the queue.", rich_help_panel=_PANEL_LIMITS)
    ] = 10_000,
    most_workers: Annotated[
        int | None,
        typer.Option(
            help="Threads or MPI ranks of a job. Default: cores of this computer, or 8.", rich_help_panel=_PANEL_LIMITS
        ),
    ] = None,
    most_cores: Annotated[
        int | None, typer.Option(help="Cores of a job. Default: all.", rich_help_panel=_PANEL_LIMITS)
    ] = None,
    most_memory: Annotated[
        int | None,
        typer.Option(help="MB of a job. Default: 80 % of the memory, over --slots.", rich_help_panel=_PANEL_LIMITS),
    ] = None,
    most_run: Annotated[
        float, typer.Option(help="Seconds of a job from its first start.", rich_help_panel=_PANEL_LIMITS)
    ] = 86_400.0,
    most_option: Annotated[
        int, typer.Option(help="Largest whole number among a job's options.", rich_help_panel=_PANEL_LIMITS)
    ] = 10_000_000,
    most_message: Annotated[int, typer.Option(help="Bytes of a message.", rich_help_panel=_PANEL_LIMITS)] = 4 << 20,
    most_upload: Annotated[int, typer.Option(help="Bytes of an upload.", rich_help_panel=_PANEL_LIMITS)] = 1 << 30,
    most_uploads: Annotated[
        int, typer.Option(help="Bytes of all uploads that are kept.", rich_help_panel=_PANEL_LIMITS)
    ] = 10 << 30,
    most_plan: Annotated[float, typer.Option(help="Seconds of a plan.", rich_help_panel=_PANEL_LIMITS)] = 300.0,
    most_plan_memory: Annotated[
        int, typer.Option(help="MB of a process that plans.", rich_help_panel=_PANEL_LIMITS)
    ] = 2048,
    most_streams: Annotated[
        int, typer.Option(help="Streams of each client at a time, such as watches.", rich_help_panel=_PANEL_LIMITS)
    ] = 100,
) -> None:
    """Serve jobs and plans by gRPC until told to stop (Ctrl-C, SIGTERM); the next start goes on with what was left."""
    import asyncio

    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.settings import Settings
        from goffish.services.api.telemetry import set_up_logs
        from goffish.services.app import Server

    settings = Settings(
        home=local_path(home).absolute(), listen=listen, data=tuple(data or ()), markets=markets, database=database,
        clients=clients, certificate=certificate, key=key, client_authority=client_authority, slots=slots,
        spark_master=spark_master, clouds=None if clouds is None else clouds.absolute(), cloud_pace=cloud_pace,
        rate=rate, burst=max(rate, 1.0), calls_at_a_time=at_a_time,
        most_queued=most_queued, most_cores=most_cores, most_memory_mb=most_memory, most_run_s=most_run,
        most_option=most_option, **({} if most_workers is None else {"most_workers": most_workers}),
        most_waiting=most_waiting, most_message_bytes=most_message, most_upload_bytes=most_upload,
        most_uploads_bytes=most_uploads, most_plan_s=most_plan, most_plan_mb=most_plan_memory,
        most_streams=most_streams, grace_s=grace, keep_days=keep, traces=traces, web=web,
        pass_environment=tuple(pass_environment or ()),
    )  # fmt: skip
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    set_up_logs(settings.home)
    asyncio.run(Server(settings).run(ready=lambda address: say(f"serving on {address}")))


_Name = Annotated[str, typer.Argument(help="Name of the client.")]
_File = Annotated[str, typer.Option(help="File of clients.")]
_CLIENTS = "clients.yaml"


def _list(
    file: _File = _CLIENTS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List clients with their roles, and by what they are known."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.clients import read_clients
    rows = [
        (one.name, one.role, "yes" if one.token_sha256 is not None else "", one.certificate or "")
        for one in read_clients(local_path(file)).clients
    ]
    if json:
        names = ("name", "role", "token", "certificate")
        print_json(
            {"clients": [dict(zip(names, (*row[:2], bool(row[2]), row[3] or None), strict=True)) for row in rows]}
        )
    else:
        print_table("clients", ["name", "role", "token", "certificate"], rows)


def _add(
    name: _Name,
    role: Annotated[str, typer.Option(help="read, submit or admin; each may do what those before it may.")] = "submit",
    file: Annotated[str, typer.Option(help="File of clients; made if it does not exist.")] = _CLIENTS,
    certificate: Annotated[str | None, typer.Option(help="Common name of its certificate, instead of a token.")] = None,
    token: Annotated[bool, typer.Option("--token", help="A token beside --certificate, for the dashboard.")] = False,
) -> None:
    """Add a client and print its token, which is not kept anywhere."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.clients import add_client

    check_choice("role", role, ("read", "submit", "admin"))
    made = add_client(local_path(file), name, role, certificate, token)
    say(made or f"{name} is known by the certificate of {certificate}")


def _remove(name: _Name, file: _File = _CLIENTS) -> None:
    """Remove a client: its token and certificate are refused from then on."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.clients import remove_client

    remove_client(local_path(file), name)
    say(f"{name} removed from {file}")


def _rotate(name: _Name, file: _File = _CLIENTS) -> None:
    """Replace the token of a client and print the new one; the old one is refused from then on."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.clients import rotate_token

    say(rotate_token(local_path(file), name))

"""``goffish serve`` and ``goffish clients``: run the scheduling service and manage its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goffish.cli.checks import check_choice
from goffish.cli.inputs import duration
from goffish.cli.options import Json
from goffish.cli.output import print_json, print_table, say
from goffish.partial import local_path

_PANEL_ACCESS, _PANEL_LIMITS = "Access", "Limits"


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("serve")(_serve)
    clients = typer.Typer(
        help="Manage the clients of the service; a running server applies changes within 2 s.", no_args_is_help=True
    )
    for name, command in (("list", _list), ("add", _add), ("remove", _remove), ("rotate", _rotate)):
        clients.command(name)(command)
    app.add_typer(clients, name="clients")


def _serve(
    home: Annotated[str, typer.Option(help="Folder for jobs, uploads and the database.")] = ".goffish",
    listen: Annotated[
        str, typer.Option(help="Address to listen on: HOST:PORT (port 0: any free port) or unix:PATH.")
    ] = "127.0.0.1:7077",
    data: Annotated[
        list[Path] | None, typer.Option(help="Folder that jobs may read from; repeatable.", show_default="none")
    ] = None,
    flows: Annotated[
        Path | None, typer.Option(help="Folder of flows that clients may run as jobs.", show_default="none")
    ] = None,
    markets: Annotated[Path | None, typer.Option(help="Folder of spot markets written by goffish spot fit.")] = None,
    database: Annotated[
        str | None,
        typer.Option(help="Database URL: postgresql://… or sqlite:///FILE.", show_default="SQLite in --home"),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent jobs.")] = 2,
    spark_master: Annotated[
        str | None,
        typer.Option(help="Master of jobs with the runner spark: local[N], spark://…, yarn, k8s://… or sc://…."),
    ] = None,
    spark_properties: Annotated[
        Path | None,
        typer.Option(
            help="Spark properties file of these jobs; it can hold secrets and name the master.", show_default="none"
        ),
    ] = None,
    spark_storage: Annotated[
        str | None,
        typer.Option(
            help="Folder or URI that executors can use, for checkpoints and graphs of these jobs.", show_default="none"
        ),
    ] = None,
    clouds: Annotated[
        Path | None, typer.Option(help="Folder of additional cloud catalogues (*.yaml) for jobs.")
    ] = None,
    rent: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of the provider of machines for jobs with the runner cloud, and their storage.",
            show_default="processes of the server",
        ),
    ] = None,
    cloud_speed: Annotated[
        float, typer.Option(help="Simulated cloud seconds per real second, for prices and billing.")
    ] = 360.0,
    grace: Annotated[
        float,
        typer.Option(**duration("s"), help="Grace period for running jobs and calls on shutdown; numbers are seconds."),
    ] = 10.0,
    keep_days: Annotated[
        float | None,
        typer.Option(min=0, help="Retention of ended jobs, in days.", show_default="unlimited"),
    ] = None,
    traces: Annotated[
        str | None, typer.Option(help="OpenTelemetry collector for call traces, such as http://127.0.0.1:4317.")
    ] = None,
    web: Annotated[
        str | None, typer.Option(help="Loopback HOST:PORT for the dashboard and /metrics.", show_default="disabled")
    ] = None,
    pass_environment: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment variable to pass to jobs, such as AWS_PROFILE; repeatable.", show_default="none"
        ),
    ] = None,
    clients: Annotated[
        Path | None,
        typer.Option(help="Client file, written by goffish clients add.", rich_help_panel=_PANEL_ACCESS),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate of the server, in PEM format.", rich_help_panel=_PANEL_ACCESS)
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Private key of --certificate, in PEM format.", rich_help_panel=_PANEL_ACCESS)
    ] = None,
    client_authority: Annotated[
        Path | None,
        typer.Option(
            help="Certificate authority of clients, in PEM format; enables mutual TLS.", rich_help_panel=_PANEL_ACCESS
        ),
    ] = None,
    max_call_rate: Annotated[
        float, typer.Option(help="Maximum calls per second per client.", rich_help_panel=_PANEL_LIMITS)
    ] = 5000.0,
    max_calls: Annotated[
        int, typer.Option(help="Maximum concurrent calls per client.", rich_help_panel=_PANEL_LIMITS)
    ] = 2000,
    max_queued: Annotated[
        int, typer.Option(help="Maximum number of queued jobs.", rich_help_panel=_PANEL_LIMITS)
    ] = 100_000,
    max_queued_per_client: Annotated[
        int, typer.Option(help="Maximum number of queued jobs per client.", rich_help_panel=_PANEL_LIMITS)
    ] = 10_000,
    max_workers: Annotated[
        int | None,
        typer.Option(
            help="Maximum threads or MPI ranks per job.",
            show_default="number of cores, at least 8",
            rich_help_panel=_PANEL_LIMITS,
        ),
    ] = None,
    max_machines: Annotated[
        int, typer.Option(help="Maximum rented machines per job.", rich_help_panel=_PANEL_LIMITS)
    ] = 8,
    max_cores: Annotated[
        int | None,
        typer.Option(help="Maximum cores per job.", show_default="all cores", rich_help_panel=_PANEL_LIMITS),
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(
            help="Memory limit of all processes of a job, in MB.",
            show_default="80 % of RAM divided by --slots",
            rich_help_panel=_PANEL_LIMITS,
        ),
    ] = None,
    max_run_time: Annotated[
        float,
        typer.Option(
            **duration("s"),
            help="Maximum duration of a job from its first start; numbers are seconds.",
            rich_help_panel=_PANEL_LIMITS,
        ),
    ] = 86_400.0,
    max_option: Annotated[
        int, typer.Option(help="Maximum value of an integer job option.", rich_help_panel=_PANEL_LIMITS)
    ] = 10_000_000,
    max_storage: Annotated[
        int,
        typer.Option(
            help="Maximum size of the folder of a flow job, and of the result of a rented job, in MB.",
            rich_help_panel=_PANEL_LIMITS,
        ),
    ] = 10_240,
    max_message: Annotated[
        int, typer.Option(help="Maximum size of a message, in bytes.", rich_help_panel=_PANEL_LIMITS)
    ] = 4 << 20,
    max_upload: Annotated[
        int, typer.Option(help="Maximum size of one upload, in bytes.", rich_help_panel=_PANEL_LIMITS)
    ] = 1 << 30,
    max_uploads: Annotated[
        int, typer.Option(help="Maximum total size of stored uploads, in bytes.", rich_help_panel=_PANEL_LIMITS)
    ] = 10 << 30,
    max_plan_time: Annotated[
        float,
        typer.Option(
            **duration("s"), help="Time limit of a planning call; numbers are seconds.", rich_help_panel=_PANEL_LIMITS
        ),
    ] = 300.0,
    max_plan_memory: Annotated[
        int, typer.Option(help="Memory limit of a planning process, in MB.", rich_help_panel=_PANEL_LIMITS)
    ] = 2048,
    max_streams: Annotated[
        int, typer.Option(help="Maximum concurrent streams per client, such as watches.", rich_help_panel=_PANEL_LIMITS)
    ] = 100,
) -> None:
    """Serve jobs and plans over gRPC until Ctrl-C or SIGTERM; unfinished jobs resume at the next start."""
    import asyncio

    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.settings import Settings
        from goffish.services.api.telemetry import set_up_logs
        from goffish.services.app import Server

    settings = Settings(
        home=local_path(home).absolute(), listen=listen, data=tuple(data or ()),
        flows=None if flows is None else local_path(flows).absolute(), max_storage_mb=max_storage, markets=markets,
        database=database, clients=clients, certificate=certificate, key=key, client_authority=client_authority,
        slots=slots, spark_master=spark_master,
        spark_properties=None if spark_properties is None else local_path(spark_properties),
        spark_storage=spark_storage, clouds=None if clouds is None else clouds.absolute(),
        cloud_speed=cloud_speed, rent=None if rent is None else local_path(rent),
        rate=max_call_rate, burst=max(max_call_rate, 1.0), max_calls=max_calls,
        max_queued_per_client=max_queued_per_client, max_cores=max_cores, max_memory_mb=max_memory,
        max_run_s=max_run_time, max_option=max_option, max_machines=max_machines,
        **({} if max_workers is None else {"max_workers": max_workers}),
        max_queued=max_queued, max_message_bytes=max_message, max_upload_bytes=max_upload,
        max_uploads_bytes=max_uploads, max_plan_s=max_plan_time, max_plan_mb=max_plan_memory,
        max_streams=max_streams, grace_s=grace, keep_days=keep_days, traces=traces, web=web,
        pass_environment=tuple(pass_environment or ()),
    )  # fmt: skip
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    set_up_logs(settings.home)
    asyncio.run(Server(settings).run(ready=lambda address: say(f"serving on {address}")))


_Name = Annotated[str, typer.Argument(help="Name of the client.")]
_File = Annotated[str, typer.Option(help="Client file.")]
_CLIENTS = "clients.yaml"


def _list(
    file: _File = _CLIENTS,
    json: Json = False,
) -> None:
    """List clients with their roles and credentials."""
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
    role: Annotated[
        str, typer.Option(help="Role: read, submit or admin; each includes the rights of the previous ones.")
    ] = "submit",
    file: _File = _CLIENTS,
    common_name: Annotated[
        str | None, typer.Option(help="Common name of the client certificate, instead of a token.")
    ] = None,
    with_token: Annotated[
        bool, typer.Option("--with-token", help="Also create a token with --common-name, for the dashboard.")
    ] = False,
) -> None:
    """Add a client and print its token, which is not stored."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.clients import add_client

    check_choice("role", role, ("read", "submit", "admin"))
    made = add_client(local_path(file), name, role, common_name, with_token)
    say(made or f"{name} authenticates with the certificate of {common_name}")


def _remove(name: _Name, file: _File = _CLIENTS) -> None:
    """Remove a client and revoke its token and certificate."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.clients import remove_client

    remove_client(local_path(file), name)
    say(f"{name} removed from {file}")


def _rotate(name: _Name, file: _File = _CLIENTS) -> None:
    """Replace the token of a client, print the new one and revoke the old one."""
    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.clients import rotate_token

    say(rotate_token(local_path(file), name))

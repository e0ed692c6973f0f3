"""``goffish stream serve``: a live graph that clients change and query over gRPC."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from goffish.cli.output import say
from goffish.cli.query_commands import begin_deliveries, known_topics
from goffish.cli.query_options import (
    DeliverOption,
    GraphOptions,
    LatenessOption,
    LateOption,
    ParamOption,
    QueryFile,
    RetentionOption,
    TombstoneOption,
    VocabularyOption,
)
from goffish.partial import local_path

_ACCESS, _LIMITS = "Access", "Limits"


def add_graph_server(stream: typer.Typer) -> None:
    """Add the command."""
    stream.command("serve")(_serve)


def _serve(
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="Graph queries (.cgql).")],
    state: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of the live graph and its log; a server resumes from it.")
    ],
    listen: Annotated[
        str, typer.Option(help="Address to listen on: HOST:PORT (port 0: any free port) or unix:PATH.")
    ] = "127.0.0.1:7078",
    events_page: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Loopback address of a live page of events.", show_default="no page"),
    ] = None,
    deliver: DeliverOption = None,
    param: ParamOption = None,
    vocabulary: VocabularyOption = None,
    lateness: LatenessOption = 5.0,
    late: LateOption = "side",
    tombstone_ttl: TombstoneOption = 3600.0,
    retention: RetentionOption = 604_800.0,
    clients: Annotated[
        Path | None, typer.Option(help="Client file, written by goffish clients add.", rich_help_panel=_ACCESS)
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate of the server, in PEM format.", rich_help_panel=_ACCESS)
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Private key of --certificate, in PEM format.", rich_help_panel=_ACCESS)
    ] = None,
    client_authority: Annotated[
        Path | None,
        typer.Option(
            help="Certificate authority of clients, in PEM format; enables mutual TLS.", rich_help_panel=_ACCESS
        ),
    ] = None,
    max_call_rate: Annotated[
        float, typer.Option(help="Maximum calls per second per client.", rich_help_panel=_LIMITS)
    ] = 5000.0,
    max_streams: Annotated[
        int,
        typer.Option(help="Maximum concurrent streams per client, such as watches.", rich_help_panel=_LIMITS),
    ] = 1000,
    max_message: Annotated[int, typer.Option(help="Maximum size of a message, in bytes.", rich_help_panel=_LIMITS)] = 4
    << 20,
    max_text: Annotated[
        int, typer.Option(min=1, help="Maximum size of the text of queries, in bytes.", rich_help_panel=_LIMITS)
    ] = 65_536,
    max_queries: Annotated[int, typer.Option(min=1, help="Maximum number of queries.", rich_help_panel=_LIMITS)] = 1000,
) -> None:
    """Serve a live graph over gRPC until Ctrl-C or SIGTERM: changes, queries and subscriptions."""
    import asyncio

    from goffish.extras import needed_for

    with needed_for("the service"):
        from goffish.services.api.settings import Settings
        from goffish.services.live_graphs import Bounds, LiveGraphServer

    settings = Settings(
        home=local_path(state), listen=listen, clients=clients, certificate=certificate, key=key,
        client_authority=client_authority, rate=max_call_rate, burst=max(max_call_rate, 1.0),
        max_calls=2 * max_streams, max_message_bytes=max_message, max_streams=max_streams,
    )  # fmt: skip
    with ExitStack() as stack:
        live = GraphOptions(lateness, late, tombstone_ttl, state, retention).open()
        # What is not delivered is in the folder, and a sink that is down does not hold up the end.
        stack.callback(live.close, flush=False)
        file = QueryFile(queries, param, vocabulary)
        file.add_words(live)
        topics = known_topics(live, file, state)
        begin_deliveries(live, topics, deliver or (), state)
        url = None
        if events_page is not None:
            from goffish.plot.live_events import EventsPage

            url = stack.enter_context(EventsPage(live, events_page, title=Path(queries).name)).url

        def ready(address: str) -> None:
            say(f"serving on {address}" + ("" if url is None else f"\npage on {url}"))

        server = LiveGraphServer(live, settings, Bounds(max_queries, max_text))
        asyncio.run(server.run(ready))

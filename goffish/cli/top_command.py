"""``goffish top``: jobs of the scheduling service as a live table."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.output import print_table
from goffish.cli.server_calls import COLUMNS, OVER, UNDER_WAY, calls_server, job_row

if TYPE_CHECKING:
    from rich.console import RenderableType

    from goffish.client import Client
else:
    Client = Any

#: Ctrl-C is heard between two naps, and the terminal has to be as before within a moment (`goffish.cli.main.GRACE`).
_NAP_S = 0.1
_PAGE = 100


def add_top_command(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("top")(calls_server(_top))


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
    from itertools import islice

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

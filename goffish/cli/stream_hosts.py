"""Options of flows on several machines, and ``goffish stream worker``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.options import read_token
from goffish.cli.process import TERMINATED
from goffish.errors import InputError
from goffish.extras import needed_for
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.streaming.hosts.access import Access
    from goffish.streaming.hosts.machines import Machines
    from goffish.streaming.topology import Topology

#: Heading of the options.
MACHINES = "Several machines"
FEATURE = "stream --listen and stream worker"

ListenOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Address at which agents join: HOST:PORT, port 0: any.",
        show_default="one machine", rich_help_panel=MACHINES,
    ),
]  # fmt: skip
HereOption = Annotated[
    int,
    typer.Option(
        min=0, help="Workers that run here, with --listen; at least 1 if clients send records to the flow.",
        rich_help_panel=MACHINES,
    ),
]  # fmt: skip
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="GOFFISH_TOKEN", help="Token of all machines of the flow; @FILE reads it from a file.",
        rich_help_panel=MACHINES,
    ),
]  # fmt: skip
CertificateOption = Annotated[
    Path | None, typer.Option(help="TLS certificate of this machine, in PEM format.", rich_help_panel=MACHINES)
]
KeyOption = Annotated[
    Path | None, typer.Option(help="Private key of --certificate, in PEM format.", rich_help_panel=MACHINES)
]
AuthorityOption = Annotated[
    Path | None,
    typer.Option(help="Certificate authority of all machines, in PEM format.", rich_help_panel=MACHINES),
]


def access_of(
    listen: str, token: str | None, certificate: Path | None, key: Path | None, authority: Path | None
) -> Access:
    """Return how the machines of a flow reach each other."""
    with needed_for(FEATURE):
        from goffish.streaming.hosts.access import Access

    return Access(listen, read_token(token), certificate, key, authority)


def machines_of(
    topology: Topology, listen: str | None, here: int, lease: float | None, checkpoint: str | None, **access: Any
) -> AbstractContextManager[Machines | None]:
    """Return the machines of a flow; None without ``--listen``."""
    if listen is None:
        options = {"here": here or None, "lease": lease} | access
        given = [name for name, value in options.items() if value is not None and name != "token"]
        if given:
            raise InputError(f"--{given[0]}: needs --listen")
        return nullcontext()
    made = access_of(listen, **access)
    from goffish.streaming.hosts.machines import LEASE_S, Machines

    return Machines(topology, made, here=here, lease_s=LEASE_S if lease is None else lease, checkpoint=checkpoint)


def run_agent(
    flow: Annotated[
        str,
        typer.Argument(metavar="FLOW", help="The same file as for goffish stream run, also with :NAME."),
    ],
    join: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of goffish stream run --listen.")],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address at which the other machines reach this one; port 0: any.")
    ] = "127.0.0.1:0",
    slots: Annotated[
        int | None, typer.Option(min=1, max=256, help="Workers that run here.", show_default="number of cores")
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder with files for stream update.", show_default="folder of FLOW"),
    ] = None,
    token: TokenOption = None,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    authority: AuthorityOption = None,
) -> None:
    """Run workers of a flow of another machine until it ends."""
    import os
    import sys

    from goffish.cloud.providers.boot import NOTICE_VARIABLE
    from goffish.streaming.flow_file import load_flow

    folder = local_path(flow.rpartition(":")[0] if ".py:" in flow else flow).parent
    if versions is not None:
        folder = local_path(versions)
        if not folder.is_dir():
            raise InputError(f"--versions {versions}: no such folder")
    access = access_of(listen, token, certificate, key, authority)
    from goffish.streaming.hosts.agent import Agent

    topology = load_flow(flow).check()
    slots = slots or len(os.sched_getaffinity(0))
    notice = os.environ.get(NOTICE_VARIABLE)
    agent = Agent(
        topology, access, join, slots, lambda text: sys.stderr.write(f"{text}\n"), folder,
        None if notice is None else local_path(notice),
    )  # fmt: skip
    if not agent.run():
        sys.stderr.write("terminated\n")
        raise typer.Exit(TERMINATED)

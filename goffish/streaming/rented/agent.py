"""What runs on a machine that was rented for a flow.

``python -m goffish.streaming.rented.agent FOLDER MACHINE`` takes the ticket of this machine from the folder of the run
in storage, and runs workers until the flow ends. SIGTERM and the file that ``GOFFISH_NOTICE`` names are the notice that
the machine will be taken back: the workers hand their state over first.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from goffish.addresses import split_address
from goffish.cloud.providers.boot import NOTICE_VARIABLE
from goffish.errors import GoffishError, InputError, JobError, StoreError
from goffish.gofs.files import open_folder
from goffish.streaming.flow_file import load_flow
from goffish.streaming.hosts.agent import Agent
from goffish.streaming.rented.tickets import RunFolder, Ticket

_LOOKS_S = 1.0


def main() -> None:
    """Run workers of a flow until it ends."""
    place, machine = sys.argv[1:3]
    notice = os.environ.get(NOTICE_VARIABLE)
    folder = RunFolder(open_folder(place))
    try:
        with tempfile.TemporaryDirectory(prefix="goffish-flow-") as home:
            left = _run(folder, machine, Path(home), None if notice is None else Path(notice))
    except Exception as error:
        text = str(error) if isinstance(error, GoffishError) else f"{type(error).__name__}: {error}"
        with suppress(StoreError):
            folder.put_failure(machine, text)
        if not isinstance(error, GoffishError):
            raise
        _say(f"error: {text}")
        sys.exit(error.exit_code)
    sys.exit(0 if left else 128 + signal.SIGTERM)


def _run(folder: RunFolder, machine: str, home: Path, notice: Path | None) -> bool:
    """Run workers; after the controller is lost, wait for that of the run that resumes the flow."""
    ticket = folder.take_ticket(machine)
    if ticket is None:
        raise JobError(f"machine {machine}: there is no ticket; the run has ended")
    while True:
        try:
            return _agent(folder, machine, ticket, home, notice).run()
        except JobError as error:
            _say(str(error))
            until = time.monotonic() + ticket.rejoin_s
            while (again := folder.take_ticket(machine)) is None:
                if time.monotonic() >= until or (notice is not None and notice.exists()):
                    raise
                time.sleep(_LOOKS_S)
            ticket = again


def _agent(folder: RunFolder, machine: str, ticket: Ticket, home: Path, notice: Path | None) -> Agent:
    files = Path(tempfile.mkdtemp(dir=home))
    folder.take_flow(files)
    with suppress(OSError):  # where the machine shares no folder with the controller
        os.chdir(ticket.folder)
    topology = load_flow(f"{files}/{ticket.flow}").check()
    access = ticket.access(f"{_address(ticket.join)}:0", Path(tempfile.mkdtemp(dir=home)))
    return Agent(
        topology, access, ticket.join, ticket.slots, _say, files, notice, machine,
        lambda name: folder.take_file(name, files),
    )  # fmt: skip


def _address(join: str) -> str:
    """Return the address of this machine in the network of the controller."""
    found = split_address(join)
    if found is None:
        raise InputError(f"{join}: must be HOST:PORT")
    host, port = found
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port or 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            here = str(probe.getsockname()[0])
    except OSError as error:
        raise JobError(f"{join}: cannot be reached ({error.strerror or error})") from None
    return f"[{here}]" if ":" in here else here


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()

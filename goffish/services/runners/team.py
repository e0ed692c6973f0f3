"""Teams: the machines that run an attempt at a job together, one MPI rank on each.

The server writes ``team.json`` to the folder of the job when all machines have registered. The machine of rank 0 leads:
it starts ``mpiexec`` without a launcher and writes where it listens to ``launch-TURN.json``; each machine starts the
proxy of its rank by itself. So no machine logs in to another one, and nothing is accepted from storage but addresses,
numbers and plain options.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from goffish.errors import JobError
from goffish.gofs.files import Folder, NoSuchFileError

_TEAM, _LAUNCH = "team.json", "launch-{turn}.json"
#: Maximum bytes of both files.
_MOST_BYTES = 256 << 10
#: Maximum number of machines of a job, and of options of a proxy.
MOST_MACHINES, _MOST_OPTIONS = 256, 64
_NAME = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){1,2}", re.ASCII)
#: Names and values of options of a proxy, none of which is a path or a program.
_OPTION = re.compile(r"--[a-z][a-z-]{0,40}|-?[A-Za-z0-9]{1,40}", re.ASCII)
#: Options that could name a program, which no proxy needs that is not started by a launcher.
_REFUSED = frozenset({"--launcher-exec", "--control-port", "--proxy-id"})
#: Folder of temporary stores of ranks, in that of the job.
SHARED = "shared"


@dataclass(frozen=True)
class Team:
    """Machines of an attempt, in the order of their ranks.

    Attributes
    ----------
    turn : str
        Of the team.
    machines : tuple of str
        Names of the machines: their tags, and what they register as.
    address : str
        IP address of the first one.
    """

    turn: str
    machines: tuple[str, ...]
    address: str

    def write(self, folder: Folder) -> None:
        """Write the team to the folder of a job."""
        folder.write(_TEAM, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, folder: Folder) -> Team | None:
        """Read the team from the folder of a job; ``None`` if there is none.

        Parameters
        ----------
        folder : Folder

        Raises
        ------
        JobError
            The file is not one that a server writes.
        """
        found = _json(folder, _TEAM)
        if found is None:
            return None
        try:
            names = tuple(found["machines"])
            made = cls(found["turn"], names, str(ipaddress.ip_address(found["address"])))
            fine = 0 < len(names) <= MOST_MACHINES and len(set(names)) == len(names)
            fine = fine and all(isinstance(one, str) and _NAME.fullmatch(one) for one in (made.turn, *names))
        except (KeyError, TypeError, ValueError):
            fine = False
        if not fine:
            raise JobError(f"{folder.location}/{_TEAM}: not a team of machines")
        return made


@dataclass(frozen=True)
class Launch:
    """Where the first machine of a team waits for the proxies of all ranks.

    Attributes
    ----------
    port : int
    options : tuple of str
        Of each proxy, beside its number and where it connects to.
    """

    port: int
    options: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> Launch:
        """Return what a line of ``mpiexec -launcher manual`` says.

        Parameters
        ----------
        line : str
            Command of a proxy.

        Raises
        ------
        JobError
            It is not the command of a proxy.
        """
        parts = line.split()[1:]
        try:
            at = parts.index("--control-port")
            port, parts = int(parts[at + 1].rpartition(":")[2]), parts[:at] + parts[at + 2 :]
            at = parts.index("--proxy-id")
            made = cls(port, tuple(parts[:at] + parts[at + 2 :]))
        except (ValueError, IndexError):
            raise JobError(f"mpiexec: not the command of a proxy: {line[:200]}") from None
        if not made.accepted:
            raise JobError(f"mpiexec: unexpected options of a proxy: {line[:200]}")
        return made

    @property
    def accepted(self) -> bool:
        """Whether this is what a machine of ours writes."""
        options = self.options
        plain = len(options) <= _MOST_OPTIONS and all(
            isinstance(one, str) and _OPTION.fullmatch(one) and one not in _REFUSED for one in options
        )
        return isinstance(self.port, int) and 0 < self.port < 1 << 16 and plain

    def write(self, folder: Folder, turn: str) -> None:
        """Write this for the machines of a team."""
        folder.write(_LAUNCH.format(turn=turn), json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, folder: Folder, turn: str) -> Launch | None:
        """Read what the first machine of a team has written; ``None`` if it has not yet.

        Parameters
        ----------
        folder : Folder
        turn : str
            Of the team.

        Raises
        ------
        JobError
            The file is not one that a machine writes.
        """
        found = _json(folder, _LAUNCH.format(turn=turn))
        if found is None:
            return None
        try:
            made = cls(found["port"], tuple(found["options"]))
        except (KeyError, TypeError):
            made = cls(0, ())
        if not made.accepted:
            raise JobError(f"{folder.location}/{_LAUNCH.format(turn=turn)}: not where a machine of the team listens")
        return made

    def proxy(self, program: str, address: str, rank: int) -> list[str]:
        """Return the command of the proxy of a rank."""
        host = f"[{address}]" if ":" in address else address
        return [program, "--control-port", f"{host}:{self.port}", *self.options, "--proxy-id", str(rank)]


def ranks_command(mpiexec: str, ranks: int, command: Sequence[str]) -> list[str]:
    """Return the command that waits for a proxy on each machine of a team, and runs a command as its rank.

    Parameters
    ----------
    mpiexec : str
        Program of MPICH.
    ranks : int
    command : sequence of str
        Gets the environment of each machine, not that of the first one.
    """
    hosts = ",".join(f"machine{rank}" for rank in range(ranks))  # never looked up: proxies connect by themselves
    return [
        mpiexec, "-launcher", "manual", "-localhost", "127.0.0.1", "-disable-hostname-propagation", "-hosts", hosts,
        "-ppn", "1", "-n", str(ranks), "-genvnone", *command,
    ]  # fmt: skip


def _json(folder: Folder, name: str) -> dict[str, Any] | None:
    """Read a JSON object of limited size; ``None`` if there is no such file."""
    try:
        found = json.loads(folder.read(name, _MOST_BYTES).to_pybytes())
    except NoSuchFileError:
        return None
    except (ValueError, RecursionError):
        raise JobError(f"{folder.location}/{name}: not a JSON document") from None
    if not isinstance(found, dict):
        raise JobError(f"{folder.location}/{name}: not a JSON object")
    return found

"""Commands on MPI ranks: rank 0 prints the output, and killed ranks are reported.

The launcher starts one ``goffish`` process per rank. Each starts a worker process and waits for it, so that it can
report a killed worker before the launcher ends the other ranks.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from goffish.errors import GoffishError
from goffish.partial import is_uri, local_path

if TYPE_CHECKING:
    from goffish.gopher.mpi import MpiTeam

#: Environment variables that hold the rank: MPICH and Intel MPI, Open MPI, PMIx, Slurm.
_RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
#: Environment variable with the descriptor of the memory page in which the worker records its current step.
_PAGE_NAME = "GOFFISH_RANK_PAGE"
_PAGE_BYTES = 4096
#: Seconds that rank 0 waits after a failed job, so that the launcher reports its exit code.
LAST_TO_LEAVE_S = 0.3


class Ranks:
    """MPI ranks that run a command together; without MPI, a single rank.

    Attributes
    ----------
    first : bool
        Whether this rank reads raw files, writes output and prints.
    """

    def __init__(self, team: MpiTeam | None = None) -> None:
        self._team = team
        self.first = team is None or team.rank == 0

    def together(self, doing: str) -> AbstractContextManager[None]:
        """Return a context in which a failure on one rank fails all ranks."""
        return nullcontext() if self._team is None else self._team.together(doing)

    def same(self, value: Any) -> Any:
        """Broadcast the value of rank 0 to all ranks."""
        return value if self._team is None else self._team.comm.bcast(value, root=0)


@contextmanager
def joined(mpi: bool) -> Iterator[Ranks]:
    """Join the MPI ranks of a command; errors inside must occur on all ranks."""
    if not mpi:
        yield Ranks()
        return
    rank = _rank_by_launcher()
    if rank is not None and _PAGE_NAME not in os.environ:
        _guard(rank)
    from goffish.gopher.mpi.team import MpiTeam, load_mpi

    try:
        library = load_mpi()
    except GoffishError:
        if rank:
            raise SystemExit(0) from None
        raise
    if _PAGE_NAME in os.environ:
        page = mmap.mmap(int(os.environ[_PAGE_NAME]), _PAGE_BYTES)
        MpiTeam.watch = staticmethod(lambda text: _note(page, text))  # type: ignore[method-assign]
    team = MpiTeam()
    try:
        yield Ranks(team)
    except Exception:
        library.Finalize()
        if team.rank:
            raise SystemExit(0) from None
        time.sleep(LAST_TO_LEAVE_S)
        raise
    library.Finalize()


def _rank_by_launcher() -> int | None:
    found = [os.environ[name] for name in _RANK_NAMES if name in os.environ]
    return int(found[0]) if found and found[0].isdigit() else None


def _note(page: mmap.mmap, text: str) -> None:
    data = text.encode()[: _PAGE_BYTES - 1]
    page[: len(data) + 1] = data + b"\n"


def _guard(rank: int) -> NoReturn:
    """Run this command in a worker process, and report its current step if it is killed."""
    page = os.memfd_create("goffish")
    os.ftruncate(page, _PAGE_BYTES)
    os.set_inheritable(page, True)
    stderr = os.dup(2)
    work = "from goffish.cli.main import work; work()"
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", work, *sys.argv[1:]], close_fds=False, env={**os.environ, _PAGE_NAME: str(page)}
    )
    if rank:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)  # an interrupt reaches all ranks: only rank 0 reports it
    code = worker.wait()
    if code < 0 and -code not in (signal.SIGTERM, signal.SIGINT):
        about = os.pread(page, _PAGE_BYTES, 0).partition(b"\n")[0].decode().strip("\0") or "before the job began"
        name = signal.Signals(-code).name
        advice = "continue from the newest checkpoint with --resume" if "--checkpoint-dir" in " ".join(sys.argv) else ""
        problem = f"error: rank {rank}, {about}: killed by {name}, possibly because memory ran out"
        with contextlib.suppress(OSError):
            os.write(stderr, f"{problem}{'; ' if advice else ''}{advice}\n".encode())
        code = 1
    raise SystemExit(code)


def is_folder_name(output: str) -> bool:
    """Return whether `output` is an existing folder or ends with a slash."""
    return output.endswith("/") or (not is_uri(output) and local_path(output).is_dir())

"""A command on the ranks of ``mpirun``: rank 0 speaks for all, and a rank that is killed does not go unnoticed.

A launcher starts one ``goffish`` per rank. Each of them starts the process that does the work and waits for it: should
that be killed, by hand or because memory ran out, nobody else could say so before the launcher ends all the others.
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
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.gopher.mpi import Team

#: What launchers tell a process of its rank: MPICH and Intel MPI, Open MPI, Slurm.
_RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
#: Descriptor of the page on which the working process notes what it is about.
_PAGE_NAME = "GOFFISH_RANK_PAGE"
_PAGE_BYTES = 4096
#: Seconds that rank 0 stays after a failed job, so that its exit code is the one that counts.
LAST_TO_LEAVE_S = 0.3


class Ranks:
    """Those who run a command together; without MPI, one that is the first and the only.

    Attributes
    ----------
    first : bool
        Whether this one reads raw files, writes and prints.
    """

    def __init__(self, team: Team | None = None) -> None:
        self._team = team
        self.first = team is None or team.rank == 0

    def together(self, doing: str) -> AbstractContextManager[None]:
        """A block whose failure on one rank fails it on all."""
        return nullcontext() if self._team is None else self._team.together(doing)

    def same(self, value: Any) -> Any:
        """The first one's value on all ranks."""
        return value if self._team is None else self._team.comm.bcast(value, root=0)


@contextmanager
def joined(mpi: bool) -> Iterator[Ranks]:
    """The ranks of a command, for its length; errors in it must be such that all ranks have them."""
    if not mpi:
        yield Ranks()
        return
    rank = _rank_by_launcher()
    if rank is not None and _PAGE_NAME not in os.environ:
        _guard(rank)
    from goffish.gopher.mpi.team import Team, load_mpi

    try:
        library = load_mpi()
    except GoffishError:
        if rank:
            raise SystemExit(0) from None
        raise
    if _PAGE_NAME in os.environ:
        page = mmap.mmap(int(os.environ[_PAGE_NAME]), _PAGE_BYTES)
        Team.watch = staticmethod(lambda text: _note(page, text))  # type: ignore[method-assign]
    team = Team()
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
    """Run this command in a process of its own, and tell what it was about should it be killed."""
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
        os.dup2(silence, 2)  # an interrupt reaches all ranks: one of them says so
    code = worker.wait()
    if code < 0 and -code not in (signal.SIGTERM, signal.SIGINT):
        about = os.pread(page, _PAGE_BYTES, 0).partition(b"\n")[0].decode().strip("\0") or "before the job began"
        name = signal.Signals(-code).name
        advice = "--resume goes on from the newest checkpoint" if "--checkpoint-dir" in " ".join(sys.argv) else ""
        told = f"error: rank {rank}, {about}: killed ({name}), by hand or for want of memory"
        with contextlib.suppress(OSError):
            os.write(stderr, f"{told}{'; ' if advice else ''}{advice}\n".encode())
        code = 1
    raise SystemExit(code)


def is_folder_name(output: str) -> bool:
    """Whether a result shall be a folder: an existing one, or a name that ends in a slash."""
    return output.endswith("/") or local_path(output).is_dir()

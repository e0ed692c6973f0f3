"""MPI ranks as a team: waiting without burning a processor, and rounds for counts of 32 bits.

Waits poll with pauses, because the blocking calls of most MPI libraries spin, which starves other ranks and threads of
a shared processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.gopher.team.team import Bytes, Space, Stopped, Team

#: Polls before a wait begins to pause between them, and the pauses in seconds: short ones first, then the longer.
_EAGER_POLLS = 200
_PAUSES = (5e-5, 5e-4)
_SHORT_PAUSES = 400
#: Rows that a rank sends, or receives, in one round of an exchange.
_MOST_ROWS = (1 << 31) - 1
_ALARM_TAG = 1


class MpiTeam(Team):
    """A communicator, duplicated so that other messages are not mistaken for the engine's.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        Default: all ranks that were started together.

    Attributes
    ----------
    last_words : int
        Descriptor for the line that is said before all processes are ended.
    """

    last_words: ClassVar[int] = 2
    engine = "mpi"
    all_called = "all ranks"

    def __init__(self, comm: Any = None) -> None:
        super().__init__()
        mpi = load_mpi()
        self._mpi = mpi
        given = mpi.COMM_WORLD if comm is None else comm
        if not isinstance(given, mpi.Intracomm):
            raise InputError(f"comm={given!r}: expected an mpi4py communicator, such as MPI.COMM_WORLD")
        self.comm, self._alarms = given.Dup(), given.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.called = f"rank {self.rank}: "
        self._sent_alarms: list[Any] = []

    def close(self) -> None:
        """Give the communicators back."""
        for comm in (self.comm, self._alarms):
            if comm != self._mpi.COMM_NULL:
                comm.Free()

    def wait(self, request: Any) -> None:
        """Wait for a non-blocking operation."""
        polls = 0
        while not request.Test():
            polls += 1
            if polls <= _EAGER_POLLS:
                os.sched_yield()
            else:
                time.sleep(_PAUSES[polls > _EAGER_POLLS + _SHORT_PAUSES])

    def alarm(self) -> None:
        nothing = np.empty(0, np.uint8)
        self._sent_alarms = [
            self._alarms.Isend(nothing, dest=rank, tag=_ALARM_TAG) for rank in range(self.size) if rank != self.rank
        ]

    def listen(self) -> None:
        if self._alarms.Iprobe(tag=_ALARM_TAG):
            raise Stopped

    def _heed(self, failed: Sequence[int]) -> None:
        nothing = np.empty(0, np.uint8)
        for rank in failed:
            if rank != self.rank:
                self.wait(self._alarms.Irecv(nothing, source=rank, tag=_ALARM_TAG))
        for request in self._sent_alarms:
            self.wait(request)
        self._sent_alarms = []

    def swap(self, blocks: Sequence[Bytes], sizes: Sequence[int]) -> list[Bytes]:
        out, inward = np.array([block.size for block in blocks], np.int64), np.array(sizes, np.int64)
        send, arrived, ends = np.concatenate(blocks), np.empty(int(inward.sum()), np.uint8), np.cumsum(inward)
        byte = self._mpi.BYTE
        self.wait(
            self.comm.Ialltoallv([send, (out, np.cumsum(out) - out), byte], [arrived, (inward, ends - inward), byte])
        )
        return np.split(arrived, ends[:-1])

    def move(
        self,
        outgoing: Sequence[Sequence[Bytes]],
        rows: NDArray[np.int64],
        incoming: NDArray[np.int64],
        largest: int,
        unit: int,
        space: Space | None = None,
    ) -> list[Bytes]:
        """One ``Ialltoallv`` of typed rows, or several.

        Counts and displacements of MPI may be 32-bit numbers, so a round carries less than 2^31 rows to or from any
        rank; rows, not bytes, are counted.
        """
        space = space or Space()
        limit = max(1, _MOST_ROWS // self.size)
        received = [np.empty(int(count) * unit, np.uint8) for count in incoming]
        if not largest:
            return received
        row_type = self._mpi.BYTE.Create_contiguous(unit).Commit()
        try:
            for first in range(0, largest, limit):
                out, inward = (np.clip(count - first, 0, limit) for count in (rows, incoming))
                begin = first * unit
                blocks = [_cut(pieces, begin, begin + int(n) * unit) for pieces, n in zip(outgoing, out, strict=True)]
                send = space.pack([piece for block in blocks for piece in block])
                arrived = space.arriving(int(inward.sum()) * unit, keep=largest > limit)
                self.wait(
                    self.comm.Ialltoallv(
                        [send, (out, np.cumsum(out) - out), row_type],
                        [arrived, (inward, np.cumsum(inward) - inward), row_type],
                    )
                )
                ends = np.cumsum(inward) * unit
                for rank, (end, n) in enumerate(zip(ends.tolist(), (inward * unit).tolist(), strict=True)):
                    if n == received[rank].size:
                        received[rank] = arrived[end - n : end]
                    else:
                        received[rank][begin : begin + n] = arrived[end - n : end]
        finally:
            row_type.Free()
        return received

    def local_threads(self) -> int:
        """Processors for this rank: those it may run on, shared fairly with the ranks that may run on the same ones."""
        node = self.comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        mine = tuple(sorted(os.sched_getaffinity(0)))
        sharing = int(sum(other == mine for other in node.allgather(mine)))
        node.Free()
        return max(1, len(mine) // sharing)

    def threads_here(self, threads: int) -> int:
        node = self.comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        total = int(node.allreduce(threads))
        node.Free()
        return min(total, max(threads, os.cpu_count() or 1))


def _cut(pieces: Sequence[Bytes], begin: int, end: int) -> Iterator[Bytes]:
    """The bytes from `begin` to `end` of arrays that follow one another."""
    at = 0
    for piece in pieces:
        if at < end and at + piece.size > begin:
            yield piece[max(0, begin - at) : end - at]
        at += piece.size


def load_mpi() -> Any:
    """The module ``mpi4py.MPI``, initialized.

    Raises
    ------
    InputError
        mpi4py, or an MPI library for it, is not installed.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({' '.join(str(error).split())})"
        raise InputError(
            f"engine='mpi' requires mpi4py and an MPI library: pip install \"goffish[mpi]\"{reason}"
        ) from None
    return MPI

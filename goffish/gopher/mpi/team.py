"""The ranks of one job: waiting without burning a processor, moving bytes, and failing together.

Everything here is collective: all ranks of a team make the same calls in the same order. Waits poll with pauses,
because the blocking calls of most MPI libraries spin, which starves other ranks and threads of a shared processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from goffish.errors import CheckpointError, DataError, GoffishError, InputError, JobError, StoreError

#: Polls before a wait begins to pause between them, and the pauses in seconds: short ones first, then the longer.
_EAGER_POLLS = 200
_PAUSES = (5e-5, 5e-4)
_SHORT_PAUSES = 400
#: Bytes of one message of a gather: far below the 2^31 that an MPI count may be limited to.
_CHUNK = 1 << 28
#: Rows that a rank sends, or receives, in one round of an exchange.
_MOST_ROWS = (1 << 31) - 1
_ALARM_TAG, _GATHER_TAG = 1, 2
#: Errors keep their class on every rank; whatever else it was has become the first of these.
_KINDS: tuple[type[GoffishError], ...] = (JobError, InputError, StoreError, DataError, CheckpointError)


class Stopped(Exception):
    """Another rank has failed, so this one gives up its work; never leaves the engine."""


class Team:
    """A communicator, duplicated so that other messages are not mistaken for the engine's.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        Default: all ranks that were started together.

    Attributes
    ----------
    rank, size : int
    last_words : int
        Descriptor for the line that is said before all processes are ended.
    """

    last_words: ClassVar[int] = 2

    def __init__(self, comm: Any = None) -> None:
        mpi = load_mpi()
        self._mpi = mpi
        given = mpi.COMM_WORLD if comm is None else comm
        if not isinstance(given, mpi.Intracomm):
            raise InputError(f"comm={given!r}: expected an mpi4py communicator, such as MPI.COMM_WORLD")
        self.comm, self._alarms = given.Dup(), given.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self._sent_alarms: list[Any] = []
        self._agreed: BaseException | None = None

    def close(self) -> None:
        """Give the communicators back."""
        for comm in (self.comm, self._alarms):
            if comm != self._mpi.COMM_NULL:
                comm.Free()

    @staticmethod
    def watch(text: str) -> None:
        """Hear what this rank is about to do; the command line puts its own function here."""

    def wait(self, request: Any) -> None:
        """Wait for a non-blocking operation."""
        polls = 0
        while not request.Test():
            polls += 1
            if polls <= _EAGER_POLLS:
                os.sched_yield()
            else:
                time.sleep(_PAUSES[polls > _EAGER_POLLS + _SHORT_PAUSES])

    # -- failing together

    @contextmanager
    def together(self, doing: str) -> Iterator[None]:
        """A block of work that has gone well when it has on every rank; otherwise all raise the same error."""
        failure: Exception | None = None
        try:
            yield
        except Stopped:
            failure = Stopped()
        except Exception as error:
            failure = error
            self.alarm()
        self.settle(failure, doing)

    def settle(self, failure: Exception | None, doing: str, figure: int = 0) -> NDArray[np.int64]:
        """Exchange the outcome with all ranks; return the `figure` of each, or raise on all if one has failed."""
        mine = np.array([status_of(failure), figure], np.int64)
        all_ranks = np.empty((self.size, 2), np.int64)
        self.wait(self.comm.Iallgather(mine, all_ranks))
        self.judge(all_ranks[:, 0], failure, doing)
        return all_ranks[:, 1]

    def alarm(self) -> None:
        """Notify the other ranks that this one has failed, so that they stop computing before the next barrier."""
        nothing = np.empty(0, np.uint8)
        self._sent_alarms = [
            self._alarms.Isend(nothing, dest=rank, tag=_ALARM_TAG) for rank in range(self.size) if rank != self.rank
        ]

    def listen(self) -> None:
        """Raise `Stopped` if another rank has failed."""
        if self._alarms.Iprobe(tag=_ALARM_TAG):
            raise Stopped

    def alike(self, error: GoffishError) -> GoffishError:
        """An error that every rank raises by itself at the same place."""
        self._agreed = error
        return error

    def is_agreed(self, error: BaseException) -> bool:
        """Whether all ranks have received this error."""
        return error is self._agreed

    def judge(self, statuses: NDArray[np.int64], failure: Exception | None, doing: str) -> None:
        """Given everybody's status, go on or raise the error of the lowest rank that failed, on every rank alike."""
        if not statuses.any():
            return
        failed = np.flatnonzero(statuses == _FAILED)
        nothing = np.empty(0, np.uint8)
        for rank in failed.tolist():
            if rank != self.rank:
                self.wait(self._alarms.Irecv(nothing, source=rank, tag=_ALARM_TAG))
        for request in self._sent_alarms:
            self.wait(request)
        self._sent_alarms = []
        speaker = int(failed[0])
        kind, text = 0, b""
        if speaker == self.rank:
            assert failure is not None
            kind, text = self._told(failure, doing, alone=failed.size < self.size)
        head = np.array([kind, len(text)], np.int64)
        self.wait(self.comm.Ibcast(head, root=speaker))
        data = np.frombuffer(text, np.uint8).copy() if speaker == self.rank else np.empty(int(head[1]), np.uint8)
        self.wait(self.comm.Ibcast(data, root=speaker))
        told = self.alike(_KINDS[int(head[0])](data.tobytes().decode()))
        raise told from failure if isinstance(failure, Exception) and speaker == self.rank else None

    def _told(self, failure: Exception, doing: str, *, alone: bool) -> tuple[int, bytes]:
        """An error as everybody shall see it; bad input that every rank or the first has found needs no rank."""
        plain = isinstance(failure, InputError) and not isinstance(failure, StoreError | JobError)
        who = "" if plain and (self.rank == 0 or not alone) else f"rank {self.rank}: "
        if isinstance(failure, GoffishError):
            kind = next(i for i in (4, 3, 2, 1, 0) if isinstance(failure, _KINDS[i]))
            where = f"{doing}: " if who and isinstance(failure, StoreError) else ""
            return kind, f"{who}{where}{failure}".encode()
        problem = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
        return 0, f"{who}{doing}: {problem}".encode()

    # -- moving bytes

    def all_equal(self, text: bytes) -> bool:
        """Whether every rank has given the same 32 bytes."""
        mine = np.frombuffer(text, np.uint8)
        all_ranks = np.empty((self.size, mine.size), np.uint8)
        self.wait(self.comm.Iallgather(mine, all_ranks))
        return bool((all_ranks == all_ranks[0]).all())

    def gather(self, data: bytes | memoryview) -> list[NDArray[np.uint8]] | None:
        """Bytes of every rank, on rank 0; ``None`` elsewhere."""
        mine = np.frombuffer(data, np.uint8)
        sizes = np.empty(self.size, np.int64)
        self.wait(self.comm.Iallgather(np.array([mine.size], np.int64), sizes))
        if self.rank:
            for at in range(0, mine.size, _CHUNK):
                self.wait(self.comm.Isend(mine[at : at + _CHUNK], dest=0, tag=_GATHER_TAG))
            return None
        found = [mine, *(np.empty(int(size), np.uint8) for size in sizes[1:])]
        for rank, buffer in enumerate(found[1:], 1):
            for at in range(0, buffer.size, _CHUNK):
                self.wait(self.comm.Irecv(buffer[at : at + _CHUNK], source=rank, tag=_GATHER_TAG))
        return found

    def exchange(self, outgoing: Sequence[NDArray[np.uint8]], unit: int = 1) -> list[NDArray[np.uint8]]:
        """Send one block of bytes to every rank and receive one from each, of whatever size.

        Parameters
        ----------
        outgoing : one array per rank
            Each a whole number of units long.
        unit : int
            Bytes that are counted as one.
        """
        rows = np.array([block.size // unit for block in outgoing], np.int64)
        incoming = np.empty(self.size, np.int64)
        self.wait(self.comm.Ialltoall(rows, incoming))
        largest = int(self.settle(None, "exchange", int(rows.max(initial=0))).max())
        return self.move([[block] for block in outgoing], rows, incoming, largest, unit)

    def move(
        self,
        outgoing: Sequence[Sequence[NDArray[np.uint8]]],
        rows: NDArray[np.int64],
        incoming: NDArray[np.int64],
        largest: int,
        unit: int,
        space: Space | None = None,
    ) -> list[NDArray[np.uint8]]:
        """The data part of an exchange whose sizes are known: one ``Ialltoallv`` of typed rows, or several.

        Counts and displacements of MPI may be 32-bit numbers, so a round carries less than 2^31 rows to or from any
        rank; rows, not bytes, are counted.

        Parameters
        ----------
        outgoing : one list of byte arrays per rank
            Sent one after the other.
        rows, incoming : int64, shape (ranks,)
            Rows of `unit` bytes to and from every rank.
        largest : int
            The most rows between any two ranks of the team.
        space : Space, optional
            Memory for it, in which what is received stays until the next call.
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
        """Threads of all ranks on this rank's machine, of which each has said its own; not more than processors."""
        node = self.comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        total = int(node.allreduce(threads))
        node.Free()
        return min(total, max(threads, os.cpu_count() or 1))


class Space:
    """Memory for exchanges that serves again: fresh pages cost more than the bytes that are copied into them."""

    def __init__(self) -> None:
        self._sent, self._received = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def pack(self, pieces: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """The pieces after one another."""
        size = sum(piece.size for piece in pieces)
        if self._sent.size < size:
            self._sent = np.empty(size, np.uint8)
        return np.concatenate(pieces, out=self._sent[:size]) if pieces else self._sent[:0]

    def arriving(self, size: int, *, keep: bool) -> NDArray[np.uint8]:
        """Space for this number of bytes; separate if the previous ones are still needed (`keep`)."""
        if keep:
            return np.empty(size, np.uint8)
        if self._received.size < size:
            self._received = np.empty(size, np.uint8)
        return self._received[:size]


_FINE, _FAILED, _STOPPED = 0, 1, 2


def status_of(failure: Exception | None) -> int:
    """How it went on this rank, as one number."""
    if failure is None:
        return _FINE
    return _STOPPED if isinstance(failure, Stopped) else _FAILED


def _cut(pieces: Sequence[NDArray[np.uint8]], begin: int, end: int) -> Iterator[NDArray[np.uint8]]:
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

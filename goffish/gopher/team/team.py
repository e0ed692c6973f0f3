"""The processes of one job: moving bytes between them, and failing together; how bytes travel is for subclasses.

Everything here is collective: all members of a team make the same calls in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from goffish.errors import CheckpointError, DataError, GoffishError, InputError, JobError, StoreError

#: Errors keep their class on every member; whatever else it was has become the first of these.
_KINDS: tuple[type[GoffishError], ...] = (JobError, InputError, StoreError, DataError, CheckpointError)

Bytes = NDArray[np.uint8]


class Stopped(Exception):
    """Another member has failed, so this one gives up its work; never leaves the engine."""


class Team(ABC):
    """Processes that run a job together, as one of them sees it.

    Attributes
    ----------
    rank, size : int
        Number of this member, and how many there are.
    engine : str
        Name of the engine that brings the members together.
    called : str
        How error messages name this member, such as ``"rank 3: "``; empty if only the partitions are named.
    all_called : str
        How error messages name the members together, such as ``"all ranks"``.
    """

    rank: int
    size: int
    called: str = ""
    engine: ClassVar[str]
    all_called: ClassVar[str]

    def __init__(self) -> None:
        self._agreed: BaseException | None = None

    @staticmethod  # noqa: B027
    def watch(text: str) -> None:
        """Hear what this member is about to do; the command line puts its own function here."""

    # -- what a subclass brings

    @abstractmethod
    def swap(self, blocks: Sequence[Bytes], sizes: Sequence[int]) -> list[Bytes]:
        """Send a block to every member and receive one of a size that is known from each; small ones."""

    @abstractmethod
    def move(
        self,
        outgoing: Sequence[Sequence[Bytes]],
        rows: NDArray[np.int64],
        incoming: NDArray[np.int64],
        largest: int,
        unit: int,
        space: Space | None = None,
    ) -> list[Bytes]:
        """The data part of an exchange whose sizes are known, of any size.

        Parameters
        ----------
        outgoing : one list of byte arrays per member
            Sent one after the other.
        rows, incoming : int64, shape (members,)
            Rows of `unit` bytes to and from every member.
        largest : int
            The most rows between any two members of the team.
        space : Space, optional
            Memory for it, in which what is received stays until the next call.
        """

    @abstractmethod
    def alarm(self) -> None:
        """Notify the other members that this one has failed, so that they stop computing before the next barrier."""

    @abstractmethod
    def listen(self) -> None:
        """Raise `Stopped` if another member has failed."""

    @abstractmethod
    def local_threads(self) -> int:
        """Threads for this member."""

    @abstractmethod
    def threads_here(self, threads: int) -> int:
        """Threads of all members on this one's machine, of which each has said its own; not more than processors."""

    def _heed(self, failed: Sequence[int]) -> None:  # noqa: B027
        """Take the alarms of the members that have failed."""

    # -- failing together

    @contextmanager
    def together(self, doing: str) -> Iterator[None]:
        """A block of work that has gone well when it has on every member; otherwise all raise the same error."""
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
        """Exchange the outcome with all members; return the `figure` of each, or raise on all if one has failed."""
        found = self.everyone(np.array([status_of(failure), figure], np.int64))
        self.judge(found[:, 0], failure, doing)
        return found[:, 1]

    def alike(self, error: GoffishError) -> GoffishError:
        """An error that every member raises by itself at the same place."""
        self._agreed = error
        return error

    def is_agreed(self, error: BaseException) -> bool:
        """Whether all members have received this error."""
        return error is self._agreed

    def judge(self, statuses: NDArray[np.int64], failure: Exception | None, doing: str) -> None:
        """Given the status of every member, continue, or raise the error of the first that failed, on all alike."""
        if not statuses.any():
            return
        failed = np.flatnonzero(statuses == _FAILED).tolist()
        self._heed(failed)
        speaker = int(failed[0])
        kind, text = 0, b""
        if speaker == self.rank:
            assert failure is not None
            kind, text = self._error_text(failure, doing, alone=len(failed) < self.size)
        heads = self.everyone(np.array([kind, len(text)], np.int64))
        sizes = [int(heads[speaker, 1]) if rank == speaker else 0 for rank in range(self.size)]
        data = self.swap([np.frombuffer(text, np.uint8)] * self.size, sizes)[speaker]
        agreed = self.alike(_KINDS[int(heads[speaker, 0])](data.tobytes().decode()))
        raise agreed from failure if isinstance(failure, Exception) and speaker == self.rank else None

    def _error_text(self, failure: Exception, doing: str, *, alone: bool) -> tuple[int, bytes]:
        """An error as all shall see it; bad input that every member or the first has found needs no rank."""
        plain = isinstance(failure, InputError) and not isinstance(failure, StoreError | JobError)
        who = "" if plain and (self.rank == 0 or not alone) else self.called
        if isinstance(failure, GoffishError):
            kind = next(i for i in (4, 3, 2, 1, 0) if isinstance(failure, _KINDS[i]))
            where = f"{doing}: " if who and isinstance(failure, StoreError) else ""
            return kind, f"{who}{where}{failure}".encode()
        problem = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
        return 0, f"{who}{doing}: {problem}".encode()

    # -- moving bytes

    def everyone(self, mine: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of every member, of which each gives as many; a row for each."""
        block = mine.view(np.uint8)
        return (
            np.concatenate(self.swap([block] * self.size, [block.size] * self.size))
            .view(np.int64)
            .reshape(self.size, mine.size)
        )

    def all_equal(self, text: bytes) -> bool:
        """Whether every member has given the same 32 bytes."""
        numbers = self.everyone(np.frombuffer(text, np.int64))
        return bool((numbers == numbers[0]).all())

    def gather(self, data: bytes | memoryview) -> list[Bytes] | None:
        """Bytes of every member, on the first; ``None`` elsewhere."""
        nothing = np.empty(0, np.uint8)
        found = self.exchange([np.frombuffer(data, np.uint8), *[nothing] * (self.size - 1)])
        return None if self.rank else found

    def exchange(self, outgoing: Sequence[Bytes], unit: int = 1) -> list[Bytes]:
        """Send one block of bytes to every member and receive one from each, of whatever size.

        Parameters
        ----------
        outgoing : one array per member
            Each a whole number of units long.
        unit : int
            Bytes that are counted as one.
        """
        rows = np.array([block.size // unit for block in outgoing], np.int64)
        counts = self.swap(list(rows.view(np.uint8).reshape(self.size, 8)), [8] * self.size)
        largest = int(self.settle(None, "exchange", int(rows.max(initial=0))).max())
        incoming = np.concatenate(counts).view(np.int64)
        return self.move([[block] for block in outgoing], rows, incoming, largest, unit)


class Space:
    """Memory for exchanges that serves again: fresh pages cost more than the bytes that are copied into them."""

    def __init__(self) -> None:
        self._sent, self._received = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def pack(self, pieces: Sequence[Bytes]) -> Bytes:
        """The pieces after one another."""
        size = sum(piece.size for piece in pieces)
        if self._sent.size < size:
            self._sent = np.empty(size, np.uint8)
        return np.concatenate(pieces, out=self._sent[:size]) if pieces else self._sent[:0]

    def arriving(self, size: int, *, keep: bool = False) -> Bytes:
        """Space for this number of bytes; separate if the previous ones are still needed (`keep`)."""
        if keep:
            return np.empty(size, np.uint8)
        if self._received.size < size:
            self._received = np.empty(size, np.uint8)
        return self._received[:size]


_FINE, _FAILED, _STOPPED = 0, 1, 2


def status_of(failure: Exception | None) -> int:
    """How it went on this member, as one number."""
    if failure is None:
        return _FINE
    return _STOPPED if isinstance(failure, Stopped) else _FAILED

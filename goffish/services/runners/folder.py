"""The folder of a job: what server and worker tell each other, whichever of them is killed when.

One worker at a time has the folder (a lock that the kernel takes back when it dies). Only the attempt that is written
in ``current`` may begin, and whoever is done says so by a file that appears whole or not at all, so a job that was
finished once is never run again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goffish.errors import JobError


class Busy(JobError):
    """Another worker has the folder."""


class JobFolder:
    """Files of one job.

    Parameters
    ----------
    path : Path
        Made when the job is first prepared.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.log = path / "log.txt"
        self.order = path / "order.json"
        self.result = path / "result.arrow"
        self._done, self._current, self._progress = path / "done.json", path / "current", path / "progress.json"
        self._worker = path / "worker.json"

    def prepare(self, order: dict[str, Any], attempt: int, machine: int | None = None) -> str:
        """Say what is to be done, and which attempt may do it; of an attempt on several machines, on which of them.

        Returns
        -------
        str
            What the worker has to call itself.

        Raises
        ------
        Busy
            A worker of an earlier attempt still has the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self.taken():
            write_whole(self.order, json.dumps(order))
            turn = str(attempt) if machine is None else f"{attempt}.{machine}"
            write_whole(self._current, turn)
        return turn

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have the folder for oneself.

        Raises
        ------
        Busy
        """
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"{self.path}: another worker is at it") from None
            yield

    def sign(self) -> None:
        """Say whose processes are at it: those of this one's session."""
        write_whole(self._worker, json.dumps({"session": os.getsid(0)}), durable=False)

    @property
    def session(self) -> int | None:
        """Of the worker that last had the folder; only of use while it is busy."""
        found = _read(self._worker)
        return None if found is None else int(found["session"])

    @property
    def busy(self) -> bool:
        """Whether a worker has the folder."""
        try:
            with self.taken():
                return False
        except FileNotFoundError:
            return False
        except Busy:
            return True

    @property
    def turn(self) -> str:
        """Whose turn it is to work here, as `prepare` said last; empty before that."""
        try:
            return self._current.read_text()
        except FileNotFoundError:
            return ""

    def finish(self, told: dict[str, Any]) -> None:
        """Say that all is done; from now on `done` has it."""
        write_whole(self._done, json.dumps(told))

    @property
    def saved(self) -> int | None:
        """The superstep of the newest checkpoint that is complete, which is what its manifest says."""
        try:
            return int((_read(self.checkpoints / "checkpoint.json") or {})["superstep"])
        except (ValueError, KeyError):
            return None

    @property
    def done(self) -> dict[str, Any] | None:
        """What the worker that ended the job said."""
        return _read(self._done)

    def report(self, told: dict[str, Any]) -> None:
        """Tell how far the job is."""
        write_whole(self._progress, json.dumps(told), durable=False)

    @property
    def progress(self) -> dict[str, Any]:
        """How far the job is."""
        return _read(self._progress) or {}

    def log_end(self, most_bytes: int) -> str:
        """The end of the log, from the beginning of a line."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most_bytes))
                text = file.read(most_bytes)
        except FileNotFoundError:
            return ""
        if size > most_bytes:
            text = text.partition(b"\n")[2]
        return text.decode(errors="replace")


def write_whole(path: Path, text: str, *, durable: bool = True, mode: int = 0o666) -> None:
    """Write a file so that a reader sees all of it or the one before, whatever happens."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with open(partial, "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    partial.replace(path)
    if durable:
        write_through(path.parent)


def write_through(folder: Path) -> None:
    """Put on the disk what a folder has been told to hold."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        # What was not written through is empty after a power cut.
        return None
    return found


def is_disk_full(error: BaseException) -> bool:
    """Whether a disk is full; also for errors that were told of by another process, or wrapped on the way."""
    full = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in full or any(os.strerror(number) in str(error) for number in full)

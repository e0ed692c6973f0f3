"""Job folder: crash-safe communication between server and worker.

One worker at a time locks the folder; the kernel releases the lock when the worker dies. Only the attempt in
``current`` may start. A finished worker writes ``done.json`` atomically, so a finished job never runs again.
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
    """The folder is locked by another worker."""


class JobFolder:
    """Files of one job.

    Parameters
    ----------
    path : Path
        Path of the folder; `prepare` creates it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.log = path / "log.txt"
        self.order = path / "order.json"
        self.result = path / "result.arrow"
        self._done, self._current, self._progress = path / "done.json", path / "current", path / "progress.json"
        self._worker, self._wishes = path / "worker.json", path / "wishes.json"

    def prepare(self, order: dict[str, Any], attempt: int, machine: int | None = None) -> str:
        """Write the order and the attempt, with its machine if it uses several, that may carry it out.

        Returns
        -------
        str
            Turn of the worker.

        Raises
        ------
        Busy
            A worker of an earlier attempt still holds the lock.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self.taken():
            write_whole(self.order, json.dumps(order))
            turn = str(attempt) if machine is None else f"{attempt}.{machine}"
            write_whole(self._current, turn)
        return turn

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Lock the folder exclusively.

        Raises
        ------
        Busy
        """
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"{self.path}: in use by another worker") from None
            yield

    def sign(self) -> None:
        """Record the session of this process as that of the worker."""
        write_whole(self._worker, json.dumps({"session": os.getsid(0)}), durable=False)

    @property
    def session(self) -> int | None:
        """Session of the last worker; valid only while the folder is busy."""
        found = _read(self._worker)
        return None if found is None else int(found["session"])

    @property
    def busy(self) -> bool:
        """Whether a worker holds the lock."""
        try:
            with self.taken():
                return False
        except FileNotFoundError:
            return False
        except Busy:
            return True

    @property
    def turn(self) -> str:
        """Turn set by the last `prepare`; empty before."""
        try:
            return self._current.read_text()
        except FileNotFoundError:
            return ""

    def finish(self, content: dict[str, Any]) -> None:
        """Record the completion of the job; see `done`."""
        write_whole(self._done, json.dumps(content))

    @property
    def saved(self) -> int | None:
        """Superstep of the newest complete checkpoint, from its manifest."""
        try:
            return int((_read(self.checkpoints / "checkpoint.json") or {})["superstep"])
        except (ValueError, KeyError):
            return None

    @property
    def done(self) -> dict[str, Any] | None:
        """Completion record of the job, or ``None``."""
        return _read(self._done)

    def report(self, content: dict[str, Any]) -> None:
        """Record the progress of the job."""
        write_whole(self._progress, json.dumps(content), durable=False)

    @property
    def progress(self) -> dict[str, Any]:
        """Progress of the job."""
        return _read(self._progress) or {}

    @property
    def wishes(self) -> dict[str, Any]:
        """What has been asked of the worker of a job, which one that restarts does again."""
        return _read(self._wishes) or {}

    def wish(self, **wishes: Any) -> None:
        """Record what is asked of the worker of the job.

        Parameters
        ----------
        **wishes
            Of flows: ``stop``, ``workers``, ``alternates``, ``version``, or ``last``, the last number of a version. Of
            graph jobs: ``checkpoint``, the superstep after whose checkpoint another one is needed.
        """
        write_whole(self._wishes, json.dumps(self.wishes | wishes))

    def log_end(self, most_bytes: int) -> str:
        """Return the end of the log, starting at a line."""
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


def write_whole(path: Path, content: str | bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Write a file atomically: readers see the old or the new content."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content.encode() if isinstance(content, str) else content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    partial.replace(path)
    if durable:
        write_through(path.parent)


def write_through(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        # Unflushed files may be empty after a power failure.
        return None
    return found


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error means a full disk, including wrapped errors and errors of other processes."""
    full = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in full or any(os.strerror(number) in str(error) for number in full)

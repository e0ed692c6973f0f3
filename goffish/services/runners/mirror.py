"""Job folders in object storage, for workers on other machines.

The folder of a job here and the one in object storage have the same files. The server writes the order and the turn,
and reads the rest; the worker writes all else while it holds the lease of the folder in storage. A file that refers to
others is written after them.

The server trusts nothing that a worker has written: files are read in pieces up to a limit, and checked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from goffish.errors import JobError
from goffish.gofs.files import Folder, NoSuchFileError, TooLargeError, open_folder
from goffish.partial import is_uri
from goffish.services.runners.folder import JobFolder, write_whole

_ORDER, _TURN, _DONE, _RESULT, _PROGRESS, _LOG, _WISHES = (
    "order.json", "current", "done.json", "result.arrow", "progress.json", "log.txt", "wishes.json",
)  # fmt: skip
_CHECKPOINTS, _MANIFEST = "checkpoints", "checkpoint.json"
#: Folder of the files of the server that the order names, by their number in it.
_FILES = "files"
#: What a worker says about itself: when it begins, and its exit code at the end.
_WORKER = "worker-{turn}.json"
#: The last bytes of a log that are kept in storage, and read from it.
_MOST_LOG = 1 << 18
#: Maximum bytes of a JSON file of a worker.
_MOST_JSON = 4 << 20
#: Maximum bytes of a short text.
_MOST_TEXT = 1000
#: Maximum value of a number of supersteps or rows.
_MOST_COUNT = 1 << 62


class BadFolder(JobError):
    """The folder of a job in storage has what no worker of ours writes, or more than the operator accepts."""


class Mirror:
    """The folder of a job, and the same in object storage.

    Parameters
    ----------
    folder : JobFolder
    place : str
        URI of the folder in storage.
    most_result_mb : int, optional
        Maximum size of the result that the server reads.

    Attributes
    ----------
    store : Folder
    """

    def __init__(self, folder: JobFolder, place: str, most_result_mb: int | None = None) -> None:
        self.folder, self.place = folder, place
        self._most_result = None if most_result_mb is None else most_result_mb << 20
        self.store: Folder = open_folder(place)
        self._written: dict[str, tuple[int, int]] = {}  # size and time of files as they were written to storage

    # The server.

    def publish(self) -> None:
        """Write the order of `JobFolder.prepare` to storage, after the files of the server that it names.

        Machines whose storage is a local folder read the files where they are.
        """
        order = json.loads(self.folder.order.read_bytes())
        for number, path in enumerate(map(Path, order.get("names", {})) if is_uri(self.place) else ()):
            for file in [path] if path.is_file() else _files(path):
                name = f"{_FILES}/{number}/{file.relative_to(path.parent).as_posix()}"
                if self.store.size(name) is None:
                    self.store.upload(name, file)
        for name in (_ORDER, _TURN):
            self.store.write(name, (self.folder.path / name).read_bytes())

    def publish_wishes(self) -> None:
        """Write what is asked of the worker to storage."""
        self.store.write(_WISHES, (self.folder.path / _WISHES).read_bytes())

    def fetch_news(self) -> None:
        """Read what the worker has written about its progress, and its result if there is one.

        Raises
        ------
        BadFolder
            A file is too large, or has not the content that a worker writes.
        """
        # Not by a listing, whose length the worker decides.
        self._fetch(_PROGRESS, _is_progress)
        self._fetch(f"{_CHECKPOINTS}/{_MANIFEST}", lambda found: _is_count(found.get("superstep")))
        self._read(_LOG, _MOST_LOG, end=True)
        if self.folder.done is None and self.store.size(_DONE) is not None:
            try:
                self._read(_RESULT, self._most_result)
            except TooLargeError as error:
                raise BadFolder(f"result of the job: {error} (--max-storage)") from None
            self._fetch(_DONE, _is_done)

    def _fetch(self, name: str, accepts: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read a JSON file of a worker; it replaces the one here only if it is accepted."""
        try:
            data = self.store.read(name, _MOST_JSON).to_pybytes()
        except NoSuchFileError:
            return {}
        except TooLargeError as error:
            raise BadFolder(str(error)) from None
        try:
            found: dict[str, Any] = json.loads(data)
        except (ValueError, RecursionError):
            raise BadFolder(f"{self.place}/{name}: not a JSON document") from None
        if not isinstance(found, dict) or not accepts(found):
            raise BadFolder(f"{self.place}/{name}: not the content that a worker writes")
        target = self.folder.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, data, durable=False)
        return found

    def worker(self, turn: str) -> dict[str, Any]:
        """Return what the worker of a turn has said about itself: ``code`` when it has ended, perhaps an ``error``."""
        found = self._fetch(_WORKER.format(turn=turn), lambda _: True)
        code, error = found.get("code"), found.get("error")
        said: dict[str, Any] = {"code": code} if isinstance(code, int) and abs(code) < 1 << 16 else {}
        return said | ({"error": error[:_MOST_TEXT]} if isinstance(error, str) else {})

    def has_begun(self, turn: str) -> bool:
        """Whether the worker of a turn has begun."""
        return self.store.size(_WORKER.format(turn=turn)) is not None

    # The worker.

    def fetch_all(self, *, checkpoints: bool = True) -> None:
        """Read the order, the turn and what earlier workers have left.

        Parameters
        ----------
        checkpoints : bool
            Whether to read checkpoints; the ranks of several machines read them from storage.
        """
        for name in (_ORDER, _TURN, _DONE):
            self._read(name)
        for name in self.store.list():
            if name.startswith((f"{_CHECKPOINTS}/", f"{_FILES}/")[not checkpoints :]) and name not in self._written:
                if ".." in name.split("/"):  # object storage accepts any name
                    raise JobError(f"{self.place}/{name}: not the name of a file of a job")
                self._read(name)
                self._note(name)
        self._rename_files()

    def is_current(self, turn: str) -> bool:
        """Whether a turn is that which the server has opened last."""
        return bool(self.store.read(_TURN, _MOST_TEXT).to_pybytes() == turn.encode())

    def is_done(self) -> bool:
        """Whether the job has a result."""
        return self.store.size(_DONE) is not None

    def _rename_files(self) -> None:
        """Let the order name files as they are called here."""
        order, here = json.loads(self.folder.order.read_bytes()), self.folder.path / _FILES
        names = {
            path: str(here / str(number) / Path(path).name)
            for number, path in enumerate(order.get("names", {})) if (here / str(number)).exists()
        }  # fmt: skip
        for old, new in names.items():
            order["names"][new] = order["names"].pop(old)
            order["input"] = new if order["input"] == old else order["input"]
            order["options"] = {key: new if value == old else value for key, value in order["options"].items()}
        write_whole(self.folder.order, json.dumps(order), durable=False)

    def fetch_wishes(self) -> None:
        """Read what is asked of the worker."""
        self._read(_WISHES)

    def say(self, turn: str, **what: Any) -> None:
        """Record something about the worker of a turn."""
        self.store.write(_WORKER.format(turn=turn), json.dumps(what).encode())

    def write_news(self) -> None:
        """Write the checkpoint, the progress and the log to storage, as far as they have changed."""
        self._write_checkpoints()
        self._write(_PROGRESS)
        self._write_log()

    def write_result(self) -> None:
        """Write the result to storage, if there is one."""
        if self.folder.done is not None:
            self._write(_RESULT)
            self._write(_DONE)

    def _write_checkpoints(self) -> None:
        """Write the newest checkpoint, and then remove those before."""
        here, manifest = self.folder.checkpoints, f"{_CHECKPOINTS}/{_MANIFEST}"
        while True:
            before = _bytes(here / _MANIFEST)
            names = sorted(f"{_CHECKPOINTS}/{path.relative_to(here).as_posix()}" for path in _files(here))
            for name in names:
                if name != manifest:
                    self._write(name)
            if before == _bytes(here / _MANIFEST):
                break  # none of the files has been removed in the meantime
        if before is not None and self._state(manifest) != self._written.get(manifest):
            self._written[manifest] = self._state(manifest)
            self.store.write(manifest, before)
        gone = [name for name in self._written if name.startswith(f"{_CHECKPOINTS}/") and name not in names]
        self.store.delete_all(gone)
        for name in gone:
            del self._written[name]

    def _write_log(self) -> None:
        state = self._state(_LOG)
        if state != self._written.get(_LOG) and state[0]:
            self._written[_LOG] = state
            self.store.write(_LOG, self.folder.log_end(_MOST_LOG).encode())

    def _state(self, name: str) -> tuple[int, int]:
        try:
            found = (self.folder.path / name).stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_size, found.st_mtime_ns

    def _note(self, name: str) -> None:
        self._written[name] = self._state(name)

    def _write(self, name: str) -> None:
        state = self._state(name)
        if state == self._written.get(name):
            return
        with suppress(FileNotFoundError):  # an old checkpoint, removed in the meantime
            self.store.upload(name, self.folder.path / name)
            self._written[name] = state

    def _read(self, name: str, most: int | None = None, *, end: bool = False) -> None:
        """Read a file from storage, if it is there, and keep it here."""
        target = self.folder.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(NoSuchFileError):
            self.store.download(name, target, most, end=end)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < _MOST_COUNT


def _is_progress(found: dict[str, Any]) -> bool:
    share = found.get("share")
    counts = all(_is_count(found.get(name, 0)) for name in ("superstep", "active", "messages"))
    return counts and (share is None or isinstance(share, int | float))


def _is_done(found: dict[str, Any]) -> bool:
    return isinstance(found.get("summary"), dict) and _is_count(found.get("rows"))


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _files(folder: Path) -> list[Path]:
    return [Path(at) / name for at, _, names in os.walk(folder) for name in names if not name.endswith(".partial")]

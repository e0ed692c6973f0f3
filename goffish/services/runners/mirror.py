"""Job folders in object storage, for workers on other machines.

The folder of a job here and the one in object storage have the same files. The server writes the order and the turn,
and reads the rest; the worker writes all else while it holds the lease of the folder in storage. A file that refers to
others is written after them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from goffish.errors import JobError
from goffish.gofs.files import Folder, NoSuchFileError, open_folder
from goffish.services.runners.folder import JobFolder, write_whole

_ORDER, _TURN, _DONE, _RESULT, _PROGRESS, _LOG = (
    "order.json", "current", "done.json", "result.arrow", "progress.json", "log.txt",
)  # fmt: skip
_CHECKPOINTS, _MANIFEST = "checkpoints", "checkpoint.json"
#: Folder of the files of the server that the order names, by their number in it.
_FILES = "files"
#: What a worker says about itself: when it begins, and its exit code at the end.
_WORKER = "worker-{turn}.json"
#: The last bytes of a log that are kept in storage.
_MOST_LOG = 1 << 18


class Mirror:
    """The folder of a job, and the same in object storage.

    Parameters
    ----------
    folder : JobFolder
    place : str
        URI of the folder in storage.

    Attributes
    ----------
    store : Folder
    """

    def __init__(self, folder: JobFolder, place: str) -> None:
        self.folder, self.place = folder, place
        self.store: Folder = open_folder(place)
        self._written: dict[str, tuple[int, int]] = {}  # size and time of files as they were written to storage

    # The server.

    def publish(self) -> None:
        """Write the order of `JobFolder.prepare` to storage, after the files of the server that it names."""
        order = json.loads(self.folder.order.read_bytes())
        there = self.store.list()
        for number, path in enumerate(map(Path, order.get("names", {}))):
            for file in [path] if path.is_file() else _files(path):
                name = f"{_FILES}/{number}/{file.relative_to(path.parent).as_posix()}"
                if name not in there:
                    self.store.write(name, file.read_bytes())
        for name in (_ORDER, _TURN):
            self.store.write(name, (self.folder.path / name).read_bytes())

    def fetch_news(self) -> None:
        """Read what the worker has written about its progress, and its result if there is one."""
        there = set(self.store.list())  # one request, where each file that is missing costs two
        for name in (_PROGRESS, f"{_CHECKPOINTS}/{_MANIFEST}", _LOG):
            if name in there:
                self._read(name)
        if self.folder.done is None and _DONE in there:
            self._read(_RESULT)
            self._read(_DONE)

    def worker(self, turn: str) -> dict[str, Any]:
        """Return what the worker of a turn has said about itself: ``code`` when it has ended."""
        try:
            found: dict[str, Any] = json.loads(self.store.read(_WORKER.format(turn=turn)).to_pybytes())
        except (NoSuchFileError, ValueError):
            return {}
        return found

    def has_begun(self, turn: str) -> bool:
        """Whether the worker of a turn has begun."""
        return self.store.size(_WORKER.format(turn=turn)) is not None

    # The worker.

    def fetch_all(self) -> None:
        """Read the order, the turn and what earlier workers have left."""
        for name in (_ORDER, _TURN, _DONE):
            self._read(name)
        for name in self.store.list():
            if name.startswith((f"{_CHECKPOINTS}/", f"{_FILES}/")):
                if ".." in name.split("/"):  # object storage accepts any name
                    raise JobError(f"{self.place}/{name}: not the name of a file of a job")
                self._read(name)
                self._note(name)
        self._rename_files()

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
        data = _bytes(self.folder.path / name)
        if data is not None:
            self.store.write(name, data)
            self._written[name] = state

    def _read(self, name: str) -> None:
        try:
            data = self.store.read(name).to_pybytes()
        except NoSuchFileError:
            return
        target = self.folder.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, data, durable=False)


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _files(folder: Path) -> list[Path]:
    return [Path(at) / name for at, _, names in os.walk(folder) for name in names if not name.endswith(".partial")]

"""Exports of tasks, by reconfiguration: the data store of a job, and the swap area of a machine."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

_BUSY_S = 30.0


class DataStore:
    """A key-value store that all processes of a job reach: an SQLite file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._open()) as store, store:
            store.execute("PRAGMA journal_mode=WAL")
            store.execute("CREATE TABLE IF NOT EXISTS exports (epoch INTEGER, task TEXT, body TEXT, "
                          "PRIMARY KEY (epoch, task))")  # fmt: skip

    def _open(self) -> sqlite3.Connection:
        store = sqlite3.connect(self._path, timeout=_BUSY_S)
        store.execute("PRAGMA synchronous=OFF")  # what is stored need not outlive this computer
        return store

    def put(self, epoch: int, exports: dict[str, Any]) -> None:
        """Store exports of tasks; all of them or none."""
        rows = [(epoch, task, json.dumps(body)) for task, body in exports.items()]
        with closing(self._open()) as store, store:
            store.executemany("INSERT OR REPLACE INTO exports VALUES (?, ?, ?)", rows)

    def get(self, epoch: int, task: str) -> Any:
        """An export; ``None`` if there is none."""
        with closing(self._open()) as store:
            row = store.execute("SELECT body FROM exports WHERE epoch = ? AND task = ?", (epoch, task)).fetchone()
        return None if row is None else json.loads(row[0])

    def forget(self, before: int) -> None:
        """Delete exports of earlier reconfigurations."""
        with closing(self._open()) as store, store:
            store.execute("DELETE FROM exports WHERE epoch < ?", (before,))


class SwapArea:
    """The same for tasks that stay on their machine: files in a folder of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, epoch: int, task: str) -> Path:
        return self._folder / f"{epoch}-{task.replace('/', '-')}.json"

    def put(self, epoch: int, exports: dict[str, Any]) -> None:
        """Store exports; a file is there whole or not at all."""
        for task, body in exports.items():
            path = self._path(epoch, task)
            half = path.with_suffix(".half")
            half.write_text(json.dumps(body))
            half.replace(path)

    def get(self, epoch: int, task: str) -> Any:
        """An export; ``None`` if there is none."""
        path = self._path(epoch, task)
        return json.loads(path.read_text()) if path.exists() else None

    def forget(self, before: int) -> None:
        """Delete exports of earlier reconfigurations."""
        for path in self._folder.glob("*.json"):
            if int(path.name.split("-")[0]) < before:
                path.unlink(missing_ok=True)

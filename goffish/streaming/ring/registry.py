"""A registry that processes of one host share: a SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from goffish.errors import JobError
from goffish.streaming.ring.ranges import Ranges
from goffish.streaming.ring.view import Member, Move, View

#: How long a process waits for another one that writes.
_BUSY_S = 10.0


class FileRegistry:
    """A registry in a file, which survives all its processes.

    Parameters
    ----------
    path : Path
    first : View, optional
        The first view, if the file does not exist yet.

    Raises
    ------
    JobError
        The file cannot be written.

    Notes
    -----
    Each view is one row, and its version is the primary key: of two processes that add the same version, one fails.
    """

    def __init__(self, path: Path, first: View | None = None) -> None:
        self._path = path
        self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("CREATE TABLE IF NOT EXISTS views (epoch INTEGER PRIMARY KEY, view TEXT NOT NULL)")
        self._execute(
            "CREATE TABLE IF NOT EXISTS lanes (lane TEXT PRIMARY KEY, node INTEGER, life INTEGER, begin TEXT)"
        )
        if first is not None:
            self._execute(
                "INSERT INTO views SELECT ?, ? WHERE NOT EXISTS (SELECT * FROM views)",
                (first.epoch, view_to_json(first)),
            )

    def _execute(self, statement: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Change something."""
        try:
            return self._database.execute(statement, tuple(values))
        except sqlite3.OperationalError as error:  # such as a full disk
            raise JobError(f"{self._path}: cannot be written ({error}); free space, or set TMPDIR") from None

    def read(self) -> View:
        """Return the newest version."""
        (text,) = self._database.execute("SELECT view FROM views ORDER BY epoch DESC LIMIT 1").fetchone()
        return view_from_json(text)

    def since(self, epoch: int) -> list[View]:
        """Return all versions after one, oldest first."""
        rows = self._database.execute("SELECT view FROM views WHERE epoch > ? ORDER BY epoch", (epoch,))
        return [view_from_json(text) for (text,) in rows]

    def replace(self, view: View) -> bool:
        """Make a view the newest version if it follows the newest version directly; return whether it did."""
        try:
            added = self._execute(
                "INSERT INTO views SELECT ?, ? WHERE EXISTS (SELECT * FROM views WHERE epoch = ?)",
                (view.epoch, view_to_json(view), view.epoch - 1),
            )
        except sqlite3.IntegrityError:
            return False
        return added.rowcount == 1

    def claim(self, lane: str, node: int) -> None:
        """Make a node read a lane, if no node does."""
        self._execute("INSERT OR IGNORE INTO lanes VALUES (?, ?, 0, NULL)", (lane, node))

    def adopt(self, lost: Iterable[int], node: int) -> None:
        """Make a node read the lanes of others, each in its next life."""
        for old in lost:
            self._execute("UPDATE lanes SET node = ?, life = life + 1 WHERE node = ?", (node, old))

    def hand(self, lane: str, node: int, target: int, begin: str) -> bool:
        """Make a member of the ring read a lane that a node reads, from a place on; return whether that was done."""
        view = self.read()
        if target not in view:
            return False
        changed = self._execute(  # not after a view without the target, whose lanes have been adopted then
            "UPDATE lanes SET node = ?, life = life + 1, begin = ? "
            "WHERE lane = ? AND node = ? AND (SELECT MAX(epoch) FROM views) = ?",
            (target, begin, lane, node, view.epoch),
        )
        return changed.rowcount == 1

    def handed(self, lane: str) -> str | None:
        """Return the place from which a lane was handed to another node for the last time."""
        found = self._database.execute("SELECT begin FROM lanes WHERE lane = ?", (lane,)).fetchone()
        return None if found is None else found[0]

    def lanes(self, node: int | None = None) -> dict[str, int]:
        """Return the lanes that a node reads, or all, with their lives."""
        return dict(self._database.execute("SELECT lane, life FROM lanes WHERE ? IS NULL OR node = ?", (node, node)))

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def view_to_json(view: View) -> str:
    """Return a view as JSON."""
    moves = [
        [m.owner, m.target, m.start, m.stop, [[node, ranges.parts] for node, ranges in m.shadows], m.leaves, m.zone]
        for m in view.moves
    ]
    mappers = None if view.mappers is None else sorted(view.mappers)
    members = [[member.node, member.token, member.zone] for member in view.members]
    return json.dumps([view.epoch, members, view.replication, mappers, moves])


def view_from_json(text: str) -> View:
    """Return a view that `view_to_json` has written."""
    epoch, members, replication, mappers, moves = json.loads(text)
    return View(
        epoch,
        tuple(Member(*member) for member in members),
        replication,
        None if mappers is None else frozenset(mappers),
        tuple(
            Move(
                owner,
                target,
                start,
                stop,
                tuple((node, Ranges(tuple((a, b) for a, b in parts))) for node, parts in shadows),
                leaves,
                zone,
            )
            for owner, target, start, stop, shadows, leaves, zone in moves
        ),
    )

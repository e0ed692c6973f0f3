"""Checkpoints at a superstep's barrier: program state, votes and pending messages, enough to go on identically."""

from __future__ import annotations

import io
import json
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from goffish.errors import CheckpointError, InputError, JobError, StoreError
from goffish.gofs.files import Folder, NoSuchFileError, open_folder, side_by_side
from goffish.gofs.manifest import checksum
from goffish.gopher.messages import Batch
from goffish.gopher.program import StateColumn
from goffish.gopher.worker import Worker

_MANIFEST, _ROWS, _MARK = "checkpoint.json", "rows-", "begun"
#: Whether every superstep is to end with a checkpoint, and whether the next one is.
_always, _next = threading.Event(), threading.Event()
#: Files of earlier checkpoints, and of those that were not completed.
_OLD = re.compile(rf"step-\d{{8}}/|{_ROWS}.*\.jsonl$")
#: Files of counter rows.
_MOST_FILES = 32


#: Of `asked_for`.
LEAVING = 2


class LeavingError(JobError):
    """A job on several processes ended with a checkpoint, because the machine of one will be taken back."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read back: the superstep that was complete, the aggregates it left, all of the run, its counters."""

    superstep: int
    aggregates: Mapping[str, Any]
    reported: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass
class _Rows:
    """Counter rows in files, of which a checkpoint adds one with what is new; its manifest names those that are valid.

    Attributes
    ----------
    files : list of [name, rows]
    """

    files: list[list[Any]] = field(default_factory=list)

    def add(self, folder: Folder, rows: list[dict[str, Any]]) -> None:
        """Write the rows that are not in the files; all of them again if there are many files."""
        if len(self.files) >= _MOST_FILES:
            self.files = []
        count = sum(held for _, held in self.files)
        name = f"{_ROWS}{secrets.token_hex(4)}.jsonl"
        folder.write(name, "".join(f"{json.dumps(row)}\n" for row in rows[count:]).encode())
        self.files = [*self.files, [name, len(rows) - count]]

    def read(self, folder: Folder) -> list[dict[str, Any]]:
        """The rows.

        Raises
        ------
        StoreError, ValueError
            They are not there, or not all.
        """
        rows: list[dict[str, Any]] = []
        for name, count in self.files:
            found = [json.loads(line) for line in folder.read(name).to_pybytes().splitlines()]
            if len(found) != count:
                raise ValueError(f"{name} has {len(found):,} of {count:,} rows")
            rows += found
        return rows


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder of checkpoints of one job.

    Parameters
    ----------
    path : str
        Absolute path, or URI.
    every : int
        Supersteps between checkpoints.
    identity : mapping
        Program, options and graph fingerprint; a checkpoint of another job is refused.
    """

    path: str
    every: int
    identity: Mapping[str, Any]
    _rows: _Rows = field(default_factory=_Rows, init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.every, self.identity)  # without the connection to storage

    @cached_property
    def _folder(self) -> Folder:
        return open_folder(self.path)

    def newest(self) -> str | None:
        """A text that is different for every checkpoint; ``None`` if there is none."""
        try:
            return checksum(self._folder.read(_MANIFEST))
        except NoSuchFileError:
            return None

    def due(self, superstep: int, asked: int) -> bool:
        """Whether a superstep ends with a checkpoint; `asked` is the largest `asked_for` of all processes."""
        return self.every > 0 and (superstep % self.every == 0 or asked > 0)

    def save(
        self,
        superstep: int,
        workers: list[Worker],
        pending: list[list[Batch]],
        aggregates: Mapping[str, Any],
        reported: Mapping[str, Any],
        rows: list[dict[str, Any]],
    ) -> None:
        """Write a checkpoint and publish it by its manifest; the one before is removed afterwards.

        `aggregates` are those of this superstep, which the next one reads; `reported` hold the latest value of every
        aggregator, which end up in the run's counters.
        """
        self.publish(superstep, self.write_parts(superstep, workers, pending), aggregates, reported, rows)

    def begin(self, superstep: int) -> None:
        """Leave a mark by which other processes see that they have the same folder."""
        with self._writing():
            self._folder.write(f"{_step(superstep)}/{_MARK}", b"")

    def has_begun(self, superstep: int) -> bool:
        """Whether the mark of `begin` is in the folder."""
        return self._folder.size(f"{_step(superstep)}/{_MARK}") is not None

    def write_parts(self, superstep: int, workers: list[Worker], pending: list[list[Batch]]) -> dict[str, str]:
        """Write state, votes and pending messages of partitions; gives the names of the files and their checksums."""

        _next.clear()

        def write(worker: Worker, batches: list[Batch]) -> tuple[str, str]:
            arrays: dict[str, Any] = {f"state.{n}": values for n, (_, values) in worker.state.items()}
            arrays |= {f"message.{i:06d}": batch for i, batch in enumerate(batches)}
            name, data = _part(worker), io.BytesIO()
            np.savez(data, halted=worker.halted, **arrays)
            self._folder.write(f"{_step(superstep)}/{name}", data.getbuffer())
            return name, checksum(data.getbuffer())

        with self._writing():
            return dict(side_by_side(self._folder.at_once, write, workers, pending))

    def publish(
        self,
        superstep: int,
        checksums: Mapping[str, str],
        aggregates: Mapping[str, Any],
        reported: Mapping[str, Any],
        rows: list[dict[str, Any]],
    ) -> None:
        """Make a checkpoint whose files are all written the newest one, and remove those before."""
        folder = self._folder
        with self._writing():
            self._rows.add(folder, rows)
            body = {
                "identity": dict(self.identity), "superstep": superstep, "aggregates": _plain(aggregates),
                "reported": _plain(reported), "rows": self._rows.files, "folder": _step(superstep),
                "checksums": dict(checksums),
            }  # fmt: skip
            folder.write(_MANIFEST, json.dumps(body).encode())
        kept = {_MANIFEST, *(name for name, _ in self._rows.files)}
        with suppress(StoreError):  # the next checkpoint removes what is left
            names = [name for name in folder.list() if name not in kept and not name.startswith(f"{_step(superstep)}/")]
            folder.delete_all([name for name in names if _OLD.match(name)])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise StoreError(f"checkpoint: {error}") from error

    def load(self, workers: list[Worker]) -> tuple[Checkpoint, list[list[Batch]]] | None:
        """Restore the workers from the newest checkpoint; ``None`` if there is none.

        Raises
        ------
        InputError
            The checkpoint belongs to another program, other options or another graph.
        CheckpointError
            It is damaged.
        StoreError
            Storage cannot be reached.
        """
        folder, manifest = self._folder, f"{self.path}/{_MANIFEST}"
        try:
            body = json.loads(folder.read(_MANIFEST).to_pybytes())
            identity = body["identity"]
        except NoSuchFileError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{manifest}: damaged checkpoint ({error})") from None
        expected = json.loads(json.dumps(dict(self.identity)))
        for key, value in expected.items():
            if identity.get(key) != value:
                was = identity.get(key)
                # A fingerprint does not help a reader.
                differ = "another graph or partitioning" if key == "graph" else f"{key} was {was!r}, is {value!r}"
                raise InputError(f"{self.path}: the checkpoint belongs to another job ({differ})")

        def read(worker: Worker) -> list[Batch]:
            name = _part(worker)
            try:
                data = folder.read(f"{body['folder']}/{name}")
                if checksum(data) != body["checksums"][name]:
                    raise ValueError("its bytes do not match their checksum")
                return _restored(worker, data)
            except (NoSuchFileError, ValueError, KeyError) as error:
                raise CheckpointError(f"{self.path}/{body['folder']}/{name}: damaged checkpoint ({error})") from error

        pending = side_by_side(folder.at_once, read, workers)
        try:
            self._rows.files = [[str(name), int(count)] for name, count in body["rows"]]
            rows = self._rows.read(folder)
        except (NoSuchFileError, ValueError, TypeError) as error:
            raise CheckpointError(f"{manifest}: damaged checkpoint ({error})") from error
        return Checkpoint(body["superstep"], body["aggregates"], body["reported"], rows), pending


def checkpoint_now() -> None:
    """Let every superstep end with a checkpoint from now on, as the machine of this process will be taken back.

    Jobs on several processes end with the first one, by `LeavingError`.
    """
    _always.set()


def checkpoint_next() -> None:
    """Let the next superstep end with a checkpoint."""
    _next.set()


def asked_for() -> int:
    """Return what was asked of this process: 1 for `checkpoint_next`, 2 for `checkpoint_now`, 0 for neither."""
    return LEAVING if _always.is_set() else int(_next.is_set())


def _step(superstep: int) -> str:
    return f"step-{superstep:08d}"


def _part(worker: Worker) -> str:
    return f"part-{worker.part.partition:05d}.npz"


def _restored(worker: Worker, data: pa.Buffer) -> list[Batch]:
    with np.load(pa.BufferReader(data), allow_pickle=False) as arrays:
        worker.halted = arrays["halted"]
        for name, (level, values) in worker.state.items():
            if level == "free":
                worker.state[name] = (level, arrays[f"state.{name}"].astype(values.dtype))
            else:
                values[...] = arrays[f"state.{name}"]
        return [arrays[name] for name in sorted(arrays.files) if name.startswith("message.")]


def stable(name: str, value: Any) -> str:
    """A text that is the same for equal option values and different for others, in every process.

    Raises
    ------
    InputError
        For objects of which that cannot be said.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufUS":
        array = np.ascontiguousarray(value)
        return f"array {array.dtype} {array.shape} {checksum(array.tobytes())}"
    if isinstance(value, np.dtype | type):
        return str(value)
    if isinstance(value, Mapping):
        items = sorted((stable(name, k), stable(name, v)) for k, v in value.items())
        return "{" + ", ".join(f"{k}: {v}" for k, v in items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(stable(name, v) for v in value) + "]"
    if isinstance(value, StateColumn):
        return f"{value.level} {value.dtype} {value.fill!r}"
    raise InputError(
        f"option {name!r} is a {type(value).__name__}: checkpoints support only options that are numbers, strings, "
        "arrays, lists and mappings"
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}

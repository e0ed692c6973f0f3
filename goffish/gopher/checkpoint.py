"""Checkpoints at a superstep's barrier: program state, votes and pending messages, enough to go on identically."""

from __future__ import annotations

import io
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from goffish.errors import CheckpointError, InputError, StoreError
from goffish.gofs.manifest import checksum
from goffish.gopher.messages import Batch
from goffish.gopher.program import StateColumn
from goffish.gopher.worker import Worker
from goffish.partial import partial_file

_MANIFEST = "checkpoint.json"


@dataclass(frozen=True)
class Checkpoint:
    """What was read back: the superstep that was complete, the aggregates it left, all of the run, its counters."""

    superstep: int
    aggregates: Mapping[str, Any]
    reported: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass
class _Rows:
    """Counter rows in a file that grows: a checkpoint adds what is new, and its manifest says how much is valid."""

    name: str = ""
    count: int = 0
    bytes: int = 0

    def add(self, folder: Path, rows: list[dict[str, Any]]) -> None:
        """Extend the file to `rows`; each run starts a new file."""
        name = self.name or f"rows-{secrets.token_hex(4)}.jsonl"
        text = "".join(f"{json.dumps(row)}\n" for row in rows[self.count :]).encode()
        with (folder / name).open("r+b" if self.name else "wb") as file:
            file.seek(self.bytes)
            file.truncate()
            file.write(text)
        self.name, self.count, self.bytes = name, len(rows), self.bytes + len(text)

    def read(self, folder: Path) -> list[dict[str, Any]]:
        """The rows.

        Raises
        ------
        OSError, ValueError
            They are not there, or not all.
        """
        with (folder / self.name).open("rb") as file:
            rows = [json.loads(line) for line in file.read(self.bytes).splitlines()]
        if len(rows) != self.count:
            raise ValueError(f"{self.name} has {len(rows):,} of {self.count:,} rows")
        return rows


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder of checkpoints of one job.

    Parameters
    ----------
    path : Path
    every : int
        Supersteps between checkpoints.
    identity : mapping
        Program, options and graph fingerprint; a checkpoint of another job is refused.
    """

    path: Path
    every: int
    identity: Mapping[str, Any]
    _rows: _Rows = field(default_factory=_Rows, init=False, compare=False, repr=False)

    def newest(self) -> str | None:
        """A text that is different for every checkpoint; ``None`` if there is none."""
        manifest = self.path / _MANIFEST
        return checksum(manifest.read_bytes()) if manifest.exists() else None

    def due(self, superstep: int) -> bool:
        return self.every > 0 and superstep % self.every == 0

    def save(
        self,
        superstep: int,
        workers: list[Worker],
        pending: list[list[Batch]],
        aggregates: Mapping[str, Any],
        reported: Mapping[str, Any],
        rows: list[dict[str, Any]],
    ) -> None:
        """Write a checkpoint and publish it by renaming its manifest; the one before is removed afterwards.

        `aggregates` are those of this superstep, which the next one reads; `reported` hold the latest value of every
        aggregator, which end up in the run's counters.
        """
        self.begin(superstep)
        checksums: dict[str, str] = {}
        for worker, batches in zip(workers, pending, strict=True):
            name, digest = self.write_part(superstep, worker, batches)
            checksums[name] = digest
        self.publish(superstep, checksums, aggregates, reported, rows)

    def folder(self, superstep: int) -> Path:
        """Where the files of one checkpoint lie."""
        return self.path / f"step-{superstep:08d}"

    def begin(self, superstep: int) -> None:
        """Make the folder of a checkpoint, empty."""
        with self._writing(superstep):
            shutil.rmtree(self.folder(superstep), ignore_errors=True)
            self.folder(superstep).mkdir(parents=True)

    def write_part(self, superstep: int, worker: Worker, batches: list[Batch]) -> tuple[str, str]:
        """Write one partition's state, votes and pending messages; gives the name of the file and its checksum."""
        arrays: dict[str, Any] = {f"state.{n}": values for n, (_, values) in worker.state.items()}
        arrays |= {f"message.{i:06d}": batch for i, batch in enumerate(batches)}
        file = self.folder(superstep) / f"part-{worker.part.partition:05d}.npz"
        with self._writing(superstep):
            np.savez(file, halted=worker.halted, **arrays)
            return file.name, checksum(file.read_bytes())

    def publish(
        self,
        superstep: int,
        checksums: Mapping[str, str],
        aggregates: Mapping[str, Any],
        reported: Mapping[str, Any],
        rows: list[dict[str, Any]],
    ) -> None:
        """Make a checkpoint whose files are all written the newest one, and remove those before."""
        folder = self.folder(superstep)
        with self._writing(superstep), partial_file(self.path / _MANIFEST) as temporary:
            self._rows.add(self.path, rows)
            body = {
                "identity": dict(self.identity), "superstep": superstep, "aggregates": _plain(aggregates),
                "reported": _plain(reported), "rows": asdict(self._rows), "folder": folder.name,
                "checksums": dict(checksums),
            }  # fmt: skip
            temporary.write_text(json.dumps(body))
        for old in self.path.glob("step-" + 8 * "[0-9]"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
        for other in self.path.glob("rows-*.jsonl"):
            if other.name != self._rows.name:
                other.unlink(missing_ok=True)

    @contextmanager
    def _writing(self, superstep: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            folder = self.folder(superstep)
            raise StoreError(f"{folder}: cannot write the checkpoint ({error.strerror or error})") from error

    def load(self, workers: list[Worker]) -> tuple[Checkpoint, list[list[Batch]]] | None:
        """Restore the workers from the newest checkpoint; ``None`` if there is none.

        Raises
        ------
        InputError
            The checkpoint belongs to another program, other options or another graph.
        CheckpointError
            It is damaged.
        """
        manifest = self.path / _MANIFEST
        if not manifest.exists():
            return None
        try:
            body = json.loads(manifest.read_text())
            identity = body["identity"]
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"{manifest}: damaged checkpoint ({error})") from None
        expected = json.loads(json.dumps(dict(self.identity)))
        for key, value in expected.items():
            if identity.get(key) != value:
                was = identity.get(key)
                # The fingerprint of a graph tells nobody anything.
                differ = "another graph or partitioning" if key == "graph" else f"{key} was {was!r}, is {value!r}"
                raise InputError(f"{self.path}: the checkpoint belongs to another job ({differ})")
        pending: list[list[Batch]] = []
        for worker in workers:
            file = self.path / body["folder"] / f"part-{worker.part.partition:05d}.npz"
            try:
                data = file.read_bytes()
                if checksum(data) != body["checksums"][file.name]:
                    raise ValueError("its bytes do not match their checksum")
                with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                    worker.halted = arrays["halted"]
                    for name, (level, values) in worker.state.items():
                        if level == "free":
                            worker.state[name] = (level, arrays[f"state.{name}"].astype(values.dtype))
                        else:
                            values[...] = arrays[f"state.{name}"]
                    names = sorted(n for n in arrays.files if n.startswith("message."))
                    pending.append([arrays[n] for n in names])
            except (OSError, ValueError, KeyError) as error:
                raise CheckpointError(f"{file}: damaged checkpoint ({error})") from error
        try:
            vars(self._rows).update(body["rows"])
            rows = self._rows.read(self.path)
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{manifest}: damaged checkpoint ({error})") from error
        return Checkpoint(body["superstep"], body["aggregates"], body["reported"], rows), pending


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

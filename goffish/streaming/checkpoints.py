"""Durable checkpoints of a flow: changes of keyed state, positions of sources, and what was published.

A folder has one manifest, which is replaced atomically and names the files of state that are valid. The folder must
be trusted: values that have no Arrow type are pickled.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from goffish.errors import CheckpointError, InputError, JobError
from goffish.partial import local_path
from goffish.streaming.state import Delta

_MANIFEST, _VERSION = "checkpoint.json", 1
#: Folders within: of the checkpoints of several workers, and of what sinks have prepared.
WORKERS, SINKS = "workers", "sinks"
#: Checkpoints between two that hold the whole state.
_CHAIN = 10


@dataclass(frozen=True)
class Checkpoint:
    """The newest checkpoint of a folder.

    Attributes
    ----------
    number : int
    body : dict
        What the flow saved beside its keyed state.
    """

    number: int
    body: dict[str, Any]


def lock_folder(folder: Path, given: str | Path) -> IO[str]:
    """Make a folder that one run uses at a time, and return its lock, to be closed.

    Raises
    ------
    InputError
        The folder cannot be written, or is in use.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise InputError(f"{given}: cannot be written ({error.strerror or error})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise InputError(f"{given}: in use by another run; stop it, or name another folder") from None
    return lock


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that exists completely, and durably, or not at all.

    Raises
    ------
    OSError
        It cannot be written.
    """
    partial = path.parent / f".{path.name}.partial"
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise
    opened = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file completely, and durably, or not at all.

    Raises
    ------
    OSError
        It cannot be written.
    """
    with written(path) as file:
        file.write(data)


class CheckpointFolder:
    """A folder with the checkpoints of one flow, used by one run at a time.

    Parameters
    ----------
    path : str or Path
    flow : str
        Name of the flow, for messages.
    fingerprint : str
        A checkpoint of another flow is refused.
    locked : bool
        Whether to use the folder, and not only to read it.
    updated : str, optional
        Fingerprint of another version of the flow, of which a checkpoint is accepted too.

    Raises
    ------
    InputError
        The folder cannot be written, is in use, or belongs to another flow.
    CheckpointError
        The checkpoint is damaged.
    """

    def __init__(
        self, path: str | Path, flow: str, fingerprint: str, *, locked: bool = True, updated: str | None = None
    ) -> None:
        self.path = local_path(path)
        self._flow, self.fingerprint, self._updated = flow, fingerprint, updated
        self._chain: list[dict[str, Any]] = []
        self.latest: Checkpoint | None = None
        self._locked = locked
        if not locked:
            self._read()
            return
        self._lock = lock_folder(self.path, path)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        manifest = self.path / _MANIFEST
        try:
            text = manifest.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{manifest}: cannot be read ({error})") from None
        try:
            saved = json.loads(text)
            version, fingerprint = saved["version"], saved["fingerprint"]
            latest = Checkpoint(saved["number"], saved["body"])
            self._chain = saved["chain"]
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{manifest}: is damaged; restore it from a copy, or name another folder") from None
        if version != _VERSION:
            raise CheckpointError(f"{manifest}: has format {version}; this version reads format {_VERSION}")
        if fingerprint not in (self.fingerprint, self._updated):
            separate = ", ".join(latest.body.get("stages", ()))
            had = f" ({separate} had some)" if separate else ""
            raise InputError(
                f"{self.path}: checkpoint of another flow ({saved['flow']}, with operators "
                f"{', '.join(saved['operators'])}); name another folder to run {self._flow}, or resume with the "
                f"same keys, windows and separate workers{had}"
            )
        self.latest = latest
        if self._locked:
            self._prune()

    def state(self) -> Iterator[tuple[str, Delta]]:
        """Iterate over operators and the changes to install, in order.

        Raises
        ------
        CheckpointError
            A file is missing or damaged.
        """
        for one in self._chain:
            file = self.path / one["file"]
            try:
                data = file.read_bytes()
            except OSError as error:
                raise CheckpointError(f"{file}: cannot be read ({error.strerror or error})") from None
            if zlib.crc32(data) != one["crc32"]:
                raise CheckpointError(f"{file}: is damaged (wrong checksum)")
            for part in one["parts"]:
                piece = pa.py_buffer(data).slice(part["offset"], part["bytes"])
                for batch in pa.ipc.open_stream(piece):
                    yield part["operator"], Delta.from_arrow(batch)

    @property
    def whole_is_due(self) -> bool:
        """Whether the next checkpoint should hold the whole state: restoring reads every change since then."""
        changes = sum(one["bytes"] for one in self._chain[1:])
        return not self._chain or len(self._chain) > _CHAIN or changes > self._chain[0]["bytes"]

    def save(
        self, number: int, deltas: Mapping[str, Delta], body: Mapping[str, Any], *, whole: bool, operators: list[str]
    ) -> None:
        """Save a checkpoint; the former one is valid until this one is complete.

        Parameters
        ----------
        number : int
        deltas : mapping
            Changes of every operator since the last checkpoint, or its whole state.
        body : mapping
            Values for JSON.
        whole : bool
        operators : list of str
            Names, for the message of a folder of another flow.

        Raises
        ------
        JobError
            The folder cannot be written.
        """
        name, parts = f"state-{number:08d}.arrow", []
        sink = pa.BufferOutputStream()
        for operator, delta in deltas.items():
            if len(delta):
                begun = sink.tell()
                batch = delta.to_arrow()
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch)
                parts.append({"operator": operator, "offset": begun, "bytes": sink.tell() - begun})
        data = sink.getvalue()
        chain = [] if whole else list(self._chain)
        if parts or whole:
            chain.append({"file": name, "bytes": data.size, "crc32": zlib.crc32(data), "parts": parts})
        manifest = {
            "version": _VERSION, "flow": self._flow, "fingerprint": self.fingerprint, "operators": operators,
            "number": number, "chain": chain, "body": dict(body),
        }  # fmt: skip
        try:
            if parts or whole:
                write_file(self.path / name, memoryview(data))
            write_file(self.path / _MANIFEST, json.dumps(manifest).encode())
        except OSError as error:
            last = "no earlier checkpoint" if self.latest is None else f"checkpoint {self.latest.number} stays valid"
            reason = error.strerror or error
            self._discard(name)
            raise JobError(f"{self.path}: checkpoint {number} cannot be written ({reason}); {last}") from None
        self.latest, self._chain = Checkpoint(number, manifest["body"]), chain  # type: ignore[arg-type]
        self._prune()

    def _discard(self, name: str) -> None:
        """Remove a file of state, unless the manifest names it, as the step after its replacement has failed."""
        with suppress(OSError):
            manifest = self.path / _MANIFEST
            if not manifest.exists() or name not in manifest.read_text(encoding="utf-8"):
                (self.path / name).unlink()

    def _prune(self) -> None:
        """Remove files of state that no checkpoint needs."""
        kept = {one["file"] for one in self._chain}
        for file in (*self.path.glob("state-*.arrow"), *self.path.glob(".*.partial")):
            if file.name not in kept:
                with suppress(OSError):
                    file.unlink()

    def close(self) -> None:
        """Let another run use the folder."""
        if self._locked:
            self._lock.close()

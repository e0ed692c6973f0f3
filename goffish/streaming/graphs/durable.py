"""The folder of a live graph: a log of what it was given, and checkpoints from which the log is replayed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from goffish.errors import CheckpointError, InputError, JobError
from goffish.partial import local_path
from goffish.streaming.checkpoints import lock_folder, write_file, written
from goffish.streaming.graphs import trees
from goffish.streaming.graphs.engine import Options
from goffish.streaming.graphs.updates import LATE
from goffish.streaming.journal import SEGMENTS, Entry, Journal, patiently, read_entries

_MANIFEST, _LOG, _FORMAT, _VERSION = "live-graph.json", "log", "live graph", 1
#: Bytes of a file of the log.
_SEGMENT = 64 << 20
#: Of checkpoints: the time between two, the updates and bytes of the log after one, and the time for a replay.
_LONGEST_S, _MOST_UPDATES, _MOST_BYTES, _RECOVERY_S = 60.0, 1_000_000, 256 << 20, 30.0
#: Checkpoints take at most this part of the time.
_SHARE = 0.1
#: Seconds over which rates are averaged.
_AVERAGED_S = 10.0
#: Old checkpoints that are kept: one in an hour, and after 30 days one in a day, in microseconds.
_HOUR, _DAY = 3_600_000_000, 86_400_000_000


def checkpoint_age(rate: float, volume: float, cost: float, replay: float) -> float:
    """Return the time between checkpoints.

    Parameters
    ----------
    rate, volume : float
        Updates and bytes of the log in a second.
    cost : float
        Seconds for a checkpoint.
    replay : float
        Updates that are replayed in a second.

    Returns
    -------
    float
        Seconds.

    Notes
    -----
    ``min(max(min(60 s, 30 s · replay / rate), 10 · cost), 10⁶ / rate, 256 MiB / volume)``: a replay takes 30 seconds
    at most and checkpoints a tenth of the time, unless the log would grow beyond its bounds.
    """
    rate, volume = max(rate, 1e-9), max(volume, 1e-9)
    wanted = max(min(_LONGEST_S, _RECOVERY_S * replay / rate), cost / _SHARE)
    return min(wanted, _MOST_UPDATES / rate, _MOST_BYTES / volume)


class _Policy:
    """When the next checkpoint is due, by what is measured."""

    def __init__(self) -> None:
        self.cost, self.replay = 0.0, 1e5
        self._rate = self._volume = 0.0
        self.begin(time.monotonic())

    def begin(self, now: float) -> None:
        """Note that a checkpoint begins."""
        self._begun = self._heard = now
        self.updates = self.bytes = 0

    def note(self, updates: int, size: int, now: float) -> None:
        """Note what was added to the log."""
        passed = now - self._heard
        weight = min(1.0, passed / _AVERAGED_S) if self.updates else 1.0
        if passed > 0:
            self._rate += weight * (updates / passed - self._rate)
            self._volume += weight * (size / passed - self._volume)
        self._heard = now
        self.updates += updates
        self.bytes += size

    def measure(self, updates: int, seconds: float) -> None:
        """Note how long it took to apply updates."""
        if updates >= 100 and seconds > 0:
            self.replay += 0.1 * (updates / seconds - self.replay)

    def is_due(self, now: float) -> bool:
        if not self.bytes:
            return False
        age = checkpoint_age(self._rate, self._volume, self.cost, self.replay)
        return now - self._begun >= age or self.updates >= _MOST_UPDATES or self.bytes >= _MOST_BYTES


class Saved(NamedTuple):
    """A checkpoint: the number of the entry that follows, and the time up to which records were applied."""

    path: Path
    entry: int
    time: int
    size: int
    sha256: str

    def read(self) -> Any:
        """Return what was saved.

        Raises
        ------
        CheckpointError
            It is damaged.
        """
        try:
            with pa.memory_map(str(self.path)) as file:
                data = file.read_buffer()
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be read ({_reason(error)})") from None
        if data.size != self.size or hashlib.sha256(data).hexdigest() != self.sha256:
            raise CheckpointError(f"{self.path}: is damaged (wrong checksum)")
        return trees.read(data, str(self.path))


def _reason(error: OSError) -> str:
    return error.strerror or " ".join(str(error).split())


class _Hashed:
    """A file that computes the checksum of what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256, self.size, self.closed = hashlib.sha256(), 0, False

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


def checksum(tree: Any) -> str:
    """Return the checksum of the checkpoint with a tree."""
    with Path(os.devnull).open("wb") as file:
        hashed = _Hashed(file)
        trees.write(tree, hashed)
        return hashed.sha256.hexdigest()


def checkpoints(path: Path) -> list[Saved]:
    """Return the checkpoints of a folder, the newest one first; those without a readable description are left out."""
    found = []
    for name in sorted(path.glob("checkpoint-*.json"), reverse=True):
        try:
            given = json.loads(name.read_text(encoding="utf-8"))
            one = Saved(name.with_suffix(".arrow"), *(given[field] for field in Saved._fields[1:]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if [type(value) for value in one[1:]] == [int, int, int, str] and one.entry >= 0:
            found.append(one)
    return sorted(found, key=lambda one: one.entry, reverse=True)


def options_of(path: Path, given: str | Path) -> Options | None:
    """Return the options of the live graph in a folder; ``None`` if there is no such folder, or it is empty.

    Raises
    ------
    InputError
        The folder belongs to something else.
    CheckpointError
        It cannot be read, or has the format of another version.
    """
    manifest = path / _MANIFEST
    try:
        names = {one.name for one in path.iterdir()}
        text = manifest.read_text(encoding="utf-8") if _MANIFEST in names else None
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise InputError(f"{given}: is a file; name a folder") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{given}: cannot be read ({error})") from None
    if text is None:
        if names <= {"lock", f".{_MANIFEST}.partial"}:
            return None
        raise InputError(f"{given}: is not the folder of a live graph; name a new folder")
    try:
        found = json.loads(text)
        kind, version = found["format"], found["version"]
        options = Options(**found["options"]) if version == _VERSION else Options()
        if kind != _FORMAT or any(type(one) is not int for one in options) or not 0 <= options.late < len(LATE):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(f"{manifest}: is damaged; restore it from a copy, or name another folder") from None
    if version != _VERSION:
        raise CheckpointError(f"{manifest}: has version {version}; this program reads version {_VERSION}")
    return options


def read_log(path: Path, first: int) -> Iterator[tuple[int, int, Any]]:
    """Iterate over entries of the log: their numbers, forms, and what they hold.

    Raises
    ------
    CheckpointError
        It is damaged, or does not begin early enough.
    """
    for number, entry in read_entries(path / _LOG, first):
        yield number, entry.form, trees.read(entry.payload, f"{path / _LOG}, entry {number:,}")


def first_entry(path: Path) -> int:
    """Return the number of the first entry of the log."""
    return min((int(name.stem) for name in (path / _LOG).glob("*.journal")), default=0)


class Folder:
    """The folder of a live graph, which one process uses at a time.

    Parameters
    ----------
    path : str or Path
    options : Options
    retention : int
        Microseconds of the log that are kept, in event time.
    instances : int
        How many checkpoints before that are kept.

    Raises
    ------
    InputError
        The folder cannot be written, is in use, belongs to something else, or the options differ.
    CheckpointError
        It is damaged.
    """

    def __init__(self, path: str | Path, options: Options, retention: int, instances: int = 0) -> None:
        self.path, self._given, self._retention, self._instances = local_path(path), path, retention, instances
        options_of(self.path, path)  # before a lock is made in a folder of something else
        self._lock = patiently(lambda: lock_folder(self.path, path))
        self._log: Journal | None = None
        self.policy = _Policy()
        try:
            had = options_of(self.path, path)
            if had is None:
                manifest = {"format": _FORMAT, "version": _VERSION, "options": options._asdict()}
                write_file(self.path / _MANIFEST, json.dumps(manifest).encode())
            for name, value in options._asdict().items():
                before = getattr(had or options, name)
                if value != before:
                    texts = _shown(name, before), _shown(name, value)
                    raise InputError(
                        f"{path}: has {name} = {texts[0]}, and not {texts[1]}; give the same, or name a new folder"
                    )
            for file in self.path.glob(".*.partial"):
                file.unlink()
        except OSError as error:
            self.close()
            raise InputError(f"{path}: cannot be written ({_reason(error)})") from None
        except BaseException:
            self.close()
            raise

    def open_log(self, first: int) -> None:
        """Open the log, of which entries are needed from a number on.

        Raises
        ------
        CheckpointError
            They are damaged or missing.
        """
        self._log = Journal(self.path / _LOG, SEGMENTS * _SEGMENT, first)
        self._log.check([first, 0])

    @property
    def end(self) -> int:
        """Number of the next entry of the log."""
        assert self._log is not None
        return self._log.end

    def append(self, form: int, tree: Any, updates: int = 0) -> None:
        """Write an entry to the log, and wait until it is on the disk.

        Raises
        ------
        Refused
            It cannot be written; the log is as before.
        JobError
            The state of the log is unknown.
        """
        assert self._log is not None
        sink = pa.BufferOutputStream()
        trees.write(tree, sink)
        payload = sink.getvalue().to_pybytes()
        self._log.append([Entry(form, updates, payload, time=time.time())])
        self.policy.note(updates, len(payload), time.monotonic())

    def save(self, tree: Any, moment: int) -> None:
        """Save a checkpoint; the former ones stay valid.

        Parameters
        ----------
        tree : object
        moment : int
            Time up to which records are applied.

        Raises
        ------
        JobError
            The folder cannot be written.
        """
        begun, entry = time.monotonic(), self.end
        self.policy.begin(begun)
        name = self.path / f"checkpoint-{entry:016d}.arrow"
        try:
            with written(name) as file:
                hashed = _Hashed(file)
                trees.write(tree, hashed)
            one = Saved(name, entry, moment, hashed.size, hashed.sha256.hexdigest())
            described = dict(zip(Saved._fields[1:], one[1:], strict=True))
            write_file(name.with_suffix(".json"), json.dumps(described).encode())
        except OSError as error:
            raise JobError(
                f"{self._given}: a checkpoint cannot be written ({_reason(error)}); all records are in the log"
            ) from None
        self._thin(checkpoints(self.path))
        self.policy.cost = time.monotonic() - begun

    def _thin(self, found: list[Saved]) -> None:
        """Remove checkpoints that are not kept, and what comes before the oldest one of the log."""
        assert self._log is not None
        older, begin = found[:1:-1], found[0].time - self._retention
        kept: list[Saved] = []
        for one, following in zip(older, [*older[1:], *found[1:2]], strict=False):
            apart = min(_DAY if found[0].time - one.time > 30 * _DAY else _HOUR, self._retention // 4)
            # Of those before the time that is kept, the last one is where its replay begins.
            if following.time > begin and (not kept or one.time >= kept[-1].time + apart):
                kept.append(one)
        kept += found[:2]
        oldest = min(kept, key=lambda one: one.entry)
        instances: list[Saved] = []
        for one in reversed(found):  # the oldest first: the later ones come one by one
            # The log does not go back to these.
            if one.entry < oldest.entry and (not instances or one.time >= instances[-1].time + _DAY):
                instances.append(one)
        kept += instances[max(0, len(instances) - self._instances) :]
        self.remove([one for one in found if one not in kept])
        files = {one.path for one in kept}
        for name in self.path.glob("checkpoint-*.arrow"):
            if name not in files:
                with suppress(OSError):
                    name.unlink()
        if oldest.time <= begin:  # before that, the beginning of the log is an empty graph
            self._log.trim(oldest.entry)

    def remove(self, found: list[Saved]) -> None:
        """Remove checkpoints."""
        for one in found:
            for name in (one.path.with_suffix(".json"), one.path):
                with suppress(OSError):
                    name.unlink()

    def close(self) -> None:
        """Let another process use the folder."""
        if self._log is not None:
            self._log.close()
        self._lock.close()


def _shown(name: str, value: int) -> str:
    if name == "late":
        return LATE[value]
    return f"{value / 1e6:g} s" if name in ("lateness", "idle", "tombstone_ttl") else f"{value:,}"

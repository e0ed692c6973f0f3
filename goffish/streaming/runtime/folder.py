"""The folder of the checkpoints of all workers of a flow."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from goffish.errors import CheckpointError, InputError, JobError
from goffish.partial import local_path
from goffish.streaming.checkpoints import SINKS, WORKERS, CheckpointFolder, lock_folder, write_file
from goffish.streaming.operators import described
from goffish.streaming.runtime.worker import recover
from goffish.streaming.topology import Topology
from goffish.streaming.updates.migration import to_migrate
from goffish.streaming.updates.plan import UpdatePlan, is_same

#: File with the update that is in progress.
_UPDATE = "update"
#: File with the highest number of a worker, once folders of workers have been removed.
_HIGHEST = "highest"


def has_workers(path: str | Path) -> bool:
    """Return whether a folder has checkpoints of workers, from which a run would resume."""
    return any(one.name.isdigit() for one in (local_path(path) / WORKERS).glob("*"))


class WorkerFolder:
    """A folder with a folder of checkpoints for each worker, used by one run at a time."""

    def __init__(self, path: str | Path, topology: Topology) -> None:
        root = local_path(path)
        self.path = root / WORKERS
        if (root / "checkpoint.json").exists():
            raise InputError(f"{path}: checkpoint of a run in one process; resume it with --workers 1")
        self._lock = lock_folder(self.path, path)
        self.workers: list[int] = []
        self.outputs: dict[str, None] = {}  # lanes of what workers had not sent
        found: list[tuple[int, dict[str, int]]] = [(0, {})]
        try:
            self.update = self._kept(topology)
            updated = None if self.update is None else self.update.old.fingerprint
            versions = (topology,) if self.update is None else (self.update.old, self.update.new)
            if self.update is not None:
                topology = self.update.new
            for number in sorted(int(one.name) for one in self.path.iterdir() if one.name.isdigit()):
                saved = CheckpointFolder(
                    self.path / str(number), topology.name, topology.fingerprint, locked=False, updated=updated
                )
                for version in versions:
                    recover(version, number, None if saved.latest is None else saved.latest.number, self.path / SINKS)
                self.workers.append(number)
                if saved.latest is not None:
                    body = saved.latest.body
                    self.outputs |= dict.fromkeys(body["outputs"])
                    found.append((body["flow"], body["origins"]))
                    if self.update is None:
                        to_migrate(topology, body.get("forms"))  # raises an error if a function is missing
            self.version, self.origins = self._begins(found, self.update)
            #: Number of the first worker of a run; sinks name files after workers, so that no number is used twice.
            self.first = self._highest() + 1
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _begins(found: list[tuple[int, dict[str, int]]], update: UpdatePlan | None) -> tuple[int, dict[str, int]]:
        """Return the version with which the run begins, and with which versions the states of its operators began."""
        if update is None:
            return max(found, key=itemgetter(0))
        before = [one for one in found if one[0] < update.number]
        return update.number - 1, max(before, key=itemgetter(0))[1]

    def _kept(self, topology: Topology) -> UpdatePlan | None:
        """Return the update that was in progress when the last run ended."""
        try:
            update: UpdatePlan = pickle.loads((self.path / _UPDATE).read_bytes())
        except FileNotFoundError:
            return None
        except Exception as error:
            raise CheckpointError(f"{self.path / _UPDATE}: cannot be read ({described(error)})") from None
        if not any(is_same(topology, one) for one in (update.old, update.new)):
            raise InputError(
                f"{self.path}: flow {topology.name} was being updated ({update.text}); resume it with its new version"
            )
        if is_same(topology, update.new) and all(topology.operator(name).migrate for name in update.migrated):
            update = replace(update, new=topology)  # its functions may be corrected ones
        return update

    def keep(self, update: bytes | None) -> None:
        """Keep an update until it is complete, for a run that resumes this one."""
        if update is None:
            (self.path / _UPDATE).unlink(missing_ok=True)
            return
        self._write(_UPDATE, update)

    def _write(self, name: str, data: bytes) -> None:
        """Write a file completely or not at all."""
        try:
            write_file(self.path / name, data)
        except OSError as error:
            raise JobError(f"{self.path}: cannot be written ({error.strerror or error})") from None

    def remove_others(self, workers: Collection[int]) -> None:
        """Remove the checkpoints of workers that are gone, from which others have taken over."""
        numbers = [int(one.name) for one in self.path.iterdir() if one.name.isdigit()]
        self.remove([number for number in numbers if number not in workers])

    def remove(self, workers: Sequence[int]) -> None:
        """Remove the checkpoints of workers that others have taken over from."""
        if workers:
            self._write(_HIGHEST, str(self._highest()).encode())
        for number in workers:
            shutil.rmtree(self.path / str(number), ignore_errors=True)

    def _highest(self) -> int:
        """Return the highest number that a worker has had, or -1."""
        numbers = [int(one.name) for one in self.path.iterdir() if one.name.isdigit()]
        with suppress(FileNotFoundError):  # nothing was removed
            numbers.append(int((self.path / _HIGHEST).read_text()))
        return max(numbers, default=-1)

    def close(self) -> None:
        self._lock.close()

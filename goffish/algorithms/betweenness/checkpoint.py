"""The checkpoint of searches on a graph in memory: sums so far, in one file of a folder."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from goffish.algorithms.betweenness.problem import Problem
from goffish.algorithms.betweenness.search_kernels import Scores
from goffish.errors import CheckpointError, InputError, StoreError
from goffish.partial import partial_file

_FILE = "searches.npz"


@dataclass(frozen=True)
class SavedSums:
    """The sums that searches have computed so far, in a file of a folder.

    Parameters
    ----------
    folder : Path
    resume : bool
        Whether to go on from what the folder holds; otherwise it is written over.
    identity : mapping
        Options, and the graph's fingerprint as ``graph``; sums of another job are refused.
    """

    folder: Path
    resume: bool
    identity: Mapping[str, Any]

    def save(self, done: int, totals: Sequence[Scores]) -> None:
        """Write that the first `done` blocks add up to `totals`; the file before stays until this one is complete."""
        arrays = {f"vertices.{i}": total.vertices for i, total in enumerate(totals)}
        arrays |= {f"arcs.{i}": total.arcs for i, total in enumerate(totals)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with partial_file(self.folder / _FILE) as temporary, temporary.open("wb") as file:
                np.savez(file, done=done, identity=json.dumps(dict(self.identity)), **arrays)  # type: ignore[arg-type]
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot write the checkpoint ({error.strerror or error})") from error

    def load(self, totals: Sequence[Scores]) -> int | None:
        """Fill `totals`; gives how many blocks they hold, ``None`` where there is nothing to go on from.

        Raises
        ------
        InputError
            The sums are of another graph or of other options.
        CheckpointError
            The file is damaged.
        """
        path = self.folder / _FILE
        if not self.resume or not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as arrays:
                was = json.loads(str(arrays["identity"]))
                if was == json.loads(json.dumps(dict(self.identity))):
                    for i, total in enumerate(totals):
                        total.vertices[...] = arrays[f"vertices.{i}"]
                        total.arcs[...] = arrays[f"arcs.{i}"]
                    return int(arrays["done"])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{path}: damaged checkpoint ({error})") from error
        for name, value in self.identity.items():
            if was.get(name) != value:
                differ = "another graph" if name == "graph" else f"{name} was {was.get(name)!r}, is {value!r}"
                raise InputError(f"{self.folder}: the checkpoint belongs to another job ({differ})")
        raise InputError(f"{self.folder}: the checkpoint belongs to another job")


def fingerprint(problem: Problem) -> str:
    """A text that differs for different problems."""
    digest = hashlib.blake2b(digest_size=16)
    for column in (
        problem.offsets, problem.targets, problem.weights, problem.out, problem.into, np.array([problem.directed])
    ):  # fmt: skip
        digest.update(str(column.size).encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()

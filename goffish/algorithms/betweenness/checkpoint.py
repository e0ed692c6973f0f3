"""The checkpoint of searches on a graph in memory: sums so far, in one file of a folder."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from goffish.algorithms.betweenness.problem import Problem
from goffish.algorithms.betweenness.search_kernels import Scores
from goffish.errors import CheckpointError, InputError, StoreError
from goffish.gofs.files import NoSuchFileError, open_folder

_FILE = "searches.npz"


@dataclass(frozen=True)
class SavedSums:
    """The sums that searches have computed so far, in a file of a folder.

    Parameters
    ----------
    path : path
        Folder, or its URI.
    resume : bool
        Whether to go on from what the folder holds; otherwise it is written over.
    identity : mapping
        Options, and the graph's fingerprint as ``graph``; sums of another job are refused.
    """

    path: str | Path
    resume: bool
    identity: Mapping[str, Any]

    def save(self, done: int, totals: Sequence[Scores]) -> None:
        """Write that the first `done` blocks add up to `totals`; the file before stays until this one is complete."""
        arrays = {f"vertices.{i}": total.vertices for i, total in enumerate(totals)}
        arrays |= {f"arcs.{i}": total.arcs for i, total in enumerate(totals)}
        data = io.BytesIO()
        np.savez(data, done=done, identity=json.dumps(dict(self.identity)), **arrays)  # type: ignore[arg-type]
        try:
            open_folder(self.path).write(_FILE, data.getbuffer())
        except StoreError as error:
            raise StoreError(f"checkpoint: {error}") from error

    def load(self, totals: Sequence[Scores]) -> int | None:
        """Fill `totals`; gives how many blocks they hold, ``None`` where there is nothing to go on from.

        Raises
        ------
        InputError
            The sums are of another graph or of other options.
        CheckpointError
            The file is damaged.
        """
        if not self.resume:
            return None
        try:
            data = open_folder(self.path).read(_FILE)
        except NoSuchFileError:
            return None
        try:
            with np.load(pa.BufferReader(data), allow_pickle=False) as arrays:
                was = json.loads(str(arrays["identity"]))
                if was == json.loads(json.dumps(dict(self.identity))):
                    for i, total in enumerate(totals):
                        total.vertices[...] = arrays[f"vertices.{i}"]
                        total.arcs[...] = arrays[f"arcs.{i}"]
                    return int(arrays["done"])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{self.path}/{_FILE}: damaged checkpoint ({error})") from error
        for name, value in self.identity.items():
            if was.get(name) != value:
                differ = "another graph" if name == "graph" else f"{name} was {was.get(name)!r}, is {value!r}"
                raise InputError(f"{self.path}: the checkpoint belongs to another job ({differ})")
        raise InputError(f"{self.path}: the checkpoint belongs to another job")


def fingerprint(problem: Problem) -> str:
    """A text that differs for different problems."""
    digest = hashlib.blake2b(digest_size=16)
    for column in (
        problem.offsets, problem.targets, problem.weights, problem.out, problem.into, np.array([problem.directed])
    ):  # fmt: skip
        digest.update(str(column.size).encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()

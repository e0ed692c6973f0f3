"""GoFS: partition slices in files, written once, published atomically, opened without reading them.

A store is a folder with ``manifest.json`` and, per partition, Arrow IPC files for topology, weights and labels and one
Parquet file per attribute. Slice files are named by their content, so that writing the same graph again changes nothing
and a new version never touches the files of the old one before its manifest has replaced the old manifest.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from goffish.errors import StoreError
from goffish.gofs import manifest as manifests
from goffish.gofs.encoding import ARC_ARRAYS, decode_arrays, decode_parquet, encode_slice, read_array
from goffish.gofs.files import Folder, NoSuchFileError, open_folder
from goffish.gofs.manifest import FileEntry, GraphInfo, Manifest
from goffish.gofs.slices import Arcs, Slice, column_of

#: Bytes of a file that a single request reads as fast as several requests read parts of it.
_SMALL = 1 << 20

Progress = Callable[[int, int], None]
Companions = Callable[[int], Iterator[tuple[str, pa.Buffer, FileEntry]]]

#: Files that a store made, also those that a killed writer left behind; nothing else in the folder is ever touched.
_OURS = re.compile(r"p\d{5}/[^/]+-[0-9a-f]{16}\.(arrow|parquet)|(p\d{5}/)?\.[^/]+\.partial")


class Partitions(Protocol):
    """What a store is written from: `goffish.gofs.PartitionedGraph`."""

    info: GraphInfo
    companions: Companions | None

    def slices(self) -> Sequence[Slice]: ...


def write_store(graph: Partitions, path: str | Path, *, progress: Progress | None = None) -> Manifest:
    """Write `graph` as a store at `path`; an existing store there is replaced in one step.

    Parameters
    ----------
    path
        Local folder or fsspec URI.
    progress
        Called with (partitions written, partitions).

    Raises
    ------
    StoreError
        The place cannot be written, or is a folder that holds something else. Nothing is published then.
    """
    check_store_place(path)
    folder = open_folder(path)
    with folder.locked():
        return _write_locked(graph, folder, progress)


def _write_locked(graph: Partitions, folder: Folder, progress: Progress | None) -> Manifest:
    before = set(folder.list())
    written: set[str] = set()
    parts: list[dict[str, FileEntry]] = []
    try:
        with Writes(folder) as writes:
            for part in graph.slices():
                files: dict[str, FileEntry] = {}
                beside = () if graph.companions is None else graph.companions(part.partition)
                for kind, data, entry in chain(encode_slice(graph.info, part), beside):
                    if entry.name not in written:
                        written.add(entry.name)
                        writes.add(entry, data, there=entry.name in before)
                    files[kind] = entry
                parts.append(files)
                if progress is not None:
                    progress(len(parts), graph.info.num_partitions)
        manifest = Manifest(graph.info, tuple(parts))
        folder.write(manifests.NAME, manifests.encode(manifest))
    except BaseException:
        # After an interruption while the manifest was being replaced, either of them may be there.
        there: set[str] = set()
        with suppress(StoreError):
            there = {entry.name for entry in _entries(read_manifest(folder))}
        with suppress(StoreError):  # the next version removes what stays
            for name in written - before - there:
                folder.delete(name)
        raise
    current = {entry.name for files in parts for entry in files.values()}
    folder.delete_all([name for name in sorted(before - current) if is_store_file(name)])
    return manifest


class Writes:
    """Writes files of a store: in object storage several at a time, as each one waits for an answer."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._pool = None if folder.at_once == 1 else ThreadPoolExecutor(folder.at_once, "goffish files")
        self._running: deque[Future[None]] = deque()

    def add(self, entry: FileEntry, data: pa.Buffer, *, there: bool) -> None:
        """Write a file, unless it is there with the same content."""
        write = partial(write_once, self._folder, entry) if there else partial(self._folder.write, entry.name)
        if self._pool is None:
            write(data)
            return
        self._running.append(self._pool.submit(write, data))
        if len(self._running) > self._folder.at_once:  # more of them would take memory
            self._running.popleft().result()

    def wait(self) -> None:
        """Wait until all files are written; raises the error of one that cannot be."""
        while self._running:
            self._running.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=error is not None)
        if error is None:
            self.wait()


def fingerprint_of(info: GraphInfo, slices: Iterable[Slice]) -> str:
    """The fingerprint that a store of a graph has: topology, weights, labels, attributes and partitioner."""
    parts = [{kind: entry for kind, _, entry in encode_slice(info, part)} for part in slices]
    return Manifest(info, tuple(parts)).fingerprint()


def check_store_place(path: str | Path) -> None:
    """Refuse a place that no store can be written to, before any work is done for it.

    Raises
    ------
    StoreError
        It is a file, or a folder that holds something else than a store.
    """
    folder = open_folder(path)
    local = Path(folder.location)
    if "://" not in folder.location:
        existing = next(place for place in (local, *local.absolute().parents) if place.exists())
        if not existing.is_dir():
            raise StoreError(f"{existing}: is a file; expected a folder")
        if not os.access(existing, os.W_OK):
            raise StoreError(f"{folder.location}: no permission to write in {existing}")
    names = folder.list()
    if manifests.NAME not in names and not all(is_store_file(name) for name in names):
        raise StoreError(f"{folder.location}: is neither empty nor a store; choose another folder")


def is_store_file(name: str) -> bool:
    """Whether a file has the name of one that a store made (or a writer that was killed); no other may be removed."""
    return _OURS.fullmatch(name) is not None


def stored_bytes(path: str | Path) -> int:
    """Size of all files of a store, with those of a version before that readers may have open."""
    folder = open_folder(path)
    sizes = folder.listed_sizes()
    names = [name for name in folder.list() if name == manifests.NAME or is_store_file(name)]
    return sum(sizes.get(name) or folder.size(name) or 0 for name in names)


def write_once(folder: Folder, entry: FileEntry, data: pa.Buffer) -> None:
    """Write a file, unless it is there with the same content."""
    if folder.size(entry.name) != entry.size or manifests.checksum(folder.read(entry.name)) != entry.sha256:
        folder.write(entry.name, data)


def check_sizes(folder: Folder, manifest: Manifest) -> None:
    """Refuse a store with files that are missing, or of another size than the manifest says.

    Raises
    ------
    StoreError
    """
    listed = folder.listed_sizes()
    for entry in _entries(manifest):
        size = listed[entry.name] if entry.name in listed else folder.size(entry.name)
        if size is None:
            raise StoreError(f"{folder.location}/{entry.name}: missing; the store is incomplete")
        if size != entry.size:
            raise StoreError(f"{folder.location}/{entry.name}: damaged (size {size} bytes, expected {entry.size})")


def verify_store(path: str | Path, *, progress: Progress | None = None) -> int:
    """Verify the checksum of every file of a store.

    Parameters
    ----------
    path : str or path-like
        Local folder or fsspec URI.
    progress : callable, optional
        Called after each file with (files verified, files in total).

    Returns
    -------
    int
        Bytes read.

    Raises
    ------
    StoreError
        If a file is missing or damaged, or there is no store; the message names the first such file.

    Examples
    --------
    >>> import goffish as gf
    >>> _ = gf.partition(gf.from_edges([1, 2], [2, 3]), parts=1).save("path.store")
    >>> gf.verify("path.store") > 0
    True
    """
    folder = open_folder(path)
    entries = list(_entries(read_manifest(folder)))
    done = total = 0
    with ThreadPoolExecutor(2) as pool:
        for size in pool.map(lambda entry: read_checked(folder, entry).size, entries):
            done, total = done + 1, total + size
            if progress is not None:
                progress(done, len(entries))
    return total


def is_store(path: str | Path) -> bool:
    """Whether a manifest lies at `path`."""
    return open_folder(path).size(manifests.NAME) is not None


def read_manifest(folder: Folder) -> Manifest:
    """The manifest of the store in a folder.

    Raises
    ------
    StoreError
        There is none, or it is damaged, foreign or newer.
    """
    try:
        data = folder.read(manifests.NAME).to_pybytes()
    except NoSuchFileError:
        raise StoreError(f"{folder.location}: not a GoFFish store (no {manifests.NAME})") from None
    return manifests.decode(data, f"{folder.location}/{manifests.NAME}")


def _entries(manifest: Manifest) -> Iterator[FileEntry]:
    for files in manifest.files:
        yield from files.values()


def read_checked(folder: Folder, entry: FileEntry, mapped: pa.Buffer | None = None) -> pa.Buffer:
    """The bytes of a file (those in `mapped` where it is mapped already).

    Raises
    ------
    StoreError
        The file is gone, or its bytes do not match the checksum.
    """
    try:
        data = folder.read(entry.name) if mapped is None else mapped
    except NoSuchFileError:
        raise StoreError(
            f"{folder.location}/{entry.name}: is missing; the store was replaced or damaged after it was opened; "
            "open it again"
        ) from None
    if entry.name in folder.verified and data.size == entry.size:
        return data
    if data.size != entry.size or manifests.checksum(data) != entry.sha256:
        raise StoreError(
            f"{folder.location}/{entry.name}: damaged (its bytes do not match the checksum in the manifest); "
            "restore the file or partition the graph again"
        )
    if folder.maps:
        folder.verified.add(entry.name)
    return data


def load_slice(folder: Folder, manifest: Manifest, partition: int) -> Slice:
    """Read the arrays of a partition; its columns when they are first asked for."""
    files, info = manifest.files[partition], manifest.info
    arrays = {name: array.to_numpy() for name, array in decode_arrays(read_checked(folder, files["topology"])).items()}
    out_arcs = Arcs(*(arrays[f"out.{name}"] for name in ARC_ARRAYS))
    in_arcs = Arcs(*(arrays[f"in.{name}"] for name in ARC_ARRAYS)) if info.directed else out_arcs
    return Slice(
        partition, sum(info.vertices[:partition]), sum(info.subgraphs[:partition]), info.directed,
        info.weighted, arrays["subgraph_offsets"], out_arcs, in_arcs, arrays["neighbor_offsets"],
        arrays["neighbor_subgraph"], arrays["neighbor_links"], arrays["vertex_ids"],
        _ColumnReader(folder, manifest, partition, arrays["vertex_ids"]),
    )  # fmt: skip


def read_column(folder: Folder, manifest: Manifest, partition: int, name: str) -> Any:
    """Read a column of the vertices of a partition: ``label``, ``vertex.NAME`` or ``vertex_id``.

    The last one is read without the rest of its file, so that the checksum is not verified, if that saves much.
    """
    files = manifest.files[partition]
    if name == "vertex_id" and (folder.maps or files["topology"].size >= _SMALL):
        # What is damaged is read once more below, which raises an error with the name of the file.
        with suppress(pa.ArrowException, OSError, ValueError, StoreError), folder.open(files["topology"].name) as file:
            return read_array(file, "vertex_ids").to_numpy()
    if name == "vertex_id" or name not in files:
        return decode_arrays(read_checked(folder, files["topology"]))["vertex_ids"].to_numpy()
    data = read_checked(folder, files[name])
    return decode_arrays(data)[name] if name == "label" else decode_parquet(data).column(0)


class _ColumnReader:
    """Reads each column of a slice from its file when it is first asked for, and keeps it."""

    def __init__(self, folder: Folder, manifest: Manifest, partition: int, vertex_ids: np.ndarray[Any, Any]) -> None:
        self._folder, self._info, self._files = folder, manifest.info, manifest.files[partition]
        self._columns: dict[str, Any] = {}
        if self._info.label_type == "implicit":
            self._columns["label"] = vertex_ids
        self._homes = {"weight": "weight", "in_weight": "weight", "label": "label"}
        self._homes |= {"edge_id": "edge-index", "edge_row": "edge-index"}
        # Mapped now, checked and read when asked for: a store that is replaced meanwhile does not stop the job.
        self._mapped = {
            kind: folder.read(entry.name)
            for kind, entry in self._files.items()
            if folder.maps and kind != "topology" and folder.size(entry.name) is not None
        }

    def __call__(self, name: str) -> Any:
        if name not in self._columns:
            if name in self._files and name not in self._homes:
                self._read_attribute(name)
            elif self._homes.get(name) in self._files:
                self._read_arrays(self._homes[name])
        return column_of(self._columns, name)

    def _read_arrays(self, kind: str) -> None:
        for name, array in decode_arrays(self._data(kind)).items():
            self._columns[name] = array if kind == "label" else array.to_numpy()
        if "weight" in self._columns and not self._info.directed:
            self._columns["in_weight"] = self._columns["weight"]

    def _read_attribute(self, name: str) -> None:
        self._columns[name] = decode_parquet(self._data(name)).column(0)

    def _data(self, kind: str) -> pa.Buffer:
        return read_checked(self._folder, self._files[kind], self._mapped.get(kind))

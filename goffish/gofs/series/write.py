"""Write a time series, or more of its instances: a group of them is in memory at a time, never the whole series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, StoreError
from goffish.gofs import manifest as manifests
from goffish.gofs.encoding import encode_slice as encode_template
from goffish.gofs.encoding import entry_of, is_template
from goffish.gofs.files import Folder, open_folder
from goffish.gofs.layout import build_layout
from goffish.gofs.manifest import FileEntry, GraphInfo, Manifest
from goffish.gofs.partitioned import PartitionedGraph, open_store
from goffish.gofs.series.input import Reading, Row, statics_of
from goffish.gofs.series.model import (
    PLACES,
    UNITS,
    InstanceData,
    Place,
    SeriesSchema,
    Unit,
    decode_facts,
    encode_facts,
)  # fmt: skip
from goffish.gofs.series.slices import (
    ELEMENTS,
    FACTS,
    Elements,
    decode_slice,
    encode_slice,
    find_elements,
    numbered,
    slice_kind,
)  # fmt: skip
from goffish.gofs.store import check_store_place, is_store_file, read_checked, read_manifest, write_once
from goffish.graph import Graph
from goffish.graph.guards import GRAPH_ADVICE, expect, whole_number

Progress = Callable[[int], None]
#: The values that are stored already of a slice that gets more instances; by partition, attribute and bin.
_Kept = Mapping[tuple[int, str, int], pa.Array]


def write_series(
    graph: Graph | PartitionedGraph,
    path: str | Path,
    schema: SeriesSchema,
    instances: Iterable[InstanceData],
    *,
    pack: int | Literal["all"] = 10,
    bins: int = 5,
    unit: Unit = "us",
    progress: Progress | None = None,
) -> PartitionedGraph:
    """Write a graph and its time series as a store; an existing store there is replaced in one step.

    Parameters
    ----------
    graph : Graph or PartitionedGraph
        The template; a `Graph` becomes one partition. That of a store may be written to the store itself, which gets a
        series so, or another one.
    path
        Local folder or fsspec URI.
    schema : SeriesSchema
    instances : iterable of InstanceData
        Ascending in time, without overlaps; gaps and instances without values are fine. Read once; `pack` instances are
        in memory at a time.
    pack : int or "all"
        Instances of one slice.
    bins : int
        Groups of subgraphs of each partition that can be read alone; at most one for each subgraph.
    unit : {"us", "1"}
        Of the times: microseconds since 1970 (UTC), or plain numbers.
    progress
        Called with the number of instances written.

    Returns
    -------
    PartitionedGraph
        The store.

    Raises
    ------
    InputError
        An instance that overlaps the one before, an unknown attribute, a column of the wrong length or type, the number
        of an element that does not exist; the message names the instance. Nothing is published then.
    StoreError
        The place cannot be written to.
    """
    expect(graph, (Graph, PartitionedGraph), "graph", GRAPH_ADVICE)
    expect(schema, SeriesSchema, "schema", "expected a SeriesSchema")
    expect(instances, Iterable, "instances", "expected an iterable of InstanceData")
    most = None if isinstance(pack, str) and pack == "all" else whole_number(pack, "pack")
    bins = whole_number(bins, "bins")
    if unit not in UNITS:
        raise InputError(f"unit={unit!r}: choose one of {', '.join(UNITS)}")
    if isinstance(graph, Graph):
        graph = build_layout(graph, np.zeros(graph.num_vertices, np.int32), 1)
    check_store_place(path)
    template = numbered(graph.to_graph())
    reading = Reading(schema, unit, template.num_vertices, template.num_edges, statics_of(schema, template))
    folder = open_folder(path)
    with folder.locked(), _Publication(folder) as store:
        _put_template(graph, folder, store)
        parts = list(find_elements(graph, template, bins))
        del template
        for partition, elements in enumerate(parts):
            store.put(partition, ELEMENTS, "arrow", elements.encode())
        whole = [part.vertex_ids.astype(np.int64) for part in graph.slices()]
        taken = _write_groups(store, reading, parts, whole, iter(instances), most, 0, {}, progress)
        store.put_facts(reading, most or max(taken, 1), bins)
        store.publish(graph.info)
    return open_store(path)


def append_instances(path: str | Path, instances: Iterable[InstanceData], *, progress: Progress | None = None) -> int:
    """Append instances to the series of a store; gives how many it has then.

    Parameters
    ----------
    instances : iterable of InstanceData
        Ascending in time, all of them after those in the store.
    progress
        Called with the number of instances in the store.

    Raises
    ------
    InputError
        As for `write_series`; also an instance that overlaps one in the store.
    StoreError
        No store, one without a series, or one that another process writes to.

    Notes
    -----
    Only new slices are written, and anew those of a last group that was short; the store has its old instances until
    the manifest is replaced, in one step.
    """
    expect(instances, Iterable, "instances", "expected an iterable of InstanceData")
    folder = open_folder(path)
    manifest = read_manifest(folder)
    if not manifest.files or FACTS not in manifest.files[0]:
        raise StoreError(f"{folder.location}: the store has no time series; create one with write_series")
    with folder.locked(), _Publication(folder) as store:
        manifest = read_manifest(folder)
        graph = open_store(path)
        store.files = [dict(files) for files in manifest.files]
        starts, ends, (unit, pack, bins, schema) = decode_facts(read_checked(folder, manifest.files[0][FACTS]))
        needs = any(schema[name].default_column is not None for name in schema)
        statics = statics_of(schema, numbered(graph.to_graph())) if needs else {}
        reading = Reading(schema, unit, graph.num_vertices, graph.num_edges, statics)
        reading.starts, reading.ends = starts.tolist(), ends.tolist()
        before = len(reading.starts)
        parts = [Elements.decode(read_checked(folder, files[ELEMENTS])) for files in manifest.files]
        kept = _kept_values(folder, manifest, reading, parts, pack)
        whole = [part.vertex_ids.astype(np.int64) for part in graph.slices()]
        total = _write_groups(store, reading, parts, whole, iter(instances), pack, before, kept, progress)
        if total > before:
            store.put_facts(reading, pack, bins)
            store.publish(graph.info)
    return total


class _Publication:
    """Files of the next version of a store; what was written is removed again unless it is published."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.files: list[dict[str, FileEntry]] = []
        self._before = set(folder.list())
        self._written: list[str] = []

    def __enter__(self) -> _Publication:
        return self

    def put(self, partition: int, kind: str, suffix: str, data: pa.Buffer) -> None:
        """Write a file of a partition unless it is there with the same content."""
        self.put_entry(partition, kind, data, entry_of(partition, kind, suffix, data))

    def put_entry(self, partition: int, kind: str, data: pa.Buffer, entry: FileEntry) -> None:
        """The same for a file that has a name already."""
        self._written.append(entry.name)
        write_once(self._folder, entry, data)
        self.files[partition][kind] = entry

    def put_facts(self, reading: Reading, pack: int, bins: int) -> None:
        """Write the times of the instances and what is known of all of them."""
        data = encode_facts(reading.starts, reading.ends, reading.unit, pack, bins, reading.schema)
        self.put(0, FACTS, "arrow", data)

    def publish(self, info: GraphInfo) -> None:
        """The new manifest takes the place of the old one; then files that it does not name are removed."""
        self._folder.write(manifests.NAME, manifests.encode(Manifest(info, tuple(self.files))))
        self._written.clear()
        for name in sorted(set(self._folder.list()) - _names(self.files)):
            if is_store_file(name):
                self._folder.delete(name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._written:
            return
        # Whoever was interrupted while the manifest was being replaced does not know which one is there.
        there: set[str] = set()
        with suppress(StoreError):
            there = _names(read_manifest(self._folder).files)
        for name in self._written:
            if name not in self._before and name not in there:
                self._folder.delete(name)


def _names(files: Iterable[Mapping[str, FileEntry]]) -> set[str]:
    return {entry.name for some in files for entry in some.values()}


def _put_template(graph: PartitionedGraph, folder: Folder, store: _Publication) -> None:
    """The files of the template alone: the existing ones if it is the graph of this store."""
    if graph.path == folder.location and folder.size(manifests.NAME) is not None:
        manifest = read_manifest(folder)
        if manifest.fingerprint() != graph.fingerprint():
            raise StoreError(f"{folder.location}: the store was replaced after it was opened; open it again")
        for files in manifest.files:
            store.files.append({kind: entry for kind, entry in files.items() if is_template(kind)})
        return
    for partition, part in enumerate(graph.slices()):
        store.files.append({})
        for kind, data, entry in encode_template(graph.info, part):
            store.put_entry(partition, kind, data, entry)


def _kept_values(
    folder: Folder, manifest: Manifest, reading: Reading, parts: list[Elements], pack: int
) -> dict[tuple[int, str, int], pa.Array]:
    """The values of a last group that is short."""
    group, short = divmod(len(reading.starts), pack)
    kept = {}
    for partition, elements in enumerate(parts if short else []):
        for name in reading.schema:
            attribute = reading.schema[name]
            for number in range(elements.num_bins):
                rows = elements.rows(_place(name), number)
                data = read_checked(folder, manifest.files[partition][slice_kind(name, group, number)])
                block = decode_slice(data, attribute, group * pack, short, rows.size)
                kept[partition, name, number] = block.column(short, rows, attribute.arrow_type)
    return kept


def _write_groups(
    store: _Publication,
    reading: Reading,
    parts: list[Elements],
    vertex_ids: list[NDArray[np.int64]],
    instances: Iterator[InstanceData],
    pack: int | None,
    number: int,
    kept: _Kept,
    progress: Progress | None,
) -> int:
    """Write the instances from `number` on, group by group; gives how many there are then."""
    with ThreadPoolExecutor(2) as pool:
        while True:
            begun = number % pack if pack else 0
            taken = [reading.take(data) for data in islice(instances, None if pack is None else pack - begun)]
            if not taken:
                return number
            group = _Group(store, reading.schema, parts, vertex_ids, number - begun, pack, taken, kept if begun else {})
            for _ in pool.map(group.write, group.slices()):
                pass
            number += len(taken)
            # The rows of this group go before those of the next one are taken.
            del group, taken
            if progress is not None:
                progress(number)
            if pack is None:
                return number


@dataclass(frozen=True, eq=False)
class _Group:
    """Instances that are written to one file for every partition, attribute and bin.

    Attributes
    ----------
    first : int
        Number of the first one.
    before : mapping
        The values of those that are stored already.
    """

    store: _Publication
    schema: SeriesSchema
    parts: list[Elements]
    vertex_ids: list[NDArray[np.int64]]
    first: int
    pack: int | None
    taken: list[Row]
    before: _Kept

    def slices(self) -> list[tuple[int, str, int]]:
        """Partition, attribute and bin of each."""
        return [
            (partition, name, number)
            for partition, elements in enumerate(self.parts)
            for name in self.schema
            for number in range(elements.num_bins)
        ]

    def write(self, chosen: tuple[int, str, int]) -> None:
        """Write one slice."""
        partition, name, number = chosen
        elements, place = self.parts[partition], _place(name)
        rows = elements.rows(place, number)
        whole = self.vertex_ids[partition] if place == "vertex" else elements.edge_id
        numbers, kind = pa.array(whole[rows]), self.schema[name].arrow_type
        columns = [self.before[chosen]] if chosen in self.before else []
        for row in self.taken:
            column = row.get(name)
            columns.append(pa.nulls(rows.size, kind) if column is None else column.take(numbers))
        data = encode_slice(columns, self.first, rows, kind)
        group = self.first // self.pack if self.pack else 0
        self.store.put(partition, slice_kind(name, group, number), "parquet", data)


def _place(name: str) -> Place:
    return PLACES[0] if name.startswith("vertex.") else PLACES[1]

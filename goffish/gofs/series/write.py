"""Write a time series, or more of its instances: a group of them is in memory at a time, never the whole series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from goffish.gofs.files import Folder, open_folder, side_by_side
from goffish.gofs.layout import build_layout
from goffish.gofs.manifest import GROWTH, FileEntry, GraphInfo, Manifest
from goffish.gofs.partitioned import PartitionedGraph, open_store, open_version
from goffish.gofs.series.growth import Growth, check_values
from goffish.gofs.series.input import Reading, Row, statics_of
from goffish.gofs.series.model import (
    PLACES,
    UNITS,
    Groups,
    InstanceData,
    Place,
    SeriesSchema,
    Unit,
    decode_facts,
    encode_facts,
)  # fmt: skip
from goffish.gofs.series.reading import open_series, read_elements
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
from goffish.gofs.store import (
    Writes,
    check_store_place,
    is_store_file,
    read_checked,
    read_manifest,
    stored_bytes,
)
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
        over = _put_template(graph, folder, store)
        parts = list(find_elements(graph, template, bins))
        del template
        for partition, elements in enumerate(parts):
            store.put(partition, ELEMENTS, "arrow", elements.encode())
        tail = _Tail(most)
        _write_groups(store, reading, _Places(parts, graph), iter(instances), tail, progress)
        store.put_facts(reading, most or max(tail.count, 1), bins, tail.groups())
        store.publish(graph.info, over=over)
    return open_store(path)


def append_instances(
    path: str | Path,
    instances: Iterable[InstanceData],
    *,
    growth: Growth | None = None,
    version: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Append instances to the series of a store; gives how many it has then.

    Parameters
    ----------
    instances : iterable of InstanceData
        Ascending in time, all of them after those in the store.
    growth : Growth, optional
        The template from now on, by whose numbers the instances go. Vertices and edges that it adds do not exist in
        earlier instances, or have defaults there.
    version : str, optional
        Fingerprint that the store must have, as the elements were numbered by it; with `growth`, that of its `store`.
    progress
        Called with the number of instances in the store.

    Raises
    ------
    InputError
        As for `write_series`; also an instance that overlaps one in the store, and vertices or edges that would have
        no values in earlier instances.
    StoreError
        No store, one without a series, or one that another process writes to, or has written to meanwhile.

    Notes
    -----
    Only new slices are written, and anew those of a last group that was short, unless the template has grown since; the
    store has its old instances until the manifest is replaced, in one step. If the template grows, it is written anew,
    and that of the version before is kept until the next version for those who read it.
    """
    expect(instances, Iterable, "instances", "expected an iterable of InstanceData")
    folder = open_folder(path)
    _check_series(folder, read_manifest(folder))
    with folder.locked(), _Publication(folder) as store:
        manifest = read_manifest(folder)
        _check_series(folder, manifest)
        version = version if growth is None else growth.store.fingerprint()
        if version is not None and manifest.fingerprint() != version:
            raise StoreError(f"{folder.location}: another process changed the store meanwhile; append again")
        graph = open_version(folder, manifest)
        facts = decode_facts(read_checked(folder, manifest.files[0][FACTS]))
        schema, before = facts.schema, len(facts.starts)
        needs = any(schema[name].default_column is not None for name in schema)
        if growth is None:
            store.files = [dict(files) for files in manifest.files]
            parts = side_by_side(
                folder.at_once, partial(read_elements, folder, manifest), range(graph.num_partitions)
            )  # fmt: skip
        else:
            check_values(schema, before, growth)
            graph, parts = growth.graph, growth.elements
            store.put_grown(graph, manifest, parts)
        statics = statics_of(schema, numbered(graph.to_graph())) if needs else {}
        reading = Reading(schema, facts.unit, graph.num_vertices, graph.num_edges, statics)
        reading.starts, reading.ends = facts.starts.tolist(), facts.ends.tolist()
        widths = parts[0].grown["vertex"].widths.size if parts and parts[0].grown else 1
        tail = _Tail(facts.pack, facts.groups, widths - 1)
        tail.kept = _kept_values(folder, manifest, reading, parts, tail)
        _write_groups(store, reading, _Places(parts, graph), iter(instances), tail, progress)
        if tail.count > before or growth is not None:
            store.put_facts(reading, facts.pack, facts.bins, tail.groups())
            kept = manifest.files if growth is not None else ()
            store.publish(graph.info, over=manifest, kept=kept)
    return tail.count


@dataclass(frozen=True)
class Compaction:
    """What a compaction made.

    Attributes
    ----------
    store : PartitionedGraph
        The store, opened.
    packs_before, packs : int
        Groups of instances that lie together in slices.
    bytes_before, bytes : int
        Size of all files of the store.
    """

    store: PartitionedGraph
    packs_before: int
    packs: int
    bytes_before: int
    bytes: int


def compact_series(path: str | Path, *, progress: Progress | None = None) -> Compaction:
    """Write the series of a store anew, as if all its instances had been written at once.

    Parameters
    ----------
    path : str or path-like
        Local folder or fsspec URI.
    progress : callable, optional
        Called with the number of instances written.

    Returns
    -------
    Compaction
        The store and its sizes. Vertices stay in their partitions; values, numbers and results stay the same.

    Raises
    ------
    StoreError
        No store, one without a series, or one that another process writes to, or has written to meanwhile.

    Notes
    -----
    The store has its old files until the manifest is replaced, in one step; `pack` instances are in memory at a time.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, compact_series, write_series
    >>> schema = SeriesSchema(edge=(Attribute("exists", "bool", default=True),))
    >>> _ = write_series(gf.from_edges([1, 2], [2, 3]), "days.store", schema, [InstanceData(0, 1)], unit="1")
    >>> compact_series("days.store").packs
    1
    """
    with open_series(path) as series:
        size = stored_bytes(path)
        data = (instance.data() for instance in series.instances())
        store = write_series(
            series.graph, path, series.schema, data, pack=series.pack, bins=series.bins, unit=series.unit,
            progress=progress,
        )  # fmt: skip
        return Compaction(store, len(series.groups), -(-len(series) // series.pack), size, stored_bytes(path))


def _check_series(folder: Folder, manifest: Manifest) -> None:
    if not manifest.files or FACTS not in manifest.files[0]:
        raise StoreError(f"{folder.location}: the store has no time series; create one with write_series")


class _Publication:
    """Files of the next version of a store; what was written is removed again unless it is published."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._writes = folder, Writes(folder)
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
        self._writes.add(entry, data, there=entry.name in self._before)
        self.files[partition][kind] = entry

    def put_grown(self, graph: PartitionedGraph, manifest: Manifest, parts: list[Elements]) -> None:
        """Write a template that has grown; the slices with the values of its instances stay."""
        for partition, (part, elements) in enumerate(zip(graph.slices(), parts, strict=True)):
            self.files.append({})
            for kind, data, entry in encode_template(graph.info, part):
                self.put_entry(partition, kind, data, entry)
            self.put(partition, ELEMENTS, "arrow", elements.encode())
            self.put(partition, GROWTH, "arrow", elements.encode_growth())
            for kind, entry in manifest.files[partition].items():
                if not is_template(kind):
                    self.files[partition].setdefault(kind, entry)

    def put_facts(self, reading: Reading, pack: int, bins: int, groups: Groups) -> None:
        """Write the times of the instances and what is known of all of them."""
        data = encode_facts(reading.starts, reading.ends, reading.unit, pack, bins, reading.schema, groups)
        self.put(0, FACTS, "arrow", data)

    def publish(
        self, info: GraphInfo, *, over: Manifest | None = None, kept: Iterable[Mapping[str, FileEntry]] = ()
    ) -> None:
        """The new manifest takes the place of the old one; then files that neither it nor `kept` names are removed.

        Raises
        ------
        StoreError
            The old manifest is not `over`: another process wrote while this one was halted.
        """
        self._writes.wait()
        if over is not None and read_manifest(self._folder).fingerprint() != over.fingerprint():
            raise StoreError(f"{self._folder.location}: another process changed the store meanwhile; append again")
        self._folder.write(manifests.NAME, manifests.encode(Manifest(info, tuple(self.files))))
        self._written.clear()
        old = sorted(set(self._folder.list()) - _names(self.files) - _names(kept))
        self._folder.delete_all([name for name in old if is_store_file(name)])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writes.__exit__(kind, error, trace)
        if not self._written:
            return
        # After an interruption while the manifest was being replaced, either of them may be there.
        there: set[str] = set()
        with suppress(StoreError):
            there = _names(read_manifest(self._folder).files)
        with suppress(StoreError):  # the next version removes what stays
            for name in self._written:
                if name not in self._before and name not in there:
                    self._folder.delete(name)


def _names(files: Iterable[Mapping[str, FileEntry]]) -> set[str]:
    return {entry.name for some in files for entry in some.values()}


def _put_template(graph: PartitionedGraph, folder: Folder, store: _Publication) -> Manifest | None:
    """The files of the template alone: the existing ones if it is the graph of this store, whose manifest is given."""
    if graph.path == folder.location and folder.size(manifests.NAME) is not None:
        manifest = read_manifest(folder)
        if manifest.fingerprint() != graph.fingerprint():
            raise StoreError(f"{folder.location}: the store was replaced after it was opened; open it again")
        for files in manifest.files:
            store.files.append({kind: entry for kind, entry in files.items() if is_template(kind)})
        return manifest
    for partition, part in enumerate(graph.slices()):
        store.files.append({})
        for kind, data, entry in encode_template(graph.info, part):
            store.put_entry(partition, kind, data, entry)
    return None


class _Tail:
    """Where further instances go: to a last group that is short, or to a new one."""

    def __init__(self, pack: int | None, groups: Groups | None = None, generation: int = 0) -> None:
        groups = Groups.regular(0, 1) if groups is None else groups
        self.pack, self.generation, self.count = pack, generation, groups.count
        self.starts, self.generations = groups.starts.tolist(), groups.generations.tolist()
        self.kept: _Kept = {}

    @property
    def begun(self) -> int:
        """Instances of a last group that takes more."""
        if not self.starts or self.pack is None or self.generations[-1] != self.generation:
            return 0
        return int(self.count - self.starts[-1]) % self.pack

    def begin(self) -> None:
        """A new group begins."""
        self.starts.append(self.count)
        self.generations.append(self.generation)

    def groups(self) -> Groups:
        """All groups."""
        return Groups(np.array(self.starts, np.int64), np.array(self.generations, np.int64), self.count)


class _Places:
    """Rows of every partition, and the numbers of its vertices over the whole graph."""

    def __init__(self, parts: list[Elements], graph: PartitionedGraph) -> None:
        self.parts = parts
        self._vertex_ids = [part.vertex_ids.astype(np.int64) for part in graph.slices()]

    def numbers(self, partition: int, place: Place, stored: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers over the whole graph of stored rows."""
        elements = self.parts[partition]
        whole = self._vertex_ids[partition] if place == "vertex" else elements.edge_id
        numbers: NDArray[np.int64] = whole[elements.row_of(place, stored)]
        return numbers


def _kept_values(
    folder: Folder, manifest: Manifest, reading: Reading, parts: list[Elements], tail: _Tail
) -> dict[tuple[int, str, int], pa.Array]:
    """The values of a last group that is short."""
    short, kept = tail.begun, {}
    for partition, elements in enumerate(parts if short else []):
        for name in reading.schema:
            attribute = reading.schema[name]
            for number in range(elements.num_bins):
                rows = elements.stored(_place(name), number)
                kind = slice_kind(name, len(tail.starts) - 1, number)
                data = read_checked(folder, manifest.files[partition][kind])
                block = decode_slice(data, attribute, tail.starts[-1], short, rows.size)
                kept[partition, name, number] = block.column(short, rows, attribute.arrow_type)
    return kept


def _write_groups(
    store: _Publication,
    reading: Reading,
    places: _Places,
    instances: Iterator[InstanceData],
    tail: _Tail,
    progress: Progress | None,
) -> None:
    """Write further instances, group by group."""
    with ThreadPoolExecutor(2) as pool:
        while True:
            begun, pack = tail.begun, tail.pack
            taken = [reading.take(data) for data in islice(instances, None if pack is None else pack - begun)]
            if not taken:
                return
            if not begun:
                tail.begin()
            number = len(tail.starts) - 1
            group = _Group(store, reading.schema, places, tail.starts[-1], number, taken, tail.kept if begun else {})
            for _ in pool.map(group.write, group.slices()):
                pass
            tail.count += len(taken)
            # The rows of this group go before those of the next one are taken.
            del group, taken
            if progress is not None:
                progress(tail.count)
            if pack is None:
                return


@dataclass(frozen=True, eq=False)
class _Group:
    """Instances that are written to one file for every partition, attribute and bin.

    Attributes
    ----------
    first, number : int
        Number of the first one, and that of the group.
    before : mapping
        The values of those that are stored already.
    """

    store: _Publication
    schema: SeriesSchema
    places: _Places
    first: int
    number: int
    taken: list[Row]
    before: _Kept

    def slices(self) -> list[tuple[int, str, int]]:
        """Partition, attribute and bin of each."""
        return [
            (partition, name, number)
            for partition, elements in enumerate(self.places.parts)
            for name in self.schema
            for number in range(elements.num_bins)
        ]

    def write(self, chosen: tuple[int, str, int]) -> None:
        """Write one slice."""
        partition, name, number = chosen
        place = _place(name)
        rows = self.places.parts[partition].stored(place, number)
        numbers, kind = pa.array(self.places.numbers(partition, place, rows)), self.schema[name].arrow_type
        columns = [self.before[chosen]] if chosen in self.before else []
        for row in self.taken:
            column = row.get(name)
            columns.append(pa.nulls(rows.size, kind) if column is None else column.take(numbers))
        data = encode_slice(columns, self.first, rows, kind)
        self.store.put(partition, slice_kind(name, self.number, number), "parquet", data)


def _place(name: str) -> Place:
    return PLACES[0] if name.startswith("vertex.") else PLACES[1]

"""Reading a time series slice by slice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, StoreError
from goffish.gofs.files import Folder, open_folder, side_by_side
from goffish.gofs.manifest import GROWTH, Manifest
from goffish.gofs.partitioned import PartitionedGraph, open_version
from goffish.gofs.series.cache import SeriesCounters, SliceCache, SliceKey
from goffish.gofs.series.columns import Column, Columns, Piece
from goffish.gofs.series.model import (
    EXISTS,
    PLACES,
    InstanceData,
    Place,
    decode_facts,
    moment,
    moment_text,
)  # fmt: skip
from goffish.gofs.series.slices import ELEMENTS, FACTS, Block, Elements, decode_slice, slice_kind
from goffish.gofs.store import read_checked, read_manifest
from goffish.graph.guards import expect, whole_number

_CACHE_BYTES = 256 * 2**20


def open_series(
    path: str | Path,
    *,
    cache_bytes: int = _CACHE_BYTES,
    prefetch: bool = True,
    cache_slots: int | None = None,
) -> Series:
    """Open the time series of a store; values are read and verified on first use.

    Parameters
    ----------
    path : str or path-like
        Local folder or fsspec URI.
    cache_bytes : int
        Limit of the values kept in memory, in bytes [default: 268435456]. Slices of the current group of instances and
        prefetched slices of the next group do not count.
    prefetch : bool
        Read the next group of instances in a background thread, starting at the second to last instance of a group
        [default: True].
    cache_slots : int, optional
        Keep this number of slices per partition instead, without prefetching: the cost model of
        docs/specs/time-series.md, section 5.3.

    Returns
    -------
    Series
        The instances and their attributes.

    Raises
    ------
    InputError
        If `cache_bytes` or `cache_slots` is negative or not an integer.
    StoreError
        If there is no store, or it has no time series.

    Examples
    --------
    >>> import goffish as gf
    >>> from goffish.gofs.series import Attribute, InstanceData, SeriesSchema, write_series
    >>> schema = SeriesSchema(edge=(Attribute("exists", "bool", default=True),))
    >>> days = [InstanceData(0, 1), InstanceData(1, 2, {"edge.exists": [True, False]})]
    >>> _ = write_series(gf.from_edges([1, 2], [2, 3]), "days.store", schema, days, unit="1")
    >>> series = gf.open_series("days.store")
    >>> [day.edge("exists").to_pylist() for day in series.instances()]
    [[True, True], [True, False]]
    """
    most = whole_number(cache_bytes, "cache_bytes", 0)
    slots = None if cache_slots is None else whole_number(cache_slots, "cache_slots", 0)
    folder = open_folder(path)
    manifest = read_manifest(folder)
    if not manifest.files or FACTS not in manifest.files[0]:
        problem = "the store has no time series; create one with write_series or goffish timeseries build"
        raise StoreError(f"{folder.location}: {problem}")
    return Series(folder, manifest, most, slots, prefetch)


def as_series(given: Series | PartitionedGraph | str | Path) -> Series:
    """A series as it is, or that of an opened store or of the store at a path."""
    expect(
        given,
        (Series, PartitionedGraph, str, Path),
        "series",
        "expected a store, its path, or a series from open_series",
    )
    if isinstance(given, Series):
        return given
    if isinstance(given, PartitionedGraph):
        if given.path is None:
            raise InputError("only stores have time series; write one with goffish.gofs.series.write_series")
        return open_series(given.path)
    return open_series(given)


class Series:
    """The time series of a store, read slice by slice.

    Attributes
    ----------
    path : str
    unit : {"us", "1"}
        Of the times: microseconds since 1970 (UTC), or plain numbers.
    starts, ends : int64, shape (instances,)
        Instance i covers ``starts[i] <= t < ends[i]``; ascending, without overlaps, perhaps with gaps.
    schema : SeriesSchema
    pack, bins : int
        Instances of a slice, and bins of a partition at most.
    groups : Groups
        Which instances lie together in slices, and of which generation of the template they are.
    """

    def __init__(self, folder: Folder, manifest: Manifest, most_bytes: int, slots: int | None, prefetch: bool) -> None:
        self.path = folder.location
        self._folder, self._manifest = folder, manifest
        self._options = {"cache_bytes": most_bytes, "cache_slots": slots, "prefetch": prefetch}
        facts = decode_facts(read_checked(folder, manifest.files[0][FACTS]))
        self.starts, self.ends, self.unit, self.pack, self.bins, self.schema, self.groups = facts
        self._cache = SliceCache(self._load, self._size, most_bytes, slots)
        self._prefetches = prefetch and slots is None
        self._elements: dict[int, Elements] = {}
        self._way: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._graph: PartitionedGraph | None = None
        self._columns = Columns(self.schema, lambda: self.graph, self.elements)

    def __reduce__(self) -> tuple[Callable[..., Series], tuple[Any, ...]]:
        return _reopen, (self.path, self._options)

    def __len__(self) -> int:
        return int(self.starts.size)

    def __enter__(self) -> Series:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget what was read and end the background thread; the series can still be read."""
        self._cache.close()

    @property
    def num_partitions(self) -> int:
        return self._manifest.info.num_partitions

    @property
    def graph(self) -> PartitionedGraph:
        """The template of this version of the store; opened when it is first asked for."""
        with self._lock:
            if self._graph is None:
                self._graph = open_version(self._folder, self._manifest)
            return self._graph

    def counters(self) -> SeriesCounters:
        """What was read so far; the difference of two is what was read in between."""
        return self._cache.counters()

    def fingerprint(self) -> str:
        """SHA-256 of template and instances, from the checksums of their files; that of `graph` is the same.

        It changes when a value, an instance or the packing does, so that checkpoints of other data are detected.
        """
        return self._manifest.fingerprint()

    def elements(self, partition: int) -> Elements:
        """Rows and bins of a partition."""
        if not 0 <= partition < self.num_partitions:
            raise InputError(f"partition {partition} does not exist; the graph has {self.num_partitions} partitions")
        with self._lock:
            found = self._elements.get(partition)
        if found is None:
            found = read_elements(self._folder, self._manifest, partition)
            with self._lock:
                found = self._elements.setdefault(partition, found)
        return found

    def all_elements(self) -> list[Elements]:
        """Rows and bins of all partitions; several files are read at a time in object storage."""
        return side_by_side(self._folder.at_once, self.elements, range(self.num_partitions))

    def between(self, start: Any = None, end: Any = None) -> range:
        """Numbers of the instances that begin at `start` or later, and before `end`.

        Parameters
        ----------
        start, end : int or moment, optional
            On the axis of the series; dates and ISO texts too where it has a calendar. Default: all.

        Raises
        ------
        InputError
            `end` before `start`, or a range in which the series has not begun or is over.
        """
        first = None if start is None else moment(start, self.unit, "start")
        last = None if end is None else moment(end, self.unit, "end")
        if first is not None and last is not None and last < first:
            raise InputError(f"end={moment_text(last, self.unit)} is before start={moment_text(first, self.unit)}")
        late = first is not None and len(self) and first >= self.ends[-1]
        if late or (last is not None and len(self) and last < self.starts[0]):
            asked, covered = (
                " to ".join("…" if x is None else moment_text(x, self.unit) for x in pair)
                for pair in ((first, last), (self.starts[0], self.ends[-1]))
            )
            raise InputError(f"the range {asked} is outside the series ({covered})")
        begin = 0 if first is None else int(np.searchsorted(self.starts, first))
        return range(begin, max(begin, len(self) if last is None else int(np.searchsorted(self.starts, last))))

    def instances(
        self, start: Any = None, end: Any = None, attributes: Sequence[str] | None = None, *, reverse: bool = False
    ) -> Iterator[Instance]:
        """Lazy instances in the order of time, or backwards; see `between`.

        Parameters
        ----------
        attributes : sequence of str, optional
            The only ones that may be asked for (``vertex.NAME``, ``edge.NAME``); default: all.
        """
        for name in attributes or ():
            self.schema[name]
        chosen = frozenset(self.schema if attributes is None else attributes)
        numbers = self.between(start, end)
        order = reversed(numbers) if reverse else numbers
        return (Instance(i, int(self.starts[i]), int(self.ends[i]), self, chosen) for i in order)

    def values(self, partition: int, instance: int, name: str, bins: Iterable[int] | None = None) -> Any:
        """The values of an attribute in one partition and instance.

        Parameters
        ----------
        partition, instance : int
        name : str
            ``vertex.NAME`` or ``edge.NAME``.
        bins : iterable of int, optional
            The bins that are wanted (`Elements.bins_of`), no other is read; default: all.

        Returns
        -------
        NumPy array of numbers or truth values, or Arrow array of texts or lists
            One value for each row of `Elements`: local vertices, or edges. Missing ones are the default; in bins that
            were not asked for, and for elements that do not exist, the default or else NaN, 0, False or null. Not to be
            written to.

        Raises
        ------
        InputError
            No such partition, instance, attribute or bin; an element without a value and without a default.
        StoreError
            A slice is damaged or gone.
        """
        return self._column(partition, instance, name, bins).values

    def column(self, partition: int, instance: int, name: str, *, checked: bool = True) -> pa.Array:
        """Return the values of an attribute in one partition and instance; null where an absent element has none.

        Parameters
        ----------
        partition, instance : int
        name : str
            ``vertex.NAME`` or ``edge.NAME``.
        checked : bool
            Whether an element that exists must have a value [default: True].

        Returns
        -------
        pyarrow.Array
            One value for each row of `Elements`.

        Raises
        ------
        InputError, StoreError
            As for `values`.
        """
        found = self._column(partition, instance, name, None, checked=checked)
        return found.to_arrow(self.schema[name].arrow_type)

    def existing(self, partition: int, instance: int, place: Place) -> NDArray[np.int64]:
        """Return the rows of a partition that exist in an instance, ascending.

        An edge exists if its flag is set and both its ends exist.

        Parameters
        ----------
        partition, instance : int
        place : {"vertex", "edge"}

        Returns
        -------
        int64 array
        """
        elements = self.elements(partition)
        rows = np.arange(elements.count(place))
        return self._existing(partition, instance, place, range(elements.num_bins), rows)

    def edge_ends(self, partition: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return source and target of the edges of all rows of a partition, as numbers of the partitioned graph.

        The first end of an undirected edge is in the subgraph of the row.
        """
        return self._columns.ends(partition, np.arange(self.elements(partition).count("edge")))

    def _column(
        self, partition: int, instance: int, name: str, bins: Iterable[int] | None, *, checked: bool = True
    ) -> Column:
        if not 0 <= instance < len(self):
            raise InputError(f"instance {instance} does not exist; the series has {len(self)} instances")
        elements = self.elements(partition)
        chosen = range(elements.num_bins) if bins is None else sorted({int(b) for b in bins})
        if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < elements.num_bins:
            raise InputError(f"bins={list(chosen)}: partition {partition} has bins 0 to {elements.num_bins - 1}")
        self.schema[name]
        place = _place(name)
        group, at = self.groups.find(instance)
        generation = int(self.groups.generations[group])
        pieces: list[Piece] = []
        there = [number for number in chosen if number < elements.bins_in(generation)]
        for number in there:
            stored = elements.stored(place, number, generation)
            given, values = self._cache.get(SliceKey(partition, name, group, number)).at(at, stored)
            rows = elements.row_of(place, stored)
            pieces.append((rows, None if given is None else elements.row_of(place, given), values))
        self._look_ahead(partition, instance, name, there)
        if elements.grown:
            pieces += [self._columns.absent(name, elements.added(place, number, generation)) for number in chosen]
        column = self._columns.assemble(partition, name, pieces)
        if column.missing is not None and checked:
            bad = column.missing
            if name != f"{place}.{EXISTS}":
                bad = self._existing(partition, instance, place, chosen, bad)
            if bad.size:
                self._columns.refuse(partition, name, instance, bad)
        return column

    def _existing(
        self, partition: int, instance: int, place: Place, bins: Iterable[int], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Those of some rows that exist in an instance: an edge exists if its flag is set and both its ends exist."""
        flag, of_vertices = f"{place}.{EXISTS}", f"vertex.{EXISTS}"
        if flag in self.schema:
            rows = rows[self.values(partition, instance, flag, bins)[rows]]
        if place == "vertex" or of_vertices not in self.schema or not rows.size:
            return rows
        there = np.ones(rows.size, np.bool_)
        for end in self._columns.ends(partition, rows):
            home = np.searchsorted(self.graph.vertex_starts, end, side="right") - 1
            for other in np.unique(home).tolist():
                mine = home == other
                local = end[mine] - self.graph.slice(other).vertex_start
                there[mine] &= self.values(other, instance, of_vertices)[local]
        return rows[there]

    def _look_ahead(self, partition: int, instance: int, name: str, bins: Sequence[int]) -> None:
        if not self._prefetches:
            return
        before, way = self._way.get(partition, (instance, 1))
        if instance != before:
            way = 1 if instance > before else -1
        self._way[partition] = (instance, way)
        group, at = self.groups.find(instance)
        follows = group + way
        if at < self.groups.span(group)[1] - 2 if way > 0 else at > 1:
            return
        if 0 <= follows < len(self.groups):
            there = self.elements(partition).bins_in(int(self.groups.generations[follows]))
            self._cache.prefetch(SliceKey(partition, name, follows, number) for number in bins if number < there)

    def _entry(self, key: SliceKey) -> Any:
        return self._manifest.files[key.partition][slice_kind(key.name, key.group, key.bin)]

    def _size(self, key: SliceKey) -> int:
        return int(self._entry(key).size)

    def _load(self, key: SliceKey) -> Block:
        generation = int(self.groups.generations[key.group])
        width = self.elements(key.partition).stored(_place(key.name), key.bin, generation).size
        data = read_checked(self._folder, self._entry(key))
        return decode_slice(data, self.schema[key.name], *self.groups.span(key.group), width)

    def __repr__(self) -> str:
        names = ", ".join(self.schema) or "no attributes"
        return f"Series({len(self):,} instances, {names}, {self.num_partitions} partitions at {self.path})"


def read_elements(folder: Folder, manifest: Manifest, partition: int) -> Elements:
    """Rows and bins of a partition."""
    files = manifest.files[partition]
    growth = read_checked(folder, files[GROWTH]) if GROWTH in files else None
    return Elements.decode(read_checked(folder, files[ELEMENTS]), growth)


def _reopen(path: str, options: dict[str, Any]) -> Series:
    return open_series(path, **options)


def _place(name: str) -> Place:
    return PLACES[0] if name.startswith("vertex.") else PLACES[1]


@dataclass(frozen=True, eq=False)
class Instance:
    """One instance of a series over the whole graph; nothing is read before an attribute is asked for.

    Attributes
    ----------
    number : int
    start, end : int
        It covers ``start <= t < end``, on the axis of the series.
    """

    number: int
    start: int
    end: int
    _series: Series = field(repr=False)
    _chosen: frozenset[str] = field(repr=False)

    def vertex(self, name: str) -> pa.Array:
        """The attribute of all vertices, in the order of reading; null where an absent vertex has no value."""
        return self._whole("vertex", name)

    def edge(self, name: str) -> pa.Array:
        """The attribute of all edges, in the order of `Graph.edge_columns` (or of the edge attributes)."""
        return self._whole("edge", name)

    def data(self) -> InstanceData:
        """All values, as they are written."""
        values = {name: self._whole(*name.split(".", 1), checked=False) for name in self._chosen}  # type: ignore[arg-type]
        return InstanceData(self.start, self.end, values)

    def _whole(self, place: Place, name: str, *, checked: bool = True) -> pa.Array:
        full = f"{place}.{name}"
        kind = self._series.schema[full].arrow_type
        if full not in self._chosen:
            raise InputError(f"{full} was not selected; add it to attributes=[{', '.join(sorted(self._chosen))}]")
        parts, numbers = [pa.array([], kind)], [np.empty(0, np.int64)]
        for partition in range(self._series.num_partitions):
            parts.append(self._series.column(partition, self.number, full, checked=checked))
            if place == "vertex":
                numbers.append(self._series.graph.slice(partition).vertex_ids.astype(np.int64))
            else:
                numbers.append(self._series.elements(partition).edge_id.astype(np.int64))
        number = np.concatenate(numbers)
        order = np.empty(int(number.max(initial=-1)) + 1, np.int64)
        order[number] = np.arange(number.size)
        return cast(pa.Array, pa.concat_arrays(parts).take(pa.array(order)))

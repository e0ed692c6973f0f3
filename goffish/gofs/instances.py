"""Instance slices of a store: what changes over time on a topology that stays.

A store with instances is an ordinary store, the *template*, with more files in every partition:

* ``instances``: one Arrow file with the beginning and end of every instance, the attributes and their types, the edges
  that touch the partition (``edge_id``, ascending), the row among them of every arc (``edge_row``), the sub-graph of
  every edge, and the bin of every sub-graph.
* ``instances.gG.bB``: one Parquet file for each group of `pack` successive instances and each bin of sub-graphs, with
  the columns ``instance`` and ``edge`` (a row of ``edge_id``): the edges that exist in each instance, ascending.
* ``instance.NAME.gG.bB``: one Parquet file with one column, ``value``: the attribute NAME, row by row of that file.

A group and bin without edges has no files. An attribute is read without the others. Files are named by their content
and listed with their checksums in the manifest, like all of a store. Specification of the time series, §5.1.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.errors import InputError, StoreError
from goffish.gofs.encoding import decode_arrays, decode_parquet, encode_arrays, encode_parquet, entry_of
from goffish.gofs.files import Folder, open_folder
from goffish.gofs.manifest import Manifest
from goffish.gofs.store import read_checked, read_manifest, write_once

#: The kind of the file that holds what a partition knows of its instances.
INSTANCES = "instances"


@dataclass(frozen=True, eq=False)
class InstanceIndex:
    """What one partition knows of its instances.

    Attributes
    ----------
    starts, ends : int64, shape (instances,)
        Microseconds since 1970 (UTC); instance i covers ``starts[i] <= t < ends[i]``.
    attributes : mapping from name to Arrow type
    pack : int
        Instances of one slice.
    edge_id : int64, shape (edges,)
        Numbers, over the whole graph, of the edges that touch the partition; ascending.
    edge_row : int64, shape (arcs,)
        Row of `edge_id` for every arc of the slice's `out_arcs`.
    edge_subgraph : int64, shape (edges,)
        Local number of the sub-graph that the edge belongs to here.
    bin_of_subgraph : int64, shape (sub-graphs,)
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    attributes: Mapping[str, str]
    pack: int
    edge_id: NDArray[np.int64]
    edge_row: NDArray[np.int64]
    edge_subgraph: NDArray[np.int64]
    bin_of_subgraph: NDArray[np.int64]

    def encode(self) -> pa.Buffer:
        """The bytes of the file."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays["pack"] = np.array([self.pack])
        arrays["names"] = pa.array(list(self.attributes), pa.string())
        arrays["types"] = pa.array(list(self.attributes.values()), pa.string())
        return encode_arrays(arrays)

    @classmethod
    def decode(cls, data: pa.Buffer) -> InstanceIndex:
        """The inverse of `encode`."""
        arrays = decode_arrays(data)
        types = dict(zip(arrays["names"].to_pylist(), arrays["types"].to_pylist(), strict=True))
        plain = {name: arrays[name].to_numpy() for name in _ARRAYS}
        return cls(attributes=types, pack=arrays["pack"][0].as_py(), **plain)


_ARRAYS = ("starts", "ends", "edge_id", "edge_row", "edge_subgraph", "bin_of_subgraph")


def encode_group(
    index: InstanceIndex,
    group: int,
    instance: NDArray[np.int64],
    edge: NDArray[np.int64],
    values: Mapping[str, pa.Array],
) -> Iterator[tuple[str, str, pa.Buffer]]:
    """The slices of one group of instances: (kind, suffix, bytes).

    Row by row the instance, the edge (its number over the whole graph) and the value of every attribute.
    """
    row = np.searchsorted(index.edge_id, edge)
    place = index.bin_of_subgraph[index.edge_subgraph[row]]
    order = np.lexsort((row, instance, place))
    limits = np.flatnonzero(np.diff(place[order], prepend=-1, append=-1))
    for first, last in pairwise(limits.tolist()):
        chosen = order[first:last]
        name = f"g{group:05d}.b{int(place[chosen[0]]):05d}"
        present = {"instance": instance[chosen].astype(np.int32), "edge": row[chosen].astype(np.int64)}
        yield f"instances.{name}", "parquet", encode_parquet(pa.table(present))
        for attribute in index.attributes:
            taken = values[attribute].take(pa.array(chosen))
            yield f"instance.{attribute}.{name}", "parquet", encode_parquet(pa.table({"value": taken}))


def write_slices(
    folder: Folder, partition: int, slices: Iterable[tuple[str, str, pa.Buffer]]
) -> dict[str, dict[str, Any]]:
    """Write slice files that are not there yet; gives their entries for the manifest, as plain values."""
    entries = {}
    for kind, suffix, data in slices:
        entry = entry_of(partition, kind, suffix, data)
        write_once(folder, entry, data)
        entries[kind] = asdict(entry)
    return entries


class Instances:
    """The instances of a store, read slice by slice when they are asked for.

    Attributes
    ----------
    starts, ends : int64, shape (instances,)
        Microseconds since 1970 (UTC); half-open, ascending.
    attributes : mapping from name to Arrow type
        What every instance says of its edges; empty where it only says which edges exist.
    """

    def __init__(self, folder: Folder, manifest: Manifest, slots: int) -> None:
        self._folder, self._manifest, self._slots = folder, manifest, slots
        self._kept: OrderedDict[tuple[int, str], Any] = OrderedDict()
        first = self.index(0)
        self.starts, self.ends, self.attributes = first.starts, first.ends, first.attributes

    def __len__(self) -> int:
        return int(self.starts.size)

    def index(self, partition: int) -> InstanceIndex:
        """The edges and bins of one partition."""
        found: InstanceIndex = self._load(partition, INSTANCES, InstanceIndex.decode)
        return found

    def between(self, start: int, end: int) -> range:
        """Numbers of the instances that begin at ``start`` or later and before ``end`` (microseconds since 1970)."""
        return range(int(np.searchsorted(self.starts, start)), int(np.searchsorted(self.starts, end)))

    def read(
        self,
        partition: int,
        instance: int,
        attributes: Sequence[str] | None = None,
        *,
        bins: Iterable[int] | None = None,
    ) -> pa.Table:
        """The edges of one partition that exist in an instance.

        Parameters
        ----------
        attributes
            Names of those that are wanted, each of which costs its own slices; default: all.
        bins
            Bins of sub-graphs (`InstanceIndex.bin_of_subgraph`); default: all.

        Returns
        -------
        pyarrow.Table
            ``edge`` (rows of `InstanceIndex.edge_id`, ascending in each bin) and one column for each attribute.

        Raises
        ------
        InputError
            No such instance or attribute.
        """
        if not 0 <= instance < len(self):
            raise InputError(f"instance {instance} does not exist: there are {len(self)}")
        names = list(self.attributes) if attributes is None else list(attributes)
        for name in names:
            if name not in self.attributes:
                raise InputError(f"no attribute {name!r}; there are: {', '.join(self.attributes) or 'none'}")
        index = self.index(partition)
        wanted = range(int(index.bin_of_subgraph.max(initial=-1)) + 1) if bins is None else sorted(set(bins))
        empty = {"edge": pa.int64()} | {name: pa.type_for_alias(self.attributes[name]) for name in names}
        tables = [pa.schema(list(empty.items())).empty_table()]
        for number in wanted:
            place = f"g{instance // index.pack:05d}.b{number:05d}"
            if f"instances.{place}" not in self._manifest.files[partition]:
                continue
            present = self._load(partition, f"instances.{place}", _table)
            moments = present.column("instance").to_numpy()
            first, last = (int(np.searchsorted(moments, instance, side)) for side in ("left", "right"))
            columns = {"edge": present.column("edge").slice(first, last - first)}
            for name in names:
                values = self._load(partition, f"instance.{name}.{place}", _table)
                columns[name] = values.column(0).slice(first, last - first)
            tables.append(pa.table(columns))
        return pa.concat_tables(tables)

    def _load(self, partition: int, kind: str, decode: Callable[[pa.Buffer], Any]) -> Any:
        place = (partition, kind)
        if place not in self._kept:
            self._kept[place] = decode(read_checked(self._folder, self._manifest.files[partition][kind]))
            if len(self._kept) > self._slots:
                self._kept.popitem(last=False)
        self._kept.move_to_end(place)
        return self._kept[place]


def _table(data: pa.Buffer) -> pa.Table:
    return decode_parquet(data).combine_chunks()


def open_instances(path: str | Path, *, slots: int = 64) -> Instances:
    """Open the instances of a store; slices are read, and checked, when they are asked for.

    Parameters
    ----------
    slots : int
        Slices that are kept in memory: at least bins x (attributes + 1) + 1, or a scan reads each of them many times.

    Raises
    ------
    StoreError
        No store, or one without instances.
    """
    folder = open_folder(path)
    manifest = read_manifest(folder)
    if not manifest.files or INSTANCES not in manifest.files[0]:
        told = "a store without instances; goffish ingest makes them (the field instances of its specification)"
        raise StoreError(f"{folder.location}: {told}")
    return Instances(folder, manifest, slots)

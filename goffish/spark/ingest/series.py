"""The values of a time series, written by the executors: one task for each partition and group of instances.

The bytes are those that `goffish.gofs.series.write_series` makes of the same instances on one machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from goffish.gofs.files import open_folder
from goffish.gofs.manifest import FileEntry
from goffish.gofs.series import Attribute, SeriesSchema
from goffish.gofs.series.input import without_defaults
from goffish.gofs.series.model import EXISTS, Place, encode_facts
from goffish.gofs.series.slices import ELEMENTS, FACTS, Elements, encode_slice, slice_kind
from goffish.spark.ingest.plan import SPOT_BITS, Plan, attribute_columns, report_row, whole_column, write_files


def series_schema(plan: Plan) -> SeriesSchema:
    """Which edges are there in an instance, and what their rows and those of vertices say."""
    own = [Attribute(name, kind) for name, kind in plan.attributes.items()]
    weight = [Attribute("weight", "float64")] if plan.weighted else []
    return SeriesSchema(tuple(plan.vertex_values), edge=(Attribute(EXISTS, "bool", False), *weight, *own))


def series_files(plan: Plan, partition: int, elements: Elements) -> Iterator[tuple[str, str, pa.Buffer]]:
    """What a partition has beside its slices of values: kinds, suffixes and bytes."""
    assert plan.starts is not None and plan.ends is not None
    yield ELEMENTS, "arrow", elements.encode()
    if partition == 0:
        yield FACTS, "arrow", encode_facts(plan.starts, plan.ends, "us", plan.pack, plan.bins, series_schema(plan))


def write_values(plan: Plan, partition: int, group: int, elements: FileEntry, rows: pa.Table | None) -> pa.Table:
    """Write the slices of one group of instances of a partition and report: one row of `REPORT`.

    Columns of `rows`: ``instance``, ``edge``, ``weight`` and the attributes ``a0`` …; `elements` is the file of the
    partition that `write_partition` wrote.
    """
    folder = open_folder(plan.store)
    known = Elements.decode(folder.read(elements.name))
    slices = _edge_slices(plan, group, known, _none(plan) if rows is None else rows)
    return report_row(partition, {"files": write_files(folder, partition, slices)})


def write_vertex_values(
    plan: Plan, partition: int, group: int, elements: FileEntry, attributes: Sequence[Attribute], rows: pa.Table | None
) -> pa.Table:
    """The same for `attributes` of vertices.

    Columns of `rows`: ``instance``, ``spot``, ``order`` and the attributes ``a0`` …. Of several rows of a vertex and
    instance the first one counts; lists hold the values of all of them, in their order.
    """
    folder = open_folder(plan.store)
    known = Elements.decode(folder.read(elements.name))
    slices = _vertex_slices(plan, group, known, attributes, rows)
    return report_row(partition, {"files": write_files(folder, partition, slices)})


def _vertex_slices(
    plan: Plan, group: int, elements: Elements, attributes: Sequence[Attribute], rows: pa.Table | None
) -> Iterator[tuple[str, str, pa.Buffer]]:
    if rows is None:
        none = np.empty(0, np.int64)
        yield from _slices(plan, group, elements, "vertex", {one: pa.nulls(0, one.arrow_type) for one in attributes},
                           none, none)  # fmt: skip
        return
    instance, spot, order = (rows.column(name).to_numpy() for name in ("instance", "spot", "order"))
    vertex = spot & ((1 << SPOT_BITS) - 1)
    at = np.lexsort((order, vertex, instance))
    instance, vertex = instance[at], vertex[at]
    first = np.flatnonzero((np.diff(instance, prepend=-1) != 0) | (np.diff(vertex, prepend=-1) != 0))
    columns = {}
    for number, one in enumerate(attributes):
        column = whole_column(rows.column(f"a{number}"), one.arrow_type)
        taken = column.take(pa.array(at if one.is_list else at[first]))
        columns[one] = without_defaults(_joined(taken, first) if one.is_list else taken, one, None)
    yield from _slices(plan, group, elements, "vertex", columns, instance[first], vertex[first])


def _joined(lists: pa.Array, first: NDArray[np.int64]) -> pa.Array:
    """Lists one after the other, from each row in `first` to the next."""
    ends = np.concatenate(([0], np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))))
    offsets = ends[np.append(first, len(lists))].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), lists.flatten(), type=lists.type)


def _edge_slices(plan: Plan, group: int, elements: Elements, rows: pa.Table) -> Iterator[tuple[str, str, pa.Buffer]]:
    instance, edge = (rows.column(name).to_numpy() for name in ("instance", "edge"))
    order = np.lexsort((edge, instance))
    values: dict[str, pa.Array] = {EXISTS: pa.array(np.ones(order.size, np.bool_))}
    values |= {"weight": whole_column(rows.column("weight"), pa.float64())} if plan.weighted else {}
    values |= attribute_columns(plan.attributes, rows)
    columns = {one: values[one.name].take(pa.array(order)) for one in series_schema(plan).edge}
    yield from _slices(plan, group, elements, "edge", columns, instance[order], edge[order])


def _slices(
    plan: Plan,
    group: int,
    elements: Elements,
    place: Place,
    columns: Mapping[Attribute, pa.Array],
    instance: NDArray[np.int64],
    element: NDArray[np.int64],
) -> Iterator[tuple[str, str, pa.Buffer]]:
    """The slices of a group from one row for each instance and element, in this order."""
    assert plan.starts is not None
    first = group * plan.pack
    last = min(first + plan.pack, plan.starts.size)
    limits = np.searchsorted(instance, np.arange(first, last + 1)).tolist()
    for number in range(elements.num_bins):
        own = elements.stored(place, number)
        wanted: NDArray[np.integer[Any]] = own if place == "vertex" else elements.edge_id[own]
        places = [_places(element, low, high, wanted) for low, high in pairwise(limits)]
        for attribute, column in columns.items():
            taken = [column.take(found) for found in places]
            kind = slice_kind(f"{place}.{attribute.name}", group, number)
            yield kind, "parquet", encode_slice(taken, first, own, attribute.arrow_type)


def _places(element: NDArray[np.int64], low: int, high: int, wanted: NDArray[np.integer[Any]]) -> pa.Array:
    """Where each wanted element is in ``element[low:high]``, which ascends; null: not there."""
    at = low + np.searchsorted(element[low:high], wanted)
    there = at < high
    there[there] = element[at[there]] == wanted[there]
    return pa.array(at, mask=~there)


def _none(plan: Plan) -> pa.Table:
    kinds: dict[str, Any] = {"instance": pa.int64(), "edge": pa.int64(), "weight": pa.float64()}
    kinds |= {f"a{at}": pa.type_for_alias(kind) for at, kind in enumerate(plan.attributes.values())}
    return pa.schema(list(kinds.items())).empty_table()

"""The values of a time series, written by the executors: one task for each partition and group of instances.

The bytes are those that `goffish.gofs.series.write_series` makes of the same instances on one machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs.files import open_folder
from goffish.gofs.manifest import FileEntry
from goffish.gofs.series import Attribute, SeriesSchema
from goffish.gofs.series.model import EXISTS, encode_facts
from goffish.gofs.series.slices import ELEMENTS, FACTS, Elements, encode_slice, slice_kind
from goffish.spark.ingest.plan import Plan, attribute_columns, report_row, whole_column, write_files


def series_schema(plan: Plan) -> SeriesSchema:
    """Which edges are there in an instance, and what their rows say."""
    own = [Attribute(name, kind) for name, kind in plan.attributes.items()]
    weight = [Attribute("weight", "float64")] if plan.weighted else []
    return SeriesSchema(edge=(Attribute(EXISTS, "bool", False), *weight, *own))


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
    slices = _slices(plan, group, known, _none(plan) if rows is None else rows)
    return report_row(partition, {"files": write_files(folder, partition, slices)})


def _slices(plan: Plan, group: int, elements: Elements, rows: pa.Table) -> Iterator[tuple[str, str, pa.Buffer]]:
    assert plan.starts is not None
    first = group * plan.pack
    last = min(first + plan.pack, plan.starts.size)
    instance, edge = (rows.column(name).to_numpy() for name in ("instance", "edge"))
    order = np.lexsort((edge, instance))
    edge, limits = edge[order], np.searchsorted(instance[order], np.arange(first, last + 1)).tolist()
    values: dict[str, pa.Array] = {EXISTS: pa.array(np.ones(order.size, np.bool_))}
    values |= {"weight": whole_column(rows.column("weight"), "double")} if plan.weighted else {}
    values |= attribute_columns(plan, rows)
    schema = series_schema(plan)
    columns = {attribute.name: values[attribute.name].take(pa.array(order)) for attribute in schema.edge}
    for number in range(elements.num_bins):
        own = elements.stored("edge", number)
        places = [_places(edge, low, high, elements.edge_id[own]) for low, high in pairwise(limits)]
        for attribute in schema.edge:
            taken = [columns[attribute.name].take(place) for place in places]
            kind = slice_kind(f"edge.{attribute.name}", group, number)
            yield kind, "parquet", encode_slice(taken, first, own, attribute.arrow_type)


def _places(edge: NDArray[np.int64], low: int, high: int, wanted: NDArray[np.int64]) -> pa.Array:
    """Where each wanted edge is in ``edge[low:high]``, which ascends; null: not there."""
    at = low + np.searchsorted(edge[low:high], wanted)
    there = at < high
    there[there] = edge[at[there]] == wanted[there]
    return pa.array(at, mask=~there)


def _none(plan: Plan) -> pa.Table:
    kinds: dict[str, Any] = {"instance": pa.int64(), "edge": pa.int64(), "weight": pa.float64()}
    kinds |= {f"a{at}": pa.type_for_alias(kind) for at, kind in enumerate(plan.attributes.values())}
    return pa.schema(list(kinds.items())).empty_table()

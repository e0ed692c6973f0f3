"""Description of the new store for executors, and how they write and report."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goffish.gofs import GraphInfo
from goffish.gofs.encoding import entry_of
from goffish.gofs.files import Folder
from goffish.gofs.series import Attribute
from goffish.gofs.store import write_once

ARROW_TYPES = {"integer": "int64", "real": "double", "text": "string", "boolean": "bool"}
REPORT = "part int, body binary"
#: Bits of the place in its partition, in a spot; those above are the partition.
SPOT_BITS = 40


@dataclass(frozen=True)
class Plan:
    """Inputs of every executor; arrays have one entry per partition and one more.

    `vertex_starts` and `piece_starts` are the first vertex and subgraph of each partition in the partitioned
    numbering, `piece_offsets` the first vertex of each subgraph; `starts` and `ends` are the instances (microseconds
    since 1970), `vertex_values` the attributes of vertices that have values in them.
    """

    store: str
    vertices: int
    directed: bool
    weighted: bool
    label_type: str
    attributes: Mapping[str, str]
    vertex_attributes: Mapping[str, str]
    vertex_starts: NDArray[np.int64]
    piece_starts: NDArray[np.int64]
    piece_offsets: NDArray[np.int64]
    starts: NDArray[np.int64] | None = None
    ends: NDArray[np.int64] | None = None
    pack: int = 1
    bins: int = 1
    vertex_values: Sequence[Attribute] = ()

    @property
    def parts(self) -> int:
        return self.vertex_starts.size - 1

    def info(self) -> GraphInfo:
        """As much of the description of the graph as the slices need."""
        none = [0] * self.parts
        return GraphInfo(
            self.directed, 0, none, none, none, none, self.weighted, self.label_type,
            vertex_schema=dict(self.vertex_attributes), edge_schema=dict(self.attributes),
        )  # fmt: skip


def empty_tables(plan: Plan) -> tuple[pa.Table, pa.Table]:
    """The edges and vertices of a partition that has none."""
    edges: dict[str, Any] = dict.fromkeys(("edge", "u", "v"), pa.int64())
    edges |= {"weight": pa.float64()} if plan.weighted else {}
    edges |= {f"a{at}": pa.type_for_alias(kind) for at, kind in enumerate(plan.attributes.values())}
    vertices = dict.fromkeys(("number", "spot"), pa.int64())
    if plan.label_type != "implicit":
        vertices["label"] = pa.type_for_alias(plan.label_type)
    vertices |= {f"v{at}": pa.type_for_alias(kind) for at, kind in enumerate(plan.vertex_attributes.values())}
    return pa.schema(list(edges.items())).empty_table(), pa.schema(list(vertices.items())).empty_table()


def report_row(partition: int, body: Mapping[str, Any]) -> pa.Table:
    """A report as one row of `REPORT`; only the driver of the same job reads it, straight from its executors."""
    packed = pa.array([pickle.dumps(dict(body), protocol=5)], pa.binary())
    return pa.table({"part": pa.array([partition], pa.int32()), "body": packed})


def write_files(
    folder: Folder, partition: int, files: Iterable[tuple[str, str, pa.Buffer]]
) -> dict[str, dict[str, Any]]:
    """Write files of a partition (kind, suffix, bytes) that are not there yet; gives their entries for the manifest."""
    entries = {}
    for kind, suffix, data in files:
        entry = entry_of(partition, kind, suffix, data)
        write_once(folder, entry, data)
        entries[kind] = asdict(entry)
    return entries


def attribute_columns(attributes: Mapping[str, str], table: pa.Table, prefix: str = "a") -> dict[str, pa.Array]:
    """The columns ``a0`` … by their names, in their types."""
    return {
        name: whole_column(table.column(f"{prefix}{at}"), kind) for at, (name, kind) in enumerate(attributes.items())
    }


def whole_column(column: pa.ChunkedArray, kind: str | pa.DataType) -> pa.Array:
    """A column as one array of a type."""
    array = column.cast(pa.type_for_alias(kind) if isinstance(kind, str) else kind).combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array

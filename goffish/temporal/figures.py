"""What a series holds, in figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from goffish.gofs.files import open_folder
from goffish.gofs.manifest import Manifest
from goffish.gofs.series import Series, open_series
from goffish.gofs.series.model import moment_text
from goffish.gofs.series.slices import slice_kind
from goffish.gofs.store import read_manifest


def slice_sizes(series: Series, manifest: Manifest, name: str) -> list[int]:
    """Bytes of the slices of an attribute."""
    return [
        manifest.files[partition][slice_kind(name, group, number)].size
        for partition in range(series.num_partitions)
        for group, generation in enumerate(series.groups.generations.tolist())
        for number in range(series.elements(partition).bins_in(generation))
    ]


def describe_series(path: str | Path) -> dict[str, Any]:
    """Times, sizes and attributes of the series of a store, as plain values.

    Returns
    -------
    dict
        ``instances``, ``begins``, ``ends``, ``period`` (None where it is not always the same), ``gaps``, ``vertices``,
        ``edges``, ``partitions``, ``pack``, ``packs``, ``growths`` (how often the template has grown), ``bins``,
        ``slices``, ``bytes``, ``template_bytes``, ``fullest_slice`` in bytes, and ``attributes``, a list of dicts with
        name, type, default, slices and bytes.

    Raises
    ------
    StoreError
        No store, or one without a time series.
    """
    series = open_series(path)
    manifest = read_manifest(open_folder(path))
    attributes: list[dict[str, Any]] = []
    largest = 0
    for name in series.schema:
        sizes = slice_sizes(series, manifest, name)
        attribute = series.schema[name]
        default: Any = attribute.default if attribute.default_column is None else f"column {attribute.default_column}"
        if attribute.is_list and attribute.has_default:
            default = "empty"
        attributes.append(
            {"name": name, "type": attribute.type, "default": default, "slices": len(sizes), "bytes": sum(sizes)}
        )
        largest = max(largest, *sizes, 0)
    lengths = np.unique(series.ends - series.starts)
    total = sum(entry.size for entries in manifest.files for entry in entries.values())
    stored = sum(int(a["bytes"]) for a in attributes)
    info = series.graph.info
    return {
        "instances": len(series),
        "begins": moment_text(int(series.starts[0]), series.unit) if len(series) else None,
        "ends": moment_text(int(series.ends[-1]), series.unit) if len(series) else None,
        "period": _length(int(lengths[0]), series.unit) if lengths.size == 1 else None,
        "gaps": int(np.count_nonzero(series.starts[1:] > series.ends[:-1])),
        "vertices": series.graph.num_vertices,
        "edges": series.graph.num_edges,
        "directed": info.directed,
        "partitions": series.num_partitions,
        "pack": series.pack,
        "packs": len(series.groups),
        "growths": int(series.groups.generations.max(initial=0)),
        "bins": series.bins,
        "slices": sum(int(a["slices"]) for a in attributes),
        "bytes": stored,
        "fullest_slice": largest,
        "template_bytes": total - stored,
        "attributes": attributes,
    }


def _length(steps: int, unit: str) -> str:
    if unit == "1":
        return str(steps)
    for name, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        if steps % size == 0:
            return f"{steps // size:,} {name}"
    return f"{steps:,} µs"

"""The manifest of a store: what it holds, which files, how large, and their checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from goffish.errors import StoreError

NAME = "manifest.json"
FORMAT = "goffish-store"
#: Versions from which on stores can be read: 2 with a template that has grown since its series was written.
VERSION = 2
#: What a partition of such a template has besides.
GROWTH = "series-growth"


@dataclass(frozen=True)
class GraphInfo:
    """What is known of a partitioned graph without touching its slices.

    Attributes
    ----------
    vertices, arcs, subgraphs, remote : sequences of int, one per partition
        Local vertices, arcs, subgraphs and rows of the remote table.
    partitioner : mapping
        How the partitions were made: method, options and the edge cut.
    """

    directed: bool
    num_edges: int
    vertices: Sequence[int]
    arcs: Sequence[int]
    subgraphs: Sequence[int]
    remote: Sequence[int]
    weighted: bool
    label_type: str
    vertex_schema: Mapping[str, str] = field(default_factory=dict)
    edge_schema: Mapping[str, str] = field(default_factory=dict)
    partitioner: Mapping[str, Any] = field(default_factory=dict)
    finder: str = "components"

    @property
    def num_partitions(self) -> int:
        return len(self.vertices)

    @property
    def num_vertices(self) -> int:
        return sum(self.vertices)

    @property
    def num_subgraphs(self) -> int:
        return sum(self.subgraphs)


@dataclass(frozen=True)
class FileEntry:
    """One slice file: its name in the store, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Parsed and checked manifest; ``files[p]`` maps the slice kinds of partition p to their files.

    `loads` is what incremental ingest has loaded, if that has written the store. It says nothing about the graph and is
    no part of the fingerprint; whatever else changes the store drops it.
    """

    info: GraphInfo
    files: tuple[Mapping[str, FileEntry], ...]
    loads: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def fingerprint(self) -> str:
        """SHA-256 of the whole content: equal stores have equal fingerprints."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return _digest(_body(self))


def checksum(data: Any) -> str:
    """SHA-256 of a buffer."""
    return hashlib.sha256(data).hexdigest()


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON, carrying a checksum of itself."""
    return seal({**_body(manifest), **({"loads": dict(manifest.loads)} if manifest.loads else {})})


def seal(body: Mapping[str, Any]) -> bytes:
    """A body as JSON, carrying a checksum of itself."""
    return (json.dumps({**body, "checksum": _digest(body)}, indent=1) + "\n").encode()


def unseal(data: bytes, where: str, format: str, version: int, what: str) -> dict[str, Any]:
    """The inverse of `seal`, for a body with the fields ``format`` and ``version``.

    Raises
    ------
    StoreError
        Foreign, damaged, or of a newer version than `version`.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise StoreError(f"{where}: damaged or not a {what} (the manifest is not JSON)") from None
    if not isinstance(body, dict) or body.get("format") != format:
        raise StoreError(f"{where}: not a {what} (the manifest has no format {format!r})")
    found = body.get("version")
    if not isinstance(found, int) or found > version:
        raise StoreError(f"{where}: store format {found} is not supported; accepted: up to {version}; upgrade GoFFish")
    expected = body.pop("checksum", None)
    if _digest(body) != expected:
        raise StoreError(f"{where}: damaged (the manifest does not match its checksum)")
    return body


def decode(data: bytes, where: str) -> Manifest:
    """Parse and check a manifest.

    Raises
    ------
    StoreError
        Foreign, damaged, or written by a newer version.
    """
    body = unseal(data, where, FORMAT, VERSION, "GoFFish store")
    known = {f.name for f in fields(GraphInfo)}
    info = GraphInfo(**{name: value for name, value in body["graph"].items() if name in known})
    files = tuple({kind: FileEntry(**entry) for kind, entry in part.items()} for part in body["partitions"])
    return Manifest(info, files, body.get("loads", {}))


def _body(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": 2 if any(GROWTH in part for part in manifest.files) else 1,
        "graph": asdict(manifest.info),
        "partitions": [{kind: vars(entry) for kind, entry in part.items()} for part in manifest.files],
    }


def _digest(body: Mapping[str, Any]) -> str:
    return checksum(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())

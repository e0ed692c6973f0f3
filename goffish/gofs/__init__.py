"""GoFS: the store of partitioned graphs."""

from goffish.gofs.layout import build_layout
from goffish.gofs.manifest import GraphInfo
from goffish.gofs.partitioned import PartitionedGraph, open_store
from goffish.gofs.slices import Arcs, Slice
from goffish.gofs.store import check_store_place, is_store, verify_store, write_store

__all__ = [
    "Arcs",
    "GraphInfo",
    "PartitionedGraph",
    "Slice",
    "build_layout",
    "check_store_place",
    "is_store",
    "open_store",
    "verify_store",
    "write_store",
]

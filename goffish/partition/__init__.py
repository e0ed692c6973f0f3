"""Graph partitioning: METIS, hash, range, streaming and predefined assignments, and their quality.

The package is callable: ``goffish.partition(graph, parts=8)`` calls `partition_graph`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goffish.partition.assignment import assign
    from goffish.partition.cut import partition_graph
    from goffish.partition.figures import PartitionQuality, quality
    from goffish.partition.options import OPTIONS

__all__ = ["OPTIONS", "PartitionQuality", "assign", "partition_graph", "quality"]

_HOMES = {
    "OPTIONS": "options",
    "PartitionQuality": "figures",
    "assign": "assignment",
    "partition_graph": "cut",
    "quality": "figures",
}


class _CallableRoom(ModuleType):
    """A package that can be called like its main function, whichever import loaded it first.

    Names are loaded on first use, so that the command line can read the options without loading kernels.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("goffish.partition.cut").partition_graph(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'goffish.partition' has no attribute {name!r}")
    return getattr(importlib.import_module(f"goffish.partition.{_HOMES[name]}"), name)


sys.modules[__name__].__class__ = _CallableRoom

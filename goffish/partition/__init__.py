"""Who owns which vertex: METIS, hash, ranges, streaming partitioners, given assignments; quality figures.

The package can be called: ``goffish.partition(graph, parts=8)`` is `partition_graph`.
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
    """A room whose name is also the public function: whoever imports it first, the name stays callable.

    Its names are loaded when they are first used: the command line reads the options without loading kernels.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("goffish.partition.cut").partition_graph(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'goffish.partition' has no attribute {name!r}")
    return getattr(importlib.import_module(f"goffish.partition.{_HOMES[name]}"), name)


sys.modules[__name__].__class__ = _CallableRoom

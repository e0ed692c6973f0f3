"""A NetworkX backend: networkx functions answered by GoFFish's kernels.

networkx finds it by its entry points (`interface` and `info`); nothing here is imported before a call is dispatched.
`convert` turns a networkx graph into one that every later networkx call runs on without a further conversion,
`convert_to_nx` turns it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goffish.networkx_backend.graph import BackendGraph, convert, convert_to_nx

__all__ = ["BackendGraph", "convert", "convert_to_nx"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from goffish.networkx_backend import graph

    return getattr(graph, name)

"""The options that every reader takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import FormatError, InputError
from goffish.graph.assembly import Parallel, SelfLoops
from goffish.graph.graph import Graph, from_edges
from goffish.graph.io.streams import DECLARED

#: Vertices, most of them isolated, that a header may declare for each edge of its file.
_VERTICES_PER_EDGE = 128
ROLES = ("source", "target", "weight", "timestamp")


def both_directions(
    src: NDArray[Any], dst: NDArray[Any], weight: NDArray[np.float64] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]:
    """Rows of an undirected file, read as a directed graph: those off the diagonal also turned round."""
    off = src != dst
    doubled = None if weight is None else np.concatenate((weight, weight[off]))
    return np.concatenate((src, dst[off])), np.concatenate((dst, src[off])), doubled


def check_isolated(name: str, line: int, n: int, edges: int) -> None:
    """Refuse a header that declares far more vertices than edges that were read, before memory is taken for them.

    Raises
    ------
    FormatError
    """
    most = max(DECLARED, _VERTICES_PER_EDGE * edges)
    if n > most:
        counts = f"the header declares {n:,} vertices, but the file has {edges:,} edges; at most {most:,} are accepted"
        raise FormatError(name, line, f"{counts} ({DECLARED:,}, or {_VERTICES_PER_EDGE} per edge)")


@dataclass(frozen=True)
class ReadOptions:
    """See `goffish.graph.io.read` for what they mean."""

    directed: bool | None = None
    separator: str | None = None
    comments: tuple[str, ...] = ("#", "%")
    header: bool | None = None
    columns: Mapping[str, str | int] = field(default_factory=dict)
    weighted: bool | None = None
    self_loops: SelfLoops = "drop"
    parallel: Parallel = "min"
    verify: bool = True

    def __post_init__(self) -> None:
        unknown = [role for role in self.columns if role not in ROLES]
        if unknown:
            raise InputError(f"columns: unknown role {unknown[0]!r}; accepted: {', '.join(ROLES)}")
        if self.separator is not None and (len(self.separator) != 1 or not self.separator.isascii()):
            raise InputError(f"separator={self.separator!r}: must be one ASCII character")
        bad = [c for c in self.comments if len(c) != 1 or not c.isascii()]
        if bad:
            raise InputError(f"comments: {bad[0]!r} is not one ASCII character")
        if self.weighted is False and "weight" in self.columns:
            raise InputError("weighted=False and a weight in columns are mutually exclusive")

    def build(self, src: Any, dst: Any, weight: Any = None, *, directed: bool, **more: Any) -> Graph:
        """`from_edges` under these options; `directed` is what the file says."""
        return from_edges(
            src,
            dst,
            weight,
            directed=directed if self.directed is None else self.directed,
            self_loops=self.self_loops,
            parallel=self.parallel,
            **more,
        )

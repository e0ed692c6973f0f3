"""Settings of a search for communities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from goffish.errors import InputError
from goffish.graph.guards import whole_number

Refine = Literal["vertices", "leiden", "none"]
Order = Literal["random", "ascending", "descending", "neighbour", "natural"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True)
class Search:
    """Options of a search for communities; see `goffish.louvain`.

    The sequential method reads `resolution`, `seed`, `threshold`, `max_levels` and `order`; with ``refine="leiden"`` it
    splits what is not connected before every collapse.
    """

    resolution: float = 1.0
    seed: int | None = 0
    refine: Refine = "vertices"
    threshold: float = 1e-6
    max_levels: int | None = None
    max_passes: int = 20
    blocks: int | None = None
    threads: int | None = None
    least_gain: float = 3e-4
    order: Order = "random"


def sequential_settings(
    order: Order, seed: int, eps: float, resolution: float, max_levels: int | None, *, connected: bool = False
) -> Search:
    """The settings of the sequential method; refuses values out of range, naming the option."""
    if order not in ORDERS:
        raise InputError(f"order={order!r}: choose one of {', '.join(ORDERS)}")
    whole_number(seed, "seed", 0)
    for name, value in (("eps", eps), ("resolution", resolution)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < np.inf:
            raise InputError(f"{name}={value!r}: must be a finite number of at least 0")
    if max_levels is not None:
        whole_number(max_levels, "max_levels")
    return Search(resolution, seed, "leiden" if connected else "none", eps, max_levels, order=order)

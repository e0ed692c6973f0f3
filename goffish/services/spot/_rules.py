"""The market as columns for the kernels. Specification of RTBA, §2.6, §2.7."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from goffish.services.spot.model import Market

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Rules(NamedTuple):
    """One entry for each choice; rows 0 and 1 of automata: spot, on demand.

    `checkpoint` is the longest checkpoint; `saves`, shape (n,), are those with 1, 2, ... units left, the last one also
    with more. `penalty` is infinite where the deadline is hard.
    """

    spot: NDArray[np.bool_]
    speed: Ints
    kind: Ints
    bid: Floats
    fixed: Floats
    follow: Ints
    step: Floats
    release: Floats
    revoke: Floats
    priced: Ints
    startup: int
    checkpoint: int
    notice: bool
    local_speed: int
    move_slots: int
    move_cost: float
    saves: Ints
    startup_billed: bool
    penalty: float


def rules_of(market: Market) -> Rules:
    """The columns of a market."""
    spot = [(kind, bid) for kind, c in enumerate(market.classes) for bid in c.bids.tolist()]
    offers = spot + [(kind, np.inf) for kind in range(len(market.classes))]
    kinds = np.array([kind for kind, _ in offers], np.int64)
    automata = (market.spot, market.on_demand)
    states = max(a.states for a in automata)
    prices = np.array([c.on_demand for c in market.classes])
    local = market.local
    return Rules(
        np.arange(len(offers)) < len(spot),
        np.array([c.speed for c in market.classes], np.int64)[kinds],
        kinds,
        np.array([bid for _, bid in offers], np.float64),
        prices[kinds],
        np.stack([np.pad(a.follow, (0, states - a.states)) for a in automata]),
        np.stack([np.pad(a.step, (0, states - a.states)) for a in automata]),
        np.stack([np.pad(a.release, (0, states - a.states)) for a in automata]),
        np.stack([np.pad(a.revoke, (0, states - a.states)) for a in automata]),
        np.array([a.priced for a in automata], np.int64),
        market.startup_slots,
        market.longest_checkpoint,
        market.notice,
        local.speed if local else 0,
        local.move_slots if local else 0,
        local.move_cost if local else 0.0,
        market.saves,
        market.startup_billed,
        np.inf if market.late_penalty is None else market.late_penalty,
    )

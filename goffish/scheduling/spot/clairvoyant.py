"""What a job would have cost with all prices known: a lower bound for every policy. Specification of RTBA, §3.7."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.prices import SlotPrices
from goffish.errors import InputError
from goffish.scheduling.spot import path_kernels as kernels
from goffish.scheduling.spot.model import Market

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def lower_bounds(market: Market, work: int, slots: int, prices: SlotPrices, ends: Ints, *, threads: int = 2) -> Floats:
    """Least money of a job on known prices, by when it must end and how long before it was submitted.

    It may use the choices of the market as any policy may, also let a machine be taken away on purpose.

    Parameters
    ----------
    market : Market
    work : int
        Units.
    slots : int
        Longest time to the deadline.
    prices : SlotPrices
    ends : int64, shape (ends,)
        Deadlines: the number of slots of the prices that are before each.
    threads : int

    Returns
    -------
    float64, shape (ends, slots + 1)
        Column `t`: the job is submitted `t` slots before its deadline; infinite where it cannot be done.
    """
    due = np.asarray(ends, np.int64)
    if work < 1 or slots < 1 or not due.size or due.min() < slots or due.max() > prices.slots:
        raise InputError(f"deadlines must be between slot {slots} and the end of the prices, slot {prices.slots}")
    if prices.prices.shape[1] != len(market.classes):
        raise InputError(f"prices of {len(market.classes)} classes are needed, not of {prices.prices.shape[1]}")
    found = np.empty((due.size, slots + 1))

    def one(at: int) -> None:
        kernels.known_path(market.rules, work, slots, int(due[at]), prices.prices, prices.peaks, found[at])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, range(due.size)))
    return found

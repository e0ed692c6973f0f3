"""Stages of a flow: operators that run on workers of their own, each on an arc of the ring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.errors import InputError
from goffish.streaming.ring.ranges import CIRCLE, Positions, Ranges
from goffish.streaming.topology import Channel, Operator, Topology

#: Number of arcs is a power of two, so that an arc of positions is a prefix of them.
STAGE_BITS = 6
_MOST = (1 << STAGE_BITS) - 1
#: Multiples of it, modulo the size of the circle, are evenly distributed over every arc (a Weyl sequence).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def any_worker(record: Any) -> Any:
    """Key of records that any worker of a stage may process; never called, as their numbers decide."""
    raise AssertionError(record)


def spread(numbers: NDArray[np.int64]) -> Positions:
    """Return positions of records by their numbers, evenly distributed."""
    positions: Positions = numbers.astype(np.uint64) * _GOLDEN
    return positions


@dataclass(frozen=True)
class Arc:
    """The positions of a stage: those that begin with its number, or all.

    Attributes
    ----------
    stage : int
    bits : int
        Number of bits of `stage`; 0 for all positions.
    """

    stage: int = 0
    bits: int = 0

    @property
    def start(self) -> int:
        """First position."""
        return self.stage << (64 - self.bits) if self.bits else 0

    @property
    def stop(self) -> int:
        """Position after the last one."""
        return self.start + (CIRCLE >> self.bits)

    @property
    def ranges(self) -> Ranges:
        """All positions."""
        return Ranges(((self.start, self.stop),))

    def outer(self, positions: Positions) -> Positions:
        """Return the positions on the ring of positions of keys."""
        if not self.bits:
            return positions
        return positions >> np.uint64(self.bits) | np.uint64(self.start)

    def inner(self, ranges: Ranges) -> Ranges:
        """Return the positions of keys whose positions on the ring lie within some ranges."""
        if not self.bits:
            return ranges
        parts = (ranges & self.ranges).parts
        return Ranges(tuple(((a - self.start) << self.bits, (b - self.start) << self.bits) for a, b in parts))


def arc_of(topology: Topology, operator: str) -> Arc:
    """Return the positions of an operator's stage."""
    return Arc(topology.stages.get(operator, 0), STAGE_BITS) if topology.stages else Arc()


def divided(topology: Topology, firsts: Iterable[str] = ()) -> Topology:
    """Return the flow with stages: each begins with one of the named operators, and the first with the sources.

    An operator that is not named belongs to the stage of the one that sends to it. Records that cross stages without a
    key go to any worker of the next stage, and those that return in a loop to any worker of its stage.

    Parameters
    ----------
    topology : Topology
    firsts : iterable of str, optional
        Names of operators; those that the flow does not have are left out. Without, there are no stages.

    Raises
    ------
    InputError
        There are too many stages.
    """
    begins = {name: number for number, name in enumerate(firsts, 1)}
    if len(begins) > _MOST:
        raise InputError(f"workers: {len(begins)} operators with separate workers; accepted are at most {_MOST}")
    stages: dict[str, int] = {}
    for one in topology.operators:
        sent = next((stages[channel.source] for channel in one.inputs if not channel.feedback), 0)
        stages[one.name] = begins.get(one.name, sent)
    operators = tuple(_crossing(one, stages) for one in topology.operators)
    return replace(topology, operators=operators, stages=stages if begins else {})


def firsts_of(stages: Mapping[str, int]) -> list[str]:
    """Return the operators with separate workers, from the stages of all operators in their order.

    Examples
    --------
    >>> firsts_of({"numbers": 0, "parse": 1, "small": 1, "score": 2})
    ['parse', 'score']
    """
    found: dict[int, str] = {}
    for name, stage in stages.items():
        found.setdefault(stage, name)
    return [name for stage, name in found.items() if stage]


def _crossing(operator: Operator, stages: Mapping[str, int]) -> Operator:
    """Return an operator whose inputs have a key if one is from another stage, or from the end of a loop."""
    if not any(one.feedback or stages[one.source] != stages[operator.name] for one in operator.inputs):
        return operator

    def keyed(one: Channel) -> Channel:
        return replace(one, key=any_worker) if one.key is None else one

    return replace(operator, inputs=tuple(map(keyed, operator.inputs)))

"""How long a takeover lasts, by the rate and by the time between checkpoints."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from experiments.ring.costs import Costs
from experiments.ring.simulation import LATENCY, Ring, zipf
from goffish.streaming.ring.options import Options

#: As published: nodes, records per second, seconds between checkpoints, and reducers of a node.
NODES, RATES, INTERVALS, REDUCERS = 12, (5_000, 10_000, 15_000), (2.0, 5.0, 10.0), 4
#: When a node fails, as a part of the time between two checkpoints.
PHASES = (0.05, 0.35, 0.65, 0.95)
_VICTIM, _WORDS, _WARM_S = 3, 20_000, 0.3


class Takeover(NamedTuple):
    """A failure and what followed.

    Attributes
    ----------
    age_s : float
        Time from the last checkpoint of the node until it failed.
    detected_s, recovered_s : float
        From the failure until it was declared, and from then until everything was replayed.
    predicted_s, bound_s : float
        Equations (11) and (13) with the age of the checkpoint, and with the time between two checkpoints.
    missing : int
        Records that do not count afterwards, or count twice.
    """

    age_s: float
    detected_s: float
    recovered_s: float
    predicted_s: float
    bound_s: float
    missing: int


def take_over(
    rate: float, checkpoint_s: float, phase: float, costs: Costs, *, vectors: bool = True, seed: int = 0
) -> Takeover:
    """Let a node fail some time after a checkpoint.

    Parameters
    ----------
    rate : float
        Records per second of all nodes.
    checkpoint_s : float
    phase : float
        Part of `checkpoint_s`.
    costs : Costs
        Of a node.
    vectors : bool
        See `Options`.
    seed : int
    """
    options = Options(checkpoint_s=checkpoint_s, vectors=vectors, holdoff_s=1e6)
    ring = Ring(NODES, 1, costs, options=options, shares=zipf(_WORDS), seed=seed)
    end = 1e9
    ring.emit(lambda now: rate if now < end else 0.0)
    victim = ring.hosts[_VICTIM]
    ring.run(_WARM_S)
    while ring.now < victim.checkpointed + phase * checkpoint_s - 1e-9 or ring.now < _WARM_S:
        ring.run(max(victim.checkpointed + phase * checkpoint_s, _WARM_S))
    died, age = ring.now, ring.now - victim.checkpointed
    served = rate * ring.share(_VICTIM)
    ring.kill(_VICTIM)
    following = ring.view.clockwise(_VICTIM)
    while not ring.times("replayed", following):
        ring.run(ring.now + 0.01)
    (declared,) = ring.times("failure")
    replayed = max(ring.times("replayed", following))
    end = ring.now
    ring.run(ring.now + 3.0)
    detected = declared - died
    slack = 0.0 if vectors else 2 * options.latency_s
    waits = detected + statistics.mean(LATENCY) + slack
    bound = served * (checkpoint_s + waits) * costs.count_s
    missing = int(abs(ring.count() - ring.sent).sum())
    return Takeover(age, detected, replayed - declared, served * (age + waits) * costs.count_s, bound, missing)


class Cell(NamedTuple):
    """Takeovers at one rate and one time between checkpoints, at several phases."""

    rate: float
    checkpoint_s: float
    runs: list[Takeover]

    @property
    def mean_s(self) -> float:
        """Mean time of recovery."""
        return statistics.mean(run.recovered_s for run in self.runs)

    @property
    def worst_s(self) -> float:
        """Greatest time of recovery."""
        return max(run.recovered_s for run in self.runs)

    @property
    def error(self) -> float:
        """Greatest relative difference from the prediction."""
        return max(abs(run.recovered_s / run.predicted_s - 1) for run in self.runs)

    @property
    def fill(self) -> float:
        """Greatest part of the bound."""
        return max(run.recovered_s / run.bound_s for run in self.runs)


def grid(
    costs: Costs,
    rates: Sequence[float] = RATES,
    intervals: Sequence[float] = INTERVALS,
    phases: Sequence[float] = PHASES,
) -> list[Cell]:
    """Return takeovers for all combinations."""
    return [
        Cell(rate, interval, [take_over(rate, interval, phase, costs, seed=at) for at, phase in enumerate(phases)])
        for rate in rates for interval in intervals
    ]  # fmt: skip


def grows(cells: Sequence[Cell]) -> bool:
    """Whether the mean time of recovery grows with the rate and with the time between checkpoints."""
    found = {(cell.rate, cell.checkpoint_s): cell.mean_s for cell in cells}
    return all(
        found[one] < found[two]
        for one in found for two in found
        if one != two and one[0] <= two[0] and one[1] <= two[1]
    )  # fmt: skip

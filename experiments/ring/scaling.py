"""How soon a warm spare relieves an overloaded node."""

from __future__ import annotations

from typing import NamedTuple

from experiments.ring.costs import Costs
from experiments.ring.simulation import Ring, zipf
from goffish.streaming.ring.options import Options

_NODES, _SPARES, _WORDS, _SPARE = 3, 3, 20_000, 50
#: Between two looks of the controller, and between two samples of the load.
_LOOK_S, _SAMPLE_S = 0.05, 0.01
#: The rate grows from a part of the capacity of all nodes to another one.
_FROM, _TO, _RISE_S, _END_S = 0.6, 1.1, 10.0, 25.0


class Relief(NamedTuple):
    """A scale-out, in seconds since the first sample of overload.

    Attributes
    ----------
    node : int
        The node that is overloaded.
    asked_s : float
        Until a spare is asked for, as no other node has capacity left.
    moved_s : float
        Until the spare processes the positions.
    relieved_s : float
        Until the queue is shorter than the threshold.
    """

    node: int
    asked_s: float
    moved_s: float
    relieved_s: float


def scale_out(costs: Costs, *, seed: int = 0, options: Options | None = None) -> tuple[list[Relief], int]:
    """Let the rate rise beyond the capacity of the ring, with spares that run already.

    Parameters
    ----------
    costs : Costs
        Of a node.
    seed : int
    options : Options, optional

    Returns
    -------
    list of Relief
    int
        Records that do not count at the end, or count twice.
    """
    options = options or Options()
    ring = Ring(_NODES, 1, costs, options=options, shares=zipf(_WORDS, 0.5), seed=seed, quantum=128)
    capacity = _NODES / (costs.read_s + costs.count_s + costs.keep_s)

    def rate(now: float) -> float:
        return 0.0 if now > _END_S else capacity * (_FROM + (_TO - _FROM) * min(1.0, now / _RISE_S))

    spares = list(range(_SPARE, _SPARE + _SPARES))
    for spare in spares:
        ring.add(spare)
    first: dict[int, float] = {}
    asked: dict[int, tuple[float, int]] = {}
    relieved: dict[int, float] = {}

    def sample() -> None:
        for number in range(_NODES):
            node = ring.hosts[number].node
            if node.queued > options.high[0] and node.cpu > options.high[1]:
                first.setdefault(number, ring.now)
            elif number not in asked:
                first.pop(number, None)
            elif number not in relieved and number in moved() and node.queued < options.high[0]:
                relieved[number] = ring.now
        ring.at(ring.now + _SAMPLE_S, sample)

    def moved() -> dict[int, float]:
        replayed = {spare: ring.times("replayed", spare) for _, spare in asked.values()}
        return {number: replayed[spare][0] for number, (_, spare) in asked.items() if replayed[spare]}

    def look() -> None:
        for number in dict.fromkeys(n for n, event in ring.events if event.kind == "spare wanted"):
            if number not in asked and spares and ring.hosts[number].node.give(spares[0], ring.now):
                asked[number] = (ring.now, spares.pop(0))
        ring.at(ring.now + _LOOK_S, look)

    ring.emit(rate)
    sample()
    look()
    ring.run(_END_S + 5.0)
    done = moved()
    found = [
        Relief(number, time - first[number], done[number] - first[number], relieved[number] - first[number])
        for number, (time, _) in asked.items() if number in relieved and number in first
    ]  # fmt: skip
    return found, int(abs(ring.count() - ring.sent).sum())

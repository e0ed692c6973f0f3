"""What is lost when a node fails: state, records, or neither."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from experiments.ring.baselines import TIMEOUT_S, UpstreamBackup
from experiments.ring.costs import Costs
from experiments.ring.simulation import Ring, zipf
from goffish.streaming.ring.options import Options

_NODES, _WORDS, _RATE, _LENGTH = 3, 500, 100.0, 5  # messages per second, and words of each
_KILLED_S, _SENDS_S, _END_S = 10.0, 20.0, 4 * TIMEOUT_S


class Loss(NamedTuple):
    """What a failure has cost.

    Attributes
    ----------
    sent : int
        Records that were sent.
    unprocessed : int
        Records that no reducer has processed.
    missing, repeated : int
        Records that do not count in the state, and times that records count too often.
    """

    sent: int
    unprocessed: int
    missing: int
    repeated: int


def upstream_backup(costs: Costs, *, external: bool, seed: int = 0) -> Loss:
    """Let a reducer with upstream backup fail, with its state in memory or in an external store."""
    draw = np.random.default_rng(seed)
    text = draw.choice(_WORDS, (round(_RATE * _SENDS_S), _LENGTH), p=zipf(_WORDS)).tolist()
    store_s = costs.store.waited_s if external else None
    run = UpstreamBackup(_NODES, text, rate=_RATE, count_s=costs.read_s + costs.count_s, store_s=store_s, seed=seed)
    run.run(_KILLED_S)
    run.kill(1)
    run.run(_END_S)
    assert not run.open
    counted = run.counted()
    sent = len(text) * _LENGTH
    repeated = sum(counted.values()) - len(counted)
    return Loss(sent, sent - len(run.processed), sent - len(counted), repeated)


def ring(costs: Costs, *, replication: int = 1, seed: int = 0) -> Loss:
    """Let a node of the ring fail."""
    made = Ring(_NODES, replication, costs, options=Options(), shares=zipf(_WORDS), seed=seed)
    made.emit(lambda now: _RATE * _LENGTH if now < _SENDS_S else 0.0)
    made.run(_KILLED_S)
    made.kill(1)
    made.run(_SENDS_S + 5.0)
    left = made.count() - made.sent
    sent, missing = int(made.sent.sum()), int(-left[left < 0].sum())
    unprocessed = max(0, sent - sum(host.done for host in made.hosts.values())) if missing else 0
    return Loss(sent, unprocessed, missing, int(left[left > 0].sum()))

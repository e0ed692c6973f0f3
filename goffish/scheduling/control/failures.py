"""Failures of machines: at given seconds, of a share of all machines at a given second, or after a random lifetime.

See docs/specs/provisioning.md, section 6.12; docs/specs/plasticc.md, section 7.3 (F10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from goffish.scheduling.control.cluster import SLACK_S, Cluster


@dataclass(frozen=True)
class Failures:
    """Failures of machines. A failed machine does not return; its cost remains.

    Attributes
    ----------
    machines : mapping from machine id to second
    shares : tuple of (second, share)
        This share of the running machines fails together, rounded up; the choice depends on the seed only.
    mean_life_s : float, optional
        Mean of exponentially distributed lifetimes, drawn from the seed and the machine ids.
    lose_messages : bool
        Whether messages queued on a failed machine are lost; otherwise they are resent to other machines.
    seed : int
    """

    machines: Mapping[int, float] = field(default_factory=dict)
    shares: tuple[tuple[float, float], ...] = ()
    mean_life_s: float | None = None
    lose_messages: bool = False
    seed: int = 0

    def strike(self, cluster: Cluster, since: float, until: float) -> None:
        """Set the failure times of live machines within a period (end excluded)."""
        for number in cluster.live.machines if self.machines or self.mean_life_s is not None else ():
            life = cluster.log[number]
            moment = self.machines.get(number, np.inf)
            if self.mean_life_s is not None:
                drawn = np.random.default_rng([self.seed, 7, number]).exponential(self.mean_life_s)
                moment = min(moment, life.start_s + drawn)
            if moment < until - SLACK_S:
                life.fail_s = min(life.fail_s, max(moment, since))
        for at, (second, share) in enumerate(self.shares):
            if since - SLACK_S <= second < until - SLACK_S:
                numbers = sorted(cluster.live.machines)
                rng = np.random.default_rng([self.seed, 8, at])
                for number in rng.choice(numbers, int(np.ceil(share * len(numbers) - 1e-9)), replace=False).tolist():
                    cluster.log[number].fail_s = min(cluster.log[number].fail_s, max(second, since))

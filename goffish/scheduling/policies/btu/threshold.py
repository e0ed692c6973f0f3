"""The baseline: instances by queue length and hosts on demand, without regard to billing time units.

See docs/specs/btu.md, section 3.8.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from goffish.scheduling.policies.btu.model import SLACK, Action, ClusterState, LeasedMachine, Settings, Size
from goffish.scheduling.policies.btu.ranking import feasibility, needs_of


@dataclass(frozen=True)
class ThresholdController:
    """Start one instance above `settings.threshold`, two above `double_above`; remove one below `low`.

    Removed instances keep their resources until the end of the cycle, as they finish their message first.

    Attributes
    ----------
    settings : Settings
    double_above, low : float
        Queued messages.
    """

    settings: Settings = field(default_factory=Settings)
    double_above: float = 250.0
    low: float = 1.0
    by_units: bool = False

    def cycle(self, state: ClusterState, rng: np.random.Generator) -> list[Action]:
        """Scale every operator in order."""
        done: list[Action] = []
        leaving: dict[int, list[int]] = {}
        for operator, queue in enumerate(state.queues):
            count = state.counts[operator]
            more = 2 if queue > self.double_above else 1 if queue > self.settings.threshold or not count else 0
            for _ in range(more):
                done += _first_fit(state, operator, leaving)
            if not more and queue < self.low and count >= 2:
                host = _emptiest(state, operator, leaving)
                leaving.setdefault(host.number, []).append(operator)
                done.append(state.drain(operator, host.number))
                state.scalings[operator] += 1
        return done

    def host_end(self, state: ClusterState, host: int, unit_s: float) -> list[Action]:
        """Return no decisions: the baseline ignores units."""
        return []

    def unit_end(self, state: ClusterState, host: int, unit_s: float, empty: bool) -> list[Action]:
        """Nothing."""
        return []


def _free(state: ClusterState, host: LeasedMachine, leaving: dict[int, list[int]]) -> Size:
    """Free resources of a host, less those of instances that are being removed."""
    free, going = host.free(state.operators), [needs_of(state, k) for k in leaving.get(host.number, [])]
    return Size(free.cores - sum(n.cores for n in going), free.memory_mb - sum(n.memory_mb for n in going))


def _first_fit(state: ClusterState, operator: int, leaving: dict[int, list[int]]) -> list[Action]:
    """Start an instance on the oldest host with free capacity, or on a new one."""
    done: list[Action] = []
    need = needs_of(state, operator)
    fitting = (h for h in state.usable if feasibility(_free(state, h, leaving), need) >= 1 - SLACK)
    host: LeasedMachine | None = next(fitting, None)
    if host is None:
        host = state.lease()
        if host is None:
            return done
        done.append(Action("lease", host.number))
    done.append(state.start(operator, host.number))
    state.raised(operator)
    return done


def _emptiest(state: ClusterState, operator: int, leaving: dict[int, list[int]]) -> LeasedMachine:
    """The host with the operator and the most free memory; the oldest among equals."""
    holding = [host for host in state.usable if host.placed[operator]]
    return max(holding, key=lambda host: (_free(state, host, leaving).memory_mb, -host.number))

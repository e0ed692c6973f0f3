"""Second level: shortly before the end of a host's paid unit, empty the host or pay for the next unit.

See docs/specs/btu.md, section 3.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from goffish.scheduling.policies.btu.model import Action, ClusterState, Settings
from goffish.scheduling.policies.btu.ranking import best_donor, best_host, donor_host, utility


@dataclass(frozen=True)
class DrainPlan:
    """A plan that empties a host.

    Attributes
    ----------
    release : tuple of int
        Operators, each of which loses one instance on the host.
    donors : tuple of (operator, host)
        Instances on other hosts that are removed to free capacity.
    migrate : tuple of (operator, host)
        Instances that move, and their new hosts.
    """

    release: tuple[int, ...]
    donors: tuple[tuple[int, int], ...]
    migrate: tuple[tuple[int, int], ...]


def plan_emptying(state: ClusterState, host: int, settings: Settings) -> DrainPlan | None:
    """Return a plan without new leases, or None; nothing is changed (SIMULATE).

    Released instances and donors share the cap: an operator loses at most this share of its instances (at least one),
    and never its last.
    """
    trial = state.copy()
    place = trial.hosts[host]
    fails = place.idle_fails if settings.escalate else 0
    share = min(1.0, settings.cap * 2.0 ** min(fails, 64))
    left = [max(1, math.floor(share * count + 1e-9)) for count in trial.counts]
    released: list[int] = []
    for k, here in enumerate(place.placed):
        if here and utility(trial, k, settings) > 0:
            gone = min(here, left[k], trial.counts[k] - 1)
            place.placed[k] -= gone
            left[k] -= gone
            released += [k] * gone
    donors: list[tuple[int, int]] = []
    migrate: list[tuple[int, int]] = []
    memory = state.operators.memory_mb
    remaining = [k for k, count in enumerate(place.placed) for _ in range(count)]
    for operator in sorted(remaining, key=lambda k: -memory[k]):
        exhausted: set[int] = set()
        while (target := best_host(trial, operator, settings, {host})) is None:
            among = [k for k, rest in enumerate(left) if rest > 0 and k != operator and k not in exhausted]
            donor = best_donor(trial, settings, among)
            if donor is None:
                return None
            source = donor_host(trial, donor, operator, {host})
            if source is None:
                exhausted.add(donor)
                continue
            source.placed[donor] -= 1
            left[donor] -= 1
            donors.append((donor, source.number))
        place.placed[operator] -= 1
        target.placed[operator] += 1
        target.images.add(operator)
        migrate.append((operator, target.number))
    return DrainPlan(tuple(released), tuple(donors), tuple(migrate))


def empty_host(state: ClusterState, host: int, unit_s: float, settings: Settings) -> list[Action]:
    """Start to empty a host whose unit is about to end; if that is impossible, pay for one more unit."""
    if len(state.usable) < 2 or state.now_s - state.leased_s < settings.rest_s:
        return [prolong(state, host, unit_s)]
    plan = plan_emptying(state, host, settings)
    place = state.hosts[host]
    if plan is None:
        # A plan that waits for capacity keeps the host; only idle units raise the cap.
        busy = max(state.raised_s) >= place.paid_until_s - unit_s
        place.idle_fails = 0 if busy else place.idle_fails + 1
        return [prolong(state, host, unit_s)]
    place.closing = True
    done = [Action("close", host)]
    for operator, source in [(k, host) for k in plan.release] + list(plan.donors):
        done.append(state.drain(operator, source))
        state.scalings[operator] += 1
    for operator, target in plan.migrate:
        # The old instance remains in the state until the new one works.
        state.start(operator, target)
        done.append(Action("migrate", host, operator, target))
    return done


def prolong(state: ClusterState, host: int, unit_s: float) -> Action:
    """Pay for one more unit."""
    state.hosts[host].paid_until_s += unit_s
    return Action("prolong", host)

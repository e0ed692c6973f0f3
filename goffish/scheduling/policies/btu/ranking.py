"""Choice of the host of a new instance, and of the operator that gives up an instance (Algorithms 2 and 3).

See docs/specs/btu.md, sections 3.3, 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from goffish.scheduling.policies.btu.model import SLACK, ClusterState, LeasedMachine, Settings, Size

#: Score or utility of an impossible choice.
IMPOSSIBLE = -1.0


def feasibility(free: Size, need: Size) -> float:
    """Number of instances that fit, not rounded; unlimited for resources with no demand."""
    return min(f / n if n > 0 else math.inf for f, n in zip(free, need, strict=True))


def host_score(size: Size, free: Size, need: Size, cached: bool, settings: Settings) -> float:
    """Score of a host for an instance: lower is better, `IMPOSSIBLE` if it does not fit (Algorithm 2).

    Parameters
    ----------
    size, free, need : Size
        Sizes of the host, of its free resources, and of the instance.
    cached : bool
        Whether the host has the image cached.
    settings : Settings
    """
    fits = feasibility(free, need)
    if fits < 1 - SLACK:
        return IMPOSSIBLE
    if settings.pack:
        score = fits
    elif math.isinf(size.memory_mb):
        score = 0.0
    else:
        cores, memory = (free.cores - need.cores) / size.cores, (free.memory_mb - need.memory_mb) / size.memory_mb
        score = abs(cores - memory) / fits
    return score * settings.image_factor if cached else score


def needs_of(state: ClusterState, operator: int) -> Size:
    """Guaranteed resources of an instance of an operator."""
    return Size(state.operators.cores[operator], state.operators.memory_mb[operator])


def best_host(
    state: ClusterState, operator: int, settings: Settings, exclude: Container[int] = ()
) -> LeasedMachine | None:
    """The usable host with the lowest score; None if the instance fits on no host (filters F1 to F4)."""
    found: tuple[tuple[float, ...], LeasedMachine] | None = None
    need = needs_of(state, operator)
    for age, host in enumerate(state.usable):
        if host.number in exclude:
            continue
        free, cached = host.free(state.operators), operator in host.images
        score = host_score(host.size, free, need, cached, settings)
        if score < 0:
            continue
        left = -host.paid_until_s if settings.prefer_paid else 0.0
        group = float(settings.strict_images and not cached)
        key = (group, score, float(not cached), -feasibility(free, need), left, float(age))
        if found is None or key < found[0]:
            found = (key, host)
    return None if found is None else found[1]


def donor_utility(
    operator: int, counts: Sequence[int], scalings: Sequence[int], queue: float, delay: float, settings: Settings
) -> float:
    """Utility of an operator as a donor: it may lose an instance if the utility is greater than 0 (Algorithm 3).

    Parameters
    ----------
    operator : int
    counts, scalings : sequences of int
        Instances and number of scalings of all operators.
    queue : float
        Queued messages of this operator.
    delay : float
        Its last measured duration over its objective.
    settings : Settings
    """
    if counts[operator] < 2:
        return IMPOSSIBLE
    least, most, scaled = min(counts), max(counts), sum(scalings)
    instances = (counts[operator] - least) / (most - least) if most > least else 0.0
    load = settings.queue_load if queue < 1 else 0.0
    return (
        1.0
        + settings.instances_weight * instances
        + settings.queue_weight * load
        - settings.delay_weight * delay * (1 + settings.penalty)
        - settings.scalings_weight * (scalings[operator] / scaled if scaled else 0.0)
    )


def utility(state: ClusterState, operator: int, settings: Settings) -> float:
    """`donor_utility` in a state; `IMPOSSIBLE` for an operator that was just scaled up."""
    if state.now_s - state.raised_s[operator] < settings.cooldown_s:
        return IMPOSSIBLE
    measured, objective = state.durations[operator], state.operators.objective_s[operator]
    fresh = bool(measured) and state.now_s - state.measured_s[operator] <= settings.stale_s
    delay = measured[-1] / objective if fresh else 1.0
    return donor_utility(operator, state.counts, state.scalings, state.queues[operator], delay, settings)


def best_donor(state: ClusterState, settings: Settings, among: Sequence[int]) -> int | None:
    """The operator with the highest donor utility; None if there is none."""
    counts = state.counts
    worth = [(utility(state, k, settings), counts[k], -k) for k in among]
    worth = [found for found in worth if found[0] > 0]
    return -max(worth)[2] if worth else None


def donor_host(state: ClusterState, donor: int, operator: int, exclude: Container[int] = ()) -> LeasedMachine | None:
    """The usable host where removing an instance of the donor frees the most capacity for the operator."""
    need, given = needs_of(state, operator), needs_of(state, donor)
    found: tuple[float, LeasedMachine] | None = None
    for host in state.usable:
        if host.number in exclude or not host.placed[donor]:
            continue
        free = host.free(state.operators)
        room = feasibility(Size(free.cores + given.cores, free.memory_mb + given.memory_mb), need)
        if found is None or room > found[0]:
            found = (room, host)
    return None if found is None else found[1]

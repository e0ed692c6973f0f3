"""Placement of selected replicas on hosts. See docs/specs/selective-replication.md, sections 3.4 and 3.5."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from goffish.errors import InputError
from goffish.scheduling.policies.replication import pack_kernels as kernels
from goffish.scheduling.policies.replication.availability import Availability, availability_of
from goffish.scheduling.policies.replication.model import (
    SLACK,
    Floats,
    Ints,
    Places,
    System,
    host_loads,
    host_masks,
    network_use,
    primaries,
    remaining,
)
from goffish.scheduling.policies.replication.selection import ranked

Strategy = Literal["simple", "coloured", "mirror"]
Colour = Literal["operator", "query", "primary_host"]
_CODES = {
    "simple": kernels.SIMPLE,
    "coloured": kernels.COLOURED,
    "mirror": kernels.MIRROR,
}


class Placed(NamedTuple):
    """A plan, and the operators of replicas without a host.

    Attributes
    ----------
    places : bool, shape (operators, hosts)
    unplaced : tuple of int
    """

    places: Places
    unplaced: tuple[int, ...]


def place_copies(
    found: System,
    places: Places,
    copies: Ints,
    strategy: Strategy = "mirror",
    *,
    colour: Colour = "operator",
    most_colours: int | None = None,
) -> Placed:
    """Add replicas to a plan, in order.

    Parameters
    ----------
    places : bool, shape (operators, hosts)
        The current plan; not changed.
    copies : int64, shape (copies,)
        Operators of the replicas, the most important first.
    strategy : {"simple", "coloured", "mirror"}
        First fit next to neighbors; few different operators on each host; or on the host with replicas of other
        operators of the same primary host.
    colour : {"operator", "query", "primary_host"}
        Property that distinguishes replicas.
    most_colours : int, optional
        If colored requires more on any host, or cannot place everything, simple is used.
    """
    if strategy not in _CODES:
        raise InputError(f"strategy = {strategy!r}: must be one of {', '.join(_CODES)}")
    colours = _colours(found, colour)
    placed = _packed(found, places, copies, strategy, colours)
    if strategy == "coloured" and most_colours is not None:
        used = max(colours_per_host(found, placed.places, colour), default=0)
        if placed.unplaced or used > most_colours:
            return _packed(found, places, copies, "simple", colours)
    return placed


def colours_per_host(found: System, places: Places, colour: Colour = "operator") -> list[int]:
    """Number of distinct colors among the replicas on each host."""
    extra = _replicas(found, places)
    colours = _colours(found, colour)
    return [np.unique(colours[extra[:, host]]).size for host in range(found.hosts)]


def _colours(found: System, colour: Colour) -> Ints:
    if colour == "operator":
        return np.arange(found.operators)
    if colour == "primary_host":
        return found.primary
    if colour == "query":
        # An operator of several queries has the color of the first one; an operator of none has the last color.
        return np.array([some[0] if some else len(found.queries) for some in found.queries_of], np.int64)
    raise InputError(f"colour = {colour!r}: must be one of operator, query, primary_host")


def _replicas(found: System, places: Places) -> Places:
    extra = places.copy()
    extra[np.arange(found.operators), found.primary] = False
    return extra


def _packed(found: System, places: Places, copies: Ints, strategy: Strategy, colours: Ints) -> Placed:
    new = places.copy()
    extra = _replicas(found, places)
    seen = np.zeros((found.hosts, int(colours.max(initial=0)) + 1), np.int64)
    mirrored = np.zeros((found.hosts, found.hosts), np.int64)
    rows, hosts = np.nonzero(extra)
    np.add.at(seen, (hosts, colours[rows]), 1)
    np.add.at(mirrored, (found.primary[rows], hosts), 1)
    into, out = network_use(found, places) if found.limited else (np.zeros(found.hosts), np.zeros(found.hosts))
    packed = kernels.Packed(
        new, found.capacity - host_loads(found, places), found.network - into, found.network - out, seen,
        extra.sum(axis=0).astype(np.int64), mirrored,
    )  # fmt: skip
    at = kernels.pack(
        np.ascontiguousarray(copies, np.int64),
        kernels.OperatorColumns(found.loads, found.primary, colours, found.forward, found.backward),
        kernels.HostColumns(found.failures, found.draining, found.racks), found.limited, found.spread_by_rack,
        _CODES[strategy], packed,
    )  # fmt: skip
    return Placed(new, tuple(np.asarray(copies)[at < 0].tolist()))


def in_order(found: System, counts: Ints, scores: Floats) -> Ints:
    """Operators of selected replicas, by importance."""
    order = ranked(found, scores)
    return np.repeat(order, counts[order])


def replicated(
    found: System,
    scores: Floats,
    counts: Ints,
    budget: float,
    strategy: Strategy = "simple",
    *,
    colour: Colour = "operator",
    cleanup: bool = False,
    start: Places | None = None,
) -> Placed:
    """Place selected replicas; the load of replicas without a host is used for the next operators, once.

    Parameters
    ----------
    scores : float64, shape (operators,)
        Importance.
    counts : int64, shape (operators,)
        Number of replicas of each operator (`select`).
    budget : float
        Maximum added load.
    cleanup : bool
        Drop replicas without a gain for any query, and select others for their load, once.
    start : bool, shape (operators, hosts), optional
        Replicas to keep; default: none.
    """
    begun = primaries(found) if start is None else start
    spent = float(found.loads @ (begun.sum(axis=1) - 1))
    done = place_copies(found, begun, in_order(found, counts, scores), strategy, colour=colour)
    given_up = set(done.unplaced)
    left = budget - spent - float(found.loads @ (done.places.sum(axis=1) - begun.sum(axis=1)))
    if given_up:
        done = Placed(_next(found, done.places, scores, left, given_up, strategy, colour), done.unplaced)
    if cleanup:
        kept = without_idle_copies(found, done.places)
        dropped = set(np.flatnonzero((done.places & ~kept).any(axis=1)).tolist())
        left = budget - float(found.loads @ (kept.sum(axis=1) - 1))
        done = Placed(_next(found, kept, scores, left, given_up | dropped, strategy, colour), done.unplaced)
    return done


def _next(
    found: System, places: Places, scores: Floats, left: float, without: set[int], strategy: Strategy, colour: Colour
) -> Places:
    """Replicate operators without a replica, by importance, within the budget."""
    taken = []
    for operator in ranked(found, scores).tolist():
        if operator in without or found.pinned[operator] or places[operator].sum() > 1:
            continue
        if found.loads[operator] <= left + SLACK:
            taken.append(operator)
            left -= float(found.loads[operator])
    return place_copies(found, places, np.array(taken, np.int64), strategy, colour=colour).places


def without_idle_copies(found: System, places: Places, exact: Availability | None = None) -> Places:
    """Return the plan without the replicas that gain no query any availability, the largest loads first."""
    exact = exact or availability_of(found)
    kept = places.copy()
    masks = host_masks(kept)
    rows, hosts = np.nonzero(_replicas(found, kept))
    for at in np.lexsort((hosts, rows, -found.loads[rows])).tolist():
        operator, host = int(rows[at]), int(hosts[at])
        less = dict(enumerate(masks)) | {operator: masks[operator] & ~(1 << host)}
        families = [found.queries[query].tolist() for query in found.queries_of[operator]]
        if all(exact.of({masks[o] for o in some}) <= exact.of({less[o] for o in some}) + 1e-15 for some in families):
            kept[operator, host] = False
            masks[operator] = less[operator]
    return kept


def spare(found: System, share: float = 1.0) -> float:
    """Maximum load of replicas: a share of the capacity that primaries leave free."""
    return max(0.0, share * remaining(found, primaries(found)))

"""Latency between all hosts, estimated from few measurements: hosts as points that springs pull apart or together.

See docs/specs/latency-aware.md, section 3.5. Every host measures a handful of peers in a round; the distance of two
points then tells the latency between any two hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.latency_aware import _spring_kernels as kernels
from goffish.errors import InputError
from goffish.scheduling.policies.latency_aware.score import Floats

#: Milliseconds there and back from one host to another; ``None`` if there is no answer.
Ping = Callable[[str, str], float | None]
#: A latency is never taken to be less, in milliseconds.
LEAST_MS = 1e-3


@dataclass(frozen=True)
class Springs:
    """Parameters of the estimation; the paper prints none (§6.1).

    Attributes
    ----------
    strength_ms : float
        Step for a distance that is e times the latency (kappa).
    least_step_ms : float
        A host that would move by less has arrived.
    most_steps : int
        Of a host in a round.
    nearest, random : int
        Peers of a round: the nearest ones of the last round, and new ones.
    pings : int
        To each peer; the fastest counts.
    dimensions : int
    every_s, spread : float
        Between two rounds of a host, and by what share that varies, so that hosts do not move in step.
    expires : int
        Rounds after which hosts that were not heard of are forgotten, and measurements are no longer fresh.
    """

    strength_ms: float = 0.25
    least_step_ms: float = 0.01
    most_steps: int = 100
    nearest: int = 3
    random: int = 2
    pings: int = 5
    dimensions: int = 3
    every_s: float = 30.0
    spread: float = 0.2
    expires: int = 3

    def __post_init__(self) -> None:
        for name in ("strength_ms", "least_step_ms", "every_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} = {getattr(self, name):g}: above 0 is needed")
        for name in ("most_steps", "random", "pings", "dimensions", "expires"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)}: at least 1 is needed")
        if self.nearest < 0 or not 0 <= self.spread < 1:
            raise InputError(f"nearest = {self.nearest}, spread = {self.spread:g}: 0 or more, and below 1, are needed")

    def wait_s(self, rng: np.random.Generator) -> float:
        """Seconds until a host's next round."""
        return float(self.every_s * (1 + self.spread * rng.uniform(-1, 1)))


@dataclass
class _Located:
    """What is stored of a host: where it is, when it moved last, and whom it measured."""

    position: Floats
    round: int
    peers: list[str] = field(default_factory=list)
    measured: dict[str, tuple[float, int]] = field(default_factory=dict)


class LatencySpace:
    """Positions of hosts, by their names.

    Parameters
    ----------
    springs : Springs, optional
    """

    def __init__(self, springs: Springs | None = None) -> None:
        self.springs = Springs() if springs is None else springs
        self.rounds = 0
        self._hosts: dict[str, _Located] = {}

    @property
    def hosts(self) -> list[str]:
        """Hosts that are known."""
        return list(self._hosts)

    def position(self, host: str) -> Floats:
        """Where a host is, shape (dimensions,)."""
        return self._known(host).position.copy()

    def run_round(self, hosts: Sequence[str], ping: Ping, rng: np.random.Generator) -> None:
        """A round of every host, in random order. New ones begin anywhere; those not heard of for long are forgotten.

        Parameters
        ----------
        hosts : sequence of str
            That are alive.
        ping : callable
            Milliseconds from one host to another and back, or ``None``; half of it is the latency.
        rng : numpy.random.Generator
        """
        for host in [host for host in hosts if host not in self._hosts]:
            self._hosts[host] = _Located(rng.uniform(0.0, 1.0, self.springs.dimensions), self.rounds)
        for at in rng.permutation(len(hosts)).tolist():
            self.relocate(hosts[at], ping, rng)
        self.rounds += 1
        for host in [h for h, found in self._hosts.items() if self.rounds - found.round > self.springs.expires]:
            del self._hosts[host]

    def relocate(self, host: str, ping: Ping, rng: np.random.Generator) -> None:
        """The round of one host: choose peers, measure them, move."""
        own, springs = self._known(host), self.springs
        own.round = self.rounds
        near = [peer for peer in own.peers if peer in self._hosts]
        near = sorted(near, key=lambda peer: own.measured[peer][0])[: springs.nearest]
        others = [peer for peer in self._hosts if peer != host and peer not in near]
        new = min(len(others), springs.nearest + springs.random - len(near))
        chosen = near + [others[at] for at in rng.choice(len(others), new, replace=False).tolist()] if others else near
        own.peers = []
        for peer in chosen:
            answers = [answer for _ in range(springs.pings) if (answer := ping(host, peer)) is not None]
            if answers:
                own.measured[peer] = (max(LEAST_MS, min(answers) / 2.0), self.rounds)
                own.peers.append(peer)
        if own.peers:
            directions = rng.standard_normal((len(own.peers), springs.dimensions))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            kernels.relax(
                own.position,
                np.array([self._hosts[peer].position for peer in own.peers]),
                np.array([own.measured[peer][0] for peer in own.peers]),
                springs.strength_ms,
                springs.least_step_ms,
                springs.most_steps,
                directions,
            )

    def latency_ms(self, hosts: Sequence[str], *, direct: bool = True) -> Floats:
        """Estimated latency of every pair, shape (hosts, hosts).

        Parameters
        ----------
        direct : bool
            Whether a fresh measurement is taken rather than the distance.
        """
        found = [self._known(host) for host in hosts]
        places = np.array([one.position for one in found]).reshape(len(hosts), -1)
        latency = np.linalg.norm(places[:, None, :] - places[None, :, :], axis=2)
        if direct:
            number = {host: at for at, host in enumerate(hosts)}
            for at, one in enumerate(found):
                for peer, (measured, since) in one.measured.items():
                    if peer in number and self.rounds - since <= self.springs.expires:
                        latency[at, number[peer]] = measured
        np.fill_diagonal(latency, 0.0)
        return np.asarray(latency)

    def _known(self, host: str) -> _Located:
        if host not in self._hosts:
            raise InputError(f"host {host!r} has no position; there are: {', '.join(list(self._hosts)[:20]) or 'none'}")
        return self._hosts[host]


def spring_step(
    position: Sequence[float], peers: Sequence[Sequence[float]], measured_ms: Sequence[float], strength_ms: float
) -> Floats:
    """How far the springs to some peers move a host in one step (§3.5); a peer at the same place pulls along the first
    axis.

    Parameters
    ----------
    position : float, shape (dimensions,)
    peers : float, shape (peers, dimensions)
    measured_ms : float, shape (peers,)
    strength_ms : float
    """
    start = np.array(position, np.float64)
    others = np.array(peers, np.float64).reshape(-1, start.size)
    moved = start.copy()
    along = np.zeros_like(others)
    along[:, 0] = 1.0
    measured = np.maximum(LEAST_MS, np.array(measured_ms, np.float64))
    kernels.relax(moved, others, measured, float(strength_ms), 0.0, 1, along)
    return np.asarray(moved - start)

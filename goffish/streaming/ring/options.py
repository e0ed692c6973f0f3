"""Parameters of the nodes of a ring."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Parameters of the nodes of a ring; all nodes have the same.

    Attributes
    ----------
    threads : int
        Queues of a node; each key belongs to one of them.
    vectors : bool
        Whether states remember the last sequence number of each lane, so that no message changes a state twice.
        Otherwise time stamps decide what is replayed, and some messages count twice.
    latency_s : float
        Bound of both the network latency and the difference of two clocks; not needed with `vectors`.
    checkpoint_s, heartbeat_s : float
        Time between two checkpoints, and between two heartbeats.
    detect_s, ping_s : float
        Silence after which a node is asked for an answer, and how long the answer may take.
    handoff_s, move_s : float
        Time limits of the last step of a move, and of a whole move.
    high, low : (int, float)
        Queued messages and CPU utilisation above which a node is overloaded, and below which it is lightly loaded.
    holdoff_s : float
        Time after a change of its interval in which a node asks for no other.
    copies_first : bool
        Whether planned moves wait until all future secondaries have copies.
    minimum : int
        Least number of nodes.
    """

    threads: int = 1
    vectors: bool = True
    latency_s: float = 0.015
    checkpoint_s: float = 2.0
    heartbeat_s: float = 0.25
    detect_s: float = 0.75
    ping_s: float = 0.1
    handoff_s: float = 2.0
    move_s: float = 30.0
    high: tuple[int, float] = (1000, 0.8)
    low: tuple[int, float] = (100, 0.5)
    holdoff_s: float = 30.0
    copies_first: bool = True
    minimum: int = 1

"""Load balance of the ring: a node that has too much or very little to do asks the next one to take positions over."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from goffish.streaming.ring.messages import BalanceReply, BalanceRequest, Message
from goffish.streaming.ring.options import Options
from goffish.streaming.ring.ranges import Ranges
from goffish.streaming.ring.view import View

#: Time over which the length of the queue is observed, and the share of it that a threshold has to hold for.
_LOAD_S = 10.0
_LOAD_SHARE = 95
_BUSY_ANSWERS = 3


class Loaded(Protocol):
    """A node, as far as its load matters; see `Node`."""

    number: int
    options: Options
    view: View
    cpu: float

    @property
    def queued(self) -> int:
        """Number of messages that wait."""

    def send(self, node: int, message: Message) -> None:
        """Leave a message in the outbox."""

    def give(self, target: int, now: float, *, leaves: bool) -> bool:
        """Start to move half of the positions, or all."""

    def log(self, now: float, kind: str, ranges: Ranges) -> None:
        """Report an event."""


class Balance:
    """Decides when a node moves positions.

    Parameters
    ----------
    node : Loaded
    now : float
        Time in seconds.
    """

    def __init__(self, node: Loaded, now: float) -> None:
        self._node, self._options = node, node.options
        self._load: deque[tuple[float, int]] = deque()
        self._long = 0  # how many of these queues are not short
        self._load_due = now + self._options.checkpoint_s
        self._quiet_until = now
        self._light_since = now
        self._asked_until: float | None = None
        self._reserved_until = now
        self._busy_answers = 0
        self._cascade: int | None = None
        self._leaves = False

    def hold_off(self, now: float) -> None:
        """Ask for no change for a while, as the interval of the node has changed."""
        self._quiet_until = now + self._options.holdoff_s

    def accepted(self, now: float) -> None:
        """Note that the node has taken over what it was reserved for."""
        self._reserved_until = now

    def moved(self, cancelled: bool, now: float) -> None:
        """Answer the node for whose request this one has moved positions."""
        if self._cascade is not None:
            asker, self._cascade = self._cascade, None
            self._reserved_until = now + self._options.move_s
            self._reply(asker, "busy" if cancelled else "accept")

    def tick(self, now: float) -> None:
        """Observe the load, and ask the next node to take positions over if that is due."""
        if self._asked_until is not None and now >= self._asked_until:
            self._asked_until = self._cascade = None
        self._observe(now)
        if now >= self._load_due:
            self._load_due = now + self._options.checkpoint_s
            self._balance(now)

    def _observe(self, now: float) -> None:
        short = self._options.low[0]
        self._load.append((now, self._node.queued))
        self._long += self._node.queued >= short
        while self._load[0][0] < now - _LOAD_S:
            self._long -= self._load.popleft()[1] >= short
        if not self._is_light:
            self._light_since = now

    @property
    def _queue_length(self) -> float:
        # NumPy takes a quarter of a millisecond, hundreds of times per second.
        lengths = sorted(length for _, length in self._load)
        low, part = divmod(_LOAD_SHARE / 100 * (len(lengths) - 1), 1.0)
        below, above = (lengths[min(int(low) + one, len(lengths) - 1)] if lengths else 0 for one in (0, 1))
        return below + part * (above - below)

    @property
    def _is_light(self) -> bool:
        # Nodes with little to do ask hundreds of times per second: they do not sort.
        is_short = not self._long or self._queue_length < self._options.low[0]
        return is_short and self._node.cpu < self._options.low[1]

    @property
    def _is_overloaded(self) -> bool:
        return self._queue_length > self._options.high[0] and self._node.cpu > self._options.high[1]

    @property
    def _busy(self) -> bool:
        node = self._node
        return self._asked_until is not None or any(node.number in (one.owner, one.target) for one in node.view.moves)

    def _balance(self, now: float) -> None:
        """Ask the next node to take positions over, if there is too much or very little to do."""
        node = self._node
        nodes = len(node.view.members)
        if self._busy or now < max(self._quiet_until, self._reserved_until) or nodes == 1:
            return
        leaves = nodes > max(node.view.replication + 1, self._options.minimum)
        if self._is_overloaded:
            self._ask(BalanceRequest(node.view.epoch, node.number, 1), now)
        elif leaves and self._is_light and now - self._light_since >= self._options.holdoff_s:
            self._ask(BalanceRequest(node.view.epoch, node.number, 1, True, node.cpu), now)

    def _ask(self, request: BalanceRequest, now: float) -> None:
        self._leaves = request.leaves
        self._asked_until = now + self._options.move_s
        self._node.send(self._node.view.clockwise(self._node.number), request)

    def _reply(self, asker: int, answer: str) -> None:
        self._node.send(asker, BalanceReply(self._node.view.epoch, answer))

    def asked(self, sender: int, request: BalanceRequest, now: float) -> None:
        """Answer a request of the node before, or pass it on."""
        node = self._node
        answer = "full"
        following = node.view.clockwise(node.number)
        if self._busy or now < self._reserved_until:
            answer = "busy"
        elif self._is_light and (not request.leaves or node.cpu + request.cpu < self._options.high[1]):
            answer = "accept"
            self._reserved_until = now + self._options.move_s
        elif not request.leaves and request.hop <= len(node.view.members) - 2 and following != request.origin:
            self._cascade = sender
            self._ask(request._replace(epoch=node.view.epoch, hop=request.hop + 1), now)
            return
        self._reply(sender, answer)

    def answered(self, answer: str, now: float) -> None:
        """Move positions if the next node has accepted."""
        node = self._node
        if self._asked_until is None:
            return
        self._asked_until = None
        if answer == "accept":
            self._busy_answers = 0
            if node.give(node.view.clockwise(node.number), now, leaves=self._leaves):
                return
        elif answer == "busy":
            self._busy_answers += 1
        if self._cascade is not None:
            asker, self._cascade = self._cascade, None
            self._reply(asker, "full")
        elif not self._leaves and (answer == "full" or self._busy_answers > _BUSY_ANSWERS):
            self._busy_answers = 0
            node.log(now, "spare wanted", node.view.interval(node.number))

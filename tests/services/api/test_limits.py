"""How often one client may call; by a clock that the test moves."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.services.api.limits import Limits, TooMuch


class Hand:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def asks(limits: Limits, client: str) -> bool:
    try:
        with limits.call(client):
            return True
    except TooMuch:
        return False


@given(st.lists(st.floats(0, 3), min_size=1, max_size=60), st.floats(0.5, 20), st.floats(1, 10))
def test_no_more_than_the_rate_and_the_burst(waits: list[float], rate: float, burst: float) -> None:
    """Breaks when a client gets more calls through than its burst and its rate allow, or fewer than it waited for."""
    hand = Hand()
    limits = Limits(rate, burst, 100, hand)
    allowed: list[float] = []
    level = burst
    for wait in waits:
        hand.time += wait
        level = min(burst, level + wait * rate)
        found = asks(limits, "ann")
        if abs(level - 1.0) > 1e-9:
            assert found == (level >= 1.0)
        if found:
            level -= 1.0
            allowed.append(hand.time)
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= burst + rate * (allowed[last] - allowed[first]) + 1e-6


def test_clients_do_not_use_each_others_calls() -> None:
    """Breaks when one client that calls too often keeps others out."""
    limits = Limits(1.0, 2.0, 10, Hand())
    assert [asks(limits, "ann") for _ in range(4)] == [True, True, False, False]
    assert asks(limits, "bob")
    with (
        pytest.raises(TooMuch, match=r"client ann exceeds 1 calls per second \(--max-call-rate\); retry in 1\.000 s"),
        limits.call("ann"),
    ):
        pass


def test_calls_at_a_time() -> None:
    """Breaks when a client can have any number of streams open, or a call that failed still counts."""
    limits = Limits(1e6, 1e6, 3, Hand())
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(limits.call("ann"))
        assert not asks(limits, "ann") and asks(limits, "bob")
    with pytest.raises(ZeroDivisionError), limits.call("ann"):
        _ = 1 / 0
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(limits.call("ann"))


def test_many_clients() -> None:
    """Breaks when names that nobody uses any more fill the memory, or a client with open calls is forgotten."""
    limits = Limits(1.0, 1.0, 1, Hand())
    with limits.call("busy"):
        for at in range(30_000):
            assert asks(limits, f"c{at}")
        assert len(limits._accounts) <= 10_001
        assert not asks(limits, "busy")


def test_streams_at_a_time() -> None:
    """Breaks when a client can have any number of streams open, or a stream that has ended still counts."""
    limits = Limits(1e6, 1e6, 10, Hand(), streams=2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(limits.stream("ann"))
        with pytest.raises(TooMuch, match=r"client ann has 2 open streams, .* \(--max-streams\)"), limits.stream("ann"):
            pass
        assert asks(limits, "ann")
        with limits.stream("bob"):
            pass
    with limits.stream("ann"):
        pass


def test_bytes_under_way() -> None:
    """Breaks when large messages of one client, or of many, fill the memory; a single one is accepted."""
    limits, large = Limits(100.0, 100.0, 100, Hand()), 6 << 20
    with limits.call("ann", 50 << 20):
        with pytest.raises(TooMuch, match="of client ann exceed 16 MB"), limits.call("ann", 1):
            pass
        with limits.call("bob", large), limits.call("bob", large):
            with pytest.raises(TooMuch, match="of client bob exceed 16 MB"), limits.call("bob", large):
                pass
            with pytest.raises(TooMuch, match="of all clients exceed 64 MB"), limits.stream("eve", large):
                pass
            assert asks(limits, "eve")
    with limits.call("ann", large), limits.call("bob", large), limits.call("eve", 16 << 20):
        pass

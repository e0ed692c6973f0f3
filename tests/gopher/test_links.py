"""Connections between barrier tasks: what is exchanged, who is refused, and how a team ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from goffish.errors import InputError, JobError
from goffish.gopher.spark import links
from goffish.gopher.spark.links import LinkTeam, Lost, Refused, answer_call, call, joined, listen_at
from goffish.gopher.team.team import Stopped

SECRET = b"s" * 32


def team_of(size: int, work: Callable[[LinkTeam], Any], secrets: Any = None) -> list[Any]:
    """What `work` gives, or raises, in each of as many threads as a team has members."""
    barrier, texts = threading.Barrier(size), [""] * size

    def gather(rank: int, text: str) -> list[str]:
        texts[rank] = text
        barrier.wait()
        return texts

    def member(rank: int) -> Any:
        secret = SECRET if secrets is None else secrets[rank]
        try:
            with joined(rank, size, "127.0.0.1", secret, lambda text: gather(rank, text), 2) as team:
                return work(team)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(member, range(size)))


def block(source: int, target: int, size: int) -> Any:
    return np.random.default_rng([source, target]).integers(0, 255, size, np.uint8)


@pytest.mark.parametrize(("size", "most"), [(1, 9), (2, 1 << 21), (5, 3000)])
def test_everyone_gets_what_was_sent(size: int, most: int) -> None:
    """Blocks of any size, also larger than what the connections hold, in both directions at the same time."""

    def work(team: LinkTeam) -> bool:
        for turn in range(3):
            sizes = [most * ((target + turn) % 3) for target in range(size)]
            found = team.exchange([block(team.rank, target, sizes[target]) for target in range(size)])
            for source, arrived in enumerate(found):
                assert np.array_equal(arrived, block(source, team.rank, sizes[team.rank]))
        gathered = team.gather(bytes([team.rank]) * team.rank)
        assert (gathered is None) == (team.rank > 0)
        if gathered is not None:
            assert [data.tobytes() for data in gathered] == [bytes([rank]) * rank for rank in range(size)]
        assert team.everyone(np.array([team.rank, 7])).tolist() == [[rank, 7] for rank in range(size)]
        assert team.all_equal(b"x" * 32)
        return team.threads_here(2) == 2 * size

    assert team_of(size, work) == [True] * size


def test_many_pieces_arrive_in_order() -> None:
    pieces = [np.full(at % 5, at, np.uint8) for at in range(200)]
    whole = np.concatenate(pieces)

    def work(team: LinkTeam) -> bool:
        sizes = np.array([whole.size if other != team.rank else 0 for other in range(2)])
        outgoing = [pieces if other != team.rank else [] for other in range(2)]
        found = team.move(outgoing, sizes, sizes, whole.size, 1)
        return np.array_equal(found[1 - team.rank], whole)

    assert team_of(2, work) == [True, True]


def test_an_error_is_the_same_for_all_and_ends_their_work() -> None:
    def work(team: LinkTeam) -> None:
        with team.together("superstep 3"):
            if team.rank == 1:
                raise ValueError("on purpose")
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                team.listen()
                time.sleep(0.001)

    begun = time.monotonic()
    found = team_of(3, work)
    assert time.monotonic() - begun < 10
    assert [(type(error), str(error)) for error in found] == [(JobError, "superstep 3: ValueError: on purpose")] * 3


def test_a_task_that_is_lost_is_noticed() -> None:
    """Whether the others wait for it or compute; what they raise is no error of the job, so that Spark tries again."""

    def work(team: LinkTeam) -> None:
        if team.rank == 0:
            return
        if team.rank == 1:
            while True:
                team.listen()
        team.settle(None, "x")

    first, second, third = team_of(3, work)
    assert first is None
    assert isinstance(second, Lost)
    assert isinstance(third, Lost)
    assert not isinstance(second, Stopped | InputError | JobError)


def test_strangers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections without the secret, with garbage or with nothing neither join nor delay a team for long."""
    monkeypatch.setattr(links, "_GREET_S", 0.3)
    refused: list[BaseException | None] = []
    real = socket.create_connection

    def first_a_stranger(address: Any, timeout: float | None = None) -> socket.socket:
        silent, babbling, guessing = (real(address, timeout=5) for _ in range(3))
        babbling.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
        guessing.sendall(links._NAMES.pack(1, 0) + b"n" * 32)
        told = guessing.recv(64, socket.MSG_WAITALL)
        guessing.sendall(told[32:])
        held.extend((silent, babbling, guessing))
        return real(address, timeout=timeout)

    held: list[socket.socket] = []
    monkeypatch.setattr(socket, "create_connection", first_a_stranger)
    assert team_of(2, lambda team: team.everyone(np.array([team.rank])).ravel().tolist()) == [[0, 1]] * 2
    for one in held:
        one.settimeout(5)
        try:
            refused.append(None if one.recv(1 << 16)[96:] else Refused())
        except ConnectionError as error:
            refused.append(error)
        one.close()
    assert len(refused) == 3
    assert None not in refused


def test_another_secret_joins_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_CONNECT_S", 0.5)
    first, second = team_of(2, lambda team: team.rank, secrets=[SECRET, b"t" * 32])
    assert isinstance(first, Lost)
    assert "task 0 was not called by task 1" in str(first)
    assert isinstance(second, Lost)
    assert "(wrong secret)" in str(second)
    assert "executors must accept TCP connections from one another" in str(second)


def test_a_connection_is_for_one_task() -> None:
    with listen_at("127.0.0.1") as listener, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: answer_call(listener.accept()[0], SECRET, 3))
        with call(listener.getsockname()[:2], SECRET, 5, 4, 5), pytest.raises(Refused, match="for another task"):
            answer.result()


def test_an_address_of_another_machine() -> None:
    """Behind address translation a task cannot bind to the address that others see."""
    with listen_at("192.0.2.77") as listener:
        assert listener.getsockname()[0] == "0.0.0.0"

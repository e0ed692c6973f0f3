"""Traces of machines that deliver less than they are rated for."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from goffish.cloud.variability import (
    Traces,
    Variability,
    generate_traces,
    generate_walks,
    like_ec2,
    read_traces,
    steady,
)
from goffish.errors import InputError


def changes(values: np.ndarray) -> float:
    """Share of slots that differ by more than 20 % from the one before."""
    return float((np.abs(np.diff(values, axis=1)) / values[:, :-1] > 0.2).mean())


def test_generated_traces_are_like_those_of_ec2() -> None:
    """§4.1: mean 0.85, 22.8 % below 0.80, 25.5 % of changes above 20 %; breaks when the chain or its noise differs."""
    speed = generate_traces(200, 2000, np.random.default_rng(1)).values
    assert speed.mean() == pytest.approx(0.85, abs=0.01)
    assert (speed < 0.80).mean() == pytest.approx(0.228, abs=0.01) and changes(speed) == pytest.approx(0.255, abs=0.01)
    network = generate_traces(200, 2000, np.random.default_rng(2), "network").values
    assert (network < 0.80).mean() == pytest.approx(0.22, abs=0.01)
    low = speed < 0.80
    assert (low[:, :-1] & ~low[:, 1:]).sum() / low[:, :-1].sum() == pytest.approx(0.5, abs=0.01)
    assert (~low[:, :-1] & low[:, 1:]).sum() / (~low[:, :-1]).sum() == pytest.approx(0.15, abs=0.01)
    assert speed.min() >= 0.45 and speed.max() <= 1 and speed[low].max() <= 0.76
    # Machines differ in their medians, as the box plots of the paper show.
    high = np.array([np.median(row[row >= 0.8]) for row in speed])
    assert 0.02 < high.std() < 0.04


def test_walks_stay_in_their_bounds() -> None:
    walks = generate_walks(50, 1000, np.random.default_rng(3))
    assert walks.slot_s == 120 and (walks.values[:, 0] == 1).all()
    assert walks.values.min() >= 0.01 and walks.values.max() <= 1
    assert np.abs(np.diff(walks.values, axis=1)).max() <= 0.1


def test_the_same_seed_gives_the_same_traces() -> None:
    """I13; and a machine's trace must not depend on which other machines there are."""
    first, second = like_ec2(5), like_ec2(5)
    assert np.array_equal(first.speed.values, second.speed.values)
    some, all_ = np.array([7, 3]), np.arange(10)
    assert np.array_equal(first.future(some, 0, 300, 4), second.future(all_, 0, 300, 4)[[7, 3]])
    assert len({first.place(machine) for machine in range(50)}) > 45
    assert like_ec2(6).place(3) != first.place(3)
    assert first.place(3, "network") != first.place(3)


@given(
    st.integers(0, 30),
    st.lists(st.floats(0, 5000), min_size=2, max_size=2).map(sorted),
    st.sampled_from([60.0, 300.0, 7.0]),
)
def test_means_over_time(machine: int, stretch: list[float], slot_s: float) -> None:
    """Against a sum slot by slot; breaks at the end of a trace, where it begins anew, and within slots."""
    values = np.random.default_rng(1).uniform(0.4, 1, (3, 11))
    machines = Variability(Traces(values, slot_s), seed=2)
    row, first = machines.place(machine)
    since, until = stretch
    if until - since < 1e-3:
        until = since + 1.0
    edges = [since, *(k * slot_s for k in range(int(since // slot_s) + 1, int(until // slot_s) + 1)), until]
    total = sum((b - a) * values[row, (first + int((a + b) / 2 // slot_s)) % 11] for a, b in pairwise(edges))
    found = machines.speeds(np.array([machine]), since, until)
    assert found[0] == pytest.approx(total / (until - since), rel=1e-6)


def test_an_oracle_reads_the_future_of_a_machine() -> None:
    """Breaks when the future differs from what the simulator will measure, or a moment from its slot."""
    machines = like_ec2(1)
    ids = np.array([4, 9])
    future = machines.future(ids, 600.0, 300.0, 3)
    for at in range(3):
        since = 600.0 + at * 300
        assert future[:, at] == pytest.approx(machines.speeds(ids, since, since + 300))
        assert future[:, at] == pytest.approx(machines.speeds(ids, since, since))
    assert (steady().speeds(ids, 0.0, 10.0) == 1).all() and (steady().bandwidths(ids, 0.0, 10.0) == 1).all()
    assert steady().slots_s == () and machines.slots_s == (300.0,)
    assert machines.future(ids, 0, 300, 0).shape == (2, 0)


@pytest.mark.parametrize("name", ["traces.csv", "traces.parquet"])
def test_traces_in_files(tmp_path: Path, name: str) -> None:
    """Breaks when a trace is read with other values, in another order, or turned around."""
    traces = generate_traces(3, 20, np.random.default_rng(4))
    table = pa.table({f"trace{at}": row for at, row in enumerate(traces.values)})
    (pq.write_table if name.endswith(".parquet") else csv.write_csv)(table, tmp_path / name)
    again = read_traces(tmp_path / name, 60.0)
    assert again.values == pytest.approx(traces.values, rel=1e-15) and again.slot_s == 60


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n", None),
        ("a,b\n", "no rows"),
        ("a,b\n1,\n", "column b must contain a number"),
        ("a,b\n1,x\n", "column b must contain a number"),
        ("a,b\n1,-2\n", "numbers must be finite and 0 or more"),
        ("a,b\n1,inf\n", "numbers must be finite and 0 or more"),
        ("a,b\n1\n", "Expected 2 columns"),
    ],
)
def test_files_that_hold_no_traces(tmp_path: Path, text: str, told: str | None) -> None:
    """Breaks when a bad file gives a stack trace, or a run with nonsense in it."""
    path = tmp_path / "traces.csv"
    path.write_text(text)
    if told is None:
        assert read_traces(path).values.tolist() == [[1.0], [2.0]]
        return
    with pytest.raises(InputError, match=told):
        read_traces(path)


def test_what_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_traces(tmp_path / "none.csv")
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(InputError, match=r"bad\.parquet"):
        read_traces(tmp_path / "bad.parquet")
    for values, slot_s in ((np.ones(3), 1.0), (np.ones((2, 0)), 1.0), (-np.ones((1, 1)), 1.0), (np.ones((1, 1)), 0.0)):
        with pytest.raises(InputError):
            Traces(values, slot_s)

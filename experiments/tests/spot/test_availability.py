"""Traces of whether machines were to be had: reading, slots, chains."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.spot.availability import Availability, read_availability
from goffish.cloud.prices import seconds_of
from goffish.errors import FormatError, InputError


def test_shared_trace() -> None:
    """The numbers of the file, its day, and that 1 is available: western zones had machines most of the time (§2.2)."""
    name = "availability_1-node_aws-02-15-2023_us-west-2b_v100_1.json.gz"
    file = Path(__file__).parents[3] / "tests" / "data" / name
    trace = read_availability(file)
    data = json.loads(gzip.decompress(file.read_bytes()))["data"]
    assert trace.values.tolist() == data and trace.gap_s == 195 and trace.start == seconds_of("2023-02-15")
    assert trace.share == pytest.approx(0.905, abs=0.001) and trace.end == trace.start + 195 * len(data)
    assert trace.name == file.name.removesuffix(".json.gz")


def test_several_machines(tmp_path: Path) -> None:
    """All of them are needed unless fewer are asked for; other keys are ignored."""
    path = tmp_path / "preemption_4-node.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [4, 3, 0, 4], "prices": [1, 1, 1, 1]}))
    assert read_availability(path).values.tolist() == [1, 0, 0, 1] and read_availability(path).start == 0
    assert read_availability(path, 3).values.tolist() == [1, 1, 0, 1]
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [0, 0]}))
    assert read_availability(path).values.tolist() == [0, 0]


@given(st.integers(0, 10_000))
def test_slots_against_every_second(seed: int) -> None:
    """Lost if the slot, its end included, has a moment without machines; not to be had if there was none at first."""
    rng = np.random.default_rng(seed)
    gap, slot = int(rng.integers(1, 12)), int(rng.integers(1, 12))
    values = rng.integers(0, 2, 30).astype(np.int8)
    trace = Availability(values, gap, 1000.0)
    slots = trace.in_slots(slot, 0.3, 9.0)
    second = [*np.repeat(values, gap).tolist(), int(values[-1])]
    assert slots.slots == 30 * gap // slot
    for at in range(slots.slots):
        begin, end = at * slot, (at + 1) * slot
        assert slots.prices[at, 0] == (0.3 if second[begin] else 9.0)
        lost = 0 in second[begin : end + 1]
        assert slots.peaks[at, 0] == (np.inf if lost else 0.3)
    if slots.slots < 3:
        return
    part = trace.in_slots(slot, 0.3, 9.0, 1000.0 + slot, 1000.0 + 3 * slot)
    assert part.prices.tolist() == slots.prices[1:4].tolist() and part.peaks.tolist() == slots.peaks[1:3].tolist()


def test_chain_of_a_known_process() -> None:
    """Rates of a long two-state path within 3 standard errors; the dips that slots do not see are the hazard."""
    rng = np.random.default_rng(7)
    leave = (0.05, 0.2)
    values = np.empty(60_000, np.int8)
    state = 1
    for at, draw in enumerate(rng.random(values.size)):
        values[at] = state
        state = 1 - state if draw < leave[1 - state] else state
    trace = Availability(values, 600.0, name="z")
    for estimator in ("slot", "level"):
        one = trace.spot_class(2, 3.0, 600.0, 0.9, estimator=estimator)  # type: ignore[arg-type]
        for bin_, rate in enumerate(leave):
            error = np.sqrt(rate * (1 - rate) / max(1, (values == 1 - bin_).sum()))
            assert abs(one.chain[bin_, 1 - bin_] - rate) < 3 * error + 1e-4
        assert one.hazard == 0 and one.bids.tolist() == [3.0] and one.levels[0] == pytest.approx(0.9)
    single = trace.spot_class(2, 3.0, 600.0, 0.9, estimator="paper").chain
    assert single[0, 1] == pytest.approx(single[1, 0]) == pytest.approx(2 * 0.05 * 0.2 / 0.25, abs=0.005)
    # Three observations in a slot, of which only the first shows in the chain: dips are losses all the same.
    dips = Availability(np.tile(np.array([1, 1, 1, 1, 0, 1], np.int8), 50), 200.0)
    assert dips.spot_class(1, 3.0, 600.0, 0.9).hazard == pytest.approx(0.5, abs=0.01)
    part = dips.between(400.0, 1000.0)
    assert part.values.tolist() == [1, 1, 0] and part.start == 400.0


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, match in (
        ("[", r"x\.json:1: is no spot trace"),
        ("[]", "metadata.gap_seconds and data"),
        ('{"metadata": {"gap_seconds": 1}, "data": [0, -1]}', "0 or more"),
        ('{"metadata": {"gap_seconds": 1}, "data": [0.5]}', "numbers of machines"),
        ('{"metadata": {"gap_seconds": 1}, "data": []}', "numbers of machines"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=match):
            read_availability(path)
    path.write_text('{"metadata": {"gap_seconds": 0}, "data": [1]}')
    with pytest.raises(InputError, match="more than 0"):
        read_availability(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_availability(tmp_path / "none.json")
    with pytest.raises(InputError, match="at least one is needed"):
        path.write_text('{"metadata": {"gap_seconds": 1}, "data": [1]}')
        read_availability(path, 0)
    trace = Availability(np.ones(9, np.int8), 1.0)
    with pytest.raises(InputError, match="must be the greater"):
        trace.in_slots(1.0, 0.5, 0.5)
    with pytest.raises(InputError, match="does not reach"):
        trace.between(0.0, 20.0)
    with pytest.raises(InputError, match="must be cheaper"):
        trace.spot_class(1, 0.5, 1.0, 0.5)
    with pytest.raises(InputError, match="each 0 or 1"):
        Availability(np.full(3, 2, np.int8), 1.0)

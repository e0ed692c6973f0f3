"""Price traces: readers, change points, slots."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.errors import InputError
from goffish.services.spot import prices
from goffish.services.spot.histories import read_prices
from goffish.services.spot.prices import SlotPrices, Trace, in_slots, read_csv, seconds_of, trace_of
from tests.graph.graph_helpers import data_file

DAY = seconds_of("2015-07-01")


def test_observations_become_changes() -> None:
    """Breaks when order, repetitions, or several prices at a time are treated otherwise than they should be."""
    trace = trace_of([30, 10, 20, 20, 50], [2.0, 1.0, 9.0, 2.0, 2.0])
    assert trace.times.tolist() == [10, 20] and trace.prices.tolist() == [1, 2] and trace.end == 50
    assert trace.durations().tolist() == [10, 30]
    assert trace.at(np.array([10.0, 19.0, 20.0, 50.0])).tolist() == [1, 1, 2, 2]
    part = trace.between(15, 40)
    assert (part.times.tolist(), part.prices.tolist(), part.end) == ([15, 20], [1, 2], 40)
    with pytest.raises(InputError, match="reaches from"):
        trace.between(5, 40)


@given(st.integers(0, 10_000))
def test_slots_against_every_second(seed: int) -> None:
    """O-7: a price counts in the slot in which it is in force, however short: against a price for every second."""
    rng = np.random.default_rng(seed)
    times = np.append(0, np.sort(rng.choice(np.arange(1, 100), 12, replace=False)))
    trace = trace_of([*times, 100], [*rng.integers(1, 6, 13), 1])
    found = in_slots([trace], 10, 0, 99)
    second = trace.at(np.arange(101.0))
    assert found.slots == 9 and found.prices[:, 0].tolist() == second[:91:10].tolist()
    assert found.peaks[:, 0].tolist() == [second[at : at + 11].max() for at in range(0, 90, 10)]


def test_a_spike_between_slots_is_a_peak() -> None:
    """O-7: breaks when a machine survives a price above its bid because that was over at the end of the slot."""
    trace = trace_of([0, 602, 603, 1800], [0.01, 5.0, 0.02, 0.02])
    found = in_slots([trace], 600, 0, 1800)
    assert found.prices[:, 0].tolist() == [0.01, 0.01, 0.02, 0.02]
    assert found.peaks[:, 0].tolist() == [0.01, 5.0, 0.02]
    path = SlotPrices.of_path(found.prices)
    assert path.peaks[:, 0].tolist() == [0.01, 0.02, 0.02]
    with pytest.raises(InputError, match="no slot"):
        in_slots([trace], 600, 0, 500)
    with pytest.raises(InputError, match="reaches from"):
        in_slots([trace], 600, 0, 2400)


def test_csv(tmp_path: Path) -> None:
    """Both packings, in UTC; a damaged line is named."""
    text = "timestamp_utc,price_usd_per_hour\n2015-07-01 00:00:00,0.02\n2015-07-01 01:00:00,0.03\n"
    plain, packed = tmp_path / "a.csv", tmp_path / "b.csv.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        trace = read_csv(path)
        assert trace.times.tolist() == [DAY, DAY + 3600] and trace.prices.tolist() == [0.02, 0.03]
        assert trace.name == path.name[0]
    plain.write_text(text + "yesterday,0.1\n")
    with pytest.raises(InputError, match=r"a\.csv:4: a time and a price"):
        read_csv(plain)
    plain.write_text("when,what\n")
    with pytest.raises(InputError, match="timestamp_utc"):
        read_csv(plain)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        read_csv(packed)
    with pytest.raises(InputError, match="GOFFISH_DATA"):
        read_csv(tmp_path / "none.csv")


def test_aws(tmp_path: Path) -> None:
    """The newest entry comes first, and several classes are mixed."""

    def entry(kind: str, time: str, price: str) -> dict[str, str]:
        zone = {"AvailabilityZone": "us-east-1a", "ProductDescription": "Linux/UNIX"}
        return {**zone, "InstanceType": kind, "Timestamp": time, "SpotPrice": price}

    path = tmp_path / "history.json"
    entries = [
        entry("c5.large", "2015-07-01T02:00:00+00:00", "0.0300"),
        entry("m5.large", "2015-07-01T01:00:00.000Z", "0.0500"),
        entry("c5.large", "2015-07-01T00:00:00+00:00", "0.0200"),
    ]
    path.write_text(json.dumps({"SpotPriceHistory": entries}))
    found = read_prices(path)
    assert list(found) == ["us-east-1a-Linux/UNIX-c5.large", "us-east-1a-Linux/UNIX-m5.large"]
    first = found["us-east-1a-Linux/UNIX-c5.large"]
    assert first.times.tolist() == [DAY, DAY + 7200] and first.prices.tolist() == [0.02, 0.03]
    for text in ("[]", "{", '{"SpotPriceHistory": [{"SpotPrice": "1"}]}'):
        path.write_text(text)
        with pytest.raises(InputError, match="describe-spot-price-history"):
            read_prices(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_prices(tmp_path / "none.json")


def test_shared_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the traces of 2015 are not found, or not read whole."""
    file = data_file("spot-prices/us-east-1b-Linux-m3.medium.csv.gz")
    monkeypatch.setenv("GOFFISH_DATA", str(file.parents[1]))
    trace = prices.shared_trace("us-east-1b-Linux-m3.medium")
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()[1:]
    assert prices.moment_text(trace.start) == lines[0][:16] and prices.moment_text(trace.end) == lines[-1][:16]
    changes = [line.split(",")[1] for line in lines]
    assert trace.prices.size >= len({*changes}) and trace.prices[0] == float(changes[0])
    assert trace.prices[-1] == float(changes[-1]) and (np.diff(trace.prices) != 0).all()


def test_bad_traces() -> None:
    """Breaks when a trace that means nothing gets as far as a model."""
    for times, values in (([], []), ([0.0, 1.0], [1.0]), ([0.0], [-1.0]), ([0.0], [np.nan])):
        with pytest.raises(InputError, match="price trace"):
            trace_of(times, values, "x")
    with pytest.raises(InputError, match="ascend"):
        Trace(np.array([1.0, 0.0]), np.array([1.0, 2.0]), 3.0)
    with pytest.raises(InputError, match="one at the end"):
        SlotPrices(np.ones((3, 1)), np.ones((3, 1)))

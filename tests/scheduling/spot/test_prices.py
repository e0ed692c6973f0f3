"""Price traces: readers, change points, slots."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud import prices
from goffish.cloud.availability import read_availability
from goffish.cloud.price_files import read_prices
from goffish.cloud.prices import SlotPrices, Trace, in_slots, read_csv, seconds_of, trace_of
from goffish.errors import InputError
from tests.scheduling.spot.spot_cases import path_prices

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
    path = path_prices(found.prices)
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
    with pytest.raises(
        InputError, match=r"a\.csv:4: expected a time in ISO 8601, of the years 1970 to 2099, and a price"
    ):
        read_csv(plain)
    plain.write_text("when,what\n")
    with pytest.raises(InputError, match="timestamp_utc"):
        read_csv(plain)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot read prices"):
        read_csv(packed)
    with pytest.raises(InputError, match="cannot read prices"):
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
    with pytest.raises(InputError, match="cannot read prices"):
        read_prices(tmp_path / "none.json")


def test_bundled_traces() -> None:
    """Breaks when a bundled trace is missing, or not read whole: values copied from the published files."""
    assert len(prices.bundled_traces()) == 10
    trace = prices.bundled_trace("us-east-1b-Linux-m3.medium")
    assert prices.moment_text(trace.start) == "2015-03-12 10:13" and trace.prices[0] == 0.452
    assert prices.moment_text(trace.end) == "2015-08-31 10:24" and trace.prices[-1] == 0.01
    assert (np.diff(trace.prices) != 0).all() and trace.prices.size > 3000
    with pytest.raises(InputError, match=r"unknown price trace 'gold'; bundled traces: us-east-1a-Linux-c3\.xlarge, "):
        prices.bundled_trace("gold")


def test_bad_traces() -> None:
    """Breaks when a trace that means nothing gets as far as a model."""
    for times, values in (([], []), ([0.0, 1.0], [1.0]), ([0.0], [-1.0]), ([0.0], [np.nan])):
        with pytest.raises(InputError, match="price trace"):
            trace_of(times, values, "x")
    with pytest.raises(InputError, match="ascend"):
        Trace(np.array([1.0, 0.0]), np.array([1.0, 2.0]), 3.0)
    with pytest.raises(InputError, match="one at the end"):
        SlotPrices(np.ones((3, 1)), np.ones((3, 1)))


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["0001-01-01,0.1"], "a.csv:3: expected a time in ISO 8601, of the years 1970 to 2099"),
        (["9999-12-31T23:00,0.1"], "a.csv:3: expected a time in ISO 8601, of the years 1970 to 2099"),
        (["0001-01-01T00:00+05:00,0.1"], "a.csv:3: expected a time in ISO 8601, of the years"),
        (
            ["2015-07-02,0.1", "2015-07-01,0.3"],
            "a.csv:4: the time is repeated, as in line 2; expected one price for each",
        ),
    ],
)
def test_times_that_are_refused(tmp_path: Path, rows: list[str], told: str) -> None:
    """One row of the year 1 made a history of a billion slots."""
    (tmp_path / "a.csv").write_text("\n".join(["timestamp_utc,price_usd_per_hour", "2015-07-01,0.2", *rows]) + "\n")
    with pytest.raises(InputError, match=re.escape(told)):
        read_csv(tmp_path / "a.csv")


def test_long_periods_are_refused() -> None:
    trace = Trace(np.array([0.0]), np.array([1.0]), 1e9)
    with pytest.raises(
        InputError, match=r"16,666,666 slots of 60 s .*; at most 2,000,000 are supported: use a shorter"
    ):
        in_slots([trace], 60.0, 0.0, 1e9)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Messages have no texts of Python's exceptions."""
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.csv.gz").write_bytes(b"no")
    for name, why in (("a.csv", "is not a text in UTF-8"), ("b.csv.gz", "is damaged"), ("", "Is a directory")):
        for read in (read_csv, read_prices, read_availability):
            with pytest.raises(InputError, match=rf"\({why}\)"):
                read(tmp_path / name)

"""Availability of spot machines: the files, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goffish.cloud.availability import Availability, read_availability
from goffish.cloud.catalogue import read_catalogue
from goffish.cloud.prices import UNAVAILABLE, in_slots, seconds_of
from goffish.cloud.spot_market import SpotMarket, machine_trace
from goffish.errors import FormatError, InputError

DATA = Path(__file__).parents[2] / "data"


def every(gap: float, values: list[int], start: float = 0.0) -> Availability:
    """Values at equal distances."""
    times = start + gap * np.arange(len(values) + 1.0)
    return Availability(times[:-1], np.array(values) > 0, float(times[-1]), "z")


def test_a_real_trace() -> None:
    """The numbers of the file, its day, and that 1 is available: western zones had machines most of the time (§2.2)."""
    file = DATA / "v100-us-west-2b-02-15-2023.json.gz"
    found = read_availability(file)
    data = json.loads(gzip.decompress(file.read_bytes()))["data"]
    assert found.available.tolist() == [one == 1 for one in data]
    assert found.start == seconds_of("2023-02-15") and found.times[1] == found.start + 195
    assert found.share == pytest.approx(0.905, abs=0.001) and found.end == found.start + 195 * len(data)
    assert found.name == file.name.removesuffix(".json.gz")


def test_counts(tmp_path: Path) -> None:
    """One machine is enough unless more are required; other keys are ignored."""
    path = tmp_path / "preemption_4-node.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [4, 3, 0, 4], "prices": [1, 1, 1, 1]}))
    assert read_availability(path).available.tolist() == [True, True, False, True]
    assert read_availability(path).start == 0
    assert read_availability(path, 4).available.tolist() == [True, False, False, True]


def test_csv(tmp_path: Path) -> None:
    """Rows at any distance hold until the next one; the last one marks the end."""
    path = tmp_path / "zone.csv"
    path.write_text("timestamp_utc,available\n2024-05-01T00:00,1\n2024-05-01T01:00,0\n\n2024-05-01T04:00,7\n")
    found = read_availability(path)
    begin = seconds_of("2024-05-01")
    assert found.times.tolist() == [begin, begin + 3600] and found.end == begin + 4 * 3600
    assert found.available.tolist() == [True, False] and found.share == 0.25 and found.name == "zone"
    (tmp_path / "zone.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_availability(tmp_path / "zone.csv.gz").times.tolist() == found.times.tolist()


@given(st.integers(0, 10_000))
def test_slots_against_every_second(seed: int) -> None:
    """Lost if the slot, its end included, has a time without machines; refused if there was none at its start."""
    rng = np.random.default_rng(seed)
    gap, slot = int(rng.integers(1, 12)), int(rng.integers(1, 12))
    values = rng.integers(0, 2, 30).tolist()
    trace = every(gap, values, 1000.0).trace(0.3)
    slots = in_slots([trace], slot, trace.start, trace.end)
    second = [*np.repeat(values, gap).tolist(), values[-1]]
    assert slots.slots == 30 * gap // slot
    for at in range(slots.slots):
        begin, end = at * slot, (at + 1) * slot
        assert slots.prices[at, 0] == (0.3 if second[begin] else UNAVAILABLE)
        assert slots.peaks[at, 0] == (UNAVAILABLE if 0 in second[begin : end + 1] else 0.3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a SkyPilot spot trace"),
        ("[", r"x:1: expected a SkyPilot spot trace"),
        ("[]", "metadata.gap_seconds and data are required"),
        ('{"metadata": {"gap_seconds": 1}}', "metadata.gap_seconds and data are required"),
        ('{"metadata": {"gap_seconds": "x"}, "data": [1]}', "metadata.gap_seconds and data are required"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "must be greater than 0"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1]}', "must be greater than 0"),
        ('{"metadata": {"gap_seconds": Infinity}, "data": [1]}', "must be greater than 0"),
        *(
            (f'{{"metadata": {{"gap_seconds": 1}}, "data": {data}}}', "data: expected numbers of machines")
            for data in ("[0, -1]", "[0.5]", "[]", "[1, NaN]", "[[1], [0]]", '["1"]', "[true]", "3", "[1, null]")
        ),
        ('{"metadata": {"gap_seconds": 1}, "data": [[1], [0, 1]]}', "metadata.gap_seconds and data are required"),
        ("timestamp_utc,price_usd_per_hour\n2024-05-01,1\n", "x:1: expected a SkyPilot spot trace"),
        ("timestamp_utc,available\n", "at least two rows"),
        ("timestamp_utc,available\n2024-05-01,1\n", "at least two rows"),
        (
            "timestamp_utc,available\n2024-05-01,1\n2024-05-02,nan\n",
            "x:3: expected a time in ISO 8601, of the years 1970 to 2099, and 0, 1",
        ),
        ("timestamp_utc,available\n2024-05-01,-1\n2024-05-02,1\n", "x:2: expected a time in ISO 8601"),
        ("timestamp_utc,available\n0001-01-01,1\n2024-05-01,0\n", "x:2: expected a time in ISO 8601, of the years"),
        ("timestamp_utc,available\n2024-05-01,1\n9999-01-01,0\n", "x:3: expected a time in ISO 8601, of the years"),
        ("timestamp_utc,available\nsoon,1\n", "x:2: expected a time in ISO 8601"),
        ("timestamp_utc,available\n2024-05-01\n", "x:2: expected a time in ISO 8601"),
        ("timestamp_utc,available\n2024-05-01,1\n2024-05-01,0\n", "x:3: times must ascend"),
        ("timestamp_utc,available\n2024-05-02,1\n2024-05-01,0\n", "x:3: times must ascend"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(FormatError, match=told):
        read_availability(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read availability"):
        read_availability(tmp_path / "none.json")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(b'{"metadata": {"gap_seconds": 1}, "data": [1, 0]}')[:-9])
    with pytest.raises(InputError, match="cannot read availability"):
        read_availability(cut)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read availability"):
        read_availability(tmp_path / "b.csv")
    (tmp_path / "aws-13-45-2023.json").write_text('{"metadata": {"gap_seconds": 1}, "data": [1, 0]}')
    with pytest.raises(InputError, match="13-45-2023 in the name is not a date"):
        read_availability(tmp_path / "aws-13-45-2023.json")
    with pytest.raises(InputError, match="machines = 0: must be at least 1"):
        read_availability(cut, 0)
    with pytest.raises(InputError, match="spot price nan"):
        every(1.0, [1]).trace(float("nan"))
    with pytest.raises(InputError, match="times must ascend"):
        Availability(np.array([1.0, 1.0]), np.ones(2, bool), 3.0)
    with pytest.raises(InputError, match="must end after"):
        Availability(np.array([1.0]), np.ones(1, bool), 1.0)


def cloud(folder: Path, **fields: object) -> Path:
    """A catalogue with one spot machine type, available for the second and third of four hours."""
    rows = "".join(f"2024-05-01T0{hour}:00,{value}\n" for hour, value in enumerate((0, 1, 1, 0, 0)))
    (folder / "zone.csv").write_text("timestamp_utc,available\n" + rows)
    prices = "".join(f"2024-05-0{day},{price}\n" for day, price in ((1, 0.2), (2, 0.4), (3, 0.4)))
    (folder / "prices.csv").write_text("timestamp_utc,price_usd_per_hour\n" + prices)
    one = {"name": "a", "cores": 2, "price_per_hour": 1.0, "market": "spot", "availability": "zone.csv"} | fields
    (folder / "cloud.yaml").write_text(json.dumps({"machine_types": [one], "billing": {"quantum_s": 1}}))
    return folder / "cloud.yaml"


def test_machine_types_of_a_catalogue(tmp_path: Path) -> None:
    """Paths are relative to the catalogue; the price is that of the period, or of all prices if they end before."""
    catalogue = read_catalogue(cloud(tmp_path, prices="prices.csv", zone="us-west-2a"))
    assert machine_trace(catalogue.classes[0]).prices.tolist() == [UNAVAILABLE, 0.2, UNAVAILABLE]
    given = read_catalogue(cloud(tmp_path, spot_price_per_hour=0.3))
    assert machine_trace(given.classes[0]).prices.tolist() == [UNAVAILABLE, 0.3, UNAVAILABLE]
    early = read_catalogue(cloud(tmp_path, prices="prices.csv"))
    (tmp_path / "prices.csv").write_text(
        "timestamp_utc,price_usd_per_hour\n2020-01-01,0.2\n2020-01-02,0.4\n2020-01-03,0.4\n"
    )
    assert machine_trace(early.classes[0]).prices.tolist()[1] == pytest.approx(0.3)


def test_a_simulated_market_follows_availability(tmp_path: Path) -> None:
    """Machines are granted while available, even at a spot price above on demand, and interrupted at its end."""
    market = SpotMarket(read_catalogue(cloud(tmp_path, spot_price_per_hour=1.5)))
    assert not market.priced(0.0).available[0] and market.priced(3600.0).available[0]
    assert market.taken_s(0, 4000.0) == 3 * 3600.0 and market.taken_s(0, 0.0) == 0.0
    hour = np.array([3600.0])
    assert market.rents(np.array([0]), hour, 2 * hour, np.array([False])).tolist() == pytest.approx([1.5])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "availability requires either prices or spot_price_per_hour"),
        ({"prices": "p", "spot_price_per_hour": 1}, "availability requires either prices or spot_price_per_hour"),
        ({"spot_price_per_hour": -1}, "spot_price_per_hour"),
        ({"spot_price_per_hour": 1, "bid": 1}, "bid: not used with availability"),
        ({"availability": None, "prices": "p", "spot_price_per_hour": 1}, "spot_price_per_hour requires availability"),
        ({"market": "on-demand", "spot_price_per_hour": 1}, "availability, spot_price_per_hour: requires market: spot"),
        ({"market": "on-demand", "availability": None, "zone": "z"}, "zone: requires market: spot"),
        ({"availability": None}, "market spot requires prices"),
    ],
)
def test_wrong_machine_types(tmp_path: Path, fields: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_catalogue(cloud(tmp_path, **fields))

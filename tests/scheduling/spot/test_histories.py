"""Price histories in the formats that AWS and its users produce: all of them say the same."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goffish.cloud.price_files import read_prices
from goffish.cloud.prices import seconds_of
from goffish.errors import FormatError, InputError

DAY = seconds_of("2024-05-01")
LINUX, SUSE = "us-east-1a-Linux/UNIX-c5.large", "us-west-2b-SUSE Linux-m5.large"
#: As AWS prints it: the newest first, classes mixed, one row twice.
ROWS = [
    ("us-east-1a", "c5.large", "Linux/UNIX", "0.030000", "2024-05-01T02:00:00+00:00"),
    ("us-west-2b", "m5.large", "SUSE Linux", "0.050000", "2024-05-01T01:30:00.000Z"),
    ("us-east-1a", "c5.large", "Linux/UNIX", "0.025000", "2024-05-01T01:00:00+00:00"),
    ("us-east-1a", "c5.large", "Linux/UNIX", "0.025000", "2024-05-01T01:00:00+00:00"),
    ("us-east-1a", "c5.large", "Linux/UNIX", "0.020000", "2024-05-01T00:00:00+00:00"),
]
FIELDS = ("AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp")


def _text(rows: list[tuple[str, ...]]) -> str:
    return "".join("\t".join(("SPOTPRICEHISTORY", *row)) + "\n" for row in rows)


def _csv(rows: list[tuple[str, ...]], order: tuple[int, ...], header: bool, quote: str) -> str:
    lines = [FIELDS] * header + rows
    return "".join(",".join(f"{quote}{line[at]}{quote}" for at in order) + "\n" for line in lines)


def _formats(rows: list[tuple[str, ...]]) -> dict[str, str]:
    entries = [dict(zip(FIELDS, row, strict=True)) for row in rows]
    return {
        "answer.json": json.dumps({"SpotPriceHistory": entries, "NextToken": ""}),
        "list.json": json.dumps(entries),
        "text.txt": _text(rows),
        "longer.txt": _text([(row[0], "use1-az1", *row[1:]) for row in rows]) + "NEXTTOKEN\tabc\n",
        "headed.csv": _csv(rows, (4, 3, 1, 0, 2), True, ""),
        "jq.csv": _csv(rows, (0, 1, 2, 3, 4), True, '"'),
        "headless.csv": _csv(rows, (4, 0, 1, 2, 3), False, '"'),
        "crlf.csv": "\ufeff" + _csv(rows, (2, 1, 0, 4, 3), True, "").replace("\n", "\r\n"),
    }


@pytest.mark.parametrize("name", _formats(ROWS))
@pytest.mark.parametrize("packed", [False, True])
def test_all_formats_say_the_same(tmp_path: Path, name: str, packed: bool) -> None:
    """Breaks when a format is taken for another one, or a column for another one."""
    path = tmp_path / (name + ".gz" * packed)
    data = _formats(ROWS)[name].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    found = read_prices(path)
    assert list(found) == [LINUX, SUSE]
    assert found[LINUX].times.tolist() == [DAY, DAY + 3600, DAY + 7200]
    assert found[LINUX].prices.tolist() == [0.02, 0.025, 0.03] and found[LINUX].name == LINUX
    assert found[SUSE].times.tolist() == [DAY + 5400] and found[SUSE].prices.tolist() == [0.05]


@given(st.permutations(ROWS))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_order_does_not_matter(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    """Rows in any order, where no time has two prices."""
    path = tmp_path / "x"
    for text in _formats(rows).values():
        path.write_text(text)
        assert read_prices(path)[LINUX].prices.tolist() == [0.02, 0.025, 0.03]


def test_two_prices_at_one_time(tmp_path: Path) -> None:
    """The newest counts: the first of a list from new to old, the last of one from old to new."""
    path = tmp_path / "x"
    again = ("us-east-1a", "c5.large", "Linux/UNIX", "0.9", ROWS[2][4])
    path.write_text(_text([ROWS[0], again, ROWS[2], ROWS[4]]))
    assert read_prices(path)[LINUX].prices.tolist() == [0.02, 0.9, 0.03]
    path.write_text(_text([ROWS[4], again, ROWS[2], ROWS[0]]))
    assert read_prices(path)[LINUX].prices.tolist() == [0.02, 0.025, 0.03]


def test_less_columns(tmp_path: Path) -> None:
    """A name is made up of what is told; our own format holds one trace."""
    path = tmp_path / "mine.csv"
    path.write_text("Timestamp,SpotPrice,InstanceType\n2024-05-01T00:00:00Z,0.1,c5.large\n")
    assert list(read_prices(path)) == ["c5.large"]
    path.write_text("timestamp_utc,price_usd_per_hour\n2024-05-01 00:00:00,0.02\n2024-05-01 01:00:00,0.03\n")
    found = read_prices(path)
    assert list(found) == ["mine"] and found["mine"].times.tolist() == [DAY, DAY + 3600]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (_text(ROWS) + "SPOTPRICEHISTORY\tus-east-1a\n", r"x:6: expected SPOTPRICEHISTORY, zone"),
        (_text(ROWS).replace("0.050000", "cheap"), r"x:2: expected a time .* cheap'"),
        (_text(ROWS).replace("2024-05-01T02", "yesterday"), r"x:1: expected a time"),
        (_csv(ROWS, (0, 1, 2, 3, 4), True, "").replace("0.050000", "-1"), r"x:3: .* at least 0"),
        (_csv(ROWS, (0, 1, 2, 3, 4), True, "").replace("0.050000", "1e300"), r"x:3: .* less than 1e\+09"),
        ("timestamp_utc,price_usd_per_hour\n2024-05-01,1\n2024-05-02,nan\n", "x:3: the price must be at least 0"),
        ("timestamp_utc,price_usd_per_hour\n2024-05-01,1e300\n", r"x:2: .* less than 1e\+09"),
        (_csv(ROWS, (0, 1, 2, 3, 4), True, "").replace("0.020000", "nan"), r"x:6: "),
        (_csv(ROWS, (0, 1, 2, 3, 4), True, "") + "us-east-1a,c5.large\n", r"x:7: expected 5 columns"),
        ("when,what\n1,2\n", r"x:1: .*SpotPrice and Timestamp"),
        ('{"SpotPriceHistory": [{"SpotPrice": "1"}]}', "entry 1 has no SpotPrice and Timestamp"),
        ('{\n"SpotPriceHistory": [', r"x:2: is not a price history \(timestamp_utc,price_usd_per_hour, or aws"),
        ('{"History": []}', "SpotPriceHistory is missing"),
        ('{"SpotPriceHistory": []}', "no prices found"),
        ("", "no prices found"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, match: str) -> None:
    """Breaks when a damaged row gets through, or is not named."""
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(FormatError, match=match):
        read_prices(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(_text(ROWS).encode())[:-9])
    for one in (path, tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="cannot read prices"):
            read_prices(one)
    path = tmp_path / "y"
    path.write_bytes(np.arange(256, dtype=np.uint8).tobytes())
    with pytest.raises(InputError, match="cannot read prices"):
        read_prices(path)

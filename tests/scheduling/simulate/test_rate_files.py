"""Files of rates: resampled against sums by hand, logs against counts, and what is refused, by line."""

from __future__ import annotations

import gzip
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goffish.errors import FormatError, GoffishWarning, InputError
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.simulate.rates import read_rates
from tests.scheduling.simulate.policies import chain

ONE = chain(0.1, 0.1, rate=5.0)
ROAD = compile_flow(read_dataflow("linear-road"))
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def read(path: Path, *given: Any, **options: Any) -> list[float]:
    """The rates of the input of `ONE`, in intervals of 5 minutes."""
    found = read_rates(path, ONE, *given, **{"interval_s": 300.0, **options})
    assert (found[:, 1] == 0).all()
    return [float(rate) for rate in found[:, 0]]


def moments(minutes: list[float]) -> list[str]:
    return [(BEGIN + timedelta(minutes=at)).isoformat() for at in minutes]


def write(path: Path, header: str, *rows: Any) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_rows_of_a_minute_become_intervals(tmp_path: Path) -> None:
    """Breaks when a row is one interval whatever its duration, or scale and offset are not those of the file."""
    minutes = np.arange(1.0, 21.0)
    path = write(tmp_path / "r.csv", "requests,users", *((value, 7) for value in minutes))
    by_hand = minutes.reshape(4, 5).mean(axis=1)
    assert read(path, column="requests", every_s=60.0) == pytest.approx(by_hand)
    assert read(path, 2, column="requests", every_s=60.0, scale=0.5) == pytest.approx(by_hand[:2] / 2)
    late = minutes[7:17].reshape(2, 5).mean(axis=1)
    assert read(path, column="requests", every_s=60.0, offset_s=420.0) == pytest.approx(late)
    # From the middle of a row: half of minute 3, minutes 4 to 7, half of minute 8.
    assert read(path, 1, column="requests", every_s=60.0, offset_s=150.0) == pytest.approx([5.5])
    assert read(path, 3, column="requests") == [1, 2, 3], "without a duration, a row is an interval"
    assert read(path, 4, column="requests", every_s=900.0) == pytest.approx([1, 1, 1, 2])


def test_columns_of_inputs_and_of_a_total(tmp_path: Path) -> None:
    """Breaks when a stream lands on another input, or a total is not shared by the expected rates (0.1 and 50)."""
    weather, reports = ROAD.names.index("weather"), ROAD.names.index("reports")
    path = write(
        tmp_path / "r.csv", "timestamp,reports,total", *zip(moments([0, 5, 10]), (10, 20, 30), (501, 0, 1), strict=True)
    )
    total = read_rates(path, ROAD, column="total")
    assert total[:, reports] == pytest.approx([500, 0, 50 / 50.1]) and total[:, weather] == pytest.approx(
        [1, 0, 0.1 / 50.1]
    )
    path = write(tmp_path / "r.csv", "timestamp,reports", *zip(moments([0, 5, 10]), (10, 20, 30), strict=True))
    named = read_rates(path, ROAD, scale=2.0)
    assert named[:, reports].tolist() == [20, 40, 60] and (named[:, weather] == 0.1).all()
    silent = ROAD.with_rates(np.zeros(ROAD.size))
    assert read_rates(write(tmp_path / "r.csv", "x", [4]), silent, column="x")[0, [weather, reports]].tolist() == [2, 2]


@pytest.mark.parametrize("kind", ["iso", "zone", "seconds", "parquet", "gzip"])
def test_timestamps(tmp_path: Path, kind: str) -> None:
    """Rows in any order, each until the next one; by hand. Breaks when positions count instead of times."""
    at, values = [0, 3, 5, 10, 20], [10.0, 20.0, 4.0, 8.0, 6.0]
    expected = [(10 * 3 + 20 * 2) / 5, 4.0, 8.0, 8.0, 6.0]
    order = [3, 0, 4, 1, 2]
    texts = moments([float(minute) for minute in at])
    if kind == "zone":
        texts = [(BEGIN + timedelta(minutes=minute)).astimezone().isoformat().replace("+00:00", "Z") for minute in at]
    if kind == "seconds":
        texts = [f"{(BEGIN + timedelta(minutes=minute)).timestamp():.1f}" for minute in at]
    rows = [(texts[row], values[row]) for row in order]
    path = write(tmp_path / "r.csv", "Timestamp,rate", *rows)
    if kind == "gzip":
        path = tmp_path / "r.csv.gz"
        path.write_bytes(gzip.compress((tmp_path / "r.csv").read_bytes()))
    if kind == "parquet":
        path = tmp_path / "r.parquet"
        times = pa.array([BEGIN + timedelta(minutes=at[row]) for row in order], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"when": times, "rate": [values[row] for row in order]}), path)
    assert read(path, column="rate", every_s=300.0) == pytest.approx(expected)
    # Without a duration, the last row lasts as long as the median one: (3, 2, 5, 10 -> 4 minutes), too short.
    assert read(path, column="rate") == pytest.approx(expected[:4])


def test_gaps_are_reported(tmp_path: Path) -> None:
    """Breaks when an hour without rows passes in silence; the line is that of the row after it."""
    path = write(tmp_path / "r.csv", "time,rate", *zip(moments([0, 1, 2, 63, 64, 129]), range(6), strict=True))
    with pytest.warns(GoffishWarning, match=r"r\.csv:5: gap of 3660 s, the first of 2; the rate before it is kept$"):
        found = read(path, column="rate", interval_s=60.0)
    assert found[:3] == [0, 1, 2] and found[3:63] == [2.0] * 60 and found[63] == 3
    steady = write(tmp_path / "s.csv", "time,rate", *zip(moments([0, 1, 2]), range(3), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(steady, column="rate", interval_s=60.0)


@pytest.mark.parametrize("kind", ["timestamps", "headerless", "column", "parquet"])
def test_events_are_counted(tmp_path: Path, kind: str) -> None:
    """Counts by a histogram; an event at a boundary belongs to the interval that begins."""
    seconds = np.sort(np.random.default_rng(4).choice(3600, 900, replace=False)).astype(float)
    seconds[0], seconds[-1] = 0.0, 3599.0
    texts = [(BEGIN + timedelta(seconds=at)).isoformat() for at in seconds]
    path, column = tmp_path / "events.csv", None
    if kind == "timestamps":
        write(path, "timestamp", *zip(texts, strict=True))
    elif kind == "headerless":
        path.write_text("\n".join(reversed(texts)))
    elif kind == "column":
        write(path, "user,when", *(("me", text) for text in texts))
        column = "when"
    else:
        path = tmp_path / "events.parquet"
        pq.write_table(pa.table({"timestamp": (seconds + 1.7e9).tolist()}), path)
    expected = np.histogram(seconds, np.arange(0, 3601, 300))[0] / 300
    assert read(path, column=column) == pytest.approx(expected[:12])
    assert read(path, 5, column=column, offset_s=600.0, scale=3.0) == pytest.approx(3 * expected[2:7])


def test_web_server_logs(tmp_path: Path) -> None:
    """Lines of NASA's log of 1995 and of the combined format, by hand; an unfinished last line is left out."""
    line = '{host} - - [01/Jul/1995:00:{minute:02d}:{second:02d} -0400] "GET /shuttle/ HTTP/1.0" 200 6245{more}'
    lines = [
        line.format(host="199.72.81.55", minute=at // 60, second=at % 60, more=more)
        for at, more in [(1, ""), (6, ' "-" "Mozilla/4.0"'), (299, ""), (298, ""), (301, ""), (540, ""), (601, "")]
    ]
    path = tmp_path / "access.log"
    path.write_bytes("\n".join(lines).encode() + b"\nunicomp6.unicomp.net - - [01/Jul/1995:00:1")
    assert read(path, 2) == pytest.approx([4 / 300, 2 / 300]), "from second 1 to 300, and from 301 to 600"
    path.write_bytes(b"\n".join([*(text.encode() for text in lines), b"\xff\xfe broken", b""]))
    with pytest.raises(FormatError, match=r"access\.log:8: is not a line of the Common Log Format: 'ÿþ broken'"):
        read(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "r.csv: no rows"),
        ("\n\n", "r.csv: no rows"),
        ("time,rate\n", "r.csv: no rows; expected a line with the names of the columns"),
        ("rate\n1\nnan\n", "r.csv:3: rate: expected a number of at least 0 and less than 1e+12: 'nan'"),
        ("rate\n1\n\n-2\n", "r.csv:4: rate: expected a number of at least 0"),
        ("rate\n1e300\n", "r.csv:2: rate: expected a number of at least 0 and less than 1e+12: '1e300'"),
        ("rate\ninf\n", "r.csv:2: rate: expected a number"),
        ("time,rate\n2026-01-01,1\n2026-01-02,\n", "r.csv:3: rate: expected a number"),
        ("rate\nmany\n", "r.csv:2: rate: expected a number of at least 0 and less than 1e+12: 'many'"),
        ("time,rate\n2026-01-01,1\nlater,2\n", "r.csv:3: time: expected a timestamp in ISO 8601 or Unix seconds: 'la"),
        ("time,rate\n2026-01-01,1\n1700000000000,2\n", "r.csv:3: time: expected a timestamp in ISO 8601 or"),
        ("time,rate\n2026-01-01,1\n2026-01-03,2\n2026-01-01,3\n", "r.csv:4: time: the timestamp is repeated"),
        ("time,rate\n2026-01-01,1\n", "r.csv: has one row; give the duration of a row (every)"),
        ("time,load\n2026-01-01,1\n", "r.csv: no column 'rate'; the file has: 'time', 'load'"),
        ("time,rate\n2026-01-01,1,2\n", "r.csv:2: expected 2 columns, found 3: '2026-01-01,1,2'"),
        ("rate,rate\n1,2\n", "r.csv:1: expected the names of the columns, each once: 'rate,rate'"),
        ("1,2\n3,4\n", "r.csv:1: expected the names of the columns, each once: '1,2'"),
        ('rate\n"1\n', "r.csv:2: is not CSV (unexpected end of data)"),
        ("rate\n5\n5\n", "r.csv: covers 600 s; expected at least 1200 s, 4 intervals of 300 s"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """Breaks when a wrong value passes, or is not named by file and line."""
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read(tmp_path / "r.csv", 4, column="rate")
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_other_files_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(128, 256)) * 10)
    (tmp_path / "zeros").write_bytes(b"rate\n\0\0\0\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"rate\n" + b"5\n" * 10_000)[:-20])
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + b"x" * 100)
    pq.write_table(pa.table({"rate": pa.array([], pa.float64())}), tmp_path / "empty.parquet")
    pq.write_table(pa.table({"rate": [1.0, None]}), tmp_path / "null.parquet")
    for name, told in (
        ("binary", "binary: is neither UTF-8 text nor Parquet"), ("zeros", "zeros:2: "),
        ("cut.gz", "cut.gz: the gzip data is damaged"), ("cut.parquet", "cut.parquet: "), ("nowhere", "no such file"),
        ("empty.parquet", "no rows"), ("null.parquet", "null.parquet: row 2: rate: expected a number"),
        (".", "is a directory"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            read(tmp_path / name, column="rate")
        assert told in str(caught.value) and "\n" not in str(caught.value), name
    log = tmp_path / "log"
    log.write_text('a - - [01/Jul/1995:00:00:01 -0400] "GET /" 200 1\n')
    with pytest.raises(InputError, match="is a web-server log, whose lines are counted; it has no column 'rate'"):
        read(log, column="rate")
    with pytest.raises(InputError, match="holds single events, which are counted; a duration of rows"):
        read(log, every_s=60.0)
    events = write(tmp_path / "e.csv", "time,user", ("2026-01-01", 1))
    with pytest.raises(
        InputError, match=r"of an input \(e0\); name the column of the rates: 'user'; to count .* 'time'"
    ):
        read(events)
    rate = write(tmp_path / "r.csv", "rate", [1], [2])
    for options in ({"scale": -1.0}, {"every_s": 0.0}, {"offset_s": -5.0}, {"scale": float("nan")}, {"every_s": 1e300}):
        with pytest.raises(InputError, match=f"{next(iter(options))} = .*: must be at least"):
            read(rate, column="rate", **options)
    with pytest.raises(InputError, match=r"covers 600 s, 0 s from offset 900 s; expected at least 300 s, 1 intervals"):
        read(rate, column="rate", offset_s=900.0)

"""``goffish reservoir``: what its commands print, write and refuse."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import goffish as gf
from tests.commands import Ended, assert_refused, call

VISITS = "t,id,user,pages\n2026-01-05T08:00Z,v1,ann,3\n2026-01-05T09:00Z,v2,bob,1\n2026-01-06T09:00Z,v3,ann,2\n"
ORDERS = "t,id,user\n2026-01-05T08:05Z,o1,ann\n2026-01-06T10:00Z,o2,bob\n"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reservoir with a replica and two related pools; no test changes it."""
    folder = tmp_path_factory.mktemp("reservoir")
    (folder / "visits.csv").write_text(VISITS)
    (folder / "orders.csv").write_text(ORDERS)
    made = call("reservoir", "create", "kept", "--bucket", "1d", "--replica", "copy", "--json", cwd=folder).json
    assert (made["bucket_s"], made["copies"], made["pools"]) == (86_400, 2, {})
    added = call("reservoir", "append", "kept", "visits", "visits.csv", "--json", cwd=folder).json
    assert (added["events"], added["added"]) == (3, 3)
    assert call("reservoir", "append", "kept", "orders", "orders.csv", cwd=folder).out.startswith("kept: 2 of 2 events")
    gf.Reservoir(folder / "kept").relate("bought", source="visits", target="orders", on="user", within="1h")
    return folder


def run(folder: Path, *command: str) -> Ended:
    return call("reservoir", *command, cwd=folder)


def test_repeated_events(filled: Path) -> None:
    """Breaks when a file that is appended twice is in the reservoir twice."""
    again = run(filled, "append", "kept", "visits", "visits.csv")
    assert again.out == "kept: 0 of 3 events added to visits\n"
    described = run(filled, "describe", "kept", "--json").json
    assert described["pools"]["visits"]["events"] == 3 and described["pools"]["visits"]["buckets"] == 2
    assert "user" in run(filled, "describe", "kept").out


@pytest.mark.parametrize(("options", "ids"), [
    ((), ["v1", "o1", "v2", "v3", "o2"]), (("--pool", "visits", "--where", "user=ann"), ["v1", "v3"]),
    (("--pool", "visits", "--where", "pages=1", "--where", "pages=2"), ["v2", "v3"]),
    (("--where", 'pages="1"'), []), (("--start", "2026-01-05T08:05Z", "--end", "2026-01-06"), ["o1", "v2"]),
    (("--pool", "visits", "--related", "bought", "--direction", "out"), ["v1", "o1", "v2", "v3"]),
    (("--pool", "orders", "--where", "id=o2", "--related", "bought"), ["o2"]),
])  # fmt: skip
def test_queries(filled: Path, options: tuple[str, ...], ids: list[str]) -> None:
    found = run(filled, "query", "kept", *options, "--json").json
    assert [one["id"] for one in found["events"]] == ids


def test_a_query_is_written(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "found.parquet"
    ended = run(filled, "query", "kept", "--pool", "visits", "--column", "pages", "-o", str(file))
    assert ended.out == f"3 events written to {file}\n"
    table = pq.read_table(file)
    assert table.column_names == ["pool", "t", "id", "pages"] and table["pages"].to_pylist() == [3, 1, 2]
    printed = run(filled, "query", "kept", "--pool", "orders").out
    assert "2 events" in printed and "o1" in printed


def test_damage_is_repaired(tmp_path: Path) -> None:
    """Breaks when a damaged copy passes, or repair does not bring it back, or a drop leaves events."""
    (tmp_path / "visits.csv").write_text(VISITS)
    run(tmp_path, "create", "kept", "--bucket", "1d", "--replica", "copy")
    run(tmp_path, "append", "kept", "visits", "visits.csv")
    assert run(tmp_path, "verify", "kept").out == "kept: all 6 copies match their checksums\n"
    bucket = sorted((tmp_path / "copy").glob("p*/*.parquet"))[0]
    bucket.write_bytes(bucket.read_bytes()[:-9])
    bad = run(tmp_path, "verify", "kept")
    assert bad.code == 1 and "damaged" in bad.out and "run goffish reservoir repair" in bad.err
    assert run(tmp_path, "repair", "kept", "--json").json["reported"][0]["state"] == "restored"
    assert run(tmp_path, "verify", "kept").code == 0
    assert run(tmp_path, "compact", "kept", "--json").json["buckets"] == 2
    dropped = run(tmp_path, "drop", "kept", "--before", "2026-01-06", "--json").json
    assert (dropped["buckets_before"], dropped["buckets"]) == (2, 1)
    assert [one["id"] for one in run(tmp_path, "query", "kept", "--json").json["events"]] == ["v3"]


@pytest.mark.parametrize(("command", "message"), [
    (("query", "kept", "--pool", "none"), "no pool 'none'; choose from orders, visits"),
    (("query", "kept", "--where", "user"), "--where user: expected NAME=VALUE"),
    (("query", "kept", "--where", "nothing=1"), "no column 'nothing'"),
    (("query", "kept", "--related", "none"), "no relation 'none'; choose from bought"),
    (("query", "kept", "--start", "soon"), "start"), (("query", "kept", "--direction", "up"), "choose one of"),
    (("query", "kept", "--as-type", "pages=number"), "expected an Arrow type"),
    (("query", "kept", "-o", "found.txt"), "found.txt"), (("describe", "nowhere"), "nowhere"),
    (("append", "kept", "visits", "nowhere.csv"), "nowhere.csv"), (("create", "kept"), "choose another folder"),
    (("create", "new", "--copies", "2"), "there are 1 locations"), (("drop", "kept", "--before", "x"), "before"),
    (("append", "copy", "visits", "visits.csv"), "is a replica of"),
])  # fmt: skip
def test_what_is_refused(filled: Path, command: tuple[str, ...], message: str) -> None:
    before = {one: one.stat().st_mtime_ns for one in filled.rglob("*")}
    ended = run(filled, *command)
    assert_refused(ended)
    assert message in ended.err
    assert {one: one.stat().st_mtime_ns for one in filled.rglob("*")} == before

"""Results in object storage: whole objects or none, failed parts of uploads, wrong buckets and credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import goffish as gf
from goffish.cli.app import app
from goffish.errors import InputError, StoreError
from goffish.gopher.folder import MANIFEST, check_folder, folder_parts, folder_writer, read_folder, write_folder
from goffish.gopher.result import write_table

#: Above this size s3fs sends a file in parts.
MANY_ROWS = 14_000_000


def objects(uri: str) -> list[str]:
    system, path = fsspec.core.url_to_fs(uri)
    system.invalidate_cache()
    return sorted(name.removeprefix(f"{path}/") for name in system.find(path))


def uploads(bucket: str) -> list[Any]:
    """Uploads in parts that were neither completed nor aborted."""
    system, path = fsspec.core.url_to_fs(bucket)
    return list(system.call_s3("list_multipart_uploads", Bucket=path).get("Uploads", []))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json", "arrow"])
def test_a_result_is_written_as_an_object(s3: Any, tmp_path: Path, suffix: str) -> None:
    bucket = s3.bucket()
    found = gf.pagerank(gf.from_edges([1, 2, 3], [2, 3, 4]))
    assert found.write(f"{bucket}/new/ranks.{suffix}") == f"{bucket}/new/ranks.{suffix}"
    assert objects(bucket) == [f"new/ranks.{suffix}"]
    found.write(tmp_path / f"ranks.{suffix}")
    with fsspec.open(f"{bucket}/new/ranks.{suffix}") as file:
        assert file.read() == (tmp_path / f"ranks.{suffix}").read_bytes()


def test_the_command_writes_to_storage(s3: Any, tmp_path: Path) -> None:
    bucket = s3.bucket()
    (tmp_path / "edges.txt").write_text("1 2\n2 3\n")
    command = ["run", "components", str(tmp_path / "edges.txt"), "-o", f"{bucket}/c.csv"]
    run = CliRunner().invoke(app, [*command, "--stats-file", f"{bucket}/s.json"])
    assert run.exit_code == 0, run.output
    assert objects(bucket) == ["c.csv", "s.json"]
    assert f"3 rows written to {bucket}/c.csv" in run.output


def test_what_cannot_be_written_is_refused_before_the_work(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3.bucket()
    with pytest.raises(InputError, match=r"^s3://nobucket/a.csv: the bucket nobucket does not exist"):
        write_table(pa.table({"a": [1]}), "s3://nobucket/a.csv")
    with pytest.raises(InputError, match=r"a.txt: the suffix must be one of"):
        write_table(pa.table({"a": [1]}), f"{bucket}/a.txt")
    s3.refuses = lambda method, path, number: True
    s3.status = "403 Forbidden"
    with pytest.raises(InputError, match=r"a.csv: cannot be written \(.+\)$") as refused:
        write_table(pa.table({"a": [1]}), f"{bucket}/a.csv")
    assert "\n" not in str(refused.value)


def numbers() -> pa.Table:
    return pa.table({"a": np.random.default_rng(0).integers(0, 1 << 60, MANY_ROWS)})


@pytest.mark.slow
def test_failed_parts_are_sent_again_or_nothing_is_visible(s3: Any) -> None:
    bucket = s3.bucket()
    table, failed = numbers(), set()

    def once(method: str, path: str, number: int) -> bool:
        if "partNumber=2" not in path or path in failed:
            return False
        failed.add(path)
        return True

    s3.refuses = once
    write_table(table, f"{bucket}/a.arrow")
    assert failed and objects(bucket) == ["a.arrow"] and not uploads(bucket)
    s3.refuses = lambda method, path, number: "partNumber=2" in path
    with pytest.raises(InputError, match=r"b.arrow: cannot be written \(.*reduce your request rate"):
        write_table(table, f"{bucket}/b.arrow")
    with pytest.raises(StoreError, match="cannot be written"):
        write_folder(table, f"{bucket}/folder", "numbers")
    s3.refuses = None
    assert objects(bucket) == ["a.arrow"] and not uploads(bucket)


@pytest.mark.parametrize("place", ["memory", "s3"])
def test_a_folder_is_published_by_its_manifest(s3: Any, place: str) -> None:
    uri = f"{s3.bucket()}/made" if place == "s3" else "memory://results/made"
    first, second = pa.table({"a": [1, 2]}), pa.table({"a": [3]})
    writer = folder_writer(uri)
    writer.begin()
    parts = [writer.write(0, first), writer.write(1, second)]
    assert all(name.startswith("_partial/") for name in objects(uri))
    writer.write(1, second)  # a task that was repeated
    writer.publish("a", parts)
    assert objects(uri) == sorted([MANIFEST, *(part.name for part in parts)])
    assert read_folder(uri) == pa.concat_tables([first, second])
    write_folder(second, uri, "b")
    assert read_folder(uri) == second and len(objects(uri)) == 2
    more = folder_writer(uri)
    more.begin()
    kept = folder_parts(uri)
    more.publish("c", [more.write(0, first)], kept)
    assert read_folder(uri).column("a").to_pylist() == [3, 1, 2]
    fsspec.core.url_to_fs(uri)[0].pipe_file(f"{fsspec.core.url_to_fs(uri)[1]}-other/x.txt", b"")
    with pytest.raises(InputError, match="is neither empty nor a result folder"):
        check_folder(f"{uri}-other")


def test_a_local_folder_keeps_parts(tmp_path: Path) -> None:
    write_folder(pa.table({"a": [1]}), tmp_path / "made", "a")
    more = folder_writer(tmp_path / "made")
    more.begin()
    more.publish("a", [more.write(0, pa.table({"a": [2]}), "more")], folder_parts(tmp_path / "made"))
    assert read_folder(tmp_path / "made").column("a").to_pylist() == [1, 2]

"""A store with instances that several tests look at."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.ingest.rows import stamped_rows, stamped_spec


@pytest.fixture(scope="package")
def stamped(spark: Any, tmp_path_factory: Any) -> Any:
    """Rows, specification, and the store that is made of them."""
    from goffish.spark.ingest import ingest

    folder = tmp_path_factory.mktemp("stamped")
    rows = stamped_rows(5, 400)
    for number in range(3):  # several files, so that Spark has something to divide
        part = rows[number * 150 : (number + 1) * 150]
        (folder / f"rows-{number}.txt").write_text("".join(f"{u} {v} {w!r} {t}\n" for u, v, w, t in part))
    spec = stamped_spec(folder / "rows-*.txt")
    return folder, rows, spec, ingest(spec, folder / "s", spark)

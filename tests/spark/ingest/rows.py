"""Rows and specifications for the tests of the ingest job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq


def files_of(folder: str | Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def quarantined(folder: str | Path) -> pd.DataFrame:
    return pq.read_table(folder).to_pandas()


def stamped_rows(seed: int, count: int) -> list[tuple[int, int, float, int]]:
    """Random links between a few numbers: ends, weight, seconds since 1970 in the first days of 2024."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(-4, 26, (count, 2))
    stamps = 1_704_067_200 + rng.integers(0, 12 * 86_400, count)
    return [(int(u), int(v), float(w), int(t)) for (u, v), w, t in zip(ends, rng.random(count), stamps, strict=True)]


def stamped_spec(path: Path, **more: Any) -> dict[str, Any]:
    """A directed graph with one instance a day."""
    return {
        "inputs": [{"path": str(path), "options": {"sep": " "}}],
        "source": 0, "target": 1, "weight": 2, "timestamp": {"column": 3, "format": "epoch_s"}, "directed": True,
        "clean": {"self_loops": "keep", "window": {"end": "2024-01-11"}},
        "instances": {"period": "1d", "pack": 3, "bins": 2},
        "partition": {"parts": 3},
        **more,
    }  # fmt: skip

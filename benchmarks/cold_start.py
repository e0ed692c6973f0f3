"""How long ``goffish run`` takes as a command, with an empty numba cache and a warm one: ``python
benchmarks/cold_start.py``.

Targets for email-Enron: 15 s cold, 1.5 s warm for components.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _harness

_ROOT = Path(__file__).resolve().parent.parent
_GRAPH = _ROOT / "data" / "email-enron.txt.gz"
_JOBS = {
    "--help": ["--help"],
    "run components": ["run", "components", str(_GRAPH)],
    "run components --parts 4 --stats": ["run", "components", str(_GRAPH), "--parts", "4", "--stats"],
    "run pagerank": ["run", "pagerank", str(_GRAPH)],
    "run sssp --source 1": ["run", "sssp", str(_GRAPH), "--source", "1"],
}


def call(arguments: list[str], cache: str) -> float:
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(_ROOT)}
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "goffish", *arguments], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    return time.perf_counter() - begun


def main() -> None:
    print(_harness.machine_line())
    rows = []
    for name, arguments in _JOBS.items():
        with tempfile.TemporaryDirectory() as cache:
            cold = call(arguments, cache)
            warm = [call(arguments, cache) for _ in range(5)]
        rows.append([f"`goffish {name}`", f"{cold:.2f}", f"{statistics.median(warm):.2f}", f"{min(warm):.2f}"])
    _harness.print_table(["command", "empty cache s", "warm s (median of 5)", "warm s (best)"], rows)


if __name__ == "__main__":
    main()

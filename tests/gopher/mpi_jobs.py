"""Jobs under mpirun, and the graphs that they work on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from goffish.gofs import build_layout
from goffish.graph import Graph, from_edges
from tests.cases import grid, grid_blocks, make_case

ROOT = Path(__file__).parents[2]


@cache
def launcher() -> tuple[str, ...]:
    """``mpirun`` of this environment, with the options that let it run as root and more ranks than processors."""
    beside = Path(sys.executable).parent / "mpirun"
    program = str(beside) if beside.exists() else shutil.which("mpirun") or pytest.skip("there is no mpirun")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" in told or "OpenRTE" in told or "PRRTE" in told:
        return (program, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
    return (program,)


def start(ranks: int, *command: str, patch: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(p) for p in (patch, ROOT) if p is not None)
    return subprocess.Popen(
        [*launcher(), "-n", str(ranks), sys.executable, *command], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, **environment}, start_new_session=True,
    )  # fmt: skip


def finish(job: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str, str]:
    """Exit code, output and errors; a job that hangs fails the test and is ended."""
    try:
        out, told = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        job.terminate()
        out, told = job.communicate(timeout=20)
        pytest.fail(f"the job hangs: {out[-500:]} {told[-500:]}")
    return job.returncode, out, told


def mpirun(ranks: int, *command: str, **options: Any) -> tuple[int, str, str]:
    return finish(start(ranks, *command, **options))


def goffish(ranks: int, *command: str, **options: Any) -> tuple[int, str, str]:
    return mpirun(ranks, "-m", "goffish", *command, "--engine", "mpi", **options)


def error_line(told: str) -> str:
    lines = [line for line in told.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, told
    return lines[0]


def string_graph() -> Graph:
    G = nx.barabasi_albert_graph(60, 2, seed=3)
    edges = np.array(G.edges)
    names = np.array([f"v{i:02d} ü" for i in range(60)])
    return from_edges(names[edges[:, 0]], names[edges[:, 1]])


def layouts() -> dict[str, Any]:
    """A grid in 12 and in 3 parts, a graph with texts for labels, one with an empty part, one whole, one by vertex."""
    named = string_graph()
    sparse = make_case("random", 40, 4, 7, grown=False, weights="real")
    return {
        "grid": build_layout(grid(24, 20), grid_blocks(24, 20), 12),
        "columns": build_layout(grid(24, 20), grid_blocks(24, 20, 1, 3), 3),
        "texts": build_layout(named, np.arange(60, dtype=np.int32) % 3, 3),
        "sparse": build_layout(sparse.graph, np.minimum(sparse.owner, 2), 4),
        "whole": build_layout(grid(4, 4), np.zeros(16, np.int32), 1),
        "vertices": build_layout(grid(6, 5), grid_blocks(6, 5, 1, 2), 2, finder="vertex"),
    }

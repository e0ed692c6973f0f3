"""Algorithms that other packages add."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.package.pages import ROOT

TEMPLATE = ROOT / "examples" / "algorithm-package"


def installed(folder: Path, source: Path, points: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return an environment in which a package is installed, as importlib.metadata sees it."""
    made = folder / "goffish_neighbor_degree-0.1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: goffish-neighbor-degree\nVersion: 0.1.0\n")
    groups = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in some.items()) for group, some in points.items()]
    (made / "entry_points.txt").write_text("\n".join(groups))
    paths = [str(folder), str(source), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def call(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=environment["PYTHONPATH"].split(os.pathsep)[0],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_template(tmp_path: Path) -> None:
    points = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]["entry-points"]
    environment = installed(tmp_path, TEMPLATE / "src", points)
    tests = call(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TEMPLATE / "tests"))
    assert tests.returncode == 0 and "2 passed" in tests.stdout, tests.stdout
    (tmp_path / "g.csv").write_text("source,target\n1,2\n1,3\n2,4\n")
    run = call(environment, "-m", "goffish", "run", "neighbor-degree", "g.csv", "--least", "2", "-o", "o.csv")
    assert run.returncode == 0 and (tmp_path / "o.csv").read_text().splitlines() == [
        '"vertex","neighbor_degree"', "1,1.5", "2,1.5",
    ], run.stderr  # fmt: skip
    wrong = call(environment, "-m", "goffish", "run", "neighbor-degree", "g.csv", "--least", "-1")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ") and "Traceback" not in wrong.stderr
    served = call(
        environment, "-c", "from goffish.services.api.catalog_service import _algorithms; print(_algorithms())"
    )
    assert "neighbor-degree" in served.stdout, served.stderr


@pytest.mark.parametrize(("name", "value", "message"), [
    ("bfs", "goffish_neighbor_degree:NeighborDegree", "another algorithm has this name"),
    ("Neighbor_Degree", "goffish_neighbor_degree:NeighborDegree", "small letters, digits and hyphens"),
    ("other", "goffish_neighbor_degree:NeighborDegree", "needs name = 'other' and a title"),
    ("sums", "math:fsum", "math:fsum is not a subclass of goffish.algorithms.Algorithm"),
    ("gone", "no_such_module:Model", "ModuleNotFoundError: No module named 'no_such_module'"),
])  # fmt: skip
@pytest.mark.slow
def test_entries_that_cannot_be_used(tmp_path: Path, name: str, value: str, message: str) -> None:
    environment = installed(tmp_path, TEMPLATE / "src", {"goffish.algorithms": {name: value}})
    done = call(environment, "-c", "import goffish as gf; print(gf.run('bfs', gf.from_edges([1], [2]), source=1))")
    assert done.stdout.startswith("Result(bfs: 2 rows"), done.stderr
    assert f"algorithm {name!r} of goffish-neighbor-degree is left out: " in done.stderr and message in done.stderr

"""The wheel, as a user gets it: built from the tree, installed into an empty environment, used from elsewhere."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=CLEAN | variables, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def environment(place: Path, what: str, python: str = sys.executable, **variables: str) -> Path:
    """Install into a virtual environment that is made for it, and return its folder of commands."""
    run(python, "-m", "venv", place, cwd=place.parent)
    install = [place / "bin" / "pip", "install", "-q", "--no-compile", what]
    done = subprocess.run(install, env=CLEAN | variables, capture_output=True, text=True, check=False, timeout=800)
    if "No matching distribution" in done.stderr or "Failed to establish" in done.stderr:
        pytest.skip(f"no package registry: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return place / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the source distribution, as an index gets both."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--installer", "uv", "-o", folder, ROOT, cwd=folder)
    [built] = folder.glob("goffish-*.whl")
    return built


@pytest.mark.slow
def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {n for n in top if not n.endswith(".dist-info")} == {"goffish"}
    assert "goffish/py.typed" in names, "type checkers would not look at the annotations"
    kernels = {p.relative_to(ROOT).as_posix() for p in (ROOT / "goffish").rglob("*.py")}
    packed = {n for n in names if n.endswith(".py") and not n.startswith("goffish/bundled/")}
    assert packed == kernels, "modules are missing from the wheel, or others have crept in"
    template = "goffish/bundled/examples/algorithm-package/"  # whose tests are part of it
    assert not [
        n for n in names if ("test" in n and not n.startswith(template)) or "benchmark" in n or "__pycache__" in n
    ]
    bundled = {n.removeprefix("goffish/bundled/") for n in names if n.startswith("goffish/bundled/")}
    assert bundled == {
        path.relative_to(ROOT).as_posix()
        for part in ("data", "examples")
        for path in (ROOT / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert [n for n in names if n.endswith("licenses/LICENSE")]


@pytest.mark.slow
def test_distributions_are_reproducible(wheel: Path, tmp_path: Path) -> None:
    """Breaks when a build depends on the clock or on the order of files, or an index would refuse its description."""
    run(sys.executable, "-m", "build", "--installer", "uv", "-o", tmp_path, ROOT, cwd=tmp_path)
    built = sorted(tmp_path.iterdir())
    assert [path.suffix for path in built] == [".whl", ".gz"]
    for path in built:
        assert path.read_bytes() == (wheel.parent / path.name).read_bytes()
    run(sys.executable, "-m", "twine", "check", "--strict", *built, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_installed(wheel: Path, tmp_path: Path) -> None:
    """A missing dependency or a package that only works inside the tree shows here and nowhere else."""
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    python, goffish = tmp_path / "env/bin/python", tmp_path / "env/bin/goffish"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", where, cwd=tmp_path).strip())
    before = set(site.iterdir())
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel, cwd=tmp_path)
    added = {p.name for p in set(site.iterdir()) - before}
    assert {n for n in added if not n.endswith(".dist-info")} == {"goffish"}
    run(python, "-m", "pip", "install", "-q", wheel, cwd=tmp_path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "edges.txt").write_text("1 2\n2 3\n7 8\n")
    version = run(python, "-c", "import goffish; print(goffish.__version__)", cwd=elsewhere).strip()
    assert run(goffish, "--version", cwd=elsewhere) == f"goffish {version}\n"
    run(goffish, "run", "components", "edges.txt", "-o", "out.csv", cwd=elsewhere)
    rows = list(csv.DictReader((elsewhere / "out.csv").open()))
    assert {int(r["vertex"]): int(r["component"]) for r in rows} == {1: 3, 2: 3, 3: 3, 7: 8, 8: 8}
    run(goffish, "partition", "edges.txt", "-o", "store", "-k", "2", cwd=elsewhere)  # METIS in its own process
    code = "import goffish as gf; print(gf.__file__); print(gf.bfs(gf.open('store'), 1).to_dict())"
    home, answer = run(python, "-c", code, cwd=elsewhere).splitlines()
    assert Path(home).is_relative_to(site)
    assert answer == "{1: 0, 2: 1, 3: 2, 7: None, 8: None}"


@pytest.mark.slow
def test_compiled_kernels(tmp_path: Path) -> None:
    """Breaks when a wheel's kernels do not fit what is installed from it: the first run would compile."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or not _runs_on_this_processor():
        pytest.skip("compiled kernels are for Linux on x86-64-v3")
    build = [sys.executable, "-m", "build", "--installer", "uv", "--wheel", "-o", tmp_path, ROOT]
    done = subprocess.run(
        build, env=CLEAN | {"GOFFISH_COMPILED_KERNELS": "components"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    [built] = tmp_path.glob("goffish-*.whl")
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert built.name.endswith(f"-{version}-{version}-manylinux_2_17_x86_64.whl")
    commands = environment(tmp_path / "venv", str(built))
    (tmp_path / "edges.txt").write_text("1 2\n2 3\n4 5\n")

    def compiled() -> set[str]:
        return {path.name for path in (tmp_path / "kept").rglob("*.nbc")}

    for name, expected in (("components", False), ("cores", True)):
        run(commands / "goffish", "run", name, "edges.txt", cwd=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "kept"))
        assert bool(compiled()) is expected, (name, compiled())


def _runs_on_this_processor() -> bool:
    words = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    return {"avx2", "bmi2", "fma"} <= set(words)

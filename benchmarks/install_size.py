"""How much disk the installation and each extra take, and how long ``import goffish`` takes: ``python
benchmarks/install_size.py``.

Builds the wheel, and installs it with pip into an environment for each extra; needs the extra ``dev``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import _harness

_ROOT = Path(__file__).resolve().parent.parent
_STATEMENTS = ("pass", "import goffish", "import goffish; goffish.from_edges([1, 2], [2, 3])")


def size(folder: Path) -> float:
    """Return the size of all files in MB."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() or path.is_symlink()) / 1e6


def installed(place: Path, requirement: str) -> float:
    """Install into a new environment, and return its growth in MB."""
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    empty = size(place)
    pip = [place / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, requirement], check=True)
    return size(place) - empty


def seconds(python: Path, statement: str, folder: Path) -> float:
    """Return the median run time of a statement in a new process, after one run that is not counted."""
    times = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for _ in range(8):
        begun = time.perf_counter()
        subprocess.run([python, "-c", statement], check=True, cwd=folder, env=environment)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def main() -> None:
    print(_harness.machine_line())
    extras = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        build = [sys.executable, "-m", "build", "--installer", "uv", "-o", scratch, _ROOT]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        [wheel] = place.glob("*.whl")
        core = installed(place / "core", str(wheel))
        print(f"wheel: {wheel.stat().st_size / 1e6:.1f} MB; core: {core:.0f} MB", flush=True)
        times = [seconds(place / "core" / "bin" / "python", statement, place) for statement in _STATEMENTS]
        rows = [[f"`{text}`", f"{taken:.2f}"] for text, taken in zip(_STATEMENTS, times, strict=True)]
        _harness.print_table(["statement", "seconds (median of 7)"], rows)
        rows = []
        for extra in extras:
            total = installed(place / extra, f"{wheel}[{extra}]")
            rows.append([f"`{extra}`", f"{total - core:.0f}", f"{total:.0f}"])
        _harness.print_table(["extra", "adds MB", "total MB"], rows)


if __name__ == "__main__":
    main()

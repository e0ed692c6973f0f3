"""`goffish doctor`: what is installed, what is missing for which feature, and how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from goffish.cli.output import print_facts, print_json, print_table, say
from goffish.extras import EXTRAS
from goffish.version import __version__

#: Packages that every installation has.
_CORE = ("numba", "numpy", "pyarrow", "pydantic", "pymetis", "rich", "typer", "fsspec")
#: Programs that extras start, and what they are for.
_PROGRAMS = {"java": "the Spark engine (17 or newer)", "mpirun": "the MPI engine", "spark-submit": "Spark clusters"}


def report() -> dict[str, Any]:
    """Collect everything that `goffish doctor` prints."""
    return {
        "goffish": __version__,
        "installed_in": str(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "kernel_cache": _kernel_cache(),
        "packages": {name: _version(name) for name in _CORE},
        "extras": [_extra(name) for name in EXTRAS],
        "programs": [{"program": name, "for": use, "found": _program(name)} for name, use in _PROGRAMS.items()],
    }


def _extra(name: str) -> dict[str, Any]:
    packages = dict.fromkeys(EXTRAS[name].modules.values())
    versions = {package: _version(package) for package in packages}
    lacking = [package for package, version in versions.items() if version is None]
    return {
        "extra": name,
        "feature": EXTRAS[name].feature,
        "installed": not lacking,
        "missing": lacking,
        "install": f"pip install 'goffish[{name}]'" if lacking else None,
        "versions": versions,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _kernel_cache() -> str:
    """Return where compiled kernels are kept."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if folder is not None:
        return folder
    package = Path(__file__).parents[1]
    return f"{package}/**/__pycache__" if os.access(package, os.W_OK) else str(Path("~/.cache/numba").expanduser())


def _program(name: str) -> str | None:
    """Return where a program is, with the version of Java, which prints it in a form of its own."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None or name != "java":
        return found
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=20)
    return f"{found} ({(answer.stderr or answer.stdout).partition(chr(10))[0]})"


def print_report(*, json: bool) -> None:
    """Print the report, as tables or as JSON."""
    found = report()
    if json:
        print_json(found)
        return
    shown = ("installed_in", "python", "platform", "cores", "kernel_cache")
    facts = [(name.replace("_", " "), found[name]) for name in shown]
    print_facts(f"goffish {found['goffish']}", facts + [(name, found["packages"][name]) for name in _CORE])
    say("")
    rows = [(e["extra"], "yes" if e["installed"] else "no", e["feature"], e["install"] or "") for e in found["extras"]]
    print_table("extras", ("extra", "installed", "feature", "to install"), rows)
    say("")
    programs = [(p["program"], p["found"] or "not found", p["for"]) for p in found["programs"]]
    print_table("programs", ("program", "found", "needed for"), programs)

"""`goffish doctor`: report installed and missing dependencies, and how to install them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from goffish.cli.output import print_facts, print_json, print_table, say
from goffish.errors import JobError
from goffish.extras import EXTRAS
from goffish.kernels.cache import can_be_written, folder_of_the_user
from goffish.version import __version__

#: Required packages.
_CORE = ("cloudpickle", "lark", "numba", "numpy", "pyarrow", "pydantic", "pymetis", "rich", "typer", "fsspec")
#: External programs: the feature that uses each, and how to install it.
_PROGRAMS = {
    "java": ("the Spark engine", "install Java 17 or newer, or set JAVA_HOME"),
    "mpirun": ("the MPI engine", "pip install 'goffish[mpi]'"),
    "spark-submit": ("Spark clusters", "pip install 'goffish[spark]'"),
}
_OLDEST_JAVA = 17
_JAVA_TIMEOUT_S = 20


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
        "programs": [_program(name) for name in _PROGRAMS],
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
    """Return the folder of compiled kernels."""
    package = Path(__file__).parents[1]
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given is not None and can_be_written(given):
        return given
    if os.access(package, os.W_OK):
        return f"{package}/**/__pycache__"
    usual = folder_of_the_user()
    return usual if can_be_written(usual) else "none: set NUMBA_CACHE_DIR"


def _program(name: str) -> dict[str, Any]:
    """Find a program, and check the version of Java."""
    use, install = _PROGRAMS[name]
    beside = Path(sys.executable).parent / name
    home = os.environ.get("JAVA_HOME") if name == "java" else None  # PySpark prefers it to the path
    if home:
        found: str | None = str(Path(home) / "bin" / "java")
    else:
        found = str(beside) if beside.is_file() else shutil.which(name)
    version, problem = None, None
    if found is None:
        problem = "not found"
    elif name == "java":
        version, problem = _java(found)
    return {
        "program": name,
        "for": use,
        "found": found,
        "version": version,
        "problem": problem,
        "install": install if problem else None,
    }


def _java(path: str) -> tuple[str | None, str | None]:
    """Return the version of a Java executable, and the problem with it, if any."""
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, errors="replace", check=False, timeout=_JAVA_TIMEOUT_S
        )
    except OSError as error:
        return None, f"cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_JAVA_TIMEOUT_S} s"
    found = re.search(r'version "((\d+)[^"]*)"', answer.stderr + answer.stdout)
    if found is None:
        return None, f"printed no version (exit code {answer.returncode})"
    old = int(found[2]) < _OLDEST_JAVA
    return found[1], f"version {found[1]} is too old; {_OLDEST_JAVA} or newer is required" if old else None


def print_report(*, json: bool) -> None:
    """Print the report, as tables or as JSON.

    Raises
    ------
    JobError
        A required package is missing.
    """
    found = report()
    if json:
        print_json(found)
    else:
        _print_tables(found)
    lacking = [name for name, version in found["packages"].items() if version is None]
    if lacking:
        raise JobError(f"required packages are missing: {', '.join(lacking)}; run pip install goffish")


def _print_tables(found: dict[str, Any]) -> None:
    shown = ("installed_in", "python", "platform", "cores", "kernel_cache")
    facts = [(name.replace("_", " "), found[name]) for name in shown]
    print_facts(f"goffish {found['goffish']}", facts + list(found["packages"].items()))
    say("")
    extras = [(e["extra"], _state(e), e["feature"], e["install"] or "") for e in found["extras"]]
    print_table("extras", ("extra", "installed", "feature", "to install"), extras)
    say("")
    programs = [(p["program"], _place(p), p["for"], p["install"] or "") for p in found["programs"]]
    print_table("programs", ("program", "found", "required for", "to install"), programs)


def _state(extra: dict[str, Any]) -> str:
    """Return whether an extra is installed; if only partly, name the missing packages."""
    if extra["installed"]:
        return "yes"
    partly = len(extra["missing"]) < len(extra["versions"])
    return f"no: {', '.join(extra['missing'])} missing" if partly else "no"


def _place(program: dict[str, Any]) -> str:
    if program["found"] is None:
        return str(program["problem"])
    note = program["problem"] or (program["version"] and f"version {program['version']}")
    return f"{program['found']} ({note})" if note else str(program["found"])

"""The command line answers at once, and its completion works."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys

from tests.cli.conftest import Place

HEAVY = (
    "numpy",
    "numba",
    "pyarrow",
    "matplotlib",
    "pandas",
    "polars",
    "scipy",
    "networkx",
    "pyspark",
    "mpi4py",
    "grpc",
)


def test_building_the_app_loads_nothing_heavy(shared: Place) -> None:
    code = f"import sys, goffish.cli.app; print([m for m in {HEAVY} if m in sys.modules])"
    ended = shared(code=code)
    assert ended.out == "[]\n", ended


def test_help_is_quick(shared: Place) -> None:
    """0.2 s of processor time where this was written; the bound leaves room for slow machines."""
    shared("--help", real=True)
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = shared("--help", real=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert ended.code == 0
    assert min(times) < 0.8


def test_help_and_version(shared: Place) -> None:
    from goffish import __version__

    assert shared("--version", real=True).out == f"goffish {__version__}\n"
    shown = shared("--help", real=True).out
    for command in ("import", "export", "partition", "info", "verify", "bench", "run"):
        assert f"│ {command} " in shown
    bare = shared("run", real=True)
    assert bare.code == 2
    assert "components" in bare.out


def test_completion(shared: Place) -> None:
    # The shell is told by the processes above: under make it would be sh, which has no completion.
    command = f"{shlex.quote(sys.executable)} -m goffish --show-completion; exit $?"
    script = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert script.returncode == 0, script.stderr
    assert "complete -o default -F _goffish_completion goffish" in script.stdout
    offered = shared(_GOFFISH_COMPLETE="complete_bash", COMP_WORDS="goffish run co", COMP_CWORD="2")
    assert offered.out.split() == ["components", "cores", "counts"]

"""The command line answers at once, and its completion works."""

from __future__ import annotations

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


def test_building_the_app_loads_few_modules(shared: Place) -> None:
    """Breaks when every command pays for what one of them needs; 319 where this was written."""
    ended = shared(code="import sys, goffish.cli.app; print(len(sys.modules))", real=True)
    assert int(ended.out) < 400, ended


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
    offered = shared(_GOFFISH_COMPLETE="complete_bash", COMP_WORDS="goffish run com", COMP_CWORD="2")
    assert offered.out.split() == ["components"]

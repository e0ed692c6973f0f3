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


#: Makes all commands of the program.
ALL = "import sys, typer, goffish.cli.app; g = typer.main.get_command(goffish.cli.app.app); "
ALL += "[g.get_command(None, name) for name in g.list_commands(None)]; "


def test_making_the_commands_loads_nothing_heavy(shared: Place) -> None:
    code = f"{ALL}print([m for m in {HEAVY} if m in sys.modules])"
    ended = shared(code=code)
    assert ended.out == "[]\n", ended


def test_building_the_app_loads_few_modules(shared: Place) -> None:
    """Breaks when every command pays for what one of them needs; 182 and 370 where this was written."""
    ended = shared(code="import sys, goffish.cli.app; print(len(sys.modules))", real=True)
    assert int(ended.out) < 220, ended
    ended = shared(code=f"{ALL}print(len(sys.modules))", real=True)
    assert int(ended.out) < 450, ended


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


def test_runs_leave_out_pandas(shared: Place) -> None:
    """Breaks when a run imports pandas, which takes a tenth of its time, or pandas cannot be used afterwards."""
    code = (
        "import sys; from goffish.cli.inputs import load; from goffish.algorithms.run import run; "
        "open('g.txt', 'w').write('1 2\\n2 3\\n'); found = run('components', load('g.txt', {})).table; "
        "before = 'pandas' in sys.modules; print(before, found.to_pandas().shape)"
    )
    assert shared(code=code).out == "False (3, 2)\n"

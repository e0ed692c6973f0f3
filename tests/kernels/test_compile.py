"""Kernels that an earlier version of the package has left on disk."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

OLD = """
from typing import Any, NamedTuple
import numpy as np
from goffish.kernels.compile import kernel

class {name}(NamedTuple):
    values: Any

@kernel
def total(pair):
    return pair.values.sum()

print(total({name}(np.arange(3))))
"""


@pytest.mark.slow
def test_an_upgrade_that_renames_a_type(tmp_path: Path) -> None:
    """Breaks when kernels fail because the index on disk names a type that is gone."""
    for name in ("Before", "After"):
        (tmp_path / "program.py").write_text(OLD.format(name=name))
        command = [sys.executable, "-c", "import program"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == "3\n", done.stderr
    assert list(tmp_path.rglob("*.nbi")), "the kernel was not kept, so nothing was tested"


CALLER = """
import numpy as np
from callee import FACTOR, step
from goffish.kernels.compile import kernel

@kernel
def total(values):
    return step(values[0]) * FACTOR

print(total(np.array([2.0])), sum(total.stats.cache_hits.values()))
"""
CALLEE = """
from goffish.kernels.compile import kernel

FACTOR = {factor}

@kernel
def step(value):
    return value + {add}
"""


@pytest.mark.parametrize(
    ("factor", "add", "printed"), [(1.0, 2.0, "4.0 0\n"), (3.0, 1.0, "9.0 0\n"), (1.0, 1.0, "3.0 1\n")]
)
def test_an_upgrade_of_a_callee(tmp_path: Path, factor: float, add: float, printed: str) -> None:
    """Breaks when a kernel on disk keeps the callees or constants of another module as they were."""
    (tmp_path / "program.py").write_text(CALLER)
    command = [sys.executable, "-c", "import program"]
    for constants in ((1.0, 1.0), (factor, add)):
        (tmp_path / "callee.py").write_text(CALLEE.format(factor=constants[0], add=constants[1]))
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == printed, done.stderr


SLOW = """
import numpy as np
from goffish.kernels.compile import kernel

@kernel
def inner(values):
    return np.sort(values)[0]

@kernel
def outer(values):
    return inner(values) + values[::-1].copy()[0] - 2.0

print(outer(np.array([3.0, 5.0])), sum(outer.stats.cache_misses.values()))
"""


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    """Breaks when every process of a job compiles every kernel for itself, or they wait for each other for ever."""
    (tmp_path / "program.py").write_text(SLOW)
    command = [sys.executable, "-c", "import program"]
    begun = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=120) for process in begun]
    assert sorted(out for out, _ in printed) == ["6.0 0\n", "6.0 1\n"], printed


@pytest.mark.slow
def test_a_process_that_does_not_go_on_holds_up_nobody(tmp_path: Path) -> None:
    """Breaks when a stopped process that was compiling, or a user who can read the file, stops all others for ever."""
    program = tmp_path / "program.py"
    program.write_text("from goffish.kernels import compile\ncompile._LONGEST_S = 0.3\n" + SLOW)
    with program.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        command = [sys.executable, "-c", "import program"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "6.0 1\n", done.stderr

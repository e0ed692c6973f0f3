"""Kernels that an earlier version of the package has left on disk."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import IndexDataCacheFile

from goffish.errors import GoffishWarning
from goffish.kernels import compile as compile_module
from goffish.kernels import kept
from goffish.kernels.cache import choose_kernel_cache

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


@pytest.mark.slow
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


INNER = """
import numpy as np
from goffish.kernels.compile import kernel

@kernel
def _first(values):
    if values[0] > 2.0:
        raise ValueError("too large", values[0])
    print("first of", values.size)
    return values[0]

@kernel
def more(values):
    return _first(values) + 1.0

@kernel
def less(values):
    return _first(values) - 1.0

print(more(np.array([2.0])))
try:
    more(np.array([3.0]))
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_kernels_that_only_kernels_call(tmp_path: Path) -> None:
    """Breaks when what an inner kernel prints or raises needs machine code of its own, or it is not found on disk."""
    (tmp_path / "program.py").write_text(INNER)
    again = "from program import _first, less, np; less(np.array([2.0])); print(_first.stats.cache_hits.total())"
    upgraded = f"from goffish.kernels import kept; kept._FORMAT += 1; {again}"
    printed = "first of 1\n3.0\n('too large', 3.0)\n"
    runs = [("import program", ""), ("import program", ""), (again, "first of 1\n1\n"), (upgraded, "first of 1\n0\n")]
    for code, more in runs:
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == printed + more, done.stderr


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


@pytest.mark.slow
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


@pytest.mark.parametrize("given", [None, "kernels"])
def test_a_place_for_kernels(given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks where neither the package, nor the home, nor the folder that was set can be written, as in containers."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "" if given is None else str(tmp_path / "file" / given))
    choose_kernel_cache()
    chosen = Path(os.environ["NUMBA_CACHE_DIR"])
    assert chosen.parent == tmp_path and chosen.stat().st_mode & 0o077 == 0 and str(chosen) == numba.config.CACHE_DIR
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "mine"))
    choose_kernel_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "mine")


def test_kernels_that_cannot_be_kept() -> None:
    """Breaks when a kernel without a folder, as one that is in no file, is refused, or warns more than once."""
    functions: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x\n\ndef more(x):\n    return double(x) + 1", functions)
    compile_module._warn.cache_clear()
    with pytest.warns(GoffishWarning, match="set NUMBA_CACHE_DIR") as warned:
        functions["double"] = compile_module.kernel(functions["double"])
        more = compile_module.kernel(functions["more"])
    assert more(20) == 41 and len(warned) == 1


def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a kernel cannot be used because it cannot be kept, or the index of kernels cannot be read."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("_save_index", "_save_data"):
        monkeypatch.setattr(IndexDataCacheFile, name, full)
    monkeypatch.setattr(kept, "_read_index", full)
    triple = compile_module.kernel(three_times)
    assert triple(2) == 6 and not triple.stats.cache_hits


def three_times(x: int) -> int:
    return 3 * x


KEPT = """
import sys
import numpy as np
from goffish.kernels.compile import kernel

@kernel
def total(values):
    return np.sort(values)[1:].sum()

@kernel
def mean(values):
    return values.mean()

print(total(np.arange(3.0)), "numba.np.polynomial" in sys.modules)
if sys.argv[1] == "both":
    print(mean(np.arange(3.0)))
"""


def test_kernels_on_disk_need_no_compiler(tmp_path: Path) -> None:
    """Breaks when a process that only loads kernels waits for what compiles others, or compiles no more after that."""
    (tmp_path / "program.py").write_text(KEPT)
    for argument, printed in (("one", "3.0 True\n"), ("one", "3.0 False\n"), ("both", "3.0 False\n1.0\n")):
        command = [sys.executable, "-c", "import program", argument]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == printed, done.stderr

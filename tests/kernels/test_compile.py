"""Kernels that an earlier version of the package has left on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_an_upgrade_that_renames_a_type(tmp_path: Path) -> None:
    """Breaks when kernels fail because the index on disk names a type that is gone."""
    for name in ("Before", "After"):
        (tmp_path / "program.py").write_text(OLD.format(name=name))
        command = [sys.executable, "-c", "import program"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == "3\n", done.stderr
    assert list(tmp_path.rglob("*.nbi")), "the kernel was not kept, so nothing was tested"

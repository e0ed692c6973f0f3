"""Make what is generated when the package is built or installed: the code of the protocol, a client that waits.

With ``GOFFISH_COMPILED_KERNELS``, "all" or names that ``goffish compile`` takes, a wheel also has compiled kernels, for
this version of Python and of numba. As the package itself compiles them, it is built with its dependencies.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: What differs in a client that waits for answers.
SYNCHRONOUS = {
    r"\b(async|await) ": "", r"AsyncGenerator\[(.*), None\]": r"Generator[\1, None, None]", r"\bAsync(?=[A-Z])": "",
    r"\baclosing\b": "closing", r"\bgrpc\.aio\b": "grpc", r"\basyncio\b": "time",
}  # fmt: skip

_COMPILED = os.environ.get("GOFFISH_COMPILED_KERNELS", "").split()


class GeneratedCode(BuildHookInterface):
    """Runs protoc, which comes as a wheel, and makes one client of the other, before hatchling collects the files."""

    #: Where kernels were compiled.
    _folder = ""

    def dependencies(self) -> list[str]:
        """Return what a build needs that other builds do not."""
        return self.metadata.core.dependencies if _COMPILED else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write ``goffish/v1/*_pb2*.py`` with their type stubs, and ``goffish/client/calls.py``.

        Raises
        ------
        RuntimeError
            protoc refused a file; it printed why.
        """
        from grpc_tools import protoc

        root = Path(self.root)
        protos = sorted((root / "proto").rglob("*.proto"))
        shipped = Path(protoc.__file__).parent / "_proto"
        command = ["protoc", f"-I{root / 'proto'}", f"-I{shipped}"]
        command += [f"--{kind}_out={root}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main([*command, *map(str, protos)]) != 0:
            raise RuntimeError("protoc could not translate proto/")
        build_data["artifacts"] += ["goffish/v1/*_pb2*.py", "goffish/v1/*_pb2*.pyi"]
        text = (root / "goffish/client/async_calls.py").read_text("utf-8")
        for pattern, instead in SYNCHRONOUS.items():
            text = re.sub(pattern, instead, text)
        (root / "goffish/client/calls.py").write_text(text, "utf-8")
        build_data["artifacts"] += ["goffish/client/calls.py"]
        if self.target_name == "wheel" and version == "standard" and _COMPILED:
            self._compile_kernels(root, build_data)

    def _compile_kernels(self, root: Path, build_data: dict[str, Any]) -> None:
        """Compile kernels in a copy of the package, and put them into the wheel."""
        if sys.platform != "linux" or platform.machine() != "x86_64":
            raise RuntimeError("GOFFISH_COMPILED_KERNELS: only for Linux on x86-64")
        self._folder = tempfile.mkdtemp(prefix="goffish-kernels-")
        package, compiled = Path(self._folder) / "goffish", Path(self._folder) / "compiled"
        shutil.copytree(root / "goffish", package, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
        cpu = runpy.run_path(str(root / "goffish" / "kernels" / "kept.py"))["SHIPPED_CPU"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        environment |= {"PYTHONPATH": self._folder, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
        command = [sys.executable, "-m", "goffish", "compile", *(name for name in _COMPILED if name != "all")]
        subprocess.run(command, check=True, env=environment, cwd=self._folder)
        for file in package.rglob("__pycache__/*.nb[ic]"):
            place = compiled / file.parents[1].relative_to(package) / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            file.rename(place)
        build_data["force_include"][str(compiled)] = "goffish/compiled"
        build_data["pure_python"] = False
        version = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{version}-{version}-manylinux_2_17_x86_64"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy of the package."""
        if self._folder:
            shutil.rmtree(self._folder)

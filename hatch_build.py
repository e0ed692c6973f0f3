"""Make what is generated when the package is built or installed: the code of the protocol, a client that waits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: What differs in a client that waits for answers.
SYNCHRONOUS = {
    r"\b(async|await) ": "", r"AsyncGenerator\[(.*), None\]": r"Generator[\1, None, None]", r"\bAsync(?=[A-Z])": "",
    r"\baclosing\b": "closing", r"\bgrpc\.aio\b": "grpc", r"\basyncio\b": "time",
}  # fmt: skip


class GeneratedCode(BuildHookInterface):
    """Runs protoc, which comes as a wheel, and makes one client of the other, before hatchling collects the files."""

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

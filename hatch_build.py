"""Make the Python code of the protocol (proto/) when the package is built or installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtocolHook(BuildHookInterface):
    """Runs protoc, which comes as a wheel, before hatchling collects the files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write ``goffish/v1/*_pb2*.py`` and their type stubs.

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

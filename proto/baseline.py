"""Update the baseline of the protocol, `v1-baseline.binpb`, at a release: ``python proto/baseline.py``."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Write the descriptors of the current files; return the exit code of protoc."""
    bundled = Path(protoc.__file__).parent / "_proto"
    out = HERE / "v1-baseline.binpb"
    command = ["protoc", f"-I{HERE}", f"-I{bundled}", f"--descriptor_set_out={out}", "--include_imports"]
    return int(protoc.main([*command, *map(str, sorted(HERE.rglob("*.proto")))]))


if __name__ == "__main__":
    sys.exit(main())

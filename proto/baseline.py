"""Write what the protocol promises from now on, `v1-baseline.binpb`: ``python proto/baseline.py``, at a release."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Describe the files as they are now; gives protoc's exit code."""
    shipped = Path(protoc.__file__).parent / "_proto"
    out = HERE / "v1-baseline.binpb"
    command = ["protoc", f"-I{HERE}", f"-I{shipped}", f"--descriptor_set_out={out}", "--include_imports"]
    return int(protoc.main([*command, *map(str, sorted(HERE.rglob("*.proto")))]))


if __name__ == "__main__":
    sys.exit(main())

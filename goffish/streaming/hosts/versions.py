"""Versions of a flow on several hosts: each loads its file, which the operator has copied to all of them.

Only the name, digests and the difference of the versions cross between hosts. A file is run only if its contents are
those of the controller's file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goffish.errors import InputError
from goffish.streaming.flow_file import load_flow
from goffish.streaming.runtime.stages import divided
from goffish.streaming.topology import Topology
from goffish.streaming.updates.plan import UpdatePlan, plan_update
from goffish.streaming.updates.versions import PartialWindow, Strategy
from goffish.v1 import hosts_pb2

_NAMES = ("own", "own_state", "common", "movable", "migrated")


def file_of(topology: Topology) -> Any:
    """Return the message by which other hosts find the file of a version.

    Parameters
    ----------
    topology : Topology
        From a file.

    Raises
    ------
    InputError
        It is not from a file, or the file cannot be read.
    """
    if topology.file is None:
        raise InputError(f"flow {topology.name}: workers on several machines need the new version as a file")
    path, _, flow = topology.file.rpartition(":") if ".py:" in topology.file else (topology.file, "", "")
    return hosts_pb2.FlowFile(
        name=Path(path).name, flow=flow, digest=_digest(Path(path)), fingerprint=topology.fingerprint
    )


def load_file(file: Any, folder: Path, firsts: Sequence[str]) -> Topology:
    """Load the file of a version that another host has named.

    Parameters
    ----------
    file : FlowFile
    folder : Path
        With the files of versions of this host.
    firsts : sequence of str
        Operators that begin stages.

    Raises
    ------
    InputError
        The folder has no such file, or another version of it.
    """
    if file.name in (".", "..") or any(one in file.name for one in "/\\:\0") or not file.name:
        raise InputError(f"{file.name!r:.60}: must be the name of a file, without folders")
    path = folder / file.name
    if not path.is_file():
        raise InputError(f"{path}: no such file; copy it from the machine that runs the flow")
    if _digest(path) != file.digest:
        raise InputError(f"{path}: differs from the file of the machine that runs the flow; copy it from there")
    topology = divided(load_flow(f"{path}:{file.flow}" if file.flow else str(path)).check(), firsts)
    if topology.fingerprint != file.fingerprint:
        raise _differs(path)
    return topology


def _differs(path: Path) -> InputError:
    return InputError(
        f"{path}: has another effect than on the machine that runs the flow; modules that it uses, or those of the "
        "version before, differ"
    )


def _digest(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def plan_to_json(plan: UpdatePlan) -> str:
    """Return what a plan has beside its topologies, as JSON."""
    return json.dumps(_content(plan))


def _content(plan: UpdatePlan) -> dict[str, Any]:
    names = {name: sorted(getattr(plan, name)) for name in _NAMES}
    return names | {
        "number": plan.number, "strategy": str(plan.strategy), "partial_windows": str(plan.partial_windows),
        "kind": plan.kind.name, "mixes": plan.mixes,
    }  # fmt: skip


def plan_from_json(text: str, old: Topology, new: Topology, file: Path) -> UpdatePlan:
    """Return the plan that another host has sent, for the topologies of this one.

    Parameters
    ----------
    text : str
    old, new : Topology
    file : Path
        File of the new version.

    Raises
    ------
    InputError
        The versions of this host differ in another way.
    """
    given: dict[str, Any] = json.loads(text)
    strategy, partial_windows = Strategy(given["strategy"]), PartialWindow(given["partial_windows"])
    plan = plan_update(int(given["number"]), old, new, strategy, partial_windows)
    if _content(plan) != given:
        raise _differs(file)
    return plan

"""The registry of a ring as workers see it on another host than the controller's."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from goffish.errors import JobError
from goffish.streaming.ring.registry import FileRegistry, view_from_json, view_to_json
from goffish.streaming.ring.view import View

#: Unix socket of the agent for calls of the registry, in the folder of the workers.
REGISTRY = "registry"


class RemoteRegistry(FileRegistry):
    """A copy of the registry for reading; changes go through the agent of this host to the controller.

    The copy may be late, but has every change that this process has made, and what was newer when one failed.

    Parameters
    ----------
    folder : Path
        With the copy, and the socket of the agent.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "ring")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(folder / REGISTRY))
        self._file = self._socket.makefile("rb")

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            self._socket.sendall(json.dumps([name, *arguments]).encode() + b"\n")
            answer = self._file.readline()
        except OSError:
            answer = b""
        if not answer:
            raise JobError("the agent of this host has ended")
        return json.loads(answer)

    def replace(self, view: View) -> bool:
        """Make a view the newest version if it follows the newest version directly; return whether it did."""
        return bool(self._call("replace", view_to_json(view)))

    def claim(self, lane: str, node: int) -> None:
        """Make a node read a lane, if no node does."""
        self._call("claim", lane, node)

    def adopt(self, lost: Iterable[int], node: int) -> None:
        """Make a node read the lanes of others, each in its next life."""
        self._call("adopt", list(lost), node)

    def hand(self, lane: str, node: int, target: int, begin: str) -> bool:
        """Make a member of the ring read a lane that a node reads, from a place on; return whether that was done."""
        return bool(self._call("hand", lane, node, target, begin))

    def handed(self, lane: str) -> str | None:
        """Return the place from which a lane was handed to another node for the last time."""
        found: str | None = self._call("handed", lane)
        return found

    def lanes(self, node: int | None = None) -> dict[str, int]:
        """Return the lanes that a node reads, or all, with their lives."""
        found: dict[str, int] = self._call("lanes", node)
        return found

    def close(self) -> None:
        """Close the copy and the connection."""
        super().close()
        self._file.close()
        self._socket.close()


def answer_call(registry: FileRegistry, call: str) -> Any:
    """Return the result of a call of `RemoteRegistry`, as the controller computes it."""
    match json.loads(call):
        case ["replace", str(text)]:
            return registry.replace(view_from_json(text))
        case ["claim", str(lane), int(node)]:
            registry.claim(lane, node)
        case ["adopt", list(lost), int(node)]:
            registry.adopt(map(int, lost), node)
        case ["hand", str(lane), int(node), int(target), str(begin)]:
            return registry.hand(lane, node, target, begin)
        case ["handed", str(lane)]:
            return registry.handed(lane)
        case ["lanes", node]:
            return registry.lanes(None if node is None else int(node))
    return None

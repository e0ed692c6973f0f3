"""What all hosts of a flow must have in common, and how its workers run."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from goffish.errors import InputError
from goffish.partial import is_uri, local_path
from goffish.streaming.ring.options import Options
from goffish.streaming.runtime.plan import Delivery
from goffish.streaming.runtime.worker import Begin
from goffish.streaming.topology import Topology
from goffish.version import __version__


def software() -> str:
    """Return the versions that must be the same on all hosts: pickled messages cross between them."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"GoFFish {__version__}, Python {python}"


def check_hosts(topology: Topology, checkpoint: str | Path | None) -> None:
    """Reject a flow that cannot run on several hosts.

    Raises
    ------
    InputError
    """
    for name, sink in topology.sinks.items():
        if sink.spools and checkpoint is None:
            raise InputError(
                f"operator {name}: on several machines, what is prepared needs a folder that they share; give "
                "--checkpoint"
            )


def shared_folders(topology: Topology, checkpoint: Path | None) -> list[Path]:
    """Return the folders that must be the same on all hosts, in an order that is the same on all of them."""
    found = [] if checkpoint is None else [checkpoint]
    for _, sink in sorted(topology.sinks.items()):
        found += [local_path(folder).absolute() for folder in sink.folders if not is_uri(folder)]
    return found


class WorkerTerms(NamedTuple):
    """How the workers of a flow run.

    Attributes
    ----------
    options : Options
    begin : Begin
    firsts : sequence of str
        Operators that begin stages.
    """

    options: Options
    begin: Begin
    firsts: Sequence[str]

    def to_json(self) -> str:
        """Return the terms as JSON, without what only this host has."""
        begin = self.begin
        folder = None if begin.folder is None else str(begin.folder.absolute())
        return json.dumps({
            "options": asdict(self.options), "firsts": list(self.firsts), "folder": folder, "old": list(begin.old),
            "version": begin.version, "origins": dict(begin.origins), "delivery": begin.delivery,
            "spool": None if folder is None or begin.spool is None else str(begin.spool.absolute()),
        })  # fmt: skip

    @classmethod
    def from_json(cls, text: str, spool: Path) -> WorkerTerms:
        """Return terms that another host has sent.

        Parameters
        ----------
        text : str
        spool : Path
            Folder for what sinks have prepared, if the flow has no checkpoints.
        """
        given: dict[str, Any] = json.loads(text)
        folder = None if given["folder"] is None else Path(given["folder"])
        begin = Begin(
            folder, tuple(given["old"]), given["version"], given["origins"], None,
            spool if given["spool"] is None else Path(given["spool"]), Delivery(given["delivery"]), here=False,
        )  # fmt: skip
        return cls(Options(**given["options"]), begin, tuple(given["firsts"]))

"""A worker process that also writes what its checkpoints cost, as JSON lines.

``python -m experiments.ring.observed FILE WHOLE FOLDER NUMBER``: WHOLE is 1 if the size of the whole state is wanted
with each checkpoint, and 0 otherwise.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from goffish.streaming.ring.messages import Checkpoint
from goffish.streaming.runtime import process
from goffish.streaming.runtime.launch import Handle, Launcher
from goffish.streaming.runtime.packing import pack
from goffish.streaming.runtime.worker import Worker

_ROOT = Path(__file__).parents[2]


class Step(NamedTuple):
    """Something that a checkpoint made a worker do.

    Attributes
    ----------
    kind : str
        "capture" the changes, "pack" them, or "install" those of another worker.
    time, wall_s, cpu_s : float
        Begin, and duration by the clock and by the processor.
    size, whole : int
        Bytes of the checkpoint, and of the whole state or 0.
    partial : bool
        Whether the checkpoint holds changes only.
    """

    kind: str
    time: float
    wall_s: float
    cpu_s: float
    size: int = 0
    whole: int = 0
    partial: bool = True


def launcher(folder: Path, *, whole: bool) -> Launcher:
    """Return what starts observed workers, which write to a folder."""

    def start(number: int, command: Sequence[str]) -> Handle:
        arguments = [str(folder / f"{number}.jsonl"), str(int(whole)), *command[3:]]
        return subprocess.Popen(
            [*command[:2], "experiments.ring.observed", *arguments], stdin=subprocess.DEVNULL, cwd=_ROOT
        )

    return start


def steps(folder: Path) -> list[Step]:
    """Return what the workers have written."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines(keepends=True)]
    return [Step(*json.loads(line)) for line in lines if line.endswith("\n")]


def main() -> None:
    path, whole = sys.argv[1], sys.argv[2] == "1"
    del sys.argv[1:3]
    with Path(path).open("a", buffering=1) as out:
        _observe(out, whole)
        process.main()


def _observe(out: TextIO, whole: bool) -> None:
    """Let the worker of this process write what checkpoints make it do."""
    sizes = [0]

    def timed(call: Callable[[], Any]) -> tuple[Any, tuple[float, float, float]]:
        begun, cpu = time.monotonic(), time.thread_time()
        found = call()
        return found, (begun, time.monotonic() - begun, time.thread_time() - cpu)

    def note(step: Step) -> None:
        out.write(json.dumps(step) + "\n")

    class Observed(Worker):
        def tick(self, now: float) -> None:
            serial = self.node.serial
            _, times = timed(lambda: super(Observed, self).tick(now))
            if self.node.serial > serial:
                note(Step("capture", *times))
                sizes[0] = sum(one.nbytes for one in pack(self.extract(self.node.owned))) if whole else 0

        def receive(self, sender: int, message: Any, now: float) -> None:
            _, times = timed(lambda: super(Observed, self).receive(sender, message, now))
            if isinstance(message, Checkpoint):
                note(Step("install", *times, partial=not message.full))

    def packed(message: object) -> list[memoryview]:
        found: list[memoryview]
        found, times = timed(lambda: pack(message))
        if isinstance(message, Checkpoint):
            partial = not message.full and not message.replaced
            note(Step("pack", *times, sum(one.nbytes for one in found), sizes[0], partial))
        return found

    vars(process).update(Worker=Observed, pack=packed)


if __name__ == "__main__":
    main()

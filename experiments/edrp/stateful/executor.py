"""An executor: the process that some tasks of an operator are.

``python -m experiments.edrp.stateful.executor PORT KEYFILE NAME``: it connects to the job's coordinator, is told
what it is, imports, and works until the coordinator ends its connection. One thread does everything but reading.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

from experiments.edrp.stateful.definition import OUTSIDE, Operator, Stream, producer_of, task_of
from experiments.edrp.stateful.storage import DataStore, SwapArea
from experiments.edrp.stateful.task import Task
from experiments.edrp.stateful.wire import Door, connect, send

#: Messages taken before their items are processed.
_TURN = 256


class _Consumer:
    """An executor that items go to, or the sinks; what is to be sent to it."""

    def __init__(self, connection: Connection, operator: str, tasks: list[int]) -> None:
        self.connection: Connection | None = connection
        self.operator, self.tasks = operator, frozenset(tasks)
        self.items: list[Any] = []
        self.marks: dict[str, int] = {}

    def flush(self, name: str) -> None:
        if self.items or self.marks:
            self.send({"from": name, "items": self.items, "marks": self.marks})
            self.items, self.marks = [], {}

    def send(self, said: Any) -> None:
        if self.connection is not None:
            try:
                send(self.connection, said)
            except OSError:
                self.connection = None  # killed; its copies, if any, have connections of their own


class _Process:
    """What an executor knows and does."""

    def __init__(self, name: str, coordinator: int, key: bytes) -> None:
        self._name, self._key = name, key
        self._heard: SimpleQueue[tuple[Any, Connection]] = SimpleQueue()
        door = Door(key, lambda said, connection: self._heard.put((said, connection)))
        self._control = connect(coordinator, key)
        door.listen(self._control)
        self._operational = False
        self._pause: dict[str, Any] | None = None
        self._ended: set[tuple[int, str]] = set()
        self._told = 0
        self._tasks: dict[int, Task] = {}
        self._complete: dict[int, int] = {}
        send(self._control, {"hello": name, "port": door.port, "pid": os.getpid()})

    def work(self) -> NoReturn:
        """Do what is said until the coordinator is gone."""
        while True:
            self._hear(*self._heard.get())
            for _ in range(_TURN):
                if self._heard.empty():
                    break
                self._hear(*self._heard.get())
            if self._operational:
                self._process()

    def _hear(self, said: Any, connection: Connection) -> None:
        if said is None:
            if connection is self._control:
                os._exit(0)  # threads wait in accept and read
        elif "items" in said:
            for task, producer, number, key, value in said["items"]:
                self._tasks[task].receive(producer, number, key, value)
            for producer, complete in said["marks"].items():
                for found in self._tasks.values():
                    found.mark(producer, complete)
        elif "end" in said:
            self._ended.add((said["end"], said["from"]))
            self._export_when_ended()
        elif "begin" in said:
            self._begin(said["begin"])
        elif "go" in said or "resume" in said:
            self._operational, self._pause = True, None
        elif "pause" in said:
            self._operational, self._pause = False, said
            for consumer in self._consumers:
                consumer.send({"from": self._name, "end": said["pause"]})
            self._export_when_ended()
        elif "gone" in said:
            self._producers.discard(said["gone"])
            self._export_when_ended()

    def _begin(self, told: dict[str, Any]) -> None:
        """Steps 8 and 9: import, connect, and be at barrier B."""
        operators = tuple(Operator(**{**found, "inputs": tuple(found["inputs"])}) for found in told["operators"])
        stream = Stream(tuple(told["sources"]), operators, tuple(told["sinks"]))
        self._operator, self._stream = told["operator"], stream
        self._store, self._swap = DataStore(Path(told["store"])), SwapArea(Path(told["swap"]))
        self._producers: set[str] = set(told["producers"])
        for task in told["tasks"]:
            found = self._tasks[task] = Task(stream, self._operator)
            if told["epoch"]:
                label = producer_of(self._operator, task)
                exported = self._swap.get(told["epoch"], label) or self._store.get(told["epoch"], label)
                if exported is None:
                    send(self._control, {"failed": f"no export of task {task}"})
                    return
                found.restore(exported)
            self._complete[task] = -1
        self._swap.forget(told["epoch"])
        self._consumers = [
            _Consumer(connect(port, self._key), operator, tasks) for operator, tasks, port in told["consumers"]
        ]
        send(self._control, {"at": "B", "epoch": told["epoch"]})

    def _export_when_ended(self) -> None:
        """Steps 4 to 6: export when nothing comes any more, and be at barrier A."""
        pause = self._pause
        if pause is None or not all((pause["pause"], name) in self._ended for name in self._producers):
            return
        self._pause = None
        for name, place in (("store", self._store), ("swap", self._swap)):
            exports = {producer_of(self._operator, task): self._tasks[task].exported() for task in pause[name]}
            if exports:
                place.put(pause["pause"], exports)
        send(self._control, {"at": "A", "epoch": pause["pause"]})

    def _process(self) -> None:
        for index, task in self._tasks.items():
            producer = producer_of(self._operator, index)
            for number, key, value in task.run():
                for consumer in self._consumers:
                    if consumer.operator == OUTSIDE:
                        consumer.items.append((0, producer, number, key, value))
                        continue
                    at = task_of(key, self._stream.of[consumer.operator].tasks)
                    if at in consumer.tasks:
                        consumer.items.append((at, producer, number, key, value))
            if (complete := task.complete) > self._complete[index]:
                self._complete[index] = complete
                for consumer in self._consumers:
                    consumer.marks[producer] = complete
        for consumer in self._consumers:
            consumer.flush(self._name)
        dropped = sum(task.dropped for task in self._tasks.values())
        if dropped > self._told:
            send(self._control, {"dropped": dropped - self._told})
            self._told = dropped


def main() -> None:
    """Be an executor."""
    port, key, name = sys.argv[1:]
    _Process(name, int(port), Path(key).read_bytes()).work()


if __name__ == "__main__":
    main()

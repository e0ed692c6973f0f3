"""Jobs and deployments: operators with their tasks, and which executor on which machine has which tasks."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from goffish.errors import InputError

Kind = Literal["pass", "count"]
#: What sinks are called on the wire.
OUTSIDE = "outside"


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes
    ----------
    name : str
    kind : {"pass", "count"}
        Items as they are; or how many items of their key there were so far (stateful).
    inputs : tuple of str
        Sources and operators.
    tasks : int
        Parts of the keys.
    """

    name: str
    kind: Kind
    inputs: tuple[str, ...]
    tasks: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"operator {self.name}: kind {self.kind!r}: one of {', '.join(get_args(Kind))} is needed")
        if self.tasks < 1:
            raise InputError(f"operator {self.name}: {self.tasks} tasks: at least 1 is needed")
        if not self.inputs or len(set(self.inputs)) < len(self.inputs):
            raise InputError(f"operator {self.name}: inputs {self.inputs}: at least one is needed, each once")


@dataclass(frozen=True)
class Stream:
    """A job.

    Attributes
    ----------
    sources : tuple of str
    operators : tuple of Operator
        Each after those that it reads.
    sinks : tuple of str
        Operators whose items leave the job.
    """

    sources: tuple[str, ...]
    operators: tuple[Operator, ...]
    sinks: tuple[str, ...]

    def __post_init__(self) -> None:
        known = [*self.sources]
        for operator in self.operators:
            if missing := sorted(set(operator.inputs) - set(known)):
                raise InputError(f"operator {operator.name} reads {missing[0]!r}: no source or earlier operator")
            known.append(operator.name)
        if len(set(known) | {OUTSIDE}) < len(known) + 1:
            raise InputError(f"names {known}: each must be there once, and none be {OUTSIDE!r}")
        if missing := sorted(set(self.sinks) - set(self.of)):
            raise InputError(f"sink {missing[0]!r}: no operator")

    @cached_property
    def of(self) -> dict[str, Operator]:
        """Operators by name."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def depth(self) -> dict[str, int]:
        """Length of the numbers that each source and operator sends (`task.Task`)."""
        found = dict.fromkeys(self.sources, 1)
        for operator in self.operators:
            found[operator.name] = max(found[name] for name in operator.inputs) + (len(operator.inputs) > 1)
        return found

    def producers(self, name: str) -> list[tuple[str, int]]:
        """Producers of an operator's tasks, and which of its inputs each belongs to."""
        return [
            (producer_of(source, task), at)
            for at, source in enumerate(self.of[name].inputs)
            for task in range(self.of[source].tasks if source in self.of else 1)
        ]

    def consumers(self, name: str) -> list[str]:
        """Operators that read a source or an operator."""
        return [operator.name for operator in self.operators if name in operator.inputs]


class Executor(NamedTuple):
    """Tasks of an operator on a machine: one process.

    Attributes
    ----------
    operator : str
    machine : int
    tasks : tuple of int
    """

    operator: str
    machine: int
    tasks: tuple[int, ...]


Deployment = tuple[Executor, ...]


def producer_of(name: str, task: int) -> str:
    """A source or task as a producer."""
    return f"{name}/{task}"


def task_of(key: str, tasks: int) -> int:
    """The task that a key belongs to; the same in every process."""
    return zlib.crc32(key.encode()) % tasks


def spread(stream: Stream, machines: Mapping[str, Sequence[int]]) -> Deployment:
    """Share the tasks of each operator among one executor on each of its machines (repeat a machine for several)."""
    found = []
    for operator in stream.operators:
        places = machines[operator.name]
        if not 1 <= len(places) <= operator.tasks:
            raise InputError(f"operator {operator.name}: {len(places)} executors for {operator.tasks} tasks")
        found += [
            Executor(operator.name, machine, tuple(range(at, operator.tasks, len(places))))
            for at, machine in enumerate(places)
        ]
    return tuple(found)


def with_copies(stream: Stream, deployment: Deployment, copies: Mapping[str, Sequence[int]]) -> Deployment:
    """A deployment with copies of all tasks of some operators on more machines."""
    return deployment + tuple(
        Executor(name, machine, tuple(range(stream.of[name].tasks)))
        for name, machines in copies.items()
        for machine in machines
    )


def check(stream: Stream, deployment: Deployment) -> None:
    """Refuse deployments in which a task runs nowhere, or twice on a machine."""
    places: dict[tuple[str, int], list[int]] = {
        (operator.name, task): [] for operator in stream.operators for task in range(operator.tasks)
    }
    for executor in deployment:
        for task in executor.tasks:
            if (executor.operator, task) not in places:
                raise InputError(f"executor of task {task} of {executor.operator!r}: there is none")
            places[executor.operator, task].append(executor.machine)
    for (name, task), machines in places.items():
        if not machines or len(set(machines)) < len(machines):
            raise InputError(f"task {task} of {name} on machines {machines}: one or more, each once, are needed")

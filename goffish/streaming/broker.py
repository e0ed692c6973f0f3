"""Queues of messages between the instances of a dataflow that runs for real."""

from __future__ import annotations

import json
import secrets
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.providers import Provider, Task
from goffish.errors import JobError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import SLACK, Floats, Flow

#: Work that is handed out at a time: short, so that a new plan takes hold soon.
_ORDER_S = 0.2
_CONNECTS_S = 30.0
#: How long it is waited for messages before new ones are let in.
_TURN_S = 0.01


class Measured(NamedTuple):
    """What happened in an interval.

    Attributes
    ----------
    processed, out, inflow : float64, shape (elements,)
        Messages per second.
    queue : float64, shape (elements,)
        Messages that wait at its end.
    coefficients : mapping from machine id to float
        Speed that its instances had, over the rated speed; machines without any work are left out.
    """

    processed: Floats
    out: Floats
    inflow: Floats
    queue: Floats
    coefficients: Mapping[int, float]


@dataclass
class _Instance:
    element: int
    machine: int
    task: Task
    connection: Connection | None = None
    ordered: int = 0
    cost: float = 0.0
    leaves: bool = False


class Broker:
    """A dataflow on a provider's machines.

    Parameters
    ----------
    flow : Flow
    provider : Provider
        Machine ids of deployments are its ids.
    reference_share : float
        Part of a processor that a reference core is: a message of cost c takes ``c * reference_share`` seconds of one.
    folder : Path
        For the key that instances show.
    """

    def __init__(self, flow: Flow, provider: Provider, reference_share: float, folder: Path) -> None:
        self._flow, self._provider, self._share = flow, provider, reference_share
        key = secrets.token_bytes(32)
        self._key = folder / "broker.key"
        self._key.unlink(missing_ok=True)
        self._key.touch(mode=0o600)
        self._key.write_bytes(key)
        self._listener = Listener(("127.0.0.1", 0), backlog=128, authkey=key)
        self._instances: dict[int, _Instance] = {}
        self._named = 0
        self._lock = threading.Lock()
        self._active: NDArray[np.int64] = flow.best.copy()
        self._queue = np.zeros(flow.size)
        self._part = np.zeros(flow.size)  # of a message, that selectivities and rates leave over
        self._speeds: dict[int, float] = {}
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let all instances go."""
        self._closed = True
        for instance in self._instances.values():
            if instance.connection is not None:
                instance.connection.close()
        self._listener.close()
        self._key.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
                name = json.loads(connection.recv_bytes(1 << 10))["name"]
            except (OSError, EOFError, ValueError, KeyError, AuthenticationError):
                continue  # not an instance, or one that has ended
            with self._lock:
                if name in self._instances:
                    self._instances[name].connection = connection
                else:
                    connection.close()

    def apply(self, deployment: Deployment) -> None:
        """Start and end instances so that they are those of a deployment, and switch alternates.

        Instances of machines that do not run yet are started by a later call.
        """
        self._active = deployment.active.copy()
        speeds = deployment.catalogue.speeds
        self._speeds |= {number: float(speeds[machine.kind]) for number, machine in deployment.machines.items()}
        states = self._provider.states()
        wanted = {
            (machine, element): count
            for machine, found in deployment.machines.items() if states.get(machine) == "running"
            for element, count in found.instances.items()
        }  # fmt: skip
        self._forget_lost(states)
        have: dict[tuple[int, int], list[int]] = {}
        for name, instance in self._instances.items():
            if not instance.leaves:
                have.setdefault((instance.machine, instance.element), []).append(name)
        for place, names in have.items():
            for name in names[wanted.get(place, 0) :]:
                self._instances[name].leaves = True
        for (machine, element), count in wanted.items():
            for _ in range(count - len(have.get((machine, element), []))):
                self._start(machine, element)

    def _start(self, machine: int, element: int) -> None:
        name, self._named = self._named, self._named + 1
        host, port = self._listener.address
        command = [
            sys.executable,
            "-m",
            "goffish.streaming.instance",
            str(host),
            str(port),
            str(self._key),
            str(name),
        ]
        with self._lock:
            self._instances[name] = _Instance(element, machine, self._provider.submit(machine, command))

    def _forget_lost(self, states: Mapping[int, str]) -> None:
        """Messages that a lost instance was working on go back to the queue."""
        for name, instance in list(self._instances.items()):
            if states.get(instance.machine) != "running":
                self._drop(name)

    def _drop(self, name: int) -> None:
        with self._lock:
            instance = self._instances.pop(name)
        self._queue[instance.element] += instance.ordered
        if instance.connection is not None:
            instance.connection.close()

    def wait_for_instances(self) -> None:
        """Wait until all instances that were started are there, but for those of machines that were lost meanwhile."""
        end = time.monotonic() + _CONNECTS_S
        while any(instance.connection is None for instance in self._instances.values()):
            for number, instance in list(self._instances.items()):
                code = self._provider.exit_code(instance.task)
                if instance.connection is not None or code is None:
                    continue
                if code != -signal.SIGKILL:
                    name = self._flow.names[instance.element]
                    raise JobError(f"an instance of {name} on machine {instance.machine} ended with code {code}")
                self._drop(number)
            if time.monotonic() > end:
                raise JobError(f"instances did not start within {_CONNECTS_S:g} s")
            time.sleep(0.02)

    def run(self, seconds: float, external: Floats) -> Measured:
        """Let the dataflow work for so long, with so many messages per second coming in."""
        begun = last = time.monotonic()
        done, out, came = (np.zeros(self._flow.size) for _ in range(3))
        busy: dict[int, tuple[float, float]] = {}
        while (now := time.monotonic()) < begun + seconds:
            for element in self._flow.inputs.tolist():
                self._arrive(element, external[element] * (now - last), came)
            last = now
            self._hand_out()
            working = {
                i.connection: name for name, i in self._instances.items() if i.connection is not None and i.ordered
            }
            for connection in wait(list(working), timeout=_TURN_S):
                self._collect(working[connection], done, out, came, busy)  # type: ignore[index]
            if not working:
                time.sleep(_TURN_S)
        length = time.monotonic() - begun
        waiting = self._queue.copy()
        for instance in self._instances.values():
            waiting[instance.element] += instance.ordered
        coefficients = {machine: work / could for machine, (work, could) in busy.items() if could > 0}
        return Measured(done / length, out / length, came / length, waiting, coefficients)

    def _arrive(self, element: int, messages: float, came: Floats) -> None:
        """Messages come to an element; parts of one wait until they are whole."""
        came[element] += messages
        self._part[element] += messages
        whole = np.floor(self._part[element] + SLACK)
        self._part[element] -= whole
        self._queue[element] += whole

    def _hand_out(self) -> None:
        """Give work to all instances that have none; those that have to leave go."""
        for name in [name for name, i in self._instances.items() if i.leaves and not i.ordered]:
            self._drop(name)
        costs = self._flow.cost[self._flow.rows(self._active)]
        for instance in self._instances.values():
            element, connection = instance.element, instance.connection
            if connection is None or instance.ordered or self._queue[element] < 1:
                continue
            speed = self._speed(instance.machine)
            messages = int(min(self._queue[element], max(1.0, _ORDER_S * speed / costs[element])))
            order = {"messages": messages, "cpu_s": costs[element] * self._share, "share": speed * self._share}
            try:
                connection.send_bytes(json.dumps(order).encode())
            except OSError:
                continue  # it is forgotten as soon as its end of the connection is found closed, or its machine gone
            instance.ordered, instance.cost = messages, float(costs[element])
            self._queue[element] -= messages

    def _collect(
        self, name: int, done: Floats, out: Floats, came: Floats, busy: dict[int, tuple[float, float]]
    ) -> None:
        """Take what an instance has done and pass its messages on."""
        instance = self._instances[name]
        assert instance.connection is not None
        try:
            report = json.loads(instance.connection.recv_bytes(1 << 10))
        except (EOFError, OSError):
            self._drop(name)
            return
        element, messages = instance.element, report["messages"]
        instance.ordered = 0
        work, could = busy.get(instance.machine, (0.0, 0.0))
        could += report["seconds"] * self._speed(instance.machine)
        busy[instance.machine] = (work + messages * instance.cost, could)
        sent = messages * float(self._flow.selectivity[self._flow.rows(self._active)[element]])
        done[element] += messages
        out[element] += sent
        for follower in self._flow.succ[
            self._flow.succ_offsets[element] : self._flow.succ_offsets[element + 1]
        ].tolist():
            self._arrive(follower, sent, came)

    def _speed(self, machine: int) -> float:
        return self._speeds[machine]

"""Hosts of a flow that a provider rents as a policy plans them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goffish.cloud.catalogue import Catalogue
from goffish.cloud.providers.processes import ProcessState
from goffish.streaming.rented.fleet import Demand, FlowMachine
from goffish.streaming.rented.machines import RentedMachines
from goffish.streaming.runtime.launch import Handle


class PlannedMachines(RentedMachines):
    """Hosts of a provider, each of which is rented and released on request; other arguments as of `RentedMachines`."""

    def __init__(self, *given: Any, here: int = 0, **options: Any) -> None:
        self._ordered: list[str] = []  # machine types, by the number of the machine
        self._given_up: set[int] = set()
        super().__init__(*given, here=max(1, here), **options)  # the worker that reads the sources

    @property
    def catalogue(self) -> Catalogue:
        """The machine types of the provider, of which as many run as the limits allow."""
        found = self._renting.provider.catalogue
        most = self._renting.limits.max_machines
        return found.model_copy(update={"limit": most if found.limit is None else min(most, found.limit)})

    def start(self, kind: int) -> int:
        """Begin to rent a machine of a type of the catalogue, and return its number; they count from 0."""
        first = not self._ordered
        self._ordered.append(self._renting.provider.catalogue.classes[kind].name)
        if first:
            self.fleet.start()
        self.fleet.look()
        return len(self._ordered) - 1

    def stop(self, machine: int) -> None:
        """Release a machine; its workers hand over what they have."""
        self._given_up.add(machine)
        self.fleet.look()

    def fail(self, machine: int) -> None:
        """Do nothing: machines of providers fail by themselves."""

    def states(self) -> Mapping[int, ProcessState]:
        """State of every machine.

        Raises
        ------
        JobError
            No machine can run.
        """
        self._check()
        rented = {one.key: one for one in self.fleet.machines}
        ready = {host.machine for host in list(self._hosts.values()) if host.accepted and not host.leaving}
        return {number: self._state(number, rented.get(number), ready) for number in range(len(self._ordered))}

    def _state(self, number: int, one: FlowMachine | None, ready: set[str]) -> ProcessState:
        if number in self._given_up:
            return "stopped"
        if one is None or (one.counts and not one.joined):
            return "starting"
        if not one.counts:
            return "failed"
        return "running" if one.name in ready else "starting"

    def launch(self, machine: int | None, number: int, command: Sequence[str]) -> Handle:
        """Start a worker on a machine, or here."""
        names = {one.key: one.name for one in self.fleet.machines}
        host = 0
        if machine is not None:
            host = next((one.number for one in list(self._hosts.values()) if one.machine == names.get(machine)), 0)
        self._chosen = host
        return self(number, command)

    def alternate(self, workers: Sequence[int], replication: int) -> list[int]:
        """Return workers in their order, which is that of the plan."""
        return list(workers)

    def _lacking(self, machines: Sequence[FlowMachine]) -> Demand | None:
        return next((Demand((name,), number) for number, name in self._without()), None)

    def _spare(self, machines: Sequence[FlowMachine]) -> FlowMachine | None:
        found = [one for one in machines if one.key < 0]  # of the run that this one resumes
        for number, name in self._without():
            again = next((one for one in found if one.machine.machine_type == name), None)
            if again is not None:
                again.key = number
                found.remove(again)
        if self._terms is None:  # not all machines of the first deployment were ordered
            return None
        return next((one for one in machines if one.key < 0 or one.key in self._given_up), None)

    def _without(self) -> list[tuple[int, str]]:
        """Return number and type of the machines that were ordered, and not yet requested."""
        known = {one.key for one in self.fleet.machines} | self._given_up
        return [(number, name) for number, name in enumerate(self._ordered) if number not in known]

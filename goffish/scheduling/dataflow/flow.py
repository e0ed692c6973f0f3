"""A dataflow as arrays, and estimates of its throughput on a deployment.

See docs/specs/provisioning.md, sections 2.4, 2.5 and 3.1. PEs are numbered in the order of their definition, and the
alternates of each PE from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from goffish.errors import InputError
from goffish.scheduling.dataflow import kernels
from goffish.scheduling.dataflow.model import Dataflow, Goal
from goffish.scheduling.dataflow.needs import NeedColumns, need_columns

Floats = NDArray[np.float64]
Measure = Literal["mean", "ratio_of_sums"]
#: Tolerance of comparisons of throughputs, costs and profits.
SLACK = kernels.SLACK


_STRUCTURE = ("graph", "alternates", "alternate_counts", "best", "worst", "sigma", "forward")


@dataclass(frozen=True, eq=False)
class Flow:
    """A compiled dataflow.

    Attributes
    ----------
    names : tuple of str
    alternate_names : tuple of str, shape (alternates,)
    order : int64, shape (elements,)
        Topological; ties are broken by the lowest number.
    succ_offsets, succ : int64
        Successors of PE i are ``succ[succ_offsets[i]:succ_offsets[i + 1]]``, ascending.
    pred_offsets, pred : int64
    outputs : int64
        PEs whose messages leave the dataflow.
    rates : float64, shape (elements,)
        Expected external input, messages per second; 0 for PEs without an external stream.
    alternate_offsets : int64, shape (elements + 1,)
    cost, value, selectivity : float64, shape (alternates,)
        `value` is relative: the best alternate of each PE has 1 (Eq. 1).
    message_bits : float
    goal : Goal
    needs : NeedColumns
        Requirements of an instance of each PE on its machine.
    """

    names: tuple[str, ...]
    alternate_names: tuple[str, ...]
    order: NDArray[np.int64]
    succ_offsets: NDArray[np.int64]
    succ: NDArray[np.int64]
    pred_offsets: NDArray[np.int64]
    pred: NDArray[np.int64]
    outputs: NDArray[np.int64]
    inputs: NDArray[np.int64]
    rates: Floats
    alternate_offsets: NDArray[np.int64]
    cost: Floats
    value: Floats
    selectivity: Floats
    message_bits: float
    goal: Goal
    needs: NeedColumns

    @property
    def size(self) -> int:
        """Number of PEs."""
        return len(self.names)

    @cached_property
    def alternate_counts(self) -> NDArray[np.int64]:
        return np.diff(self.alternate_offsets)

    @cached_property
    def best(self) -> NDArray[np.int64]:
        """The alternate of the greatest value of each PE, the first among equals."""
        return self._extreme(-self.value)

    @cached_property
    def worst(self) -> NDArray[np.int64]:
        return self._extreme(self.value)

    def _extreme(self, key: Floats) -> NDArray[np.int64]:
        limits = zip(self.alternate_offsets[:-1].tolist(), self.alternate_offsets[1:].tolist(), strict=True)
        return np.array([int(np.argmin(key[low:high])) for low, high in limits], np.int64)

    def rows(self, active: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of `cost`, `value` and `selectivity` of the active alternates."""
        return self.alternate_offsets[:-1] + active

    def value_of(self, active: NDArray[np.int64]) -> float:
        """Value of the dataflow: the mean over its PEs (Eq. 3)."""
        return float(self.value[self.rows(active)].mean())

    @cached_property
    def sigma(self) -> float:
        """Value of a unit of money (Eq. 9); 0 if the goal has no costs or no alternates differ."""
        best, worst = self.goal.cost_at_best_value, self.goal.cost_at_worst_value
        if best is None or worst is None:
            return 0.0
        return (self.value_of(self.best) - self.value_of(self.worst)) / (best - worst)

    def profit(self, value: float, cost: float) -> float:
        """Profit, form A: value minus the value of the cost (§2.6)."""
        return value - self.sigma * cost

    def profit_against_break_even(self, value: float, cost: float) -> float:
        """Profit, form B (Eq. 8): 0 on the line between the goal's two costs; differs from form A by a constant."""
        best = self.goal.cost_at_best_value or 0.0
        return self.profit(value, cost) - self.value_of(self.best) + self.sigma * best

    @cached_property
    def forward(self) -> NDArray[np.int64]:
        """PEs in depth-first order from the inputs, lower numbers first, so that neighbors are close to each other."""
        seen = [False] * self.size
        found: list[int] = []
        stack = self.inputs[::-1].tolist()
        ends, succ = self.succ_offsets.tolist(), self.succ.tolist()
        while stack:
            element = stack.pop()
            if not seen[element]:
                seen[element] = True
                found.append(element)
                stack.extend(succ[ends[element] : ends[element + 1]][::-1])
        return np.array(found, np.int64)

    @cached_property
    def graph(self) -> kernels.FlowGraph:
        """The edges, in the form that kernels take."""
        position = np.empty(self.size, np.int64)
        position[self.order] = np.arange(self.size)
        return kernels.FlowGraph(
            self.order, position, self.pred_offsets, self.pred, self.succ_offsets, self.succ, self.outputs
        )

    @cached_property
    def alternates(self) -> kernels.Alternates:
        """The alternates, in the form that kernels take."""
        return kernels.Alternates(self.alternate_offsets, self.cost, self.value, self.selectivity)

    def activated(self, active: NDArray[np.int64]) -> kernels.ActiveFlow:
        """The dataflow with these alternates, in the form that kernels take."""
        rows = self.rows(active)
        return kernels.ActiveFlow(self.graph, self.cost[rows], self.selectivity[rows])

    def with_rates(self, rates: Floats) -> Flow:
        """Return the dataflow with other expected inputs."""
        made = replace(self, rates=np.asarray(rates, np.float64))
        # Reuse what does not depend on rates: services plan the same dataflow for new rates again and again.
        made.__dict__.update({name: self.__dict__[name] for name in _STRUCTURE if name in self.__dict__})
        return made

    def ideal(self, active: NDArray[np.int64], external: Floats) -> tuple[Floats, Floats]:
        """Input and output of every PE with unlimited resources, messages per second."""
        into, out = np.empty(self.size), np.empty(self.size)
        kernels.ideal_rates(self.activated(active), external, into, out)
        return into, out

    def critical_path(self, node: Floats, edge: Floats) -> float:
        """The longest path from an input to a PE without successors.

        Parameters
        ----------
        node : float64, shape (elements,)
            Length of each PE.
        edge : float64, shape (edges,)
            Length of each edge, in the order of `pred`.
        """
        return float(kernels.longest_path(self.graph, node, edge))

    def link_delays(self, hosts: Hosts, delay_s: Floats) -> Floats:
        """Mean seconds that a message of each edge spends between machines, shape (edges,).

        Instances receive messages in proportion to their speed.

        Parameters
        ----------
        hosts : Hosts
        delay_s : float64, shape (sites, sites)
            Delay between two different machines.
        """
        shares = csr_array((hosts.share, hosts.vm, hosts.offsets), (self.size, hosts.site.size))
        sites = shares @ np.eye(len(delay_s))[hosts.site]
        source, target = self.pred, np.repeat(np.arange(self.size), np.diff(self.pred_offsets))
        inside = shares[source].multiply(shares[target]) @ np.diagonal(delay_s)[hosts.site]
        return np.asarray(((sites[source] @ delay_s) * sites[target]).sum(axis=1) - inside).clip(min=0.0)

    def estimate(
        self,
        active: NDArray[np.int64],
        power: Floats,
        external: Floats | None = None,
        *,
        queue: Floats | None = None,
        interval_s: float = 1.0,
        hosts: Hosts | None = None,
        measure: Measure = "mean",
    ) -> Estimate:
        """Estimate the rates of all PEs with these powers in an interval (§3.1).

        Parameters
        ----------
        active : int64, shape (elements,)
            Alternate of each PE.
        power : float64, shape (elements,)
            Total speed of the cores of each PE (phi).
        external : float64, optional
            External input, messages per second; default: the rates of the definition.
        queue : float64, optional
            Messages queued at the beginning.
        interval_s : float
        hosts : Hosts, optional
            Locations of the PEs, if links between machines limit the rates; default: links are unlimited.
        measure : {"mean", "ratio_of_sums"}
            Relative throughput: the mean over the outputs, or total output over total ideal output.
        """
        external = self.rates if external is None else external
        table = np.empty((6, self.size))
        backlog = np.zeros(self.size) if queue is None else queue / interval_s
        omegas = kernels.estimate_active(self.graph, self.alternates, active, external, power, backlog, table)
        if hosts is not None:
            running, rates = self.activated(active), kernels.Rates(*table)
            found = kernels.estimate_on_network(running, external, power, backlog, hosts, self.message_bits, rates)
            omegas = found if (power > 0).all() else omegas
        return Estimate(omegas[0 if measure == "mean" else 1], *table)


class Estimate(NamedTuple):
    """Estimated rates of a deployment.

    Attributes
    ----------
    omega : float
        Relative throughput of the dataflow, 0 to 1 (Eq. 7, against ideal rates).
    local, inflow, processed, out, ideal_in, ideal_out : float64, shape (elements,)
        See `goffish.scheduling.dataflow.kernels.Rates`.
    """

    omega: float
    local: Floats
    inflow: Floats
    processed: Floats
    out: Floats
    ideal_in: Floats
    ideal_out: Floats


class Hosts(NamedTuple):
    """Locations of the PEs.

    Attributes
    ----------
    offsets : int64, shape (elements + 1,)
        Places of PE i are ``offsets[i]`` to ``offsets[i + 1]``.
    vm : int64, shape (places,)
        Machine of each place; ascending within a PE.
    share : float64, shape (places,)
        Share of the PE's speed on that machine.
    bandwidth : float64, shape (machines,)
        Mbit/s.
    site : int64, shape (machines,)
    between : float64, shape (sites, sites)
        Bandwidth of the links between sites, Mbit/s.
    """

    offsets: NDArray[np.int64]
    vm: NDArray[np.int64]
    share: Floats
    bandwidth: Floats
    site: NDArray[np.int64]
    between: Floats

    def shared(self) -> Hosts:
        """Convert `share` from speeds to the share of each place in the speed of its PE."""
        element = np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))
        total = np.bincount(element, self.share, self.offsets.size - 1)[element]
        return self._replace(share=np.divide(self.share, total, out=np.zeros_like(self.share), where=total > 0))

    @property
    def limited(self) -> bool:
        """Whether any link has a limit."""
        return bool(np.isfinite(self.bandwidth).any() or np.isfinite(self.between).any())


def compile_flow(dataflow: Dataflow) -> Flow:
    """Compile a definition to arrays."""
    names = [element.id for element in dataflow.elements]
    number = {name: at for at, name in enumerate(names)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(names)))
    graph.add_edges_from((number[u], number[v]) for u, v in dataflow.edges)
    order = list(nx.lexicographical_topological_sort(graph))
    choices = [element.choices for element in dataflow.elements]
    rates = np.zeros(len(names))
    for name, rate in dataflow.inputs.items():
        rates[number[name]] = rate
    return Flow(
        names=tuple(names),
        alternate_names=tuple(a.id for some in choices for a in some),
        order=np.array(order, np.int64),
        outputs=np.array(sorted(number[name] for name in dataflow.output_elements), np.int64),
        inputs=np.array(sorted(number[name] for name in dataflow.inputs), np.int64),
        rates=rates,
        alternate_offsets=np.concatenate(([0], np.cumsum([len(some) for some in choices]))).astype(np.int64),
        cost=np.array([a.cost for some in choices for a in some]),
        value=np.array([a.value / max(b.value for b in some) for some in choices for a in some]),
        selectivity=np.array([a.selectivity for some in choices for a in some]),
        message_bits=dataflow.message_bytes * 8.0,
        goal=dataflow.goal,
        needs=need_columns([element.needs for element in dataflow.elements]),
        **_neighbours(graph),
    )


def _neighbours(graph: Any) -> dict[str, NDArray[np.int64]]:
    found = {}
    for name, of in (("succ", graph.successors), ("pred", graph.predecessors)):
        lists = [sorted(of(at)) for at in range(graph.number_of_nodes())]
        found[f"{name}_offsets"] = np.concatenate(([0], np.cumsum([len(some) for some in lists]))).astype(np.int64)
        found[name] = np.array([v for some in lists for v in some], np.int64)
    return found


def external_rates(flow: Flow, rates: dict[str, float]) -> Floats:
    """Return rates by PE name as an array; PEs that are not named keep their expected rates."""
    found = flow.rates.copy()
    for name, rate in rates.items():
        if name not in flow.names:
            raise InputError(f"rates: unknown processing element {name!r}; accepted: {', '.join(flow.names[:20])}")
        found[flow.names.index(name)] = rate
    return found

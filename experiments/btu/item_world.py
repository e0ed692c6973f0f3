"""The arrays of a run of single messages, and what comes in. See docs/specs/btu.md, section 4.1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.btu import _item_kernels
from experiments.btu.item_results import LEVELS
from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.policies.btu.model import Action, ClusterState, Settings

Ints = NDArray[np.int64]
_NOISE = 1 << 20
_SLOTS = 64


class Trace(NamedTuple):
    """What comes in.

    Attributes
    ----------
    moments : float64, shape (messages,)
        Ascending, seconds.
    operators : int64, shape (messages,)
        Who gets each.
    machines : int64, shape (minutes,)
        That report.
    end_s : float
    """

    moments: Floats
    operators: Ints
    machines: Ints
    end_s: float


class Noisy(Protocol):
    """What `make_world` needs of a setting."""

    @property
    def service_share(self) -> float: ...

    @property
    def noise(self) -> float: ...

    @property
    def sample_every(self) -> int: ...


def make_trace(flow: Flow, machines: NDArray[np.int64], messages: Mapping[str, int], step_s: float) -> Trace:
    """Messages of machines that report in steps.

    Parameters
    ----------
    flow : Flow
    machines : int64, shape (minutes,)
    messages : mapping
        Element to messages of one machine in a step; they are spread evenly over it.
    step_s : float
    """
    end = machines.size * 60.0
    steps = round(end / step_s)
    begins = np.arange(steps) * step_s
    reporting = machines[np.minimum((begins / 60.0 + 1e-9).astype(np.int64), machines.size - 1)]
    moments, operators = [], []
    for name, each in messages.items():
        if name not in flow.names:
            raise InputError(f"no element {name!r}; there are: {', '.join(flow.names[:20])}")
        counts = reporting * each
        first = np.repeat(np.cumsum(counts) - counts, counts)
        within = np.arange(int(counts.sum())) - first
        moments.append(np.repeat(begins, counts) + (within + 0.5) / np.repeat(counts, counts) * step_s)
        operators.append(np.full(within.size, flow.names.index(name), np.int64))
    joined = np.concatenate(moments)
    order = np.argsort(joined, kind="stable")
    return Trace(joined[order], np.concatenate(operators)[order], np.asarray(machines, np.int64), end)


class World:
    """Queues, instances and what was measured; the kernels work on `arrays`, whose names are attributes here."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays

    def __getattr__(self, name: str) -> Any:
        if name == "arrays":
            raise AttributeError(name)
        for table in (self.arrays.ops, self.arrays.each, self.arrays.run):
            if name in table.dtype.names:
                return table[name]
        return getattr(self.arrays, name)

    def advance(self, until: float) -> None:
        """Move messages until a moment; queues become as long as they need to be."""
        while not _item_kernels.advance(self.arrays, until):
            a = self.arrays
            capacity = a.queue.shape[1]
            longer = np.zeros((a.queue.shape[0], 2 * capacity))
            for op, head in enumerate(a.ops["head"].tolist()):
                longer[op, :capacity] = np.roll(a.queue[op], -head)
            a.ops["head"], a.run["full"] = 0, 0
            self.arrays = a._replace(queue=longer)

    def add(self, operator: int, now: float) -> int:
        """An instance begins to serve; gives its slot."""
        while (slot := _item_kernels.add_slot(self.arrays, operator, now)) < 0:
            a = self.arrays
            wider = np.concatenate((a.slot, np.zeros_like(a.slot)), axis=1)
            self.arrays = a._replace(slot=wider, each=np.concatenate((a.each, np.zeros_like(a.each))))
        return int(slot)

    def drain(self, slot: int, now: float) -> float:
        """An instance takes nothing more; gives when it has finished."""
        return float(_item_kernels.drain_slot(self.arrays, slot, now))

    def serves(self, slot: int) -> bool:
        """Whether an instance has a message."""
        return slot >= 0 and bool(self.arrays.each["busy"][slot])


#: Of an operator: what it is (`every` messages one is sent on), its ring of waiting messages, and what was counted.
_OPS = np.dtype(
    [(name, np.float64) for name in ("service", "other", "objective", "sampled_s", "late_s")]
    + [
        (name, np.int64)
        for name in ("every", "head", "length", "begun", "entered", "completed", "idle", "slots", "sampled")
    ],
    align=True,
)
#: Of a slot: whose it is and what it does, its message, and a place in the heap of ends of services.
_EACH = np.dtype(
    [(name, np.float64) for name in ("done", "arrival", "messaging")]
    + [(name, np.int64) for name in ("role", "slot_op", "heap", "busy")],
    align=True,
)
_RUN = np.dtype(
    [("adapting_s", np.float64), *((name, np.int64) for name in ("adapted", "cursor", "full", "heap_size"))], align=True
)


class _Arrays(NamedTuple):
    """See `make_world`."""

    trace_s: Floats
    trace_op: Ints
    succ_offsets: Ints
    succ: Ints
    limits: Floats
    noise: Floats
    sample_every: int
    queue: Floats
    slot: Ints
    seen: Ints
    recent: Floats
    ops: NDArray[np.void]
    each: NDArray[np.void]
    run: NDArray[np.void]


def make_world(flow: Flow, trace: Trace, setting: Noisy, window: int, rng: np.random.Generator) -> World:
    """Empty queues, no instances.

    Raises
    ------
    InputError
        A selectivity that is not one message for so many, or a share or noise out of its range.
    """
    selectivity = flow.selectivity[flow.rows(flow.best)]
    every = np.rint(1.0 / selectivity)
    wrong = np.flatnonzero(np.abs(every * selectivity - 1.0) > 1e-6)
    if wrong.size:
        refused = f"element {flow.names[wrong[0]]}: selectivity = {selectivity[wrong[0]]:g}"
        raise InputError(f"{refused}: 1 over a whole number is needed")
    if not 0 < setting.service_share <= 1:
        raise InputError(f"service_share = {setting.service_share:g}: more than 0 and at most 1 is needed")
    if not 0 <= setting.noise < 10:
        raise InputError(f"noise = {setting.noise:g}: 0 or more is needed")
    n, objective = flow.size, flow.needs.duration_s

    ops = np.zeros(n, _OPS)
    ops["every"], ops["objective"], ops["late_s"] = every, objective, -1.0
    ops["service"], ops["other"] = setting.service_share * objective, (1.0 - setting.service_share) * objective
    return World(
        _Arrays(
            trace_s=trace.moments,
            trace_op=trace.operators,
            succ_offsets=flow.succ_offsets,
            succ=flow.succ,
            limits=np.array(list(LEVELS.values())),
            noise=np.exp(setting.noise * rng.standard_normal(_NOISE) - setting.noise**2 / 2),
            sample_every=setting.sample_every,
            queue=np.zeros((n, 1 << 12)),
            slot=np.zeros((n, _SLOTS), np.int64),
            seen=np.zeros((max(1, round(trace.end_s / 60.0)), n, 1 + len(LEVELS)), np.int64),
            recent=np.zeros((n, window)),
            ops=ops,
            each=np.zeros(_SLOTS, _EACH),
            run=np.zeros(1, _RUN),
        )
    )


def unfinished(world: World, now: float) -> int:
    """Count what is not finished, and as delayed what is too old already."""
    return int(_item_kernels.count_unfinished(world.arrays, now))


@dataclass(frozen=True)
class FixedController:
    """Over-provisioning: what is there at the beginning stays."""

    settings: Settings = field(default_factory=Settings)
    by_units: bool = False

    def cycle(self, state: ClusterState, rng: np.random.Generator) -> list[Action]:
        """Nothing."""
        return []

    def host_end(self, state: ClusterState, host: int, unit_s: float) -> list[Action]:
        """Nothing."""
        return []

    def unit_end(self, state: ClusterState, host: int, unit_s: float, empty: bool) -> list[Action]:
        """Nothing."""
        return []

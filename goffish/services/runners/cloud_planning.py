"""Planning of graph jobs on spot machines: market model, policy and expected cost.

Plans use the first half of the price histories; jobs run in the second half.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from cachetools import LRUCache

from goffish.cloud.billing import rent
from goffish.cloud.catalogue import Billing, Catalogue, MachineType
from goffish.cloud.prices import ANY_PRICE, Trace, in_slots
from goffish.cloud.spot_market import machine_trace, spot_price
from goffish.errors import InputError
from goffish.scheduling.spot.agent import Agent
from goffish.scheduling.spot.availability import availability_class
from goffish.scheduling.spot.bill_kernels import FIRST_HOUR_FREE, PAID, QUANTUM_FREE, Course
from goffish.scheduling.spot.bills import Bills, bills
from goffish.scheduling.spot.comparison import heuristic_of
from goffish.scheduling.spot.estimate import estimate_class
from goffish.scheduling.spot.heuristics import Heuristic, mean_lifetime
from goffish.scheduling.spot.job import PROCESS, QUIESCED, RUNNING, START, Status
from goffish.scheduling.spot.model import Market
from goffish.scheduling.spot.presets import Times, market_from
from goffish.scheduling.spot.table import Table, build_table

_Found = TypeVar("_Found")

#: Slot lengths, in simulated seconds; each divides an hour.
_SLOTS_S = (60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0)
#: Maximum number of slots to the deadline, and of states of a table (units left and saved, slot, prices, choice, billed
#: hour), which takes up to four seconds to build.
_MOST_SLOTS, _MOST_STATES = 600, 80_000_000
#: Number of slots to the deadline that are enough for a policy whose job writes checkpoints in each.
_ENOUGH_SLOTS = 64
#: Maximum number of spot machine types considered for a job.
_MOST_CLASSES = 2
#: Maximum planning horizon, as a multiple of the duration of the job.
_FAR = 16.0
#: Target duration of a job without a deadline, as a multiple of its uninterrupted duration.
_PATIENCE = 4.0
#: Maximum number of cached tables and markets.
_MOST_KEPT = 16
#: Maximum entries (unit of work, slot, joint state of the prices, choice) of a table, and bytes during construction;
#: the largest table takes two minutes.
_MOST_ENTRIES, _MOST_BYTES = 60_000_000, 1 << 30
#: Interval of checks whether a queued planning call must stop, in seconds.
_LOOK_S = 0.2
#: Number of replays over the history to estimate the cost of a job.
_RUNS = 400
#: Slots that jobs keep in reserve before their deadlines.
MARGIN_SLOTS = 1
HOUR_S = 3600.0


@dataclass(frozen=True)
class Need:
    """Requirements of a job, in simulated seconds and reference core-hours.

    Attributes
    ----------
    core_hours, startup_s, checkpoint_s : float
        Work with its periodic checkpoints, and delays.
    left_s : float, optional
        Time to the deadline.
    least_slot_s : float
        Minimum slot length.
    notice : bool
        Whether a worker ends with a checkpoint before its machine is taken back.
    between_s : float
        Time between checkpoints; infinite if there are none.
    machines : int
        Number of concurrent machines. Policies see them as one machine, with the price and the cores of all.
    likely_share : float
        Expected work as a share of `core_hours`, an upper bound from which policies plan.
    """

    core_hours: float
    startup_s: float
    checkpoint_s: float
    left_s: float | None
    least_slot_s: float
    notice: bool = False
    between_s: float = math.inf
    machines: int = 1
    likely_share: float = 1.0

    def keeps(self, slot_s: float) -> bool:
        """Return whether an interruption without a notice loses less than a slot of work."""
        return self.between_s + self.checkpoint_s <= slot_s


class Risk(NamedTuple):
    """What happened to jobs that followed a policy over the history.

    Attributes
    ----------
    jobs : int
        Their number, from start times spread over the history.
    cost : (float, float)
        Costs that 10 and 90 % of the jobs did not exceed.
    hours : (float, float, float)
        Hours until completion that 10, 50 and 90 % of the jobs needed at most.
    interrupted, on_demand : float
        Shares of the jobs with an interruption, and with on-demand machines.
    interruptions : float
        Mean number.
    """

    jobs: int
    cost: tuple[float, float]
    hours: tuple[float, float, float]
    interrupted: float
    interruptions: float
    on_demand: float


@dataclass(frozen=True, eq=False)
class Plan:
    """Plan of a job.

    Attributes
    ----------
    name : str
        Name of the policy.
    market : Market
    policy : Agent or Heuristic
    work, slots : int
        Work units and slots at the start.
    expected_cost, on_demand_cost : float
        Expected cost, and cost on demand; infinite if no machine type can meet the deadline.
    promised : bool
        Whether the deadline can be met at any prices.
    history : sequence of Trace
        Prices that the plan was made from, one trace per machine type.
    course : Course
        The job as it is expected to run.
    """

    name: str
    market: Market
    policy: Agent | Heuristic
    work: int
    slots: int
    expected_cost: float
    on_demand_cost: float
    promised: bool
    history: Sequence[Trace]
    course: Course

    def risk(self) -> Risk | None:
        """Replay the policy over the history; ``None`` if that is too short, or the deadline cannot be guaranteed."""
        rule = self.policy.table if isinstance(self.policy, Agent) else self.policy
        ran = _replayed(rule, self.course, self.slots, self.history) if self.promised else None
        if ran is None:
            return None
        low, high = np.quantile(ran.costs, (0.1, 0.9)).tolist()
        first, middle, last = (np.quantile(ran.seconds, (0.1, 0.5, 0.9)) / HOUR_S).tolist()
        interrupted, dear = float((ran.losses > 0).mean()), float((ran.on_demand > 0).mean())
        return Risk(ran.costs.size, (low, high), (first, middle, last), interrupted, float(ran.losses.mean()), dear)

    def hours_on(self, kind: int) -> float:
        """Return the hours of the job on a machine type without interruptions.

        Parameters
        ----------
        kind : int
            Index of the machine type.
        """
        return seconds_on(self.course, self.market, kind) / HOUR_S

    def hours_between_interruptions(self, kind: int) -> float | None:
        """Return the mean time until a machine at the highest bid is interrupted; ``None`` if none was in the history.

        Parameters
        ----------
        kind : int
            Index of the machine type.
        """
        trace, bid = self.history[kind], float(self.market.classes[kind].bids[-1])
        return None if trace.prices.max() <= bid else mean_lifetime(trace, bid, HOUR_S)

    @property
    def slot_s(self) -> float:
        """Slot length, in simulated seconds."""
        return HOUR_S / self.market.slots_per_hour

    def decide(self, left: int, status: Status, prices: Sequence[float]) -> int:
        """Return the action to take with `left` slots; switch to the fastest machines if the deadline is at risk."""
        market = self.market
        if isinstance(self.policy, Agent):
            left = min(left, self.policy.table.slots)
        if status.state == QUIESCED and left < market.least_slots(status.saved):
            return START + market.on_demand_choice(int(np.argmax([one.speed for one in market.classes])))
        if status.state == RUNNING and left < -(-status.work // int(market.rules.speed[status.choice])):
            return PROCESS
        return self.policy.decide(left, status, prices)

    def units(self, core_hours: float) -> int:
        """Convert core-hours to work units, between 1 and the total work."""
        return min(self.work, max(1, self.market.units(core_hours)))


class Planner:
    """Planner with a cache of markets and tables."""

    def __init__(self) -> None:
        self._markets: LRUCache[Any, Any] = LRUCache(_MOST_KEPT)
        self._tables: LRUCache[Any, Any] = LRUCache(_MOST_KEPT)
        self._lock = threading.Lock()

    def plan(self, catalogue: Catalogue, policy: str, need: Need, check: Callable[[], None] = lambda: None) -> Plan:
        """Plan a job.

        Parameters
        ----------
        catalogue : Catalogue
            Catalogue with spot machine types.
        policy : str
            A `SpotPolicy` of job specifications.
        need : Need
        check : callable, optional
            Called periodically; may raise an exception to abort planning.

        Raises
        ------
        InputError
            The catalogue has no spot machine types, or the job is too large to plan.
        """
        spot = [_together(one, need.machines) for one in spot_classes(catalogue)]
        key = catalogue.model_dump_json(), need.machines
        while not self._lock.acquire(timeout=_LOOK_S):
            check()
        try:
            traces = _kept(self._markets, key, lambda: _histories(spot, need.machines))
            chosen = _choose(spot, traces, need)
            least_s = need.startup_s + need.core_hours * HOUR_S / max(_cores(spot[at]) for at in chosen)
            least_s = max(least_s, 2 * max(need.least_slot_s, _SLOTS_S[0]))  # a slot to start, and one to work
            wanted = _PATIENCE * least_s if need.left_s is None else min(need.left_s, _FAR * least_s)
            held = [traces[at] for at in chosen]
            classes = [spot[at] for at in chosen]
            slot_s = _slot_s(wanted, need, classes, catalogue.billing)
            slots_of = _whole(need.startup_s, slot_s), _whole(need.checkpoint_s, slot_s)
            shape = (key, tuple(chosen), slot_s, *slots_of, need.notice, need.keeps(slot_s))
            market = _kept(self._markets, shape, lambda: _market(catalogue.billing, classes, held, slot_s, need))
            work, slots = max(1, market.units(need.core_hours)), max(1, int(wanted // slot_s))
            promised = slots >= market.least_slots(work)
            if policy == "rtba" and promised:
                bounds = (_rounded(work), _rounded(slots))
                if bounds[0] * bounds[1] * market.joint_states * market.choices > _MOST_ENTRIES:
                    text = f"{need.core_hours:,.4g} core-hours in {slots:,} slots of {slot_s:g} s"
                    raise InputError(f"policy: too large for rtba: {text}; choose another policy, such as greedy")
                made: Table | Heuristic = _kept(
                    self._tables, (shape, *bounds),
                    lambda: build_table(market, *bounds, progress=lambda _: check(), most_bytes=_MOST_BYTES),
                )  # fmt: skip
            else:
                # Without slack, only the fastest machine type remains.
                name = policy if policy != "rtba" else "on-demand"
                made = _rule(market, name, work, slots, held, _course(catalogue.billing, market, need))
        finally:
            self._lock.release()
        course = _course(catalogue.billing, market, need)
        expected = _expected(made, course, slots, held)
        followed = made if isinstance(made, Heuristic) else _agent(made, held, slots)
        on_demand = min(
            (
                _on_demand(course, market, kind) for kind, one in enumerate(market.classes)
                if market.startup_slots + -(-work // one.speed) <= slots
            ),
            default=np.inf,
        )  # fmt: skip
        return Plan(policy, market, followed, work, slots, expected, on_demand, promised, held, course)


def _agent(table: Table, traces: Sequence[Trace], slots: int) -> Agent:
    """Return a job's own view of a shared table; it fits the market again when prices no longer follow it."""
    slot_s = HOUR_S / table.market.slots_per_hour
    first, last = _span(traces)
    return Agent(table, in_slots(traces, slot_s, first, last), min(slots, table.slots))


def spot_classes(catalogue: Catalogue) -> list[MachineType]:
    """Return the spot machine types of a catalogue.

    Raises
    ------
    InputError
        The catalogue has none.
    """
    found = [one for one in catalogue.classes if one.market == "spot"]
    if not found:
        raise InputError("the catalogue has no spot machine types (market: spot)")
    return found


def began_at(catalogue: Catalogue, after_s: float) -> float:
    """Return the time in the price histories, in seconds since 1970, of a job started `after_s` simulated seconds ago.

    Jobs use the second half of the histories, cyclically.
    """
    first, last = _span([machine_trace(one) for one in spot_classes(catalogue)])
    half = (last - first) / 2
    return first + half + after_s % half


def _kept(kept: LRUCache[Any, Any], key: Any, make: Callable[[], _Found]) -> _Found:
    found: _Found | None = kept.get(key)
    if found is None:
        kept[key] = found = make()
    return found


def _span(traces: Sequence[Trace]) -> tuple[float, float]:
    return max(trace.start for trace in traces), min(trace.end for trace in traces)


def _together(one: MachineType, machines: int) -> MachineType:
    """Return a machine type that stands for several machines of a type."""
    return one.model_copy(
        update={"cores": one.cores * machines, "price_per_hour": one.price_per_hour * machines}
    )  # fmt: skip


def _histories(spot: Sequence[MachineType], machines: int) -> list[Trace]:
    """Return the prices of machines in the first half of the common period of all histories."""
    traces = [machine_trace(one) for one in spot]
    first, last = _span(traces)
    if not last > first:
        raise InputError("the price histories of the catalogue do not overlap")
    middle = (first + last) / 2
    return [
        replace(part, name=one.name, prices=np.where(part.prices < ANY_PRICE, part.prices * machines, part.prices))
        for trace, one in zip(traces, spot, strict=True)
        for part in (trace.between(first, middle),)
    ]


def _cores(one: MachineType) -> int:
    """Return the speed in whole reference cores, as in `fit_market`."""
    return max(1, int(one.power + 1e-9))


def _choose(spot: Sequence[MachineType], traces: Sequence[Trace], need: Need) -> list[int]:
    """Choose the machine types with the lowest price per speed, and the fastest if required by the deadline."""
    price = [
        float(np.average(np.minimum(trace.prices, one.price_per_hour), weights=trace.durations())) / _cores(one)
        for trace, one in zip(traces, spot, strict=True)
    ]
    order = np.argsort(price, kind="stable").tolist()
    chosen = order[:_MOST_CLASSES]
    enough = 0.0 if need.left_s is None else need.core_hours * HOUR_S / max(1.0, need.left_s - need.startup_s)
    if all(_cores(spot[at]) < enough for at in chosen):
        fastest = max(order, key=lambda at: _cores(spot[at]))
        chosen = [*chosen[: _MOST_CLASSES - 1], fastest] if fastest not in chosen else chosen
    return sorted(chosen)


def _slot_s(wanted_s: float, need: Need, classes: Sequence[MachineType], billing: Billing) -> float:
    """Return the shortest slots with which a table is small: policies lose up to a slot at each interruption."""
    least_s = need.least_slot_s
    if not need.notice and need.between_s + need.checkpoint_s <= wanted_s / _ENOUGH_SLOTS:
        least_s = max(least_s, need.between_s + need.checkpoint_s)  # then an interruption loses less than a slot
    unit = math.gcd(*(_cores(one) for one in classes))
    for slot_s in _SLOTS_S:
        slots, hour = wanted_s / slot_s, HOUR_S / slot_s
        work = need.core_hours * hour / unit
        ages = 1.0 if billing.quantum_s * 2 <= HOUR_S and billing.cut_off != "first-hour-free" else hour + 1.0
        states = slots * work * work / 2.0 * (2.0 * len(classes)) * 2.0 ** len(classes) * ages
        if slot_s >= least_s and slots <= _MOST_SLOTS and states <= _MOST_STATES:
            return slot_s
    return _SLOTS_S[-1]


def _whole(seconds: float, slot_s: float) -> int:
    return max(1, int(np.ceil(seconds / slot_s - 1e-9)))


def _rounded(count: int) -> int:
    """Round up to 1, 1.25, 1.5 or 1.75 times a power of 2, so that jobs share tables."""
    step = max(1, (1 << max(0, count - 1).bit_length()) // 8)
    return -(-count // step) * step


def _market(
    billing: Billing, classes: Sequence[MachineType], traces: Sequence[Trace], slot_s: float, need: Need
) -> Market:
    """Return the market model of machine types, with the closest supported billing rules."""
    # Without ages: a short history has few observations of each, and a job would wait for a favorable one.
    histories = [
        estimate_class(trace, 1, one.price_per_hour, slot_s, bids=np.array([one.price_per_hour]), estimator="recent",
                       ages=1)
        if one.availability is None
        else availability_class(
            trace, 1, one.price_per_hour, slot_s, spot_price(one, trace.start, trace.end) * need.machines,
            estimator="recent", ages=1,
        )
        for trace, one in zip(traces, classes, strict=True)
    ]  # fmt: skip
    made = market_from(
        "ec2-linux", histories, [_cores(one) for one in classes], [one.price_per_hour for one in classes],
        times=Times(slot_s, need.startup_s, need.checkpoint_s),
    )  # fmt: skip
    made = replace(made, notice=(made.notice and need.notice) or need.keeps(slot_s))
    if billing.quantum_s * 2 <= HOUR_S:
        spot = "first_hour_free" if billing.cut_off == "first-hour-free" else "per_second"
        return replace(made, spot_billing=spot, on_demand_billing="per_second")  # type: ignore[arg-type]
    charged = billing.cut_off == "paid"
    return replace(made, spot_billing="hourly", on_demand_billing="hourly", charge_revoked=charged)


def _course(billing: Billing, market: Market, need: Need) -> Course:
    """Return the job as it is expected to run."""
    planned, slot_s = need.core_hours / market.unit, HOUR_S / market.slots_per_hour
    fastest = market.on_demand_choice(int(np.argmax([one.speed for one in market.classes])))
    cut_off = {"paid": PAID, "free": QUANTUM_FREE, "first-hour-free": FIRST_HOUR_FREE}[billing.cut_off]
    return Course(
        planned, planned * need.likely_share, slot_s, need.startup_s, need.checkpoint_s, need.between_s, need.notice,
        billing.quantum_s, billing.minimum_s, cut_off, MARGIN_SLOTS, fastest,
    )  # fmt: skip


def seconds_on(course: Course, market: Market, kind: int) -> float:
    """Return how long a job holds a machine of a type that is not interrupted."""
    return course.startup_s + course.likely / market.classes[kind].speed * course.slot_s


def _on_demand(course: Course, market: Market, kind: int) -> float:
    billing = Billing(quantum_s=course.quantum_s, minimum_s=course.minimum_s)
    return float(rent(seconds_on(course, market, kind), market.classes[kind].on_demand, billing))


def _rule(
    market: Market, name: str, work: int, slots: int, traces: Sequence[Trace], course: Course
) -> Heuristic:  # fmt: skip
    """Return a heuristic on the cheapest machine type that can meet the deadline."""
    kinds = range(len(market.classes))
    able = [
        kind for kind in kinds if market.startup_slots + -(-work // market.classes[kind].speed) <= slots
    ] or [max(kinds, key=lambda kind: market.classes[kind].speed)]  # fmt: skip
    made = [heuristic_of(market, name, kind, work, slots, traces) for kind in able]
    return min(made, key=lambda rule: _expected(rule, course, slots, traces))


def _expected(policy: Table | Heuristic, course: Course, slots: int, traces: Sequence[Trace]) -> float:
    """Return the mean cost of jobs that follow a policy over the history; on demand if that is too short."""
    on_demand = isinstance(policy, Heuristic) and (policy.kind == "on-demand" or slots < policy.least_slots)
    ran = None if on_demand else _replayed(policy, course, slots, traces)
    if ran is not None:
        return float(ran.costs.mean())
    if isinstance(policy, Table):
        return policy.expected_cost(max(1, math.ceil(course.likely)), slots)
    return _on_demand(course, policy.market, policy.class_number)


def _replayed(policy: Table | Heuristic, course: Course, slots: int, traces: Sequence[Trace]) -> Bills | None:
    """Run a job from times spread over the history; ``None`` if it is too short."""
    known = int((traces[0].end - traces[0].start) // course.slot_s) - slots
    if known < 1:
        return None
    prices = in_slots(traces, course.slot_s, traces[0].start, traces[0].end)
    starts = np.unique(np.linspace(0, known, _RUNS).astype(np.int64))
    return bills(policy, course, slots, prices, starts)

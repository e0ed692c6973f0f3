"""Bills of runs, added up anew from their machines: no automaton, no kernels.

See docs/specs/spot.md, sections 2.7, 7.1.
"""

from __future__ import annotations

from typing import Any

from goffish.cloud.prices import SlotPrices
from goffish.scheduling.spot.job import RELEASE, REVOKED, START, JobRun
from goffish.scheduling.spot.model import Market


def bill_of(market: Market, run: JobRun, prices: SlotPrices, first: int, slots: int) -> float:
    """§7.1, 9: what a run cost, from the list of its machines: which one, when, and who ended it."""
    now = [prices.prices[first + entry.slot] for entry in run.log]
    after = [prices.prices[first + entry.slot + 1] for entry in run.log if entry.slot < prices.slots - first]
    total, used, begun = 0.0, [], -1
    for at, entry in enumerate(run.log):
        status = entry.status
        follows = run.log[at + 1].status if at + 1 < len(run.log) else None
        if status.state == 0 and entry.action == 5 and market.local is not None:
            total += market.local.move_cost
        asked = status.state == 0 and entry.action >= START and entry.event != 2
        if asked:
            used, begun = [], entry.action - START
        if not asked and status.choice < 0:
            continue
        starting = asked or status.state == 1
        if entry.action not in (RELEASE, 4) and (not starting or market.startup_billed):
            used.append(at)
        gone = follows is None and not run.finished
        finished = follows is None and run.finished > 0
        if entry.action == RELEASE or entry.event == REVOKED or finished or gone:
            ended = "user" if entry.action == RELEASE else "provider" if entry.event == REVOKED else "end"
            at_end = prices.prices[first + slots] if gone and ended == "end" else None
            total += _machine(market, begun, used, ended, now, after, now[at] if ended == "user" else at_end)
            begun = -1
    if not run.finished and market.late_penalty is not None:
        # Replayed to its deadline: what is left then is in the last entry, and what its slot did.
        total += market.late_penalty * _left_at_end(market, run)
    return total


def _left_at_end(market: Market, run: JobRun) -> int:
    last = run.log[-1]
    status, saved = last.status, last.status.saved
    if last.event == REVOKED:
        return status.work if market.notice and status.state in (2, 3) else saved
    if status.state == 2 and last.action == 1:
        return status.work - int(market.rules.speed[status.choice])
    if status.state == 5:
        assert market.local is not None
        return status.work - market.local.speed
    return saved if status.state in (0, 1, 4) else status.work


def _machine(
    market: Market, choice: int, used: list[int], ended: str, now: list[Any], after: list[Any], at_end: Any
) -> float:
    """Bill of a machine by the words of §2.7; `used`: places in the log of its slots that are billed."""
    spot, kind, hour = bool(market.rules.spot[choice]), int(market.rules.kind[choice]), market.slots_per_hour
    rule = market.spot_billing if spot else market.on_demand_billing

    def at(prices: Any) -> float:
        return float(prices[kind]) if spot else market.classes[kind].on_demand

    whole, cut = divmod(len(used), hour)
    taken = ended == "provider" and bool(used)
    if rule == "per_second":
        return sum(at(now[k]) for k in used) / hour
    if rule == "first_hour_free":
        if taken and len(used) <= hour:
            return 0.0
        if whole:
            return at(now[used[hour - 1]]) + sum(at(now[k]) for k in used[hour:]) / hour
        last = at_end if at_end is not None else now[used[-1]] if used else None
        return cut / hour * at(last) if cut else 0.0
    hours = [used[k : k + hour] for k in range(0, len(used), hour)]
    total = 0.0
    for number, slots in enumerate(hours):
        last = number == len(hours) - 1
        if last and taken:
            price = now[slots[0]] if rule == "hourly_start" else now[slots[-1]]
            total += at(price) * (spot and market.charge_revoked)
        elif rule == "hourly_start":
            total += at(now[slots[0]])
        elif last and len(slots) < hour and at_end is not None:
            total += at(at_end)
        else:
            total += at(after[slots[-1]])
    return total

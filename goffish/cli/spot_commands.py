"""``goffish spot``: run jobs with deadlines on spot machines at minimal cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goffish.cli.groups import Commands
from goffish.cli.inputs import duration, period
from goffish.cli.options import DEADLINE_HELP, Json, Plot
from goffish.cli.spot_inputs import (
    availability_file,
    check_picture,
    check_size,
    choice_facts,
    current_facts,
    draw,
    figure,
    figures,
    market_facts,
    money_text,
    outlook_facts,
    positive,
    prices_now,
    share_text,
    status_from,
    strategy_for,
    whole_slots,
    with_likelihoods,
)
from goffish.errors import InputError
from goffish.partial import check_output, check_place

if TYPE_CHECKING:
    from goffish.scheduling.estimate import JobEstimate
    from goffish.scheduling.spot.comparison import Outcome
    from goffish.scheduling.spot.fitting import Fitted

_MARKET = "Spot market written by goffish spot fit."
_Market = Annotated[str, typer.Argument(metavar="MARKET", help=_MARKET)]
_WORK = "Work of the job, in core-hours."
_Work = Annotated[float, typer.Option("--work", help=_WORK)]
_Deadline = Annotated[float, typer.Option("--deadline", **duration("h"), help=DEADLINE_HELP)]
_Table = Annotated[str | None, typer.Option(help="Strategy table to use.", show_default="computed")]
_SINCE = "Start, such as 2015-06-01 or 2015-06-01T12:00 (UTC)."
_UNTIL = "End, such as 2015-06-01 or 2015-06-01T12:00 (UTC)."
#: Units of work times slots up to which the clairvoyant runs by default.
_MOST_FORESEEN = 20_000
_DEFAULT_POLICIES = ("rtba", "h1", "h2", "h3", "greedy", "uniform-progress", "on-demand", "clairvoyant")


def add_commands(app: typer.Typer) -> None:
    """Add ``goffish spot`` with its commands."""
    spot = typer.Typer(cls=Commands, help="Schedule jobs with deadlines on spot machines.", no_args_is_help=True)
    for name, command in (("fit", _fit), ("table", _table), ("simulate", _simulate), ("advise", _advise)):
        spot.command(name)(command)
    app.add_typer(spot, name="spot")


def _fit(
    cloud: Annotated[
        str,
        typer.Argument(metavar="CLOUD", help="Catalogue (file or bundled name) with machine types on the spot market."),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="Market file to write (JSON).")],
    machine_type: Annotated[
        list[str] | None,
        typer.Option(
            help="Machine type of the catalogue to fit; repeatable.", show_default="all, or those with availability"
        ),
    ] = None,
    zone: Annotated[
        list[str] | None, typer.Option(help="Zone of the machine types to fit; repeatable.", show_default="all")
    ] = None,
    availability: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE[/ZONE]=]FILE",
            help="Availability of a machine type, or of it in a zone: SkyPilot spot trace or CSV; repeatable.",
            show_default="as in the catalogue",
        ),
    ] = None,
    since: Annotated[str | None, typer.Option(help=_SINCE, show_default="start of the history")] = None,
    until: Annotated[str | None, typer.Option(help=_UNTIL, show_default="end of the history")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Billing and bidding rules: ec2, ec2-linux, ec2-suse, no-bid or paper-2012.",
            show_default="ec2 with availability, otherwise ec2-linux",
        ),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="Estimator of the chains: recent, paper, level, slot, semi, or auto (the best of the last four on the "
            "held-out history).",
            show_default="recent; auto with paper-2012",
        ),
    ] = None,
    slot: Annotated[
        float | None,
        typer.Option(
            **duration("m"),
            help="Slot length, which divides an hour; numbers are minutes.",
            show_default="10m; with availability, as suitable for start-up and checkpoint",
        ),
    ] = None,
    checkpoint: Annotated[
        float | None,
        typer.Option(
            **duration("m"),
            help="Duration of a checkpoint; numbers are minutes.",
            show_default="10m; with availability, 2m",
        ),
    ] = None,
    startup: Annotated[
        float | None,
        typer.Option(
            **duration("m"), help="Start-up time of a machine; numbers are minutes.", show_default="as in the catalogue"
        ),
    ] = None,
    job_hours: Annotated[
        float,
        typer.Option(
            **duration("h"), help="Length of the longest job; numbers are hours. A shorter one permits shorter slots."
        ),
    ] = 24.0,
    monthly_loss: Annotated[
        float, typer.Option(min=0, help="Share of machines interrupted per month independently of the price.")
    ] = 0.0,
    local_cores: Annotated[
        int, typer.Option(min=0, help="Cores of a local machine that can run the job; 0: no local machine.")
    ] = 0,
    local_cost: Annotated[float, typer.Option(min=0, help="Cost of moving the data to the local machine.")] = 0.0,
    correlated: Annotated[
        bool, typer.Option("--correlated", help="Model the prices of machine types as correlated.")
    ] = False,
    late_penalty: Annotated[
        float | None,
        typer.Option(
            min=0, help="Penalty per core-hour left at the deadline, in dollars.", show_default="hard deadline"
        ),
    ] = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Fit a spot market to the availability of machine types, or to price histories."""
    from goffish.cli.inputs import working
    from goffish.cli.output import print_facts, print_json, print_table
    from goffish.cloud.catalogue import read_catalogue
    from goffish.scheduling.spot.fitting import FitTimes, OwnMachine, fit_market, with_availability, write_fitted

    check_picture(plot)
    check_place(output)
    if not 0 <= monthly_loss < 1:
        raise InputError(f"--monthly-loss {monthly_loss:g}: must be at least 0 and less than 1")
    if slot is not None and not (0 < slot <= 60 and abs(60 / slot - round(60 / slot)) < 1e-9):
        raise InputError(f"--slot {slot:g}: an hour must be a whole number of slots")
    positive(job_hours, "--job-hours")
    catalogue = with_availability(read_catalogue(cloud), [availability_file(text) for text in availability or ()], zone)
    slot_s, startup_s, checkpoint_s = (None if m is None else m * 60.0 for m in (slot, startup, checkpoint))
    times = FitTimes(slot_s, startup_s, checkpoint_s, job_hours)
    with working("fitting"):
        fitted = fit_market(
            catalogue, machine_type, period(since, until), preset=preset,
            estimator=estimator, times=times, monthly_loss=monthly_loss,  # type: ignore[arg-type]
            local=OwnMachine(local_cores, local_cost) if local_cores else None, dependent=correlated,
            late_penalty=late_penalty,
        )  # fmt: skip
        write_fitted(output, fitted)
        if plot is not None:
            draw("prices", plot, fitted.traces(), fitted.market)
    market, body = fitted.market, market_facts(fitted, output)
    strong = max((abs(v) for at, row in enumerate(fitted.correlation) for v in row[:at]), default=0.0)
    notes = []
    best = times.spans(catalogue.startup_s, available=any(one.by_availability for one in market.classes))[0]
    if best.slot_s < fitted.slot_s:
        notes.append(
            f"slots of {best.slot_s / 60:g} min suit start-up and checkpoint, but tables for jobs of {job_hours:g} h "
            "would take too long to build; use --slot or --job-hours for shorter slots"
        )
    if strong > 0.5 and not correlated:
        notes.append(f"machine types are correlated ({strong:.2f}), the model assumes independence; use --correlated")
    if json:
        print_json(body | {"notes": notes})
        return
    slot_min = fitted.slot_s / 60
    print_facts(output, [
        ("period", body["period"]), ("estimator", with_likelihoods(fitted)),
        ("slot", f"{slot_min:g} min; start-up {market.startup_slots * slot_min:g} min, checkpoint "
                 f"{market.longest_checkpoint * slot_min:g} min, {'uses' if market.notice else 'without'} the notice"),
        ("unit of work", f"{market.unit:.4g} core-hours"),
        *(("note", note) for note in notes),
    ])  # fmt: skip
    header = ["machine type", "units/slot", "on demand $/h", "bids", "levels $/h", "long-run share"]
    print_table("\nmachine types", header, [
        [c["machine_type"], c["speed"], c["on_demand"], figures(c["bids"]) or "none", figures(c["levels"]),
         figures(c["share"])]
        for c in body["machine_types"]
    ])  # fmt: skip


def _table(
    market: _Market,
    work: _Work,
    deadline: _Deadline,
    output: Annotated[str, typer.Option("-o", "--output", help="Table file to write.")],
    extends: Annotated[
        str | None, typer.Option(help="Table of the same market and work with a shorter deadline to extend.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Report the shortest deadline within this cost, in dollars.")
    ] = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Build the strategy table of all jobs up to a given work and deadline."""
    import time

    from goffish.cli.inputs import progress_bar
    from goffish.cli.output import print_facts, print_json, print_table
    from goffish.scheduling.spot.advice import check_deadline
    from goffish.scheduling.spot.files import fingerprint_digest, open_table, write_table
    from goffish.scheduling.spot.fitting import read_fitted
    from goffish.scheduling.spot.job import submitted
    from goffish.scheduling.spot.table import build_table

    check_picture(plot)
    check_place(output)
    fitted = read_fitted(market)
    units, slots = fitted.market.units(positive(work, "--work")), whole_slots(deadline, fitted, "--deadline")
    check_deadline(fitted.market, submitted(units), slots, hours=deadline)
    before = None if extends is None else open_table(extends, fitted.market)
    check_size(fitted, units, slots, kept=True)
    begun = time.perf_counter()
    with progress_bar("building the table") as update:
        table = build_table(fitted.market, units, slots, extends=before, progress=lambda done: update(done, slots))
        write_table(output, table)
    seconds = time.perf_counter() - begun
    if plot is not None:
        draw("cost_map", plot, table)
    hour = fitted.market.slots_per_hour
    drops = [
        {"deadline_h": at / hour, "saves": drop, "expected_cost": table.expected_cost(units, at)}
        for at, drop in table.cliffs(units)[:5]
    ]
    body: dict[str, Any] = {
        "table": output, "core_hours": units * fitted.market.unit, "deadline_h": slots / hour, "bytes": table.bytes,
        "seconds": seconds, "fingerprint": fingerprint_digest(fitted.market),
        "earliest_h": fitted.market.least_slots(units) / hour, "cliffs": drops,
    }  # fmt: skip
    if budget is not None:
        within = table.min_deadline(units, budget)
        body["within_budget_h"] = None if within is None else within / hour
    if json:
        print_json(body)
        return
    print_facts(output, [
        ("jobs up to", f"{body['core_hours']:.4g} core-hours, {body['deadline_h']:.4g} h to the deadline"),
        ("size", f"{table.bytes / 1e6:.1f} MB, built in {seconds:.2f} s"),
        ("earliest deadline", f"{body['earliest_h']:.3g} h for the largest job"),
        *([] if budget is None else [(f"within {budget:g} $", _hours_text(body["within_budget_h"]))]),
    ])  # fmt: skip
    print_table("\nlonger deadlines with the largest savings (largest job)", ["deadline, h", "expected $", "saves"], [
        [f"{d['deadline_h']:.2f}", f"{d['expected_cost']:.4f}", f"{d['saves']:.0%}"] for d in drops
    ])  # fmt: skip


def _hours_text(hours: float | None) -> str:
    return "not within the deadlines of the table" if hours is None else f"{hours:.3g} h or longer"


def _simulate(
    market: _Market,
    work: _Work,
    deadline: _Deadline,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy: auto (by trials), rtba, h1, h2, h3, h3-young, greedy, eager, uniform-progress, on-demand or "
            "clairvoyant; repeatable.",
            show_default="all but auto, h3-young and eager, and clairvoyant only for short jobs",
        ),
    ] = None,
    since: Annotated[str | None, typer.Option(help=_SINCE, show_default="start of the market's history")] = None,
    until: Annotated[
        str | None,
        typer.Option(help=_UNTIL, show_default="end of the prices, or without --since of the market's history"),
    ] = None,
    start_interval: Annotated[
        float, typer.Option(**duration("m"), help="Interval between the starts of two jobs; numbers are minutes.")
    ] = 10.0,
    table: _Table = None,
    plot: Plot = None,
    plot_job: Annotated[
        str | None, typer.Option(metavar="FILE", help="Plot of the rtba job with the most interruptions.")
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Parquet file for all runs.")] = None,
    json: Json = False,
) -> None:
    """Simulate a job from many start times over historical prices under several policies."""
    import numpy as np

    from goffish.cli.inputs import working
    from goffish.cli.output import print_json, print_table
    from goffish.cloud.prices import in_slots
    from goffish.scheduling.spot.advice import check_deadline
    from goffish.scheduling.spot.choice import AUTO
    from goffish.scheduling.spot.comparison import POLICIES, cheapest_on_demand, compare, write_outcomes
    from goffish.scheduling.spot.fitting import read_fitted
    from goffish.scheduling.spot.job import run_job, submitted

    for picture in (plot, plot_job):
        check_picture(picture)
    unknown = next((name for name in policy or () if name not in (AUTO, *POLICIES)), None)
    if unknown is not None:
        raise InputError(f"--policy {unknown}: unknown policy; accepted: {', '.join((AUTO, *POLICIES))}")
    if output is not None:
        check_output(output)
    fitted = read_fitted(market)
    found = fitted.market
    units, slots = found.units(positive(work, "--work")), whole_slots(deadline, fitted, "--deadline")
    check_deadline(found, submitted(units), slots, hours=deadline)
    # The clairvoyant tries all work left in all slots, which takes minutes for long jobs in short slots.
    names = policy or [name for name in _DEFAULT_POLICIES if name != "clairvoyant" or units * slots <= _MOST_FORESEEN]
    begin, end = period(since, until)
    traces = fitted.traces(begin, end)
    prices = in_slots(traces, fitted.slot_s, traces[0].start, traces[0].end)
    step = max(1, round(start_interval * 60.0 / fitted.slot_s))
    starts = np.arange(0, prices.slots - slots + 1, step, dtype=np.int64)
    if not starts.size:
        raise InputError(
            f"--deadline {deadline:g}: the period has only {prices.slots / found.slots_per_hour:.4g} hours"
        )
    with working("simulating"):
        strategy = strategy_for(table, fitted, units, slots) if "rtba" in names or plot_job is not None else None
        ran = compare(
            found, strategy, [name for name in names if name != AUTO], units, slots, prices, starts, fitted.traces()
        ) if names != [AUTO] else []  # fmt: skip
        if AUTO in names:
            ran.append(_automatic(fitted, units, slots, traces[0].start, traces[0].end, starts))
        if output is not None:
            write_outcomes(output, ran, fitted.slot_s, traces[0].start)
        price = cheapest_on_demand(found, units, slots)
        if plot is not None:
            draw("outcomes", plot, ran, price, found.slots_per_hour)
        if plot_job is not None and strategy is not None:
            losses = next((o.replay.losses for o in ran if o.policy == "rtba" and o.replay), np.zeros(starts.size))
            first = int(starts[int(np.argmax(losses))])
            draw("job", plot_job, run_job(found, strategy, units, slots, prices, first), found, prices, first)
    rows = [one.summary(price) for one in ran]
    if json:
        print_json({"core_hours": units * found.unit, "deadline_h": slots / found.slots_per_hour, "on_demand": price,
                    "trained_until": fitted.last, "tested_from": traces[0].start, "policies": rows})  # fmt: skip
        return
    overlap = begin is None or begin < fitted.last
    title = (
        f"{starts.size:,} jobs of {units * found.unit:.4g} core-hours, {slots / found.slots_per_hour:.4g} h each"
        + (" (on the history that the market was fitted to)" if overlap else "")
    )
    header = ["policy", "machines", "mean $", "worst $", "saves", "missed", "losses", "checkpoints", "time on demand"]
    print_table(title, header, [
        [r["policy"], r["machines"], f"{r['mean_cost']:.4f}", f"{r['worst_cost']:.4f}", share_text(r["saving"]),
         r["missed"], *(figure(r[name]) for name in ("losses", "checkpoints", "on_demand_share"))]
        for r in rows
    ])  # fmt: skip


def _automatic(fitted: Fitted, units: int, slots: int, begin: float, end: float, starts: Any) -> Outcome:
    """Jobs of `goffish spot advise` at these starts; each sees the prices before it, from the start of the history."""
    from goffish.cloud.prices import in_slots
    from goffish.scheduling.spot.choice import automatic

    # Whole slots before the tested period.
    before = int((begin - fitted.first) // fitted.slot_s)
    if before < 2:
        raise InputError("--policy auto: give --since, after the start of the market's history")
    first = begin - before * fitted.slot_s
    whole = in_slots(fitted.traces(first, end), fitted.slot_s, first, end)
    return automatic(fitted.market, whole, units, slots, starts + before)._replace(starts=starts)


def _advise(
    job: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="Graph file or store, to estimate the work; alternatively, give --work."),
    ] = None,
    market: Annotated[str | None, typer.Option(help=_MARKET)] = None,
    deadline: Annotated[float | None, typer.Option(**duration("h"), help=DEADLINE_HELP)] = None,
    algorithm: Annotated[str, typer.Option(help="Algorithm of the graph job.")] = "louvain",
    engine: Annotated[str, typer.Option(help="Engine of the graph job: local, mpi or spark.")] = "local",
    work: Annotated[float | None, typer.Option(help=_WORK)] = None,
    work_from_checkpoint: Annotated[
        float | None, typer.Option(help="Work left from the last checkpoint, in core-hours.", show_default="--work")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE=DOLLARS",
            help="Current spot price of a machine type; repeatable.",
            show_default="last price of the history",
        ),
    ] = None,
    available: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE",
            help="Machine type that is available now; repeatable.",
            show_default="as at the end of the history",
        ),
    ] = None,
    unavailable: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE",
            help="Machine type that is not available now; repeatable.",
            show_default="as at the end of the history",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE[@BID]", help="Machine that the job runs on: TYPE@BID, TYPE@spot, or TYPE on demand."
        ),
    ] = None,
    used_minutes: Annotated[
        float, typer.Option(**duration("m"), help="Used part of the billed hour of --machine; numbers are minutes.")
    ] = 0.0,
    margin: Annotated[
        float, typer.Option(**duration("m"), help="Safety margin before the deadline; numbers are minutes.")
    ] = 0.0,
    policy: Annotated[
        str,
        typer.Option(help="Policy: auto (chosen by trials on the history) or rtba (the strategy table)."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    table: _Table = None,
    local_busy: Annotated[bool, typer.Option("--local-busy", help="Plan without the local machine.")] = False,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Advise a job what to do now: wait, start a machine, continue, checkpoint or release its machine."""
    from goffish.cli.inputs import working
    from goffish.cli.output import print_facts, print_json, print_table
    from goffish.scheduling.spot.advice import advise, check_deadline
    from goffish.scheduling.spot.choice import history_trials
    from goffish.scheduling.spot.fitting import doubts, read_fitted
    from goffish.scheduling.spot.job import slots_left

    check_picture(plot)
    if policy not in ("auto", "rtba"):
        raise InputError(f"--policy {policy}: accepted: auto, rtba")
    if market is None or deadline is None:
        raise InputError("--market and --deadline are required")
    if (job is None) == (work is None):
        raise InputError("give either INPUT (a graph file or store) or --work, in core-hours")
    fitted = read_fitted(market)
    if local_busy:
        fitted = replace(fitted, market=replace(fitted.market, local=None))
    estimate: JobEstimate | None = None
    with working("estimating"):
        if job is not None:
            from goffish.scheduling.estimate import estimate as estimated
            from goffish.scheduling.estimate import shape_of

            estimate = estimated(shape_of(job, algorithm, engine))
            work = estimate.core_hours_high
    assert work is not None
    spare = round(margin * 60 / fitted.slot_s)
    slots = slots_left(positive(deadline, "--deadline") * 3600.0, 0.0, fitted.slot_s, spare)
    status = status_from(fitted, work, work_from_checkpoint, machine, used_minutes)
    check_deadline(fitted.market, status, slots, spare, hours=deadline)
    prices, ages = prices_now(fitted, price, available, unavailable)
    with working("looking ahead"):
        strategy = strategy_for(table, fitted, status.saved, slots)
        history = fitted.history()
        trials = history_trials(fitted.market, history, status.saved, slots) if policy == "auto" else None
        found = advise(strategy, status, slots, prices, ages, trials=trials, history=history, seed=seed)
        notes = [*found.notes, *doubts(fitted, prices)]
    if plot is not None:
        draw("cost_curve", plot, strategy, status.saved, slots, prices, ages)
    body = found.to_json() | {"market": market, "notes": notes} | current_facts(fitted, prices)
    if estimate is not None:
        body["estimate"] = {"core_hours": estimate.core_hours, "core_hours_high": estimate.core_hours_high,
                            "warnings": list(estimate.warnings)}  # fmt: skip
    if json:
        print_json(body)
        return
    facts = [("action", found.text), *choice_facts(found), ("expected cost", f"{found.expected_cost:.4g} $"),
             *outlook_facts(found), ("on-demand cost", money_text(found.on_demand_cost)),
             ("remaining work",
              f"{status.work * fitted.market.unit:.4g} core-hours within {deadline:g} h")]  # fmt: skip
    if estimate is not None:
        facts.append(("estimate", f"{estimate.core_hours:.4g} core-hours, at most {estimate.core_hours_high:.4g}"))
        facts += [("note", warning) for warning in estimate.warnings]
    facts += [("note", text) for text in notes]
    print_facts("advice", facts)
    print_table("\nother deadlines", ["hours", "expected $"], [
        [f"{h:.2f}", f"{cost:.4f}"] for h, cost in found.deadlines
    ])  # fmt: skip

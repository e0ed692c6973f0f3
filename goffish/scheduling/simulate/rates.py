"""Input rates over time: shapes from the papers, real request rates, and files.

Shapes are float64 of shape (steps,), messages per second, the mean of each interval. See
docs/specs/provisioning.md, section 4.3; docs/specs/plasticc.md, section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from goffish.errors import InputError
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.simulate.rate_files import MOST, read_rate_file

DAY_S = 86_400.0
#: Resolution of the bundled request log, in seconds.
_LOG_INTERVAL_S = 60


def constant(mean: float, steps: int) -> Floats:
    """Return a constant rate."""
    return np.full(steps, float(mean))


def wave(mean: float, steps: int, interval_s: float, *, period_s: float = 3600.0, depth: float = 0.5) -> Floats:
    """Return a sine around the mean: ``mean * (1 + depth * sin(2 pi t / period))``, averaged over each interval."""
    angles = 2 * np.pi * interval_s * np.arange(steps + 1) / period_s
    return np.asarray(mean * (1.0 - depth * np.diff(np.cos(angles)) / np.diff(angles)), np.float64)


def walk(mean: float, steps: int, rng: np.random.Generator, *, step: float = 0.1, within: float = 0.5) -> Floats:
    """Return a random walk from the mean: uniform steps of up to `step * mean`, reflected at `within * mean`.

    The mean of the walk differs from `mean`; results include the realized rate (§4.3).
    """
    return mean * _reflected(rng.uniform(-step, step, steps), 1.0 - within, 1.0 + within)


def free_walk(mean: float, steps: int, rng: np.random.Generator) -> Floats:
    """Return the walk of the authors' simulator: a factor in (0, 2], steps of up to 1 up or down."""
    moves = rng.uniform(0.0, 1.0, steps) * rng.choice([-1.0, 1.0], steps)
    return mean * _reflected(moves, 1e-3, 2.0)


def _reflected(moves: Floats, low: float, high: float) -> Floats:
    found, now = np.empty(moves.size), 1.0
    for at, move in enumerate(moves.tolist()):
        found[at] = now
        now += move
        now = 2 * high - now if now > high else now
        now = 2 * low - now if now < low else now
    return found


def on_off(rate: float, steps: int, interval_s: float, *, period_s: float = 60.0, active: float = 0.5) -> Floats:
    """Return a source that sends at `rate` in the first part of each period and is silent afterwards."""
    rounds, place = np.divmod(interval_s * np.arange(steps + 1), period_s)
    sent = rounds * active * period_s + np.minimum(place, active * period_s)
    return np.asarray(rate * np.diff(sent) / interval_s, np.float64)


def spikes(
    mean: float,
    steps: int,
    rng: np.random.Generator,
    *,
    height: float = 3.0,
    probability: float = 0.05,
    length: int = 2,
) -> Floats:
    """Return a level with spikes: in each interval, a spike of `height` times the level begins with a probability."""
    begins = rng.random(steps) < probability
    high = np.convolve(begins, np.ones(length))[:steps] > 0
    return np.where(high, height * mean, mean)


def daily_streams(
    steps: int,
    interval_s: float,
    rng: np.random.Generator,
    *,
    streams: int = 3,
    low: float = 2.0,
    high: float = 75.0,
    noise: float = 0.2,
    period_s: float = DAY_S,
) -> Floats:
    """Return PLAStiCC's streams, shape (steps, streams): daily sines with noise per minute, each with a random phase.

    Minutes are averaged over each interval.
    """
    minutes = int(np.ceil(steps * interval_s / 60.0))
    phases = rng.uniform(0.0, 2 * np.pi, streams)
    angles = 2 * np.pi * 60.0 * np.arange(minutes)[:, None] / period_s + phases
    sent = ((low + high) / 2 + (high - low) / 2 * np.sin(angles)) * (1 + rng.uniform(-noise, noise, (minutes, streams)))
    total = np.concatenate((np.zeros((1, streams)), np.cumsum(sent, axis=0)))
    edges = np.minimum(interval_s * np.arange(steps + 1) / 60.0, minutes)
    sums = np.stack([np.interp(edges, np.arange(minutes + 1), total[:, s]) for s in range(streams)], axis=1)
    return np.asarray(np.diff(sums, axis=0) * 60.0 / interval_s, np.float64)


def requests(mean: float, steps: int, interval_s: float, *, first_s: float = 0.0) -> Floats:
    """Return the request rate of NASA's web server in summer 1995 (58.6 days), scaled to a mean.

    Parameters
    ----------
    mean : float
        Mean of the returned intervals.
    steps : int
    interval_s : float
        Seconds, a multiple of 60: the resolution of the bundled log.
    first_s : float
        Second of the log at which the first interval begins, a multiple of 60.

    Raises
    ------
    InputError
        If an interval does not fit the resolution, or the log ends before the last interval.
    """
    counts = _requests()
    length, first = (float(seconds) / _LOG_INTERVAL_S for seconds in (interval_s, first_s))
    if not (length.is_integer() and length >= 1 and first.is_integer() and first >= 0):
        raise InputError(
            f"rates 'requests': interval {interval_s:g} s, start {first_s:g} s; "
            f"must be multiples of {_LOG_INTERVAL_S} s"
        )
    begin, end = int(first), int(first) + steps * int(length)
    if end > counts.size:
        raise InputError(
            f"rates 'requests': {steps} intervals of {interval_s:g} s from second {first_s:g} exceed the log of "
            f"{counts.size * _LOG_INTERVAL_S:,} s"
        )
    binned = counts[begin:end].reshape(steps, int(length)).mean(axis=1)
    return np.asarray(binned * (mean / binned.mean()), np.float64)


@cache
def _requests() -> Floats:
    """Requests in each minute of the log."""
    with (files(__package__) / "nasa-http-1995.parquet").open("rb") as file:
        return np.asarray(pq.read_table(file)["requests"], np.float64)


def scaled(flow: Flow, shape: Floats) -> Floats:
    """Scale all streams of a dataflow by one shape around 1, shape (steps, elements), times their expected rates."""
    return np.outer(shape, flow.rates)


def streams(flow: Flow, given: Mapping[str, Floats], steps: int | None = None) -> Floats:
    """Collect streams by PE name, shape (steps, elements); streams that are not named keep their expected rates.

    Raises
    ------
    InputError
        If a name is not an input of the dataflow, or a series is shorter than `steps` (default: than another series).
    """
    inputs = {flow.names[i]: int(i) for i in flow.inputs}
    lengths = {len(series) for series in given.values()}
    count = steps if steps is not None else max(lengths, default=0)
    if not count or min(lengths, default=count) < count:
        raise InputError(f"rates: expected {count} intervals in each series, found {sorted(lengths)}")
    found = np.tile(flow.rates, (count, 1))
    for name, series in given.items():
        if name not in inputs:
            raise InputError(f"rates: unknown input {name!r}; accepted: {', '.join(list(inputs)[:20])}")
        found[:, inputs[name]] = series[:count]
    return found


def read_rates(
    path: str | Path,
    flow: Flow,
    steps: int | None = None,
    *,
    interval_s: float | None = None,
    column: str | None = None,
    every_s: float | None = None,
    scale: float = 1.0,
    offset_s: float = 0.0,
) -> Floats:
    """Read the rates of all intervals from a file, shape (steps, elements).

    Parameters
    ----------
    path : path
        CSV with a header or Parquet with columns in messages per second; one timestamp per line; or a web-server log in
        the Common Log Format. Compressed files (``.gz``) and URLs are accepted. Rates hold until the next row.
    flow : Flow
    steps : int, optional
        Default: all whole intervals of the file.
    interval_s : float, optional
        Default: the interval of the goal.
    column : str, optional
        Column of the total rate, which the inputs share in proportion to their expected rates; or the column of
        timestamps, whose rows are counted. Default: a column for each input, named after its PE.
    every_s : float, optional
        Seconds between two rows. Default: the times of a column such as ``timestamp`` (ISO 8601 or Unix seconds), or
        without one a row per interval.
    scale : float
        Factor of all rates.
    offset_s : float
        Seconds skipped at the beginning.

    Raises
    ------
    InputError
        If a column is missing, or the file ends before the last interval; `FormatError`, with the line, if a value is
        invalid.
    """
    length = flow.goal.interval_s if interval_s is None else interval_s
    for name, value, least in (("every_s", every_s, 1e-6), ("scale", scale, 0.0), ("offset_s", offset_s, 0.0)):
        if value is not None and not least <= value < MOST:
            raise InputError(f"{name} = {value:g}: must be at least {least:g} and less than {MOST:g}")
    found = read_rate_file(path, [flow.names[i] for i in flow.inputs], column, every_s, length)
    means = {name: scale * series for name, series in found.means(steps, length, offset_s).items()}
    if column is None and found.rates is not None:
        return streams(flow, means, steps)
    (total,) = means.values()
    shares = np.where(flow.rates.sum() > 0, flow.rates, np.isin(np.arange(flow.size), flow.inputs))
    return np.outer(total, shares / shares.sum())

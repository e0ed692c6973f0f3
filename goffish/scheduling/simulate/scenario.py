"""Rates, variability and forecasts by name, for the command line and the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from goffish.cloud.variability import Variability, generate_walks, like_ec2, read_traces, steady
from goffish.errors import InputError
from goffish.scheduling.control.forecasts import (
    Forecaster,
    ForecastError,
    FromPast,
    Oracle,
    arima,
    exponential_smoothing,
    last_value,
    moving_mean,
    past_quantiles,
)
from goffish.scheduling.dataflow.flow import Floats, Flow
from goffish.scheduling.simulate import rates as shapes

RATES = ("constant", "wave", "walk", "free-walk", "spikes", "on-off", "daily", "requests")
VARIABILITY = ("none", "ec2", "walk")
FORECASTS = ("oracle", "last", "mean", "quantiles", "smoothing", "arima")
_TRACES, _SLOTS = 20, 2000


def make_rates(name: str, flow: Flow, steps: int | None, interval_s: float, seed: int = 0, **reading: Any) -> Floats:
    """Return the external input of every interval, shape (steps, elements).

    Parameters
    ----------
    name : str
        One of `RATES`, scaled to the expected rates of the dataflow, or a file for `rates.read_rates`.
    flow : Flow
    steps : int, optional
        Required except for files; default: all intervals of the file.
    interval_s : float
    seed : int
    **reading
        Options of `rates.read_rates`, for files only.
    """
    if name not in RATES:
        if not Path(name).exists() and "://" not in name:
            raise InputError(f"rates {name!r}: no such file; give a file, or one of {', '.join(RATES)}")
        return shapes.read_rates(name, flow, steps, interval_s=interval_s, **reading)
    if reading:
        raise InputError(f"{', '.join(reading)}: apply to files of rates, not to rates {name!r}")
    assert steps is not None
    rng = np.random.default_rng([seed, 1])
    if name == "daily":
        found = shapes.daily_streams(steps, interval_s, rng, streams=flow.inputs.size)
        return shapes.streams(flow, {flow.names[i]: found[:, at] for at, i in enumerate(flow.inputs.tolist())}, steps)
    shape = {
        "constant": lambda: shapes.constant(1.0, steps),
        "wave": lambda: shapes.wave(1.0, steps, interval_s),
        "walk": lambda: shapes.walk(1.0, steps, rng),
        "free-walk": lambda: shapes.free_walk(1.0, steps, rng),
        "spikes": lambda: shapes.spikes(1.0, steps, rng),
        "on-off": lambda: shapes.on_off(2.0, steps, interval_s),
        "requests": lambda: shapes.requests(1.0, steps, interval_s),
    }[name]()
    return shapes.scaled(flow, shape)


def make_variability(name: str, seed: int = 0) -> Variability:
    """Return the variability of machines: one of `VARIABILITY`, or a CSV or Parquet file of traces (`read_traces`)."""
    if name == "none":
        return steady()
    if name == "ec2":
        return like_ec2(seed)
    if name == "walk":
        return Variability(generate_walks(_TRACES, _SLOTS, np.random.default_rng([seed, 2])), None, seed)
    if not Path(name).exists():
        raise InputError(f"unknown variability {name!r}: give a file of traces, or one of {', '.join(VARIABILITY)}")
    return Variability(read_traces(name), None, seed)


def make_forecaster(
    name: str,
    flow: Flow,
    rates: Floats,
    variability: Variability,
    *,
    interval_s: float,
    horizon: int,
    every: int = 2,
    error: float = 0.0,
    bias: float = 0.0,
    seed: int = 0,
) -> Forecaster:
    """Return a forecaster of rates and speeds: one of `FORECASTS`; `error` and `bias` apply to the oracle."""
    if name == "oracle":
        return Oracle(rates, variability, interval_s, horizon, every, ForecastError(mean=error, bias=bias, seed=seed))
    if name not in FORECASTS:
        raise InputError(f"unknown forecast {name!r}: choose one of {', '.join(FORECASTS)}")
    if error or bias:
        raise InputError("error and bias: only available with forecast oracle")
    model = {
        "last": last_value, "mean": moving_mean, "quantiles": past_quantiles, "smoothing": exponential_smoothing,
        "arima": arima,
    }[name]()  # fmt: skip
    return FromPast(flow, horizon, every, rates=model)
